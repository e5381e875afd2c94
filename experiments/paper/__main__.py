"""Every claim of the paper, measured: ``python -m experiments.paper``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from privote.cli.output import print_json, print_table, say, speak, stages
from privote.errors import InputError

from . import claims, page, runner
from .kinds import Bench

PROFILES = ("quick", "full")


def paper(
    output: Annotated[
        Path, typer.Option(help="A folder for the page, the tables and what was measured.")
    ] = Path("build/paper"),
    profile: Annotated[
        str, typer.Option(metavar="quick|full", help="One seed, or three.")
    ] = "quick",
    only: Annotated[
        str | None,
        typer.Option(
            metavar="CLAIM[,...]",
            help='Only these claims, by key or place ("Figure 4,Table 1"); --list shows all.',
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A folder with real data; docs/data-sets.md says which.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="How often what is random is drawn: 1, or 3 in full.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure anew what an earlier run has kept.")
    ] = False,
    kept: Annotated[
        bool, typer.Option("--kept", help="Measure nothing: a page of what runs have kept so far.")
    ] = False,
    listed: Annotated[
        bool, typer.Option("--list", help="Show the claims and leave; nothing is run.")
    ] = False,
    json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure the paper's theorems, tables and figures, and say which hold.

    Example:

        python -m experiments.paper --only "Figure 4"

    Writes one page with every claim: what the paper says, what is measured here, in the paper's
    accounting and exactly, a plot like the paper's, and a verdict. What was measured is kept: a
    run that was broken off goes on, and only what changed is measured again.
    """
    if listed:
        rows = [
            {"key": c.key, "in the paper": claims.PLACES[c.key], "claim": c.title}
            for c in claims.CLAIMS
        ]
        if json:
            print_json({"claims": rows})
        else:
            print_table(rows, title=f"The paper's {len(rows)} claims")
        return
    if profile not in PROFILES:
        raise InputError("profile", f"must be one of {', '.join(PROFILES)}", profile)
    if kept and fresh:
        raise InputError("kept", "does not go with `fresh`")
    if seeds is None:
        seeds = 3 if profile == "full" else 1
    if seeds < 1:
        raise InputError("seeds", "must be at least 1", seeds)
    if data is not None and not data.is_dir():
        raise InputError("data", "must be a folder", str(data))
    keys = None if only is None else [_key(name.strip()) for name in only.split(",")]
    bench = Bench(profile=profile, seeds=seeds, data=data)
    if not json and (found := page.data_found(bench, keys)):
        print_table(found, title="Data")
    with stages() as tell:
        results = runner.run(
            bench,
            output / "kept",
            only=keys,
            fresh=fresh,
            kept_only=kept,
            progress=lambda key, done, total: _tell(tell, key, done, total),
        )
    words = [
        "python -m experiments.paper",
        f"--output {shlex.quote(str(output))}",
        f"--profile {profile}",
    ]
    words += [f"--seeds {seeds}"] + ([f"--only {','.join(keys)}"] if keys else [])
    words += ["--data DIR"] if data else []  # the page leaves this machine
    facts = page.write(output, results, bench, " ".join(words))
    if json:
        print_json(facts)
        return
    print_table(
        [
            {
                "in the paper": claims.PLACES[r.claim.key],
                "claim": r.claim.title,
                "verdict": r.verdict[0],
                "s": round(r.seconds),
            }
            for r in results
        ],
        title="The paper, claim by claim",
    )
    for result in results if keys else ():
        say(f"{claims.PLACES[result.claim.key]}: {result.verdict[1]}\n")
    say("; ".join(f"{word}: {count}" for word, count in facts["verdicts"].items()))
    say(f"Page: {facts['page']}; the same in Markdown, and CSVs, beside it")


def _key(name: str) -> str:
    """Return the key of a claim that is called by its key or its place in the paper."""
    found = claims.BY_NAME.get(name.lower())
    if found is None:
        raise InputError("only", "must name claims by key or place; --list shows them", name)
    return str(found.key)


def _tell(tell: Any, key: str, done: int, total: int) -> None:
    if not typer.get_text_stream("stderr").isatty():
        typer.echo(f"{done}/{total} {key}", err=True)
    tell("claims", done, total)


app = typer.Typer(
    pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)
app.command()(paper)
speak(app)

if __name__ == "__main__":
    app(prog_name="python -m experiments.paper")
