"""An electorate: voters with a lifetime allowance, answering any number of adaptive batches.

The guarantee is fixed before a vote is seen (see :mod:`privote.accounting.allowance`). Whoever runs
out counts as the public baseline from then on; who did is sealed.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from .accounting.renyi import Orders, rounded_up
from .accounting.renyi import epsilon as to_epsilon
from .errors import InputError, PrivoteWarning
from .forecast import Forecast
from .guardian import Guardian, seats
from .guardian.accounts import plain
from .labelling import with_forecast
from .ledger import Budget, Ledger
from .mechanisms import Mechanism
from .mechanisms.base import check_electorate
from .release import Release, Sealed
from .votes.cube import Ballots
from .votes.surprises import effective_votes

__all__ = ["Electorate", "effective_votes"]


class Electorate:
    """Registered voters and what is left of each one's allowance.

    Parameters
    ----------
    mechanism
        How a tally becomes a release.
    voters, labels
        The size of the electorate. Fixed: a batch from fewer voters leaves the others missing.
    epsilon, delta
        The promise for all batches together, for replacing one voter's ballots everywhere.
    allowance
        ``None``: the largest that keeps the promise. Or one value, or one per voter, no larger.
    voter_ids
        Names of the voters; needed if batches list them in changing order or leave some out.
        Without names a voter is known by its place, which must then never change.
    ledger, dataset, consumer
        Where the allowance is kept beyond this object, and under which names. An electorate
        with the same mechanism, voters and names goes on where the ledger says it stopped.
    seed
        ``None``: secure. An integer makes a simulation of every batch.
    """

    def __init__(
        self,
        *,
        mechanism: Mechanism,
        voters: int,
        labels: int,
        epsilon: float,
        delta: float,
        allowance: int | npt.ArrayLike | None = None,
        voter_ids: Sequence[Any] | None = None,
        ledger: Ledger | None = None,
        dataset: str = "default",
        consumer: str | None = None,
        orders: Orders | None = None,
        seed: int | None = None,
    ) -> None:
        check_electorate(voters, labels)
        if voter_ids is not None:
            seats(voter_ids, voters)
        self.voters, self.labels = int(voters), int(labels)
        self._guardian = Guardian(
            mechanism,
            Budget(epsilon=epsilon, delta=delta),
            Ledger.in_memory() if ledger is None else ledger,
            dataset=dataset,
            consumer=consumer,
            allowance=allowance,
            voter_ids=voter_ids,
            orders=orders,
            seed=seed,
        )
        self._allowance = self._guardian.register(self.voters, self.labels)
        self.answered, self._counting = 0, threading.Lock()
        # What was released from the allowance so far: it tells how long the rest should last.
        self._warned = 0

    @property
    def mechanism(self) -> Mechanism:
        """How a tally becomes a release."""
        return self._guardian.mechanism

    @property
    def delta(self) -> float:
        """The delta of the promise."""
        return self._guardian.budget.delta

    @property
    def allowance(self) -> int | tuple[int, ...]:
        """How many surprises each voter had from the start: one number, or one per voter."""
        return plain(self._allowance.own)

    @property
    def epsilon(self) -> float:
        """The guarantee for all batches together, past and future."""
        return float(to_epsilon(self._allowance.curve, self._guardian.orders, self.delta))

    @property
    def epsilon_by_voter(self) -> npt.NDArray[np.float64]:
        """Each voter's own guarantee, which follows from its own allowance: (voters,)."""
        values, inverse = np.unique(self._allowance.own, return_inverse=True)
        # What was charged is the cost of the largest allowance; the others cost their part of it.
        curves = (values / values[-1])[:, None] * self._allowance.curve
        each = to_epsilon(curves, self._guardian.orders, self.delta)
        return np.asarray(np.asarray(each)[inverse.reshape(-1)])

    @property
    def sealed(self) -> Sealed:
        """For the owner's eyes: what each voter has spent and who ran out."""
        return self._allowance.spending()

    def __repr__(self) -> str:
        return (
            f"Electorate({self.voters} voters, {self.labels} labels, "
            f"epsilon={rounded_up(self.epsilon, 4)}, delta={rounded_up(self.delta)}, "
            f"{self.mechanism})"
        )

    # A copy would hold the same allowance twice, and spend it twice.
    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("an Electorate cannot be copied or pickled: its allowance exists once")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    def answer(
        self,
        votes: Any,
        baseline: npt.ArrayLike | None = None,
        *,
        voter_ids: Sequence[Any] | None = None,
    ) -> Release:
        """Answer every query of a batch; its queries and baseline may depend on past releases.

        The release's forecast says how long the allowance should last, by what this batch released.
        A batch is never cut short: what to ask next is up to whoever reads that.

        Parameters
        ----------
        votes
            (queries, voters, labels) array, ballots or path.
        baseline
            (queries, labels) public guess, e.g. the current student's prediction; zeros by default.
            A vote that agrees with it costs nothing. Never derive it from private votes.
        voter_ids
            Names of this batch's voters, in the order of the cube's second axis.
        """
        ballots = Ballots.of(votes)
        if ballots.labels != self.labels:
            raise InputError("votes", f"must have {self.labels} labels, got {ballots.labels}")
        if voter_ids is None and ballots.voters != self.voters:
            raise InputError(
                "votes",
                f"must have {self.voters} voters, got {ballots.voters}; name them with "
                "`voter_ids` if some are absent",
            )
        release = self._guardian.release(ballots, baseline=baseline, voter_ids=voter_ids)
        guess = None if baseline is None else np.asarray(baseline)
        near = getattr(ballots, "near", None)
        release = with_forecast(release, self.mechanism, baseline=guess, near=near)
        with self._counting:
            self.answered += release.answered
            self._warn(release.forecast)
        return release

    def _warn(self, found: Forecast | None) -> None:
        """Warn of labels that are not expected to be good, when there is more to warn of."""
        said = () if found is None else found.warnings
        for text in said if len(said) > self._warned else ():
            warnings.warn(text, PrivoteWarning, stacklevel=3)
        self._warned = len(said)
