"""Every file says which format and version wrote it; another format is refused with both."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

import privote as pv
from privote.capc.journal import GuardianJournal
from privote.capc.models import SiteModel
from privote.errors import PrivoteError
from privote.learning.students.saving import load_student, save_student
from privote.votes.arrays import read, write_packed

VOTES = np.random.default_rng(0).random((20, 10, 3)) < 0.2
BINARY = pv.BinaryVoting(sigma=5.0)
EVERY: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "guarantee": "worst-case", "queries": 1}
Edit = Callable[[dict[str, Any]], dict[str, Any]]


def released(path: Path) -> Path:
    file = path / "release.npz"
    pv.label(VOTES, mechanism=BINARY, **EVERY).save(file)
    return file


def student(path: Path) -> Path:
    X, Y = VOTES.sum(2), VOTES[:, 0].astype(int)
    model = OneVsRestClassifier(LogisticRegression()).fit(X, Y)
    save_student(file := path / "a.student", model, label_names="abc")
    return file


def model(path: Path) -> Path:
    made = SiteModel(weights=np.ones((4, 3)), bias=0.0, labels="abc", thresholds=0.5)
    made.save(file := path / "model.npz")
    return file


def votes(path: Path) -> Path:
    write_packed(file := path / "votes.npz", VOTES)
    return file


def ledger(path: Path) -> Path:
    file = path / "ledger.db"
    pv.label(VOTES, mechanism=BINARY, ledger=file, **EVERY)
    return file


def backup(path: Path) -> Path:
    book = pv.Ledger.open(ledger(path))
    book.backup(file := path / "a.backup")
    return file


def journal(path: Path) -> Path:
    GuardianJournal(file := path / "journal.db", "promise", "site").close()
    return file


def edit_zip(file: Path, member: str, edit: Edit) -> None:
    with zipfile.ZipFile(file) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    held[member] = json.dumps(edit(json.loads(held[member]))).encode()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in held.items():
            archive.writestr(name, content)


def edit_arrays(file: Path, name: str, edit: Edit) -> None:
    with np.load(file) as arrays:
        held = dict(arrays)
    held[name] = np.array(json.dumps(edit(json.loads(str(held[name])))))
    np.savez(file, **held)


def edit_database(file: Path, statement: str) -> None:
    with sqlite3.connect(file) as connection:
        connection.executescript(f"PRAGMA user_version=77; {statement}")


def other(facts: dict[str, Any]) -> dict[str, Any]:
    assert facts["version"] == pv.__version__
    return {**facts, "format": 77, "version": "9.1"}


FILES: dict[str, tuple[Any, Any, Any]] = {
    "release": (released, lambda f: edit_arrays(f, "facts", other), pv.Release.load),
    "student": (student, lambda f: edit_zip(f, "facts.json", other), load_student),
    "model": (model, lambda f: edit_arrays(f, "written", other), SiteModel.load),
    "votes": (votes, lambda f: edit_arrays(f, "written", other), read),
    "backup": (
        backup,
        lambda f: edit_zip(f, "manifest.json", other),
        lambda f: pv.Ledger.restore(f, f.with_name("again.db")),
    ),
    "ledger": (
        ledger,
        lambda f: edit_database(
            f,
            "DROP TRIGGER entries_stay; "
            f"""UPDATE entries SET body = replace(body, '"{pv.__version__}"', '"9.1"')""",
        ),
        pv.Ledger.open,
    ),
    "journal": (
        journal,
        lambda f: edit_database(f, "UPDATE facts SET value = '9.1' WHERE name = 'version'"),
        lambda f: GuardianJournal(f, "promise", "site"),
    ),
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
