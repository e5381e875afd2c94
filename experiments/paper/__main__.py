"""Every claim of the paper, measured: ``python -m experiments.paper``."""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import page
from .bench import Bench, Measured, plain
from .claims import BY_NAME, CLAIMS, Claim

RESULTS = Path(__file__).parent / "results"


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.paper", description=__doc__)
    parser.add_argument(
        "--only", metavar="KEY,...", help='rows by key or place, "table-3,Figure 4"'
    )
    parser.add_argument("--data", type=Path, help="a folder with data; docs/data-sets.md names it")
    parser.add_argument("--authors", type=Path, help="a checkout of the authors' code")
    parser.add_argument("--profile", choices=("quick", "full"), default="quick",
                        help="one seed, or three")  # fmt: skip
    parser.add_argument("--slow", action="store_true", help="also what takes an hour: ResNet-18")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where figures are kept")
    parser.add_argument("--page", type=Path, help="write the page of all that is kept")
    parser.add_argument("--list", action="store_true", help="show the rows, and run nothing")
    given = parser.parse_args(words)
    given.keys = [name.strip().lower() for name in given.only.split(",")] if given.only else []
    for name in given.keys:
        if name not in BY_NAME:
            parser.error(f"--only must name rows by key or place, and {name!r} is none")
    if given.data is not None and not given.data.is_dir():
        parser.error(f"--data must be a folder: {given.data}")
    return given


def keep(folder: Path, claim: Claim, measured: Measured, seconds: float, command: str) -> None:
    """Write a claim's facts as JSON and its rows as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "command": command}
    facts |= {"seconds": round(seconds, 1), "facts": plain(measured.facts)}
    text = json.dumps(facts, indent=1, ensure_ascii=False)
    (folder / f"{claim.key}.json").write_text(text + "\n", encoding="utf-8")
    columns = list(dict.fromkeys(name for row in measured.rows for name in row))
    with (folder / f"{claim.key}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        for row in measured.rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def kept(folder: Path) -> dict[str, Any]:
    """Return what is kept of every claim, by key."""
    files = {claim.key: folder / f"{claim.key}.json" for claim in CLAIMS}
    return {
        key: json.loads(file.read_text("utf-8")) for key, file in files.items() if file.is_file()
    }


def main(words: list[str] | None = None) -> int:
    """Measure what is asked for, keep it, and write the page."""
    given = arguments(words)
    if given.list:
        for claim in CLAIMS:
            print(f"{claim.key:20s} {claim.place}: {claim.says}")
        return 0
    chosen = [BY_NAME[name] for name in given.keys]
    chosen = chosen or [claim for claim in CLAIMS if given.slow or not claim.slow]
    seeds = 3 if given.profile == "full" else 1
    bench = Bench(seeds=seeds, data=given.data, authors=given.authors)
    for number, claim in enumerate(chosen, 1):
        print(f"{number}/{len(chosen)} {claim.key} ...", file=sys.stderr, flush=True)
        started = time.process_time()
        measured = claim.measure(bench)
        command = page.command_of(claim, profile=given.profile)
        if measured is None:
            print(f"{claim.place}: not run, its data is not at hand ({command})")
            continue
        keep(given.results, claim, measured, time.process_time() - started, command)
        print(page.in_words(claim, plain(measured.facts)), flush=True)
    if given.page is not None:
        given.page.write_text(page.page(kept(given.results)), encoding="utf-8")
        print(f"Page: {given.page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
