"""Attacks through arrays: an error that quotes a cell, and one record that changes others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.tree import DecisionTreeClassifier
from tests.attacks.conftest import Outcome

import privote as pv
from privote.datasets import MultiLabelData
from privote.errors import InputError
from privote.learning import (
    DPLinear,
    DPMoments,
    LinearStudent,
    PartialLabels,
    cast,
    load,
    save_student,
    train,
)
from privote.learning.embedding import Landmarks
from privote.learning.rows import check_labels, check_rows, check_targets

pytestmark = pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")

SECRET = "HIV positive, J. Smith"
RNG = np.random.default_rng(0)
N, FEATURES, LABELS = 60, 4, 3
X, PUBLIC = RNG.normal(size=(N, FEATURES)), RNG.normal(size=(40, FEATURES))
Y = (RNG.random((N, LABELS)) < 0.4).astype(int)
VOTES = RNG.random((6, 10, LABELS)) < 0.3
BUDGET: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5}
MECHANISM = pv.BinaryVoting(sigma=7.0)


def spoilt(table: Any) -> Iterator[tuple[str, Any]]:
    """Yield a table with something in it that no message may quote, in every form of arrays."""
    for cell in (SECRET, {SECRET: 1}, SECRET.encode(), 123456.789j):
        cells = table.astype(object)
        cells[(-1,) * table.ndim] = cell
        yield f"objects, {type(cell).__name__}", cells
        yield f"a list, {type(cell).__name__}", cells.tolist()
    texts = table.astype("U40")
    texts[(0,) * table.ndim] = SECRET
    yield "texts", texts
    ragged = table.tolist()
    ragged[3] = [*ragged[3], SECRET]
    yield "ragged", ragged
    yield "a mapping", {"a": [SECRET] * len(table)}
    yield "one axis", np.full(len(table), SECRET)
    yield "numbers on one axis", np.full(len(table), 123456.789)
    yield "records", [{"a": 1.0, SECRET: SECRET}] * len(table)
    yield "one number", np.array(123456.789)
    if table.ndim == 2:
        frame = pytest.importorskip("pandas").DataFrame(texts).add_prefix("c")
        yield "a frame", frame
        yield "categories", frame.astype("category")


def pate(**settings: Any) -> pv.PATEClassifier:
    return pv.PATEClassifier(n_teachers=5, **BUDGET, **settings)


def doors() -> Iterator[tuple[str, Callable[[Any], Any], Any]]:
    """Yield every public call that takes private rows, labels or votes, and what it takes."""
    makers: dict[str, Callable[[], Any]] = {
        "teachers": pate,
        "trees": lambda: pate(teacher=DecisionTreeClassifier()),
        "neighbours": lambda: pate(voters="neighbours"),
        "gradients": lambda: pv.PrivateClassifier("gradients", **BUDGET),
        "DPLinear": lambda: DPLinear(**BUDGET),
        "DPMoments": lambda: DPMoments(**BUDGET),
    }
    for name, make in makers.items():
        yield f"{name}.fit X", lambda bad, make=make: make().fit(bad, Y, PUBLIC), X
        yield f"{name}.fit y", lambda bad, make=make: make().fit(X, bad, PUBLIC), Y
        yield f"{name}.fit public", lambda bad, make=make: make().fit(X, Y, bad), PUBLIC
        for who in ("ids", "groups"):
            named = lambda bad, make=make, who=who: make().fit(X, Y, PUBLIC, **{who: bad})  # noqa: E731
            yield f"{name}.fit {who}", named, Y
        fitted = make().fit(X, Y, PUBLIC)
        yield f"{name}.predict", fitted.predict, X
        yield f"{name}.predict_proba", fitted.predict_proba, X
        yield f"{name}.score X", lambda bad, model=fitted: model.score(bad, Y), X
        yield f"{name}.score y", lambda bad, model=fitted: model.score(X, bad), Y
    for student in (LinearStudent(), PartialLabels()):
        name = type(student).__name__
        yield f"{name}.fit X", lambda bad, model=student: model.fit(bad, Y), X
        yield f"{name}.fit y", lambda bad, model=student: model.fit(X, bad), Y
        yield f"{name}.predict", type(student)().fit(X, Y).predict, X
    part = np.arange(N) % 5
    yield "train X", lambda bad: train(None, bad, Y, part, 5), X
    yield "train trees X", lambda bad: train(DecisionTreeClassifier(), bad, Y, part, 5), X
    yield "train y", lambda bad: train(None, X, bad, part, 5), Y
    yield "neighbours X", lambda bad: pv.NeighbourBallots(bad, Y, PUBLIC), X
    yield "neighbours y", lambda bad: pv.NeighbourBallots(X, bad, PUBLIC), Y
    yield "landmarks", Landmarks().fit(np.full((3, 256), 0.5)).transform, np.zeros((5, 256))
    for name in ("Y_true", "Y_score", "Y_pred"):
        given: dict[str, Any] = {"Y_true": Y, "Y_score": Y, "Y_pred": Y}
        yield name, lambda bad, a=given, n=name: pv.metrics.multilabel(**{**a, n: bad}), Y
    yield "positive", pv.dependencies.positive, Y
    names = {"label_names": ("a", "b", "c"), "ids": np.arange(N)}
    yield "MultiLabelData", lambda bad: MultiLabelData(X=X, Y=bad, **names), Y
    yield "label", lambda bad: pv.label(bad, **BUDGET), VOTES
    yield "label, threshold", lambda bad: pv.label(bad, **BUDGET, threshold=0.5), VOTES
    yield "release", MECHANISM.release, VOTES
    yield "rdp", lambda bad: MECHANISM.rdp(bad, [2.0]), VOTES
    yield "sampled", lambda bad: pv.audit.sampled(MECHANISM, bad, VOTES), VOTES
    sizes = {"queries": N, "voters": N}
    place = np.arange(N)
    yield "SparseBallots", lambda bad: pv.SparseBallots(place, place, bad, **sizes), Y
    yield "SparseBallots, voter", lambda bad: pv.SparseBallots(place, bad, Y, **sizes), Y


def visible(error: BaseException) -> str:
    """Return what a traceback shows of an error, and of those that led to it."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return f"{type(error).__name__}: {error}\n" + ("" if cause is None else visible(cause))


def tried(call: Callable[[Any], Any], bad: Any) -> str:
    """Return what is visible of the refusal; nothing where it is taken."""
    try:
        call(bad)
    except InputError as error:
        return visible(error)
    return ""


def test_no_error_about_an_array_quotes_a_cell(outcome: Outcome) -> None:
    found = {
        (door, form): tried(call, bad)
        for door, call, usual in doors()
        for form, bad in spoilt(usual)
    }
    quoted = [any(word in text for word in ("HIV", "Smith", "123456")) for text in found.values()]
    outcome.of("errors about arrays that quote a cell", quoted)
    taken = {(door.partition(".")[2], form) for (door, form), text in found.items() if not text}
    assert taken == {(f"fit {who}", "one axis") for who in ("ids", "groups")}


def test_a_saved_student_of_another_library_quotes_none_either(tmp_path: Any) -> None:
    tree = DecisionTreeClassifier().fit(X, Y)
    save_student(tmp_path / "a.student", tree, label_names=[*"abc"])
    for _, bad in spoilt(X):
        with pytest.raises(InputError) as caught:
            load(tmp_path / "a.student").predict(bad)
        assert "HIV" not in visible(caught.value)


# -- one cell, and what others' cells become -------------------------------------------------------

WHOLE = RNG.integers(0, 5, (30, 6))
MISSING = (None, np.nan, -1)


def forms(table: Any) -> Iterator[Any]:
    """Yield a table of whole numbers in every form of arrays."""
    yield from (table.astype(kind) for kind in (np.int8, np.float32, np.float64, object))
    yield table.tolist()
    yield pytest.importorskip("pandas").DataFrame(table)
    yield sp.csr_array(table)


def test_one_cell_changes_no_other_records_row() -> None:
    """Integers, fractions, bools, the type of an array: rows are float64 whatever comes in."""
    wanted = WHOLE.astype(np.float64)
    for given in forms(WHOLE):
        rows = check_rows(given)
        rows = rows.toarray() if sp.issparse(rows) else rows
        assert rows.dtype == np.float64
        assert rows.tobytes() == wanted.tobytes()
    others = np.arange(30) != 7
    for odd in (0.1, True, 2**60 + 1, np.float32(0.1), 1e300):
        cells = WHOLE.astype(object)
        cells[7, 2] = odd
        for given in (cells, cells.tolist()):
            rows = check_rows(given)
            assert rows[7, 2] == float(odd)
            assert rows[others].tobytes() == wanted[others].tobytes()


def test_nor_another_teachers_votes() -> None:
    part, narrow = np.arange(N) % 5, X.astype(np.float32)
    fraction = narrow.astype(object)
    fraction[5, 0] = 0.1  # teacher 0's; no float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = cast(train(None, narrow, Y, part, 5), PUBLIC, 0.5)
        for given in (fraction, fraction.tolist(), fraction.astype(np.float64)):
            found = cast(train(None, given, Y, part, 5), PUBLIC, 0.5)
            assert (plain[:, 1:] == found[:, 1:]).all()


@pytest.mark.parametrize("read", [check_labels, check_targets])
def test_an_unknown_label_is_one_cell(read: Callable[[Any, int], Any]) -> None:
    for missing in MISSING:
        cells = Y.astype(object)
        cells[7, 1] = missing
        number = np.where(np.equal(cells, None), np.nan, Y * 1.0)  # type: ignore[call-overload]
        number[7, 1] = np.nan if missing is None else missing
        for given in (cells, cells.tolist(), number, number.astype(np.float32)):
            found = read(given, N)
            assert found[7, 1] == -1
            found[7, 1] = Y[7, 1]
            assert found.dtype == np.int8
            assert (found == Y).all()


@pytest.mark.parametrize("missing", MISSING)
def test_every_fit_takes_unknown_labels(missing: Any) -> None:
    cells = Y.astype(object)
    cells[7, 1] = missing
    known = np.where(np.equal(cells, missing), -1, Y)  # type: ignore[call-overload]
    known[7, 1] = -1
    models: list[Callable[[Any], Any]] = [
        lambda y: pate().fit(X, y, PUBLIC, seed=0),
        lambda y: pv.PrivateClassifier("moments", **BUDGET).fit(X, y, PUBLIC, seed=0),
        lambda y: DPLinear(**BUDGET, seed=0).fit(X, y),
        lambda y: LinearStudent().fit(X, y),
        lambda y: PartialLabels().fit(X, y),
    ]
    for fit in models:
        one, two = fit(cells), fit(known)
        assert one.predict_proba(PUBLIC).tobytes() == two.predict_proba(PUBLIC).tobytes()
        assert one.score(X, cells) == two.score(X, known)


@pytest.mark.parametrize("missing", MISSING)
def test_a_missing_vote_is_one_cell(missing: Any) -> None:
    """In a list of bools it would make integers, which may be missing and cost more."""
    whole = pv.Ballots.of(VOTES.tolist())
    votes = VOTES.astype(object)
    votes[2, 3, 1] = missing
    for given in (votes, votes.tolist()):
        found = pv.Ballots.of(given)
        assert isinstance(found, pv.Ballots)
        assert (found.missing, found.resolution) == (whole.missing, whole.resolution)
        cells = found.to_array()
        assert cells[2, 3, 1] == -1
        cells[2, 3, 1] = VOTES[2, 3, 1]
        assert (cells == VOTES).all()


def test_what_objects_show_of_themselves_is_public() -> None:
    """Not how many ballots were cast, how many records a person has, or how many labels known."""
    names: dict[str, Any] = {"label_names": (*"abc",), "ids": np.arange(N)}
    persons = [np.repeat(["ann", "bob"], (some, N - some)) for some in (1, 30)]
    shown = {
        repr(MultiLabelData(X=X, Y=cells, groups=who, **names))
        for cells, who in zip((Y, np.full_like(Y, -1)), persons, strict=True)
    }
    for some in (1, 2):
        cast = np.ones((some, 3), bool)
        shown.add(repr(pv.SparseBallots(np.arange(some), [0] * some, cast, queries=5, voters=5)))
    assert len(shown) == 2
