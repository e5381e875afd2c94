"""``privote train --method neighbours``: from tables to a student file, and back to predictions."""

import csv

import numpy as np
import pytest
from typer.testing import CliRunner

from privote import metrics
from privote.cli import app
from privote.learning import load_student

ROWS = {"private": 2500, "public": 60, "test": 200}


def invoke(*arguments):
    return CliRunner().invoke(app, [str(part) for part in arguments])


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    for name, rows in ROWS.items():
        X = rng.normal(size=(rows, 3))
        Y = (X[:, :2] > 0.4).astype(int)
        with (folder / f"{name}.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["who", "a", "b", "c", "flu", "cold"])
            writer.writerows(
                [f"p{i}", *map(float, x), *map(int, y)]
                for i, (x, y) in enumerate(zip(X, Y, strict=True))
            )
    return folder


def test_records_vote_and_the_student_file_predicts(tables):
    output = tables / "run"
    result = invoke(
        "train", tables / "private.csv", "--labels", "flu,cold", "--columns", "a,b,c",
        "--group-column", "who", "--public", tables / "public.csv", "--test", tables / "test.csv",
        "--method", "neighbours", "--epsilon", 8, "--delta", "1e-5", "--seed", 1,
        "--output", output,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "60" in result.output
    student = load_student(output / "student.student")
    assert type(student.model).__name__ == "LinearStudent"
    assert student.privacy["voters"] == ROWS["private"]
    with (output / "labels.csv").open() as stream:
        rows = [line["row"] for line in csv.DictReader(stream)]
    assert sorted(map(int, rows)) == list(range(60))
    predicted = tables / "predicted.csv"
    result = invoke(
        "predict", output / "student.student", tables / "test.csv", "--output", predicted
    )
    assert result.exit_code == 0, result.output
    with predicted.open() as stream:
        assert len(list(csv.DictReader(stream))) == ROWS["test"]
    truth = np.loadtxt(tables / "test.csv", delimiter=",", skiprows=1, usecols=(1, 2, 3, 4, 5))
    found = metrics.multilabel(truth[:, 3:].astype(int), student.predict_proba(tables / "test.csv"))
    assert found["AUC"] > 0.8
