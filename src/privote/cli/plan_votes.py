"""``privote plan --votes``: choose the noise on votes that may be looked at."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import typer

from privote.arrayfiles import read_npy
from privote.errors import InputError

from . import options
from .mechanism import MechanismFlags, words_of

if TYPE_CHECKING:
    from privote.calibrate import Calibration, Candidate

# What the search finds by itself, or cannot fix.
_SEARCHED = {
    "false_alarm": "a bar that moves with the noise is not searched: give --quota",
    "link_cost": "links are tried without being asked for",
    "link_order": "links are tried without being asked for",
    "gate_threshold": "give --gate, and gates are tried",
    "gate_sigma": "give --gate, and gates are tried",
}
_FREE = {"sigma": "sigmas", "norm": "norms", "quota": "quotas", "max_positives": "max_positives"}
_APART = 0.9  # of the queries of the row above: closer candidates are left out of the table
_BETTER = 5e-4  # than the row above: others would print the same utility


def plan_on_votes(
    votes: Path,
    flags: MechanismFlags,
    budget: tuple[float, float],
    looking: Mapping[str, Any],
    *,
    json: bool,
) -> None:
    """Choose the noise on these votes, and print what was chosen and what else there is."""
    if looking["votes_are_public"] is None:
        raise InputError(
            "--votes-are-public must be given with --votes: choosing on private votes voids their "
            "guarantee, so they must be public, or paid for, and not the ones to label"
        )
    for field in fields(flags):
        if field.name in _SEARCHED and getattr(flags, field.name) is not None:
            spelled = field.name.replace("_", "-")
            raise InputError(f"--{spelled} does not go with --votes: {_SEARCHED[field.name]}")
    from privote.calibrate import best

    from .progress import stages

    wishes = {
        name: looking[name]
        for name in ("guarantee", "floor", "measure", "gate", "beyond")
        if looking[name] is not None
    }
    wishes |= {theirs: getattr(flags, ours) for ours, theirs in _FREE.items()}
    if looking["truth"] is not None:
        wishes["truth"] = _read_truth(looking["truth"])
    with stages() as tell:
        found = best(
            votes,
            mechanism=flags.name,
            epsilon=budget[0],
            delta=budget[1],
            threshold=options.parse_threshold(looking["threshold"]),
            taus=flags.tau,
            progress=lambda done, total: tell(f"calibrating on {votes.name}", done, total),
            **wishes,
        )
    if json:
        from .output import print_json

        print_json({**_numbers(found), "command": _command(found, looking["threshold"])})
    else:
        _show(found, _command(found, looking["threshold"]))


def _read_truth(path: Path) -> npt.NDArray[Any]:
    try:
        return read_npy(path)
    except InputError as error:
        raise InputError(f"--truth {str(path)!r} cannot be read: {error}") from None


def _numbers(found: Calibration) -> dict[str, Any]:
    from privote.calibrate import LOOKED

    return {
        "note": LOOKED,
        "guarantee": found.guarantee,
        "epsilon": found.epsilon,
        "delta": found.delta,
        "floor": found.floor,
        "measure": found.measure,
        "against": found.against,
        "voters": found.voters,
        "labels": found.labels,
        "queries_looked_at": found.available,
        "chosen": found.chosen.row(),
        "candidates": [candidate.row() for candidate in found.table],
    }


def _command(found: Calibration, threshold: str | None) -> str:
    """Return the command that labels other votes as planned."""
    words = ["privote", "label", "VOTES", *words_of(found.mechanism)]
    words += ["--epsilon", repr(found.epsilon), "--delta", repr(found.delta)]
    words += ["--guarantee", found.guarantee]
    # Worst-case stops by itself; the others must be told, or go on while voters run out.
    if found.guarantee != "worst-case" and (
        found.guarantee != "allowance" or found.queries < found.available
    ):
        words += ["--queries", str(found.queries)]
    words += [] if threshold is None else ["--threshold", threshold]
    return shlex.join([*words, "--output", "labels.csv"])


def _show(found: Calibration, command: str) -> None:
    from privote.calibrate import LOOKED
    from privote.report import Column

    from .output import print_facts, print_table

    print_facts(found.facts(), title="Plan", caption=f"{LOOKED}.".capitalize())
    rows = [
        {**candidate.row(), "chosen": "<-" if candidate == found.chosen else ""}
        for candidate in _spread(found.front, found.chosen)
    ]
    shown = ["mechanism", "queries", "utility"]
    shown += ["answered"] if any(row["answered"] < 1 for row in rows) else []
    shown += [name for name in ("allowance", "beyond") if getattr(found.chosen, name) is not None]
    print_table(
        rows,
        columns=[*(Column(key=name) for name in shown), Column(key="chosen", heading="")],
        title="What else there is: queries against utility",
    )
    typer.echo("To carry it out, with VOTES the private votes (never these):")
    typer.echo(command)


def _spread(front: Iterable[Candidate], chosen: Candidate) -> list[Candidate]:
    """Return the front without crowds: the search leaves many candidates around the chosen one."""
    shown: list[Candidate] = []
    for candidate in front:
        close = bool(shown) and candidate.worth > _APART * shown[-1].worth
        alike = bool(shown) and candidate.utility < shown[-1].utility + _BETTER
        if candidate == chosen:
            shown = shown[:-1] if close else shown
        elif close or alike:
            continue
        shown.append(candidate)
    return shown
