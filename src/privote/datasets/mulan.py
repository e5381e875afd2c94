"""The Mulan collection: an .arff file of attributes, and an .xml file that names the labels.

scipy reads no sparse ARFF. A value is a number. A nominal value is the number it is written as, or,
if any value of its list is not a number, its place in the list. ``?`` is NaN. In a sparse row an
attribute that is not mentioned has the *first* value of its list, or 0: for ``{1,0}`` that is a 1.
"""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

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
    places = {name: column for column, name in enumerate(attributes)}
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
        feature_names=tuple(attributes[column] for column in features),
        ids=np.array([f"{stem}:{row}" for row in range(table.shape[0])], dtype=np.str_),
        name=stem,
    )


def _stem(file: Path) -> str:
    return file.name.removesuffix(".gz").removesuffix(".arff")


def _beside(file: Path) -> Path:
    """Return the .xml next to an .arff file."""
    whole = _stem(file).removesuffix("-train").removesuffix("-test")
    sibling = file.with_name(f"{_stem(file)}.xml")
    return sibling if sibling.is_file() else file.with_name(f"{whole}.xml")


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
        rule = f"a label must be 0 or 1, and {names[label]!r} of record {row} is neither"
        raise InputError(f"{file}: {rule}", sealed=f"it is {values[row, label]:g}")
    return np.where(unknown, MISSING, values).astype(np.int8)


# -- attribute-relation files ----------------------------------------------------------------------

Codes = dict[str, float] | None  # the number that stands for each value of a list


def read_arff(lines: Iterable[str], where: str) -> tuple[list[str], Any]:
    """Return the names of the attributes of an ARFF file, given as its lines, and its values.

    Values are (records, attributes): an array, or a ``csr_array`` of a large sparse file; ``where``
    is the file's name, for errors.
    """
    attributes, begun, sparse = dict[str, Codes](), False, False
    sizes, columns, values = array("q"), array("q"), array("d")
    for line, full in enumerate(lines, 1):
        text = full.strip()
        if not text or text.startswith("%"):
            continue
        try:
            if begun:
                sparse = text.startswith("{") if not sizes else sparse
                row = _row(text, [*attributes.values()], sparse)
                sizes.append(len(row))
                columns.extend(row)
                values.extend(row.values())
            else:
                begun = _declared(text, attributes)
        except (ValueError, IndexError, csv.Error):
            sealed = f"it is {shown(text)}"  # a record, or what stands where one does
            raise InputError(f"{where}, line {line}: must be ARFF", sealed=sealed) from None
    if not begun:
        raise InputError(f"{where}: no @data line; is this an ARFF file?")
    omitted = np.array(
        [next(iter(codes.values())) if codes else 0.0 for codes in attributes.values()]
    )
    rows, shape = np.repeat(np.arange(len(sizes)), sizes), (len(sizes), len(attributes))
    if sparse and math.prod(shape) > _CELLS and not omitted.any():
        return [*attributes], csr_array((np.array(values), (rows, np.array(columns))), shape=shape)
    table = np.tile(omitted, (len(sizes), 1))
    table[rows, np.array(columns, np.int64)] = values
    return [*attributes], table


def _declared(text: str, attributes: dict[str, Codes]) -> bool:
    """Take in a line of the header; return whether data follow. ValueError if it is none."""
    keyword = text.split(maxsplit=1)[0].lower()
    if keyword == "@attribute":
        match = _ATTRIBUTE.fullmatch(text)
        if match is None:
            raise ValueError
        name, kind = re.sub(r"\\(.)", r"\1", match[1].strip("'\"")), match[2].strip()
        attributes[name] = None if kind.partition(" ")[0].lower() in _NUMERIC else _codes(kind)
    elif keyword not in ("@relation", "@data") or (keyword == "@data" and not attributes):
        raise ValueError
    return keyword == "@data"


def _codes(kind: str) -> Codes:
    """Return the number for each value of a list: itself, or its place if any is no number."""
    words = _cells(kind[1:-1])
    if kind[0] + kind[-1] != "{}" or not all(words):
        raise ValueError
    try:
        return {word: float(word) for word in words}
    except ValueError:
        return {word: float(index) for index, word in enumerate(words)}


def _row(text: str, codes: list[Codes], sparse: bool) -> dict[int, float]:
    """Return the values of a row by their columns; ValueError if one is none."""
    if not sparse:
        cells = _cells(text)
        return {
            column: _value(cell, of_cell)
            for column, (cell, of_cell) in enumerate(zip(cells, codes, strict=True))
        }
    if text[0] + text[-1] != "{}":
        raise ValueError
    row: dict[int, float] = {}
    for entry in _cells(text[1:-1]) if text[1:-1].strip() else ():
        index, value = entry.split(maxsplit=1)
        if not index.isdecimal() or int(index) in row:
            raise ValueError
        row[int(index)] = _value(value, codes[int(index)])
    return row


def _cells(text: str) -> list[str]:
    """Return the values of a list, without the quotes around them."""
    quote = "'" if "'" in text else '"'
    (cells,) = csv.reader([text], quotechar=quote, escapechar="\\", skipinitialspace=True)
    plain = [cell.strip().strip("'\"") for cell in cells]
    if any(mark in cell for cell in plain for mark in "'\""):
        raise ValueError
    return plain


def _value(text: str, codes: Codes) -> float:
    """Return the number for a value as it is written: "1.0" stands for "1", too."""
    if text == "?":
        return math.nan
    if codes is None or text in codes:
        return float(text) if codes is None else codes[text]
    (code,) = {code for word, code in codes.items() if float(word) == float(text)}
    return code
