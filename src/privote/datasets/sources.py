"""Where each data set comes from, and the error that says so when something is missing.

privote reads data sets as their owners distribute them and brings none of them: most may not be
passed on, and some ask for a signed agreement first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from privote.errors import InputError
from privote.votes.tables import cells, lines

MULAN = "it is at https://mulan.sourceforge.net/datasets-mlc.html (.arff, and .xml of the labels)"
VOC2012 = "it is at http://host.robots.ox.ac.uk/pascal/VOC/voc2012/ (VOCtrainval_11-May-2012.tar)"
CHEXPERT = "CheXpert is at https://stanfordmlgroup.github.io/competitions/chexpert/ (registration)"
MIMIC = "MIMIC-CXR-JPG is at https://physionet.org/content/mimic-cxr-jpg/ (credentialed access)"
PADCHEST = "PadChest is at https://bimcv.cipf.es/bimcv-projects/padchest/ (terms of use)"
NIH = "NIH ChestX-ray14 is at https://nihcc.app.box.com/v/ChestXray-NIHCC (open)"


def absent(what: str | Path, source: str, *, sealed: str | None = None) -> InputError:
    """Return the error that names what is missing and says where it can be had."""
    return InputError(f"{what} is missing; {source}", sealed=sealed)


def find(folder: Path, patterns: Sequence[str], source: str) -> Path:
    """Return the first file in ``folder`` that matches one of the patterns."""
    if not folder.is_dir():
        raise absent(f"the folder {folder}", source)
    for pattern in patterns:
        matches = sorted(folder.glob(pattern))
        if matches:
            return matches[0]
    raise absent(f"the file {patterns[0]} in {folder}", source)


def lines_of(path: Path, source: str) -> Iterator[str]:
    """Return the lines of a text file, which may be packed (``.gz``).

    Names must survive whatever encoding a file is in; bytes that are not UTF-8 come back as is.
    """
    if not path.is_file():
        raise absent(f"the file {path}", source)
    return lines(path, errors="surrogateescape")


def columns(path: Path, names: Sequence[str], source: str) -> list[npt.NDArray[np.str_]]:
    """Return the named columns of a .csv file, each as one text per row."""
    records = cells(lines_of(path, source), ",", str(path))
    header = [name.strip() for name in next(records, (1, []))[1]]
    for name in names:
        if name not in header:
            raise absent(f"the column {name!r} of {path}", source)
    places = [header.index(name) for name in names]
    rows = []
    for line, row in records:
        if len(row) <= max(places):
            raise InputError(f"{path}, line {line}: {len(row)} values, but {len(header)} columns")
        rows.append([row[index] for index in places])
    return [np.array([row[column] for row in rows], dtype=np.str_) for column in range(len(names))]
