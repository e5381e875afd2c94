"""The Mulan collection: an .arff file of attributes, and an .xml file that names the labels.

scipy reads no sparse ARFF. A value is a number. A nominal value is the number it is written as, or,
if any value of its list is not a number, its place in the list. ``?`` is NaN. In a sparse row an
attribute that is not mentioned has the *first* value of its list, or 0: for ``{1,0}`` that is a 1.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from privote.errors import InputError, shown

from .records import MISSING, MultiLabelData
from .sources import MULAN, absent, lines_of

_ATTRIBUTE = re.compile(
    r"""@attribute\s+('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s{'"][^\s{]*)\s*(.*)""", re.IGNORECASE
)
_NUMERIC = ("numeric", "real", "integer")
# Above this many cells (64 MiB of float32) a sparse file stays sparse.
_CELLS = 1 << 24


def mulan(path: str | Path, xml: str | Path | None = None) -> MultiLabelData:
    """Read a data set of the Mulan collection.

    Parameters
    ----------
    path
        The .arff file (or .arff.gz), dense or sparse. Quotes around names and values are taken off;
        a comma inside a quoted value is refused.
    xml
        The file that names the labels. By default it stands next to the .arff under the same name,
        without ``-train`` or ``-test``.

    Returns
    -------
    MultiLabelData
        Labels in the order of the .xml; all other attributes are features, float32, with NaN where
        the file has ``?``. ``X`` is a sparse ``csr_array`` if the file is sparse and the dense
        array would take more than 64 MiB. Mulan files name no records: an id is the file's name and
        a record's place in it.
    """
    file = Path(path)
    attributes, table = read_arff(lines_of(file, MULAN), str(file))
    names = _label_names(_beside(file) if xml is None else Path(xml))
    places = {attribute.name: place for place, attribute in enumerate(attributes)}
    unknown = [name for name in names if name not in places]
    if unknown:
        raise InputError(f"{file} has no attribute {unknown[0]!r}, which its .xml names as a label")
    labels = np.array([places[name] for name in names], dtype=np.int64)
    features = np.setdiff1d(np.arange(len(attributes)), labels)
    Y, X = table[:, labels], table[:, features].astype(np.float32)
    stem = _stem(file)
    return MultiLabelData(
        X=X,
        Y=_votes(Y if isinstance(Y, np.ndarray) else Y.toarray(), names, file),
        label_names=names,
        feature_names=tuple(attributes[place].name for place in features),
        ids=np.array([f"{stem}:{row}" for row in range(table.shape[0])], dtype=np.str_),
        name=stem,
    )


def _stem(file: Path) -> str:
    return file.name.removesuffix(".gz").removesuffix(".arff")


def _beside(file: Path) -> Path:
    """Return the .xml next to an .arff file."""
    whole = _stem(file).removesuffix("-train").removesuffix("-test")
    own = file.with_name(f"{_stem(file)}.xml")
    return own if own.is_file() else file.with_name(f"{whole}.xml")


def _label_names(xml: Path) -> tuple[str, ...]:
    if not xml.is_file():
        raise absent(f"the file {xml} that names the labels", MULAN)
    try:
        tree = ElementTree.parse(xml)
    except ElementTree.ParseError as error:
        raise InputError(f"{xml} is not XML: {error}") from None
    # Labels may stand within labels (a hierarchy); the order is that of the document.
    nodes = [node for node in tree.iter() if node.tag.rpartition("}")[2] == "label"]
    names = tuple(node.get("name", "") for node in nodes)
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
            f"{file}: a label must be 0 or 1, and {names[label]!r} of record {row} is neither",
            sealed=f"it is {values[row, label]:g}",
        )
    return np.where(unknown, MISSING, values).astype(np.int8)


# -- attribute-relation files ----------------------------------------------------------------------


@dataclass(frozen=True)
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
        if self.values is not None and text in self.values:
            return self.values[text]
        plain = _unquoted(text)
        if plain == "?":
            return float("nan")
        if self.values is None:
            return float(plain)
        if plain in self.values:
            return self.values[plain]
        # "1.0" for a value that was declared as "1"
        same = [code for word, code in self.values.items() if float(word) == float(plain)]
        if not same:
            raise ValueError
        return same[0]


def read_arff(lines: Iterable[str], where: str) -> tuple[list[Attribute], Any]:
    """Return the attributes of an ARFF file, given as its lines, and its values.

    Values are (records, attributes): an array, or a ``csr_array`` of a large sparse file; ``where``
    is the file's name, for errors.
    """
    numbered = (
        (number, text)
        for number, line in enumerate(lines, 1)
        if (text := line.strip()) and not text.startswith("%")
    )
    attributes = _header(numbered, where)
    sizes, columns, values = array("q"), array("q"), array("d")
    sparse = False
    for number, text in numbered:
        sparse = text.startswith("{") if not sizes else sparse
        try:
            row = _row(text, attributes, sparse)
        except ValueError as error:
            raise InputError(
                f"{where}, line {number}: {error.args[0]}", sealed=f"it is {shown(text)}"
            ) from None
        sizes.append(len(row))
        values.extend(row.values())
        if sparse:
            columns.extend(row)
    if not sparse:
        return attributes, np.array(values).reshape(len(sizes), len(attributes))
    rows = np.repeat(np.arange(len(sizes)), sizes)
    return attributes, _matrix(attributes, len(sizes), rows, np.array(columns), np.array(values))


def _matrix(attributes: list[Attribute], records: int, rows: Any, columns: Any, values: Any) -> Any:
    """Return the entries of a sparse file as a matrix (records, attributes)."""
    from scipy.sparse import csr_array

    omitted = np.array([attribute.omitted for attribute in attributes])
    if records * len(attributes) > _CELLS and not omitted.any():
        return csr_array((values, (rows, columns)), shape=(records, len(attributes)))
    table = np.tile(omitted, (records, 1))
    table[rows, columns] = values
    return table


def _header(numbered: Iterator[tuple[int, str]], where: str) -> list[Attribute]:
    attributes: list[Attribute] = []
    for number, text in numbered:
        keyword = text.split(maxsplit=1)[0].lower()
        if keyword == "@data":
            if not attributes:
                raise InputError(f"{where}: @data comes before any @attribute")
            return attributes
        if keyword == "@attribute":
            try:
                attributes.append(_attribute(text))
            except ValueError:
                rule = "an attribute must be a name, and numeric or a list of values"
                raise InputError(f"{where}, line {number}: {rule}; got {text[:60]!r}") from None
        elif keyword != "@relation":
            sealed = f"it is {shown(text)}"  # where @data is missing, a record
            raise InputError(f"{where}, line {number}: not ARFF", sealed=sealed)
    raise InputError(f"{where}: no @data line; is this an ARFF file?")


def _attribute(text: str) -> Attribute:
    match = _ATTRIBUTE.fullmatch(text)
    if match is None:
        raise ValueError
    name, kind = re.sub(r"\\(.)", r"\1", match[1].strip("'\"")), match[2].strip()
    if kind.partition(" ")[0].lower() in _NUMERIC:
        return Attribute(name)
    if not (kind.startswith("{") and kind.endswith("}")):
        raise ValueError
    declared = [_unquoted(value) for value in kind[1:-1].split(",")]
    if not all(declared):
        raise ValueError
    try:
        return Attribute(name, {value: float(value) for value in declared})
    except ValueError:
        return Attribute(name, {value: float(code) for code, value in enumerate(declared)})


def _row(text: str, attributes: list[Attribute], sparse: bool) -> dict[int, float]:
    """Return the values of a row by their columns; ValueError says what is wrong."""
    if not sparse:
        texts = text.split(",")
        if len(texts) != len(attributes):
            raise ValueError(f"{len(texts)} values for {len(attributes)} attributes")
        entries: Iterable[tuple[int, str]] = enumerate(texts)
    else:
        entries = _entries(text, len(attributes))
    row: dict[int, float] = {}
    for place, value in entries:
        if place in row:
            raise ValueError(f"attribute {place} is mentioned twice")
        try:
            row[place] = attributes[place].number(value)
        except ValueError:
            name = attributes[place].name
            raise ValueError(f"what stands there is no value of attribute {name!r}") from None
    return row


def _entries(text: str, attributes: int) -> Iterator[tuple[int, str]]:
    """Yield the columns and values that a sparse row mentions."""
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError("a sparse row must stand in braces")
    for entry in text[1:-1].split(",") if text[1:-1].strip() else ():
        index, *value = entry.split(maxsplit=1)
        if not (value and index.isdecimal() and int(index) < attributes):
            raise ValueError("an entry must be the index of an attribute, and a value")
        yield int(index), value[0]


def _unquoted(text: str) -> str:
    """Return a value without blanks and quotes around it; ValueError if a quote stands within."""
    plain = text.strip()
    if len(plain) >= 2 and plain[0] == plain[-1] and plain[0] in "'\"":
        plain = plain[1:-1]
    if "'" in plain or '"' in plain:
        raise ValueError
    return plain
