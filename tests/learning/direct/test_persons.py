"""Persons with several records: what one of them can do to a sum, and that all records count."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from privote.learning import DPLinear
from privote.learning.direct.linear import clipped_sum
from privote.learning.direct.noise import Noise
from privote.learning.direct.training import by_person, rows_of

RNG = np.random.default_rng(0)
CLIP = 0.7
# Records of a person, from which all persons of one or two records are made.
RECORDS = [
    (x, y)
    for x in ([3.0, 0.0, 1.0], [-3.0, 0.1, 1.0], [0.0, -0.2, 1.0], [1e8, -1e8, 1.0])
    for y in ([1, 0], [0, -1])
]
PERSONS = [
    some for count in (1, 2) for some in itertools.combinations_with_replacement(RECORDS, count)
]
OTHERS = [RECORDS[:3], RECORDS[4:5], RECORDS[2:6]]


def summed(persons, kind=np.asarray):
    records = [record for person in persons for record in person]
    rows, labels = (np.array(part) for part in zip(*records, strict=True))
    sizes = np.array([len(person) for person in persons])
    weights = np.linspace(-1, 1, 6).reshape(3, 2)
    return clipped_sum(kind(rows), labels.astype(np.int8), weights, 0.3, CLIP, sizes)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_no_person_moves_the_sum_or_the_count_by_more_than_a_record(kind):
    """Enumerated: every person of one or two records, replaced by every other, beside others."""
    alone, below = summed(OTHERS, kind)
    sums, counts = zip(
        *(summed([OTHERS[0], each, *OTHERS[1:]], kind) for each in PERSONS), strict=True
    )
    flat = np.array([total.ravel() for total in sums])
    apart = np.linalg.norm(flat[:, None] - flat[None], axis=2)
    added = np.linalg.norm(flat - alone.ravel(), axis=1)
    assert apart.max() <= 2 * CLIP
    assert apart.max() > 1.5 * CLIP  # some come close
    assert 0.99 * CLIP < added.max() <= CLIP
    assert np.ptp(counts) <= 1
    assert np.abs(np.array(counts) - below).max() <= 0.5


def test_a_person_adds_the_clipped_mean_of_its_gradients():
    persons = [RECORDS[:3], RECORDS[1:2]]
    total, below = summed(persons)
    wanted = np.zeros((3, 2))
    for person in persons:
        # Alone and with a bound that clips nothing, a record adds its own gradient.
        rows, labels = (np.array(part) for part in zip(*person, strict=True))
        at = (np.linspace(-1, 1, 6).reshape(3, 2), 0.3, 1e9)
        each = [
            clipped_sum(rows[[n]], labels[[n]].astype(np.int8), *at)[0] for n in range(len(rows))
        ]
        mean = np.mean(each, axis=0)
        wanted += mean * min(1, CLIP / np.linalg.norm(mean))
    assert total == pytest.approx(wanted, abs=2e-4)  # but for the hair
    assert below in (-1.0, 0.0, 1.0)


def test_one_record_each_is_what_it_was():
    rows, labels = RNG.normal(size=(50, 4)), RNG.integers(-1, 2, (50, 3)).astype(np.int8)
    at = (RNG.normal(size=(4, 3)), 0.0, CLIP)
    plain, below = clipped_sum(rows, labels, *at)
    persons, count = clipped_sum(rows, labels, *at, np.ones(50, np.int64))
    assert persons == pytest.approx(plain, rel=1e-12)
    assert count == below
    assert by_person(np.arange(50)[::-1]) == (None, None)


def test_sampling_is_by_person():
    order, sizes = by_person(np.array([2, 0, 2, 1, 2]))
    assert order.tolist() == [1, 3, 0, 2, 4]
    assert rows_of(np.array([0, 2]), sizes).tolist() == [0, 2, 3, 4]
    assert rows_of(np.array([1]), None).tolist() == [1]


def test_every_record_counts_and_the_number_of_persons_is_public(monkeypatch):
    X = RNG.normal(size=(300, 4))
    Y = (X[:, :2] > 0.3).astype(np.int8)
    people = np.repeat([f"p{n}" for n in range(150)], 2)
    drawn = []
    real = Noise.sample
    monkeypatch.setattr(
        Noise, "sample", lambda self, n, rate: drawn.append(n) or real(self, n, rate)
    )
    how = {"steps": 3, "seed": 1}
    model = DPLinear(8.0, 1e-5, **how).fit(X, Y, groups=people)
    assert (model.privacy_.records, set(drawn)) == (150, {150})
    assert "for one person replaced" in model.privacy_.statement()
    alone = DPLinear(8.0, 1e-5, **how).fit(X[::2], Y[::2])
    assert model.privacy_.noise_multiplier == alone.privacy_.noise_multiplier
    changed = X.copy()
    changed[1::2] *= -1  # the second record of each person
    other = DPLinear(8.0, 1e-5, **how).fit(changed, Y, groups=people)
    assert not np.array_equal(other.coef_, model.coef_)
    turned = RNG.permutation(300)  # the order of rows does not matter, but for rounding
    again = DPLinear(8.0, 1e-5, **how).fit(X[turned], Y[turned], groups=people[turned])
    assert again.coef_ == pytest.approx(model.coef_, abs=1e-6)


torch = pytest.importorskip("torch")
pytest.importorskip("opacus")


@pytest.mark.parametrize("chunk", [1, 64])
def test_a_network_adds_persons_up_as_the_closed_form_does(monkeypatch, chunk):
    from privote.learning import DPSGDClassifier

    monkeypatch.setattr(Noise, "add", lambda _, total, deviation: total.astype(np.float64))
    X = RNG.normal(size=(90, 5)).astype(np.float32)
    Y = (X[:, :2] > 0.3).astype(np.int8)
    people = RNG.integers(0, 40, 90)
    same = {"steps": 4, "sample_rate": 1.0, "clip": 0.4, "learning_rate": 0.5, "adaptive": True}
    closed = DPLinear(**same, normalise=False).fit(X, Y, groups=people)
    network = DPSGDClassifier(**same, network="linear", chunk=chunk).fit(X, Y, groups=people)
    assert network.predict_proba(X) == pytest.approx(closed.predict_proba(X), abs=1e-4)


def test_no_bit_of_a_persons_mean_depends_on_where_chunks_end():
    from privote.learning.direct.dpsgd import ClippedSum

    weight, sizes = torch.zeros(3), np.array([3, 2, 4])
    gradients = torch.tensor(RNG.normal(size=(9, 3)) * 10.0 ** RNG.integers(0, 12, (9, 1))).float()
    owners, seen = np.repeat(np.arange(3), sizes), []
    for chunk in (1, 2, 4, 9):
        total, kept = ClippedSum([weight], CLIP), []
        add = total.add
        total.add = lambda parts, n, add=add, kept=kept: (
            kept.extend(parts[0][:n].clone()) or add(parts, n)
        )
        for start in range(0, 9, chunk):
            part = gradients[start : start + chunk]
            total.add_means([part], owners[start : start + chunk], sizes)
        total.close()
        seen.append(torch.stack(kept))
        assert float(total.sums[0].norm()) <= 3 * CLIP
    assert all(torch.equal(seen[0], other) for other in seen)
