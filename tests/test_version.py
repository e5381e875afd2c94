"""Every file says which format and version wrote it; another format is refused with both."""

from __future__ import annotations

import json
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.capc.coalitions import terms_of

import privote as pv
from privote.capc.journal import GuardianJournal
from privote.capc.models import SiteModel
from privote.errors import PrivoteError
from privote.learning.saving import load_student, save_student
from privote.learning.students import PartialLabels
from privote.votes.arrays import read, write_packed

VOTES = np.random.default_rng(0).random((20, 10, 3)) < 0.2
BINARY = pv.BinaryVoting(sigma=5.0)
EVERY: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "guarantee": "worst-case", "queries": 1}


def released(path: Path) -> Path:
    file = path / "release.npz"
    pv.label(VOTES, mechanism=BINARY, **EVERY).save(file)
    return file


def model(path: Path) -> Path:
    made = SiteModel(weights=np.ones((4, 3)), bias=0.0, labels="abc", thresholds=0.5)
    made.save(file := path / "model.npz")
    return file


def votes(path: Path) -> Path:
    write_packed(file := path / "votes.npz", VOTES)
    return file


def journal(path: Path) -> Path:
    GuardianJournal(file := path / "journal", terms_of(), "pg").close()
    return file


def student(path: Path) -> Path:
    fitted = PartialLabels().fit(VOTES[:, 0], VOTES[:, 1].astype(np.int8))
    save_student(file := path / "a.student", fitted, label_names="abc")
    return file


def edit_student(file: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    facts = {**json.loads(held["facts.json"]), "format": 77, "version": "9.1"}
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in {**held, "facts.json": json.dumps(facts)}.items():
            archive.writestr(name, content)


def edit_arrays(name: str, file: Path) -> None:
    with np.load(file) as arrays:
        held = dict(arrays)
    facts = json.loads(str(held[name]))
    assert facts["version"] == pv.__version__
    held[name] = np.array(json.dumps({**facts, "format": 77, "version": "9.1"}))
    np.savez(file, **held)


def edit_journal(folder: Path) -> None:
    file = folder / "journal.json"
    facts = {**json.loads(file.read_text()), "format": 77, "version": "9.1"}
    file.write_text(json.dumps(facts))


# Ledgers and their backups: in their own room, and among the attacks.
FILES: dict[str, tuple[Any, Any, Any]] = {
    "release": (released, partial(edit_arrays, "facts"), pv.Release.load),
    "model": (model, partial(edit_arrays, "written"), SiteModel.load),
    "votes": (votes, partial(edit_arrays, "written"), read),
    "journal": (journal, edit_journal, lambda f: GuardianJournal(f, terms_of(), "pg")),
    "student": (student, edit_student, load_student),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_format_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    make, edit, load = FILES[name]
    file = make(tmp_path)
    edit(file)
    with pytest.raises(PrivoteError) as caught:
        load(file)
    sentence = str(caught.value)
    assert "format 77, written by privote 9.1; this is privote " + pv.__version__ in sentence
    assert "\n" not in sentence
