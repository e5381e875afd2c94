"""``privote tune``: tables, JSON and pages, all marked as not private."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from tests.cli.conftest import Run

import privote as pv
from privote import planning
from privote.mechanisms import MECHANISMS

BUDGET = ("--epsilon", 3, "--delta", 1e-5)
OVER: dict[str, tuple[Any, ...]] = {
    "sigma": ("--values", "3,7"),
    "tau": ("--sigma", 5, "--values", 1.5),
    "gate": ("--sigma", 5, "--values", "12,16", "--gate-sigmas", 3),
    "threshold": ("--sigma", 5, "--values", "0.3,0.5", "--prevalence", 0.25),
    "mechanism": ("--sigma", 5),
}


@pytest.fixture
def file(tmp_path: Path, votes: npt.NDArray[np.bool_]) -> Path:
    """Return votes with their truth; beside it probabilities that give them back at one half."""
    path = tmp_path / "both.npz"
    noise = np.random.default_rng(1).random(votes.shape)
    truth = np.arange(48).reshape(12, 4) % 5 == 0
    np.savez(path, votes=votes, truth=truth)
    np.savez(tmp_path / "soft.npz", votes=votes / 2 + noise * 0.49, truth=truth)
    return path


def call(file: Path | str, over: str, *more: Any) -> tuple[Any, ...]:
    if over == "threshold" and Path(file).name == "both.npz":
        file = Path(file).with_name("soft.npz")
    return ("tune", file, "--over", over, *OVER[over], *BUDGET, *more)


@pytest.mark.parametrize("over", ["sigma", "threshold"])
def test_says_what_the_votes_were_read_as(run: Run, file: Path, over: str) -> None:
    said = "12 queries x 20 voters x 4 labels"
    assert f"Votes were read as {said}." in run(*call(file, over)).stdout
    assert json.loads(run(*call(file, over, "--json")).stdout)["read_as"].startswith(said)


def rows(done: Any) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.stderr
    return list(json.loads(done.stdout)["trials"])


def test_help_teaches(run: Run) -> None:
    done = run("tune", "--help")
    assert done.exit_code == 0
    assert "privote tune public-votes.npz --over sigma" in done.stdout.split("Example:")[1]
    assert "Not private" in done.stdout


@pytest.mark.parametrize("over", OVER)
def test_everything_is_marked_as_not_private(
    run: Run, file: Path, tmp_path: Path, over: str
) -> None:
    shown = run(*call(file, over))
    assert shown.exit_code == 0, shown.stderr
    assert f"NOT PRIVATE. {planning.NOT_PRIVATE}" in shown.stdout
    answer = json.loads(run(*call(file, over, "--json", "--report", "page.html")).stdout)
    assert answer["note"] == planning.NOT_PRIVATE
    assert answer["private"] is False
    assert answer["report"] == "page.html"
    page = (tmp_path / "page.html").read_text()
    assert "Not private. " + planning.NOT_PRIVATE.replace("'", "&#x27;") in page
    assert "Not for publication." in page
    assert page.count("<svg") >= 3
    assert page.count("data-sealed") >= page.count("<svg")
    for heading in ("Queries answered", "Quality", "Quality against queries answered"):
        assert f". {heading}</h2>" in page
    assert f" --over {over} " in page  # the command that made it
    assert "--report page.html" in page
    refused = run(*call(file, over, "--report", "page.html"))
    assert refused.exit_code == 2
    assert "--report 'page.html' exists; give --force to replace it" in refused.stderr


def test_sigma_is_what_the_library_says(run: Run, file: Path, votes: Any) -> None:
    with np.load(file) as data:
        truth = data["truth"]
    got = rows(run(*call(file, "sigma", "--json", "--beyond", "--by-voter")))
    expected = planning.tune_sigma(
        votes, truth, epsilon=3, delta=1e-5, sigmas=[3, 7], beyond=True, by_voter=True
    )
    for row, trial in zip(got, expected.trials, strict=True):
        assert row["sigma"] == trial.values["sigma"]
        assert row["fits"] == trial.fits
        assert row["quality"] == pytest.approx(trial.quality.facts())
        assert trial.beyond is not None
        assert row["beyond"] == pytest.approx(trial.beyond.facts())
    shown = run(*call(file, "sigma", "--beyond", "--by-voter")).stdout
    assert "all go on" in shown
    assert "voter" in shown


def test_a_budget_that_buys_nothing_answers_nothing(run: Run, votes_file: Path) -> None:
    """An allowance of no surprise is a refusal, as ``privote label`` has it."""
    tiny = ("--epsilon", 0.01, "--delta", 1e-5)
    words = ("tune", votes_file, "--over", "mechanism", "--sigma", 1, *tiny, "--json")
    for row in rows(run(*words)):
        assert row["fits"]["allowance"] == row["fits"]["worst-case"] == 0
    assert json.loads(run(*words).stdout)["chosen"] is None
    flags = ("--mechanism", "binary", "--sigma", 1, "--output", "out.csv")
    assert run("label", votes_file, *flags, *tiny).exit_code == 3


def test_mechanisms_stand_side_by_side(run: Run, file: Path, tmp_path: Path) -> None:
    got = rows(run(*call(file, "mechanism", "--json")))
    kinds = [row["parameters"]["mechanism"] for row in got]
    assert kinds == ["binary", "binary", "tau", "tau", "powerset"]
    assert [row["parameters"].get("sigma", 5) for row in got] == [5] * 5
    shown = run(*call(file, "mechanism")).stdout
    assert "binary (sigma=5)" in shown
    assert "tau (sigma=5, tau=3.4, norm=1)" in shown
    assert "left out: plurality (sigma=5): plurality takes at most one positive" in shown
    equal = rows(run(*call(file, "mechanism", "--equal", "quality", "--json")))
    wrong = [row["quality"]["wrong"] for row in equal]
    assert wrong == pytest.approx([wrong[0]] * len(wrong), rel=0.02)
    np.save(tmp_path / "one.npy", np.eye(3, dtype=bool)[np.arange(40).reshape(4, 10) % 3])
    last = rows(run(*call("one.npy", "mechanism", "--json")))[-1]
    assert last["parameters"] == {"mechanism": "plurality", "sigma": 5}


@dataclass(frozen=True, kw_only=True)
class Foreign(pv.BinaryVoting):
    """A mechanism of somebody else's."""

    name: ClassVar[str] = "foreign"


def test_a_mechanism_from_outside_joins(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MECHANISMS, "foreign", Foreign)
    got = rows(run(*call(file, "sigma", "--mechanism", "foreign", "--json")))
    assert [row["parameters"]["mechanism"] for row in got] == ["foreign", "foreign"]
    assert [row["fits"] for row in got] == [
        row["fits"] for row in rows(run(*call(file, "sigma", "--json")))
    ]


def test_other_mechanisms_and_their_flags(run: Run, file: Path, votes: Any) -> None:
    flags = ("--mechanism", "tau", "--tau", 1.5, "--norm", 1, "--json")
    got = rows(run(*call(file, "sigma", *flags)))
    mechanism = pv.TauVoting(sigma=7.0, tau=1.5, norm=1)
    assert got[1]["parameters"] == mechanism.parameters()
    assert got[1]["fits"] == planning.queries_that_fit(mechanism, votes, 3, 1e-5)
    linked = rows(run(*call(file, "sigma", "--link-cost", 1, "--link-order", 4, "--json")))
    assert linked[0]["parameters"]["link"]["order"] == 4
    assert linked[0]["fits"]["published"] is None


def test_tau_has_both_norms_unless_told(run: Run, file: Path) -> None:
    assert [row["norm"] for row in rows(run(*call(file, "tau", "--json")))] == [2, 1]
    one = rows(run(*call(file, "tau", "--mechanism", "tau", "--norm", 1, "--json")))
    assert [row["norm"] for row in one] == [1]


def test_gate_shows_pairs_and_what_is_answered(run: Run, file: Path) -> None:
    got = rows(run(*call(file, "gate", "--json")))
    pairs = [(row["gate_threshold"], row["gate_sigma"]) for row in got]
    assert pairs == [(None, None), (12, 3), (16, 3)]
    answered = [row["quality"]["answered"] for row in got]
    assert 1 == answered[0] > answered[1] > answered[2] > 0
    assert got[1]["labels_answered"]["worst-case"] < 4 * got[1]["fits"]["worst-case"]
    assert "answered" in run(*call(file, "gate")).stdout


def test_threshold_tries_three_rules(run: Run, file: Path, tmp_path: Path) -> None:
    got = rows(run(*call(file, "threshold", "--json")))
    assert [row["rule"] for row in got] == ["common", "common", "per label", "prevalence"]
    assert len(got[2]["thresholds"]) == 4
    assert got[3]["yes_per_ballot"] == 4 * 3 / 12
    share = np.tile([0.5, 0.25, 0.0, 1.0], (20, 1))
    np.save(tmp_path / "share.npy", share)
    by_voter = rows(run(*call(file, "threshold", "--json", "--prevalence", "share.npy")))
    assert by_voter[3]["yes_per_ballot"] == (6 + 3 + 0 + 12) / 12
    (tmp_path / "share.csv").write_text("0.5,0.25,0,1\n")
    assert rows(run(*call(file, "threshold", "--json", "--prevalence", "share.csv"))) == by_voter
    shown = run(*call(file, "threshold")).stdout
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
    beside = json.loads(run(*call("packed.npz", "sigma", "--json")).stdout)
    assert beside["against"] == "truth"
    for name in ("truth.npy", "truth.npz", "truth.csv"):
        given = json.loads(run(*call("votes.npy", "sigma", "--truth", name, "--json")).stdout)
        assert given == beside
    without = json.loads(run(*call("votes.npy", "sigma", "--json")).stdout)
    assert without["against"] == "noise-free majority"
    assert without["trials"][0]["noise_free"]["wrong"] == 0
    assert "against the noise-free majority" in run(*call("votes.npy", "sigma")).stdout


def test_the_first_queries_only(run: Run, file: Path) -> None:
    for over in ("sigma", "threshold"):
        done = run(*call(file, over, "--max-queries", 5, "--json"))
        assert json.loads(done.stdout)["queries"] == 5


def test_probabilities_with_a_threshold_are_votes(run: Run, file: Path, tmp_path: Path) -> None:
    with np.load(file) as data, np.load("soft.npz") as soft_data:
        np.testing.assert_array_equal(soft_data["votes"] >= 0.5, data["votes"])
    soft = rows(run(*call("soft.npz", "gate", "--threshold", 0.5, "--json")))
    assert soft == rows(run(*call(file, "gate", "--json")))


def test_what_is_chosen_is_said(run: Run, votes_file: Path) -> None:
    words = ("tune", votes_file, "--over", "sigma", "--values", "1,5,200", "--epsilon", 8)
    words = (*words, "--delta", 1e-5, "--guarantee", "worst-case")
    loose = json.loads(run(*words, "--drop", 1, "--json").stdout)
    assert loose["chosen"] == {"sigma": 200}
    tight = json.loads(run(*words, "--drop", 0.1, "--json").stdout)
    assert tight["chosen"] == {"sigma": 5}
    few = json.loads(run(*words, "--drop", 1, "--missed", 0.2, "--json").stdout)
    assert few["chosen"] == {"sigma": 5}
    assert "sigma 200 answers most under worst-case (12 queries)" in run(*words, "--drop", 1).stdout


@pytest.mark.parametrize(
    ("over", "wishes"),
    [
        ("sigma", ("--refine",)),
        ("sigma", ("--quota", 0.4, "--guarantee", "worst-case")),
        ("gate", ("--guarantee", "data-dependent")),
        ("tau", ()),
        ("threshold", ()),
        ("mechanism", ("--guarantee", "ptr", "--epsilon", 12)),
    ],
)
def test_it_ends_with_the_command_that_carries_it_out(
    run: Run, file: Path, over: str, wishes: tuple[Any, ...]
) -> None:
    words = call(file, over, "--drop", 0.5, *wishes)
    words = tuple(word for word in words if word not in ("--prevalence", 0.25))
    found = json.loads(run(*words, "--json").stdout)
    assert found["command"] in run(*words).stdout
    (chosen,) = [
        row
        for row in found["trials"]
        if all(row[key] == value for key, value in found["chosen"].items())
    ]
    source = Path("soft.npz") if over == "threshold" else file
    carried = shlex.split(found["command"].replace("VOTES", str(source)))
    assert carried.pop(0) == "privote"
    done = run(*carried, "--json")
    assert done.exit_code == 0, done.stderr
    labelled = json.loads(done.stdout)
    assert labelled["mechanism"] == chosen["parameters"]
    assert labelled["guarantee"] == found["guarantee"]
    assert labelled["answered"] == chosen["fits"][found["guarantee"]]


def test_nothing_answered_is_said_too(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "split.npy", np.arange(80).reshape(4, 10, 2) % 4 < 2)  # five against five
    words = ("tune", "split.npy", "--over", "sigma", "--values", 0.1, "--epsilon", 0.01)
    done = run(*words, "--delta", 1e-5, "--report", "page.html")
    assert done.exit_code == 0, done.stderr
    assert "Nothing whose wrong labels stay within 0.02" in done.stdout
    assert "nothing was answered" in (tmp_path / "page.html").read_text()
    assert json.loads(run(*words, "--delta", 1e-5, "--json").stdout)["chosen"] is None


@pytest.mark.parametrize(
    ("over", "flags", "message"),
    [
        ("sigma", ("--over", "hope"), "--over must be one of sigma, tau, gate, threshold, mech"),
        ("sigma", ("--values", "3,x"), "--values must be numbers with commas between, got '3,x'"),
        ("sigma", ("--sigma", 3), "--sigma is what is tried: give --values"),
        ("sigma", ("--max-queries", 0), "--max-queries must be at least 1, got 0"),
        ("sigma", ("--epsilon", 0), "--epsilon must be finite and positive, got 0"),
        ("sigma", ("--drop", 2), "--drop must lie in [0, 1], got 2"),
        ("sigma", ("--missed", -1), "--missed must lie in [0, 1], got -1"),
        ("sigma", ("--guarantee", "exact"), "--guarantee must be one of allowance, worst-case"),
        ("sigma", ("--report", "page.pdf"), "--report must end in .html, got 'page.pdf'"),
        ("sigma", ("--report", "no/page.html"), "there is no folder 'no'"),
        ("sigma", ("--truth", "absent.npy"), "--truth 'absent.npy' does not exist"),
        ("sigma", ("--truth", "truth.txt"), "--truth must end in one of .npy, .npz, .csv"),
        ("sigma", ("--truth", "few.npy"), "--truth must have 12 rows"),
        ("sigma", ("--truth", "empty.csv"), "cannot be read: it is empty"),
        ("sigma", ("--truth", "votes.npz"), "has no array 'truth'; it has: votes"),
        ("sigma", ("--mechanism", "median"), "--mechanism must be one of"),
        ("sigma", ("--tau", 2), "--tau goes with mechanism 'tau', 'tally', not with 'binary'"),
        ("sigma", ("--gate-sigmas", 3), "--gate-sigmas goes with --over gate, got 'sigma'"),
        ("tau", ("--refine",), "--refine goes with --over sigma, got 'tau'"),
        ("tau", ("--mechanism", "tau", "--norm", 3), "norm must be 1 or 2, got 3"),
        ("gate", ("--gate-sigmas", "0"), "--gate-sigmas must be finite and positive, got 0"),
        ("gate", ("--gate-threshold", 9, "--gate-sigma", 3), "--mechanism must have no gate yet"),
        ("mechanism", ("--equal", "price"), "--equal must be noise, quality or as-given"),
        ("threshold", ("--prevalence", "0.1,0.2"), "one number per label (4)"),
    ],
)
def test_bad_arguments(
    run: Run, file: Path, tmp_path: Path, over: str, flags: tuple[Any, ...], message: str
) -> None:
    np.save(tmp_path / "few.npy", np.zeros((3, 4)))
    (tmp_path / "empty.csv").write_text("")
    np.savez(tmp_path / "votes.npz", votes=np.zeros((1, 1, 1), bool))
    done = run(*call(file, over, *flags))
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_threshold_needs_truth_and_a_cube(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "scores.npy", np.full((4, 3, 2), 0.5))
    np.save(tmp_path / "flat.npy", np.full((4, 3), 0.5))
    done = run(*call("scores.npy", "threshold"))
    assert done.exit_code == 2
    assert "--truth must be given" in done.stderr
    done = run(*call("flat.npy", "threshold"))
    assert "VOTES must have 3 axes (queries, voters, labels), got 2" in done.stderr


def test_votes_that_cannot_be_read_are_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "votes.npz").write_bytes(b"no archive")
    done = run(*call("votes.npz", "sigma"))
    assert done.exit_code == 2
    assert "votes.npz is not a readable .npz file" in done.stderr
