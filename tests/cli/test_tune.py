"""``privote tune``: tables, JSON and pages, all marked as not private."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.cli.conftest import Run

import privote as pv
from privote.learning import tuning
from privote.learning.tuning.figures import majority

BUDGET = ("--epsilon", 3, "--delta", 1e-5)
NOTE = (
    "These figures depend on the votes: for the owner's eyes unless the votes are public or paid "
    "for; choosing by them voids the guarantee."
)
VERBS: dict[str, tuple[Any, ...]] = {
    "sigma": ("--sigmas", "3,7", *BUDGET),
    "tau": ("--sigma", 5, "--taus", 1.5, *BUDGET),
    "gate": ("--sigma", 5, "--gate-thresholds", "12,16", "--gate-sigmas", 3, *BUDGET),
    "threshold": ("--sigma", 5, "--thresholds", "0.3,0.5", "--prevalence", 0.25, *BUDGET),
}


@pytest.fixture
def file(tmp_path: Path, votes: npt.NDArray[np.bool_]) -> Path:
    """Return votes with their truth, and probabilities that give the votes back at one half."""
    path = tmp_path / "both.npz"
    noise = np.random.default_rng(1).random(votes.shape)
    truth = np.arange(48).reshape(12, 4) % 5 == 0
    np.savez(path, votes=votes, probabilities=votes / 2 + noise * 0.49, truth=truth)
    return path


def rows(done: Any) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.stderr
    return list(json.loads(done.stdout)["trials"])


@pytest.mark.parametrize("verb", VERBS)
def test_help_teaches(run: Run, verb: str) -> None:
    done = run("tune", verb, "--help")
    assert done.exit_code == 0
    assert f"privote tune {verb} " in done.stdout.split("Example:")[1]
    assert "Not private" in done.stdout
    assert "NOT PRIVATE" in run("tune", "--help").stdout


@pytest.mark.parametrize("verb", VERBS)
def test_everything_is_marked_as_not_private(
    run: Run, file: Path, tmp_path: Path, verb: str
) -> None:
    call = ("tune", verb, file, *VERBS[verb])
    shown = run(*call)
    assert shown.exit_code == 0, shown.stderr
    assert f"NOT PRIVATE. {NOTE}" in shown.stdout
    answer = json.loads(run(*call, "--json", "--report", "page.html").stdout)
    assert answer["note"] == NOTE
    assert answer["private"] is False
    assert answer["report"] == "page.html"
    page = (tmp_path / "page.html").read_text()
    assert "Not private. " + NOTE.replace("'", "&#x27;") in page
    assert "Not for publication." in page
    assert page.count("<svg") >= 3
    assert page.count("data-sealed") == page.count("<svg")
    for heading in ("Queries answered", "Utility", "Utility against queries answered"):
        assert f". {heading}</h2>" in page
    assert f" tune {verb} " in page  # the command that made it
    assert "--report page.html" in page
    refused = run(*call, "--report", "page.html")
    assert refused.exit_code == 2
    assert "--report 'page.html' exists; give --force to replace it" in refused.stderr


def test_sigma_is_what_the_library_says(run: Run, file: Path, votes: Any) -> None:
    with np.load(file) as data:
        truth = data["truth"]
    got = rows(run("tune", "sigma", file, *VERBS["sigma"], "--json"))
    expected = tuning.tune_sigma(votes, truth, epsilon=3, delta=1e-5, sigmas=[3, 7])
    for row, trial in zip(got, expected.trials, strict=True):
        assert row["sigma"] == trial.values["sigma"]
        assert row["fits"] == trial.fits
        assert row["utility"]["all"] == pytest.approx(trial.utility["all"])


def test_other_mechanisms_and_their_flags(run: Run, file: Path, votes: Any) -> None:
    flags = ("--mechanism", "tau", "--tau", 1.5, "--norm", 1, "--json")
    got = rows(run("tune", "sigma", file, *VERBS["sigma"], *flags))
    assert "exact_by_voter" not in got[0]["fits"]
    mechanism = pv.TauVoting(sigma=7.0, tau=1.5, norm=1)
    assert got[1]["fits"] == tuning.queries_that_fit(mechanism, votes, 3, 1e-5)
    both = rows(run("tune", "sigma", file, *VERBS["sigma"], *flags, "--by-voter"))
    assert both[1]["fits"]["exact_by_voter"] >= both[1]["fits"]["exact_per_query"]


def test_tau_has_both_norms_unless_told(run: Run, file: Path) -> None:
    call = ("tune", "tau", file, *VERBS["tau"], "--json")
    assert [row["norm"] for row in rows(run(*call))] == [2, 1]
    assert [row["norm"] for row in rows(run(*call, "--norm", 1))] == [1]
    assert "--norm must be 1, 2 or both, got '3'" in run(*call, "--norm", 3).stderr


def test_gate_shows_pairs_and_coverage(run: Run, file: Path) -> None:
    call = ("tune", "gate", file, *VERBS["gate"])
    got = rows(run(*call, "--json"))
    pairs = [(row["gate_threshold"], row["gate_sigma"]) for row in got]
    assert pairs == [(None, None), (12, 3), (16, 3)]
    coverage = [row["utility"]["all"]["coverage"] for row in got]
    assert 1 == coverage[0] > coverage[1] > coverage[2] > 0
    answered = got[1]["labels_answered"]["worst_case"]
    assert answered < 4 * got[1]["fits"]["worst_case"]
    assert "coverage" in run(*call).stdout


def test_threshold_tries_three_rules(run: Run, file: Path, tmp_path: Path) -> None:
    call = ("tune", "threshold", file, *VERBS["threshold"])
    got = rows(run(*call, "--json"))
    assert [row["rule"] for row in got] == ["common", "common", "per label", "prevalence"]
    assert len(got[2]["thresholds"]) == 4
    assert got[3]["yes_per_ballot"] == 4 * 3 / 12
    share = np.tile([0.5, 0.25, 0.0, 1.0], (20, 1))
    np.save(tmp_path / "share.npy", share)
    by_voter = rows(run(*call, "--json", "--prevalence", "share.npy"))
    assert by_voter[3]["yes_per_ballot"] == (6 + 3 + 0 + 12) / 12
    (tmp_path / "share.csv").write_text("0.5,0.25,0,1\n")
    assert rows(run(*call, "--json", "--prevalence", "share.csv")) == by_voter
    shown = run(*call).stdout
    assert "per label" in shown
    assert "prevalence" in shown


def test_truth_is_found_wherever_it_is(
    run: Run, votes: npt.NDArray[np.bool_], tmp_path: Path
) -> None:
    truth = np.arange(48).reshape(12, 4) % 5 == 0
    np.save("votes.npy", votes)
    np.savez("packed.npz", votes=np.packbits(votes), shape=votes.shape, truth=np.packbits(truth))
    np.save("truth.npy", truth)
    np.savez("truth.npz", truth=truth.astype(np.int8))
    table = "\n".join(f"{i},{','.join(map(str, row))}" for i, row in enumerate(truth.astype(int)))
    Path("truth.csv").write_text(f"query,a,b,c,d\n{table}\n")
    flags = (*VERBS["sigma"], "--json")
    beside = json.loads(run("tune", "sigma", "packed.npz", *flags).stdout)
    assert beside["reference"] == "truth"
    for name in ("truth.npy", "truth.npz", "truth.csv"):
        given = json.loads(run("tune", "sigma", "votes.npy", "--truth", name, *flags).stdout)
        assert given == beside
    without = json.loads(run("tune", "sigma", "votes.npy", *flags).stdout)
    assert without["reference"] == "noise-free majority"
    assert without["noise_free"]["ACC"] == 1
    shown = run("tune", "sigma", "votes.npy", *VERBS["sigma"]).stdout
    assert "compared with the noise-free majority" in shown


def test_the_first_queries_only(run: Run, file: Path, votes: npt.NDArray[np.bool_]) -> None:
    done = run("tune", "sigma", file, *VERBS["sigma"], "--max-queries", 5, "--json")
    assert json.loads(done.stdout)["queries"] == 5
    probabilities = run(
        "tune", "threshold", file, *VERBS["threshold"], "--max-queries", 5, "--json"
    )
    assert json.loads(probabilities.stdout)["queries"] == 5


def test_probabilities_with_a_threshold_are_votes(run: Run, file: Path, tmp_path: Path) -> None:
    with np.load(file) as data:
        scores, truth, votes = data["probabilities"], data["truth"], data["votes"]
    np.savez("scores.npz", votes=scores, truth=truth)
    np.testing.assert_array_equal(scores >= 0.5, votes)
    call = ("tune", "gate", "scores.npz", *VERBS["gate"], "--threshold", 0.5, "--json")
    assert rows(run(*call)) == rows(run("tune", "gate", file, *VERBS["gate"], "--json"))


def test_what_is_chosen_is_said(run: Run, votes_file: Path) -> None:
    call = ("tune", "sigma", votes_file, "--sigmas", "1,5,200", "--epsilon", 8, "--delta", 1e-5)
    call = (*call, "--guarantee", "worst-case", "--no-by-voter")
    loose = json.loads(run(*call, "--drop", 1, "--json").stdout)
    assert loose["chosen"] == {"sigma": 200}
    tight = json.loads(run(*call, "--metric", "ACC", "--drop", 0.1, "--json").stdout)
    assert tight["chosen"] == {"sigma": 5}
    assert "sigma 200 answers most under worst-case (12 queries)" in run(*call, "--drop", 1).stdout


def test_nothing_answered_is_said_too(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "split.npy", np.arange(80).reshape(4, 10, 2) % 4 < 2)  # five against five
    call = ("tune", "sigma", "split.npy", "--sigmas", 0.1, "--epsilon", 0.01, "--delta", 1e-5)
    done = run(*call, "--no-by-voter", "--report", "page.html")
    assert done.exit_code == 0, done.stderr
    assert (
        "Nothing tried within 0.02 of the best BAC answers a query under allowance" in done.stdout
    )
    assert "nothing was answered" in (tmp_path / "page.html").read_text()
    assert json.loads(run(*call, "--json").stdout)["chosen"] is None


@pytest.mark.parametrize(
    ("verb", "flags", "message"),
    [
        ("sigma", ("--sigmas", "3,x"), "--sigmas must be numbers with commas between, got '3,x'"),
        ("sigma", ("--max-queries", 0), "--max-queries must be at least 1, got 0"),
        ("sigma", ("--metric", "acc"), "--metric must be one of ACC, BAC, AUC, MAP, CF1"),
        ("sigma", ("--drop", 2), "--drop must lie in [0, 1], got 2"),
        ("sigma", ("--guarantee", "ptr"), "--guarantee must be one of worst-case, allowance"),
        ("sigma", ("--report", "page.pdf"), "--report must end in .html, got 'page.pdf'"),
        ("sigma", ("--report", "no/page.html"), "there is no folder 'no'"),
        ("sigma", ("--truth", "absent.npy"), "--truth 'absent.npy' does not exist"),
        ("sigma", ("--truth", "truth.txt"), "--truth must end in one of .npy, .npz, .csv"),
        ("sigma", ("--truth", "few.npy"), "the true labels must have 12 rows"),
        ("sigma", ("--truth", "empty.csv"), "cannot be read: it is empty"),
        ("sigma", ("--truth", "votes.npz"), "has no array 'truth'; it has: votes"),
        ("sigma", ("--mechanism", "median"), "--mechanism must be one of"),
        ("sigma", ("--tau", 2), "--tau goes with mechanism 'tau', not with 'binary'"),
        ("sigma", ("--no-by-voter", "--guarantee", "exact-by-voter"), "guarantee must be one of"),
        ("gate", ("--gate-sigmas", "0"), "--gate-sigmas must be finite and positive, got 0"),
        ("threshold", ("--prevalence", "0.1,0.2"), "prevalence must hold one share per label (4)"),
        ("threshold", ("--best-by", "MAP"), "--best-by must be one of BAC, F1, got 'MAP'"),
    ],
)
def test_bad_arguments(
    run: Run, file: Path, tmp_path: Path, verb: str, flags: tuple[Any, ...], message: str
) -> None:
    np.save(tmp_path / "few.npy", np.zeros((3, 4)))
    (tmp_path / "empty.csv").write_text("")
    np.savez(tmp_path / "votes.npz", votes=np.zeros((1, 1, 1), bool))
    done = run("tune", verb, file, *VERBS[verb], *flags)
    assert done.exit_code == 2
    assert message in done.stderr


def test_threshold_needs_truth_and_a_cube(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "scores.npy", np.full((4, 3, 2), 0.5))
    np.save(tmp_path / "flat.npy", np.full((4, 3), 0.5))
    done = run("tune", "threshold", "scores.npy", *VERBS["threshold"])
    assert done.exit_code == 2
    assert "--truth must be given" in done.stderr
    done = run("tune", "threshold", "flat.npy", *VERBS["threshold"])
    assert "PROBABILITIES must have the shape (queries, voters, labels), got (4, 3)" in done.stderr


def test_votes_that_cannot_be_read_are_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "votes.npz").write_bytes(b"no archive")
    done = run("tune", "sigma", "votes.npz", *VERBS["sigma"])
    assert done.exit_code == 2
    assert "votes.npz is not a readable .npz file" in done.stderr


def test_the_majority_is_what_most_say(votes: npt.NDArray[np.bool_]) -> None:
    np.testing.assert_array_equal(majority(votes), votes.mean(axis=1) > 0.5)
