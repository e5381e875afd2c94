"""``privote train`` and ``privote predict``: from tables to a student and its predictions."""

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
    for name, rows in (("private", 800), ("public", 150), ("test", 100)):
        X = rng.normal(size=(rows, 3))
        Y = (X[:, :2] + 0.2 * rng.normal(size=(rows, 2)) > 0.4).astype(int)
        with (folder / f"{name}.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["who", "a", "b", "c", "flu", "cold"])
            writer.writerows(
                [i // 2, *map(float, x), *map(int, y)]
                for i, (x, y) in enumerate(zip(X, Y, strict=True))
            )
    return folder


@pytest.fixture(scope="module")
def trained(tables):
    output = tables / "run"
    result = invoke(
        "train", tables / "private.csv", "--labels", "flu,cold", "--group-column", "who",
        "--public", tables / "public.csv", "--test", tables / "test.csv",
        "--teachers", "20", *BUDGET, "--output", output, "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return output, json.loads(result.stdout)


def test_train_writes_all_it_says(trained):
    output, facts = trained
    assert sorted(path.name for path in output.iterdir()) == sorted(facts["written"])
    assert facts["release"]["epsilon"] <= 8
    assert facts["test"] == []  # private rows: no epsilon covers their figures
    with (output / "labels.csv").open() as stream:
        rows = list(csv.reader(stream))
    assert rows[0] == ["row", "flu", "cold"]
    assert len(rows) - 1 == facts["release"]["answered"]
    assert "PRIVACY STATEMENT" in (output / "statement.txt").read_text()
    page = (output / "report.html").read_text()
    assert "epsilon" in page
    assert "What to expect of the labels" in page
    saved = load_student(output / "student.student")
    assert saved.label_names == ("flu", "cold")
    assert saved.privacy["epsilon"] == facts["release"]["epsilon"]


def test_figures_on_private_rows_are_for_the_owner(trained, tables):
    output, facts = trained
    file = output / "for-the-owner.json"
    figures = json.loads(file.read_text())
    assert figures["test"][0]["AUC"] > 0.8
    assert "for the owner's eyes" in figures["note"]
    assert {label["label"] for label in figures["labels"]} == {"flu", "cold"}
    page = file.with_suffix(".html")
    assert "computed on private rows, covered by no epsilon" in page.read_text()
    assert file.stat().st_mode & 0o077 == page.stat().st_mode & 0o077 == 0
    said = json.dumps(facts)
    for path in output.iterdir():
        said += "" if path.stem == file.stem else path.read_bytes().decode(errors="replace")
    for name in ("ACC", "BAC", "AUC", "MAP"):
        assert f"{figures['test'][0][name]:.6f}" not in said
        assert f">{name}<" not in said


def test_figures_leave_where_that_is_asked_for(tables):
    command = [
        "train", tables / "private.csv", "--labels", "flu,cold", "--public", tables / "public.csv",
        "--test", tables / "test.csv", "--teachers", "20", *BUDGET, "--output", tables / "open",
        "--force",
    ]  # fmt: skip
    quiet = invoke(*command)
    assert "AUC" not in quiet.output
    assert "for-the-owner.json; --show-sealed prints them" in quiet.output
    sealed = invoke(*command, "--show-sealed")
    assert "For the owner's eyes: on the test rows" in sealed.output
    asked = json.loads(invoke(*command, "--show-sealed", "--json").stdout)
    assert asked["sealed"]["test"][0]["AUC"] > 0.8
    public = json.loads(invoke(*command, "--test-is-public", "--json").stdout)
    assert public["test"][0]["AUC"] > 0.8
    assert "AUC" in (tables / "open" / "report.html").read_text()


def test_predict_uses_the_saved_student(trained, tables, tmp_path):
    output, _ = trained
    target = tmp_path / "p.csv"
    command = ["predict", output / "student.student", tables / "test.csv", "--output", target]
    result = invoke(*command)  # columns are found by name
    assert result.exit_code == 0, result.output
    assert "private votes" in result.stdout
    turned = tmp_path / "turned.csv"
    with (tables / "test.csv").open() as stream:
        lines = [line.strip().split(",")[::-1] for line in stream]
    turned.write_text("\n".join(",".join(line) for line in lines))
    again = invoke("predict", output / "student.student", turned, "--output", tmp_path / "t.csv")
    assert again.exit_code == 0, again.output
    assert (tmp_path / "t.csv").read_text() == target.read_text()
    with target.open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 100
    bar = float(load_student(output / "student.student").thresholds[0])  # its own, from releases
    wide = [row for row in rows if abs(float(row["flu probability"]) - bar) > 1e-5]
    assert all((float(row["flu probability"]) >= bar) == (row["flu"] == "1") for row in wide)
    half = invoke(*command, "--force", "--threshold", "0.5")
    assert half.exit_code == 0, half.output
    with target.open() as stream:
        rows = list(csv.DictReader(stream))
    assert all((float(row["flu probability"]) >= 0.5) == (row["flu"] == "1") for row in rows)
    assert invoke(*command).exit_code == 2  # it exists
    wrong = invoke(*command, "--force", "--columns", "a,b")
    assert wrong.exit_code == 2
    assert "this student knows its columns" in wrong.output


def test_sealed_numbers_stay_out_of_everything_written(trained):
    output, _ = trained
    for path in output.iterdir():
        content = path.read_bytes()
        for word in (b"spent", b"exhausted", b"refused"):
            assert word not in content


def test_a_data_set_by_name(tmp_path):
    result = invoke(
        "train", "scenes", "--teachers", "20", "--queries", "30", *BUDGET, "--seed", "1",
        "--output", tmp_path / "run",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "SIMULATED" in result.output
    assert "AUC the area under the ROC curve" in " ".join(result.output.split())


def test_the_terminal_says_what_to_expect_of_a_model(tables, tmp_path):
    call = ["train", "scenes", *BUDGET, "--seed", "1", "--output", tmp_path / "run"]
    result = invoke(*call)
    assert result.exit_code == 0, result.output
    assert "to expect" in result.output
    assert "On six public data sets, models with as much noise" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--labels", "flu", "--method", "moments"], "--public must be given"),
        (["--public", "PUBLIC"], "--labels must name"),
        (["--labels", "flu", "--public", "PUBLIC", "--sigma", "3"], "--sigma goes with"),
        (["--labels", "flu", "--public", "PUBLIC", "--student", "cat"], "--student must be"),
        (["--labels", "sick", "--public", "PUBLIC"], "no column 'sick'"),
        (["--labels", "flu", "--public", "PUBLIC", "--dataset", "x"], "goes with --ledger"),
        (["--labels", "flu", "--public", "PUBLIC", "--threshold", "high"], "--threshold must"),
    ],
)
def test_usage_errors_name_the_option(tables, tmp_path, extra, words):
    extra = [tables / "public.csv" if part == "PUBLIC" else part for part in extra]
    output = tmp_path / "run"
    result = invoke("train", tables / "private.csv", *BUDGET, "--output", output, *extra)
    assert result.exit_code == 2, result.output
    assert words in result.output
    assert not output.exists()


def test_private_rows_are_not_public(tables, tmp_path):
    private = tables / "private.csv"
    call = ("train", private, "--labels", "flu,cold", "--public", private, *BUDGET)
    result = invoke(*call, "--output", tmp_path / "run")
    assert result.exit_code == 2
    assert "--public must be other rows than the private ones" in result.stderr


def test_an_output_that_is_there_is_left_alone(tables, tmp_path):
    (tmp_path / "keep.txt").write_text("mine")
    result = invoke(
        "train", tables / "private.csv", "--labels", "flu", "--public", tables / "public.csv",
        *BUDGET, "--output", tmp_path,
    )  # fmt: skip
    assert result.exit_code == 2
    assert "exists and is not empty; give --force" in result.output
    assert (tmp_path / "keep.txt").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_force_writes_into_a_folder_that_is_there(tables, tmp_path):
    (tmp_path / "keep.txt").write_text("mine")
    (tmp_path / "labels.csv").write_text("old")
    result = invoke(
        "train", tables / "private.csv", "--labels", "flu", "--public", tables / "public.csv",
        *BUDGET, "--teachers", "10", "--queries", "10", "--output", tmp_path, "--force", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert (tmp_path / "keep.txt").read_text() == "mine"
    assert (tmp_path / "labels.csv").read_text().startswith("row,flu")
    # Who the voters are is on record, in the words that the release was given.
    protects = json.loads(result.stdout)["release"]["protects"]
    assert protects in (tmp_path / "statement.txt").read_text()


def test_a_budget_that_is_used_up_is_refused(tables, tmp_path):
    ledger = tmp_path / "a.ledger"
    common = [
        "train", tables / "private.csv", "--labels", "flu,cold", "--public", tables / "public.csv",
        "--teachers", "20", *BUDGET, "--ledger", ledger, "--queries", "20",
    ]  # fmt: skip
    named = [*common, "--electorate", "ward"]
    assert invoke(*named, "--output", tmp_path / "one").exit_code == 0
    assert invoke(*named, "--output", tmp_path / "two").exit_code == 0  # goes on with what is left
    refused = invoke(*common, "--guarantee", "allowance", "--output", tmp_path / "three")
    assert refused.exit_code == 3, refused.output


def test_words_gaps_and_persons_need_no_preparation(tmp_path):
    from privote.datasets import load_patients
    from privote.datasets.tables import write_table

    data = load_patients(1500, 0)
    sides = {"private": slice(0, 1000), "public": slice(1000, 1300), "test": slice(1300, 1500)}
    for name, rows in sides.items():
        write_table(tmp_path / f"{name}.csv", data.take(np.arange(1500)[rows]))
    labels = ",".join(data.label_names)
    output = tmp_path / "run"
    result = invoke(
        "train", tmp_path / "private.csv", "--labels", labels, "--id-column", "id",
        "--group-column", "person", "--public", tmp_path / "public.csv",
        "--test", tmp_path / "test.csv", *BUDGET, "--output", output, "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["method"] in ("gradients", "moments")
    assert facts["reasons"]
    assert facts["expected"]
    judged = json.loads((output / "for-the-owner.json").read_text())["test"][0]
    assert judged["AUC"] > 0.7
    said = (output / "statement.txt").read_text()
    persons = len(set(data.groups[:1000]))
    assert f"each of {persons:,} persons" in said
    assert "changed by at most a factor e^8" in said
    from hashlib import sha256

    assert sha256((output / "student.student").read_bytes()).hexdigest() in said
    page = (output / "report.html").read_text()
    assert "what would void this" in page
    assert "privote train private.csv --labels" in page
    target = tmp_path / "p.csv"
    told = invoke("predict", output / "student.student", tmp_path / "test.csv", "--output", target)
    assert told.exit_code == 0, told.output
    with target.open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["id"] for row in rows] == data.ids[1300:].astype(str).tolist()  # they come along
    assert "thresholds" in told.stdout
    student = load_student(output / "student.student")
    call = ("predict", output / "student.student", tmp_path / "test.csv", "--force", "--json")
    facts = json.loads(invoke(*call, "--output", target, "--ids", "person").stdout)
    assert list(facts["thresholds"].values()) == pytest.approx(student.thresholds.tolist())
    with target.open() as stream:
        assert next(csv.DictReader(stream))["person"] == str(data.groups[1300])
    halves = json.loads(invoke(*call, "--output", target, "--threshold", "0.5").stdout)
    assert set(halves["thresholds"].values()) == {0.5}
    both = invoke(*call, "--output", target, "--id-column", "person,id")
    assert json.loads(both.stdout)["rows named by"] == "person, id"
    with target.open() as stream:
        first = next(csv.DictReader(stream))
    assert [*first][:3] == ["row", "person", "id"]
    assert (first["person"], first["id"]) == (str(data.groups[1300]), str(data.ids[1300]))
    two = tmp_path / "two.npz"
    assert invoke(*call, "--output", two, "--id-column", "person,id").exit_code == 0
    assert np.load(two)["ids"].shape == (len(rows), 2)
    assert np.load(two)["id_columns"].tolist() == ["person", "id"]
    assert "each column once" in invoke(*call, "--output", target, "--ids", "id,id").stderr
    assert "--ids" not in invoke(*call, "--output", tmp_path / "p.npz").stderr
    assert np.load(tmp_path / "p.npz")["ids"].tolist() == data.ids[1300:].astype(str).tolist()
    assert invoke(*call, "--output", target, "--ids", "nobody").exit_code == 2
    refused = invoke(*call, "--output", target, "--ids", "row")
    assert "--id-column must be other columns" in refused.stderr
    truth = data.Y[1300:]
    right = np.array([[int(row[name]) for name in data.label_names] for row in rows]) == truth
    assert right[truth >= 0].mean() > (truth[truth >= 0] == 0).mean()  # better than always no
    lines = (tmp_path / "test.csv").read_text().splitlines()
    cells = lines[3].split(",")
    cells[lines[0].split(",").index("age")] = "old"
    lines[3] = ",".join(cells)
    (tmp_path / "odd.csv").write_text("\n".join(lines))
    odd = invoke(
        "predict", output / "student.student", tmp_path / "odd.csv", "--output", tmp_path / "q.csv"
    )
    assert odd.exit_code == 2
    assert "odd.csv, line 4, column 'age' must be a number or empty" in odd.output


def test_a_table_without_public_rows_says_what_they_are_for(tmp_path):
    (tmp_path / "rows.csv").write_text("age,town,flu\n5,Ulm,1\n,Bonn,0\n")
    words = ("train", tmp_path / "rows.csv", "--labels", "flu", *BUDGET, "--output", tmp_path / "x")
    for more, reason in (
        ((), "--public must be given: public rows, which nobody has to protect, say how words"),
        (
            ("--columns", "age"),
            "must be a finite number, and rows.csv, line 3, column 'age' is not",
        ),
        (("--columns", "age", "--method", "teachers"), "--public must be given"),
    ):
        done = invoke(*words, *more)
        assert done.exit_code == 2
        assert reason in done.stderr
        assert "Ulm" not in done.stderr
    (tmp_path / "rows.csv").write_text("age,flu\n5,1\n6,0\n")
    done = invoke(*words, "--method", "teachers")
    assert "public rows, which nobody has to protect, that voters label" in done.stderr


def test_persons_on_both_sides_are_a_warning(tmp_path):
    rows = [f"p{place // 2},{place % 9},{place % 2}" for place in range(200)]
    for name, part in (("private", rows[:100]), ("apart", rows[100:]), ("same", rows[90:])):
        (tmp_path / f"{name}.csv").write_text("\n".join(["who,age,flu", *part]))

    def said(public, test):
        done = invoke(
            *("train", tmp_path / "private.csv", "--labels", "flu", "--group-column", "who"),
            *("--public", tmp_path / f"{public}.csv", "--test", tmp_path / f"{test}.csv", *BUDGET),
            *("--output", tmp_path / f"{public}-{test}", "--json"),
        )
        assert done.exit_code == 0, done.stderr
        return done.stderr

    assert "some persons" not in said("apart", "apart")
    assert "same.csv: some persons are among the private ones, too: a model that" in said(
        "apart", "same"
    )
    warned = said("same", "apart")
    assert "too: what stands in public rows is not protected" in warned
    report = (tmp_path / "same-apart" / "report.html").read_text()
    assert "50 persons, 1 label" in report  # and not 100 records
