"""NIH ChestX-ray14: 112,120 frontal chest X-rays of the NIH Clinical Center."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from privote.errors import InputError, shown

from .chest import FRONTAL, chosen_labels, in_views, xrays
from .records import MultiLabelData
from .sources import NIH, absent, columns, find, opened

NIH_LABELS = (
    "Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Effusion", "Emphysema", "Fibrosis",
    "Hernia", "Infiltration", "Mass", "Nodule", "Pleural_Thickening", "Pneumonia", "Pneumothorax",
)  # fmt: skip
_LISTS = {"train_val": "train_val_list.txt", "test": "test_list.txt"}
_FACTS = ("Image Index", "Finding Labels", "Patient ID", "View Position")


def nih(
    folder: str | Path,
    part: str | None = None,
    *,
    labels: str | Sequence[str] = "all",
    views: Sequence[str] | None = FRONTAL,
    images: bool = True,
    size: int | tuple[int, int] = 224,
) -> MultiLabelData:
    """Read NIH ChestX-ray14 from ``Data_Entry_2017_v2020.csv`` (or .csv.gz, or the older one).

    Parameters
    ----------
    folder
        The folder with the .csv file and the images in ``images`` or ``images_001/images``, ...; or
        the .csv file itself.
    part
        ``"train_val"`` or ``"test"`` of the owners' lists, which share no patient; None: all.
    labels
        ``"all"``: the 14 findings; or names.
    views
        ``"AP"``, ``"PA"`` or both.
    images
        False reads labels only; ``X`` is then None.
    size
        Height and width of the images; see :class:`Images`.

    Returns
    -------
    MultiLabelData
        Ids are file names, groups are patients; column ``view``. No label is missing.
    """
    if part is not None and part not in _LISTS:
        raise InputError("part", f"must be None or one of {', '.join(_LISTS)}", part)
    names = chosen_labels(labels, NIH_LABELS, NIH_LABELS)
    given = Path(folder)
    file = given if given.is_file() else find(given, ["*Data_Entry_2017*.csv*"], NIH)
    read = columns(file, _FACTS, NIH)
    image, patient, view = (np.array(read[place], dtype=np.str_) for place in (0, 2, 3))
    rows = in_views(views, view)
    if part is not None:
        with opened(file.parent / _LISTS[part], NIH) as lines:
            members = {line.strip() for line in lines}
        rows = rows[[one in members for one in image[rows].tolist()]]
    votes = {text: _votes(text, names, file) for text in set(read[1])}
    return MultiLabelData(
        X=xrays(_paths(file.parent, image[rows].tolist()), size, NIH) if images else None,
        Y=np.array([votes[read[1][row]] for row in rows], dtype=np.int8).reshape(-1, len(names)),
        label_names=names,
        ids=image[rows],
        groups=patient[rows],
        columns={"view": view[rows]},
        name="nih" if part is None else f"nih {part}",
    )


def _votes(text: str, names: Sequence[str], file: Path) -> list[int]:
    found = set(text.split("|")) - {"No Finding"}
    unknown = found - set(NIH_LABELS)
    if unknown:
        raise InputError(
            f"{file}: a finding must be one of the 14", sealed=f"it is {shown(sorted(unknown)[0])}"
        )
    return [int(name in found) for name in names]


def _paths(home: Path, names: Sequence[str]) -> list[Path]:
    """Return where the images are: in one folder, or in one folder for each archive."""
    if (home / "images").is_dir():
        return [home / "images" / name for name in names]
    found = {path.name: path for path in home.glob("images_*/images/*.png")}
    if not found:
        raise absent(f"the folder {home / 'images'}", NIH)
    return [found.get(name, home / "images" / name) for name in names]
