"""What tests compare of an error: its kind, code, argument and value; never its sentence."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from privote.errors import InputError, PrivoteError, shown

_ANY: Any = object()


@contextmanager
def refused(
    argument: str | None = _ANY,
    kind: type[PrivoteError] = InputError,
    *,
    value: Any = _ANY,
    code: str | None = None,
    sealed: str | None = None,
) -> Iterator[pytest.ExceptionInfo[PrivoteError]]:
    """Expect a refusal: ``with refused("sigma", value=-1): BinaryVoting(sigma=-1)``.

    Parameters
    ----------
    argument
        Which argument broke a rule; None for an error about no argument.
    value
        The value that the error shows.
    sealed
        What is for the owner's eyes, and nowhere else in what a traceback shows.
    """
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert str(error).strip()
    if argument is not _ANY:
        assert error.argument == argument, str(error)
    if value is not _ANY:
        assert error.shown == shown(value), str(error)
    if sealed is not None:
        assert isinstance(error, InputError)
        assert sealed in str(error.sealed)
        # Of the error, not of the lines of code that led to it.
        shown_ = traceback.TracebackException.from_exception(error)
        while shown_ is not None:
            assert sealed not in "".join(shown_.format_exception_only())
            shown_ = shown_.__cause__ or (
                None if shown_.__suppress_context__ else shown_.__context__
            )
    if code is not None:
        assert error.code == code, str(error)
