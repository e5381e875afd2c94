"""The guardian: the only door between votes and labels.

It checks the budget, charges the ledger, and only then draws. A crash between charge and release
wastes budget, never privacy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

import numpy.typing as npt

from ..accounting.renyi import DEFAULT_ORDERS
from ..entropy import Entropy
from ..errors import InputError, positive
from ..files import Draft
from ..ledger import Budget, Ledger, Location
from ..ledger.totals import check_name
from ..mechanisms import Mechanism, TallyVoting
from ..release import GUARANTEES, PERSON, VOTER, Release
from ..votes.cube import Ballots, BallotSource
from . import allowance as allowances
from . import consensus
from .accounts import Accounts, Allowance, record_kept
from .allowance import seats
from .consensus import bills
from .issuer import Issuer, Parts, charged, sizes

__all__ = ["AUTO", "Accounts", "Allowance", "Guardian", "bills", "record_kept", "seats"]

AUTO = "auto"


class Guardian:
    """Answers votes with one mechanism, within the budget of one data set.

    Parameters
    ----------
    mechanism, budget, ledger
        How to release, what this may cost, and the ledger (or its path) that records the charges.
        ``"auto"``: noisy tallies; the noise is set from a privately learnt allowance or, for
        ``"worst-case"``, from the number of queries.
    guarantee
        ``"allowance"``, ``"worst-case"`` or ``"data-dependent"``: see :func:`privote.label`.
    dataset, owner, total
        Names in the ledger, whose votes, and on whose behalf; and the epsilon of all releases of
        the data set together, if the ledger does not know it.
    allowance
        For ``"allowance"``: ``None`` for the largest that fits; or smaller, one number or one per
        voter.
    voter_ids
        Names of the voters (texts or integers), in the order of the votes' second axis. The ledger
        recognises voters by them, in any order, also if some are absent.
    seed
        ``None``: secure randomness. An integer makes a simulation, which protects nobody.
    protects
        Who is protected, for the statement: "a voter", or what reaches only one voter, e.g. "a
        person, with all their records". The caller vouches for it.
    draft
        Where released labels are kept until they are saved; see
        :class:`~privote.guardian.accounts.Accounts`.

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> mechanism, budget = pv.BinaryVoting(sigma=7.0), pv.Budget(epsilon=8.0, delta=1e-5)
    >>> with pv.Guardian(mechanism, budget, pv.Ledger.in_memory()) as guardian:
    ...     release = guardian.release(np.zeros((10, 50, 4), bool))
    >>> release.answered
    10
    """

    def __init__(
        self,
        mechanism: Mechanism | str,
        budget: Budget,
        ledger: Ledger | Location | str | os.PathLike[str],
        *,
        guarantee: str = "allowance",
        dataset: str = "default",
        owner: str | None = None,
        total: float | None = None,
        allowance: int | npt.ArrayLike | None = None,
        voter_ids: Sequence[Any] | None = None,
        seed: int | None = None,
        protects: str = VOTER,
        draft: Draft | None = None,
    ) -> None:
        if guarantee not in GUARANTEES:
            raise InputError("guarantee", f"must be one of {', '.join(GUARANTEES)}", guarantee)
        learns = isinstance(mechanism, str) and mechanism == AUTO
        if learns:
            if guarantee not in allowances.PENDING:
                known = " or ".join(allowances.PENDING)
                raise InputError("guarantee", f"must be {known} with `mechanism=auto`", guarantee)
            if allowance is not None:
                raise InputError("allowance", "needs a named mechanism; otherwise it is learnt")
            mechanism = TallyVoting(sigma=1.0)  # stands for the one that is learnt
        if not isinstance(mechanism, Mechanism):
            raise InputError("mechanism", "must be 'auto' or a privote mechanism", mechanism)
        if not isinstance(budget, Budget):
            raise InputError("budget", "must be a privote.Budget", budget)
        check_name("dataset", dataset)
        if owner is not None:
            check_name("owner", owner)
        if not isinstance(ledger, Ledger | Location | str | os.PathLike):
            raise InputError("ledger", "must be a Ledger or its path", ledger)
        if not isinstance(protects, str) or not protects.strip() or len(protects.splitlines()) > 1:
            raise InputError("protects", f"must be one line of text, e.g. {PERSON!r}", protects)
        self._ids = None if voter_ids is None else allowances.seats(voter_ids)
        self._wanted, entropy = allowance, Entropy(seed)
        stamp = {
            "owner": owner,
            "guarantee": guarantee,
            "mechanism": allowances.PENDING[guarantee] if learns else mechanism.parameters(),
            "simulated": entropy.simulated,
            **({} if protects == VOTER else {"protects": protects}),
        }
        # Last: whoever calls with a bad argument leaves no new ledger behind.
        self._ledger = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
        self._owns_ledger = self._ledger is not ledger
        accounts = Accounts(
            ledger=self._ledger,
            budget=budget,
            dataset=dataset,
            total=None if total is None else positive("budget", total),
            stamp=stamp,
            conditional=guarantee == "data-dependent",
            draft=draft,
        )
        # For reading: what is charged and drawn is the issuer's.
        self.mechanism, self.budget, self.guarantee = mechanism, budget, guarantee
        self._issuer = Issuer(
            mechanism=mechanism,
            guarantee=guarantee,
            accounts=accounts,
            entropy=entropy,
            protects=protects,
            learns=learns,
        )

    def __enter__(self) -> Guardian:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of a ledger that was given by its path."""
        if self._owns_ledger:
            self._ledger.close()

    # A copy would hold a second door to the same votes.
    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("a Guardian cannot be copied or pickled: its allowance exists once")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    def release(
        self,
        votes: Any,
        *,
        queries: int | None = None,
        baseline: npt.ArrayLike | None = None,
        voter_ids: Sequence[Any] | None = None,
        parts: Parts | None = None,
        plan_for: int | None = None,
    ) -> Release:
        """Authorise, charge durably, then draw, in that order. Bad input charges nothing.

        ``parts`` keep each part of the release as soon as it is drawn, before the next is charged
        or drawn; what they hold already is not drawn again. ``plan_for`` is for how many queries,
        these included, an allowance is learnt: later calls go on with it.
        """
        ballots = Ballots.of(votes)
        ballots.check()  # before anything is charged
        self.budget.warn(ballots.voters)
        if queries is not None:
            ballots = ballots.head(queries)
        issuer = self._issuer
        if ballots.resolution > issuer.mechanism.resolution and not issuer.learns:
            raise InputError(
                "votes",
                "must be 0, 1 or missing; only tallies take probabilities",
            )
        if plan_for is not None and not issuer.learns:
            raise InputError("plan_for", "needs `mechanism=auto`, which learns the allowance")
        if baseline is not None and issuer.guarantee != "allowance":
            raise InputError("baseline", f"needs guarantee 'allowance', not {issuer.guarantee!r}")
        if issuer.guarantee == "allowance" or issuer.learns:
            asked = queries, baseline, self._wanted, self._ids, voter_ids, parts, plan_for
            return allowances.release(issuer, ballots, *asked)
        if issuer.guarantee == "worst-case":
            return self._worst_case(ballots, queries, parts)
        kept = None if parts is None else parts.kept(None)
        if kept is not None:
            return issuer.record(kept, parts, queries=ballots.queries)
        if queries is None:
            raise InputError(
                "queries",
                "must be given for guarantee 'data-dependent': stopping at a cost that depends on "
                "the votes would leak, so the number is fixed in advance",
            )
        return consensus.data_dependent(issuer, ballots, parts)

    def _worst_case(
        self, ballots: BallotSource, queries: int | None, parts: Parts | None
    ) -> Release:
        """Charge as many queries as fit, then draw them: by public numbers, plain composition."""
        issuer, size = self._issuer, sizes(ballots)
        issuer.mechanism.check(ballots)
        each = issuer.mechanism.worst_case_rdp(ballots.voters, ballots.labels, DEFAULT_ORDERS)
        fit = issuer.accounts.charge_queries(each, ballots.queries, queries, size)
        publish = partial(issuer.publish, voters=ballots.voters, epsilon=issuer.epsilon(fit * each))
        with charged():
            labels = issuer.draw(ballots.head(fit), parts=parts, publish=publish)
        return issuer.record(publish(labels), parts, queries=fit)

    def register(self, voters: int, labels: int) -> Allowance:
        """Find this electorate's account in the ledger, or open and charge it."""
        if self._issuer.learns:  # from votes, and there are none yet
            raise InputError("mechanism", "must be a privote mechanism, not 'auto'", AUTO)
        self.budget.warn(voters)
        found = allowances.register(self._issuer, voters, labels, self._wanted, self._ids)
        if len(found.each) != voters:
            raise InputError(
                "voters",
                f"must be all {len(found.each)} voters registered together, got {voters}",
            )
        return found
