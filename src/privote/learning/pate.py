"""Multi-label PATE as a scikit-learn estimator: private data in, a public student out.

Papernot et al. 2017 and 2018, with the multi-winner mechanisms of "Private Multi-Winner Voting for
Machine Learning" in place of single-winner ones. Teachers learn from disjoint parts of the private
data and vote on public rows; the guardian releases noisy tallies, or labels; a student learns from
those. Everything after the release is post-processing and costs nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from hashlib import blake2b
from math import sqrt
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..entropy import Entropy
from ..errors import InputError, whole
from ..guarantees import PERSON, RECORD, Shown
from ..labelling import AUTO, Labelling, guarantee_of, warn_of_quality
from ..ledger import Account, Budget, digest_of
from ..mechanisms import Mechanism
from ..release import Release, decide
from ..votes.cube import Ballots, BallotSource, Block
from ..votes.names import identities
from .delivery import Delivery, Records, about
from .methods import VOTERS
from .neighbours import NeighbourBallots
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
)
from .students import train_student
from .teachers import cast, part_names, partition, partition_key, train

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
        :func:`privote.learning.methods.teachers_for` suggests a number. One whose part has no
        records says no.
    mechanism
        ``"auto"`` (default): noisy tallies are released for all rows (:func:`privote.label`), and
        the student learns from the expected share of voters who want each label. With a named
        mechanism, the student learns from its labels.
    voters
        ``"teachers"``, or ``"neighbours"``: the private records near a query vote themselves.
    threshold
        How probabilities become votes: ``"prevalence"``, one number or one per label; see
        :func:`privote.learning.cast`.
    epsilon, delta
        The budget, for changing one record. Every ``fit`` spends it again: give each fold of a
        cross-validation a budget of its own, or choose settings on public data. Features must not
        be scaled or encoded by a step fitted on private rows (as in a ``Pipeline``): what such a
        step learns is not covered. A step fitted on public rows goes into a ``FrozenEstimator``.
    guarantee
        See :func:`privote.label`. ``"data-dependent"`` needs ``queries``.
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
        The released labels and their guarantee; ``public_rows_`` are the rows they belong to. If
        tallies were released, labels are decided with the help of these rows.
    student_
        The fitted student.
    thresholds_
        ``predict`` says yes at or above these probabilities: (labels,), chosen so that it says yes
        to the share ``shares_`` of the public rows if tallies were released; else one half.
    shares_
        (labels,): how common each label is, estimated from released tallies, or else from the
        student.
    guarantee_
        The :class:`privote.guarantees.Guarantee` of the release.
    classes_
        (labels,): numbers of the labels.

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
        ledger: Any = None,
        dataset: str = "default",
        budget: float | None = None,
        electorate: str | None = None,
        size_public: bool = False,
        seed: int | None = None,
        progress: Progress | None = None,
        resume: bool = False,
    ) -> PATEClassifier:
        """Train voters on private data, let them label public data, and train the student.

        Parameters
        ----------
        X, y
            Private rows and labels: (records, features) and (records, labels) of 1, 0 and -1 for
            unknown.
        X_public
            Public rows (queries, features): seen by everybody.
        ids, groups
            (records,): names of the records, or of the persons they belong to. Rows with the same
            name reach the same teacher, or are one neighbour. With groups the guarantee protects
            persons. Without names each row is a record. ``release_.protects`` says who is
            protected.
        ledger, dataset, budget
            Where the budget is kept, and under which name; see :func:`privote.label`. Every fit is
            a new charge, unless ``electorate`` is given. The ledger also keeps the parts.
        electorate
            A name under which the same records go on with what is left of their allowance in a
            later fit with the same ledger. One that is learnt is for as many rows in all as were
            public in the first fit. Whoever gives the name promises that every record has the same
            id (or group, or row) in all of these fits: then it is with the same voter.
        size_public
            True where a setting, such as ``n_teachers``, follows from the number of records. Then
            that number is public, and the promise is for replacing a record.
        seed
            An integer makes a simulation, which protects nobody: noise and parts are then known.
        progress
            Called as ``progress(what, done, total)``.
        resume
            Finish a call with the same arguments that did not return, at no further charge. Labels
            that were committed stay as they are.
        """
        if seed is None:  # a simulation protects nobody anyway
            check_apart(X, X_public, "X_public")
        records = Records(X=X, y=y, public=X_public, ids=ids, groups=groups)
        delivery = Delivery(
            account=Account(ledger=ledger, dataset=dataset, budget=budget),
            resume=resume,
            electorate=electorate,
            size_public=size_public,
            seed=seed,
            progress=progress,
        )
        return self.learn(records, delivery)

    def learn(self, records: Records, delivery: Delivery) -> PATEClassifier:
        """Train as :meth:`fit` does, and deliver the fitted estimator."""
        if self.voters not in VOTERS:
            raise InputError("voters", f"must be one of {', '.join(VOTERS)}", self.voters)
        X = self._rows(records.X, reset=True, images=True)
        if records.y is None:
            raise InputError("PATEClassifier requires y to be passed, but the target y is None")
        Y = check_labels(records.y, X.shape[0])
        self.classes_ = np.arange(Y.shape[1])
        if records.public is None:
            raise InputError(
                "X_public",
                "must be given: the public rows that voters label and the student learns from",
            )
        X_public = self._rows(records.public, "X_public", images=True)
        who = VoterNames(records.ids, records.groups, delivery)
        random = check_random_state(self.random_state)
        start, count = int(random.randint(2**31)), X_public.shape[0]
        if not isinstance(self.random_state, Integral):  # a resumed run asks in the same order
            random = check_random_state(0)
        order: Rows = random.permutation(count).astype(np.int64)
        queries = count if self.queries is None else whole("queries", self.queries, 1, count)
        rows = order[:queries]
        ballots = self._ballots(X, Y, X_public, rows, who, start)
        labelling = self._labelling(ballots, _matrix(X_public, rows), who, count, delivery)

        def write(release: Release) -> Mapping[str, str]:
            self.release_, self.guarantee_ = release, release.guarantee
            self.public_rows_ = rows[: release.answered]
            if release.tallies is None:
                warn_of_quality(release)
            delivery.say("training the student", 0, 1)
            self._train_student(X_public)
            delivery.say("training the student", 1, 1)
            return delivery.write(self)

        labelling.about = {**(delivery.about or about(X_public)), "rows": digest_of(rows)}
        labelling.release(output=delivery.output, write=write, resume=delivery.resume)
        return self

    def _labelling(
        self, ballots: BallotSource, rows: Any, who: VoterNames, pool: int, delivery: Delivery
    ) -> Labelling:
        """Return what the votes on public rows will cost, checked.

        ``rows`` are these rows, None for pictures; ``pool`` is how many public rows there are.
        """
        cost = Budget(epsilon=self.epsilon, delta=self.delta)
        account, seed = delivery.account, delivery.seed
        lasts = delivery.electorate is not None and account.ledger is not None
        guarantee = self.guarantee
        if guarantee == AUTO:
            guarantee = "allowance"
            if account.ledger is None and self.voters == "teachers":
                size = ballots.voters, ballots.labels, ballots.queries
                guarantee = guarantee_of(self.mechanism, cost, *size)
        fixed = seed is not None or guarantee == "data-dependent"
        return Labelling(
            ballots=ballots,
            cost=cost,
            account=account,
            mechanism=self.mechanism,
            guarantee=guarantee,
            queries=self.queries if guarantee == "data-dependent" else None,
            plan_for=pool if lasts and self.mechanism == AUTO else None,
            rows=rows,
            voter_ids=who.of(self.voters, ballots) if lasts else None,
            protects=who.protected(
                known=fixed and self.voters == "teachers",
                size_public=delivery.size_public or self.voters == "neighbours",
            ),
            anyway=True,  # a student averages the noise out
            entropy=Entropy(seed),
            lasts=lasts,
        )

    def _train_student(self, X_public: Any) -> None:
        """Train the student on what was released, and set its thresholds by the public rows.

        It learns from shares of voters where tallies tell them: a share tells more than a yes or
        no, also where most voters never agree. These are shares by the tallies alone: what rows say
        about labels is for the student to find.
        """
        rows, shares = self.public_rows_, None
        if self.release_.tallies is not None:
            shares = decide(self.release_).shares
        rest = take_rows(X_public, np.setdiff1d(np.arange(X_public.shape[0]), rows))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        targets: Targets = self.release_.labels if shares is None else shares
        self.student_ = train_student(self.student, take_rows(X_public, rows), targets, rest, seed)
        chance = label_probabilities(self.student_, X_public, len(self.classes_))
        self.shares_ = (chance if shares is None else shares).mean(axis=0)
        self.thresholds_: Floats | float = 0.5
        if shares is not None:  # of voters, who need not agree on what is there
            self.thresholds_ = matching(chance, self.shares_)

    def brief(self) -> dict[str, str]:
        """Return what may be said about the run, in a few words each; or that there was none."""
        return self.release_.brief() if hasattr(self, "release_") else {"not fitted": repr(self)}

    def predict_proba(self, X: Any) -> Floats:
        """Return the student's probabilities: (rows, labels)."""
        check_is_fitted(self, "student_")
        rows = self._rows(X, images=True)
        return label_probabilities(self.student_, rows, len(self.classes_))

    def _ballots(
        self,
        X: Any,
        Y: Labels,
        X_public: Any,
        rows: Rows,
        who: VoterNames,
        start: int,
    ) -> BallotSource:
        """Return the ballots on some public rows, in their order."""
        if self.voters == "neighbours":
            every = NeighbourBallots(
                X,
                Y,
                X_public,
                share=self._share(X, who),
                metric=self.metric,
                embedding=self.embedding,
                groups=who.persons(X.shape[0]),
            )
            return every.take(rows)
        whole("n_teachers", self.n_teachers)
        part_names(X.shape[0], who.ids, who.groups)  # before a ledger is asked for the key
        part = partition(X.shape[0], self.n_teachers, ids=who.ids, groups=who.groups, key=who.key)
        limit = self.mechanism.max_positives if isinstance(self.mechanism, Mechanism) else None

        def taught() -> Ballots:
            teachers = train(
                self.teacher,
                X,
                Y,
                part,
                self.n_teachers,
                n_jobs=self.n_jobs,
                random_state=start,
                progress=partial(who.delivery.say, "training teachers"),
            )
            ballots = Ballots.from_array(cast(teachers, X_public, self.threshold)[rows])
            return ballots if limit is None else ballots.clip(limit)

        return TeacherBallots(taught, len(rows), self.n_teachers, Y.shape[1])

    def _share(self, X: Any, who: VoterNames) -> float:
        """Return the share of neighbours near a row: as told, or by public numbers."""
        if self.share is not None:
            return self.share
        names, _ = check_groups(who.persons(X.shape[0]), X.shape[0])
        voters = X.shape[0] if names is None else len(names)
        return min(_PACE / sqrt(voters * self.epsilon), _WIDEST)


def _matrix(X: Any, rows: Rows) -> Any:
    """Return some public rows where they are numbers (rows, features); None for pictures."""
    return take_rows(X, rows) if len(X.shape) == 2 else None


# -- who votes -------------------------------------------------------------------------------------


class TeacherBallots(BallotSource):
    """Votes of teachers who are trained when the votes are checked; how many is known before.

    Parameters
    ----------
    taught
        Trains the teachers, and returns their votes.
    queries, voters, labels
        How many there will be.
    """

    missing = False

    def __init__(
        self, taught: Callable[[], Ballots], queries: int, voters: int, labels: int
    ) -> None:
        self.queries, self.voters, self.labels = queries, voters, labels
        self.voter_names = tuple(f"teacher {number}" for number in range(voters))
        self._taught, self._votes = taught, dict[str, Ballots]()

    def check(self) -> None:
        """Train the teachers, once."""
        if not self._votes:
            self._votes["cast"] = self._taught()

    def blocks(self) -> Iterator[Block]:
        """Yield the votes in blocks of consecutive queries."""
        self.check()
        return self._votes["cast"].head(self.queries).blocks()

    def head(self, queries: int) -> TeacherBallots:
        """Return the first ``queries`` queries."""
        first = copy.copy(self)
        first.queries = whole("queries", queries, 1, self.queries)
        return first


class VoterNames:
    """What records are called, and what that makes of the voters' names in a ledger."""

    def __init__(self, ids: Any, groups: Any, delivery: Delivery) -> None:
        electorate = delivery.electorate
        if electorate is not None and (not isinstance(electorate, str) or not electorate.strip()):
            raise InputError("electorate", "must be a name", electorate)
        self.ids = None if ids is None else identities(ids, "ids")
        self.groups = None if groups is None else identities(groups, "groups")
        self.delivery = delivery

    def persons(self, records: int) -> Any:
        """Return whose each record is, where a person or an id may have several; else None."""
        names, _ = check_groups(self.ids, records, "ids")
        if self.groups is None and names is not None and len(names) < records:
            return self.ids  # rows of one name are one record, so one voter
        return self.groups

    @cached_property
    def key(self) -> bytes:
        """The partition's key: asked for once, and only where there are parts."""
        account = self.delivery.account
        return partition_key(account.ledger, account.dataset, self.delivery.seed)

    def protected(self, *, known: bool, size_public: bool) -> str:
        """Return whom the promise is to, and which change it covers.

        Parameters
        ----------
        known
            Whether the partition itself is given: by a seed, or because the promise is about these
            votes.
        size_public
            Whether anything public follows from the number of records: then no record may come or
            go.
        """
        ending = "; how many there are is public" if size_public else ", or one more or fewer"
        change = f"replaced by any other{ending}"
        if known and self.ids is None and self.groups is None:
            change = "other contents in the same row"
        elif known:
            change = f"other contents under the same id{ending}"
        return f"{RECORD if self.groups is None else PERSON} ({change})"

    def of(self, voters: str, ballots: BallotSource) -> list[str]:
        """Return one name a voter, which says under which partition and electorate it votes.

        Parameters
        ----------
        voters
            "teachers" or "neighbours".
        ballots
            Theirs; in their order are persons who may have several rows.
        """
        named: Any = self.ids if self.groups is None else self.groups
        how = "rows" if named is None else "ids" if self.groups is None else "groups"
        count = ballots.voters
        scheme = f"{voters} {count} {how} named {self.delivery.electorate}".encode()
        if voters == "teachers":
            mark = blake2b(scheme, key=self.key, digest_size=8).hexdigest()
            return [f"{mark}-{teacher}" for teacher in range(count)]
        if ballots.voter_names is not None:
            named = ballots.voter_names
        mark = blake2b(scheme, digest_size=8).hexdigest()
        return [f"{mark}-{name}" for name in (range(count) if named is None else named)]
