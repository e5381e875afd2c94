"""Multi-label PATE as a scikit-learn estimator: private data in, a public student out.

Papernot et al. 2017 and 2018, with the multi-winner mechanisms of "Private Multi-Winner Voting for
Machine Learning" in place of single-winner ones. Teachers learn from disjoint parts of the private
data and vote on public rows; the guardian releases noisy tallies, or labels; a student learns from
those. Everything after the release is post-processing and costs nothing.
"""

from __future__ import annotations

import json
import os
import pickle
import secrets
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial
from hashlib import blake2b
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ..datasets import Images
from ..errors import BudgetError, InputError, whole
from ..files import Draft, drafted
from ..guardian import AUTO, Guardian, record_kept
from ..labelling import ALL_THERE, KeptReleases, guarantee_of, room, warn_of_quality, with_forecast
from ..ledger import Budget, Ledger
from ..mechanisms import Mechanism, mechanism_of
from ..release import PERSON, RECORD, Release, Shown, decide, drawn_of
from .methods import VOTERS
from .neighbours import NeighbourBallots
from .networks.image import check_time
from .rows import (
    Floats,
    LabelClassifier,
    Labels,
    Targets,
    check_apart,
    check_groups,
    check_labels,
    label_probabilities,
    matching,
    take_rows,
    warn_of_scikit_learn,
)
from .students.classifiers import binarized, train_student
from .teachers.training import part_names, partition, partition_key, train
from .teachers.votes import TeacherPool, cast

# The default share of neighbours: wide circles where noise is strong beside the records. Chosen on
# tmc2007, scene, yeast and VOC 2012 at epsilon 2 to 10.
_PACE, _WIDEST = 8.0, 0.1

Progress = Callable[[str, int, int], None]
Rows = npt.NDArray[np.int64]


@dataclass(eq=False, repr=False)
class PATEClassifier(Shown, LabelClassifier):
    """Learn from private data through private votes on public data.

    Parameters
    ----------
    teacher
        Any scikit-learn multi-label classifier or skorch network; ``None`` for the fast linear
        ensemble (:class:`privote.learning.LinearTeachers`). With ``voters="teachers"`` only.
    student
        Any scikit-learn multi-label classifier or skorch network; ``None`` for
        :class:`privote.learning.LinearStudent`. One whose ``fit`` takes ``X_unlabelled`` gets the
        rest of the public rows.
    n_teachers
        Number of disjoint parts of the data, each with its own teacher. More teachers stand out
        better from the noise, but each learns from less data:
        :func:`privote.learning.methods.teachers_for` suggests a number.
    mechanism
        ``"auto"`` (default): noisy tallies are released for all rows (:func:`privote.label`), and
        the student learns from the expected share of voters who want each label. With a named
        mechanism, the student learns from its labels.
    voters
        ``"teachers"``, or ``"neighbours"``: the private records near a query vote themselves.
    threshold
        How probabilities become votes: ``"prevalence"``, ``"tuned"``, one number or one per label;
        see :func:`privote.learning.cast`.
    epsilon, delta
        The budget, for changing one record. Every ``fit`` spends it again: cross-validation with k
        folds spends it k times on the same records. Features must not be scaled or encoded by a
        step fitted on private rows (as in a ``Pipeline``): what such a step learns is not covered.
    guarantee
        See :func:`privote.label`. ``"data-dependent"`` needs ``queries``.
    rounds
        Number of batches in which teachers label, under an allowance; the current student is the
        baseline of the next batch. With ``"auto"`` this brings no gain.
    queries
        Number of public rows to label; default: all.
    share
        For neighbours: the share of the public rows (and about of the records) that count as near a
        row. ``None``: 8 / sqrt(records * epsilon), at most 0.1.
    metric, embedding
        For neighbours: see :class:`privote.NeighbourBallots`.
    n_jobs, random_state
        For training only. Parts and noise are secret, unless ``fit(..., seed=...)`` makes a
        simulation.

    Attributes
    ----------
    release_
        The released labels and their guarantee; ``public_rows_`` are the rows they belong to.
    student_
        The fitted student.
    thresholds_
        ``predict`` says yes at or above these probabilities: (labels,), chosen so that it says yes
        to the share ``shares_`` of the public rows if tallies were released; else one half.
    shares_
        (labels,): how common each label is, estimated from released tallies, or else from the
        student.
    privacy_
        What may be published about the run, as plain values.
    classes_
        (labels,): numbers of the labels, or the classes if y had one column.

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 4))
    >>> Y = (X[:, :2] > 0).astype(int)
    >>> model = pv.PATEClassifier(n_teachers=50, epsilon=8.0, delta=1e-5)
    >>> model = model.fit(X[:1500], Y[:1500], X_public=X[1500:])
    >>> model.predict(X[:3]).shape, model.release_.epsilon
    ((3, 2), 8.0)
    """

    teacher: Any = None
    student: Any = None
    _: KW_ONLY
    n_teachers: int = 50
    mechanism: Mechanism | str = AUTO
    voters: str = "teachers"
    threshold: Any = "prevalence"
    epsilon: float = 8.0
    delta: float = 1e-6
    guarantee: str = AUTO
    rounds: int = 1
    queries: int | None = None
    share: float | None = None
    metric: str = "cosine"
    embedding: Any = None
    n_jobs: int | None = None
    random_state: Any = 0

    def fit(
        self,
        X: Any,
        y: Any,
        X_public: Any = None,
        *,
        ids: Sequence[Any] | None = None,
        groups: Sequence[Any] | None = None,
        classes: Sequence[Any] | None = None,
        ledger: Any = None,
        dataset: str = "default",
        electorate: str | None = None,
        seed: int | None = None,
        progress: Progress | None = None,
        draft: str | os.PathLike[str] | Draft | None = None,
        resume: bool = False,
    ) -> PATEClassifier:
        """Train voters on private data, label public data through the guardian, train the student.

        Parameters
        ----------
        X, y
            Private rows and labels: (records, features) and (records, labels) of 1, 0 and -1 for
            unknown; or (records,) classes.
        X_public
            Public rows (queries, features): seen by everybody.
        ids, groups
            (records,): names of the records, or of the persons they belong to. Rows with the same
            name reach the same teacher, or are one neighbour. With groups the guarantee protects
            persons. Without names each row is a record. ``release_.protects`` says who is
            protected.
        classes
            Required if y has one axis: the set of classes, which is public and must not be taken
            from private records.
        ledger, dataset
            Where the budget is kept, and under which name; see :func:`privote.label`. Every fit is
            a new charge, unless ``electorate`` is given. The ledger also keeps the parts.
        electorate
            A name under which the same records go on with what is left of their allowance in a
            later fit with the same ledger. One that is learnt is for as many rows in all as were
            public in the first fit. Whoever gives the name promises that every record has the same
            id (or group, or row) in all of these fits: then it is with the same voter.
        seed
            An integer makes a simulation, which protects nobody: noise and parts are then known.
        progress
            Called as ``progress(what, done, total)``.
        draft
            A new file, in which labels are kept as soon as they are released: whatever fails after
            that, they were paid for once. It stays; remove it when the student is saved.
        resume
            Finish what a call with the same arguments left behind in ``draft``. Labels that were
            released stay as they are, and what was charged is not charged again. With a ledger the
            voters go on with the queries that are left; without one the labels there are will do.
        """
        if not (isinstance(self.mechanism, Mechanism) or _is_auto(self.mechanism)):
            rule = "must be 'auto' or a privote mechanism, e.g. BinaryVoting(sigma=25.0)"
            raise InputError("mechanism", rule, self.mechanism)
        if self.voters not in VOTERS:
            raise InputError("voters", f"must be one of {', '.join(VOTERS)}", self.voters)
        X, Y = self._check_private(X, y, classes)
        if X_public is None:
            raise InputError(
                "X_public",
                "must be given: the public rows that voters label and the student learns from",
            )
        X_public = _check_rows(self, X_public)
        if seed is None:  # a simulation protects nobody anyway
            check_apart(X, X_public, "X_public")
            warn_of_scikit_learn(ledger)
        say = progress or (lambda *_: None)
        random = check_random_state(self.random_state)
        who = VoterNames(
            ids,
            groups,
            electorate,
            key=lambda: partition_key(ledger, dataset, seed),
            seed=int(random.randint(2**31)),
        )
        public = PublicRows(X_public, Y.shape[1], random, self.student, self.random_state)
        asked = {"rows": len(public.order), "labels": Y.shape[1], "dataset": dataset, "seed": seed}
        asked |= {"epsilon": self.epsilon, "delta": self.delta, "voters": self.voters}
        asked["guarantee"] = self.guarantee
        known = seed is not None or self.guarantee == "data-dependent"
        budget = Budget(epsilon=self.epsilon, delta=self.delta)
        guarantee = self.guarantee
        if _is_auto(guarantee):
            lasting = ledger is not None or self.rounds > 1 or self.voters != "teachers"
            size = self.n_teachers, Y.shape[1], self.queries or len(public.order)
            guarantee = "allowance" if lasting else guarantee_of(self.mechanism, budget, *size)
        self._check_asking(guarantee, len(public.order))
        door = partial(
            Guardian,
            budget=budget,
            ledger=Ledger.in_memory() if ledger is None else ledger,
            guarantee=guarantee,
            dataset=dataset,
            seed=seed,
            protects=who.protected(self.voters, known=known),
        )
        with drafted(draft, asked, resume=resume) as kept:
            parts = None if kept is None else KeptReleases(kept)
            # Without a ledger that lasts, records would be with other voters now, who have
            # allowances, too.
            forgets = ledger is None or (isinstance(ledger, Ledger) and not ledger.lasts)
            done = parts is not None and (parts.all_there or (forgets and parts.draft.paid))
            if parts is not None and resume and done:
                release, self.public_rows_ = parts.together()
                self.release_ = record_kept(ledger, release, parts.since, parts.draft)
                if self.rounds == 1:  # baselines of later rounds are not in it
                    own = self.mechanism
                    made_by = own if isinstance(own, Mechanism) else mechanism_of(release.mechanism)
                    near = self._share(X, who) if self.voters == "neighbours" else None
                    self.release_ = with_forecast(self.release_, made_by, near=near)
            else:
                pool = self._voters(X, Y, X_public, who, say)
                if parts is not None:
                    who.keep(parts.draft, None if ledger is None else (X, Y))
                    parts.draft.reserve(room(len(public.order), pool.labels))
                names = who.of(self.voters, pool.voters, pool.voter_names)
                ids = None if ledger is None else names
                with door(self.mechanism, voter_ids=ids, draft=kept) as guardian:
                    self.public_rows_, self.release_ = PoolLabelling(
                        guardian=guardian,
                        pool=pool,
                        public=public,
                        rounds=self.rounds,
                        queries=self.queries,
                        plan_for=len(public.order) if electorate is not None else None,
                        progress=partial(say, "labelling"),
                        parts=parts,
                    ).run()
                if kept is not None:
                    kept.note(ALL_THERE)
            if self.release_.tallies is None:
                warn_of_quality(self.release_)
            say("training the student", 0, 1)
            self.student_ = public.student(self.public_rows_, learnt_from(self.release_))
            chance, released = public.ask(self.student_), self.release_.shares
            self.shares_ = (chance if released is None else released).mean(axis=0)
            self.thresholds_: Floats | float = 0.5
            if released is not None:  # of voters, who need not agree on what is there
                self.thresholds_ = matching(chance, self.shares_)
            say("training the student", 1, 1)
        return self

    @property
    def privacy_(self) -> dict[str, Any]:
        """What may be published about the run, as plain values."""
        check_is_fitted(self, "release_")
        return self.release_.facts()

    def brief(self) -> dict[str, str]:
        """Return what may be said about the run, in a few words each; or that there was none."""
        return self.release_.brief() if hasattr(self, "release_") else {"not fitted": repr(self)}

    def predict_proba(self, X: Any) -> Floats:
        """Return the student's probabilities: (rows, labels), or (rows, classes) for one column."""
        check_is_fitted(self, "student_")
        chance = label_probabilities(self.student_, _check_rows(self, X), self._columns)
        if self._multilabel:
            return chance
        if self._columns == 1:
            return np.hstack([1 - chance, chance])
        total = chance.sum(axis=1, keepdims=True)
        return np.where(total > 0, chance / np.maximum(total, 1e-300), 1 / self._columns)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the labels (rows, labels) that reach their thresholds; or the likeliest class."""
        chance = self.predict_proba(X)
        if self._multilabel:
            return np.asarray(chance >= self.thresholds_).astype(np.int64)
        if self._columns == 1:
            return np.asarray(self.classes_[(chance[:, 1] >= self.thresholds_).astype(np.int64)])
        return np.asarray(self.classes_[chance.argmax(axis=1)])

    def __sklearn_tags__(self) -> Any:
        """Say what this takes: classes, besides many labels."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = True
        return tags

    def _voters(self, X: Any, Y: Labels, X_public: Any, who: VoterNames, say: Progress) -> Any:
        """Return ballots on the public pool."""
        if self.voters == "neighbours":
            return NeighbourBallots(
                X,
                Y,
                X_public,
                share=self._share(X, who),
                metric=self.metric,
                embedding=self.embedding,
                groups=who.persons(X.shape[0]),
            )
        if whole("n_teachers", self.n_teachers) > X.shape[0]:
            raise InputError(
                "n_teachers",
                f"must be at most the number of records ({X.shape[0]}), got {self.n_teachers}",
            )
        many = (Y.shape[1], self.n_teachers, self.n_jobs)
        check_time(self.teacher, self.student, X, X_public, *many)
        part_names(X.shape[0], who.ids, who.groups)  # before a ledger is asked for the key
        part = partition(X.shape[0], self.n_teachers, ids=who.ids, groups=who.groups, key=who.key)
        teachers = train(
            self.teacher,
            X,
            Y,
            part,
            self.n_teachers,
            n_jobs=self.n_jobs,
            random_state=who.seed,
            progress=lambda done, total: say("training teachers", done, total),
            tune="F1" if isinstance(self.threshold, str) and self.threshold == "tuned" else None,
        )
        votes = cast(teachers, X_public, self.threshold)
        limit = self.mechanism.most_ones if isinstance(self.mechanism, Mechanism) else None
        return TeacherPool(votes, limit)

    def _share(self, X: Any, who: VoterNames) -> float:
        """Return the share of neighbours near a row: as told, or by public numbers."""
        if self.share is not None:
            return self.share
        names, _ = check_groups(who.persons(X.shape[0]), X.shape[0])
        voters = X.shape[0] if names is None else len(names)
        return min(_PACE / sqrt(voters * self.epsilon), _WIDEST)

    def _check_asking(self, guarantee: str, rows: int) -> None:
        """Refuse rounds and queries that do not go with the guarantee or the public rows."""
        least = "allowance" if self.voters == "teachers" else None
        if whole("rounds", self.rounds) > 1 and guarantee != least:
            rule = "must be 1, except for teachers with an allowance: others have no baseline"
            raise InputError("rounds", rule, self.rounds)
        if self.queries is not None and whole("queries", self.queries) > rows:
            raise InputError("queries", f"must lie in 1..{rows}, the public rows", self.queries)
        if self.queries is None and guarantee == "data-dependent":
            raise InputError("queries", "must be given in advance for guarantee 'data-dependent'")

    def _check_private(self, X: Any, y: Any, classes: Sequence[Any] | None) -> tuple[Any, Labels]:
        """Return private rows and (records, labels).

        What is released has the shape that ``classes`` and the axes of y say, never its values.
        """
        if y is None:
            raise InputError("PATEClassifier requires y to be passed, but the target y is None")
        X = _check_rows(self, X, reset=True)
        Y = np.asarray(y)
        if Y.ndim == 1:
            self._multilabel = False
            Y, self.classes_ = binarized(Y, classes)
            self._columns = Y.shape[1]
        elif classes is not None:
            raise InputError("classes need y with one axis; with two axes, each column is a label")
        else:
            Y = check_labels(Y, X.shape[0])
            self._multilabel, self._columns = True, Y.shape[1]
            self.classes_ = np.arange(Y.shape[1])
        if len(Y) != X.shape[0]:
            raise InputError("y", f"must have {X.shape[0]} rows, like `X`, got {len(Y)}")
        return X, Y


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO


def _check_rows(estimator: PATEClassifier, X: Any, reset: bool = False) -> Any:
    """Return rows as scikit-learn checks them; a lazy source of images passes as it is."""
    if isinstance(X, Images):
        return X
    return validate_data(estimator, X, reset=reset, accept_sparse="csr", allow_nd=True)


# -- who votes -------------------------------------------------------------------------------------


class VoterNames:
    """What records are called, and what that makes of the voters' names in a ledger."""

    def __init__(
        self,
        ids: Sequence[Any] | None,
        groups: Sequence[Any] | None,
        electorate: str | None,
        *,
        key: Callable[[], bytes],
        seed: int,
    ) -> None:
        if electorate is not None and (not isinstance(electorate, str) or not electorate.strip()):
            raise InputError("electorate", "must be a name", electorate)
        self.ids, self.groups, self.electorate = ids, groups, electorate
        self._key, self.seed = key, seed
        self._nonce = secrets.token_hex(16)

    def persons(self, records: int) -> Sequence[Any] | None:
        """Return whose each record is, where a person or an id may have several; else None."""
        names, _ = check_groups(self.ids, records, "ids")
        if self.groups is None and names is not None and len(names) < records:
            return self.ids  # rows of one name are one record, so one voter
        return self.groups

    @cached_property
    def key(self) -> bytes:
        """The partition's key: asked for once, and only where there are parts."""
        return self._key()

    def protected(self, voters: str, *, known: bool) -> str:
        """Return whom the promise is to, and which change it covers.

        ``known`` says that the partition itself is given: by a seed, or because the promise is
        about these votes.
        """
        if voters == "neighbours":
            change = "replaced by any other; how many there are is public"
        elif not known:
            change = "replaced by any other, or one more or fewer"
        elif self.ids is None and self.groups is None:
            change = "other contents in the same row"
        else:
            change = "other contents under the same id, or one more or fewer"
        return f"{RECORD if self.groups is None else PERSON} ({change})"

    def keep(self, draft: Draft, records: tuple[Any, Any] | None) -> None:
        """Keep in a draft what the voters of a run that resumes it are called, too.

        ``records`` are private rows and labels. They are known again by a keyed digest, which tells
        nobody else of them: a record that came to another voter meanwhile would vote twice.
        """
        mark = None
        if records is not None:
            digest = blake2b(key=self.key, digest_size=16)
            parts: list[Any] = [*records, self.ids, self.groups]
            for part in parts:
                for piece in (part.data, part.indices, part.indptr) if issparse(part) else (part,):
                    if not isinstance(piece, Images):
                        digest.update(pickle.dumps(np.asarray(piece)))
            mark = digest.hexdigest()
        note = draft.read()
        if note is None:
            draft.note(json.dumps([self._nonce, mark]).encode())
            return
        self._nonce, known = json.loads(note)
        if known != mark:
            raise InputError("resume", "must have the same private records in the same order")

    def of(self, voters: str, count: int, persons: Sequence[Any] | None = None) -> list[str]:
        """Return one name a voter, which says under which partition and electorate it votes.

        A fit without the name of an electorate never goes on with an allowance: its records may be
        in other parts than those of an earlier fit, whose voters also had one.

        Parameters
        ----------
        voters
            "teachers" or "neighbours".
        count
            How many voters.
        persons
            (count,) of neighbours that may have several rows: whose voter each is, in the order of
            the ballots.
        """
        named = self.ids if self.groups is None else self.groups
        kinds = "rows" if named is None else sorted({type(name).__name__ for name in named})
        how = "groups" if self.groups is not None else "ids"
        nonce = self._nonce if self.electorate is None else f"named {self.electorate}"
        scheme = f"{voters} {count} {how} {kinds} {nonce}".encode()
        if voters == "teachers":
            mark = blake2b(scheme, key=self.key, digest_size=8).hexdigest()
            return [f"{mark}-{teacher}" for teacher in range(count)]
        if persons is not None:
            named = persons
        mark = blake2b(scheme, digest_size=8).hexdigest()
        return [f"{mark}-{name}" for name in (range(count) if named is None else named)]


# -- asking the pool -------------------------------------------------------------------------------


class PublicRows:
    """The public rows, in the order in which they are asked, and students of them.

    Attributes
    ----------
    order
        A permutation of the rows: which come first where chance decides.
    """

    def __init__(
        self, rows: Any, labels: int, random: Any, student: Any, random_state: Any
    ) -> None:
        self._rows, self._labels = rows, labels
        self.order: Rows = random.permutation(rows.shape[0]).astype(np.int64)
        self._student, self._random_state = student, random_state

    def student(self, rows: Rows, labels: Targets) -> Any:
        """Train a student on what was released for some rows; it may see the others, too."""
        rest = take_rows(self._rows, np.setdiff1d(self.order, rows))
        seed = int(check_random_state(self._random_state).randint(2**31 - 1))
        return train_student(self._student, take_rows(self._rows, rows), labels, rest, seed)

    def ask(self, student: Any, rows: Rows | None = None) -> Floats:
        """Return a student's probabilities for rows, all unless told: (rows, labels)."""
        some = self._rows if rows is None else take_rows(self._rows, rows)
        return label_probabilities(student, some, self._labels)


@dataclass(frozen=True, kw_only=True)
class PoolLabelling:
    """A pool that is labelled, at once or in rounds.

    In rounds, a student is trained on what was released so far. Its prediction is the public
    baseline of the next round, so votes that agree with it cost nothing. All of this reads what was
    released, and nothing else.

    Parameters
    ----------
    guardian
        The door; with more than one round its guarantee is "allowance".
    pool
        The ballots: of teachers, or of neighbours.
    public
        The rows that they are about.
    rounds, queries
        In how many batches rows are asked, and how many in all; None: all.
    plan_for
        For how many rows an allowance that is learnt is to last: those asked now, by default.
    progress
        Called as ``progress(rows labelled, rows to label)``.
    parts
        Where each part of a release is kept as soon as it is drawn.
    """

    guardian: Guardian
    pool: Any
    public: PublicRows
    rounds: int
    queries: int | None
    plan_for: int | None = None
    progress: Callable[[int, int], None]
    parts: KeptReleases | None = None

    def run(self) -> tuple[Rows, Release]:
        """Return the rows that were answered, and one release of all rounds together."""
        total = self.queries or len(self.public.order)
        fixed = self.guardian.guarantee == "data-dependent"
        plan_for = self.plan_for or (total if self.rounds > 1 else None)
        asked = np.zeros(0, np.int64)
        releases: list[Release] = []
        for batch in np.array_split(self.public.order[:total], min(self.rounds, total)):
            guess = self._guess(asked, releases, batch) if releases else None
            try:
                release = self.guardian.release(
                    self.pool.take(batch),
                    queries=total if fixed else None,
                    baseline=guess,
                    parts=None if self.parts is None else PartsOf(self.parts, batch),
                    plan_for=plan_for if self.guardian.learns else None,
                )
            except BudgetError:
                if not releases:
                    raise
                break  # earlier fits left no more: what was released so far is paid for
            releases.append(release)
            asked = np.concatenate([asked, batch[: release.answered]])
            self.progress(len(asked), total)
        few = len(releases) > 1  # later rounds have the student's baseline
        together = _joined(releases)
        return asked, with_forecast(together, self.guardian.mechanism, near=self.pool.near, few=few)

    def _guess(self, asked: Rows, releases: list[Release], batch: Rows) -> npt.NDArray[np.bool_]:
        """Return what a student of the rounds so far says, cut to what could be released."""
        model = self.public.student(asked, learnt_from(_joined(releases)))
        chance = self.public.ask(model, batch)
        likely, limit = chance >= 0.5, self.guardian.mechanism.most_ones
        if limit is not None:
            rank = np.argsort(np.argsort(-chance, axis=1, kind="stable"), axis=1)
            likely &= rank < limit
        return np.asarray(likely)


def _joined(releases: list[Release]) -> Release:
    """Return all that was released so far as one, decided together; the last has the price."""
    last, labels = releases[-1], np.concatenate([release.labels for release in releases])
    whole = replace(last, labels=labels, drawn=drawn_of(releases))
    if last.tallies is None:
        return whole
    return decide(replace(whole, tallies=np.concatenate([part.outcome for part in releases])))


def learnt_from(release: Release) -> Targets:
    """Return what a student learns from: shares of voters where tallies tell them, else labels.

    A share tells more than a yes or no, also where most voters never agree.
    """
    shares = release.shares
    return release.labels if shares is None else shares


class PartsOf:
    """The parts of one release among those of a draft; knows which of ``rows`` each is about."""

    def __init__(self, parts: KeptReleases, rows: Rows) -> None:
        self._parts, self._rows = parts, rows

    def kept(self, queries: int | None) -> Release | None:
        """Return the next part that was kept; None where there is no more."""
        part = self._parts.kept(queries, self._rows[:queries])
        if part is not None:
            self._rows = self._rows[part.answered :]
        return part

    def ahead(self) -> Release | None:
        """Return the part that comes next, and leave it there."""
        return self._parts.ahead()

    def taken(self) -> None:
        """Without a ledger a training is finished with what was released, and takes no more."""

    def keep(self, part: Release) -> None:
        """Make a part durable, with its rows."""
        rows, self._rows = self._rows[: part.answered], self._rows[part.answered :]
        self._parts.keep(part, rows)
