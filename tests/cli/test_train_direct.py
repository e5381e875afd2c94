"""``privote train --method gradients | dpsgd``, and networks on images as teachers and students."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from privote.cli import app
from privote.learning import load_student

BUDGET = ["--epsilon", "8", "--delta", "1e-5"]


def invoke(*arguments):
    return CliRunner().invoke(app, [str(part) for part in arguments])


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    for name, rows in (("private", 2000), ("public", 100), ("test", 200)):
        X = rng.normal(size=(rows, 3))
        Y = (X[:, :2] > 0.4).astype(int)
        with (folder / f"{name}.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["visit", "who", "a", "b", "c", "flu", "cold"])
            writer.writerows(
                [f"v{i}", f"p{i // 2}", *map(float, x), *map(int, y)]
                for i, (x, y) in enumerate(zip(X, Y, strict=True))
            )
    return folder


def command(tables, method, *more):
    return (
        "train", tables / "private.csv", "--labels", "flu,cold", "--columns", "a,b,c",
        "--test", tables / "test.csv", "--method", method, *BUDGET, *more,
    )  # fmt: skip


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
    public = ("--public", tables / "public.csv", "--ledger", tmp_path / "a.ledger")
    asked = command(tables, method, *more, *public)
    result = invoke(*asked, "--output", tmp_path / "run", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["method"] == method
    assert 4 < facts["privacy"]["epsilon"] <= 8
    assert facts["privacy"]["records"] == 2000
    assert facts["test"] == []  # private rows: for the owner's eyes
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted(facts["written"])
    owner = json.loads((tmp_path / "run" / "for-the-owner.json").read_text())
    assert owner["test"][0]["AUC"] > 0.85
    assert "for one record replaced" in (tmp_path / "run" / "statement.txt").read_text()
    assert "noise multiplier" in (tmp_path / "run" / "report.html").read_text()
    saved = load_student(tmp_path / "run" / "student.student")
    assert saved.privacy["epsilon"] == facts["privacy"]["epsilon"]
    done = invoke(
        "predict", tmp_path / "run" / "student.student", tables / "test.csv",
        "--output", tmp_path / "p.csv",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    said = dict(line.split("  ", 1) for line in done.stdout.splitlines() if "by its file" in line)
    assert said["student's guarantee, by its file"].strip() == "unconditional"
    made = "noisy moments" if method == "moments" else "noisy gradients"
    assert said["student's method, by its file"].strip() == made
    with (tmp_path / "p.csv").open() as stream:
        assert len(list(csv.DictReader(stream))) == 200
    again = invoke(*asked, "--output", tmp_path / "two")
    assert again.exit_code == 3, again.output  # the budget is used
    assert not (tmp_path / "two").exists()


def test_it_says_that_a_person_is_taken_to_have_one_record(tables, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    said = "one record a person: whoever has several is protected less"
    assumed = invoke(*command(tables, "gradients", "--output", tmp_path / "a"))
    assert said in assumed.stdout, assumed.output
    records = invoke(
        *command(tables, "gradients", "--id-column", "visit", "--output", tmp_path / "c")
    )
    assert said in records.stdout, records.output  # a name of a record is none of a person
    named = command(tables, "gradients", "--group-column", "who", "--output", tmp_path / "b")
    result = invoke(*named)
    assert result.exit_code == 0, result.output
    assert "one record a person" not in result.stdout
    assert "for one person replaced" in (tmp_path / "b" / "statement.txt").read_text()


@pytest.mark.parametrize(
    ("method", "extra", "words"),
    [
        ("magic", (), "--method must be one of"),
        ("gradients", ("--mechanism", "binary", "--sigma", 3), "--mechanism cannot be given"),
        ("gradients", ("--queries", 5), "--queries cannot be given with --method gradients"),
        ("gradients", ("--teachers", 9), "--teachers cannot be given"),
        ("dpsgd", ("--rounds", 2), "--rounds cannot be given"),
        ("dpsgd", ("--threshold", 0.5), "--threshold cannot be given"),
        ("gradients", ("--network", "linear"), "--network cannot be given"),
        ("gradients", ("--sample-rate", 0), "--sample-rate must lie in (0, 1]"),
        ("teachers", ("--steps", 5), "--steps cannot be given with --method teachers"),
        ("neighbours", ("--network", "resnet50"), "--network cannot be given"),
        ("dpsgd", ("--network", "cat"), "--network must be"),
    ],
)
def test_usage_errors_name_the_option(tables, tmp_path, method, extra, words):
    output = tmp_path / "run"
    result = invoke(*command(tables, method, *extra, "--output", output))
    assert result.exit_code == 2, result.output
    assert words in result.output
    assert not output.exists()


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for name, rows in (("private", 60), ("public", 20)):
        X = rng.integers(0, 256, (rows, 1, 8, 8)).astype(np.uint8)
        Y = np.stack([X[:, 0, :4].mean((1, 2)) > 127, X[:, 0, 4:].mean((1, 2)) > 127], axis=1)
        np.savez(folder / f"{name}.npz", X=X, Y=Y.astype(np.int8))
    return folder


@pytest.mark.parametrize(
    "kind",
    [
        ("--method", "dpsgd", "--network", "smallcnn", "--steps", 2),
        ("--method", "teachers", "--network", "smallcnn", "--epochs", 2, "--teachers", 2),
    ],
)
def test_networks_learn_from_images_and_are_saved(images, tmp_path, kind):
    if "dpsgd" in kind:
        pytest.importorskip("opacus")
    else:
        pytest.importorskip("skorch")
    result = invoke(
        "train", images / "private.npz", "--labels", "up,down", "--public", images / "public.npz",
        *kind, *BUDGET, "--output", tmp_path / "run",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    done = invoke(
        "predict", tmp_path / "run" / "student.student", images / "public.npz",
        "--output", tmp_path / "p.csv",
    )  # fmt: skip
    assert done.exit_code == 0, done.output


def test_a_report_of_a_hopeless_model_says_so(tables, tmp_path):
    asked = ("--public", tables / "public.csv", "--epsilon", "0.01", "--output", tmp_path / "run")
    result = invoke(*command(tables, "moments", *asked))
    assert result.exit_code == 0, result.output
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "less often than always saying no" in page
    assert "of AUC on average" not in page
