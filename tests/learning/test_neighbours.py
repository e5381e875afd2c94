"""Neighbours as voters: who is near, and that nobody else has a say in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse
from sklearn.metrics import pairwise_distances
from tests.refusals import refused

import privote as pv
from privote.learning import PATEClassifier
from privote.learning import neighbours as nearness
from privote.learning.neighbours import NeighbourBallots

RECORDS, QUERIES, LABELS = 900, 70, 5
MECHANISM = pv.BinaryVoting(sigma=4.0, false_alarm=0.05)

Bools = npt.NDArray[np.bool_]


def made_up(seed: int = 0, features: int = 12) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    private = rng.normal(size=(RECORDS, features)) + 1
    public = rng.normal(size=(QUERIES, features)) + 1
    return private, rng.random((RECORDS, LABELS)) < 0.3, public


PRIVATE, ANSWERS, POOL = made_up()


def ballots(private: Any = PRIVATE, labels: Any = ANSWERS, public: Any = POOL, **how: Any) -> Any:
    return NeighbourBallots(private, labels, public, **{"share": 0.1, **how})


def words(seed: int = 0, features: int = 15) -> tuple[Any, Any, Any]:
    """Return rows of zeros and ones, with many pairs at exactly the same distance."""
    rng = np.random.default_rng(seed)
    private, public = (rng.random((n, features)) < 0.3 for n in (RECORDS, QUERIES))
    return private.astype(float), rng.random((RECORDS, LABELS)) < 0.3, public.astype(float)


def near(votes: NeighbourBallots) -> Bools:
    """Return who speaks: (queries, voters)."""
    spoke = np.zeros((votes.queries, votes.voters), np.bool_)
    for block in votes.blocks():
        assert not spoke[block.query + block.start, block.voter].any()
        spoke[block.query + block.start, block.voter] = True
    return spoke


def dense(votes: NeighbourBallots) -> Bools:
    """Return the whole cube of yes-votes: (queries, voters, labels)."""
    cube = np.zeros((votes.queries, votes.voters, votes.labels), np.bool_)
    for block in votes.blocks():
        cube[block.query + block.start, block.voter] = block.votes
    return cube


# -- who is near -----------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("radius", [None, "given"])
@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("data", [made_up, words])
def test_finds_what_brute_force_finds(data: Any, as_sparse: bool, radius: Any, metric: str) -> None:
    private, labels, public = data()
    wrap = sparse.csr_array if as_sparse else np.asarray
    if radius == "given":
        radius = {"cosine": 0.4, "euclidean": 1.8}[metric]
    how = {"share": 0.03, "metric": metric, "radius": radius}
    votes = ballots(wrap(private), labels, wrap(public), **how)
    away = pairwise_distances(public, private, metric=metric)
    reach = votes.radius[:, None]
    expected = away <= reach
    # At the very radius brute force rounds its own way; ours are near.
    clear = np.abs(away - reach) > 1e-7
    spoke = near(votes)
    np.testing.assert_array_equal(spoke[clear], expected[clear])
    assert 0 < spoke.sum() < spoke.size
    np.testing.assert_array_equal(dense(votes), spoke[:, :, None] & labels[None])


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("data", [made_up, words])
def test_nobody_else_decides_whether_a_record_is_near(
    data: Any, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, labels, public = data()

    def found(rows: Any, labels: Any = labels) -> Bools:
        return near(ballots(rows, labels, public, share=0.05, metric=metric))

    before, rng = found(private), np.random.default_rng(1)
    # Others move to other places of the product ...
    order = rng.permutation(RECORDS)
    np.testing.assert_array_equal(found(private[order], labels[order]), before[:, order])
    # ... or are replaced, by rows of any size ...
    others = rng.random(RECORDS) < 0.7
    replaced = np.where(others[:, None], rng.normal(size=private.shape) * 1e30, private)
    np.testing.assert_array_equal(found(replaced)[:, ~others], before[:, ~others])
    # ... or are not there, or come in other blocks.
    np.testing.assert_array_equal(found(private[:1], labels[:1])[:, 0], before[:, 0])
    monkeypatch.setattr(nearness, "_CELLS", 1 << 13)
    np.testing.assert_array_equal(found(private), before)
    monkeypatch.setattr(nearness, "same_anywhere", lambda *_: False)
    np.testing.assert_array_equal(found(private), before)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_a_pair_at_the_very_radius_is_near_and_one_beyond_is_not(metric: str) -> None:
    private, _, public = words()
    away = pairwise_distances(public[:12], private, metric=metric)
    for place, reach in enumerate(np.median(away, axis=1)):  # which many records share
        for radius, inside in ((reach, away[place] <= reach + 1e-7), (reach * (1 - 1e-6), None)):
            spoke = near(ballots(private, public=public, metric=metric, radius=radius).head(12))
            expected = away[place] < reach - 1e-7 if inside is None else inside
            np.testing.assert_array_equal(spoke[place], expected)


def test_far_from_the_origin_distances_stay_right() -> None:
    here, there = (
        near(ballots(PRIVATE + far, public=POOL + far, metric="euclidean", radius=3.0))
        for far in (0.0, 2.0**20)
    )
    np.testing.assert_array_equal(there, here)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_zero_and_huge_rows_are_no_trouble(metric: str) -> None:
    private = PRIVATE.copy()
    private[0], private[1], private[2] = 0.0, 1e300, 1e-300
    with np.errstate(all="raise"):
        spoke = near(ballots(private, share=0.5, metric=metric))
    if metric == "cosine":
        assert not spoke[:, 0].any()  # a zero row has no direction: it is at distance 1 of all
        np.testing.assert_array_equal(spoke[:, 1], spoke[:, 2])
    else:
        assert not spoke[:, 1].any()


# -- the radius ------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("share", [0.01, 0.2, 1.0])
def test_the_radius_is_a_quantile_of_the_pool(metric: str, share: float) -> None:
    away = pairwise_distances(POOL, metric=metric)
    np.fill_diagonal(away, np.inf)
    last = int(np.ceil(share * (QUERIES - 1))) - 1
    votes = ballots(share=share, metric=metric)
    np.testing.assert_allclose(votes.radius, np.sort(away, axis=1)[:, last], rtol=1e-6)


def test_the_radius_never_sees_private_rows() -> None:
    here, there = ballots(), ballots(PRIVATE[:5] * -40, ANSWERS[:5])
    np.testing.assert_array_equal(here.radius, there.radius)
    assert repr(here).replace("900 voters", "") == repr(there).replace("5 voters", "")


def test_a_large_pool_is_sampled_the_same_way_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    public = np.random.default_rng(3).normal(size=(1500, 12)) + 1
    exact = ballots(public=public).radius
    monkeypatch.setattr(nearness, "POOL_ROWS", 700)
    first, again = (ballots(public=public).radius for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (first != exact).any()
    np.testing.assert_allclose(first, exact, rtol=0.25)
    assert np.mean(first) == pytest.approx(np.mean(exact), rel=0.03)


# -- a source of ballots ---------------------------------------------------------------------------


def test_blocks_follow_public_sizes_only() -> None:
    public = np.tile(POOL, (40, 1))
    everywhere = np.repeat(public[:9], 100, axis=0)
    sizes = [
        [block.queries for block in ballots(rows, public=public).blocks()]
        for rows in (everywhere, -everywhere)
    ]
    assert sizes[0] == sizes[1]
    assert len(sizes[0]) > 1
    assert sum(sizes[0]) == len(public)


def test_is_a_source_like_any_other() -> None:
    votes = ballots()
    assert pv.Ballots.of(votes) is votes
    query, voter = np.nonzero(near(votes))
    plain = pv.SparseBallots(query, voter, ANSWERS[voter], queries=QUERIES, voters=RECORDS)
    budget: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5, "guarantee": "allowance", "seed": 7}
    ours, theirs = (pv.label(source, mechanism=MECHANISM, **budget) for source in (votes, plain))
    np.testing.assert_array_equal(ours.labels, theirs.labels)
    np.testing.assert_array_equal(ours.sealed.spent, theirs.sealed.spent)
    assert ours.epsilon == theirs.epsilon
    assert ours.guarantee.voters == RECORDS
    assert ours.sealed.exhausted.any()  # or the comparison would not have met an allowance


def test_head_and_take() -> None:
    votes = ballots()
    whole = near(votes)
    np.testing.assert_array_equal(near(votes.head(9)), whole[:9])
    np.testing.assert_array_equal(near(votes.take([5, 2, 5])), whole[[5, 2, 5]])
    np.testing.assert_array_equal(near(votes.take([5, 2, 9]).take([2, 0])), whole[[9, 5]])
    np.testing.assert_array_equal(votes.take([5, 2]).radius, np.asarray(votes.radius)[[5, 2]])
    assert votes.queries == QUERIES
    for rows in ([], [QUERIES], [-1], [0.5], [[1]], [True]):
        with refused("rows"):
            votes.take(rows)


def test_an_unknown_label_is_no_vote() -> None:
    unknown = ANSWERS.astype(np.int8)
    unknown[::3, 1] = -1
    known = np.where(unknown == 1, 1, 0)
    plain = dense(ballots(labels=known))
    for labels in (unknown, sparse.csr_array(known)):
        np.testing.assert_array_equal(dense(ballots(labels=labels)), plain)


def test_a_person_with_several_records_is_one_voter() -> None:
    persons = np.random.default_rng(4).integers(100, 160, RECORDS)
    votes = ballots(groups=persons)
    np.testing.assert_array_equal(votes.voter_names, np.arange(100, 160).astype(str))
    for what in (near, dense):
        single = what(ballots())
        every = [single[:, persons == name].any(axis=1) for name in range(100, 160)]
        np.testing.assert_array_equal(what(votes), np.stack(every, 1))
    alone = ballots(groups=10**6 + np.arange(RECORDS))
    np.testing.assert_array_equal(dense(alone), dense(ballots()))
    assert not near(ballots(radius=0.0, groups=persons)).any()


# -- embeddings ------------------------------------------------------------------------------------


# -- bad input -------------------------------------------------------------------------------------


BAD: dict[str, tuple[Any, ...]] = {
    "share": (0.0, 1.5, True, [0.1, 0.2]),
    "metric": ("manhattan",),
    "radius": (-1.0, float("nan"), "private"),
    "embedding": ("pca:0", "umap:2", 7),
    "groups": (np.zeros(3, int), np.full(RECORDS, np.nan)),
    "public": (np.ones((1, 12)), np.ones(12), np.ones((4, 3))),
    "private": (
        *(np.full((RECORDS, 12), bad) for bad in ("a", np.nan)),
        sparse.csr_array(np.full((RECORDS, 12), np.nan)),
    ),
    "labels": (
        *(np.zeros((RECORDS - 1, 2)), np.zeros((RECORDS, 0))),
        *(np.full((RECORDS, 2), bad) for bad in (0.5, "a")),
    ),
}


@pytest.mark.parametrize("argument", BAD)
def test_bad_input_says_what_is_wrong(argument: str) -> None:
    called = {"public": "X_public", "private": "X_private", "labels": "Y_private"}
    for bad in BAD[argument]:
        with refused() as caught:
            ballots(**{argument: bad})
        narrow = np.shape(bad) == (4, 3)  # which does not go with the private rows
        assert caught.value.argument == (None if narrow else called.get(argument, argument))


# -- labelling a pool ------------------------------------------------------------------------------

N, ROWS = 3000, 120
RNG = np.random.default_rng(1)
RULE = RNG.normal(size=(6, 3))
X, PUBLIC, TEST = (RNG.normal(size=(rows, 6)) for rows in (N, ROWS, 500))
Y, TRUTH = ((rows @ RULE > [-1.0, 0.0, 1.0]).astype(np.int8) for rows in (X, TEST))


def pate(**settings: Any) -> PATEClassifier:
    return PATEClassifier(**{"voters": "neighbours", "epsilon": 8.0, "delta": 1e-5, **settings})


def test_labels_are_what_most_records_near_a_row_say() -> None:
    votes = NeighbourBallots(X, Y, PUBLIC, 0.05)
    release = pv.label(votes, epsilon=50.0, delta=1e-5, seed=0)
    assert release.active_share == 0.05
    wanted = dense(votes).sum(axis=1) > 0.05 * N / 2
    assert (release.labels == wanted).mean() > 0.85
    assert wanted.mean() > 0.2
    assert release.shares.max() > 0.8
    assert "near each query" in pv.release.headline(release)


def test_the_default_share_follows_from_public_numbers() -> None:
    shares = []
    for records, epsilon in ((N, 8.0), (N, 32.0), (300, 1.0)):
        model = pate(epsilon=epsilon).fit(X[:records], Y[:records], PUBLIC, seed=0)
        shares.append(model.release_.active_share)
    assert shares == pytest.approx([8 / np.sqrt(8 * N), 4 / np.sqrt(8 * N), 0.1])


def test_a_person_is_one_voter_however_many_records_it_has() -> None:
    """One person's records are replaced by more of them: nothing public changes."""
    people, more = np.arange(N) // 3, np.concatenate([np.arange(N), np.zeros(400, np.int64)])
    texts = people.astype(str).astype(object)  # as a table holds them
    one = pate().fit(X, Y, PUBLIC, groups=texts, seed=0)
    two = pate().fit(X[more], Y[more], PUBLIC, groups=texts[more], seed=0)
    assert one.guarantee_.voters == two.guarantee_.voters == N // 3
    assert one.release_.active_share == two.release_.active_share
    np.testing.assert_array_equal(one.public_rows_, two.public_rows_)
    other = one.release_.sealed.spent != two.release_.sealed.spent
    assert set(np.flatnonzero(other).tolist()) <= {0}
    assert one.release_.guarantee.protects.startswith(
        "a person, with all their records (replaced by any"
    )


def test_the_same_persons_go_on_under_the_name_of_an_electorate(tmp_path: Any) -> None:
    people = np.array([f"p{i:04d}" for i in np.arange(N) // 3])
    common = {"ledger": tmp_path / "a.ledger", "electorate": "ward 7"}
    first = pate(queries=40).fit(X, Y, PUBLIC, groups=people.tolist(), **common)
    order = np.random.default_rng(2).permutation(N)
    rows = X[order], Y[order], PUBLIC
    again = pate(queries=40).fit(*rows, groups=people[order].tolist(), **common)
    assert again.guarantee_.answered_total == 80
    # Seat by seat the same person: nobody has spent less than before.
    assert (again.release_.sealed.spent >= first.release_.sealed.spent).all()
    with refused(None, pv.BudgetError):
        pate().fit(X, Y, PUBLIC, groups=people.tolist(), **common)
    with refused(None, pv.BudgetError):
        pate(queries=40).fit(X, Y, PUBLIC, **common)  # records are other voters than persons


@pytest.mark.parametrize("settings", [{}, {"share": 0.05}])
def test_rows_of_one_id_are_one_neighbour(settings: Any, tmp_path: Any) -> None:
    """A record may have several rows: as voters of their own they would have its budget each."""
    ids = [f"record {row // 2}" for row in range(N)]
    model = pate(**settings).fit(X, Y, PUBLIC, ids=ids, seed=0)
    assert model.guarantee_.voters == N // 2
    assert "a record" in model.release_.guarantee.protects
    same = pate(**settings).fit(X, Y, PUBLIC, groups=ids, seed=0)
    np.testing.assert_array_equal(model.release_.labels, same.release_.labels)
    # A ledger knows them by different names, and again.
    again = {"ids": ids, "ledger": tmp_path / "l.ledger", "electorate": "ward", "seed": 0}
    assert pate(queries=10, **settings).fit(X, Y, PUBLIC, **again).guarantee_.voters == N // 2
