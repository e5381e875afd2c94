"""``privote train`` and ``privote predict``: from tables to a student and its predictions."""

import csv
import json
import re
from hashlib import sha256

import numpy as np
import pytest
from tests.cli.conftest import invoke, write_rows

from privote.datasets import load_patients
from privote.datasets.tables import write_table
from privote.learning import load_student

BUDGET = ("--epsilon", "8", "--delta", "1e-5")
COLUMNS = ("--columns", "a,b,c")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("tables"), private=1500, public=100, test=150)


def train(tables, *more, labels="flu,cold"):
    sides = ("--public", tables / "public.csv", "--test", tables / "test.csv")
    return invoke("train", tables / "private.csv", "--labels", labels, *sides, *BUDGET, *more)


def read(path):
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def trained(tables):
    more = ("--group-column", "who", *COLUMNS, "--teachers", 20, "--output", tables / "run")
    result = train(tables, *more, "--json")
    assert result.exit_code == 0, result.output
    return tables / "run", json.loads(result.stdout)


def test_train_writes_all_it_says(trained):
    output, facts = trained
    assert sorted(path.name for path in output.iterdir()) == sorted(facts["written"])
    assert facts["guarantee"]["epsilon"] <= 8
    assert facts["test"] == []  # private rows: no epsilon covers their figures
    rows = read(output / "labels.csv")
    assert [*rows[0]] == ["row", "id", "flu", "cold"]
    assert len(rows) == facts["release"]["answered"]
    quality, told = read(output / "labels-quality.csv"), facts["release"]["quality"]["by_label"]
    assert [row["label"] for row in quality] == ["flu", "cold"]
    assert [int(row["ones"]) for row in quality] == [
        sum(row[name] == "1" for row in rows) for name in ("flu", "cold")
    ]
    for name in ("precision", "recall"):
        written = [float(row[f"expected {name}"]) for row in quality]
        assert written == pytest.approx(told[name], abs=1e-3)
    assert "PRIVACY STATEMENT" in (output / "statement.txt").read_text()
    assert "Expected quality" in (output / "report.html").read_text()
    saved = load_student(output / "student.student")
    assert saved.label_names == ("flu", "cold")
    assert saved.guarantee.epsilon == facts["guarantee"]["epsilon"]


def test_what_is_sealed_is_for_the_owner(trained):
    output, facts = trained
    file = output / "for-the-owner.json"
    figures = json.loads(file.read_text())
    assert figures["test"][0]["AUC"] > 0.8
    assert {label["label"] for label in figures["labels"]} == {"flu", "cold"}
    page = file.with_suffix(".html")
    assert file.stat().st_mode & 0o077 == page.stat().st_mode & 0o077 == 0
    open_files = [path for path in output.iterdir() if path.stem != file.stem]
    said = json.dumps(facts)
    said += "".join(path.read_bytes().decode(errors="replace") for path in open_files)
    for name in ("ACC", "BAC", "AUC", "MAP"):
        assert f"{figures['test'][0][name]:.6f}" not in said
        assert f">{name}<" not in said
    for word in ("spent", "exhausted"):
        assert all(word.encode() not in path.read_bytes() for path in output.iterdir())


def test_figures_leave_where_that_is_asked_for(tables):
    more = (*COLUMNS, "--teachers", 20, "--output", tables / "open", "--force")
    quiet = train(tables, *more)
    assert "AUC" not in quiet.output
    assert "--show-sealed prints them" in quiet.output
    assert "For the owner's eyes: test rows" in train(tables, *more, "--show-sealed").output
    asked = json.loads(train(tables, *more, "--show-sealed", "--json").stdout)
    assert asked["sealed"]["test"][0]["AUC"] > 0.8
    public = json.loads(train(tables, *more, "--test-is-public", "--json").stdout)
    assert public["test"][0]["AUC"] > 0.8
    assert "AUC" in (tables / "open" / "report.html").read_text()


def test_predict_uses_the_saved_student(trained, tables, tmp_path):
    output, _ = trained
    student, target = output / "student.student", tmp_path / "p.csv"
    command = ("predict", student, tables / "test.csv", "--output", target)
    result = invoke(*command)  # columns are found by name
    assert result.exit_code == 0, result.output
    assert "teachers" in result.stdout
    lines = [line.split(",")[::-1] for line in (tables / "test.csv").read_text().splitlines()]
    (tmp_path / "turned.csv").write_text("\n".join(map(",".join, lines)))
    turned = invoke("predict", student, tmp_path / "turned.csv", "--output", tmp_path / "t.csv")
    assert turned.exit_code == 0, turned.output
    assert (tmp_path / "t.csv").read_text() == target.read_text()
    assert invoke(*command).exit_code == 2  # it exists
    own = float(load_student(student).thresholds[0])  # from what was released
    for bar, more in ((own, ()), (0.5, ("--threshold", 0.5))):
        assert invoke(*command, "--force", *more).exit_code == 0
        rows = [row for row in read(target) if abs(float(row["flu probability"]) - bar) > 1e-5]
        assert len(rows) > 100
        assert all((float(row["flu probability"]) >= bar) == (row["flu"] == "1") for row in rows)


def test_a_data_set_by_name(tmp_path):
    for more, words in (
        (("--teachers", 20, "--queries", 30), ("SIMULATED", "AUC: area under the ROC curve")),
        ((), ("quality", "noisy gradient descent")),
    ):
        call = ("train", "scenes", *more, *BUDGET, "--seed", 1, "--force")
        result = invoke(*call, "--output", tmp_path / "run")
        assert result.exit_code == 0, result.output
        assert all(each in " ".join(result.output.split()) for each in words)


def test_a_folder_that_is_there_is_written_to_by_force_only(tables, tmp_path):
    (tmp_path / "keep.txt").write_text("mine")
    result = train(tables, *COLUMNS, "--teachers", 10, "--output", tmp_path)
    assert result.exit_code == 2
    assert "--output" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["keep.txt"]


def test_a_budget_that_is_used_up_is_refused(tables, tmp_path):
    common = (*COLUMNS, "--teachers", 20, "--ledger", tmp_path / "a.ledger", "--queries", 20)
    for name in ("one", "two"):  # the second goes on with what is left
        done = train(tables, *common, "--electorate", "ward", "--output", tmp_path / name)
        assert done.exit_code == 0, done.output
    refused = train(tables, *common, "--guarantee", "allowance", "--output", tmp_path / "three")
    assert refused.exit_code == 3, refused.output


def test_words_gaps_and_persons_need_no_preparation(tmp_path):
    data = load_patients(1500, 0)
    sides = {"private": slice(0, 1000), "public": slice(1000, 1300), "test": slice(1300, 1500)}
    for name, rows in sides.items():
        write_table(tmp_path / f"{name}.csv", data.take(np.arange(1500)[rows]))
    named = ("--id-column", "id", "--group-column", "person", "--output", tmp_path / "run")
    result = train(tmp_path, *named, "--json", labels=",".join(data.label_names))
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["method"] in ("gradients", "moments")
    assert facts["reasons"]
    assert facts["expected"]
    output, student = tmp_path / "run", tmp_path / "run" / "student.student"
    assert json.loads((output / "for-the-owner.json").read_text())["test"][0]["AUC"] > 0.7
    stated = json.loads((output / "statement.json").read_text())
    assert stated["records"] == len(set(data.groups[:1000]))
    assert stated["model"]["sha256"] == sha256(student.read_bytes()).hexdigest()
    page = (output / "report.html").read_text()
    assert stated["model"]["sha256"] in page
    assert str(tmp_path) not in page
    # What was given is all there, by the names of files.
    for words in ("privote train private.csv --labels", "--test test.csv", "--group-column person"):
        assert words in page

    target = tmp_path / "p.csv"
    call = ("predict", student, tmp_path / "test.csv", "--force", "--json", "--output", target)
    told = invoke(*call)
    assert told.exit_code == 0, told.output
    rows = read(target)
    assert [row["id"] for row in rows] == data.ids[1300:].astype(str).tolist()  # they come along
    truth = data.Y[1300:]
    right = np.array([[int(row[name]) for name in data.label_names] for row in rows]) == truth
    assert right[truth >= 0].mean() > (truth[truth >= 0] == 0).mean()  # better than always no
    found = [*json.loads(told.stdout)["thresholds"].values()]
    assert found == pytest.approx(load_student(student).thresholds)
    assert invoke(*call, "--id-column", "person").exit_code == 0
    assert read(target)[0]["person"] == str(data.groups[1300])
    for column in ("nobody", "row", data.label_names[0]):
        assert invoke(*call, "--id-column", column).exit_code == 2


def test_persons_are_counted_and_not_compared_with_public_rows(tmp_path):
    rows = [f"p{place // 2},{place % 9},{place % 2}" for place in range(200)]
    for name, part in (("private", rows[:100]), ("same", rows[90:])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["who,age,flu", *part]))
    done = invoke(
        *("train", tmp_path / "private.csv", "--labels", "flu", "--group-column", "who"),
        *("--public", tmp_path / "same.csv", *BUDGET, "--output", tmp_path / "run", "--json"),
    )
    assert done.exit_code == 0, done.stderr
    assert "among" not in done.stderr  # it would tell whether a person is private
    assert "50 persons, 1 label" in (tmp_path / "run" / "report.html").read_text()


def test_labels_whose_ones_drown_in_noise_are_named(tmp_path):
    """And the terminal says what rows went through."""
    rng = np.random.default_rng(0)
    names = [f"x{number}" for number in range(12)]
    for side, count in (("private", 400), ("public", 120)):
        rows = rng.normal(size=(count, 12)).round(3)
        marks = (rows[:, :3] > (0.0, 1.2, 1.2)).astype(int)
        lines = [",".join(map(str, [*row, *mark])) for row, mark in zip(rows, marks, strict=True)]
        (tmp_path / f"{side}.csv").write_text(
            "\n".join([",".join([*names, "a", "b", "c"]), *lines])
        )
    sides = (tmp_path / "private.csv", "--public", tmp_path / "public.csv", "--labels", "a,b,c")
    more = ("--columns", ",".join(names), "--method", "teachers", "--teachers", 40, "--seed", 1)
    cost = ("--epsilon", 0.5, "--delta", "1e-5", "--output", tmp_path / "run")
    done = invoke("train", *sides, *more, *cost, "--embedding", "pca:4")
    assert done.exit_code == 0, done.output
    assert "pca:4" in done.stdout
    rows = read(tmp_path / "run" / "labels.csv")
    assert not any(row["b"] == row["c"] == "1" for row in rows)
    assert re.search(r"almost\s+no 1 for", done.stderr)


# -- every method ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("gradients", ()),
        ("moments", ("--embedding", "std:2")),
        ("dpsgd", ("--network", "linear", "--steps", 15)),
    ],
)
def test_a_model_is_trained_charged_saved_and_used(tables, tmp_path, method, more):
    if method == "dpsgd":
        pytest.importorskip("opacus")
    account = ("--ledger", tmp_path / "a.ledger", "--dataset", "ward 3", "--budget", 8)
    asked = (*COLUMNS, "--method", method, *more, *account)
    output = tmp_path / "run"
    result = train(tables, *asked, "--output", output, "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["method"] == method
    assert 4 < facts["guarantee"]["epsilon"] <= 8
    assert facts["guarantee"]["voters"] == 1500
    for words in ("--ledger a.ledger --dataset 'ward 3' --budget 8", "--test test.csv", *more):
        assert str(words) in facts["command"]  # a copy that lacks one would not be charged
    assert sorted(path.name for path in output.iterdir()) == sorted(facts["written"])
    owner = json.loads((output / "for-the-owner.json").read_text())
    assert owner["test"][0]["AUC"] > 0.8
    assert "a record, replaced by any other" in (output / "statement.txt").read_text()
    student = output / "student.student"
    assert load_student(student).guarantee.epsilon == facts["guarantee"]["epsilon"]
    checked = invoke("ledger", "check", student, "--ledger", tmp_path / "a.ledger")
    assert checked.exit_code == 0, checked.output
    done = invoke("predict", student, tables / "test.csv", "--output", tmp_path / "p.csv", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["student's guarantee, by its file"] == "unconditional"
    assert said["student's method, by its file"] == method
    assert len(read(tmp_path / "p.csv")) == 150
    again = train(tables, *asked, "--output", tmp_path / "two")
    assert again.exit_code == 3, again.output  # the budget is used
    assert not (tmp_path / "two").exists()


def test_neighbours_vote_and_their_student_is_charged_once(tables, tmp_path):
    asked = (*COLUMNS, "--method", "neighbours", "--ledger", tmp_path / "a.ledger")
    result = train(tables, *asked, "--output", tmp_path / "run", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["method"] == "neighbours"
    assert 4 < facts["guarantee"]["epsilon"] <= 8
    owner = json.loads((tmp_path / "run" / "for-the-owner.json").read_text())
    assert owner["test"][0]["AUC"] > 0.7
    student = tmp_path / "run" / "student.student"
    assert invoke("ledger", "check", student, "--ledger", tmp_path / "a.ledger").exit_code == 0
    assert train(tables, *asked, "--output", tmp_path / "two").exit_code == 3  # the budget is used


def test_networks_learn_from_images_and_are_saved(tmp_path):
    pytest.importorskip("skorch")
    kind = ("--method", "teachers", "--network", "smallcnn", "--epochs", 2, "--teachers", 2)
    rng = np.random.default_rng(0)
    for name, rows in (("private", 60), ("public", 20)):
        X = rng.integers(0, 256, (rows, 1, 8, 8)).astype(np.uint8)
        Y = np.stack([X[:, 0, :4].mean((1, 2)) > 127, X[:, 0, 4:].mean((1, 2)) > 127], axis=1)
        np.savez(tmp_path / f"{name}.npz", X=X, Y=Y.astype(np.int8))
    call = ("train", tmp_path / "private.npz", "--labels", "up,down", *kind, *BUDGET)
    result = invoke(*call, "--public", tmp_path / "public.npz", "--output", tmp_path / "run")
    assert result.exit_code == 0, result.output
    call = ("predict", tmp_path / "run" / "student.student", tmp_path / "public.npz")
    assert invoke(*call, "--output", tmp_path / "p.csv").exit_code == 0
    named = invoke(*call, "--output", tmp_path / "p.csv", "--force", "--id-column", "id")
    assert named.exit_code == 2  # arrays have no columns
