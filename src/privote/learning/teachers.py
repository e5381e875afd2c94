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

*Votes*. The default rule, "prevalence", takes no threshold: a teacher says yes to the top share of
the public pool, label by label, the share being how often the label is present in its own part. A
teacher of few records ranks better than its probabilities are calibrated. Ties are decided by a
public hash of query, teacher and label. (The first ones of the pool would be the same for all
teachers, and many teachers without an opinion would look like agreement.)

By every rule a teacher's votes depend on its own part and on public data, never on other teachers.

Of the teachers once they are trained, linear ones are asked in one matrix product; any others one
after the other.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import clone

from ..datasets.records import keyed_parts
from ..entropy import Entropy
from ..errors import InputError, whole
from ..ledger import Ledger
from ..votes.cube import Threshold, check_threshold
from ..votes.names import identities
from .linear import Layer, Solver, answer, one_class
from .rows import (
    Floats,
    Labels,
    Progress,
    check_labels,
    check_rows,
    count_rows,
    label_probabilities,
    row_size,
    take_rows,
    targets,
    worded,
)
from .workers import each, one_thread

_AT_ONCE = 4  # parts a worker gets at once from a fast teacher


@dataclass(frozen=True)
class Part:
    """A part: its teacher's number, rows, labels (records, labels) and seed."""

    number: int
    X: Any
    Y: Labels
    seed: int


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
    if not hasattr(model, "fit"):
        raise InputError("teacher", "must be a classifier with fit", model)
    seeds = _seeds(random_state, n_teachers)

    def part_of(number: int) -> Part:
        mine = parts[number]
        return Part(number, take_rows(rows, mine), labels[mine], seeds[number])

    teachers = _train_parts(model, part_of, n_teachers, n_jobs, progress)
    sizes = np.array([len(mine) for mine in parts], np.int64)
    prevalence = np.stack([_prevalence(labels[mine]) for mine in parts])
    return Teachers(teachers, sizes, prevalence)


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
        for group in each(partial(_learn, model), batches, **how):
            teachers += group
            if progress is not None:
                progress(len(teachers), count)
    return teachers


def _learn(model: Any, parts: list[Part]) -> list[TrainedTeacher]:
    """Return the teachers of a few parts: the work that is sent away."""
    with one_thread(), np.errstate(all="ignore"):  # a warning would tell of a part
        return [_fitted(model, part) for part in parts]


def _fitted(model: Any, part: Part) -> TrainedTeacher:
    learnable, constant = one_class(part.Y)
    if isinstance(model, LinearTeachers):
        return TrainedTeacher(model.fit(part.X, part.Y), [], learnable, constant)
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
    torch = sys.modules.get("torch")
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    try:
        with nullcontext() if torch is None else torch.random.fork_rng(devices=[]):
            if torch is not None:
                torch.manual_seed(seed)
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


# -- votes ----------------------------------------------------------------------------------------

Rule = str | Threshold
Votes = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]

_LAST = 2**64 - 1


def cast(
    teachers: Teachers,
    X_public: Any,
    threshold: Rule = "prevalence",
    *,
    block: int | None = None,
) -> Votes:
    """Ask the teachers about a public pool and return their votes.

    Parameters
    ----------
    teachers
        From :func:`privote.learning.train`.
    X_public
        (queries, ...) public rows. By "prevalence" a vote depends on the whole pool.
    threshold
        ``"prevalence"``; or numbers in [0, 1]: one, or one per label (labels,). A probability at or
        above the number is a yes.
    block
        Queries at a time; see :meth:`Teachers.predict_proba`.

    Returns
    -------
    bool array (queries, teachers, labels)
    """
    queries, cube = count_rows(X_public), (teachers.n_teachers, teachers.n_labels)
    if queries < 1:
        raise InputError("X_public", "must have at least one row, got none")
    row = 0
    if not (isinstance(threshold, str) and threshold == "prevalence"):
        if isinstance(threshold, str):
            raise InputError("threshold", "must be 'prevalence', or numbers", threshold)
        bar = check_threshold(threshold, teachers.n_labels).astype(np.float32)
        votes = np.empty((queries, *cube), np.bool_)
        for answers in teachers.predict_proba(X_public, block):
            votes[row : row + len(answers)] = answers >= bar
            row += len(answers)
        return votes
    scores = np.empty((cube[0] * cube[1], queries), np.float32)
    for answers in teachers.predict_proba(X_public, block):
        scores[:, row : row + len(answers)] = answers.reshape(len(answers), -1).T
        row += len(answers)
    return top_votes(scores, teachers.prevalence, cube)


def top_votes(scores: npt.NDArray[Any], share: npt.ArrayLike, cube: tuple[int, int]) -> Votes:
    """Return votes (queries, teachers, labels): yes to the top share of each voice's queries.

    Parameters
    ----------
    scores
        (voices, queries); a voice is a teacher's opinion on a label.
    share
        (labels,) or (teachers, labels) in [0, 1]. Times the queries, it is rounded to the nearest
        whole number, a half upwards.
    cube
        How many teachers and labels.
    """
    queries = scores.shape[1]
    counts = np.floor(np.broadcast_to(share, cube).ravel() * queries + 0.5)
    votes = np.empty((queries, len(scores)), np.bool_)
    for voice, row in enumerate(scores):
        votes[:, voice] = _top(np.asarray(row), int(counts[voice]), voice)
    return votes.reshape(queries, *cube)


def _top(scores: npt.NDArray[Any], wanted: int, voice: int) -> Votes:
    """Return yes to the ``wanted`` highest scores of one voice: (queries,)."""
    if wanted < 1 or wanted >= len(scores):
        return np.full(len(scores), wanted >= 1)
    rank = len(scores) - wanted
    value = np.partition(scores, rank)[rank]
    votes, equal = np.asarray(scores > value), np.flatnonzero(scores == value)
    room = wanted - int(votes.sum())
    votes[equal[np.argsort(_hash(equal, voice))[:room]]] = True
    return votes


def _hash(queries: npt.NDArray[Any], voice: int) -> Hashes:
    """Return a public hash (SplitMix64's) of each query; of one voice's, no two are equal."""
    with np.errstate(over="ignore"):
        bits = queries.astype(np.uint64) + np.uint64((voice << 40) & _LAST)
        bits = (bits + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(bits ^ (bits >> np.uint64(31)))


# -- teachers that were trained --------------------------------------------------------------------

Answers = npt.NDArray[np.float32]

_BLOCK_CELLS = 1 << 23  # answers in a block: 32 MiB
_BLOCK_VALUES = 1 << 25  # features of a block's rows


class Teachers:
    """An ensemble that was trained: how many teachers, what they saw, what they answer.

    Linear models are asked in one matrix product: what a column of it comes to depends on that
    column and on sizes that are public. Their weights take teachers x labels x features x 4 bytes,
    twice that while they are put together. Any others are asked one after the other.

    Attributes
    ----------
    n_teachers, n_labels
        How many of each.
    sizes
        (teachers,) records of each part. Sealed.
    prevalence
        (teachers, labels) the share of ones among each part's known labels; 0 where none is known.
        Sealed.
    """

    def __init__(
        self, teachers: list[TrainedTeacher], sizes: npt.NDArray[np.int64], prevalence: Floats
    ) -> None:
        self.n_teachers, self.n_labels = prevalence.shape
        self.teachers, self.sizes, self.prevalence = teachers, sizes, prevalence
        layers = [teacher.layer for teacher in teachers if teacher.layer is not None]
        self._layer: tuple[Answers, Answers] | None = None
        if layers:
            self._layer = _stacked(layers)
            self.teachers = []

    def __repr__(self) -> str:
        return f"Teachers({self.n_teachers} teachers, {self.n_labels} labels)"

    def predict_proba(self, X: Any, block: int | None = None) -> Iterator[Answers]:
        """Yield probabilities (rows, teachers, labels) for consecutive rows of ``X``.

        Parameters
        ----------
        X
            Rows as the teachers were trained on.
        block
            Rows at a time; by default as many as make a few dozen megabytes, a multiple of eight.
        """
        rows = count_rows(X)
        if block is None:
            cells = _BLOCK_CELLS // (self.n_teachers * self.n_labels)
            block = max(8, min(cells, _BLOCK_VALUES // row_size(X)) // 8 * 8)
        block = whole("block", block)
        for start in range(0, rows, block):
            part = take_rows(X, slice(start, min(start + block, rows)))
            if self._layer is not None:
                yield self._product(check_rows(part), *self._layer)
                continue
            answers = np.empty((count_rows(part), self.n_teachers, self.n_labels), np.float32)
            for number, teacher in enumerate(self.teachers):
                answers[:, number] = teacher.answer(part, f"teacher {number}")
            yield answers

    def _product(self, rows: Any, weights: Answers, lift: Answers) -> Answers:
        if rows.shape[1] != len(weights):
            raise InputError("X", f"must have {len(weights)} features, got {rows.shape[1]}")
        with np.errstate(over="ignore", invalid="ignore"):  # looked for below
            narrow = rows.astype(np.float32, copy=False)
            if not np.isfinite(narrow.data if sp.issparse(narrow) else narrow).all():
                raise InputError("X", "must contain numbers within the range of float32")
            values = np.asarray(narrow @ weights) + lift
        values = values.reshape(len(values), self.n_teachers, -1)
        values[np.isnan(values)] = 0  # a teacher whose numbers overflowed has no opinion
        return np.asarray(expit(values, out=values))


def _stacked(layers: list[Layer]) -> tuple[Answers, Answers]:
    """Return all layers as one: weights (features, teachers x labels) and biases."""
    labels, features = layers[0][0].shape
    weights = np.empty((features, len(layers) * labels), np.float32)
    for teacher, (own, _) in enumerate(layers):
        weights[:, teacher * labels : (teacher + 1) * labels] = own.T
    return weights, np.concatenate([lift for _, lift in layers]).astype(np.float32)


@dataclass(frozen=True)
class TrainedTeacher:
    """A teacher that was trained on its part.

    Attributes
    ----------
    layer
        Of a linear model; None for any other classifier.
    models
        Fitted classifiers, each with the labels it answers.
    learnable
        (labels,) which labels had both classes; the others are answered by ``constant``.
    """

    layer: Layer | None
    models: list[tuple[Any, npt.NDArray[np.intp]]]
    learnable: npt.NDArray[np.bool_]
    constant: npt.NDArray[np.float64]

    def answer(self, X: Any, who: str) -> Floats:
        """Return probabilities (rows, labels)."""
        if self.layer is not None:
            return answer(X, self.layer)
        answers = np.tile(self.constant, (count_rows(X), 1))
        for model, labels in self.models:
            rule = f"must be rows that {who} can answer about"
            with worded("X", rule), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what follows from a private part
                chances = label_probabilities(model, X, len(labels))
            if not np.isfinite(chances).all():
                raise InputError(f"{who} must return finite numbers, got NaN or infinity")
            answers[:, labels] = np.clip(chances, 0, 1)
        return np.where(self.learnable, answers, self.constant)


class LinearTeachers(Solver):
    """Logistic regressions, one per label: how they are fitted to every part.

    Parameters
    ----------
    C
        Inverse strength of the penalty |w|^2 / (2 C), as in scikit-learn's LogisticRegression.
    tol
        Stop where the gradient, per record and per unit of the records' length, is below it. 1e-4
        is about what scikit-learn's default comes to; for votes less is enough.
    max_iter
        Stop after so many iterations anyway.

    Notes
    -----
    Where features have different units, give :func:`privote.learning.train` a pipeline that begins
    with a ``StandardScaler``: it is fitted inside each part.

    Unknown labels (-1) are left out. A label of which the part has only one class gets the constant
    ones / (known records + 1), that is, as if one more record without the label were there: 0 for a
    label never seen, never quite 1 for a label always seen.
    """
