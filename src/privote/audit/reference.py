"""The mechanisms once more, by brute force and from their definitions only.

Every ballot a voter could cast and every label vector that could be released is listed, and the
probability of each is worked out the plain way. Nothing here calls the code under audit, or imports
it: a mechanism is its name and its settings. Only for small elections: there are up to 3^labels
ballots and as many outcomes.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx, log_ndtr, logsumexp, ndtri

from ..errors import InputError, UnavailableError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Labels = npt.NDArray[np.int8]

ABSTAIN = -1

_MOST_BALLOTS = 243  # 3^5: beyond, listing every neighbour takes minutes an election
# Every integrand is entire and log-concave with curvature between 1 and the number of classes, so
# a plain sum with this step (in units of sigma) is right to the last digits.
_STEP = 1 / 8
_TRUNCATION = 13.0
_TALLIES = 9  # of a label, told apart where all labels are listed together

#: The settings that are audited by default: every feature of a mechanism but a gate, with so little
#: noise that flaws show.
SETTINGS: dict[str, tuple[dict[str, Any], ...]] = {
    "binary": ({"sigma": 2.0}, {"sigma": 2.0, "quota": 0.3}, {"sigma": 2.0, "false_alarm": 0.05}),
    "tau": ({"sigma": 2.0, "tau": 1.2}, {"sigma": 2.0, "tau": 1.5, "norm": 1}),
    "powerset": ({"sigma": 1.5}, {"sigma": 1.5, "max_positives": 2}),
    "plurality": ({"sigma": 2.0},),
    "tally": ({"sigma": 2.0}, {"sigma": 2.0, "tau": 1.2}),
}


def definition(kind: type) -> str | None:
    """Return the name of the mechanism here that a class is, or extends; None if there is none."""
    names = (vars(base).get("name") for base in kind.__mro__)
    return next((name for name in names if name in SETTINGS), None)


def subjects(kind: Any) -> tuple[Any, ...]:
    """Return the mechanisms of a class that are audited where no settings are given."""
    name = definition(kind)
    if name is None and "sigma" not in kind.settings():
        raise UnavailableError("mechanism", "must have its settings given for an audit", kind.name)
    every = ({"sigma": 2.0},) if name is None else SETTINGS[name]
    return tuple(kind(**settings) for settings in every)


def rows_of(labels: int, values: tuple[int, ...]) -> Labels:
    """Return every row of so many of the values: (rows, labels)."""
    return np.array(list(product(values, repeat=labels)), np.int8)


class Textbook:
    """All ballots, all outcomes, and the probability of each outcome for small elections.

    An election is its *census*: how many voters cast each possible ballot.

    Parameters
    ----------
    mechanism
        One of privote's, or what extends it: held to the definition here.
    voters, labels
        The size of the election.
    missing
        Whether a vote may be missing.
    tallies
        How many values of a released tally are told apart where outcomes are listed; neighbouring
        ones count as one, the last as all beyond. That is post-processing, so what is listed may
        cost less than the release. :meth:`costs` and :meth:`cell_log_probs` do not lump.

    Attributes
    ----------
    ballots
        (ballots, labels) int8: every ballot that may be cast, 0, 1 or -1 for missing.
    outcomes
        (outcomes, labels) int8: every label vector that may be released.
    independent
        Whether the probabilities are the book's, and not the mechanism's own.
    """

    independent = True

    def __init__(
        self,
        mechanism: Any,
        voters: int,
        labels: int,
        *,
        missing: bool = False,
        tallies: int = _TALLIES,
    ) -> None:
        if (3 if missing else 2) ** labels > _MOST_BALLOTS:
            most = f"an exact audit enumerates at most {_MOST_BALLOTS} ballots"
            raise InputError("labels", f"must be fewer: {most}", labels)
        self.mechanism, self.voters, self.labels = mechanism, voters, labels
        self.name = definition(type(mechanism))
        limit = labels if mechanism.max_positives is None else mechanism.max_positives
        ballots = rows_of(labels, (0, 1, -1) if missing else (0, 1))
        self.ballots = ballots[(ballots == 1).sum(axis=1) <= limit]
        self.whole_line = self.name == "tally"
        self._by_class = self.name in ("plurality", "powerset")
        if self.whole_line:
            self._cuts = self._lumps(tallies)
        self.outcomes = self._every_outcome(tallies, limit)

    def _every_outcome(self, tallies: int, most: int) -> npt.NDArray[np.signedinteger[Any]]:
        """Return every row that may be released: (outcomes, labels)."""
        gated = self.mechanism.gate is not None
        if self.whole_line:
            return np.array(list(product(range(tallies), repeat=self.labels)), np.int64)
        if not self._by_class:
            return rows_of(self.labels, (0, 1, ABSTAIN) if gated else (0, 1))
        classes = rows_of(self.labels, (0, 1))
        classes = classes[(classes == 1).sum(axis=1) <= most]
        if self.name == "plurality":  # a label, and not none
            classes = np.eye(self.labels, dtype=np.int8)
        withheld = np.full((int(gated), self.labels), ABSTAIN, np.int8)  # as a whole
        return np.concatenate([classes, withheld])

    def census(self, cast: Ints) -> Ints:
        """Count the ballots of each election: (elections, voters) -> (elections, ballots)."""
        return np.stack([(cast == kind).sum(axis=1) for kind in range(len(self.ballots))], axis=1)

    def log_probs(self, census: Ints) -> Floats:
        """Return log-probabilities: (elections, ballots) -> (elections, outcomes)."""
        joint = self._joint(census)
        total = logsumexp(joint, axis=1)
        if not np.abs(total).max() < 1e-9:
            off = np.exp(total[np.abs(total).argmax()])
            raise InputError(f"the outcomes of {self.mechanism} must add up to 1, got {off}")
        # The last digits matter at orders near 1, where a sum off by 1e-13 shows as a cost.
        return np.asarray(joint - total[:, None])

    def costs(self, here: Ints, there: Ints, orders: Floats) -> Floats:
        """Return D(here || there), D(there || here) of pairs of elections: (pairs, 2, orders)."""
        if self.whole_line:
            return self._shifted(here, there, orders)
        first, second = self.log_probs(here), self.log_probs(there)
        return np.stack([renyi(first, second, orders), renyi(second, first, orders)], axis=1)

    def listed(self, drawn: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return released rows as they stand among the outcomes: tallies in their lumps."""
        return np.searchsorted(self._cuts, drawn) if self.whole_line else drawn

    def _joint(self, census: Ints) -> Floats:
        if self.whole_line:
            return self._tallies(census)
        return self._argmax(census) if self._by_class else self._cells(census)

    # -- Binary and Tau: every label on its own ----------------------------------------------------

    def _cells(self, census: Ints) -> Floats:
        cells = self.cell_log_probs(census)
        joint = np.zeros((len(census), len(self.outcomes)))
        for label in range(self.labels):
            # Outcomes 0, 1 and ABSTAIN = -1 are columns 0, 1 and the last.
            joint += cells[:, label, self.outcomes[:, label]]
        return joint

    def cell_log_probs(self, census: Ints) -> Floats:
        """Return log Pr[0], log Pr[1] and, gated, log Pr[ABSTAIN]: (elections, labels, 2 or 3)."""
        rule = self._clipped if self.name == "tau" else self._counted
        margin, vote = rule(census)
        if self.mechanism.gate is None:
            return vote
        # max(c, n - c) with c = (n + margin) / 2: a missing vote counts half for either side.
        abstain, answer = self._gate((self.voters + np.abs(margin)) / 2)
        return np.concatenate([vote + answer[..., None], abstain[..., None]], axis=-1)

    def _clipped(self, census: Ints) -> tuple[npt.NDArray[Any], Floats]:
        """Return the margins of clipped ballots, and log Pr[0], log Pr[1] there."""
        mech = self.mechanism
        size = (self.ballots == 1).sum(axis=1)
        norm = size if mech.norm == 1 else np.sqrt(size)
        weight = np.minimum(1.0, mech.tau / np.maximum(norm, 1e-300))
        if mech.grid is not None:
            weight = np.floor(weight * mech.grid) / mech.grid
        margin = 2 * (census @ (weight[:, None] * (self.ballots == 1))) - self.voters
        return margin, _yes_no(margin / (math.sqrt(2) * mech.sigma))

    def _counted(self, census: Ints) -> tuple[npt.NDArray[Any], Floats]:
        """Return the margins of single votes, and log Pr[0], log Pr[1] there."""
        mech = self.mechanism
        yes, no = (census @ (self.ballots == vote) for vote in (1, 0))
        if mech.quota is None and mech.false_alarm is None:
            return yes - no, _yes_no((yes - no) / (math.sqrt(2) * mech.sigma))
        bar = (
            mech.quota * self.voters
            if mech.quota is not None
            else -mech.sigma / math.sqrt(2) * float(ndtri(mech.false_alarm))
        )
        return 2 * yes - self.voters, _yes_no(math.sqrt(2) * (yes - bar) / mech.sigma)

    def _gate(self, top: npt.NDArray[Any]) -> tuple[Floats, Floats]:
        gate = self.mechanism.gate
        z = (top - gate.threshold) / gate.sigma
        return log_ndtr(-z), log_ndtr(z)

    # -- Tallies: every label on its own, with noise on the whole line -----------------------------

    def _counted_steps(self, census: Ints) -> Ints:
        """Return the noise-free tallies in steps: (elections, labels)."""
        mech = self.mechanism
        size = (self.ballots == 1).sum(axis=1)
        weight = np.ones(len(size))
        if mech.tau is not None:
            weight = np.minimum(1.0, mech.tau / np.maximum(np.sqrt(size), 1e-300))
        steps = np.floor(weight * mech.steps + 1e-9).astype(np.int64)
        return np.asarray(census @ (steps[:, None] * (self.ballots == 1)))

    def _lumps(self, tallies: int) -> Floats:
        """Return the last value of each lump but the last, evenly over where tallies lie."""
        mech = self.mechanism
        low, high = -mech.sigma * mech.steps, (self.voters + mech.sigma) * mech.steps
        return np.asarray(np.floor(np.linspace(low, high, tallies - 1)))

    def _tallies(self, census: Ints) -> Floats:
        mech = self.mechanism
        scale = mech.sigma * mech.steps
        steps = self._counted_steps(census)
        # Pr[tally + noise in (a, b]] by the normal's cdf half a step above each end.
        ends = np.concatenate([[-np.inf], (self._cuts + 0.5), [np.inf]])
        cut = (ends - steps[..., None]) / scale
        # On the side where both are tails, so that nothing is lost in a difference.
        mirrored = cut[..., 1:] > 0
        far = log_ndtr(np.where(mirrored, -cut[..., 1:], cut[..., :-1]))
        near = log_ndtr(np.where(mirrored, -cut[..., :-1], cut[..., 1:]))
        with np.errstate(divide="ignore"):
            cells = near + np.log1p(-np.exp(far - near))
        rows = np.arange(self.labels)
        return np.asarray(cells[:, rows, self.outcomes].sum(axis=-1))

    def tally_log_probs(self, census: Ints, values: Ints) -> Floats:
        """Return the log-probability of released tallies: (elections, labels, values)."""
        mech = self.mechanism
        away = np.abs(values - self._counted_steps(census)[..., None])
        return _rounded(away, mech.sigma * mech.steps)

    def _shifted(self, here: Ints, there: Ints, orders: Floats) -> Floats:
        """Add up over labels: each has a noise of its own, and is compared where terms are large.

        The terms of order a lie around the here-tally plus (a - 1) shifts. What is left out of the
        sum is below 1e-15 of it.
        """
        mech = self.mechanism
        scale = mech.sigma * mech.steps
        moves = np.abs(self._counted_steps(here) - self._counted_steps(there))
        distinct, inverse = np.unique(moves, return_inverse=True)
        table = np.zeros((len(distinct), len(orders)))
        for row, move in enumerate(distinct.tolist()):
            for column, order in enumerate(orders.tolist()):
                span = math.ceil(10 * scale + 2 * move + 2)
                x = np.arange(-span, span + 1) + math.floor(order * move)
                p, q = _rounded(np.abs(x - move), scale), _rounded(np.abs(x), scale)
                table[row, column] = renyi(p, q, np.array([order]))[0]
        one_way = table[inverse.reshape(moves.shape)].sum(axis=1)
        return np.stack([one_way, one_way], axis=1)  # the noise is symmetric

    # -- Plurality and Powerset: every class on a list ---------------------------------------------

    def class_counts(self, census: Ints) -> Ints:
        """Return how many votes each class has: (elections, classes), in the order of outcomes."""
        classes = [o for o in self.outcomes if o[0] != ABSTAIN]
        member = np.array([[np.array_equal(b == 1, c == 1) for c in classes] for b in self.ballots])
        # A ballot that is missing as a whole votes for nothing. A plurality ballot of zeros
        # matches no class by itself.
        member &= (self.ballots != -1).any(axis=1)[:, None]
        return np.asarray(census @ member)

    def _argmax(self, census: Ints) -> Floats:
        counts = self.class_counts(census)
        order = np.argsort(counts, axis=1, kind="stable")
        profiles, which = np.unique(
            np.take_along_axis(counts, order, axis=1), axis=0, return_inverse=True
        )
        sigma, table = self.mechanism.sigma, np.empty(profiles.shape)
        for row, profile in enumerate(profiles.tolist()):
            wins = win_log_probs(tuple(profile), sigma)
            table[row] = [wins[count] for count in profile]
        rows = np.empty(counts.shape)
        np.put_along_axis(rows, order, table[which.reshape(-1)], axis=1)
        if self.mechanism.gate is None:
            return rows
        abstain, answer = self._gate(counts.max(axis=1))
        return np.concatenate([rows + answer[:, None], abstain[:, None]], axis=1)


@lru_cache(maxsize=4096)
def win_log_probs(counts: tuple[int, ...], sigma: float) -> dict[int, float]:
    """Return, for each distinct count, the log-probability that *one* class with it wins.

    The integral of pdf(x - own) * product over all other classes of cdf(x - theirs), summed on an
    even grid.
    """
    means = np.array(counts) / sigma
    x = np.arange(means.min() - _TRUNCATION, means.max() + _TRUNCATION, _STEP)
    cdf = log_ndtr(x - means[:, None])
    out = {}
    for count in set(counts):
        index = counts.index(count)
        others = np.delete(cdf, index, axis=0).sum(axis=0)
        terms = -0.5 * (x - means[index]) ** 2 - 0.5 * math.log(2 * math.pi) + others
        out[count] = float(logsumexp(terms)) + math.log(_STEP)
    return out


def _rounded(away: npt.NDArray[Any], scale: float) -> Floats:
    """Return log Pr[round(scale Z) = +-away], by the scaled complementary error function."""
    near, far = (away - 0.5) / scale, (away + 0.5) / scale
    ratio = np.exp((near**2 - far**2) / 2)  # exp(-far^2 / 2) in units of exp(-near^2 / 2)
    gap = erfcx(near / math.sqrt(2)) - erfcx(far / math.sqrt(2)) * ratio
    return np.asarray(np.log(gap / 2) - near**2 / 2)


def _yes_no(z: npt.NDArray[Any]) -> Floats:
    return np.stack([log_ndtr(-z), log_ndtr(z)], axis=-1)


def renyi(log_p: Floats, log_q: Floats, orders: Floats) -> Floats:
    """Return D(P || Q) by the definition: (..., outcomes) -> (..., orders)."""
    columns = []
    for order in orders:
        with np.errstate(invalid="ignore"):
            terms = order * log_p - (order - 1) * log_q
        # Impossible on both sides: no part of the sum. (-inf + inf would be NaN.)
        terms = np.where(np.isneginf(log_p) & np.isneginf(log_q), -np.inf, terms)
        columns.append(logsumexp(terms, axis=-1) / (order - 1))
    return np.asarray(np.maximum(np.stack(columns, axis=-1), 0.0))
