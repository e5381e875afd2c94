"""A saved student runs no code when it is loaded."""

import contextlib
import io
import json
import os
import pickle
import zipfile

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.refusals import refused

from privote.errors import InputError, PrivoteWarning
from privote.guarantees import Guarantee
from privote.learning.rows import label_probabilities
from privote.learning.saving import load_student, save_student
from privote.learning.students import PartialLabels, train_student

RNG = np.random.default_rng(1)
X = RNG.normal(size=(60, 3))
Y = (X[:, :2] > 0).astype(np.int8)
NAMES = ("left", "right")
GUARANTEE = Guarantee(
    kind="moments", epsilon=2.0, delta=1e-6, mechanism={}, voters=60, released="sums", text="x"
)
FACTS = {
    "network": None, "label_names": [], "feature_names": None, "guarantee": None,
    "method": None, "version": "0", "table": False, "thresholds": 0.5, "format": 3,
}  # fmt: skip


@pytest.mark.parametrize(
    "student",
    [
        None,
        RandomForestClassifier(5),
        PartialLabels(make_pipeline(StandardScaler(), RandomForestClassifier(3))),
    ],
    ids=["default", "forest", "pipeline"],
)
def test_a_student_comes_back_as_it_went(tmp_path, student):
    model = train_student(student, X, Y, random_state=0)
    path = tmp_path / "a.student"
    names = {"label_names": NAMES, "feature_names": list("abc")}
    save_student(path, model, **names, guarantee=GUARANTEE, method="teachers")
    back = load_student(path, trusted=["sklearn.tree._tree.Tree"])
    assert np.array_equal(back.predict_proba(X), label_probabilities(model, X, 2))
    assert ((back.predict_proba(X) >= 0.5) == Y).mean() > 0.9
    assert (back.label_names, back.method) == (NAMES, "teachers")
    assert back.guarantee == GUARANTEE
    assert back.feature_names == ("a", "b", "c")
    assert [p.name for p in tmp_path.iterdir()] == ["a.student"]


def test_a_student_of_too_few_records_says_so_wherever_it_is_loaded(tmp_path):
    path, model = tmp_path / "a.student", train_student(None, X, Y, random_state=0)
    save_student(path, model, label_names=NAMES, doubtful=True)
    with pytest.warns(PrivoteWarning, match="always answering no"):
        load_student(path)


class Bomb:
    def __reduce__(self):
        return os.system, ("touch exploded",)


def test_code_in_a_file_is_refused_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = PartialLabels().fit(X, Y)
    model.estimators_[0] = Bomb()
    with contextlib.suppress(Exception):  # whatever skops says to what it cannot keep
        save_student("b.student", model, label_names=NAMES)
        load_student("b.student")
    with zipfile.ZipFile("c.student", "w") as file:
        file.writestr("facts.json", json.dumps(FACTS))
        file.writestr("student.skops", pickle.dumps(Bomb()))
    with pytest.raises(InputError):
        load_student("c.student")
    assert not (tmp_path / "exploded").exists()


class Stranger(PartialLabels):
    pass


def test_an_unknown_type_is_refused_unless_named(tmp_path):
    path = tmp_path / "s.student"
    save_student(path, Stranger().fit(X, Y), label_names=NAMES)
    with pytest.raises(InputError, match="Stranger"):
        load_student(path)
    forest = tmp_path / "f.student"
    save_student(forest, train_student(RandomForestClassifier(2), X, Y), label_names=NAMES)
    with pytest.raises(InputError, match="Tree"):  # a tree may point outside of its own arrays
        load_student(forest)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.student", lambda path: None),
        ("a.student", lambda path: path.write_bytes(b"no zip")),
        ("a.student", lambda path: path.mkdir()),
        ("a.pkl", lambda path: path.touch()),
    ],
)
def test_what_is_no_student_is_refused(tmp_path, name, make):
    make(tmp_path / name)
    with refused():
        load_student(tmp_path / name)


def archive(folder, facts, content=b""):
    path = folder / "h.student"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("facts.json", facts)
        for member in ("student.skops", "student.safetensors"):
            file.writestr(member, content)
    return path


@pytest.mark.parametrize(
    ("facts", "content"),
    [
        ("[" * 10_000, b""),
        (json.dumps([1]), b""),
        (json.dumps({**FACTS, "label_names": "text"}), b""),
        (json.dumps({**FACTS, "network": "unheard of"}), b""),
        (json.dumps({**FACTS, "network": "mixmatch", "parameters": {"steps": "x"}}), b"no zip"),
        (" " * (2 << 20), b""),
    ],
)
def test_hostile_files_end_in_one_sentence(tmp_path, facts, content):
    with refused():
        load_student(archive(tmp_path, facts, content))


def test_a_member_that_unpacks_to_too_much_is_not_unpacked(tmp_path, monkeypatch):
    from privote.learning import saving

    monkeypatch.setattr(saving, "_MOST", 5_000)
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("schema.json", b" " * 100_000)
    with pytest.raises(InputError, match="unpack"):
        load_student(archive(tmp_path, json.dumps(FACTS), inner.getvalue()))
