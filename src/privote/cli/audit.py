"""``privote audit``: try to break the guarantees."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from . import options
from .output import print_json, print_table, say, working

if TYPE_CHECKING:
    from privote.mechanisms import Mechanism


def audit(
    ctx: typer.Context,
    *,
    mechanism: str = "",
    sigma: float | None = None,
    tau: float | None = None,
    norm: int | None = None,
    max_positives: int | None = None,
    quota: float | None = None,
    false_alarm: float | None = None,
    gate_threshold: float | None = None,
    gate_sigma: float | None = None,
    settings: options.Settings = None,
    elections: int = 100,
    voters: int = 5,
    labels: int = 3,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Try to break the guarantees of every mechanism; exit 1 if it succeeds.

    Example:

        privote audit --mechanism binary --elections 500

    "exact" enumerates every neighbour of small random elections and compares the true Rényi
    divergence with every stated cost; "missing" does the same with missing votes. Each ratio is the
    largest true cost divided by the stated cost: 1 is exact, below 1 is safe, above 1 the guarantee
    is broken. No private votes are used.

    Parameters
    ----------
    mechanism : NAME
        Audit only this mechanism: tally, binary, tau, powerset or plurality; or
        package.module:Class, which runs when it is imported. Without settings, each of its features
        is audited.
    elections
        Number of random elections per mechanism.
    voters
        Number of voters.
    labels
        Number of labels per ballot.
    seed
        Seed of the random elections.
    """
    from privote.audit import exact
    from privote.mechanisms import MECHANISMS

    kinds = [options.kind_of(mechanism)] if mechanism else [*MECHANISMS.values()]
    subjects = [each for kind in kinds for each in _subjects(kind, voters)]
    if options.settings_of(ctx.params):
        subjects = [each for each in [options.mechanism_of(ctx.params)] if each]
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


def _subjects(kind: type[Mechanism], voters: int) -> list[Mechanism]:
    """Return a mechanism with each of its features; of privote's own, a gate is one."""
    from privote.audit import subjects
    from privote.mechanisms import MECHANISMS, Gate

    every = [*subjects(kind)]
    if kind.name in MECHANISMS and "gate" in kind.settings():
        gate = Gate(threshold=(voters + 1) / 2, sigma=1.5)
        every.append(replace(every[0], gate=gate))
    return every


def _show(findings: list[dict[str, Any]], size: dict[str, int]) -> None:
    from privote.report.tables import Column

    print_table(
        [row | {"verdict": "ok" if row["ok"] else "BROKEN"} for row in findings],
        columns=["mechanism", "audit", "cases", Column(key="ratio", digits=6), "verdict"],
        title=f"Audit: largest true cost / stated cost ({size['elections']} elections each, "
        f"voters: {size['voters']}, labels: {size['labels']})",
        caption="Above 1 a guarantee is broken; 1 means that the stated cost is the true one.",
    )
    for name in sorted({row["mechanism"] for row in findings if not row["independent"]}):
        say(f"{name}: compared with its own probabilities; there is no second definition of it.")
    broken = [row["summary"] for row in findings if not row["ok"]]
    count = f"{len(broken)} of {len(findings)} audits found a violation."
    say("\n".join([*broken, count if broken else "All audits passed."]))
