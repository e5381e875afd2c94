from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.cli.conftest import Run

import privote as pv

BUDGET = ("--epsilon", 8, "--delta", 1e-5)
BINARY = ("--mechanism", "binary", "--sigma", 7)
EVERY = ("--guarantee", "allowance")


def read_csv(path: Path) -> npt.NDArray[Any]:
    return np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)


def test_writes_csv_and_prints_the_bill(run: Run, votes_file: Path, tmp_path: Path) -> None:
    done = run("label", votes_file, *BINARY, *BUDGET, *EVERY, "--output", "labels.csv")
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""
    text = (tmp_path / "labels.csv").read_text()
    assert text.startswith("query,label_0,label_1,label_2,label_3\n0,")
    table = read_csv(tmp_path / "labels.csv")
    assert table[:, 0].tolist() == list(range(12))
    assert set(np.unique(table[:, 1:])) <= {0, 1}
    assert "unconditional" in done.stdout
    assert "46 surprises a voter" in done.stdout
    assert "votes read as" in done.stdout
    assert "12 queries x 20 voters x 4 labels. More voters than queries: is that so?" in done.stdout
    assert "SIMULATED" not in done.stdout


@pytest.mark.parametrize(
    ("flags", "mechanism"),
    [
        (BINARY, pv.BinaryVoting(sigma=7.0)),
        ((*BINARY, "--quota", 0.4), pv.BinaryVoting(sigma=7.0, quota=0.4)),
        ((*BINARY, "--false-alarm", 0.1), pv.BinaryVoting(sigma=7.0, false_alarm=0.1)),
        (
            ("--mechanism", "binary", "--link-cost", 0.01, "--link-order", 4),
            pv.BinaryVoting(link=pv.OptimalLink(cost=0.01, order=4.0)),
        ),
        (
            (*BINARY, "--gate-threshold", 15, "--gate-sigma", 9),
            pv.BinaryVoting(sigma=7.0, gate=pv.Gate(threshold=15, sigma=9)),
        ),
        (("--mechanism", "tau", "--sigma", 9, "--tau", 1.8), pv.TauVoting(sigma=9.0, tau=1.8)),
        (
            ("--mechanism", "tau", "--sigma", 9, "--tau", 3.4, "--norm", 1),
            pv.TauVoting(sigma=9.0, tau=3.4, norm=1),
        ),
        (("--mechanism", "powerset", "--sigma", 5), pv.PowersetVoting(sigma=5.0)),
    ],
)
def test_releases_what_the_library_releases(
    run: Run,
    votes_file: Path,
    votes: npt.NDArray[np.bool_],
    tmp_path: Path,
    flags: tuple[Any, ...],
    mechanism: pv.Mechanism,
) -> None:
    done = run("label", votes_file, *flags, *BUDGET, "--seed", 3, "--output", "labels.npz")
    assert done.exit_code == 0, done.stderr
    assert "SIMULATED" in done.stdout
    written = pv.Release.load(tmp_path / "labels.npz")
    expected = pv.label(votes, mechanism=mechanism, epsilon=8.0, delta=1e-5, seed=3)
    assert written.facts() == expected.facts()
    assert (written.labels == expected.labels).all()


def test_json_is_all_there_is_on_stdout(run: Run, votes_file: Path) -> None:
    done = run("label", votes_file, *BINARY, *BUDGET, *EVERY, "--output", "labels.csv", "--json")
    bill = json.loads(done.stdout)
    assert bill["answered"] == 12
    assert bill["guarantee"] == "allowance"
    assert bill["epsilon"] <= 8
    assert bill["mark"] == "unconditional"
    assert "PRIVACY STATEMENT" in bill["statement"]
    assert "sealed" not in bill


def test_probabilities_take_one_threshold_or_one_a_label(
    run: Run, votes: npt.NDArray[np.bool_], tmp_path: Path
) -> None:
    np.save(tmp_path / "p.npy", np.where(votes, 0.6, 0.2))
    for threshold, yes in (
        ("0.5", votes),
        ("0.5,0.7,0.1,0.5", votes & [1, 0, 1, 1] | [0, 0, 1, 0]),
    ):
        done = run(
            "label", "p.npy", *BINARY, *BUDGET, "--threshold", threshold, "--seed", 1, "--force",
            "--output", "labels.npz",
        )  # fmt: skip
        assert done.exit_code == 0, done.stderr
        expected = pv.label(
            yes.astype(bool), mechanism=pv.BinaryVoting(sigma=7.0), epsilon=8, delta=1e-5, seed=1
        )
        assert (pv.Release.load(tmp_path / "labels.npz").labels == expected.labels).all()


def test_baseline_may_be_labels_released_before(
    run: Run, votes_file: Path, votes: npt.NDArray[np.bool_], tmp_path: Path
) -> None:
    guess = votes.mean(axis=1) > 0.5
    np.save(tmp_path / "guess.npy", guess)
    rows = "".join(
        f"{i}," + ",".join(map(str, row)) + "\n" for i, row in enumerate(guess.astype(int))
    )
    (tmp_path / "named.csv").write_text("query,label_0,label_1,label_2,label_3\n" + rows)
    np.savetxt(tmp_path / "plain.csv", guess.astype(int), fmt="%d", delimiter=",")
    spent = []
    for baseline in ("guess.npy", "named.csv", "plain.csv"):
        done = run(
            "label", votes_file, *BINARY, *BUDGET, "--baseline", baseline, "--show-sealed",
            "--json", "--force", "--output", "labels.csv",
        )  # fmt: skip
        assert done.exit_code == 0, done.stderr
        spent.append(json.loads(done.stdout)["sealed"]["surprises_cast_most"])
    most = int((votes != guess[:, None]).sum(axis=(0, 2)).max())
    assert spent == [most] * 3


def test_clip_cuts_ballots_that_powerset_would_refuse(run: Run, votes_file: Path) -> None:
    powerset = ("--mechanism", "powerset", "--sigma", 5, "--max-positives", 1)
    call = ("label", votes_file, *powerset, *BUDGET, "--output", "labels.csv")
    refusal = run(*call)
    assert refusal.exit_code == 2
    assert "--max-positives" in refusal.stderr
    assert run(*call, "--clip").exit_code == 0


BAD: list[tuple[tuple[Any, ...], str]] = [
    (("--mechanism", "borda", "--sigma", 7), "--mechanism must be one of binary, tau"),
    (("--mechanism", "binary"), "--sigma (or --link-cost and --link-order) must be given"),
    (("--mechanism", "binary", "--sigma", -1), "sigma must be finite and positive, got -1.0"),
    (("--mechanism", "tau", "--sigma", 7), "--tau must be given"),
    (("--mechanism", "tau", "--sigma", 7, "--tau", 1, "--norm", 3), "norm must be 1 or 2, got 3"),
    (("--mechanism", "tau", "--sigma", 7, "--tau", 1, "--quota", 0.3), "--quota goes with"),
    ((*BINARY, "--gate-sigma", 3), "--gate-threshold and --gate-sigma go together"),
    ((*BINARY, "--link-cost", 0.1, "--link-order", 2), "--sigma and --link-cost"),
    ((*BINARY, "--quota", 2), "quota must lie strictly between 0 and 1, got 2.0"),
    ((*BINARY, "--threshold", "half"), "--threshold must be one number or a comma list"),
    ((*BINARY, "--guarantee", "hope"), "guarantee must be one of"),
    ((*BINARY, "--guarantee", "data-dependent"), "queries must be given"),
    ((*BINARY, "--queries", 13), "queries must lie in 1..12"),
    ((*BINARY, "--baseline", "guess.txt"), "--baseline must end in one of .npy, .npz, .csv"),
    ((*BINARY, "--baseline", "absent.npy"), "--baseline 'absent.npy' does not exist"),
    ((*BINARY, "--clip"), "--clip goes with --max-positives"),
    ((*BINARY, "--dataset", "mine"), "goes with --ledger: give it too"),
    ((*BINARY, "--epsilon", -2), "epsilon must be finite and positive, got -2.0"),
    ((*BINARY, "--delta", 2), "delta must lie strictly between 0 and 1, got 2.0"),
]


@pytest.mark.parametrize("name", ["labels.csv", "labels.npz"])
def test_an_output_is_replaced_only_by_force(
    run: Run, votes_file: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("precious")
    call = ("label", votes_file, *BINARY, *BUDGET, "--output", name)
    refusal = run(*call)
    assert refusal.exit_code == 2
    assert "exists; give --force" in refusal.stderr
    assert (tmp_path / name).read_text() == "precious"
    assert run(*call, "--force").exit_code == 0
    assert (tmp_path / name).read_bytes()[:8] != b"precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, votes_file.name])


@pytest.mark.parametrize(
    "flags", [("--guarantee", "allowance"), ("--guarantee", "worst-case", "--queries", 12)]
)
def test_a_refused_budget_is_exit_code_3(
    run: Run, votes_file: Path, tmp_path: Path, flags: tuple[Any, ...]
) -> None:
    small = ("--epsilon", 0.01, "--delta", 1e-5)
    done = run("label", votes_file, *BINARY, *small, *flags, "--output", "labels.csv")
    assert done.exit_code == 3
    assert "(epsilon=0.01 at delta=1e-05)" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [votes_file.name]


def test_a_ledger_is_charged_and_a_broken_one_is_exit_code_4(
    run: Run, votes_file: Path, tmp_path: Path
) -> None:
    call = ("label", votes_file, *BINARY, *BUDGET, "--ledger", "ledger.db")
    worst = (*call, "--guarantee", "worst-case")
    first = run(*worst, "--output", "a.csv", "--json")
    assert first.exit_code == 0, first.stderr
    again = run(*worst, "--queries", 12, "--output", "b.csv")
    assert again.exit_code == 3  # what the first run left does not pay for twelve more
    (tmp_path / "ledger.db").write_bytes(b"not a ledger" * 100)
    assert run(*call, "--output", "c.csv").exit_code == 4
    assert not (tmp_path / "c.csv").exists()


def test_a_failed_test_of_ptr_releases_nothing(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "split.npy", np.arange(40 * 50 * 21).reshape(40, 50, 21) % 2 == 0)
    call = ("label", "split.npy", "--mechanism", "binary", "--sigma", 9, "--epsilon", 20)
    ptr = ("--delta", 1e-5, "--guarantee", "ptr", "--queries", 40, "--seed", 0)
    done = run(*call, *ptr, "--output", "labels.csv", "--json")
    assert done.exit_code == 0, done.stderr
    bill = json.loads(done.stdout)
    assert bill["answered"] == 0
    assert bill["terms"]["passed"] is False
    assert (tmp_path / "labels.csv").read_text() == "query," + ",".join(
        f"label_{i}" for i in range(21)
    ) + "\n"  # fmt: skip


@pytest.fixture
def many(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    truth = rng.random((120, 1, 6)) < 0.2
    np.save(tmp_path / "many.npy", rng.random((120, 100, 6)) < np.where(truth, 0.95, 0.01))
    return tmp_path / "many.npy"


def test_by_default_nothing_is_asked_for_and_quality_is_told(
    run: Run, many: Path, tmp_path: Path
) -> None:
    done = run("label", many, *BUDGET, "--output", "labels.npz", "--json", "--seed", 0)
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""
    facts = json.loads(done.stdout)
    assert (facts["answered"], facts["asked"]) == (120, 120)
    assert facts["mechanism"]["mechanism"] == "tally"
    assert facts["quality"]["precision"] > 0.9
    assert len(facts["quality"]["by_label"]["recall"]) == 6
    assert facts["headline"].startswith("120 queries; expected precision ")
    assert facts["decided"] == "likely"
    assert facts["terms"]["learnt"]["exact"]
    truth = np.load(many).mean(axis=1) > 0.5
    release = pv.Release.load(tmp_path / "labels.npz")
    assert ((release.labels == 1) == truth).mean() > 0.97
    done = run("label", many, *BUDGET, "--output", "again.csv")
    assert "expected precision" in " ".join(done.stdout.split()[:30])
    assert "chosen privately" in " ".join(done.stdout.split())


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".npz"])
def test_probabilities_are_written(run: Run, many: Path, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"chances{suffix}"
    flags = ("label", many, *BUDGET, "--output", "labels.npz", "--probabilities", file)
    assert run(*flags).exit_code == 0
    want = pv.Release.load(tmp_path / "labels.npz").probabilities
    if suffix == ".csv":
        got = read_csv(file)[:, 1:]
    else:
        got = np.load(file) if suffix == ".npy" else np.load(file)["probabilities"]
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_months_share_what_is_planned(run: Run, many: Path, tmp_path: Path) -> None:
    votes = np.load(many)
    np.save(tmp_path / "one.npy", votes[:50])
    np.save(tmp_path / "two.npy", votes[50:110])
    np.save(tmp_path / "three.npy", votes[100:])
    common = (*BUDGET, "--ledger", "l.db")
    for name, more in (("one", ("--plan-for", 120)), ("two", ())):
        done = run("label", f"{name}.npy", *common, *more, "--output", f"{name}.npz", "--json")
        assert done.exit_code == 0, done.stderr
        facts = json.loads(done.stdout)
        assert 7.99 < facts["epsilon"] <= 8
        assert facts["quality"]["precision"] > 0.8
        assert run("ledger", "check", f"{name}.npz", "--ledger", "l.db").exit_code == 0
    shown = json.loads(run("ledger", "show", "l.db", "--json").stdout)
    assert shown["allowances"][0]["more"] == 10
    assert "how many more queries" in run("ledger", "show", "l.db").stdout
    done = run("label", "three.npy", *common, "--output", "three.csv")
    assert done.exit_code == 3
    assert "learnt for 120 queries in all" in " ".join(done.stderr.split())
    assert not (tmp_path / "three.csv").exists()


def test_labels_that_tallies_do_not_say_are_found(run: Run, many: Path, tmp_path: Path) -> None:
    run("label", many, *BUDGET, "--output", "labels.npz", "--ledger", "l.db")
    release = pv.Release.load(tmp_path / "labels.npz")
    replace(release, labels=1 - release.labels).save(tmp_path / "labels.npz")
    done = run("ledger", "check", "labels.npz", "--ledger", "l.db", "--json")
    assert done.exit_code == 1
    assert "its labels are not what" in done.stdout


def test_implied_labels_are_raised(run: Run, votes_file: Path, tmp_path: Path) -> None:
    (tmp_path / "implies.txt").write_text("child,parent\n0,3\n1,3\n")
    flags = (*BINARY, "--epsilon", 100, "--delta", 1e-5, "--seed", 3)
    for name, more in (("plain", ()), ("made", ("--implies", tmp_path / "implies.txt"))):
        done = run("label", votes_file, *flags, *more, "--output", f"{name}.csv")
        assert done.exit_code == 0, done.stderr
    plain, made = (read_csv(tmp_path / f"{name}.csv")[:, 1:] for name in ("plain", "made"))
    assert (plain[:, 3] != made[:, 3]).any()
    np.testing.assert_array_equal(made[:, 3], plain[:, [0, 1, 3]].max(axis=1))
    assert "2 implications were applied" in " ".join(done.stdout.split())
    (tmp_path / "implies.txt").write_text("child,parent\n0,9\n")
    done = run("label", votes_file, *flags, *more, "--output", "other.csv", "--ledger", "l.db")
    assert done.exit_code == 2
    assert "--implies must name labels 0 to 3, got 9" in " ".join(done.stderr.split())
    assert not (tmp_path / "l.db").exists()
    (tmp_path / "implies.txt").write_text("child,parent\n0,1\n1,0\n")
    done = run("label", votes_file, *flags, *more, "--output", "other.csv")
    assert done.exit_code == 2
    assert "--implies must not lead back to where it began" in " ".join(done.stderr.split())


def test_a_page_is_written_where_it_is_wanted(run: Run, votes_file: Path, tmp_path: Path) -> None:
    common = (votes_file, "--epsilon", "8", "--delta", "1e-5", "--output", tmp_path / "a.npz")
    done = run("label", *common, "--report", tmp_path / "a.html")
    assert done.exit_code == 0, done.stderr
    assert "What to expect of the labels" in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize("kind", [".npy", ".zarr"])
def test_votes_behind_a_url_with_credentials_are_refused(
    kind: str, run: Run, tmp_path: Path
) -> None:
    before = {*tmp_path.iterdir()}
    for place in (f"s3://me:hunter2@bucket/v{kind}", f"s3://bucket/v{kind}?key=hunter2"):
        flags = (*BINARY, *BUDGET, "--ledger", "l.db", "--output", "labels.csv")
        done = run("label", place, *flags)
        assert done.exit_code == 2
        assert "credentials belong in the environment" in done.stderr
        assert "hunter2" not in done.stdout + done.stderr
    assert {*tmp_path.iterdir()} == before


def test_chunks_that_are_absent_are_votes_of_no_only_if_it_is_said(
    run: Run, votes: Any, tmp_path: Path
) -> None:
    zarr = pytest.importorskip("zarr")
    few = votes.copy()
    few[8:] = False
    cube = zarr.create_array(tmp_path / "v.zarr", shape=few.shape, chunks=(8, 20, 4), dtype=bool)
    cube[:] = few
    np.save(tmp_path / "v.npy", few)
    flags = (*BINARY, *BUDGET, *EVERY, "--seed", 1)
    done = run("label", "v.zarr", *flags, "--ledger", "l.db", "--output", "labels.csv")
    assert done.exit_code == 2
    assert "zarr's option write_empty_chunks" in done.stderr
    assert "give --empty-chunks no, or set the attribute privote_empty" in done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["v.npy", "v.zarr"]
    done = run("label", "v.zarr", *flags, "--output", "labels.csv", "--empty-chunks", "no")
    assert done.exit_code == 0, done.stderr
    assert run("label", "v.npy", *flags, "--output", "same.csv").exit_code == 0
    assert (tmp_path / "labels.csv").read_text() == (tmp_path / "same.csv").read_text()
    done = run("label", "v.npy", *flags, "--output", "l.csv", "--empty-chunks", "no")
    assert "--empty-chunks must be" in done.stderr


def test_a_store_that_fails_after_the_charge_is_said(
    run: Run, store: Any, votes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zarr = pytest.importorskip("zarr")
    monkeypatch.setattr("privote.votes.cube._BLOCK_CELLS", 64)
    cube = zarr.create_array(tmp_path / "v.zarr", shape=votes.shape, chunks=(8, 20, 4), dtype=bool)
    cube[:] = votes
    url, chunks = store.put(tmp_path / "v.zarr"), []

    def fail(name: str) -> None:
        chunks.append(name)
        if sum("/c/" in name for name in chunks) > 3:  # the second chunk, the second time
            raise ConnectionResetError("Connection reset")

    store.fails = fail
    flags = ("label", url, *BINARY, *BUDGET, *EVERY, "--output", "labels.csv")
    done = run(*flags)
    assert done.exit_code == 6, done.stderr
    assert "what was released so far is safe" in done.stderr
    done = run(*flags, "--resume")
    assert done.exit_code == 0
    assert "the run that is finished here got no further" in " ".join(done.stderr.split())
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 9


def test_an_allowance_that_does_not_last_is_a_warning(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "votes.npy", np.random.default_rng(0).random((400, 20, 4)) < 0.3)
    flags = ("label", "votes.npy", "--mechanism", "binary", "--sigma", 5, *BUDGET, "--seed", 1)
    done = run(*flags, "--guarantee", "allowance", "--output", "labels.csv", "--json")
    assert done.exit_code == 0, done.stderr
    said = json.loads(done.stdout)
    assert 0 < said["forecast"]["lasts"] < 400
    assert said["rows"]["WARNING"] in " ".join(done.stderr.split())


GROWS = """
import resource, sys
from privote.cli import app
for votes in sys.argv[1:]:
    try:
        app(["label", votes, "--mechanism", "binary", "--sigma", "12", "--epsilon", "8", "--delta",
             "1e-5", "--output", votes + ".csv", "--json"])
    except SystemExit as done:
        assert not done.code, done.code
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a peak in kilobytes is Linux's")
def test_memory_grows_by_the_labels_only(tmp_path: Path) -> None:
    """The result is one byte a label; neither votes nor what is written of them add up."""
    sizes, labels = (60_000, 300_000), 12
    for queries in sizes:
        np.save(tmp_path / f"{queries}.npy", np.zeros((queries, 10, labels), bool))
    files = [str(tmp_path / f"{queries}.npy") for queries in sizes]
    command = [sys.executable, "-W", "ignore", "-c", GROWS, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stderr.splitlines() if line.startswith("peak ")]
    few, many = (1024 * int(peak) for _, peak in lines)
    assert many - few < 3 * labels * (sizes[1] - sizes[0])
