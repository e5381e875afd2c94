"""``privote audit``: try to break the guarantees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from privote.errors import InputError

from .options import kind_of

if TYPE_CHECKING:
    from privote.mechanisms import Mechanism


def audit(
    *,
    mechanism: list[str] | None = None,
    elections: int = 100,
    voters: int = 5,
    labels: int = 3,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Try to break the guarantees of every mechanism; exit 1 if it succeeds.

    Example:

        privote audit --mechanism binary --elections 500

    "exact" lists every neighbour of random small elections and compares the true divergence, by
    the definition, with every stated cost; "missing" does so where votes are missing. Each number
    is the largest true cost over the stated one: 1 is exact, less is safe, above 1 the guarantee
    is broken. No private votes are involved.

    Parameters
    ----------
    mechanism : NAME
        Audit this one only (may be repeated): binary, tau, powerset, plurality,
        tally, or package.module:Class, which is imported.
    elections
        How many random elections each.
    seed
        For the elections.
    """
    from privote.audit import exact

    from .output import print_json, working

    kinds = tuple(kind_of(name) for name in mechanism or ())
    subjects = [s for s in _subjects(voters) if not kinds or type(s) in kinds]
    listed = {type(subject) for subject in subjects}
    for name, kind in zip(mechanism or (), kinds, strict=True):
        subjects += () if kind in listed else kind.variants(2.0, 4.0)
        if kind not in {type(subject) for subject in subjects}:
            raise InputError(
                "mechanism", "must have `variants`: no settings to audit it with", name
            )
    findings: list[dict[str, Any]] = []
    with working("auditing", len(subjects)) as tick:
        for done, subject in enumerate(subjects):
            tick(done)
            for missing in (False, True):
                how: dict[str, Any] = {"elections": elections, "seed": seed, "missing": missing}
                report = exact(subject, voters, labels, **how)
                findings.append(
                    {
                        "mechanism": str(subject),
                        "audit": "missing" if missing else "exact",
                        "cases": report.neighbours,
                        "ratio": max(report.ratios.values()),
                        "ok": report.ok,
                        "independent": report.independent,
                        "summary": report.summary(),
                    }
                )
    size = {"voters": voters, "labels": labels, "elections": elections, "seed": seed}
    ok = all(row["ok"] for row in findings)
    if json:
        print_json({"ok": ok, **size, "audits": findings})
    else:
        _show(findings, size)
    if not ok:
        raise typer.Exit(1)


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


def _show(findings: list[dict[str, Any]], size: dict[str, int]) -> None:
    from privote.report import Column

    from .output import print_table, say

    rows: dict[str, dict[str, Any]] = {}
    for found in findings:
        row = rows.setdefault(found["mechanism"], {"mechanism": found["mechanism"]})
        row[found["audit"]] = found["ratio"]
        row["verdict"] = "ok" if found["ok"] and row.get("verdict") != "BROKEN" else "BROKEN"
    ratios = (Column(key=kind, digits=6) for kind in ("exact", "missing"))
    print_table(
        list(rows.values()),
        columns=["mechanism", *ratios, "verdict"],
        title=f"Audit: largest true cost / stated cost ({size['elections']} elections each, "
        f"voters: {size['voters']}, labels: {size['labels']})",
        caption=f"{sum(found['cases'] for found in findings):,} cases. Above 1 a guarantee is "
        "broken; 1 means that the stated cost is the true one.",
    )
    for name in sorted({found["mechanism"] for found in findings if not found["independent"]}):
        say(f"{name}: compared with its own probabilities; audit/textbook.py does not have it.")
    broken = [found["summary"] for found in findings if not found["ok"]]
    count = f"{len(broken)} of {len(findings)} audits found a violation."
    say("\n".join([*broken, count if broken else "All audits passed."]))
