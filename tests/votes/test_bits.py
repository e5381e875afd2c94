"""Bits: what is counted without unpacking is what is counted one vote at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privote.votes import bits as room
from privote.votes.bits import Bits

sizes = st.tuples(st.integers(1, 20), st.integers(1, 19), st.integers(1, 17))


def votes_of(shape: tuple[int, int, int], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(shape) < 0.4


@given(shape=sizes, seed=st.integers(0, 99))
def test_sums_are_those_of_the_votes(shape: tuple[int, int, int], seed: int) -> None:
    votes = votes_of(shape, seed)
    packed = Bits.of_votes(votes)
    assert packed.votes().tolist() == votes.tolist()
    assert packed.yes().tolist() == votes.sum(axis=1).tolist()
    assert packed.totals().tolist() == votes.sum(axis=(0, 2)).tolist()
    assert packed.speaking().tolist() == votes.any(axis=2).sum(axis=0).tolist()
    last = shape[1] - 1
    assert packed.sizes_of(last).tolist() == votes[:, last].sum(axis=1).tolist()


@given(shape=sizes, seed=st.integers(0, 99), data=st.data())
def test_votes_are_dropped_as_asked(
    shape: tuple[int, int, int], seed: int, data: st.DataObject
) -> None:
    votes = votes_of(shape, seed)
    queries, voters, labels = shape
    rng = np.random.default_rng(seed)
    baseline, kept = rng.random((queries, labels)) < 0.5, rng.random(voters) < 0.5
    departs = Bits.of_votes(votes).against(baseline)
    assert departs.votes().tolist() == (votes != baseline[:, None]).tolist()
    assert departs.against(baseline).votes().tolist() == votes.tolist()
    assert departs.yes().tolist() == (votes != baseline[:, None]).sum(axis=1).tolist()
    some = departs.only(kept).votes()
    assert some.tolist() == ((votes != baseline[:, None]) & kept[:, None]).tolist()
    ends = data.draw(st.dictionaries(st.integers(0, voters - 1), st.integers(0, queries)))
    before, here = votes.copy(), Bits.of_votes(votes)
    for voter, end in ends.items():
        before[end:, voter] = False
    assert here.until(ends).votes().tolist() == before.tolist()
    assert here.votes().tolist() == votes.tolist()  # nothing is dropped in place


@pytest.mark.parametrize("shape", [(3, 255, 3), (3, 256, 3), (5, 700, 1), (9, 2100, 8)])
def test_sums_of_many_voters_do_not_wrap_around(shape: tuple[int, int, int]) -> None:
    everyone = Bits.of_votes(np.ones(shape, bool))
    assert (everyone.yes() == shape[1]).all()
    assert (everyone.totals() == shape[0] * shape[2]).all()


@pytest.mark.parametrize("shape", [(100, 9, 5), (3, 99, 8), (9, 1000, 3), (2, 5, 1001)])
@pytest.mark.parametrize("span", [64, 100, 1 << 15])
def test_votes_are_added_up_in_spans(
    shape: tuple[int, int, int], span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    votes = votes_of(shape, 1)
    monkeypatch.setattr(room, "_SPAN", span)
    assert Bits.of_votes(votes).yes().tolist() == votes.sum(axis=1).tolist()
