"""Chest X-rays: CheXpert, MIMIC-CXR-JPG, PadChest and NIH ChestX-ray14, from their owners' tables.

Findings have one name across data sets: ``"Pleural Effusion"`` of CheXpert and MIMIC-CXR is
``"Effusion"``, as in NIH ChestX-ray14 and PadChest and as in the studies that combine them.

A set is a table and pictures beside it; :func:`chest` opens any of the four. Groups are patients.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privote.errors import InputError, shown

from .images import Images
from .records import MISSING, MultiLabelData
from .sources import CHEXPERT, MIMIC, NIH, PADCHEST, absent, columns, find

Labels = npt.NDArray[np.int8]
Texts = npt.NDArray[np.str_]
#: Records without pictures, and where the pictures of some of them are.
Records = tuple[MultiLabelData, Callable[[MultiLabelData], Sequence[Path]]]

FRONTAL = ("AP", "PA")

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
    "nih": (
        "Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Effusion", "Emphysema",
        "Fibrosis", "Hernia", "Infiltration", "Mass", "Nodule", "Pleural_Thickening", "Pneumonia",
        "Pneumothorax",
    ),
}  # fmt: skip

# What the CheXpert labeller writes, under this package's names. "No Finding" says that no disease
# was found; a tube or a pacemaker may still be there.
_NOT_A_DISEASE = ("No Finding", "Support Devices")
_LABELLED = ("No Finding", *PAPER_LABELS["mimic"], "Pleural Other", "Support Devices")
_BLANK = -3
_CODES = {"": _BLANK, "0": 0, "0.0": 0, "1": 1, "1.0": 1, "-1": MISSING, "-1.0": MISSING}

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


def chest(
    kind: str,
    folder: str | Path,
    *,
    labels: str | Sequence[str] = "paper",
    views: Sequence[str] | None = FRONTAL,
    images: bool = True,
    size: int | tuple[int, int] = 224,
) -> MultiLabelData:
    """Read a set of chest X-rays, as its owners distribute it.

    Parameters
    ----------
    kind
        ``"chexpert"``: 224,316 X-rays of Stanford Hospital, labelled from their reports. Ids are
        paths within the data set; columns ``view``, ``sex``, ``age``.
        ``"mimic"``: MIMIC-CXR-JPG, 377,110 of Beth Israel Deaconess, labelled as CheXpert is. Ids
        are the ``dicom_id``; columns ``view`` and ``study``. An image has the labels of its study;
        images of a study without labels are left out.
        ``"padchest"``: 160,868 of Hospital San Juan (Alicante), in 174 findings. Columns ``view``,
        ``method`` (``"Physician"`` or ``"RNN_model"``) and ``findings`` as they are written.
        Records without a list of findings are left out.
        ``"nih"``: ChestX-ray14, 112,120 frontal ones of the NIH Clinical Center. Column ``view``.
    folder
        As it was unpacked, or the table itself: CheXpert's ``train.csv`` or ``valid.csv``,
        PadChest's ``PADCHEST_*.csv``, NIH's ``Data_Entry_2017*.csv``, also as .csv.gz. MIMIC's with
        ``files`` and ``mimic-cxr-2.0.0-*.csv.gz``.
    labels
        ``"paper"``: those of the paper; ``"all"``; or names. What CheXpert and MIMIC call uncertain
        is missing, and so is what a report does not mention, unless it has "No Finding". Of
        PadChest, :data:`PADCHEST_WORDS` says which findings make a label.
    views
        How the owners call the projection: ``"AP"``, ``"PA"``, and others by data set; None: all.
    images
        False reads labels only; ``X`` is then None.
    size
        Of the images, see :class:`Images`: grey, and cropped to the middle.
    """
    every, read, source = _SETS[kind]
    data, paths = read(Path(folder), _chosen(labels, every, PAPER_LABELS[kind]))
    if views is not None:
        if isinstance(views, str) or not views:
            raise InputError("views", "must be a list of views", views)
        sealed = ", ".join(sorted(set(data.columns["view"].tolist()) - {""}))
        data = data.take(np.isin(data.columns["view"], list(views)))
        if not len(data):
            rule = "must be views that records have"
            raise InputError("views", rule, views, sealed=f"there are {sealed}")
    if not images:
        return data
    files = paths(data)
    if len(files) and not files[0].is_file():
        raise absent("the image of the first record", source, sealed=f"it is {files[0]}")
    X = Images(paths=[str(file) for file in files], size=size, channels=1, fit="crop")
    return replace(data, X=X)


def _data(kind: str, Y: Any, names: Sequence[str], ids: Any, who: Any, **columns: Any) -> Any:
    labels = np.array(Y, np.int8).reshape(-1, len(names))
    facts: dict[str, Any] = {"label_names": tuple(names), "ids": ids, "groups": who}
    return MultiLabelData(X=None, Y=labels, **facts, columns=columns, name=kind)


def _chexpert(folder: Path, names: Sequence[str]) -> Records:
    file = _table(folder, ["train.csv", "train.csv.gz"], CHEXPERT)
    facts = ("Path", "Sex", "Age", "Frontal/Lateral", "AP/PA")
    (path, sex, age, side, view), Y = _labelled(file, CHEXPERT, facts, names)
    # A path begins with the name of the release, which may have been unpacked under another.
    ids = np.array([text.partition("/")[2] for text in path.tolist()], dtype=np.str_)
    patients = np.array([_patient(text, file) for text in ids.tolist()], dtype=np.str_)
    view = np.where(side == "Lateral", "L", view)
    data = _data("chexpert", Y, names, ids, patients, view=view, sex=sex, age=age)
    return data, lambda some: [file.parent / path for path in some.ids.tolist()]


def _mimic(folder: Path, names: Sequence[str]) -> Records:
    def table(kind: str) -> Path:
        patterns = [f"mimic-cxr-2.0.0-{kind}.csv.gz", f"mimic-cxr-*-{kind}.csv*"]
        return find(folder, patterns, MIMIC)

    (studies,), Y = _labelled(table("chexpert"), MIMIC, ("study_id",), names)
    row_of = {study: row for row, study in enumerate(studies.tolist())}
    if len(row_of) < len(studies):  # one row would label the images of another
        raise InputError("folder", "must have one row of labels a study, and some study has two")
    facts = ("dicom_id", "subject_id", "study_id", "ViewPosition")
    dicom, subject, study, view = columns(table("metadata"), facts, MIMIC)
    row = np.array([row_of.get(study_id, -1) for study_id in study.tolist()], dtype=np.int64)

    def paths(some: MultiLabelData) -> list[Path]:
        assert some.groups is not None
        return [
            folder / "files" / f"p{who[:2]}" / f"p{who}" / f"s{what}" / f"{name}.jpg"
            for who, what, name in zip(some.groups, some.columns["study"], some.ids, strict=True)
        ]

    data = _data("mimic", Y[row], names, dicom, subject, view=view, study=study)
    return data.take(row >= 0), paths


def _padchest(folder: Path, names: Sequence[str]) -> Records:
    file = _table(folder, ["PADCHEST_*.csv", "PADCHEST_*.csv.gz"], PADCHEST)
    facts = ("ImageID", "ImageDir", "PatientID", "Projection", "MethodLabel", "Labels")
    name, part, patient, view, method, listed = columns(file, facts, PADCHEST)

    @cache  # many records have the same findings
    def votes(text: str) -> list[bool]:
        findings = _findings(text, file)
        return [
            any(w in finding for finding in findings for w in PADCHEST_WORDS[label])
            for label in names
        ]

    folder_of = dict(zip(name.tolist(), part.tolist(), strict=True))

    def paths(some: MultiLabelData) -> list[Path]:
        home = file.parent  # flat, or in numbered folders
        places = [(home / folder_of[image] / image, home / image) for image in some.ids.tolist()]
        return [numbered if numbered.is_file() else flat for numbered, flat in places]

    Y = [votes(text) for text in listed.tolist()]
    more = {"view": view, "method": method, "findings": listed}
    data = _data("padchest", Y, names, name, patient, **more)
    return data.take(~np.isin(listed, ("", "nan"))), paths


def _nih(folder: Path, names: Sequence[str]) -> Records:
    file = _table(folder, ["*Data_Entry_2017*.csv*"], NIH)
    facts = ("Image Index", "Finding Labels", "Patient ID", "View Position")
    image, listed, patient, view = columns(file, facts, NIH)

    @cache
    def votes(text: str) -> list[bool]:
        findings = set(text.split("|")) - {"No Finding"}
        unknown = findings - set(PAPER_LABELS["nih"])
        if unknown:
            sealed = f"it is {shown(sorted(unknown)[0])}"
            raise InputError(f"{file}: a finding must be one of the 14", sealed=sealed)
        return [name in findings for name in names]

    def paths(some: MultiLabelData) -> list[Path]:
        home = file.parent / "images"  # or one folder for each archive
        files = {} if home.is_dir() else {p.name: p for p in home.parent.glob("images_*/images/*")}
        if not files and not home.is_dir():
            raise absent(f"the folder {home}", NIH)
        return [files.get(name, home / name) for name in some.ids.tolist()]

    Y = [votes(text) for text in listed.tolist()]
    return _data("nih", Y, names, image, patient, view=view), paths


# All labels of each set, its reader, and where it comes from.
_SETS: Mapping[str, tuple[Sequence[str], Callable[[Path, Sequence[str]], Records], str]] = {
    "chexpert": (_LABELLED, _chexpert, CHEXPERT),
    "mimic": (_LABELLED, _mimic, MIMIC),
    "padchest": (PAPER_LABELS["padchest"], _padchest, PADCHEST),
    "nih": (PAPER_LABELS["nih"], _nih, NIH),
}
chexpert, mimic, padchest, nih = (partial(chest, kind) for kind in _SETS)


# -- what they share -------------------------------------------------------------------------------


def _table(given: Path, patterns: Sequence[str], source: str) -> Path:
    """Return the table itself, or where it lies in a folder."""
    return given if given.is_file() else find(given, patterns, source)


def _chosen(
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


def _findings(text: str, file: Path) -> set[str]:
    """Return the findings in a cell, a list as Python writes it; none if there is no list."""
    if text in ("", "nan"):
        return set()
    try:
        return {str(finding).strip() for finding in ast.literal_eval(text)}
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        sealed = f"the cell is {shown(text)}"
        raise InputError(f"{file}: Labels must be a list of texts", sealed=sealed) from None


def _patient(path: str, file: Path) -> str:
    """Return ``patient00001`` of ``train/patient00001/study1/view1_frontal.jpg``."""
    steps = path.split("/")
    if len(steps) < 2 or not steps[1].startswith("patient"):
        sealed = f"it is {shown(path)}"
        raise InputError(f"{file}: a path must be release/part/patient.../...", sealed=sealed)
    return steps[1]


def _labelled(
    file: Path, source: str, facts: Sequence[str], names: Sequence[str]
) -> tuple[list[Texts], Labels]:
    """Return columns of facts, and the labels that the CheXpert labeller wrote.

    What is uncertain or blank is missing; a disease that a report does not mention is 0 where it
    has no finding at all.
    """
    needed = list(dict.fromkeys(("No Finding", *names)))
    written = ["Pleural Effusion" if name == "Effusion" else name for name in needed]
    read = columns(file, [*facts, *written], source)
    codes: dict[str, Labels] = {}
    for name, cells in zip(needed, read[len(facts) :], strict=True):
        try:
            codes[name] = np.array([_CODES[cell] for cell in cells.tolist()], dtype=np.int8)
        except KeyError as error:
            sealed = f"the cell is {shown(error.args[0])}"
            raise InputError(f"{file}: {name} must be 1, 0, -1 or blank", sealed=sealed) from None
    healthy = codes["No Finding"] == 1
    for name, code in codes.items():
        blank = code == _BLANK
        code[blank] = MISSING
        if name not in _NOT_A_DISEASE:
            code[healthy & blank] = 0
    return read[: len(facts)], np.stack([codes[name] for name in names], axis=1)
