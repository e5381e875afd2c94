"""What tests compare of an error: its kind, code, argument and value; never its sentence."""

from __future__ import annotations

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
) -> Iterator[pytest.ExceptionInfo[PrivoteError]]:
    """Expect a refusal: ``with refused("sigma", value=-1): BinaryVoting(sigma=-1)``.

    Parameters
    ----------
    argument
        Which argument broke a rule; None for an error about no argument.
    value
        The value that the error shows.
    """
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert str(error).strip()
    if argument is not _ANY:
        assert error.argument == argument, str(error)
    if value is not _ANY:
        assert error.shown == shown(value), str(error)
    if code is not None:
        assert error.code == code, str(error)
