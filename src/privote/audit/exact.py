"""Exact audit: list every neighbour of random small elections and compare with the stated costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..accounting.renyi import Orders, check_orders
from ..errors import InputError, whole
from ..mechanisms import Mechanism
from ..mechanisms.base import check_electorate
from ..mechanisms.cells import CellMechanism
from ..votes.cube import Ballots
from .reference import Floats, Ints, Labels, Textbook, definition

#: From nearly Kullback-Leibler to nearly the largest ratio.
AUDIT_ORDERS = (1.1, 2.0, 4.0, 16.0, 64.0)
RELATIVE, ABSOLUTE = 1e-7, 1e-12  # what rounding may put between two right answers
TIGHT = 1e-6
_KEPT = 20  # violations kept with their election
FORWARD, BACKWARD = "here||neighbour", "neighbour||here"
_APART = 1e-10  # how far two right probabilities may lie apart
_BATCH = 16  # queries billed together
_PAIRS = 1 << 20  # log-probabilities compared at a time

#: The votes of a case, and its neighbour's.
Show = Callable[[int], tuple[list[Any], list[Any] | None]]


@dataclass(frozen=True)
class Violation:
    """A stated cost that an election exceeds, with all it takes to see it again."""

    quantity: str
    direction: str
    order: float
    stated: float
    enumerated: float
    mechanism: str
    votes: list[Any]
    neighbour: list[Any] | None

    def __str__(self) -> str:
        change = "" if self.neighbour is None else f", neighbour {self.neighbour}"
        return (
            f"{self.quantity}: stated {self.stated:.9g}, enumerated {self.enumerated:.9g} at order "
            f"{self.order:g}, {self.direction}; {self.mechanism}, votes {self.votes}{change}"
        )


@dataclass(frozen=True)
class AuditReport:
    """What an exact audit saw.

    Attributes
    ----------
    elections, neighbours
        How many were enumerated.
    ratios
        For each stated quantity the largest enumerated / stated; above 1 the guarantee is broken.
    tightness
        The smallest enumerated / stated of each voter's own bill; 1 means it is exact.
    exceeded
        For each quantity and direction, in how many elections it was too small.
    violations
        The first of them, each reproducible.
    independent
        Whether the true probabilities are a textbook's; or the mechanism's own, one from outside.
    """

    mechanism: str
    voters: int
    labels: int
    elections: int
    neighbours: int
    ratios: dict[str, float]
    tightness: float
    exceeded: dict[tuple[str, str], int]
    violations: tuple[Violation, ...]
    independent: bool = True

    @property
    def ok(self) -> bool:
        """True if nothing was found."""
        return not self.exceeded

    @property
    def tight(self) -> bool:
        """True if every voter's own bill is its enumerated cost, and not only an upper bound."""
        return self.tightness >= 1 - TIGHT

    def summary(self) -> str:
        """Return the findings in a few lines."""
        lines = [
            f"{'ok' if self.ok else 'BROKEN'}: {self.mechanism}, {self.voters} voters, "
            f"{self.labels} labels: {self.elections} elections, {self.neighbours} neighbours"
        ]
        for name, ratio in self.ratios.items():
            lines.append(f"  {name}: largest enumerated/stated {ratio:.9f}")
        if not self.independent:
            lines.append("  probabilities: the mechanism's own; there is no second definition")
        lines.append(f"  rdp_by_voter: smallest enumerated/stated {self.tightness:.9f}")
        for (name, direction), count in self.exceeded.items():
            lines.append(f"  {name} is too small in {count} elections, direction {direction}")
        return "\n".join([*lines, *(f"  {violation}" for violation in self.violations[:3])])


@dataclass
class Findings:
    """Collects comparisons; becomes the report."""

    mechanism: str
    orders: Floats
    ratios: dict[str, float] = field(default_factory=dict)
    exceeded: dict[tuple[str, str], int] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)

    def compare(
        self, quantity: str, direction: str, enumerated: Floats, stated: Floats, show: Show
    ) -> None:
        """Compare (cases, ..., orders) with what was stated; ``show`` names a case's election."""
        stated = np.broadcast_to(stated, enumerated.shape)
        above = np.maximum(enumerated - ABSOLUTE, 0.0)
        ratio = np.divide(above, stated, out=np.where(above > 0, np.inf, 0.0), where=stated > 0)
        self.ratios[quantity] = max(self.ratios.get(quantity, 0.0), float(ratio.max(initial=0.0)))
        # Written so that a NaN on either side is a violation too.
        bad = ~(enumerated <= stated * (1 + RELATIVE) + ABSOLUTE)
        if not bad.any():
            return
        cases = np.unique(np.nonzero(bad)[0])
        key = (quantity, direction)
        self.exceeded[key] = self.exceeded.get(key, 0) + len(cases)
        for case in cases[: max(0, _KEPT - len(self.violations))].tolist():
            excess = np.where(bad[case], ratio[case], -1.0)
            index = (case, *np.unravel_index(np.argmax(excess), excess.shape))
            order, claim, truth = map(
                float, (self.orders[index[-1]], stated[index], enumerated[index])
            )
            self.violations.append(
                Violation(quantity, direction, order, claim, truth, self.mechanism, *show(case))
            )

    def report(self, **facts: Any) -> AuditReport:
        """Return the report: what was compared, and facts of the audit."""
        return AuditReport(
            mechanism=self.mechanism,
            ratios=self.ratios,
            exceeded=self.exceeded,
            violations=tuple(self.violations),
            **facts,
        )


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
    ``worst_case_rdp`` or ``contribution_rdp``, and ``outcome_probabilities`` must be the
    textbook's. A mechanism from outside has no textbook: its own ``outcome_probabilities`` are what
    is compared with, and :func:`sampled` shows whether its draws follow them.

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
    elections, seed = whole("elections", elections), whole("seed", seed, 0)
    curve = check_orders(AUDIT_ORDERS if orders is None else orders)
    book = book_of(mechanism, voters, labels, missing=missing)
    cast = random_elections(book, elections, np.random.default_rng(seed))
    pairs = enumerate_neighbours(book, cast, curve)
    votes = book.ballots[cast].astype(np.int8 if missing else np.bool_)
    findings = Findings(str(mechanism), curve)

    def show(case: int) -> tuple[list[Any], None]:
        return votes[case].astype(int).tolist(), None

    def show_pair(case: int) -> tuple[list[Any], list[Any]]:
        ballots = cast[pairs.election[case]].copy()
        ballots[np.flatnonzero(ballots == pairs.own[case])[0]] = pairs.other[case]
        return show(int(pairs.election[case]))[0], book.ballots[ballots].tolist()

    rdp, worst_case = "rdp" if bound == "exact" else f"rdp (bound={bound})", "worst_case_rdp"
    priced = mechanism.rdp(votes, curve, bound=bound)[pairs.election]
    claim = mechanism.worst_case_rdp(voters, labels, curve)
    if stated is not None:
        worst_case, claim = "stated", stated(curve)
    unit = mechanism.contribution_rdp(voters, labels, curve)
    small = np.ones((len(pairs.own), 1), np.bool_)
    if mechanism.contribution_unit == "vote":
        small = (book.ballots[pairs.own] != book.ballots[pairs.other]).sum(
            axis=1, keepdims=True
        ) == 1
    for way, direction in enumerate((FORWARD, BACKWARD)):
        costs = pairs.costs[:, way]
        findings.compare(rdp, direction, costs, priced, show_pair)
        findings.compare(worst_case, direction, costs, claim, show_pair)
        costs = np.where(small, costs, 0.0)
        findings.compare("contribution_rdp", direction, costs, unit, show_pair)
    true = pairs.by_voter(cast, len(book.ballots))
    tightness = _audit_bills(mechanism, votes, true, findings, show)
    if book.independent:
        apart = _differences(book, cast, votes)[:, None]
        name = f"outcome_probabilities (difference / {_APART:g})"
        findings.compare(name, "either", apart, np.full((1, 1), _APART), show)
    return findings.report(
        voters=voters,
        labels=labels,
        elections=elections,
        neighbours=len(pairs.own),
        tightness=tightness,
        independent=book.independent,
    )


def _audit_bills(
    mechanism: Mechanism, votes: npt.NDArray[Any], true: Floats, findings: Findings, show: Show
) -> float:
    """Compare each voter's own bill, election by election and for all of them as one batch."""
    bills = np.stack([mechanism.rdp_by_voter(vote[None], findings.orders) for vote in votes])
    # A batch is a product over queries, and each ballot may change on every query.
    batch = mechanism.rdp_by_voter(votes[:_BATCH], findings.orders)[None]
    true_batch = true[:_BATCH].sum(axis=0)[None]
    every = votes[:_BATCH].astype(int).tolist(), None
    for way, direction in enumerate((FORWARD, BACKWARD)):
        findings.compare("rdp_by_voter", direction, true[:, :, way], bills[:, :, way], show)
        pair = true_batch[:, :, way], batch[:, :, way]
        findings.compare("rdp_by_voter of a batch", direction, *pair, lambda _: every)
    counts = bills > 1e-9  # below, the textbook's own rounding shows
    return float((true[counts] / bills[counts]).min(initial=1.0))


def _differences(book: Textbook, cast: Ints, votes: npt.NDArray[Any]) -> Floats:
    """Return how far ``outcome_probabilities`` are from the textbook's at most: (elections,)."""
    mechanism, census = book.mechanism, book.census(cast)
    stated = mechanism.outcome_probabilities(votes)
    if book.whole_line:  # label by label: too many rows
        values = mechanism.support(book.voters)[1:-1]  # the ends stand for all beyond
        apart = np.abs(stated[..., 1:-1] - np.exp(book.tally_log_probs(census, values)))
        return np.asarray(apart.max(axis=(1, 2)))
    true = np.exp(book.log_probs(census))
    return np.asarray(np.abs(row_probabilities(stated, book.outcomes) - true).max(axis=1))


def row_probabilities(stated: Any, rows: Labels) -> Floats:
    """Return ``outcome_probabilities``, as a mechanism states them, of rows: (queries, rows)."""
    if isinstance(stated, list):  # the sets with votes; those without are alike
        sets = [tuple(np.flatnonzero(row == 1).tolist()) for row in rows if row[0] != -1]
        table = []
        for entry in stated:
            share = entry["unvoted"] / max(len(sets) - sum(labels in entry for labels in sets), 1)
            abstain = [entry["abstain"]] if "abstain" in entry else []
            table.append([entry.get(labels, share) for labels in sets] + abstain)
        return np.array(table)
    if stated.ndim == 2:
        return np.asarray(stated)
    return np.asarray(stated[:, np.arange(rows.shape[1]), rows].prod(axis=-1))


class OwnWord(Textbook):
    """A mechanism from outside, taken at its word: the book has no definition of it."""

    independent = False

    def _joint(self, census: Ints) -> Floats:
        votes = np.array([np.repeat(self.ballots, counts, axis=0) for counts in census])
        mechanism = self.mechanism
        if not isinstance(mechanism, CellMechanism):
            stated = mechanism.outcome_probabilities(votes)
            with np.errstate(divide="ignore"):
                return np.log(row_probabilities(stated, self.outcomes))
        # In logarithms, however rare a row is.
        tallies = [mechanism.tally(block) for block in Ballots.of(votes).blocks()]
        cells = np.concatenate([mechanism.log_probs(t.margins, t.voters) for t in tallies])
        return np.asarray(cells[:, np.arange(self.labels), self.outcomes].sum(axis=-1))


def book_of(mechanism: Mechanism, voters: int, labels: int, **how: Any) -> Textbook:
    """Return the textbook of a mechanism, or its own word; ``how`` as in :class:`Textbook`."""
    if not isinstance(mechanism, Mechanism):
        raise InputError("mechanism", "must be a privote mechanism", mechanism)
    book = OwnWord if definition(type(mechanism)) is None else Textbook
    return book(mechanism, voters, labels, **how)


# -- every neighbour ----------------------------------------------------------------------------


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

    def by_voter(self, cast: Ints, ballots: int) -> Floats:
        """Return the largest cost for each voter: (elections, voters, 2, orders)."""
        out = np.zeros((len(cast), ballots, *self.costs.shape[1:]))
        np.maximum.at(out, (self.election, self.own), self.costs)
        return np.asarray(out[np.arange(len(cast))[:, None], cast])


def enumerate_neighbours(book: Textbook, cast: Ints, orders: Floats) -> Enumeration:
    """Price every neighbour of every election: (elections, voters) places among the ballots."""
    kinds = len(book.ballots)
    pairs = min(cast.shape[1], kinds) * kinds * (1 if book.whole_line else len(book.outcomes))
    step, others, parts = max(1, _PAIRS // pairs), ~np.eye(kinds, dtype=np.bool_), []
    for start in range(0, len(cast), step):
        census = book.census(cast[start : start + step])
        # Voters with equal ballots have equal neighbours.
        election, own, other = np.nonzero((census > 0)[:, :, None] & others)
        every, moved = np.arange(len(election)), census[election]
        moved[every, own] -= 1
        moved[every, other] += 1
        costs = book.costs(census[election], moved, orders)
        parts.append((start + election, own, other, costs))
    return Enumeration(*(np.concatenate(column) for column in zip(*parts, strict=True)))


# -- random elections of many kinds ----------------------------------------------------------------


def random_elections(book: Textbook, elections: int, rng: np.random.Generator) -> Ints:
    """Return which ballot each voter casts: (elections, voters) places in ``book.ballots``.

    One, two, three or any number of ballots share the voters, mostly evenly; sparse, dense or
    largely missing ballots are likelier in some elections, and in some a few voters stray.
    """
    yes, gap = ((book.ballots == vote).sum(axis=1) for vote in (1, -1))
    every, cast = len(book.ballots), np.empty((elections, book.voters), np.int64)
    for row in range(elections):
        lean = rng.choice([0.05, 0.3, 1.0, 3.0, 20.0]) ** yes * rng.choice([0.1, 1.0, 10.0]) ** gap
        kinds = rng.choice(every, size=(1, 2, 3, book.voters)[row % 4], p=lean / lean.sum())
        if len(kinds) == 2:  # a ballot and its opposite, if there is one: every label ties
            ballot = book.ballots[kinds[0]]
            opposite = np.flatnonzero(
                (book.ballots == np.where(ballot < 0, ballot, 1 - ballot)).all(axis=1)
            )
            kinds[1:] = opposite[:1] if len(opposite) else kinds[1:]
        strays = rng.random(book.voters) < rng.choice([0.0, 0.0, 0.2, 0.5])
        anybody = rng.integers(every, size=book.voters)
        cast[row] = np.where(strays, anybody, np.resize(kinds, book.voters))
    return cast
