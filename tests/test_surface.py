"""What ``import privote`` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import privote as pv


def test_every_name_has_its_module() -> None:
    assert {*pv._WHERE, *pv._ROOMS, "__version__"} == set(pv.__all__) == set(dir(pv))
    for name in pv.__all__:
        assert getattr(pv, name) is not None


def test_a_name_is_what_its_module_has() -> None:
    from privote.labelling import label
    from privote.mechanisms import BinaryVoting

    assert pv.label is label
    assert pv.BinaryVoting is BinaryVoting


def test_an_unknown_name_is_said() -> None:
    with pytest.raises(AttributeError, match="no attribute 'lable'"):
        _ = pv.lable  # type: ignore[attr-defined]


def test_importing_it_loads_no_library() -> None:
    code = "import privote, sys; print(sorted({'numpy', 'scipy', 'sklearn'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
