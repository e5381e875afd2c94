"""CheXpert: 224,316 chest X-rays of Stanford Hospital, labelled from their reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from privote.errors import InputError, shown

from .chest import (
    FRONTAL,
    LABELLER_COLUMNS,
    PAPER_LABELS,
    chosen_labels,
    in_views,
    labeller_votes,
    xrays,
)
from .records import MultiLabelData
from .sources import CHEXPERT, columns, find

PARTS = ("train", "valid")
_FACTS = ("Path", "Sex", "Age", "Frontal/Lateral", "AP/PA")


def chexpert(
    folder: str | Path,
    part: str = "train",
    *,
    labels: str | Sequence[str] = "paper",
    views: Sequence[str] | None = FRONTAL,
    uncertain: str | Mapping[str, str] = "missing",
    blank: str = "missing",
    images: bool = True,
    size: int | tuple[int, int] = 224,
) -> MultiLabelData:
    """Read CheXpert from ``CheXpert-v1.0`` or ``CheXpert-v1.0-small``.

    Parameters
    ----------
    folder
        The folder with ``train.csv`` and ``valid.csv``, or one of these files (also as .csv.gz).
    part
        ``"train"``, or ``"valid"``: 234 images that radiologists labelled, without uncertain ones.
    labels
        ``"paper"``: the 11 labels of the paper; ``"all"``: the 14 columns; or names.
    views
        Out of ``"AP"``, ``"PA"``, ``"L"`` (lateral), ``"LL"`` and ``"RL"``; None takes all.
    uncertain
        What a -1 becomes: ``"missing"``, ``"positive"`` or ``"negative"``, or one of these for each
        label in a dict (labels not in it: missing).
    blank
        What a label becomes that the report does not mention. Where the report has "No Finding",
        a disease it does not mention is 0 in any case.
    images
        False reads labels only; ``X`` is then None.
    size
        Height and width of the images; see :class:`Images`.

    Returns
    -------
    MultiLabelData
        Ids are paths within the data set, groups are patients; columns ``view``, ``sex``, ``age``.
    """
    if part not in PARTS:
        raise InputError("part", f"must be one of {', '.join(PARTS)}", part)
    given = Path(folder)
    file = given if given.is_file() else find(given, [f"{part}.csv", f"{part}.csv.gz"], CHEXPERT)
    names = chosen_labels(labels, list(LABELLER_COLUMNS), PAPER_LABELS["chexpert"])
    needed = list(dict.fromkeys(("No Finding", *names)))
    read = columns(file, [*_FACTS, *(LABELLER_COLUMNS[name] for name in needed)], CHEXPERT)
    path, sex, age, side, view = (np.array(column, dtype=np.str_) for column in read[: len(_FACTS)])
    Y = labeller_votes(
        dict(zip(needed, read[len(_FACTS) :], strict=True)),
        names,
        uncertain=uncertain,
        blank=blank,
        where=file,
    )
    view = np.where(side == "Lateral", "L", view)
    rows = in_views(views, view)
    # A path begins with the name of the release, which may have been unpacked under another.
    ids = np.array([one.partition("/")[2] for one in path[rows].tolist()], dtype=np.str_)
    return MultiLabelData(
        X=xrays([file.parent / one for one in ids.tolist()], size, CHEXPERT) if images else None,
        Y=Y[rows],
        label_names=names,
        ids=ids,
        groups=np.array([_patient(one, file) for one in ids.tolist()], dtype=np.str_),
        columns={"view": view[rows], "sex": sex[rows], "age": age[rows]},
        name=f"chexpert {file.name.partition('.')[0]}",
    )


def _patient(path: str, file: Path) -> str:
    """Return ``patient00001`` of ``train/patient00001/study1/view1_frontal.jpg``."""
    steps = path.split("/")
    if len(steps) < 2 or not steps[1].startswith("patient"):
        raise InputError(
            f"{file}: a path must be release/part/patient.../...", sealed=f"it is {shown(path)}"
        )
    return steps[1]
