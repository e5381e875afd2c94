"""What chest X-ray data sets have in common: names of findings, views, and what is uncertain.

Findings have one name across data sets: ``"Pleural Effusion"`` of CheXpert and MIMIC-CXR is
``"Effusion"``, as in NIH ChestX-ray14 and PadChest and as in the studies that combine them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privote.errors import InputError, shown

from .images import Images
from .records import MISSING
from .sources import Source, absent

Labels = npt.NDArray[np.int8]

FRONTAL = ("AP", "PA")
POLICIES = {"missing": MISSING, "negative": 0, "positive": 1}

# The labels of the paper's experiments, in its order: "the first k labels" are the first k here.
# For MIMIC-CXR it counts 11 and lists 13. These are the 11 that it also uses on CheXpert; the two
# others, "Pleural Other" and "Support Devices", come with labels="all".
PAPER_LABELS: Mapping[str, tuple[str, ...]] = {
    "chexpert": (
        "Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Effusion",
        "Enlarged Cardiomediastinum", "Fracture", "Lung Lesion", "Lung Opacity", "Pneumonia",
        "Pneumothorax",
    ),
    "mimic": (
        "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema",
        "Consolidation", "Pneumonia", "Atelectasis", "Pneumothorax", "Effusion", "Fracture",
    ),
    "padchest": (
        "Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Effusion", "Emphysema",
        "Fibrosis", "Fracture", "Hernia", "Infiltration", "Mass", "Nodule", "Pleural_Thickening",
        "Pneumonia", "Pneumothorax",
    ),
}  # fmt: skip

# The 14 columns that the CheXpert labeller writes, under this package's names.
LABELLER_COLUMNS = {
    "No Finding": "No Finding",
    "Enlarged Cardiomediastinum": "Enlarged Cardiomediastinum",
    "Cardiomegaly": "Cardiomegaly",
    "Lung Opacity": "Lung Opacity",
    "Lung Lesion": "Lung Lesion",
    "Edema": "Edema",
    "Consolidation": "Consolidation",
    "Pneumonia": "Pneumonia",
    "Atelectasis": "Atelectasis",
    "Pneumothorax": "Pneumothorax",
    "Effusion": "Pleural Effusion",
    "Pleural Other": "Pleural Other",
    "Fracture": "Fracture",
    "Support Devices": "Support Devices",
}
# "No Finding" says that no disease was found; a tube or a pacemaker may still be there.
_NOT_A_DISEASE = ("No Finding", "Support Devices")

_UNCERTAIN, _BLANK = -2, -3
_CODES = {"": _BLANK, "0": 0, "0.0": 0, "1": 1, "1.0": 1, "-1": _UNCERTAIN, "-1.0": _UNCERTAIN}


def chosen_labels(
    labels: str | Sequence[str], every: Sequence[str], paper: Sequence[str]
) -> tuple[str, ...]:
    """Return the labels asked for: ``"paper"``, ``"all"``, or a list of names out of ``every``."""
    if isinstance(labels, str):
        named = {"paper": tuple(paper), "all": tuple(every)}
        if labels not in named:
            raise InputError("labels", "must be 'paper', 'all' or a list of names", labels)
        return named[labels]
    unknown = [name for name in labels if name not in every]
    if unknown or not labels:
        raise InputError("labels", f"must be some of {', '.join(every)}; got {unknown or labels}")
    return tuple(labels)


def labeller_votes(
    cells: Mapping[str, Sequence[str]],
    names: Sequence[str],
    *,
    uncertain: str | Mapping[str, str],
    blank: str,
    where: Path,
) -> Labels:
    """Turn cells of the CheXpert labeller (1, 0, -1 for uncertain, blank) into labels.

    Parameters
    ----------
    cells
        For each of ``names`` and for "No Finding", what is written (records,).
    names
        The labels to return, in this order.
    uncertain
        ``"missing"``, ``"positive"`` or ``"negative"``; or one of these for some labels, the others
        being missing.
    blank
        The same for what the report does not mention, except that a disease it does not mention is
        0 where the report has no finding at all.
    where
        The file, for errors.

    Returns
    -------
    int8 array (records, names)
    """
    if isinstance(uncertain, str):
        policy = dict.fromkeys(names, uncertain)
    else:
        unknown = [name for name in uncertain if name not in names]
        if unknown:
            raise InputError("uncertain", f"must name some of {', '.join(names)}; got {unknown}")
        policy = {name: uncertain.get(name, "missing") for name in names}
    for argument, value in [("blank", blank), *(("uncertain", p) for p in policy.values())]:
        if value not in POLICIES:
            raise InputError(argument, f"must be one of {', '.join(POLICIES)}", value)
    healthy = _coded(cells["No Finding"], "No Finding", where) == 1
    Y = np.empty((len(healthy), len(names)), dtype=np.int8)
    for place, name in enumerate(names):
        code = _coded(cells[name], name, where)
        if name not in _NOT_A_DISEASE:
            code[healthy & (code == _BLANK)] = 0
        code[code == _BLANK] = POLICIES[blank]
        code[code == _UNCERTAIN] = POLICIES[policy[name]]
        Y[:, place] = code
    return Y


def _coded(cells: Sequence[str], name: str, where: Path) -> Labels:
    try:
        return np.array([_CODES[cell] for cell in cells], dtype=np.int8)
    except KeyError as error:
        raise InputError(
            f"{where}: {name} must be 1, 0, -1 or blank",
            sealed=f"the cell is {shown(error.args[0])}",
        ) from None


def in_views(views: Sequence[str] | None, written: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the rows whose view is one of ``views``; all rows if it is None."""
    if views is None:
        return np.arange(len(written))
    known = sorted(set(written.tolist()) - {""})
    if isinstance(views, str) or not views:
        raise InputError("views", f"must be a list out of {', '.join(known)}; got {views!r}")
    rows = np.flatnonzero(np.isin(written, list(views)))
    if not len(rows):
        raise InputError(f"no record has a view in {tuple(views)}; there are {', '.join(known)}")
    return rows


def xrays(paths: Sequence[Path | str], size: int | tuple[int, int], source: Source) -> Images:
    """Return grey images, cropped to the middle; the first file must be there."""
    if len(paths) and not Path(paths[0]).is_file():
        raise absent(f"the image {paths[0]}", source)
    return Images(paths=[str(path) for path in paths], size=size, channels=1, fit="crop")
