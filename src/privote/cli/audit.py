"""``privote audit``: try to break the guarantees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import typer

from privote.errors import InputError

from .options import kind_of
from .output import say

if TYPE_CHECKING:
    from privote.mechanisms import Mechanism


def audit(
    *,
    mechanism: list[str] | None = None,
    elections: int = 100,
    voters: int = 5,
    labels: int = 3,
    sampled: bool = False,
    draws: int = 100_000,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Try to break the guarantees of every mechanism; exit 1 if it succeeds.

    Example:

        privote audit --mechanism binary --elections 500

    "exact" lists every neighbour of random small elections and compares the true divergence, by
    the definition, with every stated cost; "missing" does so where votes are missing. "sampled"
    counts what real releases do and bounds epsilon from below. Each number is the largest true
    cost over the stated one: 1 is exact, less is safe, above 1 the guarantee is broken. No private
    votes are involved.

    Parameters
    ----------
    mechanism : NAME
        Audit this one only (may be repeated): binary, tau, powerset, plurality,
        tally, or package.module:Class, which is imported.
    elections
        How many random elections each.
    sampled
        Also draw real releases and count.
    draws
        With ``sampled``: releases for each side.
    seed
        For the elections; noise is never seeded.
    """
    kinds = tuple(kind_of(name) for name in mechanism or ())
    subjects = [s for s in _subjects(voters) if not kinds or type(s) in kinds]
    listed = {type(subject) for subject in subjects}
    for name, kind in zip(mechanism or (), kinds, strict=True):
        subjects += () if kind in listed else kind.variants(2.0, 4.0)
        if kind not in {type(subject) for subject in subjects}:
            raise InputError(
                "mechanism", "must have `variants`: no settings to audit it with", name
            )
    size = _Size(voters=voters, labels=labels, elections=elections, seed=seed)
    findings = _run(subjects, size, draws if sampled else None)
    broken = [row for row in findings if not row["ok"]]
    if json:
        from .output import print_json

        print_json({"ok": not broken, **asdict(size), "audits": findings})
    else:
        _show(findings, broken, size)
    if broken:
        raise typer.Exit(1)


@dataclass(frozen=True, kw_only=True)
class _Size:
    voters: int
    labels: int
    elections: int
    seed: int


def _subjects(voters: int) -> list[Mechanism]:
    """Return every mechanism with each of its features; little noise, so that flaws would show."""
    from privote.links import OptimalLink
    from privote.mechanisms import (
        BinaryVoting,
        Gate,
        PluralityVoting,
        PowersetVoting,
        TallyVoting,
        TauVoting,
    )

    gate = Gate(threshold=(voters + 1) / 2, sigma=1.5)
    return [
        BinaryVoting(sigma=2.0),
        BinaryVoting(sigma=2.0, quota=0.3),
        BinaryVoting(sigma=2.0, false_alarm=0.05),
        BinaryVoting(sigma=2.0, gate=gate),
        BinaryVoting(link=OptimalLink(cost=0.3, order=4.0)),
        TauVoting(sigma=2.0, tau=1.2, norm=2),
        TauVoting(sigma=2.0, tau=1.5, norm=1),
        TauVoting(sigma=2.0, tau=1.2, norm=2, gate=gate),
        PowersetVoting(sigma=1.5),
        PowersetVoting(sigma=1.5, max_positives=2),
        PowersetVoting(sigma=1.5, gate=gate),
        PluralityVoting(sigma=2.0),
        PluralityVoting(sigma=2.0, gate=gate),
        TallyVoting(sigma=2.0),
        TallyVoting(sigma=2.0, tau=1.2),
    ]


def _run(subjects: list[Mechanism], size: _Size, draws: int | None) -> list[dict[str, Any]]:
    """Return what each audit of each mechanism found."""
    from .output import working

    findings = []
    with working("auditing", len(subjects)) as tick:
        for done, subject in enumerate(subjects):
            tick(done)
            for kind, cases, ratio, report in _audits(subject, size, draws):
                findings.append(
                    {
                        "mechanism": str(subject),
                        "audit": kind,
                        "cases": cases,
                        "ratio": ratio,
                        "ok": report.ok,
                        "summary": report.summary(),
                    }
                )
    return findings


def _audits(
    mechanism: Mechanism, size: _Size, draws: int | None
) -> Iterator[tuple[str, int, float, Any]]:
    """Yield the name, the number of cases, the largest ratio and the report of each audit."""
    from privote import audit

    for kind in ("exact", "missing"):
        exact = audit.exact(
            mechanism,
            size.voters,
            size.labels,
            elections=size.elections,
            missing=kind == "missing",
            seed=size.seed,
        )
        yield kind, exact.neighbours, max(exact.ratios.values()), exact
    if draws is not None:
        votes, neighbour = _closest(mechanism, size.voters, size.labels)
        sampled = audit.sampled(mechanism, votes, neighbour, draws=draws)
        yield "sampled", sampled.draws, sampled.lower_bound / sampled.stated, sampled


def _closest(mechanism: Mechanism, voters: int, labels: int) -> tuple[Any, Any]:
    """Return an even vote and a neighbour that tips it: where one voter matters most."""
    import numpy as np

    most = mechanism.most_ones or labels
    votes = np.zeros((1, voters, labels), np.bool_)
    votes[:, : voters // 2, :most] = True
    neighbour = votes.copy()
    neighbour[:, voters - 1, :most] = True
    return votes, neighbour


def _show(findings: list[dict[str, Any]], broken: list[dict[str, Any]], size: _Size) -> None:
    from privote.report import Column

    from .output import print_table

    rows: dict[str, dict[str, Any]] = {}
    for found in findings:
        row = rows.setdefault(
            found["mechanism"], {"mechanism": found["mechanism"], "verdict": "ok"}
        )
        row[found["audit"]] = found["ratio"]
        if not found["ok"]:
            row["verdict"] = "BROKEN"
    kinds = dict.fromkeys(found["audit"] for found in findings)
    print_table(
        list(rows.values()),
        columns=["mechanism", *(Column(key=kind, digits=6) for kind in kinds), "verdict"],
        title=f"Audit: largest true cost / stated cost ({size.elections} elections each, "
        f"voters: {size.voters}, labels: {size.labels})",
        caption=f"{sum(found['cases'] for found in findings):,} cases. Above 1 a guarantee is "
        "broken; 1 means that the stated cost is the true one.",
    )
    for found in broken:
        say(found["summary"])
    count = f"{len(broken)} of {len(findings)}"
    say(f"{count} audits found a violation." if broken else "All audits passed.")
