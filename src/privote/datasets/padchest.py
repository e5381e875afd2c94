"""PadChest: 160,868 chest X-rays of Hospital San Juan (Alicante), labelled in 174 findings."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from privote.errors import InputError, shown

from .chest import FRONTAL, PAPER_LABELS, in_views, xrays
from .records import MultiLabelData
from .sources import PADCHEST, columns, find

METHODS = ("Physician", "RNN_model")

# A label is present if a finding of PadChest contains one of these words. This is the rule of the
# cross-domain study the paper follows (torchxrayvision), broad on purpose: "effusion" takes in
# "pericardial effusion", "nodule" takes in "pseudonodule". With views=("PA",) it gives the paper's
# co-prevalence matrix to the three digits printed there.
PADCHEST_WORDS: Mapping[str, tuple[str, ...]] = {
    name: (name.lower().replace("_", " "),) for name in PAPER_LABELS["padchest"]
} | {
    "Consolidation": ("consolidation", "air bronchogram"),
    "Infiltration": (
        "infiltrat", "interstitial pattern", "ground glass pattern", "alveolar pattern",
        "consolidation", "air bronchogram",
    ),
}  # fmt: skip

_FACTS = ("ImageID", "ImageDir", "PatientID", "Projection", "MethodLabel", "Labels")


def padchest(
    folder: str | Path,
    *,
    labels: str | Sequence[str] | Mapping[str, Sequence[str]] = "paper",
    views: Sequence[str] | None = FRONTAL,
    method: str | None = None,
    exclude: Sequence[str] = (),
    images: bool = True,
    size: int | tuple[int, int] = 224,
) -> MultiLabelData:
    """Read PadChest from ``PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv`` (or .csv.gz).

    Parameters
    ----------
    folder
        The folder with the .csv file and the images, flat or in subfolders 0, 1, ... as their
        archives are numbered; or the .csv file itself.
    labels
        ``"paper"``: the 15 labels of the paper; some of their names; or a dict from a label's name
        to words: the label is present if a finding contains one of them.
    views
        Values of ``Projection``: ``"PA"``, ``"AP"``, ``"AP_horizontal"``, ``"L"``; None: all.
    method
        ``"Physician"`` or ``"RNN_model"``: only what was labelled so; None: both.
    exclude
        Leave out records with one of these findings, for example ``("exclude", "suboptimal study",
        "unchanged")``: "unchanged" says nothing about what was there before.
    images
        False reads labels only; ``X`` is then None.
    size
        Height and width of the images; see :class:`Images`.

    Returns
    -------
    MultiLabelData
        Ids are the ``ImageID``, groups the ``PatientID``; columns ``view`` and ``method``. No label
        is missing or uncertain; records without a list of findings are left out.
    """
    if method is not None and method not in METHODS:
        raise InputError("method", f"must be None or one of {', '.join(METHODS)}", method)
    words = _words(labels)
    given = Path(folder)
    file = (
        given if given.is_file() else find(given, ["PADCHEST_*.csv", "PADCHEST_*.csv.gz"], PADCHEST)
    )
    read = columns(file, _FACTS, PADCHEST)
    name, place, patient, view, how = (np.array(column, dtype=np.str_) for column in read[:5])
    listed = read[5]
    kinds = {text: _findings(text, file) for text in set(listed)}
    keep = np.array([kinds[text] is not None for text in listed], dtype=bool)
    unwanted = set(exclude)
    if unwanted:
        keep &= np.array([not unwanted & (kinds[text] or set()) for text in listed], dtype=bool)
    if method is not None:
        keep &= how == method
    candidates = np.flatnonzero(keep)
    rows = candidates[in_views(views, view[candidates])]
    votes = {text: _votes(found, words) for text, found in kinds.items() if found is not None}
    return MultiLabelData(
        X=xrays(_paths(file.parent, place[rows], name[rows]), size, PADCHEST) if images else None,
        Y=np.array([votes[listed[row]] for row in rows], dtype=np.int8).reshape(-1, len(words)),
        label_names=tuple(words),
        ids=name[rows],
        groups=patient[rows],
        columns={"view": view[rows], "method": how[rows]},
        name="padchest",
    )


def _words(labels: str | Sequence[str] | Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    if isinstance(labels, Mapping):
        return {name: tuple(words) for name, words in labels.items()}
    if isinstance(labels, str) and labels != "paper":
        raise InputError("labels", "must be 'paper', a list of names or a dict", labels)
    names = list(PADCHEST_WORDS) if labels == "paper" else list(labels)
    unknown = [name for name in names if name not in PADCHEST_WORDS]
    if unknown:
        raise InputError("labels", f"must be some of {', '.join(PADCHEST_WORDS)}; got {unknown}")
    return {name: PADCHEST_WORDS[name] for name in names}


def _findings(text: str, file: Path) -> set[str] | None:
    """Return the findings in a cell, a list as Python writes it; None if there is no list."""
    if text in ("", "nan"):
        return None
    try:
        found = ast.literal_eval(text)
        return {str(finding).strip() for finding in found}
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise InputError(
            f"{file}: Labels must be a list of texts", sealed=f"the cell is {shown(text)}"
        ) from None


def _votes(found: set[str], words: Mapping[str, tuple[str, ...]]) -> list[int]:
    return [int(any(word in one for one in found for word in some)) for some in words.values()]


def _paths(home: Path, place: npt.NDArray[np.str_], name: npt.NDArray[np.str_]) -> list[Path]:
    """Return where the images are: in numbered folders if the first one is, else side by side."""
    if len(name) and (home / place[0] / name[0]).is_file():
        return [home / one / two for one, two in zip(place, name, strict=True)]
    return [home / one for one in name]
