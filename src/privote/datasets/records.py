"""The one type all data sets share: records, their labels, and whose they are.

Who goes where is a keyed hash of a record's name, and of nothing else. A record's place must not
depend on other records or on anybody's values. Otherwise adding or changing one record could move
others, and one record would reach more than one voter. So a place is a function of the key, the
purpose and the record's own id (or its group: all records of one patient carry the same group and
stay together).

The hash is BLAKE2b with a key and a purpose: the same on every machine, in every run and for every
order of the ids. An id is a whole number or a text, and is hashed as it is compared
(:func:`privote.votes.names.identity`): 7, 7.0, "7" and "007" are one id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from hashlib import blake2b
from itertools import accumulate
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from privote.errors import InputError, numbers
from privote.votes.names import identities

from .images import Images

Labels = npt.NDArray[np.int8]
Parts = npt.NDArray[np.int64]

MISSING = -1
SIDES = ("private", "public", "test")

# Which side a record is on is not a secret (a public record is seen to be one), so this key may be
# public too. The cut of the private side into voters is another hash, under a key of its own.
_KEY = b"privote: private, public, test"
_BITS = 64
_SUM = 1e-9  # how far from 1 shares may add up: they are written as decimals


@dataclass(frozen=True, kw_only=True, eq=False)
class MultiLabelData:
    """Records with several labels each.

    Attributes
    ----------
    X
        Features (records, features) as a float32 array or a sparse ``csr_array``; or a
        :class:`RawTable` of columns that are no numbers yet; or :class:`Images`, which are read
        when they are indexed; or None if there are labels only.
    Y
        int8 (records, labels): 1, 0, or -1 where the label is not known.
    label_names
        (labels,) different names.
    ids
        (records,) a different name for each record.
    groups
        (records,) whose the record is (a patient), or None if every record stands for itself.
        All records of one group stay together in every cut.
    sides
        (records,) ``"private"``, ``"public"`` or ``"test"`` if the data set fixes it, else None.
    feature_names
        (features,) names of the columns of ``X``, or None if they have none.
    columns
        Further facts about the records, each (records,): the view of an X-ray, for example.
    name
        What the data set is called.
    """

    X: Any
    Y: Labels
    label_names: tuple[str, ...]
    ids: npt.NDArray[Any]
    groups: npt.NDArray[Any] | None = None
    sides: npt.NDArray[Any] | None = None
    feature_names: tuple[str, ...] | None = None
    columns: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    name: str = "data"

    def __post_init__(self) -> None:
        Y = numbers("Y", self.Y)
        Y = np.where(np.isnan(Y), MISSING, Y)
        if Y.ndim != 2 or Y.shape[1] != len(self.label_names):
            shape = f"(records, {len(self.label_names)})"
            raise InputError("Y", f"must have the shape {shape}, got {Y.shape}")
        odd = np.argwhere((Y != 0) & (Y != 1) & (Y != MISSING))
        if len(odd):
            row, label = odd[0]
            sealed = f"it is {Y[row, label]}"
            raise InputError(f"`Y`[{row}, {label}] must be 0, 1 or -1", sealed=sealed)
        if len(set(self.label_names)) != len(self.label_names):
            raise InputError("label_names", f"must differ, got {self.label_names}")
        per_record = {"X": self.X, "ids": self.ids, "groups": self.groups, "sides": self.sides}
        for what, value in (per_record | dict(self.columns)).items():
            if value is not None and _length(value) != len(Y):
                got = f"{_length(value)}, like `Y`: {len(Y)}"
                raise InputError(f"{what} must have as many records, got {got}")
        if self.feature_names is not None and len(self.feature_names) != self.X.shape[1]:
            rule = f"must have {self.X.shape[1]} names, one per column of `X`"
            raise InputError("feature_names", f"{rule}, got {len(self.feature_names)}")
        if self.sides is not None and not np.isin(self.sides, SIDES).all():
            raise InputError("sides", f"must be some of {', '.join(SIDES)}")
        if len(set(identities(self.ids, "ids").tolist())) < len(Y):
            raise InputError("ids", "must differ: two records have the same one")
        object.__setattr__(self, "Y", Y.astype(np.int8, copy=False))

    def __len__(self) -> int:
        return len(self.Y)

    def __repr__(self) -> str:
        whose = "records" if self.groups is None else "persons"
        size = f"{_owners(self)} {whose}, {len(self.label_names)} labels"
        return f"MultiLabelData({self.name}: {size})"

    def take(self, rows: Any) -> MultiLabelData:
        """Return some of the records (indices, a slice or a mask); images are not read."""
        X = self.X.take(rows) if isinstance(self.X, Images) else self.X
        return replace(
            self,
            X=X if X is None or isinstance(X, Images) else X[rows],
            Y=self.Y[rows],
            ids=self.ids[rows],
            groups=None if self.groups is None else self.groups[rows],
            sides=None if self.sides is None else self.sides[rows],
            columns={name: column[rows] for name, column in self.columns.items()},
        )

    def split(
        self,
        *,
        private: float | None = None,
        public: float | None = None,
        test: float | None = None,
        key: bytes = _KEY,
    ) -> Split:
        """Cut the data into a private, a public and a test side; a group is on one side only.

        Parameters
        ----------
        private, public, test
            The share of each, adding up to 1; 0 leaves a side empty. By default the data set's own
            sides if it has any, else 0.8, 0.1 and 0.1.
        key
            Key of the hash that decides; see :func:`keyed_parts`. A side depends on the record's
            group (or id) and on nothing else, so adding a record never moves another.

        Notes
        -----
        Sizes are random around the shares. A side asked for that gets nothing is an error.
        """
        shares = {"private": private, "public": public, "test": test}
        fixed = {side: share for side, share in shares.items() if share is not None}
        if self.sides is not None:
            if fixed:
                raise InputError(f"{self.name} has fixed sides: give no shares, got {fixed}")
            return Split(**{side: self.take(self.sides == side) for side in SIDES})
        if not fixed:
            shares = {"private": 0.8, "public": 0.1, "test": 0.1}
        positive = {side: share for side, share in shares.items() if share}
        owners = self.ids if self.groups is None else self.groups
        part = keyed_parts(owners, list(positive.values()), key=key, purpose="split")
        rows = {side: np.flatnonzero(part == number) for number, side in enumerate(positive)}
        for side, chosen in rows.items():
            if not len(chosen):
                rule = "is empty; give a larger share or another key"
                raise InputError(f"{side}={positive[side]} {rule}")
        nobody = np.array([], dtype=np.intp)
        return Split(**{side: self.take(rows.get(side, nobody)) for side in SIDES})


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """Three sides of one data set.

    ``private`` trains the voters. ``public`` is what they are asked about: its ``Y`` is the truth
    and there for evaluation only. ``test`` is for the model at the end.
    """

    private: MultiLabelData
    public: MultiLabelData
    test: MultiLabelData

    def __repr__(self) -> str:
        sizes = ", ".join(f"{side}={_owners(getattr(self, side))}" for side in SIDES)
        return f"Split({self.private.name}: {sizes})"


def _owners(data: MultiLabelData) -> int:
    """Return how many records there are, or persons: how many records these have is private."""
    return len(data if data.groups is None else set(data.groups.tolist()))


def _length(value: Any) -> int:
    return int(value.shape[0]) if hasattr(value, "shape") else len(value)


# -- who goes where ------------------------------------------------------------------------------


def keyed_parts(
    ids: Any, parts: int | Sequence[float], *, key: bytes, purpose: str = "parts"
) -> Parts:
    """Return the part of each id, from 0: a keyed hash of the id and of nothing else.

    Parameters
    ----------
    ids
        (records,) whole numbers or texts; equal ids go to the same part.
    parts
        How many parts of equal chance, or the chance of each part: positive, adding up to 1.
    key
        1 to 64 bytes. Whoever knows it and an id knows the part: for private records it is a
        secret, and the same one must be used for as long as the parts are to stay.
    purpose
        At most 16 bytes that set hashes for different ends apart. Two cuts under one key and one
        purpose are the *same* cut: the half of a half would be everything or nothing.

    Returns
    -------
    int64 array (records,)
        Chances are exact to 2^-64. Sizes are random: 1,000 ids in 10 parts are not 100 each.
    """
    bounds = _bounds(parts)
    if not isinstance(key, bytes) or not 1 <= len(key) <= blake2b.MAX_KEY_SIZE:
        shown = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise InputError("key", f"must be 1 to {blake2b.MAX_KEY_SIZE} bytes, got {shown}")
    person = purpose.encode()
    if len(person) > blake2b.PERSON_SIZE:
        raise InputError("purpose", f"must be at most {blake2b.PERSON_SIZE} bytes", purpose)
    keyed = blake2b(key=key, person=person, digest_size=_BITS // 8)

    def digest(name: bytes) -> bytes:
        state = keyed.copy()  # the key's block is hashed once, not once for each id
        state.update(name)
        return state.digest()

    # Numbers and texts are marked: so the splits of data sets stay what they were.
    marked = (
        (b"i" if name.isdecimal() else b"s", name) for name in identities(ids, "ids").tolist()
    )
    names = (mark + name.encode("utf-8", "surrogatepass") for mark, name in marked)
    hashes = np.frombuffer(b"".join(map(digest, names)), dtype=">u8")
    return np.searchsorted(bounds, hashes.astype(np.uint64), side="right").astype(np.int64)


def _bounds(parts: int | Sequence[float]) -> npt.NDArray[np.uint64]:
    """Return the hashes (parts - 1,) at which the second, third, ... part begins."""
    if isinstance(parts, Integral) and not isinstance(parts, bool):
        count = int(parts)
        if count < 1:
            raise InputError("parts", f"must be at least 1, got {count}")
        starts = [-(-(part << _BITS) // count) for part in range(1, count)]
        return np.array(starts, dtype=np.uint64)
    shares = list(parts) if isinstance(parts, Sequence | np.ndarray) else None
    if not shares or not all(_is_share(share) for share in shares):
        raise InputError("parts", "must be an integer or a list of shares between 0 and 1", parts)
    exact = [Fraction(float(share)) for share in shares]
    total = sum(exact, Fraction(0))
    if abs(total - 1) > _SUM:
        raise InputError(f"shares in parts must add up to 1, got {shares} = {float(total)}")
    starts = [int(reached / total * 2**_BITS) for reached in accumulate(exact[:-1])]
    return np.array(starts, dtype=np.uint64)


def _is_share(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) <= 1
