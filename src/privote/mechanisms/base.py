"""What every mechanism offers: one exact outcome distribution that is both drawn and priced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields, is_dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from ..accounting.renyi import Floats, Orders, check_orders
from ..entropy import Entropy
from ..errors import InputError, UnavailableError, finite, positive, whole
from ..votes.cube import MOST, Ballots, BallotSource, Block

if TYPE_CHECKING:
    from .cells import MarginGrid

#: A released label that the gate withheld: ``labels[labels == pv.ABSTAIN]``.
ABSTAIN = -1

Labels = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]

_RESERVED: set[str] = set()  # names of privote's own mechanisms


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The confidence gate: answer with probability Phi((top - threshold) / sigma), else ABSTAIN.

    PATE 2018's Confident-GNMax: answer only where voters agree enough. ``top`` is the larger of yes
    and no for a label (Binary, Tau), or the count of the leading class for a query (Powerset,
    Plurality). The noise on it is N(0, sigma^2), drawn independently of the vote and priced jointly
    with it.

    Parameters
    ----------
    threshold
        Answer only where about this many voters agree.
    sigma
        Standard deviation of the noise on the number that agree, in votes.

    Examples
    --------
    >>> import privote as pv
    >>> print(pv.BinaryVoting(sigma=7.0, gate=pv.Gate(threshold=40, sigma=10)))
    binary (sigma=7, gate threshold=40 sigma=10)
    """

    threshold: float
    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", positive("gate sigma", self.sigma))
        object.__setattr__(self, "threshold", finite("gate threshold", self.threshold))

    def log_probs(self, top: npt.NDArray[Any]) -> Floats:
        """Return log Pr[abstain], log Pr[answer] on the last axis: (..., 2)."""
        z = (np.asarray(top, np.float64) - self.threshold) / self.sigma
        return np.stack([log_ndtr(-z), log_ndtr(z)], axis=-1)


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """A map from a tally to the exact distribution over outcomes.

    A mechanism defines how to tally a block of ballots (:meth:`tally`), how to draw from its
    distribution (:meth:`draw`) and what the draw costs (:meth:`cost`). All three use the same
    log-probabilities, so what is priced is what is drawn. Neighbouring votes differ in one voter's
    ballots, on any or all queries (replace one voter); all costs hold in both directions.

    Examples
    --------
    >>> import privote as pv
    >>> isinstance(pv.BinaryVoting(sigma=7.0), pv.Mechanism)
    True
    """

    #: On the command line, in files, statements and ledgers: by default "module:Class".
    name: ClassVar[str]
    #: What an allowance counts: single votes, or whole ballots.
    contribution_unit: ClassVar[str] = "ballot"
    #: Whether a ballot without a yes and a missing ballot are the same.
    missing_counts_as_no: ClassVar[bool] = True
    #: The type of what is drawn: int8 for labels, int64 for tallies.
    outcomes: ClassVar[type] = np.int8
    #: The bounds that `rdp` and `worst_case_rdp` know.
    _bounds: ClassVar[tuple[str, ...]] = ("exact",)
    _worst_case_bounds: ClassVar[tuple[str, ...]] = ("exact", "gaussian")

    gate: Gate | None = None

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        # Under another's name it would continue that mechanism's allowance in a ledger.
        if "name" not in vars(cls):
            cls.name = f"{cls.__module__}:{cls.__qualname__}"
        elif cls.__module__.startswith(f"{__package__}."):
            _RESERVED.add(cls.name)
        elif cls.name in _RESERVED:
            raise TypeError(f"name {cls.name!r} is already the name of a privote mechanism")

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

    def total_cost(self, tally: Any, orders: Floats, bound: str) -> Floats:
        """Price a whole tally: (orders,)."""
        return np.asarray(self.cost(tally, orders, bound).sum(axis=0))

    def check(self, ballots: BallotSource) -> None:  # noqa: B027 (most mechanisms take any ballot)
        """Refuse ballots this mechanism cannot count; the message names the place."""

    # -- facts, each with the answer of most mechanisms --------------------------------------------

    @property
    def max_positives(self) -> int | None:
        """How many ones a ballot may have; None if any number."""
        return None

    @property
    def resolution(self) -> int:
        """How many steps a vote in [0, 1] is rounded to; 1 where it is 0 or 1."""
        return 1

    def margin_grid(self, voters: int, missing: bool) -> MarginGrid | None:
        """Return the levels by which cells are priced; None where a cost is no sum over cells."""
        return None

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        """Return the names of all settings."""
        return tuple(field.name for field in fields(cls))

    def outcome_probabilities(self, votes: Any) -> Any:
        """Return how likely each outcome is: what is drawn, and what an audit compares with.

        (queries, labels, 2 or 3) where labels are drawn one by one: 0, 1 and, with a gate, ABSTAIN.
        (queries, rows) where a row is drawn as a whole: rows of 0 and 1 (with a gate -1, too) in
        the order of ``itertools.product``.
        """
        raise UnavailableError(f"{self.name} must define outcome_probabilities for an exact audit")

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
        self._check_bound(bound, self._bounds)
        orders = check_orders(orders)
        ballots = self._accept(votes)
        return np.concatenate([self.cost(self.tally(b), orders, bound) for b in ballots.blocks()])

    def total_rdp(self, votes: Any, orders: Orders | None = None, bound: str = "exact") -> Floats:
        """Return the sum of :meth:`rdp` over queries, streamed: (orders,)."""
        self._check_bound(bound, self._bounds)
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

    def contribution_rdp(self, voters: int, labels: int, orders: Orders | None = None) -> Floats:
        """Return what one contribution, the unit of an allowance, costs at most: (orders,)."""
        return self.worst_case_rdp(voters, labels, orders)

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters, as plain numbers, for statements and files."""
        out: dict[str, Any] = {"mechanism": self.name}
        for name in sorted((field.name for field in fields(self)), key="gate".__eq__):
            value = getattr(self, name)
            if is_dataclass(value):
                value = {"kind": type(value).__name__, **asdict(value)}  # type: ignore[arg-type]
            if value is not None:
                out[name] = value.item() if isinstance(value, np.generic) else value
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

    def _check_worst_case(
        self, voters: int, labels: int, orders: Orders | None, bound: str
    ) -> Floats:
        self._check_bound(bound, self._worst_case_bounds)
        check_electorate(voters, labels)
        return check_orders(orders)


def check_electorate(voters: int, labels: int) -> None:
    """Refuse sizes that are not positive integers, or that no electorate has."""
    whole("voters", voters, most=MOST)
    whole("labels", labels, most=MOST)


def describe(parameters: dict[str, Any]) -> str:
    """Return public parameters as "binary (sigma=7, gate threshold=50 sigma=30)"."""
    parts, name = [], parameters.get("mechanism", parameters.get("name"))  # of old entries
    for key, value in parameters.items():
        if isinstance(value, dict):
            inner = " ".join(
                f"{k}={v:g}" for k, v in value.items() if k != "kind" and v is not None
            )
            parts.append(f"{key} {inner}")
        elif key not in ("mechanism", "name"):
            parts.append(f"{key}={value:g}" if isinstance(value, Real) else f"{key}={value}")
    return f"{name} ({', '.join(parts)})" if parts else f"{name}"
