"""Chest X-rays: CheXpert, MIMIC-CXR-JPG, PadChest and NIH ChestX-ray14, from their owners' tables.

Findings have one name across data sets: ``"Pleural Effusion"`` of CheXpert and MIMIC-CXR is
``"Effusion"``, as in NIH ChestX-ray14 and PadChest and as in the studies that combine them.

All readers take ``labels`` (``"paper"``: those of the paper; ``"all"``; or names), ``views`` (how
the owners call the projection, see each; None takes all), ``images`` (False reads labels only;
``X`` is then None) and ``size`` (of the images, see :class:`Images`). Groups are patients.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from privote.errors import InputError, shown

from .images import Images
from .records import MISSING, MultiLabelData
from .sources import CHEXPERT, MIMIC, NIH, PADCHEST, absent, columns, find, lines_of

Labels = npt.NDArray[np.int8]
Texts = npt.NDArray[np.str_]
Size = int | tuple[int, int]

FRONTAL = ("AP", "PA")
_POLICIES = {"missing": MISSING, "negative": 0, "positive": 1}

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
_UNCERTAIN, _BLANK = -2, -3
_CODES = {"": _BLANK, "0": 0, "0.0": 0, "1": 1, "1.0": 1, "-1": _UNCERTAIN, "-1.0": _UNCERTAIN}

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


def chexpert(
    folder: str | Path,
    part: str = "train",
    *,
    labels: str | Sequence[str] = "paper",
    views: Sequence[str] | None = FRONTAL,
    uncertain: str = "missing",
    blank: str = "missing",
    images: bool = True,
    size: Size = 224,
) -> MultiLabelData:
    """Read CheXpert: 224,316 chest X-rays of Stanford Hospital, labelled from their reports.

    Parameters
    ----------
    folder
        ``CheXpert-v1.0`` or ``CheXpert-v1.0-small``, with ``train.csv`` and ``valid.csv``; or one
        of these files (also as .csv.gz).
    part
        ``"train"``, or ``"valid"``: 234 images that radiologists labelled, without uncertain ones.
    views
        Out of ``"AP"``, ``"PA"``, ``"L"`` (lateral), ``"LL"`` and ``"RL"``; None takes all.
    uncertain
        What a -1 becomes: ``"missing"``, ``"positive"`` or ``"negative"``.
    blank
        What a label becomes that the report does not mention. Where the report has "No Finding",
        a disease it does not mention is 0 in any case.

    Returns
    -------
    MultiLabelData
        Ids are paths within the data set; columns ``view``, ``sex``, ``age``.
    """
    _check_part(part, ("train", "valid"))
    file = _table(folder, [f"{part}.csv", f"{part}.csv.gz"], CHEXPERT)
    facts = ("Path", "Sex", "Age", "Frontal/Lateral", "AP/PA")
    names = _chosen(labels, _LABELLED, PAPER_LABELS["chexpert"])
    (path, sex, age, side, view), Y = _labelled(file, CHEXPERT, facts, names, uncertain, blank)
    # A path begins with the name of the release, which may have been unpacked under another.
    ids = np.array([path_text.partition("/")[2] for path_text in path.tolist()], dtype=np.str_)
    data = MultiLabelData(
        X=None,
        Y=Y,
        label_names=names,
        ids=ids,
        groups=np.array([_patient(path_text, file) for path_text in ids.tolist()], dtype=np.str_),
        columns={"view": np.where(side == "Lateral", "L", view), "sex": sex, "age": age},
        name=f"chexpert {file.name.partition('.')[0]}",
    )
    return _taken(
        data,
        CHEXPERT,
        views,
        size if images else None,
        lambda some: [file.parent / path_text for path_text in some.ids.tolist()],
    )


def mimic(
    folder: str | Path,
    part: str | None = None,
    *,
    labels: str | Sequence[str] = "paper",
    views: Sequence[str] | None = FRONTAL,
    uncertain: str = "missing",
    blank: str = "missing",
    images: bool = True,
    size: Size = 224,
) -> MultiLabelData:
    """Read MIMIC-CXR-JPG: 377,110 chest X-rays of Beth Israel Deaconess, labelled as CheXpert is.

    Parameters
    ----------
    folder
        The release as PhysioNet distributes it, with ``files`` and ``mimic-cxr-2.0.0-*.csv.gz``;
        the .csv files may be unpacked.
    part
        ``"train"``, ``"validate"`` or ``"test"`` of the owners' split; None takes all.
    views
        Values of ``ViewPosition``, for example ``"AP"``, ``"PA"`` and ``"LATERAL"``; None: all.
    uncertain, blank
        As in :func:`chexpert`: both files come from the same labeller.

    Returns
    -------
    MultiLabelData
        Ids are the ``dicom_id``, groups the ``subject_id``; columns ``view`` and ``study``. An
        image has the labels of its study; images of a study without labels are left out.
    """
    _check_part(part, (None, "train", "validate", "test"))
    home = Path(folder)

    def table(kind: str) -> Path:
        names = [f"mimic-cxr-2.0.0-{kind}.csv.gz", f"mimic-cxr-*-{kind}.csv*"]
        return find(home, names, MIMIC)

    names = _chosen(labels, _LABELLED, PAPER_LABELS["mimic"])
    (studies,), Y = _labelled(table("chexpert"), MIMIC, ("study_id",), names, uncertain, blank)
    row_of = {study: row for row, study in enumerate(studies.tolist())}
    if len(row_of) < len(studies):  # one row would label the images of another
        raise InputError("folder", "must have one row of labels a study, and some study has two")
    facts = ("dicom_id", "subject_id", "study_id", "ViewPosition")
    dicom, subject, study, view = columns(table("metadata"), facts, MIMIC)
    row = np.array([row_of.get(study_id, -1) for study_id in study.tolist()], dtype=np.int64)
    keep = row >= 0
    if part is not None:
        name, side = columns(table("split"), ("dicom_id", "split"), MIMIC)
        keep &= np.isin(dicom, name[side == part])
    data = MultiLabelData(
        X=None,
        Y=Y[row],
        label_names=names,
        ids=dicom,
        groups=subject,
        columns={"view": view, "study": study},
        name="mimic" if part is None else f"mimic {part}",
    )

    def paths(some: MultiLabelData) -> list[Path]:
        assert some.groups is not None
        return [
            home / "files" / f"p{who[:2]}" / f"p{who}" / f"s{what}" / f"{name}.jpg"
            for who, what, name in zip(some.groups, some.columns["study"], some.ids, strict=True)
        ]

    return _taken(data.take(keep), MIMIC, views, size if images else None, paths)


def padchest(
    folder: str | Path,
    *,
    labels: str | Sequence[str] = "paper",
    views: Sequence[str] | None = FRONTAL,
    images: bool = True,
    size: Size = 224,
) -> MultiLabelData:
    """Read PadChest: 160,868 chest X-rays of Hospital San Juan (Alicante), in 174 findings.

    Parameters
    ----------
    folder
        The folder with ``PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv`` (or .csv.gz) and
        the images, flat or in subfolders 0, 1, ... as their archives are numbered; or that file.
    labels
        The 15 labels of the paper, or some of their names; :data:`PADCHEST_WORDS` says of which
        findings.
    views
        Values of ``Projection``: ``"PA"``, ``"AP"``, ``"AP_horizontal"``, ``"L"``; None: all.

    Returns
    -------
    MultiLabelData
        Ids are the ``ImageID``, groups the ``PatientID``; columns ``view``, ``method``
        (``"Physician"`` or ``"RNN_model"``) and ``findings`` as they are written. No label is
        missing or uncertain; records without a list of findings are left out.
    """
    names = _chosen(labels, PAPER_LABELS["padchest"], PAPER_LABELS["padchest"])
    file = _table(folder, ["PADCHEST_*.csv", "PADCHEST_*.csv.gz"], PADCHEST)
    facts = ("ImageID", "ImageDir", "PatientID", "Projection", "MethodLabel", "Labels")
    name, folder_name, patient, view, method, listed = columns(file, facts, PADCHEST)

    @cache  # many records have the same findings
    def votes(text: str) -> list[bool]:
        findings = _findings(text, file)
        return [
            any(w in finding for finding in findings for w in PADCHEST_WORDS[label])
            for label in names
        ]

    data = MultiLabelData(
        X=None,
        Y=np.array([votes(text) for text in listed.tolist()], np.int8).reshape(-1, len(names)),
        label_names=names,
        ids=name,
        groups=patient,
        columns={"view": view, "method": method, "findings": listed},
        name="padchest",
    )
    folder_of = dict(zip(name.tolist(), folder_name.tolist(), strict=True))

    def paths(some: MultiLabelData) -> list[Path]:
        home = file.parent  # flat, or in numbered folders
        places = [(home / folder_of[image] / image, home / image) for image in some.ids.tolist()]
        return [numbered if numbered.is_file() else flat for numbered, flat in places]

    usable = data.take(~np.isin(listed, ("", "nan")))
    return _taken(usable, PADCHEST, views, size if images else None, paths)


def nih(
    folder: str | Path,
    part: str | None = None,
    *,
    labels: str | Sequence[str] = "all",
    views: Sequence[str] | None = FRONTAL,
    images: bool = True,
    size: Size = 224,
) -> MultiLabelData:
    """Read NIH ChestX-ray14: 112,120 frontal chest X-rays of the NIH Clinical Center.

    Parameters
    ----------
    folder
        The folder with ``Data_Entry_2017_v2020.csv`` (or .csv.gz, or the older one) and the images
        in ``images`` or ``images_001/images``, ...; or the .csv file itself.
    part
        ``"train_val"`` or ``"test"`` of the owners' lists, which share no patient; None: all.
    views
        ``"AP"``, ``"PA"`` or both.

    Returns
    -------
    MultiLabelData
        Ids are file names; column ``view``. No label is missing.
    """
    _check_part(part, (None, "train_val", "test"))
    names = _chosen(labels, PAPER_LABELS["nih"], PAPER_LABELS["nih"])
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

    data = MultiLabelData(
        X=None,
        Y=np.array([votes(text) for text in listed.tolist()], np.int8).reshape(-1, len(names)),
        label_names=names,
        ids=image,
        groups=patient,
        columns={"view": view},
        name="nih" if part is None else f"nih {part}",
    )
    if part is not None:
        members = lines_of(file.parent / f"{part}_list.txt", NIH)
        data = data.take(np.isin(image, [line.strip() for line in members]))

    def paths(some: MultiLabelData) -> list[Path]:
        home = file.parent / "images"  # or one folder for each archive
        files = {} if home.is_dir() else {p.name: p for p in home.parent.glob("images_*/images/*")}
        if not files and not home.is_dir():
            raise absent(f"the folder {home}", NIH)
        return [files.get(name, home / name) for name in some.ids.tolist()]

    return _taken(data, NIH, views, size if images else None, paths)


# -- what they share -------------------------------------------------------------------------------


def _check_part(part: Any, known: Sequence[str | None]) -> None:
    if part not in known:
        raise InputError("part", f"must be one of {', '.join(map(str, known))}", part)


def _table(given: str | Path, patterns: Sequence[str], source: str) -> Path:
    """Return the table itself, or where it lies in a folder."""
    return Path(given) if Path(given).is_file() else find(Path(given), patterns, source)


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


def _taken(
    data: MultiLabelData,
    source: str,
    views: Sequence[str] | None,
    size: Size | None,
    paths: Callable[[MultiLabelData], Sequence[Path]],
) -> MultiLabelData:
    """Return the records that were taken in one of the ``views``, with their images.

    Images are grey and cropped to the middle, the first must be there; without a ``size`` none are.
    """
    if views is not None:
        if isinstance(views, str) or not views:
            raise InputError("views", "must be a list of views", views)
        views_there = ", ".join(sorted(set(data.columns["view"].tolist()) - {""}))
        data = data.take(np.isin(data.columns["view"], list(views)))
        if not len(data):
            rule = "must be views that records have"
            raise InputError("views", rule, views, sealed=f"there are {views_there}")
    if size is None:
        return data
    files = paths(data)
    if len(files) and not files[0].is_file():
        raise absent("the image of the first record", source, sealed=f"it is {files[0]}")
    X = Images(paths=[str(file) for file in files], size=size, channels=1, fit="crop")
    return replace(data, X=X)


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
        raise InputError(
            f"{file}: a path must be release/part/patient.../...", sealed=f"it is {shown(path)}"
        )
    return steps[1]


def _labelled(
    file: Path,
    source: str,
    facts: Sequence[str],
    names: Sequence[str],
    uncertain: str,
    blank: str,
) -> tuple[list[Texts], Labels]:
    """Return facts, and the labels of what the CheXpert labeller wrote: 1, 0, -1 (uncertain), none.

    A disease that a report does not mention is 0 where it has no finding at all.
    """
    for argument, value in (("uncertain", uncertain), ("blank", blank)):
        if value not in _POLICIES:
            raise InputError(argument, f"must be one of {', '.join(_POLICIES)}", value)
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
    Y = np.stack([codes[name] for name in names], axis=1)
    for code, name in zip(Y.T, names, strict=True):
        if name not in _NOT_A_DISEASE:
            code[healthy & (code == _BLANK)] = 0
    Y[Y == _UNCERTAIN] = _POLICIES[uncertain]
    Y[Y == _BLANK] = _POLICIES[blank]
    return read[: len(facts)], Y
