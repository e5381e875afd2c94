"""Tables as people have them into numbers: words, dates, texts and gaps, by public rows alone.

Everything an encoder knows it learnt from public rows: which columns there are, which kind each is
(a number, a date, yes or no, words that are categories each, or text), the range and scale of its
numbers, its categories, the words of its texts. A private row is then encoded by itself, cell by
cell (:mod:`privote.votes.cells`), without a look at any other private row: one record reaches one
voter only, and nothing of the encoding is private. It is plain values, and saves as such.
"""

from __future__ import annotations

import math
import re
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ..errors import InputError, PrivoteWarning, shown
from ..votes.cells import ISO, ODD, YesNo, canonical, day, number, word
from ..votes.tables import RawTable, open_table
from .features import Features
from .rows import Floats
from .texts import AUTO, WORDS, TextNetwork

_FORM = 2  # of the plain values
_WIDE = 2000  # features; with so many a table is mostly words
_CATEGORIES, _TERMS = 50, 2000  # most of a column
_LONG = 4  # words a cell has on average from which on a column is text
_MANY = 20  # rows from which on it says something that no word comes twice
_WORD = re.compile(r"\w\w+")
_DATES = (ISO, "%Y/%m/%d", "%d.%m.%Y", "%d-%m-%Y", "%d/%m/%Y", "%m/%d/%Y")
_YEAR = 365.2425
_SAYS = YesNo(ticks=False)


class TableEncoder:
    """Turns rows of a table into numbers, as it learnt from public rows.

    Rows are a CSV or Parquet file, a data frame, a mapping of columns, a list of records, or what
    :func:`privote.datasets.tables.raw_table` read.

    Parameters
    ----------
    texts
        What turns columns of texts into numbers; None: the words of the public rows.
    """

    def __init__(self, texts: TextNetwork | None = None) -> None:
        self.texts = TextNetwork(network=WORDS) if texts is None else texts

    def fit(self, public: Any) -> TableEncoder:
        """Decide by public rows what each column is and how it becomes numbers."""
        rows = open_table(public, "public rows", public=True)
        if len(rows) < 2:
            raise InputError(f"{rows.name} must have at least two public rows, got {len(rows)}")
        columns: list[Column] = []
        left: dict[str, str] = {}
        for name, column in rows.columns.items():
            kind = _kind_of(name, column.tolist(), self.texts)
            if isinstance(kind, str):
                left[name] = kind
            else:
                columns.append(kind)
        if not columns:
            why = "; ".join(f"{name!r:.60} is left out: {why}" for name, why in [*left.items()][:4])
            raise InputError(f"{rows.name} must have a usable feature column; {why}")
        if self.texts.network not in (AUTO, WORDS) and not any(
            isinstance(column, _Embedded) for column in columns
        ):
            rule = f"needs a column of texts, and {rows.name} has none"
            raise InputError("embedding", rule, self.texts.network)
        self._columns, self._left = columns, left
        return self

    def transform(self, rows: Any) -> Any:
        """Return features (rows, features), float32; sparse if a column is text."""
        names = [column.name for column in self._fitted()]
        raw = open_table(rows, "rows", columns=names).only(names)
        parts = []
        for column in self._columns:
            values = self._values(raw, column)
            parts.append(column.encode(values))
            if column.gaps:
                parts.append(np.array([[value is None] for value in values], np.float32))
        if any(sp.issparse(part) for part in parts):
            return sp.csr_array(sp.hstack([sp.csr_array(part) for part in parts]), dtype=np.float32)
        return np.concatenate(parts, axis=1)

    def numbers(self, rows: Any) -> Any:
        """Return features (rows, features) as models take them: dense, unless mostly words."""
        features = self.transform(rows)
        narrow = sp.issparse(features) and features.shape[1] < _WIDE
        return features.toarray() if narrow else features

    def to_plain(self) -> dict[str, Any]:
        """Return all it knows as plain values, for JSON."""
        return {
            "form": _FORM,
            "columns": [column.plain() for column in self._fitted()],
            "left_out": dict(self._left),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], **texts: Any) -> TableEncoder:
        """Return the encoder that :meth:`to_plain` described. Runs nothing, believes nothing.

        ``texts`` are settings of its network for texts; see :meth:`TextNetwork.from_plain`.
        """
        try:
            if plain["form"] != _FORM:
                raise ValueError(f"its format is {plain['form']!r:.20}; only {_FORM} is supported")
            encoder = cls()
            encoder._columns = [_column_of(facts, texts) for facts in plain["columns"]]
            names = [column.name for column in encoder._columns]
            if not names or len(set(names)) < len(names):
                raise ValueError("it must have at least one column, and all different")
            encoder._left = {str(name): str(why) for name, why in plain["left_out"].items()}
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"this is not a saved table encoder: {error}") from None
        return encoder

    def _fitted(self) -> list[Column]:
        if not hasattr(self, "_columns"):
            raise InputError("the table encoder must be fitted on public rows first")
        return self._columns

    @property
    def networks_(self) -> dict[str, TextNetwork]:
        """The public network of each column of texts that has one."""
        embedded = (column for column in self._fitted() if isinstance(column, _Embedded))
        return {column.name: column.network for column in embedded}

    @property
    def differs_in_kind(self) -> bool:
        """Whether features are of several kinds and scales, not all from networks for texts."""
        return len(self.networks_) < len(self._fitted())

    def with_texts(self, **settings: Any) -> TableEncoder:
        """Return this encoder with other settings of its networks: where to keep, whom to tell."""
        encoder = TableEncoder(self.texts)
        encoder._left = self._left
        encoder._columns = [
            replace(column, network=replace(column.network, **settings))
            if isinstance(column, _Embedded)
            else column
            for column in self._fitted()
        ]
        return encoder

    def _values(self, raw: RawTable, column: Column) -> list[Any]:
        """Return what each cell says, None for a gap."""
        values: list[Any] = []
        for row, cell in enumerate(raw.columns[column.name].tolist()):
            try:
                values.append(column.read(cell))
            except (TypeError, ValueError, OverflowError):
                rule = f"must be of the kind {column.kind!r} or empty, as in the public rows"
                sealed = f"the cell is {shown(cell)}"
                raise InputError(raw.at(row, column.name), rule, sealed=sealed) from None
        return values


# -- columns: how each kind becomes features, as public rows say -----------------------------------


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """How one column becomes features; ``gaps``: one more says where public rows had none."""

    name: str
    gaps: bool

    kind: ClassVar[str]

    @abstractmethod
    def read(self, cell: Any) -> Any:
        """Return what a cell says, None for a gap; ValueError if it is not of this kind."""

    @abstractmethod
    def encode(self, values: list[Any]) -> Any:
        """Return features (rows, heads); a value is None where there is a gap."""

    def plain(self) -> dict[str, Any]:
        """Return all about it as plain values."""
        return {"kind": self.kind, **asdict(self)}

    def check(self) -> None:
        """Refuse values that no public rows lead to: they may come from a file."""
        if not isinstance(self.name, str) or not isinstance(self.gaps, bool):
            raise ValueError("a column has a name, and gaps or none")


@dataclass(frozen=True, kw_only=True)
class _Number(Column):
    """A number, clipped to the public range and standardised; a gap is the public median."""

    low: float
    high: float
    mean: float
    scale: float
    middle: float

    kind: ClassVar[str] = "number"

    @classmethod
    def of(cls, name: str, values: list[float | None], **more: Any) -> _Number:
        array = np.array([value for value in values if value is not None])
        return cls(
            name=name,
            gaps=None in values,
            low=float(array.min()),
            high=float(array.max()),
            mean=float(array.mean()),
            scale=float(array.std()) or 1.0,
            middle=float(np.median(array)),
            **more,
        )

    def read(self, cell: Any) -> float | None:
        return number(cell)

    def encode(self, values: list[Any]) -> Features:
        array = np.array([self.middle if value is None else value for value in values], np.float64)
        return self._standard(array)[:, None]

    def _standard(self, array: Floats) -> Features:
        clipped = np.clip(array, self.low, self.high)
        return np.asarray((clipped - self.mean) / self.scale, np.float32)

    def check(self) -> None:
        super().check()
        parts = (self.low, self.high, self.mean, self.scale, self.middle)
        if not all(isinstance(part, float | int) and math.isfinite(part) for part in parts):
            raise ValueError("a range must be finite numbers")
        if self.scale <= 0 or self.low > self.high:
            raise ValueError("a range must have a scale above 0, and its ends in order")


@dataclass(frozen=True, kw_only=True)
class _Date(_Number):
    """A date: how long ago, as a number, and the time of the year."""

    form: str

    kind: ClassVar[str] = "date"

    def read(self, cell: Any) -> float | None:
        return day(cell, self.form)

    def encode(self, values: list[Any]) -> Features:
        days = np.array([self.middle if value is None else value for value in values], np.float64)
        turn = 2 * np.pi * (np.clip(days, self.low, self.high) % _YEAR) / _YEAR
        present = np.array([value is not None for value in values])
        season = np.stack([np.sin(turn) * present, np.cos(turn) * present], axis=1)
        return np.column_stack([self._standard(days), season.astype(np.float32)])

    def check(self) -> None:
        super().check()
        if self.form not in _DATES:
            raise ValueError("a date has an unknown form")


@dataclass(frozen=True, kw_only=True)
class _YesNo(Column):
    """Yes or no: 1, -1, and 0 for a gap."""

    kind: ClassVar[str] = "yes or no"

    def read(self, cell: Any) -> int | None:
        return _yes_no(cell)

    def encode(self, values: list[Any]) -> Features:
        signs = [0 if value is None else 2 * value - 1 for value in values]
        return np.array(signs, np.float32)[:, None]


@dataclass(frozen=True, kw_only=True)
class _Words(Column):
    """Words, each a category of its own; one that public rows do not have is "other"."""

    known: Sequence[str]

    kind: ClassVar[str] = "words"

    def read(self, cell: Any) -> str | None:
        return word(cell)

    def encode(self, values: list[Any]) -> Features:
        index = {text: column for column, text in enumerate(self.known)}
        features = np.zeros((len(values), len(self.known) + 1), np.float32)
        for row, text in enumerate(values):
            if text is not None:
                features[row, index.get(text, len(self.known))] = 1
        return features

    def check(self) -> None:
        super().check()
        _check_texts(self.known, _CATEGORIES)


@dataclass(frozen=True, kw_only=True)
class _Text(Column):
    """Free text: the words of the public rows by TF-IDF."""

    known: Sequence[str]
    weights: Sequence[float]

    kind: ClassVar[str] = "text"

    def read(self, cell: Any) -> list[str] | None:
        text = word(cell)
        return None if text is None else _WORD.findall(text)

    def encode(self, values: list[Any]) -> Any:
        index = {term: column for column, term in enumerate(self.known)}
        rows, columns, cells = [], [], []
        for row, terms in enumerate(values):
            counts = Counter(index[term] for term in terms or () if term in index)
            rows += [row] * len(counts)
            columns += list(counts)
            cells += [(1 + math.log(n)) * self.weights[term] for term, n in counts.items()]
        shape = (len(values), len(self.known))
        features = sp.csr_array((np.array(cells, np.float32), (rows, columns)), shape=shape)
        length = np.sqrt(features.multiply(features).sum(axis=1))
        return sp.csr_array(sp.diags_array(1 / np.where(length > 0, length, 1)) @ features)

    def check(self) -> None:
        super().check()
        _check_texts(self.known, _TERMS)
        if len(self.weights) != len(self.known) or not all(
            isinstance(weight, float | int) and math.isfinite(weight) for weight in self.weights
        ):
            raise ValueError("a text has one finite weight a word")


@dataclass(frozen=True, kw_only=True)
class _Embedded(Column):
    """Free text: the numbers that a public network makes of it; a gap is zeros."""

    network: TextNetwork
    width: int

    kind: ClassVar[str] = "text by a network"

    def read(self, cell: Any) -> str | None:
        return word(cell)

    def encode(self, values: list[Any]) -> Features:
        features = np.zeros((len(values), self.width), np.float32)
        there = [row for row, text in enumerate(values) if text is not None]
        read = self.network.numbers([values[row] for row in there])  # also of none: its progress
        if there:
            features[there] = read
        return features

    def plain(self) -> dict[str, Any]:
        facts = {name: getattr(self, name) for name in ("kind", "name", "gaps", "width")}
        return {**facts, "network": self.network.to_plain()}

    def check(self) -> None:
        super().check()
        if not isinstance(self.width, int) or not 0 < self.width <= _WIDE:
            raise ValueError("a network has some features")


_KINDS: Mapping[str, type[Column]] = {
    kind.kind: kind for kind in (_Number, _Date, _YesNo, _Words, _Text, _Embedded)
}


def _kind_of(name: str, cells: list[Any], texts: TextNetwork) -> Column | str:
    """Return how a column is encoded, or why it is left out; the first kind that all cells are."""
    words = _all(word, cells)
    if words is None:
        return "a cell holds several values in the public rows"
    if len(set(words)) == 1:
        return "empty in every public row" if None in words else "the same in every public row"
    numbers = _all(number, cells)
    if numbers is not None and set(numbers) == {None}:
        return "empty in every public row"
    spellings = {str(canonical(cell)).casefold() for cell in cells}
    if numbers is not None and not spellings <= {"true", "false", "none"}:
        return _Number.of(name, numbers)
    if (signs := _all(_yes_no, cells)) is not None:
        return _YesNo(name=name, gaps=None in signs)
    dates = {form: days for form in _DATES if (days := _all(partial(day, form=form), cells))}
    if dates:
        form, *others = dates
        if others and form == "%d/%m/%Y":
            warnings.warn(
                f"column {name!r:.60}: day and month are ambiguous; the day is assumed to come "
                "first. Write dates as 2024-01-31",
                PrivoteWarning,
                stacklevel=4,
            )
        return _Date.of(name, dates[form], form=form)
    return _of_words(name, None in words, [text for text in words if text is not None], texts)


def _all(read: Callable[[Any], Any], cells: list[Any]) -> list[Any] | None:
    """Return what every cell says; None if one is not of this kind."""
    try:
        return [read(cell) for cell in cells]
    except (TypeError, ValueError, OverflowError):
        return None


def _yes_no(cell: Any) -> int | None:
    value = _SAYS[cell]
    if value == ODD:
        raise ValueError("neither yes nor no")
    return None if value < 0 else value


def _of_words(name: str, gaps: bool, words: list[str], texts: TextNetwork) -> Column | str:
    counts = Counter(words)
    long = sum(len(text.split()) for text in words) >= _LONG * len(words)
    if long and len(counts) > len(words) / 4:
        if texts.suits(words):
            width = texts.numbers(words[:1]).shape[1]
            return _Embedded(name=name, gaps=gaps, network=texts, width=width)
        return _text_of(name, gaps, [_WORD.findall(text) for text in words])
    if len(words) >= _MANY and len(counts) == len(words):
        return "no word occurs twice in the public rows: the column may name records or persons"
    common = sorted(counts, key=lambda text: (-counts[text], text))[:_CATEGORIES]
    return _Words(name=name, gaps=gaps, known=sorted(common))


def _text_of(name: str, gaps: bool, texts: list[list[str]]) -> Column | str:
    seen = Counter(term for terms in texts for term in set(terms))
    useful = [term for term in seen if 2 <= seen[term] < len(texts)] or list(seen)
    if not useful:
        return "no words in the public rows"
    chosen = sorted(sorted(useful, key=lambda term: (-seen[term], term))[:_TERMS])
    weights = [math.log((1 + len(texts)) / (1 + seen[term])) + 1 for term in chosen]
    return _Text(name=name, gaps=gaps, known=chosen, weights=weights)


def _column_of(facts: Mapping[str, Any], texts: Mapping[str, Any]) -> Column:
    """Return the column that plain values describe; ValueError or its like if they do not."""
    kind = _KINDS[facts["kind"]]
    if kind is _Embedded:
        facts = {**facts, "network": TextNetwork.from_plain(facts["network"], **texts)}
    column = kind(**{part.name: facts[part.name] for part in fields(kind)})
    column.check()
    return column


def _check_texts(values: Any, most: int) -> None:
    if not isinstance(values, list | tuple) or not 0 < len(values) <= most:
        raise ValueError(f"a column has from 1 to {most} words")
    if not all(isinstance(value, str) for value in values) or len(set(values)) < len(values):
        raise ValueError("the words of a column must be different texts")
