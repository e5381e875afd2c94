"""MIMIC-CXR-JPG: 377,110 chest X-rays of Beth Israel Deaconess, labelled from their reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from privote.errors import InputError

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
from .sources import MIMIC, columns, find

PARTS = ("train", "validate", "test")


def mimic(
    folder: str | Path,
    part: str | None = None,
    *,
    labels: str | Sequence[str] = "paper",
    views: Sequence[str] | None = FRONTAL,
    uncertain: str | Mapping[str, str] = "missing",
    blank: str = "missing",
    images: bool = True,
    size: int | tuple[int, int] = 224,
) -> MultiLabelData:
    """Read MIMIC-CXR-JPG from the folder that holds ``files`` and ``mimic-cxr-2.0.0-*.csv.gz``.

    Parameters
    ----------
    folder
        The release as PhysioNet distributes it; the .csv files may be unpacked.
    part
        ``"train"``, ``"validate"`` or ``"test"`` of the owners' split; None takes all.
    labels
        ``"paper"``: 11 labels; ``"all"``: the 14 columns; or names.
    views
        Values of ``ViewPosition``, for example ``"AP"``, ``"PA"`` and ``"LATERAL"``; None: all.
    uncertain, blank, images, size
        As in :func:`chexpert`: both files come from the same labeller.

    Returns
    -------
    MultiLabelData
        Ids are the ``dicom_id``, groups the ``subject_id``; columns ``view`` and ``study``. An
        image has the labels of its study; images of a study without labels are left out.
    """
    if part is not None and part not in PARTS:
        raise InputError("part", f"must be None or one of {', '.join(PARTS)}", part)
    home = Path(folder)
    names = chosen_labels(labels, list(LABELLER_COLUMNS), PAPER_LABELS["mimic"])
    needed = list(dict.fromkeys(("No Finding", *names)))
    file = _file(home, "chexpert")
    read = columns(file, ["study_id", *(LABELLER_COLUMNS[name] for name in needed)], MIMIC)
    Y = labeller_votes(
        dict(zip(needed, read[1:], strict=True)),
        names,
        uncertain=uncertain,
        blank=blank,
        where=file,
    )
    place = {study: row for row, study in enumerate(read[0])}
    facts = ["dicom_id", "subject_id", "study_id", "ViewPosition"]
    dicom, subject, study, view = (
        np.array(column, dtype=np.str_) for column in columns(_file(home, "metadata"), facts, MIMIC)
    )
    label_row = np.array([place.get(one, -1) for one in study.tolist()], dtype=np.int64)
    keep = label_row >= 0
    if part is not None:
        name, side = columns(_file(home, "split"), ["dicom_id", "split"], MIMIC)
        members = {one for one, where in zip(name, side, strict=True) if where == part}
        keep &= np.array([one in members for one in dicom.tolist()], dtype=bool)
    candidates = np.flatnonzero(keep)
    rows = candidates[in_views(views, view[candidates])]
    paths = [
        home / "files" / f"p{who[:2]}" / f"p{who}" / f"s{what}" / f"{name}.jpg"
        for who, what, name in zip(subject[rows], study[rows], dicom[rows], strict=True)
    ]
    return MultiLabelData(
        X=xrays(paths, size, MIMIC) if images else None,
        Y=Y[label_row[rows]],
        label_names=names,
        ids=dicom[rows],
        groups=subject[rows],
        columns={"view": view[rows], "study": study[rows]},
        name="mimic" if part is None else f"mimic {part}",
    )


def _file(home: Path, kind: str) -> Path:
    return find(home, [f"mimic-cxr-2.0.0-{kind}.csv.gz", f"mimic-cxr-*-{kind}.csv*"], MIMIC)
