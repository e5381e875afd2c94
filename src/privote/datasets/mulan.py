"""The Mulan collection: an .arff file of attributes, and an .xml file that names the labels.

scipy reads no sparse ARFF, and the files of this field are large, so the common case (numbers
without quotes) is parsed in blocks of lines; whatever is not common goes line by line.

A value is a number. A nominal value is the number it is written as, or, if any value of its list
is not a number, its place in the list. ``?`` is NaN. In a sparse row an attribute that is not
mentioned has the *first* value of its list, or 0: for ``{1,0}`` that is a 1.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from privote.errors import InputError, shown

from .records import MISSING, MultiLabelData
from .sources import MULAN, absent, lines_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_LINES = 4096  # in one block
_TOKEN = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_ATTRIBUTE = re.compile(
    rf"@attribute\s+({_TOKEN}|[^\s{{'\"][^\s{{]*)\s*(.*)", re.IGNORECASE | re.DOTALL
)
_VALUE = re.compile(rf"\s*({_TOKEN}|[^,'\"]*?)\s*(?:,|$)")
_ENTRY = re.compile(rf"\s*(\d+)\s+({_TOKEN}|[^\s,'\"]+)\s*(?:,|$)")
_NUMERIC = ("numeric", "real", "integer")
# Above this many cells (64 MiB of float32) a sparse file stays sparse under sparse="auto".
_CELLS = 1 << 24
_PARTS = ("-train", "-test")


def mulan(
    path: str | Path, xml: str | Path | None = None, *, sparse: bool | Literal["auto"] = "auto"
) -> MultiLabelData:
    """Read a data set of the Mulan collection.

    Parameters
    ----------
    path
        The .arff file (or .arff.gz), dense or sparse.
    xml
        The file that names the labels. By default it stands next to the .arff under the same name,
        without ``-train`` or ``-test``.
    sparse
        Whether ``X`` is a sparse ``csr_array``. ``"auto"``: if the file is sparse and the dense
        array would take more than 64 MiB.

    Returns
    -------
    MultiLabelData
        Labels in the order of the .xml; all other attributes are features, float32, with NaN where
        the file has ``?``. A nominal attribute is the number it is written as, or the place in its
        list of values. Mulan files name no records: an id is the file's name and a record's place
        in it.
    """
    file = Path(path)
    if sparse not in (True, False, "auto"):
        raise InputError("sparse", "must be True, False or 'auto'", sparse)
    table = read_arff(lines_of(file, MULAN), str(file))
    names = _label_names(_beside(file) if xml is None else Path(xml))
    places = {attribute.name: place for place, attribute in enumerate(table.attributes)}
    unknown = [name for name in names if name not in places]
    if unknown:
        raise InputError(f"{file} has no attribute {unknown[0]!r}, which its .xml names as a label")
    labels = np.array([places[name] for name in names], dtype=np.int64)
    features = np.setdiff1d(np.arange(len(table.attributes)), labels)
    stem = file.name.removesuffix(".gz").removesuffix(".arff")
    if table.dense is not None:
        X, values = table.dense[:, features].astype(np.float32), table.dense[:, labels]
        if sparse is True:
            X = _csr(X)
    else:
        values = np.asarray(_matrix(table, labels).toarray())
        X = _matrix(table, features).astype(np.float32)
        cells = X.shape[0] * X.shape[1]
        if sparse is False or (sparse == "auto" and cells <= _CELLS):
            X = np.asarray(X.toarray())
    return MultiLabelData(
        X=X,
        Y=_votes(values, names, file),
        label_names=names,
        feature_names=tuple(table.attributes[place].name for place in features),
        ids=np.array([f"{stem}:{row}" for row in range(len(values))], dtype=np.str_),
        name=stem,
    )


def _beside(file: Path) -> Path:
    """Return the .xml next to an .arff file."""
    stem = file.name.removesuffix(".gz").removesuffix(".arff")
    stems = [stem, *(stem.removesuffix(part) for part in _PARTS if stem.endswith(part))]
    for candidate in stems:
        xml = file.with_name(f"{candidate}.xml")
        if xml.is_file():
            return xml
    raise absent(f"the file {file.with_name(stems[-1] + '.xml')} that names the labels", MULAN)


def _label_names(xml: Path) -> tuple[str, ...]:
    if not xml.is_file():
        raise absent(f"the file {xml} that names the labels", MULAN)
    try:
        tree = ElementTree.parse(xml)
    except ElementTree.ParseError as error:
        raise InputError(f"{xml} is not XML: {error}") from None
    # Labels may stand within labels (a hierarchy); the order is that of the document.
    found = [node for node in tree.iter() if node.tag.rpartition("}")[2] == "label"]
    names = tuple(node.get("name", "") for node in found)
    if not names or "" in names or len(set(names)) != len(names):
        raise InputError(f"{xml} must name one or more different labels, got {names}")
    return names


def _votes(
    values: npt.NDArray[np.float64], names: tuple[str, ...], file: Path
) -> npt.NDArray[np.int8]:
    unknown = np.isnan(values)
    odd = np.argwhere(~unknown & (values != 0) & (values != 1))
    if len(odd):
        row, label = odd[0]
        raise InputError(
            f"{file}: a label must be 0 or 1; {names[label]!r} of record {row} is "
            f"{values[row, label]:g}"
        )
    return np.where(unknown, MISSING, values).astype(np.int8)


def _matrix(table: Table, chosen: npt.NDArray[np.int64]) -> Any:
    """Return some columns of a sparse table as a csr_array (records, chosen)."""
    from scipy.sparse import csc_array

    assert table.entries is not None
    count, rows, columns, values = table.entries
    place = np.full(len(table.attributes), -1)
    place[chosen] = np.arange(len(chosen))
    here = place[columns] >= 0
    rows, columns, values = rows[here], place[columns[here]], values[here]
    omitted = np.array([table.attributes[c].omitted for c in chosen])
    # What a row omits is not 0 for every attribute: such a column is written out in full.
    written = np.flatnonzero(omitted)
    if len(written):
        full = np.repeat(omitted[written][None], count, axis=0)
        mine = np.isin(columns, written)
        full[rows[mine], np.searchsorted(written, columns[mine])] = values[mine]
        rows = np.concatenate([rows[~mine], np.repeat(np.arange(count), len(written))])
        columns = np.concatenate([columns[~mine], np.tile(written, count)])
        values = np.concatenate([values[~mine], full.reshape(-1)])
    matrix = csc_array((values, (rows, columns)), shape=(count, len(chosen))).tocsr()
    matrix.eliminate_zeros()
    return matrix


def _csr(X: npt.NDArray[np.float32]) -> Any:
    from scipy.sparse import csr_array

    return csr_array(X)


# -- attribute-relation files ----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Attribute:
    """One column: its name and, if it is nominal, the number that stands for each value."""

    name: str
    values: dict[str, float] | None = None

    @property
    def omitted(self) -> float:
        """What a sparse row means by not mentioning it."""
        return next(iter(self.values.values())) if self.values else 0.0

    def number(self, text: str) -> float:
        """Return the number for a value as it is written; ValueError if it is none."""
        plain = _unquoted(text)
        if plain == "?" and text == "?":
            return float("nan")
        if self.values is None:
            return float(plain)
        if plain in self.values:
            return self.values[plain]
        number = float(plain)  # "1.0" for a value that was declared as "1"
        if _all_numbers(self.values) and number in self.values.values():
            return number
        raise ValueError(plain)


@dataclass(frozen=True, kw_only=True)
class Table:
    """What an .arff file says.

    Attributes
    ----------
    attributes
        One for each column.
    dense
        (records, attributes), or None if the rows are sparse.
    entries
        For sparse rows: how many records, and the row, column and value of every entry.
    """

    attributes: list[Attribute]
    dense: Floats | None = None
    entries: tuple[int, Ints, Ints, Floats] | None = None


def read_arff(lines: Iterable[str], where: str) -> Table:
    """Read an ARFF file, given as its lines; ``where`` is its name, for errors."""
    numbered = _Numbered(lines)
    attributes = _header(numbered, where)
    first = next(numbered.content(), None)
    if first is None:
        return Table(attributes=attributes, dense=np.empty((0, len(attributes))))
    block = _Block(attributes=attributes, where=where)
    body = numbered.content(first)
    if not first.startswith("{"):
        parts = [block.dense(*chunk) for chunk in numbered.chunks(body)]
        return Table(attributes=attributes, dense=np.concatenate(parts))
    counts, columns, values = zip(
        *(block.sparse(*chunk) for chunk in numbered.chunks(body)), strict=True
    )
    count = np.concatenate(counts)
    rows = np.repeat(np.arange(len(count)), count)
    column = np.concatenate(columns)
    cells = rows * len(attributes) + column
    if len(np.unique(cells)) != len(cells):
        seen, times = np.unique(cells, return_counts=True)
        row, place = divmod(int(seen[times > 1][0]), len(attributes))
        raise InputError(f"{where}: record {row} mentions attribute {place} twice")
    return Table(attributes=attributes, entries=(len(count), rows, column, np.concatenate(values)))


class _Numbered:
    """The lines of a file without comments and blanks, and the number of the last one."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self.number = 0

    def content(self, first: str | None = None) -> Iterator[str]:
        if first is not None:
            yield first
        for line in self._lines:
            self.number += 1
            text = line.strip()
            if text and not text.startswith("%"):
                yield text

    def chunks(self, body: Iterator[str]) -> Iterator[tuple[list[str], list[int]]]:
        """Yield blocks of lines and their numbers."""
        while block := [(text, self.number) for text in islice(body, _LINES)]:
            yield [text for text, _ in block], [number for _, number in block]


def _header(numbered: _Numbered, where: str) -> list[Attribute]:
    attributes: list[Attribute] = []
    for text in numbered.content():
        keyword = text.split(maxsplit=1)[0].lower()
        if keyword == "@data":
            if not attributes:
                raise InputError(f"{where}: @data comes before any @attribute")
            return attributes
        if keyword == "@attribute":
            attributes.append(_attribute(text, f"{where}, line {numbered.number}"))
        elif keyword != "@relation":
            raise InputError(f"{where}, line {numbered.number}: not ARFF: {text[:60]!r}")
    raise InputError(f"{where}: no @data line; is this an ARFF file?")


def _attribute(text: str, place: str) -> Attribute:
    match = _ATTRIBUTE.fullmatch(text)
    if match is None:
        raise InputError(f"{place}: an attribute needs a name and a type, got {text[:60]!r}")
    name, kind = _unquoted(match[1]), match[2].strip()
    if kind.split(maxsplit=1)[:1] and kind.split(maxsplit=1)[0].lower() in _NUMERIC:
        return Attribute(name=name)
    if not (kind.startswith("{") and kind.endswith("}")):
        raise InputError(
            f"{place}: attribute {name!r} must be numeric or a list of values, got {kind!r}"
        )
    tokens = _tokens(_VALUE, kind[1:-1])
    if tokens is None or not all(value for (value,) in tokens):
        raise InputError(f"{place}: the list of values of attribute {name!r} is broken: {kind!r}")
    declared = [_unquoted(value) for (value,) in tokens]
    try:
        values = {value: float(value) for value in declared}
    except ValueError:
        values = {value: float(code) for code, value in enumerate(declared)}
    return Attribute(name=name, values=values)


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text


def _all_numbers(values: dict[str, float]) -> bool:
    try:
        return all(float(text) == number for text, number in values.items())
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True)
class _Block:
    """Parses blocks of rows: first as plain numbers, and line by line if that does not fit."""

    attributes: list[Attribute]
    where: str
    plain: bool = field(init=False)
    domains: list[tuple[Floats, Ints]] = field(init=False)

    def __post_init__(self) -> None:
        nominal = [(i, a.values) for i, a in enumerate(self.attributes) if a.values is not None]
        by_values: dict[tuple[float, ...], list[int]] = defaultdict(list)
        for place, values in nominal:
            by_values[tuple(values.values())].append(place)
        domains = [(np.array(v), np.array(p, dtype=np.int64)) for v, p in by_values.items()]
        object.__setattr__(self, "plain", all(_all_numbers(values) for _, values in nominal))
        object.__setattr__(self, "domains", domains)

    def dense(self, lines: list[str], numbers: list[int]) -> Floats:
        """Return rows (records, attributes)."""
        width = len(self.attributes)
        text = ",".join(lines)
        if self.plain and all(line.count(",") == width - 1 for line in lines):
            flat = _numbers(text.split(","))
            if flat is not None:
                rows = flat.reshape(-1, width)
                if all(_within(rows[:, places], allowed) for allowed, places in self.domains):
                    return rows
        return np.array([self._dense_row(*row) for row in zip(lines, numbers, strict=True)])

    def sparse(self, lines: list[str], numbers: list[int]) -> tuple[Ints, Ints, Floats]:
        """Return the number of entries of each row, and all their columns and values."""
        if self.plain and all(line[0] == "{" and line[-1] == "}" for line in lines):
            inner = [line[1:-1].strip() for line in lines]
            count = np.array([row.count(",") + 1 if row else 0 for row in inner], dtype=np.int64)
            pairs = _numbers(" ".join(inner).replace(",", " ").split())
            if pairs is not None and len(pairs) == 2 * count.sum():
                columns, values = pairs[::2].astype(np.int64), pairs[1::2]
                if self._fits(columns, pairs[::2], values):
                    return count, columns, values
        rows = [self._sparse_row(*row) for row in zip(lines, numbers, strict=True)]
        entries = list(chain.from_iterable(rows))
        return (
            np.array([len(row) for row in rows], dtype=np.int64),
            np.array([column for column, _ in entries], dtype=np.int64),
            np.array([value for _, value in entries], dtype=np.float64),
        )

    def _fits(self, columns: Ints, written: Floats, values: Floats) -> bool:
        if not np.array_equal(columns, written) or not _within_range(columns, len(self.attributes)):
            return False
        domain = np.full(len(self.attributes), -1)
        for number, (_, places) in enumerate(self.domains):
            domain[places] = number
        of_entry = domain[columns]
        return all(
            _within(values[of_entry == number], allowed)
            for number, (allowed, _) in enumerate(self.domains)
        )

    def _dense_row(self, line: str, number: int) -> list[float]:
        texts = _tokens(_VALUE, line)
        if texts is None:
            raise self._wrong(number, "a quote is not closed or stands within a value")
        if len(texts) != len(self.attributes):
            raise self._wrong(number, f"{len(texts)} values for {len(self.attributes)} attributes")
        return [self._number(place, text, number) for place, (text,) in enumerate(texts)]

    def _sparse_row(self, line: str, number: int) -> list[tuple[int, float]]:
        if not (line.startswith("{") and line.endswith("}")):
            raise self._wrong(number, "a sparse row must stand in braces")
        inner = line[1:-1].strip()
        entries = _tokens(_ENTRY, inner) if inner else []
        if entries is None:
            raise self._wrong(number, "an entry must be an index and a value")
        pairs = [(int(column), text) for column, text in entries]
        for column, _ in pairs:
            if column >= len(self.attributes):
                raise self._wrong(number, f"there is no attribute {column}")
        return [(column, self._number(column, text, number)) for column, text in pairs]

    def _number(self, place: int, text: str, number: int) -> float:
        try:
            return self.attributes[place].number(text)
        except ValueError:
            name = self.attributes[place].name
            raise self._wrong(
                number,
                f"what stands there is no value of attribute {name!r}",
                sealed=f"it is {shown(text)}",
            ) from None

    def _wrong(self, number: int, what: str, sealed: str | None = None) -> InputError:
        return InputError(f"{self.where}, line {number}: {what}", sealed=sealed)


def _tokens(pattern: re.Pattern[str], text: str) -> list[tuple[str, ...]] | None:
    """Return what stands between commas, one match after the other; None if something does not."""
    found: list[tuple[str, ...]] = []
    start = 0
    while match := pattern.match(text, start):
        found.append(match.groups())
        start = match.end()
        if start == len(text) and not match[0].endswith(","):
            return found
    return None


def _numbers(texts: list[str]) -> Floats | None:
    """Return texts as numbers, ``?`` as NaN; None if one of them is something else."""
    try:
        return np.fromiter(map(float, texts), dtype=np.float64, count=len(texts))
    except ValueError:
        pass
    try:
        return np.array([float("nan" if t.strip() == "?" else t) for t in texts])
    except ValueError:
        return None


def _within(values: npt.NDArray[Any], allowed: Floats) -> bool:
    return bool((np.isin(values, allowed) | np.isnan(values)).all())


def _within_range(columns: Ints, width: int) -> bool:
    return bool(((columns >= 0) & (columns < width)).all())
