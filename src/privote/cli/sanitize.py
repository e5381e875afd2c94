"""``privote sanitize``: a data-dependent epsilon that may be published."""

from __future__ import annotations

from typing import Annotated

import typer

from . import options
from .mechanism import MechanismFlags


def sanitize(
    votes: options.VotesFile,
    sigma: Annotated[float, typer.Option(show_default=False, help="Noise of Binary voting.")],
    delta: options.Delta,
    queries: Annotated[
        int, typer.Option(show_default=False, help="How many were answered; fixed beforehand.")
    ],
    quota: options.Quota = None,
    false_alarm: options.FalseAlarm = None,
    gate_threshold: options.GateThreshold = None,
    gate_sigma: options.GateSigma = None,
    threshold: options.Threshold = None,
    seed: options.Seed = None,
    json: options.Json = False,
) -> None:
    r"""Publish what labels from these votes cost, with noise, as PATE 2018 proposed.

    The number says: with probability 1 - gamma, the labels and this number are
    (epsilon, delta)-close to those of every neighbour of these votes. It is a statement about
    these votes, not differential privacy. Run it once: every run draws a new number and costs
    again. Binary voting only; `privote label --guarantee data-dependent` does the same along with
    the labels. The price of the number itself is the exact one; beside it stands what the
    published formula (PATE 2018, Theorem 23) would charge, for comparison only.

    Example:

        privote sanitize votes.npz --sigma 7 --delta 1e-5 --queries 400
    """
    from privote.accounting.renyi import DEFAULT_ORDERS
    from privote.accounting.sanitize import published_cost_2018
    from privote.ballots import Ballots
    from privote.entropy import Entropy
    from privote.errors import InputError
    from privote.guardian.consensus import Levels
    from privote.guardian.consensus import sanitize as draw

    from .output import print_facts, print_json

    flags = MechanismFlags(
        name="binary",
        sigma=sigma,
        quota=quota,
        false_alarm=false_alarm,
        gate_threshold=gate_threshold,
        gate_sigma=gate_sigma,
    )
    mechanism = flags.build()
    ballots = Ballots.of(votes, threshold=options.parse_threshold(threshold)).head(queries)
    levels = Levels.of(mechanism, ballots)
    assert levels is not None
    for block in ballots.blocks():
        levels.add(mechanism.tally(block))
    epsilon, terms = draw(levels, DEFAULT_ORDERS, delta, Entropy(seed))
    facts = {"epsilon": epsilon, "delta": delta, "queries": queries, **terms}
    try:
        facts["published formula's price"] = published_cost_2018(
            terms["order"], terms["beta"], terms["sigma_s"]
        )
    except InputError:
        facts["published formula's price"] = None
    facts["simulated"] = seed is not None
    if json:
        print_json(facts)
    else:
        print_facts(
            facts,
            title="Sanitized cost",
            caption="About these votes and their neighbours; not differential privacy. The "
            "published formula's price is for comparison: near its limit it is too small.",
        )
