"""What ``import privote`` offers, and what it costs."""

from __future__ import annotations

import ast
import doctest
import inspect
import subprocess
import sys
import warnings

import pytest

import privote as pv
from privote import mechanisms


def test_every_name_has_its_module() -> None:
    assert {kind.__name__ for kind in pv.MECHANISMS.values()} < set(pv.__all__) == set(dir(pv))
    # What type checkers see, besides what the registry exports.
    nodes = ast.walk(ast.parse(inspect.getsource(pv)))
    aliases = [each for node in nodes if isinstance(node, ast.ImportFrom) for each in node.names]
    seen = {each.asname for each in aliases if each.asname}
    assert seen | {*mechanisms.__all__} == set(pv.__all__)
    for name in pv.__all__:
        assert getattr(pv, name) is not None


def test_an_unknown_name_is_said() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lable'"):
        _ = pv.lable  # type: ignore[attr-defined]


def test_importing_it_loads_no_library() -> None:
    code = "import privote, sys; print(sorted({'numpy', 'scipy', 'sklearn'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", sorted(n for n in pv.__all__ if callable(getattr(pv, n))))
@pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")
def test_an_exported_name_has_an_example_that_runs(name: str) -> None:
    parser = doctest.DocTestParser()
    example = parser.get_doctest(inspect.getdoc(getattr(pv, name)) or "", {}, name, None, 0)
    assert example.examples
    with warnings.catch_warnings():  # which an example may change
        assert doctest.DocTestRunner().run(example).failed == 0
