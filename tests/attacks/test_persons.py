"""Nothing about others follows from how many records a person has: neither a bit nor a time."""

import numpy as np
import pytest

from privote.learning.direct.linear import clipped_sum

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("features", "labels"), [(3, 5), (31, 9), (5, 20)])
@pytest.mark.parametrize("more", [0, 1])
def test_persons_at_the_bar_stay_on_their_side_whoever_has_a_second_record(features, labels, more):
    """Were a norm rounded by the number of records of somebody else, all would change sides."""
    row, weights = RNG.normal(size=(1, features)), RNG.normal(size=(features, labels))
    truth = RNG.integers(0, 2, (1, labels)).astype(np.int8)

    def count(clip, sizes):
        rows = (np.repeat(part, 20 if sizes is None else sum(sizes), 0) for part in (row, truth))
        return clipped_sum(*rows, weights, 0.1, clip, None if sizes is None else np.array(sizes))[1]

    low, high = 0.0, 1e3
    while low < (bar := (low + high) / 2) < high:
        low, high = (low, bar) if count(bar, None) > 0 else (bar, high)
    for clip in (low, high):
        there = count(clip, [1] * (19 + more) + [2] * (1 - more))
        assert abs(there - count(clip, None)) <= 1


@pytest.mark.parametrize("labels", [2, 9, 20])
def test_the_norm_of_a_lone_person_is_the_one_it_has_among_others(monkeypatch, labels):
    from privote.learning.direct import linear

    rows, weights = RNG.normal(size=(40, 6)), RNG.normal(size=(6, labels))
    truth, norms, real = RNG.integers(0, 2, (40, labels)).astype(np.int8), [], np.maximum
    found = []
    monkeypatch.setattr(np, "maximum", lambda a, b: norms.append(a) or real(a, b))
    for values, persons in ((1 << 22, 20), (1, 1)):  # all at once, or one by one
        monkeypatch.setattr(linear, "_VALUES", values)
        clipped_sum(rows, truth, weights, 0.1, 1.0, np.full(20, 2))
        found.append([each.tobytes() for each in norms if np.shape(each) == (persons,)])
        norms.clear()
    assert b"".join(found[0]) == b"".join(found[1])


def test_a_network_rounds_a_norm_the_same_however_many_persons_there_are():
    torch = pytest.importorskip("torch")
    from privote.learning.direct.dpsgd import ClippedSum

    def below(clip, some):
        total = ClippedSum([torch.zeros(2)] * 20, clip)
        total.add([part[some].clone() for part in parts], 1)
        return total.below

    parts = [*torch.randn((20, 64, 2), generator=torch.manual_seed(0))]
    for place in range(64):
        norm = float(torch.stack([part[place].double().norm() for part in parts]).norm())
        for clip in (np.nextafter(norm, 0), norm, np.nextafter(norm, 99)):
            assert below(clip, [place]) == below(clip, [place, *range(64)])


@pytest.mark.parametrize("private", [3, 200])
def test_how_long_training_takes_is_told_by_public_numbers(monkeypatch, private):
    """Whether three persons have one record each or two hundred."""
    pytest.importorskip("opacus")
    from privote.learning import DPSGDClassifier
    from privote.learning.direct import dpsgd

    told = []
    monkeypatch.setattr(dpsgd, "check_hours", lambda seconds, hours: told.append(seconds))
    monkeypatch.setattr(dpsgd, "chunk_size", lambda *_: (1, 1.0))
    rows = RNG.normal(size=(private, 4)).astype(np.float32)
    DPSGDClassifier(8.0, 1e-3, steps=2, sample_rate=1.0, seed=0).fit(
        rows, (rows[:, :1] > 0).astype(np.int8), groups=np.arange(private) % 3
    )
    assert told == [1.0 * (2 * 3 + 2)]
