"""Texts by words and by a public network: test AUC of `privote train` on medical abstracts.

Ohsumed (Hersh et al. 1994): abstracts of `train` are private; of `test` every second one is public,
the others are test rows. Everything runs from the command line:

    python experiments/texts.py --data ../shared/data/ohsumed.csv.gz --cache features
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import resource
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

EMBEDDINGS = ("words", "minilm")


def split(data: Path, folder: Path, rows: slice) -> list[str]:
    """Write the three tables; return the labels."""
    with gzip.open(data, "rt", encoding="utf-8") as stream:
        records = [*csv.DictReader(stream)][rows]
    labels = [name for name in records[0] if name.startswith("C")]
    others = [record for record in records if record["split"] == "test"]
    private = [record for record in records if record["split"] == "train"]
    sides = {"private": private, "public": others[::2], "test": others[1::2]}
    for name, side in sides.items():
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, ["text", *labels], extrasaction="ignore")
            writer.writeheader()
            writer.writerows(side)
    print(", ".join(f"{len(side):,} {name}" for name, side in sides.items()), flush=True)
    return labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--first", type=int, help="how many abstracts; default: all")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    with TemporaryDirectory() as place:
        folder = Path(place)
        labels = split(asked.data, folder, slice(asked.first))
        for number, epsilon, embedding in product(range(asked.runs), asked.epsilon, EMBEDDINGS):
            command: list[Any] = [
                *(sys.executable, "-m", "privote", "train", folder / "private.csv"),
                *("--labels", ",".join(labels), "--columns", "text"),
                *("--public", folder / "public.csv", "--test", folder / "test.csv"),
                *("--test-is-public", "--epsilon", epsilon, "--delta", 1e-5),
                *("--embedding", embedding, "--cache", asked.cache.absolute()),
                *("--output", folder / f"{number}-{epsilon}-{embedding}", "--json"),
            ]
            start = time.perf_counter()
            done = subprocess.run([*map(str, command)], check=True, capture_output=True, text=True)
            facts = json.loads(done.stdout)
            seconds = time.perf_counter() - start
            memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
            print(
                f"epsilon {epsilon:g} {embedding:7} {facts['method']:9} AUC "
                f"{facts['test'][0]['AUC']:.4f} {seconds:.0f} s, at most {memory:.1f} GiB so far",
                flush=True,
            )


if __name__ == "__main__":
    main()
