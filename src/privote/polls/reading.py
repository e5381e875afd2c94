"""Reading a poll, in whatever form its ballots come."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import InputError, whole
from . import preflib
from .ballots import BallotRule, PollBallots, from_profile
from .pabulib import read_pabulib
from .tables import TableFormat, read_table

_TABLES = (".csv", ".tsv", ".txt", ".tab")
_BOOKS = (".xlsx", ".xls", ".ods", ".numbers")


def read(
    source: Any,
    *,
    options: Sequence[str] | None = None,
    most: int | None = None,
    each: int | None = None,
    top: int | None = None,
    invalid: str = "error",
    form: str | None = None,
    voter: str | None = None,
    column: str | None = None,
    voters: int | None = None,
    separator: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
) -> PollBallots:
    """Read the ballots of a poll.

    Parameters
    ----------
    source
        A path: ``.csv``, ``.tsv`` or ``.txt`` (a spreadsheet's export), PrefLib's ``.cat``,
        ``.soc``, ``.soi``, ``.toc`` and ``.toi``, Pabulib's ``.pb``; or an abcvoting profile, or
        anything like it.
    options
        Names of the options: which columns they are, or, for lists and long tables, what may be
        named. Other files name them themselves.
    most, each
        The poll's rule: how many approvals a ballot may have; with points how many in all, and how
        many for one option. Without ``most`` there is no limit, unless a Pabulib file says one:
        it is never taken from the ballots. ``each=1`` makes any points an approval.
    top
        Orders and categories: how many first places, or categories, are approved; 1 unless told.
    invalid
        What becomes of a ballot that breaks the rule: ``"error"``, or ``"empty"``.
    form, voter, column, voters, separator, delimiter, encoding
        How a table is laid out, where its header does not say: see
        :class:`privote.polls.tables.TableFormat`.
    """
    if each is not None:
        whole("each", each)
    rule = BallotRule(most=most, each=1 if each is None else each, invalid=invalid)
    table = TableFormat(
        form=form,
        options=options,
        voter=voter,
        column=column,
        voters=voters,
        separator=separator,
        delimiter=delimiter,
        encoding=encoding,
    )
    if not isinstance(source, str | os.PathLike):
        profile = hasattr(source, "num_cand")
        given = {**vars(table), "each": each, "top": top, "most": None if profile else most}
        for name, value in given.items():  # a rule that is not kept must not look as if it were
            if value is not None:
                raise InputError(name, "goes with a file, not with ballots that were read", value)
        if isinstance(source, PollBallots):
            return source
        if profile:
            return from_profile(source, most=most)
        raise InputError("source", "must be a path or an abcvoting profile", source)
    path = Path(source)
    if not path.is_file():
        raise InputError(f"there is no file {str(path)!r}")
    ending = path.suffix.casefold()
    if ending in preflib.ENDINGS:
        _untouched(table, ending)
        return preflib.read_preflib(path, rule, top, encoding)
    if ending == ".pb":
        _untouched(table, ending)
        return read_pabulib(path, rule, each, top, encoding)
    if top is not None:
        raise InputError("top", "goes with orders and categories, not with a table", top)
    if ending in _BOOKS:
        raise InputError(f"{path.name!r} is a workbook: save the sheet as CSV and give that")
    if ending not in _TABLES:
        known = ", ".join((*_TABLES, *preflib.ENDINGS, ".pb"))
        raise InputError(f"{path.name!r} must end in one of {known}")
    return read_table(path, table, rule)


def _untouched(table: TableFormat, ending: str) -> None:
    """Refuse settings of a table for a file that says these things itself."""
    for name in ("form", "options", "voter", "column", "voters", "separator", "delimiter"):
        if getattr(table, name) is not None:
            raise InputError(name, f"goes with a table, not with a file that ends in {ending}")
