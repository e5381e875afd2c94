"""Real votes, embedded: of logistic regressions that were each trained on a part of a data set.

``experiments/make_teacher_votes.py`` makes votes like the first from the public Mulan file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import InputError

#: The files, as ``privote label`` reads them: packed bits, their shape, and the truth. Aviation
#: safety reports (tmc2007-500, Mulan repository) by 50 and by 250 teachers, and pictures of
#: Pascal VOC 2012 by 50.
TEACHER_VOTES = {
    "tmc2007": Path(__file__).with_name("tmc2007_votes.npz"),
    "tmc2007-250": Path(__file__).with_name("tmc2007_250_votes.npz"),
    "voc2012": Path(__file__).with_name("voc2012_votes.npz"),
}

Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class TeacherVotes:
    """Votes of real teachers, and what they should have said.

    Attributes
    ----------
    votes
        (queries, voters, labels) bool: (4000, 50, 22), (1000, 250, 22) or (5823, 50, 20).
    truth
        (queries, labels) bool: the labels that the reports and pictures come with.
    label_names, query_names
        What they are called; None for the reports.
    """

    votes: Bits
    truth: Bits
    label_names: tuple[str, ...] | None = None
    query_names: tuple[str, ...] | None = None


def load_teacher_votes(name: str = "tmc2007") -> TeacherVotes:
    """Return embedded votes, read-only: ``"tmc2007"``, ``"tmc2007-250"`` or ``"voc2012"``."""
    if name not in TEACHER_VOTES:
        raise InputError("name", f"must be one of {', '.join(TEACHER_VOTES)}", name)
    with np.load(TEACHER_VOTES[name]) as file:
        queries, voters, labels = (int(size) for size in file["shape"])
        names = {
            axis: tuple(file[axis].tolist()) if axis in file else None
            for axis in ("label_names", "query_names")
        }
        return TeacherVotes(
            votes=_unpacked(file["votes"], (queries, voters, labels)),
            truth=_unpacked(file["truth"], (queries, labels)),
            **names,
        )


def _unpacked(packed: npt.NDArray[np.uint8], shape: tuple[int, ...]) -> Bits:
    bits = np.unpackbits(packed.reshape(-1), count=int(np.prod(shape)))
    cube = bits.astype(np.bool_).reshape(shape)
    cube.setflags(write=False)
    return cube
