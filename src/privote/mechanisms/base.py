"""What every mechanism offers: one exact outcome distribution that is both drawn and priced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..accounting.renyi import Floats, Orders, check_orders
from ..ballots import MOST, Ballots, BallotSource
from ..blocks import Block
from ..entropy import Entropy
from ..errors import InputError, whole
from .gate import Gate

#: A released label the gate held back.
ABSTAIN = -1

Labels = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]

_DRAWS = 200  # of a mechanism that does not say its probabilities: a mean is right to 0.04


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """A map from a tally to the exact distribution over outcomes.

    A mechanism says how to tally a block of ballots (:meth:`tally`), how to draw from the tally's
    distribution (:meth:`draw`), and what the draw costs (:meth:`cost`). All three read the same
    log-probabilities, so what is promised is what is drawn. Adjacency is replace-one-ballot: one
    voter's ballot changes, on every query; all costs are two-sided.
    """

    name: ClassVar[str]
    #: What an allowance counts: single votes, or whole ballots.
    surprise_unit: ClassVar[str] = "ballot"
    #: Whether saying no to every label and saying nothing are the same.
    silence_is_zeros: ClassVar[bool] = True
    bounds: ClassVar[tuple[str, ...]] = ("exact", "pate2018")
    worst_case_bounds: ClassVar[tuple[str, ...]] = ("exact", "gaussian")

    gate: Gate | None = None

    @property
    def most_ones(self) -> int | None:
        """How many ones a ballot may have; None if any number."""
        return None

    def __post_init__(self) -> None:
        if self.gate is not None and not isinstance(self.gate, Gate):
            raise InputError("gate", "must be a privote.Gate or None", self.gate)

    # -- what each mechanism defines -------------------------------------------------------------

    @abstractmethod
    def tally(self, block: Block) -> Any:
        """Reduce a block of ballots to what the outcome distribution depends on."""

    @abstractmethod
    def draw(self, tally: Any, entropy: Entropy) -> Labels:
        """Draw labels (queries, labels) from the tally's exact distribution."""

    @abstractmethod
    def cost(self, tally: Any, orders: Floats, bound: str) -> Floats:
        """Price each query of a tally: (queries, orders)."""

    @abstractmethod
    def cost_by_voter(self, block: Block, orders: Floats) -> Floats:
        """Price a block for each voter and direction: (voters, 2, orders)."""

    @abstractmethod
    def worst_case_rdp(
        self, voters: int, labels: int, orders: Orders | None = None, bound: str = "exact"
    ) -> Floats:
        """Return what one query costs at most on any votes: (orders,)."""

    @abstractmethod
    def unanimous(self, voters: int, labels: int) -> float:
        """Return how often a label that every voter wants, and nothing else, is released as 1."""

    def total_cost(self, tally: Any, orders: Floats, bound: str) -> Floats:
        """Price a whole tally: (orders,)."""
        return np.asarray(self.cost(tally, orders, bound).sum(axis=0))

    def check(self, ballots: BallotSource) -> None:  # noqa: B027 (most mechanisms take any ballot)
        """Refuse ballots this mechanism cannot count; the message names the place."""

    # -- what planning asks of it ------------------------------------------------------------------

    @classmethod
    def variants(cls, sigma: float, order: float) -> tuple[Mechanism, ...]:
        """Return what a comparison of mechanisms tries of this kind.

        Parameters
        ----------
        sigma
            The noise, the same for all kinds.
        order
            The Rényi order at which the budget settles, for what is made for one order.
        """
        make: Any = cls
        return (make(sigma=sigma),)

    def with_noise(self, sigma: float) -> Mechanism:
        """Return the same mechanism with another amount of noise."""
        other: Any = self
        return replace(other, sigma=sigma)  # type: ignore[no-any-return]

    def noise_free(self, block: Block) -> Bools:
        """Return what the voters want (queries, labels): labels with more yes than no."""
        return np.asarray(block.margins(missing_is_no=False) > 0)

    def cell_probabilities(self, tally: Any) -> Floats:
        """Return the probability of 0, 1 and ABSTAIN in each cell: (queries, labels, 3).

        Here the shares among simulated draws; a mechanism that knows them says them exactly.
        """
        drawn = [self.draw(tally, Entropy(seed)) for seed in range(_DRAWS)]
        shares = [np.mean([each == outcome for each in drawn], axis=0) for outcome in (0, 1, -1)]
        return np.stack(shares, axis=-1)

    # -- what every user calls -------------------------------------------------------------------

    def release(self, votes: Any, seed: int | None = None) -> Labels:
        """Draw one release. An *unbilled* primitive: nothing is charged, no budget is checked.

        Use :func:`privote.label` for a release with a guarantee.

        Parameters
        ----------
        votes
            (queries, voters, labels) array, ballots or path.
        seed
            ``None``: cryptographic randomness. An integer: a simulation that protects nobody.

        Returns
        -------
        int8 (queries, labels): 1, 0 or ABSTAIN (-1).
        """
        ballots, entropy = self._accept(votes), Entropy(seed)
        return np.concatenate([self.draw(self.tally(b), entropy) for b in ballots.blocks()])

    def rdp(self, votes: Any, orders: Orders | None = None, bound: str = "exact") -> Floats:
        """Return the data-dependent cost of each query: (queries, orders). Owner's eyes only.

        ``"exact"`` covers every neighbour in both directions and adds over queries;
        ``"pate2018"`` is the published bound, to compare with.
        """
        self._check_bound(bound, self.bounds)
        orders = check_orders(orders)
        ballots = self._accept(votes)
        return np.concatenate([self.cost(self.tally(b), orders, bound) for b in ballots.blocks()])

    def total_rdp(self, votes: Any, orders: Orders | None = None, bound: str = "exact") -> Floats:
        """Return the sum of :meth:`rdp` over queries, streamed: (orders,)."""
        self._check_bound(bound, self.bounds)
        orders = check_orders(orders)
        total = np.zeros(len(orders))
        for block in self._accept(votes).blocks():
            total += self.total_cost(self.tally(block), orders, bound)
        return total

    def rdp_by_voter(self, votes: Any, orders: Orders | None = None) -> Floats:
        """Return each voter's own bill: (voters, 2, orders), both directions.

        Exact for the batch: the largest divergence over every change of that voter's ballots. The
        cost of the batch is the maximum over voters and directions; bills add over batches.
        """
        orders = check_orders(orders)
        ballots = self._accept(votes)
        bill = np.zeros((ballots.voters, 2, len(orders)))
        for block in ballots.blocks():
            bill += self.cost_by_voter(block, orders)
        return bill

    @property
    def own_order(self) -> float | None:
        """The Rényi order that this mechanism was made for; None if for no one in particular."""
        return None

    def surprise_rdp(self, voters: int, labels: int, orders: Orders | None = None) -> Floats:
        """Return what one surprise costs at most (ACCOUNTING: the unit of an allowance)."""
        return self.worst_case_rdp(voters, labels, orders)

    def noisy_bar(self, voters: int) -> tuple[float, float] | None:
        """Return the bar of yes-votes, and the deviation of Gaussian noise on them.

        None where a label is anything else than whether its noisy yes-votes stand above a bar.
        """
        return None

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters, as plain numbers, for statements and files."""
        out: dict[str, Any] = {"mechanism": self.name}
        for field in sorted(fields(self), key=lambda field: field.name == "gate"):
            value = getattr(self, field.name)
            if value is None:
                continue
            nested = hasattr(value, "__dataclass_fields__")
            out[field.name] = (
                {
                    "kind": type(value).__name__,
                    **{f.name: getattr(value, f.name) for f in fields(value)},
                }
                if nested
                else value
            )
        return out

    def __str__(self) -> str:
        return describe(self.parameters())

    # -- shared checks ---------------------------------------------------------------------------

    def _accept(self, votes: Any) -> BallotSource:
        ballots = Ballots.of(votes)
        self.check(ballots)
        return ballots

    def _check_bound(self, bound: str, known: tuple[str, ...]) -> None:
        if bound not in known:
            raise InputError("bound", f"must be one of {', '.join(known)}", bound)


def check_electorate(voters: int, labels: int) -> None:
    """Refuse sizes that are not positive integers, or that no electorate has."""
    whole("voters", voters, most=MOST)
    whole("labels", labels, most=MOST)


def describe(parameters: dict[str, Any]) -> str:
    """Return public parameters as "binary (sigma=7, gate threshold=50 sigma=30)"."""
    parts = []
    for key, value in parameters.items():
        if isinstance(value, dict):
            inner = " ".join(
                f"{k}={v:g}" for k, v in value.items() if k != "kind" and v is not None
            )
            parts.append(f"{key} {inner}")
        elif key != "mechanism":
            parts.append(f"{key}={value:g}")
    return f"{parameters['mechanism']} ({', '.join(parts)})"
