"""Exact audit: list every neighbour of random small elections and compare with the stated costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accounting.renyi import Orders, check_orders
from ..errors import whole
from ..mechanisms import Mechanism
from ..mechanisms.base import check_electorate
from .elections import random_elections
from .findings import BACKWARD, FORWARD, AuditReport, Findings
from .textbook import Floats, Ints, Textbook

#: From nearly Kullback-Leibler to nearly the largest ratio.
AUDIT_ORDERS = (1.1, 2.0, 4.0, 16.0, 64.0)

_APART = 1e-10  # how far two right probabilities may lie apart
_BATCH = 16  # queries billed together
_PAIRS = 1 << 20  # log-probabilities compared at a time


@dataclass(frozen=True)
class Enumeration:
    """Every neighbour of every election.

    Attributes
    ----------
    election, own, other
        (neighbours,) which election, which ballot is withdrawn, which one replaces it.
    costs
        (neighbours, 2, orders): D(here || neighbour), D(neighbour || here).
    """

    election: Ints
    own: Ints
    other: Ints
    costs: Floats

    def largest(self, elections: int) -> Floats:
        """Return the largest cost of each election: (elections, 2, orders)."""
        out = np.zeros((elections, *self.costs.shape[1:]))
        np.maximum.at(out, self.election, self.costs)
        return out

    def by_voter(self, cast: Ints, ballots: int) -> Floats:
        """Return the largest cost for each voter: (elections, voters, 2, orders)."""
        out = np.zeros((len(cast), ballots, *self.costs.shape[1:]))
        np.maximum.at(out, (self.election, self.own), self.costs)
        return np.asarray(out[np.arange(len(cast))[:, None], cast])


def enumerate_neighbours(book: Textbook, cast: Ints, orders: Floats) -> Enumeration:
    """Price every neighbour of every election: (elections, voters) places among the ballots."""
    parts = [_enumerate(book, cast[rows], rows, orders) for rows in _chunks(book, cast)]
    return Enumeration(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _chunks(book: Textbook, cast: Ints) -> Iterator[Ints]:
    kinds = len(book.ballots)
    pairs = min(cast.shape[1], kinds) * kinds * (1 if book.whole_line else len(book.outcomes))
    step = max(1, _PAIRS // pairs)
    for start in range(0, len(cast), step):
        yield np.arange(start, min(start + step, len(cast)))


def _enumerate(
    book: Textbook, cast: Ints, rows: Ints, orders: Floats
) -> tuple[Ints, Ints, Ints, Floats]:
    census = book.census(cast)
    kinds = len(book.ballots)
    election, own = np.nonzero(census)  # voters with equal ballots have equal neighbours
    election, own = np.repeat(election, kinds), np.repeat(own, kinds)
    other = np.tile(np.arange(kinds), len(own) // kinds)
    change = own != other
    election, own, other = election[change], own[change], other[change]
    every = np.arange(len(election))
    moved = census[election]
    moved[every, own] -= 1
    moved[every, other] += 1
    return rows[election], own, other, book.costs(census[election], moved, orders)


def exact(
    mechanism: Mechanism,
    voters: int,
    labels: int,
    orders: Orders | None = None,
    *,
    elections: int = 100,
    bound: str = "exact",
    missing: bool = False,
    seed: int = 0,
    stated: Callable[[Floats], Floats] | None = None,
) -> AuditReport:
    """Try to break the stated costs of a mechanism on random small elections.

    For each election every neighbour is listed (each voter, each other ballot), and the Rényi
    divergence between the joint distributions of the whole label vector is computed by the
    definition, in both directions. It must not exceed ``rdp``, ``rdp_by_voter``,
    ``worst_case_rdp`` or ``surprise_rdp``, and ``outcome_probabilities`` must be the textbook's. A
    mechanism from outside has no textbook: its own ``joint_log_probs`` are what is compared with,
    and :func:`sampled` shows whether its draws follow them.

    Parameters
    ----------
    mechanism
        What to audit.
    voters, labels
        The size of every election; up to 7 labels, 5 where votes may be missing.
    orders
        Rényi orders; ``None`` for :data:`AUDIT_ORDERS`.
    elections
        How many random elections: unanimous, tied, sparse, dense, correlated and arbitrary ones.
    bound
        Which bound of ``rdp`` to audit. ``"pate2018"`` is known to hold in one direction only; the
        report says in which it breaks.
    missing
        Votes may be missing, and so may the neighbours'.
    seed
        For the elections; nothing is drawn from the mechanism.
    stated
        A claim to audit instead of ``worst_case_rdp``: orders -> cost of any one query.
    """
    check_electorate(voters, labels)
    whole("elections", elections)
    whole("seed", seed, 0)
    curve = check_orders(AUDIT_ORDERS if orders is None else orders)
    book = Textbook(mechanism, voters, labels, missing=missing)
    cast = random_elections(book, elections, np.random.default_rng(seed))
    found = enumerate_neighbours(book, cast, curve)
    votes: npt.NDArray[Any] = book.ballots[cast]
    if not missing:
        votes = votes.astype(np.bool_)
    findings = Findings(str(mechanism), curve)

    def show(case: int) -> tuple[list[Any], None]:
        return votes[case].astype(int).tolist(), None

    def show_pair(case: int) -> tuple[list[Any], list[Any]]:
        ballots = cast[found.election[case]].copy()
        ballots[np.flatnonzero(ballots == found.own[case])[0]] = found.other[case]
        return show(int(found.election[case]))[0], book.ballots[ballots].tolist()

    name = "rdp" if bound == "exact" else f"rdp (bound={bound})"
    priced = mechanism.rdp(votes, curve, bound=bound)[found.election]
    claim = mechanism.worst_case_rdp(voters, labels, curve) if stated is None else stated(curve)
    surprise = mechanism.surprise_rdp(voters, labels, curve)
    small = np.ones(len(found.own), np.bool_)
    if mechanism.surprise_unit == "vote":
        small = (book.ballots[found.own] != book.ballots[found.other]).sum(axis=1) == 1
    for way, direction in enumerate((FORWARD, BACKWARD)):
        costs = found.costs[:, way]
        findings.compare(name, direction, costs, priced, show_pair)
        known = "worst_case_rdp" if stated is None else "stated"
        findings.compare(known, direction, costs, claim, show_pair)
        only = np.where(small[:, None], costs, 0.0)
        findings.compare("surprise_rdp", direction, only, surprise, show_pair)
    tightness = _audit_bills(
        mechanism, votes, found.by_voter(cast, len(book.ballots)), findings, show
    )
    if book.independent:
        _audit_probabilities(book, cast, votes, findings, show)
    return AuditReport(
        str(mechanism),
        voters,
        labels,
        tuple(curve.tolist()),
        elections,
        len(found.own),
        findings.ratios,
        tightness,
        findings.exceeded,
        tuple(findings.violations),
        book.independent,
    )


def _audit_bills(
    mechanism: Mechanism,
    votes: npt.NDArray[Any],
    true: Floats,
    findings: Findings,
    show: Callable[[int], tuple[list[Any], None]],
) -> float:
    """Compare each voter's own bill, election by election and for all of them as one batch."""
    orders = findings.orders
    bills = np.stack([mechanism.rdp_by_voter(votes[i : i + 1], orders) for i in range(len(votes))])
    # A batch is a product over queries, and each ballot may change on every query.
    batch = mechanism.rdp_by_voter(votes[:_BATCH], orders)
    for way, direction in enumerate((FORWARD, BACKWARD)):
        findings.compare("rdp_by_voter", direction, true[:, :, way], bills[:, :, way], show)
        findings.compare(
            "rdp_by_voter of a batch",
            direction,
            true[:_BATCH, :, way].sum(axis=0)[None],
            batch[None, :, way],
            lambda _: (votes[:_BATCH].astype(int).tolist(), None),
        )
    counts = bills > 1e-9  # below, the textbook's own rounding shows
    return float((true[counts] / bills[counts]).min(initial=1.0))


def _audit_probabilities(
    book: Textbook,
    cast: Ints,
    votes: npt.NDArray[Any],
    findings: Findings,
    show: Callable[[int], tuple[list[Any], None]],
) -> None:
    """Compare ``outcome_probabilities`` with the textbook's."""
    mechanism: Any = book.mechanism
    if book.whole_line:  # label by label: too many rows
        values = mechanism.support(book.voters)[1:-1]  # the ends stand for all beyond
        own = mechanism.outcome_probabilities(votes)[..., 1:-1]
        apart = np.abs(own - np.exp(book.tally_log_probs(book.census(cast), values)))
        apart = apart.max(axis=(1, 2))
    else:
        true = np.exp(book.log_probs(book.census(cast)))
        apart = np.abs(mechanism.joint_probabilities(votes) - true).max(axis=1)
    findings.compare(
        f"outcome_probabilities (difference / {_APART:g})",
        "either",
        apart[:, None],
        np.full((1, 1), _APART),
        show,
    )
