from __future__ import annotations

from typing import Any

import pytest

from privote.report.demo import _may_leave


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"guarantee": "allowance", "epsilon": 8.0, "answered": 6}, "labels and epsilon: uncond"),
        ({"guarantee": "worst-case", "epsilon": 8.0, "answered": 6}, "labels and epsilon: uncond"),
        ({"guarantee": "worst-case", "epsilon": None, "answered": 0}, "nothing was released"),
        (
            {"guarantee": "data-dependent", "epsilon": 9.0, "answered": 6},
            "labels and this noisy epsilon: about these votes only, not differential privacy",
        ),
        (
            {"guarantee": "data-dependent", "epsilon": None, "answered": 6},
            "labels, with no epsilon: the exact one is sealed",
        ),
    ],
)
def test_says_what_of_a_release_may_leave(row: dict[str, Any], said: str) -> None:
    assert _may_leave(row).startswith(said)
