"""The issuer: what every guarantee works with, a mechanism, its draws, the accounts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..accounting.renyi import DEFAULT_ORDERS, Floats, epsilon_at
from ..entropy import Entropy
from ..errors import ChargedError, InputError, MissingExtraError
from ..ledger.records import digest_of
from ..mechanisms import Mechanism
from ..release import Release, Sealed, decide
from ..votes.cube import BallotSource, Counts
from .accounts import Accounts, recorded

Labels = npt.NDArray[Any]  # or tallies, of a mechanism that releases these


class Parts(Protocol):
    """Where the parts of a release are made durable, and read again by a run that is resumed."""

    def kept(self, queries: int | None) -> Release | None:
        """Return the next part that was kept, of so many queries; None where there is no more."""

    def keep(self, part: Release) -> None:
        """Make a part durable, before the next is charged or drawn."""

    def ahead(self) -> Release | None:
        """Return the part that :meth:`kept` will return next, and leave it there."""

    def taken(self) -> tuple[Counts, Counts] | None:
        """Return what that part took from an allowance that no ledger keeps: spent, refused."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Issuer:
    """One mechanism within the budget of one data set, under one guarantee."""

    mechanism: Mechanism
    guarantee: str
    accounts: Accounts
    entropy: Entropy
    protects: str
    learns: bool = False  # then the mechanism stands for one that follows from the votes, paid for

    def epsilon(self, curve: Floats) -> float:
        """Return what a curve that was charged costs at the budget's delta."""
        return epsilon_at(curve, DEFAULT_ORDERS, self.accounts.budget.delta)[0]

    def draw(
        self,
        ballots: BallotSource,
        price: Callable[[Any], None] | None = None,
        *,
        parts: Parts | None = None,
        publish: Callable[[Labels], Release] | None = None,
    ) -> Labels:
        """Draw labels for all ballots, block by block.

        Parameters
        ----------
        price
            Called with every tally, before its labels are drawn.
        parts, publish
            Where each block is kept as soon as it is drawn, and what makes a release of its labels.
        """
        shape, start = (ballots.queries, ballots.labels), 0
        labels: Labels = np.empty(shape, self.mechanism.outcomes)
        for block in ballots.blocks():
            tally = self.mechanism.tally(block)
            if price is not None:
                price(tally)
            drawn = self.next(tally, block.queries, parts, publish)
            labels[start : start + len(drawn)] = drawn
            start += len(drawn)
        return labels[:start]

    def next(
        self,
        tally: Any,
        queries: int,
        parts: Parts | None,
        publish: Callable[[Labels], Release] | None,
    ) -> Labels:
        """Return the labels of the next block: as they were kept, or drawn now and then kept."""
        kept = None if parts is None else parts.kept(queries)
        if kept is not None:
            return kept.outcome
        self.accounts.check_undrawn()
        drawn = self.mechanism.draw(tally, self.entropy)
        if parts is not None and publish is not None:
            parts.keep(publish(drawn))
        return drawn

    def publish(
        self,
        labels: Labels,
        voters: int,
        epsilon: float | None,
        *,
        allowance: int | tuple[int, ...] | None = None,
        so_far: int | None = None,
        terms: dict[str, Any] | None = None,
        sealed: Sealed | None = None,
    ) -> Release:
        """Return what leaves; ``epsilon`` is what may be published, or None.

        Labels of tallies are a plain majority until they are recorded, and decided, as a whole.
        """
        budget, tallies = self.accounts.budget, None
        if labels.dtype == np.int64:
            steps = getattr(self.mechanism, "steps", 1)
            tallies, labels = labels, (2 * labels > steps * voters).astype(np.int8)
        return Release(
            labels=labels,
            tallies=tallies,
            epsilon=epsilon,
            delta=budget.delta,
            guarantee=self.guarantee,
            budget=budget.epsilon,
            mechanism=self.mechanism.parameters(),
            voters=voters,
            allowance=allowance,
            terms=terms or {},
            simulated=self.entropy.simulated,
            ledger=self.accounts.ledger.last_entry(),
            dataset=self.accounts.dataset,
            new=self.accounts.new and self.accounts.ledger.lasts,
            rule=self.accounts.rule if terms is None or "learnt" in terms else None,
            left=self.accounts.left,
            so_far=so_far,
            protects=self.protects,
            sealed=sealed or Sealed(),
        )

    def record(
        self,
        release: Release,
        parts: Parts | None,
        *,
        queries: int | None = None,
        account: str | None = None,
    ) -> Release:
        """Enter the digest of what was drawn and leaves, and return the release with it.

        ``queries`` is how many were charged, where that is not how many were answered. What is
        withheld is not recorded either.
        """
        accounts = self.accounts
        if release.tallies is not None:
            release = decide(release)
        body = {
            "voters": release.voters,
            "labels": release.labels.shape[1],
            "queries": release.answered if queries is None else queries,
            **({} if account is None else {"account": account}),
        }
        digest = digest_of(release.outcome)
        outcome = accounts.record(digest, release.stated, body)
        if outcome is None:
            return replace(release, drawn=(digest,))
        return recorded(release, outcome, lasts=accounts.ledger.lasts)


@contextmanager
def charged() -> Iterator[None]:
    """Have it said that the budget is charged by now, where votes cannot be read any more.

    Bad votes are found before that; a disk or a connection may still fail after it, with what
    elsewhere means that nothing was charged.
    """
    try:
        yield
    except (InputError, MissingExtraError) as error:
        raise ChargedError(
            f"the budget is charged, but not all votes could be read: {error}"
        ) from error


def sizes(ballots: BallotSource) -> dict[str, int]:
    """Return what an entry says about the electorate."""
    return {"voters": ballots.voters, "labels": ballots.labels}
