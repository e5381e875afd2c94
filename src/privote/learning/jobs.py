"""A training from files to a fitted model: read tables or a data set, fit, and judge."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import metrics
from ..datasets import MultiLabelData, pictures, tables
from ..datasets import open as open_data
from ..errors import BudgetError, CompleteError, InputError, PrivoteWarning
from ..ledger import Account, Budget, Ledger
from ..votes.tables import RawTable, as_csv, open_table
from .delivery import Delivery, Records
from .embedding import Landmarks
from .methods import check_method, expected
from .mixmatch import MixMatchClassifier
from .networks import IMAGE_NETWORKS, ImageNetwork
from .noise import Noise
from .pictures import LITE, PICTURE_NETWORKS, PictureEncoder, is_pictures
from .private import PrivateClassifier
from .scoring import Holdout, Score, answers, cells_of, drawn, people, request_of
from .texts import AUTO, MINILM, WORDS, TextNetwork

FIGURES = ("ACC", "BAC", "AUC", "MAP")
_TOLD = 5.0  # ones to expect from which on it can be told that they are not there
SCENE_SIDE = 16  # pixels
STUDENTS = ("logistic", "mixmatch", *IMAGE_NETWORKS)
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What was asked for.

    Attributes
    ----------
    data
        A table, or a data set by name.
    public, test
        Tables of rows to label, and of rows to judge by.
    test_is_public
        Whether figures on the test rows may be published.
    table
        The table of labels of a folder of pictures.
    labels, columns, id_column, group_column
        Which columns of a table are what.
    size, weights, device, cache
        Of pictures: see :class:`privote.learning.PictureEncoder`.
    method
        "auto", or one of :data:`privote.learning.methods.METHODS`.
    account
        Whom it is charged to.
    settings
        What was asked for of the method; what is left out has its default there.
    holdout
        Which private records are kept out to judge by, instead of test rows.
    """

    data: str
    method: str
    epsilon: float
    delta: float
    table: Path | None = None
    public: Path | None = None
    test: Path | None = None
    test_is_public: bool = False
    labels: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    id_column: str | None = None
    group_column: str | None = None
    size: int = 160
    weights: Path | None = None
    device: str = "cpu"
    cache: Path | None = None
    account: Account = field(default_factory=Account)
    electorate: str | None = None
    seed: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    holdout: Holdout | None = None

    def __post_init__(self) -> None:
        if self.holdout is not None and self.test is not None:
            raise InputError("holdout", "cannot be combined with `test`", self.holdout.share)
        if not 0 <= self.score < self.epsilon:
            rule = f"must be less than `epsilon={self.epsilon}`, of which it is a part"
            raise InputError("score", rule, self.score)
        if self.score and self.settings.get("guarantee") == "data-dependent":
            rule = "cannot be combined with `guarantee=data-dependent`, which adds up with no other"
            raise InputError("score", rule, self.score)
        named = [] if self.electorate is None else ["electorate"]
        check_method(self.method, [*self.settings, *named])
        if self.settings.get("student", STUDENTS[0]) not in STUDENTS:
            rule = f"must be one of {', '.join(STUDENTS)}"
            raise InputError("student", rule, self.settings["student"])

    def pictures(self, progress: Progress) -> PictureEncoder:
        """Return how pictures become numbers, if that is asked for."""
        name = self.settings.get("embedding")
        return PictureEncoder(
            network=name if name in PICTURE_NETWORKS else LITE,
            weights=None if self.on_images else self.weights,
            size=self.size,
            device=self.device,
            cache=self.cache,
            progress=progress,
        )

    @property
    def texts(self) -> TextNetwork:
        """How texts become numbers: a name among the embeddings, or a folder, says."""
        name = str(self.settings.get("embedding", AUTO))
        named = name in (MINILM, WORDS) or Path(name).is_dir()
        return TextNetwork(network=name if named else AUTO, cache=self.cache)

    @property
    def score(self) -> float:
        """What a score costs, of this job's epsilon; 0 for none."""
        return 0.0 if self.holdout is None else self.holdout.epsilon or 0.0

    @property
    def shared_delta(self) -> float:
        """The delta of model and score: a ledger adds them up at its own, and nobody else does."""
        alone = not self.score or self.account.ledger is not None
        return self.delta if alone else self.delta / 2

    @property
    def payer(self) -> Account:
        """Whom it is charged to: a new data set's budget is for model and score together."""
        if not self.score or self.account.ledger is None or self.account.budget is not None:
            return self.account
        with Ledger.at(self.account.ledger) as ledger:
            known = ledger.state.known(self.account.dataset) in ledger.state.scopes
        return self.account if known else replace(self.account, budget=self.epsilon)

    @property
    def on_images(self) -> bool:
        """Whether something here looks at pixels."""
        return not set(IMAGE_NETWORKS).isdisjoint(
            self.settings.get(name) for name in ("student", "network")
        )


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """How good a model is on test rows.

    Attributes
    ----------
    public
        Whether the test rows are public. If not, all of this is for the owner's eyes: it was
        computed on private rows and is covered by no epsilon.
    figures
        ACC, BAC, AUC and MAP, each a mean over labels.
    by_label
        The same for each label, and how many test rows have it.
    reliability
        From what was predicted, in tenths, to the share of those cells that were true.
    """

    public: bool
    figures: dict[str, Any]
    by_label: list[dict[str, Any]]
    reliability: dict[float, float]


@dataclass(kw_only=True)
class Outcome:
    """What came of it: all of it may be published, but a judgement by private rows."""

    job: Job
    fitted: PrivateClassifier
    label_names: tuple[str, ...]
    feature_names: tuple[str, ...] | None
    persons: bool
    public_names: npt.NDArray[Any] | None = None
    judgement: Judgement | None = None
    score: Score | None = None

    @property
    def figures(self) -> list[dict[str, Any]]:
        """Figures on public test rows."""
        return self._figures(public=True)

    @property
    def sealed(self) -> list[dict[str, Any]]:
        """Figures on private test rows, for the owner's eyes."""
        return self._figures(public=False)

    def _figures(self, *, public: bool) -> list[dict[str, Any]]:
        judgement = self.judgement
        return [judgement.figures] if judgement is not None and judgement.public is public else []

    @property
    def scarce(self) -> tuple[str, ...]:
        """Names of labels with less than a tenth of the ones that tallies say there are."""
        release, shares = self.fitted.release_, self.fitted.shares_
        if release is None or release.tallies is None or shares is None:
            return ()
        ones, due = (release.labels == 1).sum(axis=0), shares * release.answered
        few = np.flatnonzero((due >= _TOLD) & (ones < due / 10))
        return tuple(self.label_names[label] for label in few)

    def facts(self) -> dict[str, Any]:
        """Return everything that may be published as plain values, for JSON."""
        release = self.fitted.release_
        return {
            "method": self.fitted.method_,
            "reasons": list(self.fitted.reasons_),
            "embeddings": list(self.fitted.embeddings_),
            "expected": list(expected(self.fitted.numbers_, self.fitted.method_)),
            "guarantee": self.fitted.guarantee_.facts(),
            "release": None if release is None else release.facts(),
            "label_names": list(self.label_names),
            "test": self.figures,
            "score": None if self.score is None else self.score.facts(),
        }


def trained(
    job: Job,
    output: str | None,
    write: Callable[[Outcome], Mapping[str, str]],
    *,
    resume: bool = False,
    progress: Progress,
) -> Outcome:
    """Train, write what came of it, and return that.

    Parameters
    ----------
    output
        The absolute path of what is written: what a run that is resumed is known by, besides its
        public terms.
    write
        Writes everything, whole, and returns the SHA-256 of the files by their names
        (:func:`privote.files.digests_of`). Only then is the run delivered.
    resume
        Finish the run of an earlier call with the same arguments, at no further charge.
    progress
        Is told a stage, how much of it is done, and of how much.
    """
    encoder = job.pictures(progress)
    private, public, test = _read(job)
    if job.settings.get("embedding") in PICTURE_NETWORKS and not is_pictures(private.X):
        raise InputError("embedding", "of this name needs pictures", job.settings["embedding"])
    if job.texts.network != AUTO and not isinstance(private.X, RawTable):
        raise InputError("embedding", "of this name needs a table", job.settings["embedding"])
    account, unseen = job.payer, None
    if job.holdout is not None:
        out = job.holdout.rows(private, account, job.seed)
        private, unseen = private.take(~out), private.take(out)
    model = PrivateClassifier(
        job.method,
        job.epsilon - job.score,
        job.shared_delta,
        settings=_settings(job),
        pictures=encoder,
        texts=job.texts,
    )
    outcome = Outcome(
        job=job,
        fitted=model,
        label_names=private.label_names,
        feature_names=private.feature_names,
        persons=private.groups is not None,
        public_names=None if public is None else public.ids,
    )

    def deliver(fitted: PrivateClassifier) -> Mapping[str, str]:
        fitted.label_names_ = private.label_names
        if unseen is not None:
            outcome.judgement = _judge(fitted, unseen, public=False)
        elif test is not None and len(test):
            everybodys = job.test_is_public or job.data == "scenes"
            outcome.judgement = _judge(fitted, test, public=everybodys)
        if unseen is None or not job.score:
            return write(outcome)
        return _scored(job, account, outcome, unseen, lambda: write(outcome), output, resume)

    records = Records(
        X=_rows(private),
        y=private.Y,
        public=None if public is None else _rows(public),
        ids=private.ids,
        groups=private.groups,
    )
    model.learn(
        records,
        Delivery(
            account=account,
            output=output,
            write=deliver,
            resume=resume,
            electorate=job.electorate,
            seed=job.seed,
            progress=progress,
        ),
    )
    return outcome


def _scored(
    job: Job,
    account: Account,
    outcome: Outcome,
    unseen: MultiLabelData,
    write: Callable[[], Mapping[str, str]],
    output: str | None,
    resume: bool,
) -> Mapping[str, str]:
    """Release a score of a model that is committed, write everything, and deliver the score."""
    names, unit = people(unseen)
    request = request_of(
        account,
        Budget(epsilon=job.score, delta=job.shared_delta),
        labels=len(outcome.label_names),
        records=len(names),
        persons=outcome.persons,
        model=outcome.fitted.guarantee_.drawn,
        seed=job.seed,
        output=output,
    )
    counts = cells_of(unseen.Y, answers(outcome.fitted, _rows(unseen)), unit)
    try:
        with (
            Ledger.at(account.ledger) as ledger,
            ledger.reserve(request, resume=resume) as run,
        ):
            outcome.score = drawn(run, request, counts, Noise(job.seed), outcome.label_names)
            digests = write()
            run.deliver(digests)
            return digests
    except CompleteError:  # everything was written, and only the model's own delivery is due
        return {}
    except BudgetError as error:
        text = f"the model is released, and its score is not: {error}"
        warnings.warn(text, PrivoteWarning, stacklevel=2)
        return write()


def _settings(job: Job) -> dict[str, Any]:
    """Return what was asked for as estimators take it: networks by name become networks."""
    settings = dict(job.settings)
    # Of pictures and texts encoders were made.
    if settings.get("embedding") in PICTURE_NETWORKS or job.texts.network != AUTO:
        del settings["embedding"]
    if settings.get("network") in IMAGE_NETWORKS:
        settings["device"] = job.device
        if job.weights is not None:
            settings["weights"] = str(job.weights)
    student = settings.pop("student", STUDENTS[0])
    if student in IMAGE_NETWORKS:
        settings["student"] = ImageNetwork(student, device=job.device)
    elif student == "mixmatch":
        settings["student"] = MixMatchClassifier()
    return settings


def _judge(model: Any, test: MultiLabelData, *, public: bool) -> Judgement:
    """Judge by test rows: published where those are public, else for the owner's eyes."""
    rows = _rows(test)
    chance = model.predict_proba(rows)
    figures = metrics.multilabel(test.Y, chance, (chance >= model.thresholds_).astype(np.int8))
    by_label = figures["per_label"]
    names = {"ACC": "ACC", "BAC": "BAC", "AUC": "AUC", "MAP": "AP"}
    answered = test.Y >= 0
    bins = np.minimum((10 * chance[answered]).astype(int), 9)
    truth = test.Y[answered] == 1
    return Judgement(
        public=public,
        figures={"model": "student", **{name: figures[name] for name in FIGURES}},
        by_label=[
            {
                "label": name,
                "present": int((test.Y[:, index] == 1).sum()),
                **{figure: float(by_label[key][index]) for figure, key in names.items()},
            }
            for index, name in enumerate(test.label_names)
        ],
        reliability={
            float(chance[answered][bins == index].mean()): float(truth[bins == index].mean())
            for index in range(10)
            if (bins == index).any()
        },
    )


Sides = tuple[MultiLabelData, MultiLabelData | None, MultiLabelData | None]


def _read(job: Job) -> Sides:
    """Return private, public and test rows; only votes need public ones."""
    if job.table is not None:
        return _folder(job, job.table)
    suffix, others = Path(job.data).suffix, (job.public, job.test)
    if Path(job.data).is_dir():
        rule = "must be given with a folder of pictures: their file names, and their labels"
        raise InputError("table", rule)
    if suffix not in tables.SUFFIXES:
        if Path(job.data).is_file():
            suffixes = ", ".join(tables.SUFFIXES)
            rule = f"must be a table ({suffixes}) or a data set by name{as_csv(job.data)}"
            raise InputError("X", rule, job.data)
        if others != (None, None):
            raise InputError("`public` and `test` need a table: a data set given by name is split")
        return _named(job)
    if job.public is not None and job.public.exists() and job.public.samefile(job.data):
        raise InputError("public", "must not be the private rows: public rows are not protected")
    if suffix != ".npz":
        return _tables(job)
    private = tables.table(job.data, labels=job.labels)
    if not private.label_names:
        raise InputError("labels", "must name the labels of the private table")
    for path in filter(None, others):
        if path.suffix != ".npz":
            raise InputError(f"{path.name} must be .npz, like the private rows")
    public, test = (
        None if path is None else tables.table(path, labels=private.label_names) for path in others
    )
    return private, public, test


def _tables(job: Job) -> Sides:
    """Return tables; their features are the columns of the public one, if there is one."""
    if not job.labels:
        raise InputError("labels", "must name the columns of the private table that are labels")
    names = {"id_column": job.id_column, "group_column": job.group_column}
    sheet = None if job.public is None else open_table(job.public, "public")
    features = job.columns
    if features is None and sheet is not None:
        features = tuple(tables.features_of(sheet, [*job.labels, *names.values()]))
    data = open_table(job.data, "X")
    private = tables.raw_table(data, labels=job.labels, features=features, **names)
    same, test = private.feature_names, None
    if job.test is not None:
        test = tables.raw_table(open_table(job.test, "test"), labels=job.labels, features=same)
    if sheet is not None:
        return private, tables.raw_table(sheet, features=same), test
    try:
        return tables.as_numbers(private), None, None if test is None else tables.as_numbers(test)
    except InputError as error:
        raise InputError(
            "public",
            "must be given: public rows (which are not protected) are needed to encode words, "
            "dates and gaps, and are what votes label. Without them every feature must be a "
            f"finite number, and {error.argument} is not one",
            sealed=error.sealed,
        ) from None


def _folder(job: Job, table: Path) -> Sides:
    """Return the sides of a folder of pictures; a table of test rows lies beside its pictures."""
    home, public = Path(job.data), None
    if job.columns is not None:
        raise InputError("columns", "cannot be given with pictures, which have no feature columns")
    names: dict[str, Any] = {"id_column": job.id_column, "group_column": job.group_column}
    private = pictures(home, table, labels=job.labels, **names)
    if job.public is not None:
        public = pictures(job.public)
        here, there = home.resolve(), job.public.resolve()
        if here == there or here in there.parents or there in here.parents:
            rule = "must not be the private folder: public pictures are not protected"
            raise InputError("public", rule, str(job.public))
    if job.test is None:
        return private, public, None
    test = pictures(job.test.parent, job.test, labels=private.label_names, **names, whole=False)
    return private, public, test


def _named(job: Job) -> Sides:
    """Return the sides of a data set by name; pixels of scenes become similarities to public ones.

    What looks at images gets the pixels.
    """
    split = open_data(job.data).split()
    if split.private.name != "scenes":
        return split.private, split.public, split.test
    shape = (-1, 1, SCENE_SIDE, SCENE_SIDE)
    landmarks = Landmarks().fit(split.public.X)
    private, public, test = (
        replace(side, X=side.X.reshape(shape) if job.on_images else landmarks.transform(side.X))
        for side in (split.private, split.public, split.test)
    )
    return private, public, test


def _rows(data: MultiLabelData) -> Any:
    if data.X is None:
        raise InputError(f"{data.name} has only labels, and no features")
    return data.X
