"""Prices of consensus: what these votes cost, and what of that may be said. Two guarantees.

*Propose, test, release*: these prices, if a private test says that there is consensus. Only for
mechanisms that price cells by level, such as Binary voting, gated or not: the cost is a sum over
cells of a table by level, and one changed ballot moves every cell by at most one vote, which is
what the distance test (:mod:`privote.accounting.ptr`) is proved for.

*Data-dependent*: the paper's. A statement about these votes; its exact epsilon is sealed. One that
may be published follows from the smooth sensitivity (:mod:`privote.accounting.sanitize`), proved
for the same mechanisms.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtri

from ..accounting import ptr
from ..accounting import sanitize as rules
from ..accounting.renyi import Floats, epsilon
from ..entropy import Entropy
from ..errors import UnavailableError
from ..ledger import Budget
from ..mechanisms import Mechanism
from ..mechanisms.cells import CellTally, Ladder
from ..release import Later, Release, Sealed
from ..votes.cube import BallotSource, Counts
from .issuer import Issuer, Parts, charged, sizes
from .voter_bills import bills, by_voter

_CHUNK = 2**14  # costs worked out at a time
_TABLE = 2**20  # costs that are worked out to choose an order


def propose_test_release(issuer: Issuer, ballots: BallotSource, parts: Parts | None) -> Release:
    """Charge the whole budget, then release all labels or none."""
    levels = Levels.of(issuer.mechanism, ballots)
    if levels is None:
        raise UnavailableError(
            "guarantee 'ptr' has a proof for mechanisms that count single votes, such as binary, "
            f"not for {issuer.mechanism.name}; 'allowance' and 'worst-case' take every mechanism"
        )
    issuer.mechanism.check(ballots)
    proposal = propose(levels, issuer.orders, ballots, issuer.accounts.budget)
    # Its promise holds at one order and with all of delta: nothing can be added to it.
    issuer.accounts.charge_everything(
        proposal.epsilon,
        proposal.delta,
        {"queries": ballots.queries, "epsilon": proposal.epsilon, **sizes(ballots)},
    )
    with charged():
        labels = issuer.draw(ballots, levels.add)
    passed = levels.passes(proposal, issuer.entropy)
    terms = {  # what was fixed before looking, and the one public bit
        "passed": passed,
        "order": proposal.order,
        "threshold": proposal.threshold,
        "reserve": proposal.reserve,
        "slack": proposal.depth,
    }
    made = issuer.publish(
        labels if passed else np.zeros((0, ballots.labels), np.int8),
        ballots.voters,
        proposal.epsilon,
        terms=terms,
    )
    if parts is not None:
        parts.keep(made)
    return issuer.record(made, parts, queries=ballots.queries)


def data_dependent(issuer: Issuer, ballots: BallotSource, parts: Parts | None) -> Release:
    """Price and draw in one pass; charge, sealed, before anything leaves."""
    mechanism, orders, delta = issuer.mechanism, issuer.orders, issuer.accounts.budget.delta
    mechanism.check(ballots)
    levels = Levels.of(mechanism, ballots)
    total = np.zeros(len(orders))

    def price(tally: Any) -> None:
        nonlocal total
        total += mechanism.total_cost(tally, orders=orders, bound="exact")
        if levels is not None:
            levels.add(tally)

    # One pass: the tally that is priced is the one that is drawn. The draws stay here until the
    # charge is on disk.
    labels = issuer.draw(ballots, price)
    shown, terms = sanitize(levels, orders, delta, issuer.entropy)
    issuer.accounts.charge_sealed(total, {"queries": ballots.queries, **sizes(ballots)})
    exact = Later(lambda: by_voter(mechanism, ballots, delta))
    sealed = Sealed(
        epsilon=epsilon(total, orders, delta),
        rdp=total,
        orders=orders,
        bound="exact",
        bills=partial(bills, mechanism, ballots, delta),
        epsilon_by_voter=Later(lambda: exact.value.epsilon),
        accountant=Later(lambda: exact.value.accountant),
        epsilon_rdp=Later(lambda: exact.value.rdp),
        epsilon_pld=Later(lambda: exact.value.pld),
    )
    made = issuer.publish(labels, ballots.voters, shown, terms=terms, sealed=sealed)
    if parts is not None:
        parts.keep(made)
    return issuer.record(made, parts)


class Levels:
    """How many cells stand at each margin, and what one costs there. Sealed."""

    def __init__(self, ladder: Ladder) -> None:
        self.ladder, self.reach = ladder, ladder.reach
        self.histogram: Counts = np.zeros(len(ladder.margins), np.int64)

    @classmethod
    def of(cls, mechanism: Mechanism, ballots: BallotSource) -> Levels | None:
        """Return empty levels for these ballots; None where there is no proof."""
        ladder = mechanism.by_level(ballots.voters, ballots.missing)
        return None if ladder is None else cls(ladder)

    def add(self, tally: CellTally) -> None:
        """Count the cells of a tally."""
        places = self.ladder.places(tally.margins.reshape(-1))
        self.histogram += np.bincount(places, minlength=len(self.histogram))

    def costs(self, orders: Floats) -> Floats:
        """Return the two-sided cost of a cell at each order and margin: (orders, levels)."""
        chunk = max(1, _CHUNK // len(orders))
        starts = range(0, len(self.histogram), chunk)
        parts = [self.ladder.costs(slice(start, start + chunk), orders) for start in starts]
        return np.concatenate(parts).T

    def few(self, orders: Floats) -> Floats:
        """Return the orders to choose one from: all, or fewer where tables are long. Public."""
        return orders[:: max(1, len(self.histogram) * len(orders) // _TABLE)]

    def passes(self, proposal: ptr.Proposal, entropy: Entropy) -> bool:
        """Draw whether the distance test lets the labels out."""
        table = self.costs(np.array([proposal.order]))[0]
        distance = ptr.distance(table, self.histogram, proposal.threshold, self.reach)
        chances = ptr.pass_log_probs(
            distance, proposal.threshold, proposal.reserve, proposal.order, proposal.delta
        )
        fail, success = chances[-1:, 0], chances[-1:, 1]
        return bool(entropy.bernoulli(success, fail)[0])


def propose(levels: Levels, orders: Floats, ballots: BallotSource, budget: Budget) -> ptr.Proposal:
    """Choose order, threshold and reserve from public numbers only."""
    orders = levels.few(orders)
    return ptr.propose(
        levels.costs(orders),
        orders,
        ballots.queries * ballots.labels,
        budget.epsilon,
        budget.delta,
        reach=levels.reach,
    )


def sanitize(
    levels: Levels | None, orders: Floats, delta: float, entropy: Entropy
) -> tuple[float | None, dict[str, Any]]:
    """Return an epsilon that may be published, and its public terms; None where unproved."""
    if levels is None:
        return None, {}
    orders = levels.few(orders)
    costs, cells = levels.costs(orders), int(levels.histogram.sum())
    order = rules.public_order(costs, orders, cells, delta)
    beta, gamma, sigma_s = rules.default_beta(order), rules.GAMMA, rules.SIGMA_S
    table = levels.costs(np.array([order]))[0]
    price = rules.release_cost(order, beta, sigma_s, gamma)
    upper = rules.sanitized_upper(
        float(levels.histogram @ table),
        rules.smooth_sensitivity(table, levels.histogram, beta, levels.reach),
        sigma_s,
        float(ndtri(entropy.uniform(1)[0])),
        gamma,
    )
    terms = {"order": order, "beta": beta, "sigma_s": sigma_s, "gamma": gamma, "price": price}
    if 2 * order * beta < 1:  # where Theorem 23 says anything
        terms["price_2018"] = rules.published_cost_2018(order, beta, sigma_s)
    return rules.statement_epsilon(upper, price, order, delta), terms
