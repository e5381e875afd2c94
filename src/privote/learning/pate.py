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
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from hashlib import blake2b
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
from ..release import PERSON, RECORD
from .methods import VOTERS
from .neighbours.ballots import NeighbourBallots
from .neighbours.labelling import (
    NeighbourAnswers,
    NeighbourPlan,
    can_balance,
    collected,
    label_by_neighbours,
    neighbour_voting,
    plan_neighbours,
    train_neighbour_student,
)
from .networks.image import check_time
from .rounds import (
    PoolLabelling,
    PublicRows,
    Rows,
    Schedule,
    learnt_from,
)
from .rows import (
    Floats,
    LabelClassifier,
    Labels,
    check_apart,
    check_groups,
    check_labels,
    label_probabilities,
    matching,
)
from .students.classifiers import binarized
from .teachers.training import part_names, partition, partition_key, train
from .teachers.votes import TeacherPool, cast

_SHARE = 0.01  # of neighbours, where none is given and one is for all labels

Progress = Callable[[str, int, int], None]
Voters = tuple[Any, Mechanism | str, NeighbourPlan | None]  # ballots, how they count and are asked


@dataclass(eq=False, repr=False)
class PATEClassifier(LabelClassifier):
    """Learn from private data through private votes on public data.

    Parameters
    ----------
    teacher
        Any scikit-learn multi-label classifier or skorch network; ``None`` for the fast linear
        ensemble (:class:`privote.learning.LinearTeachers`). With ``voters="teachers"`` only.
    student
        Any scikit-learn multi-label classifier or skorch network; ``None`` for
        :class:`privote.learning.LinearStudent`. One whose ``fit`` takes ``X_unlabelled`` gets the
        rest of the public rows. Neighbours that are asked in passes have
        :class:`privote.learning.NeighbourStudent` for ``None``; any other student gets every public
        row once for each of its answers.
    n_teachers
        How many disjoint parts, and so voters. More of them stand out of the noise, until they
        know too little each: :func:`privote.learning.methods.plan_teachers` has a rule.
    mechanism
        ``"auto"`` (default): how often teachers speak is learnt, noisy tallies are released for all
        rows (:func:`privote.label`), and the student learns from the expected share of teachers who
        want each label. Neighbours release labels: Binary voting with a false alarm of 0.05, and
        about the least noise with which an allowance lasts
        (:mod:`privote.learning.neighbours.labelling`); with one share a fifth of the expected
        number. A mechanism that is named is taken as it is.
    voters
        ``"teachers"``, or ``"neighbours"``: every private record near a query votes itself.
    threshold
        Probabilities into votes: ``"prevalence"``, ``"tuned"``, one number or one per label; see
        :func:`privote.learning.cast`.
    epsilon, delta
        The budget, for changing one record. It is spent in ``fit``.
    guarantee
        See :func:`privote.label`. ``"ptr"`` and ``"data-dependent"`` need ``queries``.
    rounds
        Label in about this many batches; the student so far is the next batch's baseline.
    choose
        Which rows come next: ``"random"`` or ``"uncertainty"`` (of the student so far).
    queries
        How many public rows to label; by default all, or of neighbours as many as their plan has.
    share
        For neighbours. ``None``: a first batch of released labels tells a share for every label,
        and with these every public row is asked several times (under an allowance, with Binary
        voting that has a bar; else 0.01). A number: every row is asked once, with this share for
        all labels.
    metric, embedding
        For neighbours: see :class:`privote.NeighbourBallots`.
    n_jobs, random_state
        For training. Parts and noise are secret, unless ``fit(..., seed=...)`` is a simulation.

    Attributes
    ----------
    release_
        The released labels and their guarantee; ``public_rows_`` says for which rows. A row that
        was asked several times is there as often.
    shares_
        (labels,) with which neighbours were asked in passes; else None.
    student_
        The fitted student.
    thresholds_
        From which probability on ``predict`` says yes: for a student of shares, (labels,) with
        which it says yes as often on public rows as voters do; else one half.
    privacy_
        What may be published about the run, as plain values.
    classes_
        (labels,) numbers of the labels, or the classes where y had one column.
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
    choose: str = "random"
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
        consumer: str | None = None,
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
            (records,) names of the records, or of the people they belong to. Rows of one name reach
            one teacher, or are one neighbour; with groups the promise is for persons. Without names
            a record is its row. ``release_.protects`` says which change is covered.
        classes
            Needed if y has one axis: the classes there are. They are public, so they must not be
            read off private records.
        ledger, dataset, consumer
            Where the budget is kept, and under which names; see :func:`privote.label`. Every fit
            is a new charge, unless ``electorate`` says otherwise. It keeps the parts, too.
        electorate
            A name under which the same records go on with what is left of their allowance in a
            later fit with the same ledger. One that is learnt is for as many rows in all as were
            public in the first fit. Whoever gives the name promises that every record has the same
            id (or group, or row) in all of these fits: then it is with the same voter.
        seed
            An integer makes a simulation that protects nobody: noise and parts are then known.
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
            rule = "must be auto or a privote mechanism, e.g. BinaryVoting(sigma=25.0)"
            raise InputError("mechanism", rule, self.mechanism)
        schedule = Schedule(rounds=self.rounds, choose=self.choose, queries=self.queries)
        X, Y = self._check_private(X, y, classes)
        if X_public is None:
            raise InputError(
                "X_public",
                "must be given: the public rows that teachers label and the student sees",
            )
        X_public = _check_rows(self, X_public)
        if seed is None:  # a simulation protects nobody anyway
            check_apart(X, X_public, "X_public")
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
        voters = partial(self._voters, X, Y, X_public, who, say)
        asked = {"rows": len(public.order), "labels": Y.shape[1], "dataset": dataset, "seed": seed}
        asked |= {"epsilon": self.epsilon, "delta": self.delta, "voters": self.voters}
        asked |= {"guarantee": self.guarantee, "consumer": consumer}
        known = seed is not None or self.guarantee == "data-dependent"
        budget = Budget(epsilon=self.epsilon, delta=self.delta)
        guarantee = self.guarantee
        if _is_auto(guarantee):
            lasting = ledger is not None or self.rounds > 1 or self.voters != "teachers"
            size = self.n_teachers, Y.shape[1], self.queries or len(public.order)
            guarantee = "allowance" if lasting else guarantee_of(self.mechanism, budget, *size)
        door = partial(
            Guardian,
            budget=budget,
            ledger=Ledger.in_memory() if ledger is None else ledger,
            guarantee=guarantee,
            dataset=dataset,
            consumer=consumer,
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
                found = self._kept(parts, voters, public.order, ledger)
            else:
                pool, mechanism, plan = voters()
                if kept is not None:
                    who.keep(kept, None if ledger is None else (X, Y))
                names = who.of(self.voters, pool.voters, pool.voter_names)
                ids = None if ledger is None else names
                with door(mechanism, voter_ids=ids, draft=kept) as guardian:
                    more = len(public.order) if electorate is not None else None
                    found = self._ask(guardian, pool, plan, schedule, public, say, parts, more)
                if kept is not None:
                    kept.note(ALL_THERE)
            if not self.release_.answered:
                if kept is not None:
                    kept.finish()  # nothing can be made of it
                raise BudgetError(
                    "the test of guarantee 'ptr' did not pass, so no label was released and there "
                    "is no student; the budget is charged"
                )
            if self.release_.tallies is None:
                warn_of_quality(self.release_)
            self.shares_ = None if found is None else found.shares
            say("training the student", 0, 1)
            if self.student is None and found is not None and found.batches and X_public.ndim == 2:
                args = (found, X_public, self.embedding, self.epsilon)
                self.student_ = train_neighbour_student(*args)
            else:
                self.student_ = public.student(self.public_rows_, learnt_from(self.release_))
            self.thresholds_: Floats | float = 0.5
            if self.release_.shares is not None:  # of voters, who need not agree on what is there
                chance = label_probabilities(self.student_, X_public, self._columns)
                self.thresholds_ = matching(chance, self.release_.shares.mean(axis=0))
            say("training the student", 1, 1)
        return self

    def _ask(
        self,
        guardian: Guardian,
        pool: Any,
        plan: NeighbourPlan | None,
        schedule: Schedule,
        public: PublicRows,
        say: Progress,
        parts: KeptReleases | None,
        plan_for: int | None,
    ) -> NeighbourAnswers | None:
        """Release labels for the pool, and say what neighbours make of them."""
        if parts is not None:
            queries = len(public.order) * (1 if plan is None else plan.passes)
            parts.draft.reserve(room(queries, pool.labels))
        shared: dict[str, Any] = {"guardian": guardian, "parts": parts}
        shared["progress"] = partial(say, "labelling")
        if plan is None:
            shared["plan_for"] = plan_for if guardian.learns else None
            asking = PoolLabelling(pool=pool, schedule=schedule, public=public, **shared)
            self.public_rows_, self.release_ = asking.run()
            return None
        shared["again"] = self.queries is not None
        found = label_by_neighbours(ballots=pool, plan=plan, order=public.order, **shared)
        self.public_rows_, self.release_ = found.rows, found.release
        return found

    def _kept(
        self, parts: KeptReleases, voters: Callable[[], Voters], order: Rows, ledger: Any
    ) -> NeighbourAnswers | None:
        """Take the labels of a draft, and say what neighbours make of them; nobody is asked."""
        release, self.public_rows_ = parts.together()
        self.release_ = record_kept(ledger, release, parts.since, parts.draft)
        found, near = None, None
        if self.voters == "neighbours":  # their circles are public, and not in the draft
            pool, _, plan = voters()
            near = pool.near
            if plan is not None:
                found = collected(pool, plan, order, self.public_rows_, self.release_)
                near = found.shares
        if self.rounds == 1:  # baselines of later rounds are not in it
            named = isinstance(self.mechanism, Mechanism)
            mechanism: Any = self.mechanism if named else mechanism_of(release.mechanism)
            self.release_ = with_forecast(self.release_, mechanism, near=near)
        return found

    @property
    def privacy_(self) -> dict[str, Any]:
        """What may be published about the run, as plain values."""
        check_is_fitted(self, "release_")
        return self.release_.facts()

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

    def _voters(self, X: Any, Y: Labels, X_public: Any, who: VoterNames, say: Progress) -> Voters:
        """Return ballots on the public pool, the mechanism to count them with, and any plan."""
        if self.voters not in VOTERS:
            raise InputError("voters", f"must be one of {', '.join(VOTERS)}", self.voters)
        if self.voters == "neighbours":
            return self._neighbours(X, Y, X_public, who)
        if whole("n_teachers", self.n_teachers) > X.shape[0]:
            raise InputError(
                "n_teachers",
                f"must be at most the records there are ({X.shape[0]}), got {self.n_teachers}",
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
        return TeacherPool(votes, limit), self.mechanism, None

    def _neighbours(self, X: Any, Y: Labels, X_public: Any, who: VoterNames) -> Voters:
        """Return the ballots, the mechanism, and how to ask in passes; None with one share."""
        groups, (records, _) = who.groups, check_groups(who.ids, X.shape[0], "ids")
        if groups is None and records is not None and len(records) < X.shape[0]:
            groups = who.ids  # rows of one name are one record, so one voter
        names, _ = check_groups(groups, X.shape[0])
        # How many records persons have is private.
        voters = X.shape[0] if names is None else len(names)
        mechanism = self.mechanism if isinstance(self.mechanism, Mechanism) else None
        share, plan = self.share, None
        if share is None and can_balance(mechanism, self.guarantee, voters):
            if self.rounds != 1 or self.choose != "random":
                raise InputError(
                    "rounds and choose go with `voters='teachers'`, or with neighbours of one "
                    f"share: give share a number; got `rounds={self.rounds!r}`, "
                    f"choose={self.choose!r}"
                )
            plan = plan_neighbours(
                voters,
                Y.shape[1],
                X_public.shape[0],
                self.epsilon,
                self.delta,
                mechanism=mechanism,
                queries=self.queries,
            )
            share, mechanism = plan.share, plan.mechanism
        share = _SHARE if share is None else share
        near = NeighbourBallots(
            X,
            Y,
            X_public,
            share=share,
            metric=self.metric,
            radius="query",
            embedding=self.embedding,
            groups=groups,
        )
        # Noise that suits the neighbours to be expected with one share.
        return near, mechanism or neighbour_voting(max(1.0, share * voters / 5)), plan

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
            raise InputError("classes go with y of one axis; with two, a column is a label")
        else:
            Y = check_labels(Y, X.shape[0])
            self._multilabel, self._columns = True, Y.shape[1]
            self.classes_ = np.arange(Y.shape[1])
        if len(Y) != X.shape[0]:
            raise InputError("y", f"must have {X.shape[0]} rows, as `X`, got {len(Y)}")
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
            raise InputError("resume", "must be with the same private records, in the same order")

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
