"""Counting ahead: whoever counts, however votes are cut: the same tallies, charges and labels."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privote as pv
from privote import ballots as room
from privote import blocks
from privote.ballots import Ballots, SparseBallots
from privote.blocks import DenseBlock
from privote.guardian import ahead
from privote.guardian.ahead import Counter
from privote.surprises import effective_votes, left_over
from privote.votefiles import write_packed
from privote.workers import on_workers

pytestmark = pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")

MECHANISMS = {
    "binary": pv.BinaryVoting(sigma=1.0),
    "bar": pv.BinaryVoting(sigma=1.0, quota=0.3),
    "gate": pv.BinaryVoting(sigma=1.0, gate=pv.Gate(threshold=2, sigma=1.0)),
    "tau": pv.TauVoting(sigma=1.0, tau=1.2),
    "powerset": pv.PowersetVoting(sigma=1.0),
    "plurality": pv.PluralityVoting(sigma=1.0),
}
SIZES = {"queries": 45, "voters": 4, "labels": 3}


def votes_of(kind: str, seed: int, *, missing: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    votes = (rng.random(tuple(SIZES.values())) < 0.3).astype(np.int8)
    if kind == "plurality":
        votes *= np.cumsum(votes, axis=2) == 1
    if missing:
        votes[rng.random(votes.shape) < 0.1] = -1
        votes[rng.random(votes.shape[:2]) < 0.1] = -1
        return votes
    return votes.astype(bool)


@pytest.mark.parametrize("kind", MECHANISMS)
@pytest.mark.parametrize("missing", [False, True])
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 999),
    lots=st.integers(1, 6),
    wave=st.integers(1, 3),
    few=st.sampled_from([0, 1 << 14]),
    left=st.lists(st.integers(0, 40), min_size=4, max_size=4),
)
def test_tallies_and_spending_are_those_of_the_definition(
    kind: str, missing: bool, seed: int, lots: int, wave: int, few: int, left: Any
) -> None:
    """However votes are cut into lots, and lots into waves; voters run out on the way."""
    mechanism, votes = MECHANISMS[kind], votes_of(kind, seed, missing=missing)
    guess = np.random.default_rng(seed).random((45, 3)) < 0.2
    guess &= np.cumsum(guess, axis=1) <= 1
    left = np.array(left)
    wanted, spent, refused = effective_votes(votes, guess, left, mechanism.surprise_unit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "_BLOCK_CELLS", lots * 8 * 12)
        patch.setattr(ahead, "_WAVE", wave)
        patch.setattr(blocks, "_FEW", few)
        at_once = mechanism.tally(DenseBlock(wanted, missing=False))
        for workers in (1, 2):
            counter = Counter(Ballots.from_array(votes), mechanism)
            now, sums, tallies = left, np.zeros((2, 4), np.int64), []
            with on_workers(None, workers):
                for lot, weigh in counter.weighed(counter.lots(), guess, left):
                    assert lot.start == sum(len(each) for each in tallies)
                    tally, *costs = weigh(now)
                    tallies.append(rows_of(tally))
                    sums += costs
                    now = left_over(now, *costs)
            assert sums.tolist() == [spent.tolist(), refused.tolist()]
            assert np.array_equal(np.concatenate(tallies), rows_of(at_once))


def rows_of(tally: Any) -> np.ndarray:
    """Return a tally query by query; of classes only how many have how many votes."""
    rows: np.ndarray = getattr(tally, "margins", None)
    if rows is None:
        rows = np.pad(tally.profiles, [(0, 0), (0, 4 - tally.profiles.shape[1])])
    return rows


@pytest.mark.parametrize("kind", MECHANISMS)
@pytest.mark.parametrize("guarantee", ["allowance", "paced", "worst-case", "data-dependent"])
def test_labels_and_bill_are_the_same_for_any_number_of_workers(
    kind: str, guarantee: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_BLOCK_CELLS", 8 * 12)
    votes = votes_of(kind, 5)
    one = run(votes, kind, guarantee)
    assert guarantee != "allowance" or all(one["refused"])  # everybody runs out on the way
    for wave, workers in ((1, 2), (2, 3), (4, 2)):
        monkeypatch.setattr(ahead, "_WAVE", wave)
        assert run(votes, kind, guarantee, n_jobs=workers) == one


def run(votes: Any, kind: Any, guarantee: str = "allowance", **where: Any) -> dict[str, Any]:
    """Return all that a run shows and seals, and what its ledger says."""
    more: dict[str, Any] = {"queries": "all"}
    if guarantee == "paced":
        guarantee, more = "allowance", {"queries": None, "yes": 0.3}
    elif guarantee != "allowance":
        more = {"queries": 40 if guarantee == "data-dependent" else None}
    mechanism = MECHANISMS[kind] if isinstance(kind, str) else kind
    guess = {"baseline": np.eye(45, 3, dtype=bool)} if guarantee == "allowance" else {}
    with closing(pv.Ledger.in_memory()) as ledger:
        release = pv.label(
            votes,
            mechanism=mechanism,
            epsilon=80.0,
            delta=1e-5,
            guarantee=guarantee,
            ledger=ledger,
            seed=1,
            **guess,
            **more,
            **where,
        )
        entries = [{**entry, "at": "", "digest": "", "account": ""} for entry in ledger.published()]
        sealed = release.sealed
        seen = {"labels": release.labels.tolist(), "epsilon": release.epsilon, "ledger": entries}
        for name in ("spent", "refused", "rdp"):
            value = getattr(sealed, name, None)
            seen[name] = None if value is None else value.tolist()
    return seen


def test_votes_are_the_same_however_they_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zarr = pytest.importorskip("zarr")
    monkeypatch.setattr(room, "_BLOCK_CELLS", 8 * 12)
    votes = votes_of("binary", 7)
    np.save(tmp_path / "votes.npy", votes)
    write_packed(tmp_path / "packed.npz", votes)
    places: list[Any] = [tmp_path / "votes.npy", tmp_path / "packed.npz"]
    for chunk in (1, 7, 45):
        path = tmp_path / f"{chunk}.zarr"
        store = zarr.create_array(str(path), shape=votes.shape, chunks=(chunk, 4, 3), dtype="bool")
        store[:] = votes
        places.append(path)
    wanted = run(votes, "binary")
    for place in places:
        for where in ({}, {"n_jobs": 2}, {"n_jobs": 2, "backend": "loky"}):
            assert run(place, "binary", **where) == wanted


def test_a_source_of_ones_own_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_BLOCK_CELLS", 128 * 3 * 8)
    votes = votes_of("tau", 3)
    query, voter = np.nonzero(votes.any(axis=2))
    sparse = SparseBallots(query, voter, votes[query, voter], queries=45, voters=4)
    zero = pv.BinaryVoting(sigma=1.0)
    seen = [
        pv.label(
            sparse, mechanism=zero, epsilon=200.0, delta=1e-5, seed=2, queries="all", **where
        ).labels.tolist()
        for where in ({}, {"n_jobs": 2}, {"n_jobs": 2, "backend": "loky"})
    ]
    assert seen[0] == seen[1] == seen[2]


class Grown:
    """A source of one's own, in blocks of any size, that notes how many wait for their turn."""

    queries, voters, labels, missing, sparse = 0, 16, 8, True, False

    def __init__(self, sizes: list[int], *, missing: bool) -> None:
        self.sizes, self.queries, self.missing = sizes, sum(sizes), missing
        self.given = self.back = self.most = 0

    def blocks(self) -> Iterator[DenseBlock]:
        for size in self.sizes:
            votes = np.zeros((size, 16, 8), np.int8 if self.missing else bool)
            self.given += 1
            self.most = max(self.most, self.given - self.back)
            yield DenseBlock(votes, self.missing, 0)

    def reached(self, queries: int) -> None:
        self.back += 1


@pytest.mark.parametrize("missing", [False, True])
def test_an_empty_block_is_counted_with_the_others(missing: bool) -> None:
    counter = Counter(Grown([0, 3, 5, 0, 4], missing=missing), pv.BinaryVoting(sigma=1.0))  # type: ignore[arg-type]
    seen = []
    for workers in (1, 2):
        with on_workers(None, workers):
            seen.append([found.tally.margins.tolist() for found in counter.counted()])
    assert seen[0] == seen[1]
    assert [len(margins) for margins in seen[0]] == [0, 3, 5, 0, 4]


def test_ballots_that_go_along_are_few_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait twice: for a worker, and with their result for their turn."""
    monkeypatch.setattr(ahead, "_HELD", 1 << 22)
    source = Grown([0] + [1 << 11] * 60, missing=True)  # a quarter of a megabyte each, and results
    with on_workers("loky", 2):
        for _ in Counter(source, pv.BinaryVoting(sigma=1.0)).counted():  # type: ignore[arg-type]
            pass
    assert source.back == 61
    assert source.most <= 3 * 10


def test_another_guardian_may_answer_in_between() -> None:
    """What was foreseen does not hold any more: the lot is counted again, for what is left."""
    votes = np.ones((32, 2, 1), bool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "_BLOCK_CELLS", 16)
        counter = Counter(Ballots.from_array(votes), pv.BinaryVoting(sigma=1.0))
        with on_workers(None, 2):
            lots = counter.weighed(counter.lots(), None, np.array([99, 99]))
            _, first = next(lots)
            assert first(np.array([99, 99]))[1].tolist() == [8, 8]
            _, second = next(lots)
            tally, spent, refused = second(np.array([3, 0]))
            lots.close()  # type: ignore[attr-defined]
    assert (spent.tolist(), refused.tolist()) == ([3, 0], [5, 8])
    assert tally.margins[:, 0].tolist() == [0, 0, 0, -2, -2, -2, -2, -2]


def test_what_goes_wrong_while_counting_is_raised_and_ends_it() -> None:
    def rows(start: int, stop: int) -> Any:
        if stop > 16:
            raise pv.errors.BallotError("the file is gone")
        return np.ones((stop - start, 2, 1), bool)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "_BLOCK_CELLS", 16)
        counter = Counter(Ballots((64, 2, 1), rows, missing=False), pv.BinaryVoting(sigma=1.0))
        for workers in (1, 2):
            with on_workers(None, workers), pytest.raises(pv.errors.BallotError, match="is gone"):
                list(counter.counted())


@dataclass(frozen=True, kw_only=True)
class Fragile(pv.BinaryVoting):
    """Binary voting that kills the process that counts, once, unless it is the guardian's."""

    mark: str
    home: int

    def tally(self, block: Any) -> Any:
        if os.getpid() != self.home and block.queries == 5:
            marks = Path(self.mark)
            for number in range(int(marks.read_text())):
                try:
                    os.close(os.open(f"{self.mark}{number}", os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)
        return super().tally(block)


@pytest.fixture
def fragile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(room, "_BLOCK_CELLS", 8 * 12)
    cloudpickle = pytest.importorskip("cloudpickle")
    here = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(here)

    def made(times: int) -> Fragile:
        (tmp_path / "mark").write_text(str(times))
        return Fragile(sigma=1.0, mark=str(tmp_path / "mark"), home=os.getpid())

    yield made
    cloudpickle.unregister_pickle_by_value(here)


@pytest.mark.parametrize("backend", ["loky", "dask", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_worker_that_dies_changes_nothing(backend: str, fragile: Any, tmp_path: Path) -> None:
    if backend != "loky":
        pytest.importorskip({"dask": "distributed"}.get(backend, backend))
    path = tmp_path / "votes.npz"
    write_packed(path, votes_of("binary", 9))
    mechanism = fragile(1)
    wanted = run(path, mechanism)
    assert run(path, mechanism, n_jobs=2, backend=backend) == wanted
    assert (tmp_path / "mark0").exists()
    assert [entry["kind"] for entry in wanted["ledger"]].count("charge") == 1


def test_workers_that_always_die_are_said(fragile: Any) -> None:
    with pytest.raises(pv.errors.PrivoteError, match="a worker died"):
        run(votes_of("binary", 9), fragile(9), n_jobs=2, backend="loky")
