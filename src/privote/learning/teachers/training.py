"""Training the teachers: one classifier for each part of the private data.

Whatever is fitted is fitted inside one part, preprocessing included: give a scikit-learn pipeline
as the teacher and its scaler sees that part only. A teacher's seed depends on its number, never on
the other parts. So a record reaches one teacher, and the other teachers' answers are the same to
the last bit whatever that record holds. A part goes to another process, or another machine, as it
is, so it holds its own records and nothing of the others.

*Parts* are made by a keyed hash of names, never by values. The guarantee is about changing one
voter's ballot. It becomes one about changing one record only if a record reaches one voter, so a
record's part may depend on its own name and on nothing else: sorting, balancing or stratifying by
values would let one record move others.

Which change of records that covers depends on who knows the key. To whoever knows it, a person who
gives way to one of another name leaves one part and enters another: two voters change, which costs
more than is stated. To whoever does not, the two parts are equally likely to be any: pair every
partition in which the one is in part j with that in which the other is. Each pair differs in one
voter, and the divergence of the mixtures is at most that of the worst pair (quasi-convexity).
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from ...datasets.records import keyed_parts
from ...entropy import Entropy
from ...errors import InputError, whole
from ...learning.workers import each, one_thread
from ...ledger import Ledger
from ...votes.names import identities
from ..linear import one_class
from ..networks.architectures import seeded
from ..rows import (
    Labels,
    Progress,
    check_labels,
    check_rows,
    count_rows,
    label_probabilities,
    take_rows,
    targets,
    worded,
)
from .votes import (
    METRICS,
    LinearTeachers,
    SeparateTeachers,
    StackedTeachers,
    Teachers,
    TrainedTeacher,
    best_thresholds,
)

Floats = npt.NDArray[Any]

FOLDS = 3
_AT_ONCE = 4  # parts a worker gets at once from a fast teacher


@dataclass(frozen=True)
class Part:
    """A part: its teacher's number, rows, labels (records, labels), seed, and what to tune by."""

    number: int
    X: Any
    Y: Labels
    seed: int
    tune: str | None = None


def train(
    teacher: Any,
    X: Any,
    Y: npt.ArrayLike,
    part: npt.ArrayLike,
    n_teachers: int,
    *,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    random_state: int = 0,
    tune: str | None = None,
) -> Teachers:
    """Train one teacher on each part of the private data.

    Parameters
    ----------
    teacher
        None for :class:`LinearTeachers` as it comes; or one with other parameters; or any
        scikit-learn classifier or pipeline for many labels, or skorch network. Each teacher is a
        clone with seeds of its own.
    X
        (records, ...) rows: an array, a sparse matrix, a data frame, a list, or anything with a
        length and ``take(rows)``.
    Y
        (records, labels) of 1, 0 and -1 (unknown). A classifier that leaves unknown labels out by
        itself says so by a true attribute ``accepts_missing``; any other is fitted label by label
        on the known ones where a part has unknown labels.
    part
        (records,) from :func:`partition`.
    n_teachers
        How many parts; some may have no records.
    n_jobs
        As joblib counts them, inside ``joblib.parallel_config`` too; the teachers are the same for
        any number.
    progress
        Called as ``progress(done, n_teachers)``.
    random_state
        Whence the teachers' seeds.
    tune
        "F1" or "BAC": also find, inside each part, the threshold of each label at which that figure
        is best on records held out, for ``cast(..., threshold="tuned")``. It takes four times as
        long: each part is cut in three, and each third is judged by a teacher of the other two.

    Notes
    -----
    A teacher with an empty part, or whose part has one class only of a label, still votes: a
    constant, see :class:`LinearTeachers`. What a teacher warns of, such as a fit that did not
    converge, is not shown: it tells of its part.
    """
    model = LinearTeachers() if teacher is None else teacher
    rows = check_rows(X) if isinstance(model, LinearTeachers) else X
    labels = check_labels(Y, count_rows(rows), "Y")
    parts = _check_parts(part, len(labels), n_teachers)
    if tune is not None and tune not in METRICS:
        raise InputError("tune", f"must be None or one of {', '.join(METRICS)}", tune)
    if isinstance(model, LinearTeachers):
        model.solver()
    elif not hasattr(model, "fit"):
        raise InputError("teacher", "must be a classifier with fit", model)
    seeds = _seeds(random_state, n_teachers)

    def part_of(number: int) -> Part:
        mine = parts[number]
        return Part(number, take_rows(rows, mine), labels[mine], seeds[number], tune)

    teachers = _train_parts(model, part_of, n_teachers, n_jobs, progress)
    sizes = np.array([len(mine) for mine in parts], np.int64)
    prevalence = np.stack([_prevalence(labels[mine]) for mine in parts])
    thresholds = None if tune is None else np.stack([trained.thresholds for trained in teachers])
    if isinstance(model, LinearTeachers):
        layers = [trained.layer for trained in teachers if trained.layer is not None]
        return StackedTeachers(layers, sizes, prevalence, thresholds)
    return SeparateTeachers(teachers, sizes, prevalence, thresholds)


def _train_parts(
    model: Any,
    part_of: Callable[[int], Part],
    count: int,
    n_jobs: int | None,
    progress: Progress | None,
) -> list[TrainedTeacher]:
    """Return the teachers of all parts, in order; ``part_of(number)`` gives each when due."""
    fast = isinstance(model, LinearTeachers)
    size = _AT_ONCE if fast else 1
    batches = (
        [part_of(n) for n in range(first, min(first + size, count))]
        for first in range(0, count, size)
    )
    teachers: list[TrainedTeacher] = []
    # Fast teachers spend their time in products that let other threads run.
    with one_thread():
        how: dict[str, Any] = {"n_jobs": n_jobs, "prefer": "threads" if fast else None}
        for group in each(partial(_learn, model), batches, at_once=1, **how):
            teachers += group
            if progress is not None:
                progress(len(teachers), count)
    return teachers


def _learn(model: Any, parts: list[Part]) -> list[TrainedTeacher]:
    """Return the teachers of a few parts: the work that is sent away."""
    with one_thread(), np.errstate(all="ignore"):  # a warning would tell of a part
        return [_learn_one(model, part) for part in parts]


def _learn_one(model: Any, part: Part) -> TrainedTeacher:
    teacher = _fitted(model, part)
    if part.tune is None:
        return teacher
    held_out = np.zeros(part.Y.shape)
    # By chance, seeded for this teacher alone: the order of records may be that of their values.
    fold = np.random.default_rng(part.seed).permutation(len(part.Y)) % FOLDS
    for turn in range(FOLDS):
        rest, mine = np.flatnonzero(fold != turn), np.flatnonzero(fold == turn)
        if len(mine):
            study = Part(part.number, take_rows(part.X, rest), part.Y[rest], part.seed)
            judge = _fitted(model, study)
            held_out[mine] = judge.answer(take_rows(part.X, mine), f"teacher {part.number}")
    return replace(teacher, thresholds=best_thresholds(held_out, part.Y, part.tune))


def _fitted(model: Any, part: Part) -> TrainedTeacher:
    learnable, constant = one_class(part.Y)
    if isinstance(model, LinearTeachers):
        return TrainedTeacher(model.solver().fit(part.X, part.Y), [], learnable, constant)
    if not learnable.any():
        return TrainedTeacher(None, [], learnable, constant)
    with _own_chance(part.seed), warnings.catch_warnings():
        # What a classifier warns of is in its part: that it does not converge, how few are of a
        # class.
        warnings.simplefilter("ignore")
        return TrainedTeacher(None, _models(model, part, learnable), learnable, constant)


def _models(
    model: Any, part: Part, learnable: npt.NDArray[np.bool_]
) -> list[tuple[Any, npt.NDArray[np.intp]]]:
    """Return fitted clones, each with the labels it answers."""
    Y = part.Y
    able, every = np.flatnonzero(learnable), np.arange(Y.shape[1])
    masks = getattr(model, "accepts_missing", False)
    if (Y < 0).any() and not masks:
        rows_by_label = [np.flatnonzero(Y[:, label] >= 0) for label in able]
        return [
            (_fit(model, take_rows(part.X, rows), Y[rows][:, [label]], part), np.array([label]))
            for label, rows in zip(able, rows_by_label, strict=True)
        ]
    if masks or len(able) == len(every):
        return [(_fit(model, part.X, Y, part), every)]
    try:
        # Many classifiers refuse, or misreport, a label with one class.
        return [(_fit(model, part.X, Y[:, able], part), able)]
    except InputError as refusal:
        try:
            # A network has an output for every label, and cannot do with fewer.
            return [(_fit(model, part.X, Y, part), every)]
        except InputError:
            raise refusal from None


def _fit(model: Any, X: Any, Y: Labels, part: Part) -> Any:
    """Return a clone with this teacher's seed, fitted, and tried on a record."""
    teacher = clone(model)
    seeds = {
        name: part.seed
        for name in teacher.get_params(deep=True)
        if name == "random_state" or name.endswith("__random_state")
    }
    teacher.set_params(**seeds)
    kind = type(model).__name__
    rule = f"must be a multi-label classifier; {kind} cannot learn {Y.shape[1]} labels from a part"
    with worded("teacher", rule):
        teacher.fit(X, targets(teacher, Y))
        label_probabilities(teacher, take_rows(X, slice(0, 1)), Y.shape[1])
    return teacher


@contextmanager
def _own_chance(seed: int) -> Iterator[None]:
    """Seed the generators that are global, and put them back.

    A classifier that draws from them would otherwise start where the teacher before it stopped,
    which depends on that teacher's part.
    """
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    try:
        with seeded(seed) if sys.modules.get("torch") else nullcontext():
            yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002


def _prevalence(Y: Labels) -> npt.NDArray[np.float64]:
    return np.asarray((Y == 1).sum(axis=0) / np.maximum((Y >= 0).sum(axis=0), 1))


def _check_parts(part: npt.ArrayLike, records: int, n_teachers: int) -> list[npt.NDArray[np.intp]]:
    """Return the records of each part, in the order they are in."""
    whole("n_teachers", n_teachers)
    array = np.asarray(part)
    if array.shape != (records,) or array.dtype.kind not in "iu":
        raise InputError(
            "part",
            f"must be {records} integers, one per record, got {array.dtype} of shape {array.shape}",
        )
    if not (0 <= array.min() and array.max() < n_teachers):
        raise InputError(
            "part", f"must lie in 0..{n_teachers - 1}, got {array.min()} to {array.max()}"
        )
    order = np.argsort(array, kind="stable")
    bounds = np.searchsorted(array[order], np.arange(n_teachers + 1))
    return [order[a:b] for a, b in pairwise(bounds)]


def _seeds(random_state: int, n_teachers: int) -> list[int]:
    """Return one seed for each teacher, which depends on nothing but its number."""
    whole("random_state", random_state, 0)
    words = (np.random.SeedSequence((int(random_state), t)) for t in range(n_teachers))
    return [int(word.generate_state(1)[0] >> 1) for word in words]


# -- parts -----------------------------------------------------------------------------------------

Parts = npt.NDArray[np.int64]

_PURPOSE = "teachers"
_KEY_BYTES = 32


def partition_key(ledger: Any, dataset: str, seed: int | None) -> bytes:
    """Return the key of a data set's partition, which nobody is told.

    Parameters
    ----------
    ledger
        A ledger or its place: the key follows from the ledger's own, so that later fits find every
        record in the same part. None: a key that is drawn and forgotten.
    dataset
        Its name in the ledger.
    seed
        An integer makes a simulation's key, which is known.
    """
    if seed is not None or ledger is None:
        return Entropy(seed).bytes(_KEY_BYTES)
    if isinstance(ledger, Ledger):
        return ledger.secret("partition", dataset)
    with closing(Ledger.open(ledger)) as book:
        return book.secret("partition", dataset)


def partition(
    n_records: int,
    n_teachers: int,
    *,
    ids: Any = None,
    groups: Any = None,
    key: bytes | int,
) -> Parts:
    """Return the part of each record, from 0 to ``n_teachers - 1``.

    Parameters
    ----------
    n_records
        How many records there are.
    n_teachers
        How many parts.
    ids
        (records,) the records' names: whole numbers or texts. Records of the same name land in the
        same part. Without names a record is its row number.
    groups
        (records,) names of what must stay together, such as the patient; they take the place of
        ``ids``, and the promise is for a whole group.
    key
        1 to 64 bytes, from :func:`partition_key`; or an integer, a key that everybody knows, for
        trials.

    Returns
    -------
    int64 array (records,)
        Parts have random sizes, and with few records some have none: their teachers vote no.

    Notes
    -----
    One voter's ballot changes if, under a *secret* key, a record (with ``groups``: a person, with
    all records) is replaced by one whose name no other has, or is there or not. Without names the
    same holds for a row, wherever it is put in, as long as the others keep their order.

    Under a *known* key: if a name's records hold something else, or are there or not. A name that
    gives way to another touches two voters. Without names only the content of a row may change:
    taking a row away renumbers, and so moves, all that follow.
    """
    names = part_names(n_records, ids, groups)
    return keyed_parts(names, whole("n_teachers", n_teachers), key=_key(key), purpose=_PURPOSE)


def part_names(n_records: int, ids: Any = None, groups: Any = None) -> Any:
    """Return by which name each record finds its part: group, id or row number; checked."""
    records = whole("n_records", n_records)
    names = None if ids is None else identities(ids, "ids", records)
    people = None if groups is None else identities(groups, "groups", records)
    if names is not None and people is not None:
        pairs = set(zip(names.tolist(), people.tolist(), strict=True))
        if len(pairs) > len(set(names.tolist())):  # such a record would reach two teachers
            rule = "must give all records of one id the same group, and one id has two"
            raise InputError("groups", rule)
    chosen = people if people is not None else names
    return range(records) if chosen is None else chosen


def _key(key: bytes | int) -> bytes:
    if isinstance(key, bytes):
        return key
    if isinstance(key, bool) or not isinstance(key, int | np.integer) or not 0 <= key < 2**64:
        raise InputError("key", "must be bytes or an integer from 0 to 2^64 - 1", key)
    return b"known key %d" % int(key)
