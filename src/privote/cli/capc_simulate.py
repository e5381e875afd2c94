"""``privote capc simulate``: a whole coalition on one machine, on scenes that come with privote."""

from __future__ import annotations

import contextlib
import json as json_module
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privote.errors import BudgetError, InputError, LedgerError, PeerError, PrivoteError

from . import options
from .groups import Group, grouped
from .mechanism import MechanismFlags

if TYPE_CHECKING:
    from privote.capc.terms import Terms

_COALITION, _BUDGET = "Coalition", "Budget"
_SCENES = 300  # private scenes of each site
_GRID = 1 << 16  # steps of a whole vote under tau voting
_ERRORS: dict[int, type[PrivoteError]] = {
    error.exit_code: error for error in (InputError, BudgetError, LedgerError, PeerError)
}
QUERIER, GUARDIAN = "querier", "guardian"

_MECHANISM = Annotated[
    str,
    typer.Option("--mechanism", metavar="NAME", help="binary or tau.", rich_help_panel="Mechanism"),
]


@dataclass(frozen=True, kw_only=True)
class SimulationFlags:
    """Who takes part, in what, and what it may cost."""

    parties: Annotated[int, typer.Option(help="Answering sites.", rich_help_panel=_COALITION)] = 5
    queries: Annotated[
        int, typer.Option(help="Scenes to have labelled.", rich_help_panel=_COALITION)
    ] = 100
    hidden: Annotated[
        int | None,
        typer.Option(
            help="Models with one hidden layer of this many units; linear unless told.",
            rich_help_panel=_COALITION,
        ),
    ] = None
    minimum: Annotated[
        int | None,
        typer.Option(
            help="Sites that must take part; more than half unless told.",
            rich_help_panel=_COALITION,
        ),
    ] = None
    epsilon: Annotated[
        float, typer.Option(help="The budget of each site's data.", rich_help_panel=_BUDGET)
    ] = 20.0
    delta: Annotated[
        float, typer.Option(help="The probability left out.", rich_help_panel=_BUDGET)
    ] = 1e-5
    guarantee: Annotated[
        str,
        typer.Option(metavar="NAME", help="allowance or worst-case.", rich_help_panel=_BUDGET),
    ] = "allowance"
    timeout: Annotated[
        float,
        typer.Option(help="Seconds to wait for a site.", rich_help_panel=_COALITION),
    ] = 300.0


@grouped(
    mechanism=Group(
        of=MechanismFlags, without=("max_positives",), instead={"name": (_MECHANISM, "binary")}
    ),
    asked=Group(of=SimulationFlags),
)
def simulate(
    output: Annotated[
        Path, typer.Option(show_default=False, help="A new folder for everything that is made.")
    ],
    mechanism: MechanismFlags,
    asked: SimulationFlags,
    clear: Annotated[
        bool,
        typer.Option(
            "--clear",
            help="One process, no secrecy: the same roles and messages in clear text, for large "
            "studies. Stamped INSECURE.",
        ),
    ] = False,
    seed: options.Seed = None,
    json: options.Json = False,
) -> None:
    """Run a whole coalition on this machine: a guardian, answering sites and one that asks.

    The sites' data are scenes of handwritten digits that come with privote. Unless --clear, every
    site is a process of its own with its own certificate, and all that they say to each other goes
    through mutual TLS and the secure engine, as between machines; the folder that is written holds
    every site's files, to look at and to copy from.

    With a --seed models, masks and noise can be repeated: stamped SIMULATED, it protects nobody.

    Example:

        privote capc simulate --parties 5 --queries 100 --output trial
    """
    from .capc_scenes import made

    if output.exists():
        raise InputError(f"--output must be a new folder, {str(output)!r} exists")
    terms = _terms(mechanism, asked)
    if not clear:
        _check_extras()
    with _telling("training the sites' models"):
        scenes = made(terms, asked.parties, asked.queries, asked.hidden, _SCENES, seed or 0)
    output.mkdir(parents=True)
    run = _in_clear if clear else _in_processes
    try:
        facts = run(output, terms, scenes, seed)
    except PrivoteError:
        with contextlib.suppress(OSError):
            output.rmdir()  # only if nothing is in it: the same command may then be tried again
        raise
    _finish(output, terms, scenes, facts, json=json)


def _check_extras() -> None:
    """Say what is missing before anything is trained or written."""
    from privote.capc.secure.base import engine
    from privote.capc.transport.streams import grpc_module

    grpc_module()
    engine("spu")


def _terms(mechanism: MechanismFlags, asked: SimulationFlags) -> Terms:
    from dataclasses import replace

    from privote.capc.terms import Terms
    from privote.mechanisms import BinaryVoting, TauVoting

    if asked.parties < 2:
        raise InputError(f"--parties must be at least 2, got {asked.parties}")
    if asked.queries < 1:
        raise InputError(f"--queries must be at least 1, got {asked.queries}")
    # As much noise, for the number of voters, as the paper's sigma of 7 is for 50.
    sigma = None if mechanism.noisy else max(2.0, 0.14 * asked.parties)
    built = mechanism.build(sigma=sigma)
    if isinstance(built, TauVoting):
        built = replace(built, grid=_GRID)
    shareable = isinstance(built, BinaryVoting) and built.sigma is not None
    minimum = asked.parties // 2 + 1 if asked.minimum is None else asked.minimum
    return Terms(
        name="rehearsal",
        labels=tuple(f"digit {d}" for d in range(10)),
        features=256,
        bound=1.0,
        bits=16,
        mechanism=built,
        guarantee=asked.guarantee,
        epsilon=asked.epsilon,
        delta=asked.delta,
        guardian=GUARDIAN,
        parties={f"site-{n}": None for n in range(1, asked.parties + 1)},
        queriers=(QUERIER,),
        minimum=max(2, minimum),
        most_queries=asked.queries,
        hidden=asked.hidden,
        noise="sites" if shareable else "guardian",
        timeout=asked.timeout,
    )


def _telling(what: str) -> Any:
    from .progress import working

    if not typer.get_text_stream("stderr").isatty():
        typer.echo(f"{what} ...", err=True)
    return working(what)


def _in_processes(output: Path, terms: Terms, scenes: Any, seed: int | None) -> dict[str, Any]:
    """Run every site as a process; returns what the querying site's statement says."""
    import numpy as np

    from privote.capc.rehearsal import Rehearsal, lay_out

    sites = lay_out(output, terms, scenes.models, insecure=seed is not None, seed=seed)
    rows = output / QUERIER / "rows.npz"
    np.savez(rows, X=scenes.X)
    began = time.monotonic()
    with _telling(f"starting {len(terms.parties) + 1} programs"):
        rehearsal = Rehearsal(sites, terms).__enter__()
    started = time.monotonic()
    try:
        with _telling("asking"):
            done = rehearsal.query(QUERIER, rows, output / "answers", "--json")
        seconds = time.monotonic() - started
    finally:
        rehearsal.stop()
    (output / QUERIER / "log.txt").write_text(done.stderr, encoding="utf-8")
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        why = said[-1].removeprefix("error: ") if said else f"exit {done.returncode}"
        raise _ERRORS.get(done.returncode, PeerError)(
            f"the querying site failed: {why}; every site's log is in {str(output)!r}"
        )
    facts: dict[str, Any] = json_module.loads(done.stdout)
    return {**facts, "start_seconds": round(started - began, 2), "seconds": round(seconds, 2)}


def _in_clear(output: Path, terms: Terms, scenes: Any, seed: int | None) -> dict[str, Any]:
    """Run all roles in this process, in clear text."""
    from privote.capc.coalition import Simulation
    from privote.capc.site import stamp_of

    from .capc_output import facts_of, write

    began = time.monotonic()
    with _telling("asking"):
        answers = Simulation(terms, scenes.models, seed=seed).ask(QUERIER, scenes.X)
    facts = facts_of(terms, QUERIER, answers, stamp=stamp_of("clear", seed))
    facts["seconds"] = round(time.monotonic() - began, 2)
    (output / "answers").mkdir()
    write(output / "answers", facts, terms, answers)
    return facts


def _finish(output: Path, terms: Terms, scenes: Any, facts: dict[str, Any], *, json: bool) -> None:
    """Write what was found and show it."""
    import numpy as np

    from privote.accounting.renyi import rounded_up

    from .capc_output import allowance_said
    from .output import print_json, print_table

    with np.load(output / "answers" / "labels.npz") as file:
        labels = file["labels"]
    figures = scenes.figures(labels)
    facts = {**facts, "figures": figures}
    (output / "summary.json").write_text(
        json_module.dumps(facts, indent=2, allow_nan=False) + "\n", encoding="utf-8"
    )
    if json:
        print_json(facts)
        return
    if facts["stamp"]:
        typer.echo(facts["stamp"] + "\n")
    typer.echo(
        f"{len(facts['parties'])} of {facts['voters']} sites labelled {len(labels)} scenes with "
        f"{facts['mechanism']}.\nGuarantee {facts['guarantee']}: epsilon "
        f"{rounded_up(facts['epsilon'], 3)} at delta {rounded_up(facts['delta'])} for each site's "
        "data, all who ask together."
    )
    allowance = allowance_said(facts)
    if allowance is not None:
        typer.echo(
            f"May depart from the baseline (no): {allowance}.\n"
            "A site that has used it up counts as the baseline."
        )
    typer.echo()
    print_table(figures)
    typer.echo(
        "Compared with the truth, which only a simulation knows; an abstention counts as 0. In a "
        "real\ncoalition nobody sees votes or their majority."
    )
    each = facts["seconds"] / len(labels)
    moved = f", {facts['megabytes']:.1f} MB between sites" if "megabytes" in facts else ""
    typer.echo(f"Engine {facts['engine']}: {facts['seconds']:.1f} s, {each:.3f} s a scene{moved}.")
    typer.echo(f"Labels and statement: {output / 'answers'}")
    if facts["engine"] != "clear":
        typer.echo(f"Every site's files, keys and log: {output}")
