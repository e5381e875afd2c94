"""What every mechanism offers: one exact outcome distribution that is both drawn and priced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from itertools import product
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from ..accounting.gaussian import GaussianLink
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

_OURS: set[str] = set()  # names that are taken
_DRAWS = 200  # of a mechanism that does not say its probabilities: a mean is right to 0.04


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
class Counted:
    """How parties who hide their ballots from each other count them: in whole numbers.

    Attributes
    ----------
    vote
        The noise on a label's margin, in votes: twice what its yeses count, less the voters.
    unit
        What a full yes counts, and so the most by which a ballot moves what yeses count.
    weights
        What a yes counts by the number of yeses of its ballot, (labels + 1,); None: always 1.
    neutral
        Whether a missing vote counts for neither side; else it is a no.
    """

    vote: GaussianLink
    unit: int = 1
    weights: tuple[int, ...] | None = None
    neutral: bool = False

    def __post_init__(self) -> None:
        if self.weights is None and self.unit != 1:
            raise InputError("unit", "must be 1 without `weights`", self.unit)


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
    #: Whether saying no to every label and saying nothing are the same.
    missing_counts_as_no: ClassVar[bool] = True
    #: Of what is drawn: int8 for labels, int64 for tallies.
    outcomes: ClassVar[type] = np.int8
    bounds: ClassVar[tuple[str, ...]] = ("exact", "pate2018")
    worst_case_bounds: ClassVar[tuple[str, ...]] = ("exact", "gaussian")

    gate: Gate | None = None

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        # Under another's name it would go on with the other's charges in a ledger.
        if "name" not in vars(cls):
            cls.name = f"{cls.__module__}:{cls.__qualname__}"
        elif cls.__module__.startswith(f"{__package__}."):
            _OURS.add(cls.name)
        elif cls.name in _OURS:
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
        """How many steps a whole vote has that may be a part of one; 1 where it is 0 or 1."""
        return 1

    def counts_missing(self, missing: bool) -> bool:
        """Return whether a missing vote, if there may be one, counts for neither side."""
        return False

    def margin_grid(self, voters: int, missing: bool) -> MarginGrid | None:
        """Return the levels by which cells are priced; None where a cost is no sum over cells."""
        return None

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        """Return the names of all settings."""
        return tuple(field.name for field in fields(cls))

    @classmethod
    def needs(cls) -> tuple[str, ...]:
        """Return the settings that cannot be left out."""
        return tuple(
            field.name
            for field in fields(cls)
            if field.default is MISSING and field.default_factory is MISSING
        )

    # -- what planning asks of it ------------------------------------------------------------------

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

    # -- what an audit asks of it ------------------------------------------------------------------

    @classmethod
    def audited(cls) -> tuple[Mechanism, ...]:
        """Return every feature but a gate once, with so little noise that flaws show."""
        make: Any = cls
        if "sigma" not in cls.settings():
            raise UnavailableError(f"{cls.name} has no sigma, so it must define audited")
        return (make(sigma=2.0),)

    def every_ballot(self, labels: int, *, missing: bool = False) -> Labels:
        """Return every ballot that a voter may cast: (ballots, labels), -1 for a missing vote."""
        ballots = vectors(labels, (0, 1, -1) if missing else (0, 1))
        most = self.max_positives
        return ballots if most is None else ballots[(ballots == 1).sum(axis=1) <= most]

    def every_outcome(self, labels: int) -> Labels:
        """Return every row of labels that may be released: (outcomes, labels)."""
        return vectors(labels, (0, 1) if self.gate is None else (0, 1, ABSTAIN))

    def joint_probabilities(self, votes: Any) -> Floats:
        """Return the probability of each of :meth:`every_outcome`: (queries, outcomes)."""
        raise UnavailableError(f"{self.name} must define joint_probabilities for an exact audit")

    def joint_log_probs(self, votes: Any) -> Floats:
        """Return the logarithms of :meth:`joint_probabilities`: (queries, outcomes)."""
        with np.errstate(divide="ignore"):
            return np.log(self.joint_probabilities(votes))

    # -- what a coalition asks of it ---------------------------------------------------------------

    def counted(self, labels: int) -> Counted:
        """Return how a coalition counts ballots on so many labels; most mechanisms cannot be."""
        raise UnavailableError(
            "mechanism",
            "must be binary or tau in a coalition, or decide each label by its own margin",
            self,
        )

    def with_grid(self, steps: int) -> Mechanism:
        """Return the same mechanism with weights of ballots in whole steps: itself if it has none.

        Parameters
        ----------
        steps
            How many of them a full vote has.
        """
        del steps
        return self

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

    def contribution_rdp(self, voters: int, labels: int, orders: Orders | None = None) -> Floats:
        """Return what one contribution costs at most (ACCOUNTING: the unit of an allowance)."""
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


def vectors(labels: int, values: tuple[int, ...]) -> Labels:
    """Return every row of so many of the values: (rows, labels)."""
    return np.array(list(product(values, repeat=labels)), np.int8)


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
