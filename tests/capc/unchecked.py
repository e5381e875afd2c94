"""One side of a ballot without the chunk rule, to show what the rule is for.

Run as ``python -m tests.capc.unchecked SIDE FOLDER ROWS FEATURES LABELS``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest import mock

import numpy as np

from privote.capc import cheetah as compiled
from privote.capc.cheetah import Runner, runtime_config
from privote.capc.programs import BallotProgram


def main(side: str, folder: str, rows: int, features: int, labels: int) -> None:
    with mock.patch.object(BallotProgram, "__post_init__"):
        program = BallotProgram(rows=rows, features=features, labels=labels)
    with mock.patch.object(compiled, "check_code"):
        ready = compiled.compile_program(program)
    values = np.random.default_rng(0)
    inputs = {
        name: values.integers(-(2**20), 2**20, shape)
        for name, shape in program.inputs(side).items()
    }
    if side == "querier":
        inputs["x"][:] = inputs["x"][0]
    Runner(side, runtime_config(), Path(folder), 60.0).run(program, ready, inputs)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *(int(size) for size in sys.argv[3:]))
