"""A short profile of `make faults`: nothing is lost, and nothing gets out uncharged."""

from __future__ import annotations

import faults
import pytest

LABEL = faults.COMMANDS[1]


@pytest.mark.parametrize("fault", [faults.die, faults.no_space], ids=lambda fault: fault.__name__)
def test_after_a_fault_at_any_step_a_run_is_finished_once(fault: object) -> None:
    tries, wrong = faults.at_every_step(LABEL, fault, step=11)
    assert tries > 1
    assert wrong == 0


def test_a_takeover_while_the_first_process_lives_makes_one_commit() -> None:
    assert faults.takeover(LABEL) == []
