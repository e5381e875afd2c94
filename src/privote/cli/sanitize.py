"""``privote sanitize``: a data-dependent epsilon that may be published."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from privote.mechanisms import BinaryVoting

from . import options
from .groups import REQUIRED, Group, grouped
from .mechanism import MechanismFlags

NOT_VALID = "for comparison only: not a valid bound"
_READING = (
    "Epsilon is what the labels and this number cost at most, with confidence {sure:g} "
    "(1 - gamma). It is about these votes and their neighbours; not differential privacy. The "
    "noise in it is sigma_s times the smooth sensitivity: how far the cost can move if one voter's "
    "ballots change, here or, counting less by exp(-beta) a ballot, nearby. All of this may be "
    f"published, drawn once. price_2018 is {NOT_VALID}. More: docs/publishing.md."
)


@grouped(
    binary=Group(
        of=MechanismFlags,
        without=("tau", "norm", "max_positives", "link_cost", "link_order"),
        fixed={"name": "binary"},
        instead={"sigma": (options.RequiredSigma, REQUIRED)},
    )
)
def sanitize(
    votes: options.VotesFile,
    binary: MechanismFlags,
    delta: options.Delta,
    queries: Annotated[
        int, typer.Option(show_default=False, help="How many were answered; fixed beforehand.")
    ],
    threshold: options.Threshold = None,
    seed: options.Seed = None,
    show_sealed: Annotated[
        bool,
        typer.Option(
            "--show-sealed",
            help="Also show the exact cost, and what PATE 2018 would have said: not to publish.",
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    r"""Publish what labels from these votes cost, with noise, as PATE 2018 proposed.

    The sanitized epsilon is the exact cost of the labels, raised by noise and by a margin: with
    probability 1 - gamma (the confidence, 0.95) it is large enough, and the labels and this number
    are (epsilon, delta)-close to those of every neighbour of these votes. It is a statement about
    these votes, not differential privacy: other votes may cost more. Run it once: every run draws
    a new number and costs again.

    The noise is sigma_s times the smooth sensitivity: how far the cost can move if one voter's
    ballots change, on these votes or on others nearby, which count less by a factor exp(-beta) for
    every ballot they are away. Order, beta, sigma_s and gamma are fixed before looking. "price" is
    what the number itself costs, exactly, and is part of epsilon; "price_2018" is what the formula
    published in 2018 (Theorem 23) would charge, for comparison only. The proofs are in
    docs/publishing.md.

    Binary voting only; `privote label --guarantee data-dependent` does the same along with the
    labels.

    With --show-sealed the owner also sees what is hidden: the exact epsilon, by both accountants,
    and the figures of PATE 2018's own procedure on these votes. Those are tuned on the votes and
    rest on bounds that do not hold: for comparison only.

    Example:

        privote sanitize votes.npz --sigma 7 --delta 1e-5 --queries 400
    """
    from privote.accounting.renyi import DEFAULT_ORDERS
    from privote.ballots import Ballots
    from privote.entropy import Entropy
    from privote.guardian.consensus import Levels
    from privote.guardian.consensus import sanitize as draw

    mechanism = binary.build()
    assert isinstance(mechanism, BinaryVoting)
    ballots = Ballots.of(votes, threshold=options.parse_threshold(threshold)).head(queries)
    levels = Levels.of(mechanism, ballots)
    assert levels is not None
    for block in ballots.blocks():
        levels.add(mechanism.tally(block))
    epsilon, terms = draw(levels, DEFAULT_ORDERS, delta, Entropy(seed))
    facts = {"epsilon": epsilon, "delta": delta, "queries": queries, **terms}
    facts |= {"price_2018": terms.get("price_2018"), "simulated": seed is not None}
    sealed = _sealed(mechanism, ballots, levels, delta) if show_sealed else None
    _show(facts, sealed, json=json)


def _sealed(mechanism: BinaryVoting, ballots: Any, levels: Any, delta: float) -> dict[str, Any]:
    """Return the owner's numbers, and PATE 2018's where its procedure is defined."""
    from privote.accounting.renyi import DEFAULT_ORDERS, epsilon
    from privote.accounting.sanitize2018 import sanitized
    from privote.guardian.voters import by_voter

    from .progress import working

    with working("pricing each voter"):
        exact = by_voter(mechanism, ballots, delta)
    sealed: dict[str, Any] = {
        "epsilon": epsilon(levels.histogram @ levels.costs(DEFAULT_ORDERS).T, None, delta),
        "epsilon_by_voter": exact.epsilon,
        "accountant": exact.accountant,
        "epsilon_rdp": exact.rdp,
        "epsilon_pld": exact.pld,
        "pate2018": None,
    }
    plain = mechanism.gate is None and mechanism.quota is None and mechanism.false_alarm is None
    if plain and levels.reach == 1 and mechanism.sigma is not None:
        found = sanitized(levels.histogram, mechanism.sigma, delta)
        sealed["pate2018"] = {"note": NOT_VALID, **found._asdict()}
    return sealed


def _show(facts: dict[str, Any], sealed: dict[str, Any] | None, *, json: bool) -> None:
    from privote.report import OWNER_ONLY

    from .output import print_facts, print_json

    if json:
        shown = {} if sealed is None else {"sealed": {"note": OWNER_ONLY, **sealed}}
        print_json({**facts, **shown})
        return
    print_facts(
        facts,
        title="Sanitized cost",
        caption=_READING.format(sure=1 - facts["gamma"]),
    )
    if sealed is None:
        return
    old = sealed.pop("pate2018")
    owner = f"{OWNER_ONLY[0].upper()}{OWNER_ONLY[1:]}"
    print_facts(sealed, title="Exact cost", caption=f"{owner}: it depends on the votes.")
    if old is not None:
        del old["note"]
        print_facts(
            old,
            title="PATE 2018",
            caption=f"{owner}; {NOT_VALID}. Its procedure on these votes: epsilon goes from before "
            "to after, give or take a standard deviation; true_price is what that noise costs.",
        )
