"""Tables as people have them into numbers: words, dates, texts and gaps, by public rows alone.

Everything an encoder knows it learnt from public rows: which kind a column is, the range and scale
of its numbers, its categories, the words of its texts. A private row is then encoded by itself,
without a look at any other private row: one record reaches one voter only, and nothing of the
encoding is private. It is plain values, and saves as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..datasets.records import RawTable
from ..datasets.tables import columns_of
from ..errors import InputError, shown
from ..votes.tables import is_gap
from .columns import SHOULD, Column, cells_of, column_of, kind_of

_FORM = 1  # of the plain values
_WIDE = 2000  # features; with more of them a table is mostly words


class TableEncoder:
    """Turns rows of a table into numbers, as it learnt from public rows.

    Rows are a CSV or Parquet file, a data frame, a mapping of columns, a list of records, or what
    :func:`privote.datasets.tables.raw_table` read.

    Parameters
    ----------
    odd
        What a cell leads to that is not of its column's kind, a word among numbers: ``"error"``, or
        ``"missing"``: it counts as a gap.

    Attributes
    ----------
    columns_
        Facts about every column of the public rows, in words: ``column``, ``kind``, ``features``
        and ``what``. All of it is public.
    feature_names_
        What the features are called.
    """

    def __init__(self, *, odd: str = "error") -> None:
        if odd not in ("error", "missing"):
            raise InputError("odd", "must be error or missing", odd)
        self.odd = odd

    def fit(self, public: Any) -> TableEncoder:
        """Decide by public rows what each column is and how it becomes numbers."""
        rows = columns_of(public, "public rows")
        if len(rows) < 2:
            raise InputError(f"{rows.name} must have two public rows or more, got {len(rows)}")
        made: list[Column] = []
        left: dict[str, str] = {}
        for name, column in rows.columns.items():
            found = kind_of(name, cells_of(column))
            if isinstance(found, str):
                left[name] = found
            else:
                made.append(found)
        if not made:
            raise InputError(f"{rows.name} must have a column to learn from; {_listed(left)}")
        self._columns, self._left = made, left
        self._describe()
        return self

    def transform(self, rows: Any) -> Any:
        """Return features (rows, features), float32; sparse if a column is text."""
        raw = columns_of(rows, "rows")
        raw.only([column.name for column in self._fitted()])
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
        found = self.transform(rows)
        narrow = sp.issparse(found) and found.shape[1] <= _WIDE
        return found.toarray() if narrow else found

    def to_plain(self) -> dict[str, Any]:
        """Return all it knows as plain values, for JSON."""
        return {
            "form": _FORM,
            "odd": self.odd,
            "columns": [{"kind": column.kind, **asdict(column)} for column in self._fitted()],
            "left_out": dict(self._left),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> TableEncoder:
        """Return the encoder that :meth:`to_plain` described. Runs nothing, believes nothing."""
        try:
            if plain["form"] != _FORM:
                raise ValueError(f"its form is {plain['form']!r:.20}, and {_FORM} is known")
            made = cls(odd=plain["odd"])
            made._columns = [column_of(facts) for facts in plain["columns"]]
            names = [column.name for column in made._columns]
            if not names or len(set(names)) < len(names):
                raise ValueError("its columns must be different, and one at least")
            made._left = {str(name): str(why) for name, why in plain["left_out"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"this is no saved table encoder: {error}") from None
        made._describe()
        return made

    def _fitted(self) -> list[Column]:
        if not hasattr(self, "_columns"):
            raise InputError("the table encoder must be fitted on public rows first")
        return self._columns

    def _describe(self) -> None:
        self.columns_ = [
            {
                "column": column.name,
                "kind": column.kind,
                "features": len(column.heads()) + column.gaps,
                "what": column.words() + ("; one more feature marks a gap" if column.gaps else ""),
            }
            for column in self._columns
        ] + [
            {"column": name, "kind": "left out", "features": 0, "what": why}
            for name, why in self._left.items()
        ]
        self.feature_names_ = [
            head
            for column in self._columns
            for head in (*column.heads(), *([f"{column.name}: empty"] if column.gaps else []))
        ]

    def _values(self, raw: RawTable, column: Column) -> list[Any]:
        """Return what each cell says, None for a gap."""
        values: list[Any] = []
        for row, cell in enumerate(cells_of(raw.columns[column.name])):
            if is_gap(cell):
                values.append(None)
                continue
            try:
                values.append(column.read(cell))
            except (TypeError, ValueError, OverflowError):
                if self.odd == "error":
                    raise InputError(
                        raw.at(row, column.name),
                        f"must be {SHOULD[column.kind]} or empty, as in the public rows",
                        sealed=f"the cell is {shown(cell)}",
                    ) from None
                values.append(None)
        return values


def _listed(left: Mapping[str, str]) -> str:
    return "; ".join(f"{name!r:.60} is left out: {why}" for name, why in [*left.items()][:4])
