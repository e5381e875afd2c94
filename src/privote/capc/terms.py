"""The public terms of a coalition: who, which labels, how labels are released, at what price.

Everybody has the same terms, checked by digest before anything else is said. All that is decided
on public numbers is decided here: how many voters a querying party has, which program an answer
runs through, how much one AP's data may cost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Meta, ValidationError, convert

from ..accounting.renyi import check_delta
from ..errors import InputError, UnavailableError
from ..mechanisms import Mechanism, mechanism_of
from ..votes.names import folded
from .messages import DECISION, HEAD_BYTES, Name
from .noise import Counted, SharedNoise, counted

Whole = Annotated[int, Meta(ge=1)]
Positive = Annotated[float, Meta(gt=1e-150, lt=1e150)]
Texts = Annotated[tuple[Annotated[str, Meta(pattern=r"\S")], ...], Meta(min_length=1)]
Names = Annotated[tuple[Name, ...], Meta(min_length=1)]
#: What the promise to the answering parties rests on. Other terms (time-outs, the longest batch)
#: may change without a charge being lost.
PROMISE = frozenset(
    ("labels", "mechanism", "guarantee", "epsilon", "delta", "parties", "queriers", "noise")
)
MEANING = PROMISE | {"features", "embedding", "bound", "bits"}  # of the labels of given rows
_LARGEST_NOISE = 1 << 50  # forty times it and any margin add up within an int64


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What all sites of a coalition agreed on; everything in it is public.

    Parameters
    ----------
    name, labels
        Of the coalition; the labels it votes on.
    features
        The names of a row's features: rows are matched by them. With an ``embedding``: how many
        numbers it makes of a picture or a text.
    embedding
        The public embedding that makes numbers of pictures or texts, by name; every site uses it.
    bound, bits
        The querying party clips its inputs to [-bound, bound] and rounds them to ``bits`` bits.
    mechanism
        One that can be counted in a coalition: :class:`privote.BinaryVoting`,
        :class:`privote.TauVoting` with a ``grid``, or whatever else says how
        (:func:`privote.capc.noise.counted`).
    guarantee
        ``"allowance"`` (V contributions per answering party and querying party, for life) or
        ``"worst-case"`` (every query costs its worst case).
    epsilon, delta
        The budget of each answering party's data, for all querying parties together.
    guardian
        The site that keeps the ledger. It colludes with nobody, so it neither asks nor answers.
    parties
        The answering parties, in the order of their seats. Each has a model of all labels.
    queriers
        Who may ask. An allowance is split among them, so their number is part of the terms.
    minimum
        How many parties must take part in a decision; at least two.
    most_queries
        The longest batch.
    noise
        Who draws it: ``"sites"`` (the answering ones, in shares: nobody knows the sum; where the
        mechanism's noise has shares, as binary voting's) or ``"guardian"``, who then
        knows it: whoever sees labels and its noise knows tallies.
    timeout
        Seconds to wait for a peer, a session of the secure engine included.
    """

    name: Annotated[str, Meta(pattern=r"\S", max_length=100)]
    labels: Texts
    features: Texts | Whole
    mechanism: Mechanism
    epsilon: Positive
    delta: float
    guardian: Name
    parties: Names
    queriers: Names
    guarantee: Literal["allowance", "worst-case"] = "allowance"
    bound: Positive = 8.0
    bits: Whole = 20
    minimum: Annotated[int, Meta(ge=2)] = 2  # one ballot alone is no vote
    most_queries: Whole = 1000
    noise: Literal["guardian", "sites"] = "guardian"
    timeout: Positive = 120.0
    embedding: str | None = None
    #: How the mechanism's ballots are counted here.
    counted: Counted = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self), include_extras=True)
        for name in (item.name for item in fields(self) if item.init and item.name != "mechanism"):
            value = getattr(self, name)
            try:
                self._put(name, convert(value, hints[name]))
            except ValidationError as error:
                raise InputError(name, f"is wrong: {error}", value) from None
        for name in ("labels", "features", "parties", "queriers"):
            values = getattr(self, name)
            if isinstance(values, tuple) and len({*values}) < len(values):
                raise InputError(name, "must be different texts", values)
        if isinstance(self.features, int) == (self.embedding is None):
            rule = "must be names or, exactly with an `embedding`, a number"
            raise InputError("features", rule, self.features)
        self._put("delta", check_delta(self.delta))
        self._check_sites()
        self._check_mechanism()

    def _put(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_sites(self) -> None:
        if DECISION in self.parties:
            raise InputError("parties", f"must not be called {DECISION!r}, a session's own name")
        if self.guardian in (*self.parties, *self.queriers):
            raise InputError("guardian", "must neither ask nor answer", self.guardian)
        # A ledger compares names folded: two sites would have one budget, charged once.
        if len({folded(site) for site in self.sites}) < len(self.sites):
            raise InputError("parties", "must differ in more than case", self.sites)
        fewest = min(len(self.voters(querier)) for querier in self.queriers)
        if fewest < self.minimum:
            rule = f"must be at most the {fewest} parties that answer a querying party"
            raise InputError("minimum", rule, self.minimum)
        if len(json.dumps([*self.parties, *self.queriers])) > HEAD_BYTES // 2:
            raise InputError("parties", "must fit a message's head: use fewer or shorter names")

    def _check_mechanism(self) -> None:
        if not isinstance(self.mechanism, Mechanism):
            raise InputError("mechanism", "must be a privote mechanism", self.mechanism)
        count = counted(self.mechanism, len(self.labels))
        if self.allowance and not count.by_ballot and count.weights:
            rule = "must count every vote as 1, or contributions by ballot"
            raise UnavailableError("mechanism", rule, self.mechanism)
        if self.noise == "sites":
            count = replace(count, shared=SharedNoise.of(self.mechanism, len(self.labels)))
        self._put("counted", count)
        for of in (self.mechanism, self.mechanism.gate):
            sigma = getattr(of, "sigma", None) or 0.0
            if sigma * self.counted.unit > _LARGEST_NOISE:
                rule = "must have a sigma of at most 2^50 steps of the grid: noise fits 64 bits"
                raise InputError("mechanism", rule, sigma)

    # -- who ---------------------------------------------------------------------------------------

    def voters(self, querier: str) -> tuple[str, ...]:
        """Return who answers a querying party: everybody registered but itself, in order."""
        return tuple(party for party in self.parties if party != querier)

    @property
    def sites(self) -> tuple[str, ...]:
        """Everybody in the coalition, by name."""
        return tuple(sorted({self.guardian, *self.parties, *self.queriers}))

    # -- how ---------------------------------------------------------------------------------------

    @property
    def inputs(self) -> int:
        """How many numbers a row has."""
        return self.features if isinstance(self.features, int) else len(self.features)

    @property
    def allowance(self) -> bool:
        """Whether every answering party has an allowance of contributions."""
        return self.guarantee == "allowance"

    # -- as plain data -----------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the terms as JSON or TOML can hold them; None is left out."""
        out: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "mechanism":
                value = self.mechanism.parameters()
            elif isinstance(value, tuple):
                value = list(value)
            if value is not None and item.init and (item.name, value) != ("noise", "guardian"):
                out[item.name] = value  # terms without the word have the guardian's noise
        return out

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Terms:
        """Return the terms that :meth:`to_dict` wrote."""
        known = {item.name for item in fields(cls) if item.init}
        strange = sorted(set(plain) - known)
        if strange:
            raise InputError(f"terms have no {strange[0]!r}; they have {', '.join(sorted(known))}")
        given = dict(plain)
        if isinstance(given.get("mechanism"), Mapping):
            given["mechanism"] = mechanism_of(given["mechanism"])
        try:
            return cls(**given)
        except TypeError as error:
            why = str(error).replace("Terms.__init__() ", "")
            raise InputError(f"terms are not complete: {why}") from None

    def digest(self, names: frozenset[str] | None = None) -> str:
        """Return a digest of the terms, or of those with these names."""
        plain = {key: each for key, each in self.to_dict().items() if not names or key in names}
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def longest_message(terms: Terms) -> int:
    """Return the bytes of the longest message: a batch of masks, and halves of noise beside."""
    return HEAD_BYTES + 8 * terms.most_queries * len(terms.labels) * (1 + terms.counted.parts)
