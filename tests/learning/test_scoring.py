"""Records kept out of training: who they are, what is told of them, and what that costs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.datasets import MultiLabelData
from privote.errors import CompleteError
from privote.learning.jobs import Job, Outcome, trained
from privote.learning.rows import label_probabilities
from privote.learning.scoring import Holdout, answers, cells_of
from privote.ledger import Account, Ledger, Run

RNG = np.random.default_rng(0)
ROWS = 600


@pytest.fixture
def records(tmp_path: Path) -> Path:
    X = RNG.normal(size=(ROWS, 3))
    file = tmp_path / "records.csv"
    lines = [f"{row % 200},{a},{b},{c},{int(a > 0)}" for row, (a, b, c) in enumerate(X.tolist())]
    file.write_text("\n".join(["who,a,b,c,ill", *lines]))
    return file


def job(records: Path, ledger: Any = None, **how: Any) -> Job:
    given: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5, "group_column": "who"} | how
    return Job(
        data=str(records),
        method=given.pop("method", "gradients"),
        labels=("ill",),
        account=Account(ledger=ledger, dataset="ward"),
        **given,
    )


def ran(job: Job, **how: Any) -> Outcome:
    return trained(
        job,
        str(Path(job.data).parent),
        how.pop("write", lambda _: {}),
        progress=lambda *_: None,
        **how,
    )


def test_replacing_a_person_moves_the_counts_by_no_more_than_is_priced() -> None:
    """By the root of twice the labels: reached by records, whatever a person's number of them."""
    labels, farthest = 3, 0.0
    for _ in range(300):
        unit = np.sort(RNG.integers(0, 4, 9))
        unit = np.unique(unit, return_inverse=True)[1]
        Y, predicted = RNG.integers(-1, 2, (9, labels)), RNG.integers(0, 2, (9, labels))
        other, otherwise = Y.copy(), predicted.copy()
        mine = unit == 0
        other[mine] = RNG.integers(-1, 2, (mine.sum(), labels))
        otherwise[mine] = RNG.integers(0, 2, (mine.sum(), labels))
        moved = cells_of(Y, predicted, unit) - cells_of(other, otherwise, unit)
        farthest = max(farthest, float(np.linalg.norm(moved)))
    assert farthest == pytest.approx(np.sqrt(2 * labels))


@pytest.mark.parametrize("method", ["gradients", "moments"])
def test_what_is_said_of_a_record_does_not_depend_on_how_many_others_there_are(method: str) -> None:
    """Also at a threshold: a person's number of rows would turn all records that are like it."""
    X, public = RNG.normal(size=(400, 94)), RNG.normal(size=(300, 94))
    Y = (X[:, :2] > 0).astype(np.int8)
    model = pv.PrivateClassifier(method, epsilon=8.0, settings={"embedding": None})
    model.fit(X, Y, public, seed=0)
    for row in X[:6]:
        rows = np.tile(row, (1030, 1))
        model.thresholds_ = label_probabilities(model.student_, rows, 2).max(axis=0)
        said = [answers(model, rows[:many]) for many in (1, 2, 4, 7, 1023, 1030)]
        assert len(np.unique(np.concatenate(said), axis=0)) == 1


def test_sides_are_of_one_size_secret_and_the_same_for_a_ledger(tmp_path: Path) -> None:
    persons = np.repeat(np.arange(50), 3)
    data = MultiLabelData(
        X=np.zeros((150, 1)), Y=np.zeros((150, 1)), label_names=("a",), ids=np.arange(150),
        groups=persons,
    )  # fmt: skip
    account = Account(ledger=tmp_path / "a.ledger")
    one, two = (Holdout(share=0.2).rows(data, account, None) for _ in range(2))
    others = [Holdout(share=0.2).rows(data, Account(), None) for _ in range(5)]
    assert np.array_equal(one, two)
    assert all(out.sum() == 30 and (np.bincount(persons, out) % 3 == 0).all() for out in others)
    assert len({out.tobytes() for out in others}) > 1
    with refused("holdout"):
        Holdout(share=0.001).rows(data, account, None)


def test_a_score_is_a_part_of_epsilon_and_a_release_of_its_own(
    records: Path, tmp_path: Path
) -> None:
    ledger = tmp_path / "a.ledger"
    outcome = ran(job(records, ledger, holdout=Holdout(share=0.3, epsilon=1.0)))
    assert outcome.score is not None
    (row,) = outcome.score.rows()
    assert row["accuracy"] > 0.6
    assert outcome.score.guarantee.epsilon == 1.0
    assert outcome.fitted.guarantee_.epsilon == pytest.approx(3.0, rel=0.01)
    assert outcome.fitted.numbers_.records == 140
    with closing(Ledger.open(ledger)) as book:
        kinds = [entry["kind"] for entry in book.published()]
        assert kinds.count("charge") == kinds.count("deliver") == 2
        (standing,) = book.standing()
    assert standing["epsilon"] == 4.0
    alone = ran(job(records, holdout=Holdout(share=0.3, epsilon=1.0)))
    assert alone.score is not None
    assert alone.score.guarantee.delta + alone.fitted.guarantee_.delta <= 1e-5


@pytest.mark.parametrize("public", [False, True])
def test_figures_on_records_kept_out_are_for_the_owner(records: Path, public: bool) -> None:
    outcome = ran(job(records, test_is_public=public, holdout=Holdout(share=0.3)))
    assert outcome.score is None
    assert not outcome.figures
    assert outcome.sealed[0]["AUC"] > 0.6
    assert outcome.fitted.guarantee_.epsilon == pytest.approx(4.0, rel=0.01)
    assert outcome.facts()["test"] == []


@pytest.mark.parametrize("where", ["score", "written", "delivered"])
def test_a_run_that_is_killed_is_finished_at_no_charge(
    where: str, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, deliver, commits = tmp_path / "a.ledger", Run.deliver, []
    asked = job(records, ledger, holdout=Holdout(share=0.3, epsilon=1.0))

    class Killed(BaseException):
        pass

    def killed(*_: Any) -> Any:
        raise Killed

    def delivering(run: Run, files: Any = None) -> None:
        if len(commits) == 1:
            raise Killed
        commits.append(deliver(run, files))

    write = killed if where == "written" else lambda _: {}
    with monkeypatch.context() as patch:
        if where == "score":
            patch.setattr("privote.learning.jobs.drawn", killed)
        if where == "delivered":
            patch.setattr(Run, "deliver", delivering)
        with pytest.raises(Killed):
            ran(asked, write=write)
    ran(asked, resume=True)
    with closing(Ledger.open(ledger)) as book:
        kinds = [entry["kind"] for entry in book.published()]
    assert kinds.count("charge") == kinds.count("commit") == kinds.count("deliver") == 2
    with refused(None, CompleteError):
        ran(asked, resume=True)


@pytest.mark.parametrize(
    ("argument", "how"),
    [
        ("score", {"holdout": Holdout(share=0.3, epsilon=4.0)}),
        ("holdout", {"holdout": Holdout(share=0.3), "test": Path("test.csv")}),
    ],
)
def test_refused(argument: str, how: dict[str, Any], records: Path) -> None:
    with refused(argument):
        job(records, **how)
    with refused("holdout"):
        Holdout(share=1.0)
    with refused("score", pv.InputError):
        Holdout(share=0.5, epsilon=0.0)


def test_a_score_does_not_add_up_with_what_holds_for_these_data_only(records: Path) -> None:
    conditional = {"guarantee": "data-dependent", "queries": 10}
    with refused("score", value=1.0):
        job(
            records,
            holdout=Holdout(share=0.3, epsilon=1.0),
            method="teachers",
            settings=conditional,
        )
    assert (
        job(records, holdout=Holdout(share=0.3), method="teachers", settings=conditional).score == 0
    )
