"""Rows of a CSV file from anywhere in it: where each run of them begins is looked up once."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...arrayfiles import why
from ...datasets.records import RawTable
from ...errors import InputError
from ...sheets import is_gap, name_in
from ...storage import name_of, open_binary, reached

_FIRST = 1 << 20  # bytes of a header
Mark = tuple[int, int]  # where a row begins: the byte and the line


@dataclass(frozen=True)
class Layout:
    """How a CSV file is laid out: ``numeric`` are the columns of which every cell is a number."""

    place: str
    separator: str
    header: tuple[str, ...] = ()
    numeric: frozenset[str] = frozenset()
    count: int = 0
    bytes: int = 0

    @property
    def name(self) -> str:
        """What messages call the file."""
        return name_of(self.place)

    def is_row(self, row: list[str], line: int) -> bool:
        """Return whether cells are a row of this table: a blank line is none."""
        if len(row) == len(self.header) and (len(row) > 1 or row[0].strip()):
            return True
        if any(cell.strip() for cell in row):
            width = len(self.header)
            raise InputError(
                f"{self.name}, line {line}: {len(row)} values under a header of {width}"
            )
        return False


def survey(file: str) -> Layout:
    """Read a CSV file once: separated by commas, semicolons or tabs, whichever its header has."""
    with reached(file, "rows"), open_binary(file) as stream:
        first = stream.readline(_FIRST).decode("utf-8-sig", "replace")
    tabs = Path(file).suffix == ".tsv"
    layout = Layout(file, "\t" if tabs else max(",;\t", key=first.count))
    records = _records(layout)
    _, cells = next(records)
    header = tuple(name_in(cell.strip()) for cell in cells)
    if not header or len(set(header)) < len(header) or not all(header):
        raise InputError(
            f"{layout.name}, line 1: must be a header with a name of its own for every column"
        )
    layout = replace(layout, header=header)
    count, end, maybe = 0, (0, 1), dict(enumerate(header))
    for at, row in records:
        end = at
        if layout.is_row(row, at[1]):
            count += 1
            for place in [place for place in maybe if not _is_number(row[place])]:
                del maybe[place]
    return replace(layout, numeric=frozenset(maybe.values()), count=count, bytes=end[0])


def marks(layout: Layout, chunk: int) -> Iterator[Mark]:
    """Yield where every ``chunk`` rows begin, and where the last one ends."""
    records = _records(layout)
    next(records)
    number, at = 0, (0, 0)
    for at, row in records:
        if layout.is_row(row, at[1]):
            if number % chunk == 0:
                yield at
            number += 1
    yield at


def read(layout: Layout, first: Mark, behind: int, count: int) -> RawTable:
    """Return the ``count`` rows that lie between two bytes, all cells as texts."""
    with reached(layout.place, "rows"), open_binary(layout.place) as stream:
        stream.seek(first[0])
        data = stream.read(behind - first[0])
    rows, lines = [], []
    try:
        text = io.StringIO(data.decode("utf-8"), newline="")
        reader = csv.reader(text, delimiter=layout.separator, strict=True)
        line = first[1]
        for row in reader:
            if layout.is_row(row, line):
                rows.append(row)
                lines.append(line)
            line = first[1] + reader.line_num
    except (UnicodeDecodeError, csv.Error, InputError):
        rows = []  # these bytes were read before, and were in order
    if len(rows) != count:
        raise InputError(f"{layout.name} changed while it was read")
    columns: dict[str, Any] = {}
    for at, name in enumerate(layout.header):
        columns[name] = np.empty(count, object)
        columns[name][:] = [row[at] for row in rows]
    return RawTable(layout.name, columns, np.array(lines, np.int64), "line")


class _Lines:
    """Lines of a file as text, and how many bytes and lines were given so far."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.bytes, self.count = stream, 0, 0

    def __iter__(self) -> Iterator[str]:
        for raw in self._stream:
            encoding = "utf-8" if self.bytes else "utf-8-sig"
            self.bytes += len(raw)
            self.count += 1
            yield raw.decode(encoding)


def _records(layout: Layout) -> Iterator[tuple[Mark, list[str]]]:
    """Yield where each record begins, the header's first, and its cells; last, where all ends."""
    with reached(layout.place, "rows"), open_binary(layout.place) as stream:
        lines = _Lines(stream)
        at = (0, 1)
        try:
            for row in csv.reader(iter(lines), delimiter=layout.separator, strict=True):
                yield at, row
                at = (lines.bytes, lines.count + 1)
        except UnicodeDecodeError:
            where = f"{layout.name}, line {lines.count}"
            raise InputError(f"{where}: must be text in UTF-8") from None
        except csv.Error as error:
            where = f"{layout.name}, line {lines.count}"
            raise InputError(f"{where}: cannot be read: {why(error)}") from None
    yield at, []


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return is_gap(cell)
    return True
