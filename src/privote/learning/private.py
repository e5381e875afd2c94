"""One estimator for every way to learn from private records; which way, public numbers decide.

Rows may be tables as people have them. What turns them into numbers is fitted on public rows, what
is released is charged first, and all that comes after (students, thresholds) reads released things
and public rows only.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from ..datasets import Images, RawTable
from ..datasets.tables import features_of, labels_of, raw_table
from ..errors import InputError, PrivoteWarning
from ..ledger import Budget
from ..release import Release
from ..shown import Shown
from ..votes.tables import is_frame, is_path, is_records, open_table
from .direct.dpsgd import DPSGDClassifier
from .direct.linear import DPLinear, DPMoments
from .direct.training import TrainingPrivacy
from .embedding import Embedding, embed, embedding_for, fit_embedding
from .methods import AUTO, VOTERS, Choice, Numbers, choose, doubts_of, teachers_for
from .networks.architectures import IMAGE_NETWORKS, VECTOR_NETWORKS
from .networks.image import ImageNetwork
from .pate import PATEClassifier
from .pictures import PIXELS, PictureEncoder, is_pictures
from .rows import (
    Floats,
    LabelClassifier,
    Labels,
    check_apart,
    check_groups,
    check_labels,
    check_rows,
    count_rows,
    label_probabilities,
    matching,
)
from .students.mixmatch import MixMatchClassifier
from .students.saving import save_student
from .tables import TableEncoder

Given = tuple[Any, Labels, Any]  # private rows, their labels, public rows
_DIRECT: Mapping[str, Any] = {
    "gradients": DPLinear,
    "moments": DPMoments,
    "dpsgd": DPSGDClassifier,
}


@dataclass(eq=False, repr=False)
class PrivateClassifier(Shown, LabelClassifier):
    """Learn many labels from private records, by the method that suits them.

    Parameters
    ----------
    method
        ``"auto"``: chosen from public numbers (:func:`privote.learning.methods.choose`).
        ``"gradients"`` or ``"moments"``: a linear model, trained on the records with noise.
        ``"dpsgd"``: a network, trained likewise. ``"teachers"`` or ``"neighbours"``: private votes
        label public rows, and a student learns from the labels.
    epsilon, delta
        The budget, for replacing one record or person. Every ``fit`` spends it again:
        cross-validation with k folds spends it k times on the same records. Features must not be
        scaled or encoded by a step fitted on private rows (as in a ``Pipeline``): what such a step
        learns is not covered.
    settings
        Further settings of the method, by the names of its estimator
        (:class:`privote.PATEClassifier`, :class:`privote.learning.DPLinear`,
        :class:`privote.learning.DPMoments`, :class:`privote.learning.DPSGDClassifier`).
    pictures
        How pictures become numbers (:class:`privote.learning.PictureEncoder`); None is
        EfficientNet-Lite0 at 160 x 160 pixels. A network among the settings gets the pixels.
    random_state
        For training only. Noise is secret, unless ``fit(..., seed=...)`` makes a simulation.

    Attributes
    ----------
    method_, reasons_
        The method that was chosen, and why, in short sentences.
    student_
        The fitted model, on rows of numbers; with its thresholds.
    encoder_
        What turns rows of a table, or pictures, into numbers; None if rows were numbers.
    privacy_
        What may be published about the run, as plain values.
    release_
        The released labels of methods that vote; else None.
    promise_
        The object that makes the statement: the release, or the privacy of a training without
        votes.
    public_rows_
        Which public rows were labelled, for methods that vote; else None.
    shares_
        (labels,): how common each label is, estimated from the release; None without public rows.
    thresholds_
        (labels,): ``predict`` says yes at or above these probabilities, to that share of the public
        rows.
    label_names_
        (labels,): their names.

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 4))
    >>> Y = (X[:, :2] > 0).astype(int)
    >>> model = pv.PrivateClassifier("gradients", epsilon=4.0, delta=1e-6).fit(X, Y)
    >>> model.predict(X[:3]).shape, model.privacy_["delta"]
    ((3, 2), 1e-06)
    """

    method: str = "auto"
    epsilon: float = 8.0
    delta: float = 1e-6
    _: KW_ONLY
    settings: Mapping[str, Any] | None = None
    pictures: PictureEncoder | None = None
    random_state: Any = 0

    def fit(
        self,
        records: Any,
        labels: Any,
        public: Any = None,
        *,
        ids: Any = None,
        groups: Any = None,
        ledger: Any = None,
        dataset: str = "default",
        budget: float | None = None,
        electorate: str | None = None,
        seed: int | None = None,
        progress: Any = None,
        draft: Any = None,
        resume: bool = False,
    ) -> PrivateClassifier:
        """Learn from private records. Every call spends the budget.

        Parameters
        ----------
        records
            Private rows: a data frame or another table (:class:`TableEncoder` says which), whose
            columns may hold numbers, words, dates, texts and gaps; or numbers (records, features);
            or pictures (:class:`privote.datasets.Images`, or an array with four axes). Features are
            the columns of the public table; others that private rows have are ignored.
        labels
            (records, labels) of 1, 0 and -1 for unknown, also as a data frame; or the names of
            columns of ``records``.
        public
            Public rows of the same kind, on which encodings are fitted. Required for a table, for
            moments and for methods that vote.
        ids, groups
            (records,) names of the records, or of the persons they belong to; or the name of a
            column of ``records``. With groups the promise is for persons.
        ledger, dataset, budget, electorate
            Where the budget is kept, and under which names; see :class:`privote.PATEClassifier`.
        seed
            An integer makes a simulation, which protects nobody.
        progress
            Called as ``progress(what, done, total)``.
        draft, resume
            Where what is drawn is kept, so that nothing that was paid for is lost; and to go on
            from there: see :class:`privote.PATEClassifier`.
        """
        X, Y, X_public, ids, groups = self._numbers(records, labels, public, ids, groups)
        if seed is None:  # a simulation protects nobody anyway
            check_apart(X, X_public, "public")
        persons, _ = check_groups(groups, len(Y))
        if persons is None:
            persons, _ = check_groups(ids, len(Y), "ids")
        numbers = Numbers(
            records=len(Y) if persons is None else len(persons),
            labels=Y.shape[1],
            public=0 if X_public is None else count_rows(X_public),
            epsilon=self.epsilon,
            delta=self.delta,
            persons=groups is not None,
        )
        asked, images = dict(self.settings or {}), len(X.shape) != 2
        names = [*asked, *(["electorate"] if electorate is not None else [])]
        chosen = choose(self.method, numbers, settings=names, images=images)
        Budget(epsilon=self.epsilon, delta=self.delta).warn(numbers.records)
        for doubt in chosen.doubts:
            _warn(doubt)
        self.method_, self.numbers_ = chosen.method, numbers
        account = {"ids": ids, "groups": groups, "ledger": ledger, "dataset": dataset}
        account["budget"] = budget
        account |= {"progress": progress, "draft": draft, "resume": resume}
        if chosen.method in VOTERS:
            # Teachers, an embedding and what is expected follow from the number of records.
            account |= {"electorate": electorate, "seed": seed, "size_public": True}
            self._by_votes(chosen, asked, (X, Y, X_public), account)
        else:
            self._directly(chosen, asked, (X, Y, X_public), account, seed)
        self.classes_ = np.arange(Y.shape[1])
        return self

    @property
    def privacy_(self) -> dict[str, Any]:
        """What may be published about the run, as plain values."""
        check_is_fitted(self, "promise_")
        return {**self.promise_.facts(), "method": self.method_}

    def brief(self) -> dict[str, str]:
        """Return what may be said about the run, in a few words each; or that there was none."""
        if not hasattr(self, "promise_"):
            return {"not fitted": repr(self)}
        return {"method": self.method_, **self.promise_.brief()}

    def predict_proba(self, X: Any) -> Floats:
        """Return each label's probability (rows, labels), for rows as they were given to fit."""
        check_is_fitted(self, "student_")
        rows = _array(X, "X") if self.encoder_ is None else self.encoder_.numbers(X)
        return label_probabilities(self.student_, rows, len(self.label_names_))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a new ``.student`` file, which :func:`privote.load` reads.

        It holds numbers and no code: the student, how rows become numbers, thresholds and names of
        labels, and what may be published about the run.
        """
        check_is_fitted(self, "student_")
        save_student(
            path,
            self.student_,
            label_names=self.label_names_,
            privacy=self.privacy_,
            thresholds=self.thresholds_,
            encoder=self.encoder_,
            doubtful=self.doubtful_,
        )

    @property
    def doubtful_(self) -> bool:
        """Whether public numbers speak against a useful model: :meth:`fit` has warned."""
        return bool(doubts_of(self.numbers_))

    def _numbers(
        self, records: Any, labels: Any, public: Any, ids: Any, groups: Any
    ) -> tuple[Any, Labels, Any, Any, Any]:
        """Return rows and labels as numbers, and names; all that can be wrong is refused here."""
        named = _is_names(labels)
        if not (named or is_table(records)):
            if public is not None and is_table(public):
                raise InputError("public", "must be numbers, like `records`")
            X = _array(records, "records")
            X_public = None if public is None else _array(public, "public")
            Y, self.label_names_ = _labels(labels, count_rows(X))
            self.encoder_: TableEncoder | PictureEncoder | None = self._look(X)
            if self.encoder_ is not None:
                X = self.encoder_.numbers(X)
                X_public = None if X_public is None else self.encoder_.numbers(X_public)
            self.n_features_in_ = X.shape[1] if len(X.shape) > 1 else 0
            return X, Y, X_public, ids, groups
        if public is None:
            rule = "must be given with a table: encodings are fitted on public rows"
            raise InputError("public", rule)
        columns = {
            "id_column": ids if isinstance(ids, str) else None,
            "group_column": groups if isinstance(groups, str) else None,
        }
        listed = list(labels) if named else []
        raw = open_table(public, "public", public=True).table()
        others = [*listed, *columns.values()]
        # Whoever read a table before was warned of its columns then.
        rest = [name for name in raw.columns if name not in others]
        features = rest if isinstance(public, RawTable) else features_of(raw, others)
        read = raw_table(records, labels=listed, features=features, **columns)
        raw = raw.only(features)
        encoder = TableEncoder().fit(raw)
        self.encoder_, self.n_features_in_ = encoder, len(features)
        Y, self.label_names_ = (read.Y, read.label_names) if named else _labels(labels, len(read))
        ids = ids if columns["id_column"] is None else read.ids
        groups = groups if columns["group_column"] is None else read.groups
        X, X_public = (encoder.numbers(side) for side in (read.X, raw))
        return X, Y, X_public, ids, groups

    def _look(self, X: Any) -> PictureEncoder | None:
        """Return what turns pictures into numbers; None where something here looks at pixels."""
        asked = dict(self.settings or {})
        student, network = asked.get("student"), asked.get("network", VECTOR_NETWORKS[0])
        pixels = asked.get("teacher") is not None or network not in VECTOR_NETWORKS
        pixels |= not isinstance(student, MixMatchClassifier | None)
        pixels |= not isinstance(asked.get("embedding", AUTO), str)
        if not is_pictures(X) or (pixels and not isinstance(X, Images)):
            return None
        encoder = self.pictures or PictureEncoder()
        if pixels:
            encoder = replace(encoder, network=PIXELS, weights=None)
        return replace(encoder, fit=X.fit) if isinstance(X, Images) else encoder

    def _embedding(self, X_public: Any, *, voters: bool) -> str | None:
        """Return the embedding that public numbers choose; images are looked at as they are."""
        if len(X_public.shape) != 2 or isinstance(X_public, Images):
            return None
        of = (self.numbers_.records, self.numbers_.labels, self.numbers_.epsilon)
        return embedding_for(
            X_public, *of, scaled=voters or isinstance(self.encoder_, TableEncoder)
        )

    def _by_votes(
        self, chosen: Choice, asked: dict[str, Any], given: Given, account: dict[str, Any]
    ) -> None:
        X, Y, X_public = given
        reasons = list(chosen.reasons)
        _name_network(asked)
        # What the user chose to look at rows gets them as they are.
        own = {"teacher", "student"} & set(asked)
        rule = asked.pop("embedding", None if own else AUTO)
        if isinstance(rule, str) and rule == AUTO:
            rule = self._embedding(X_public, voters=True)
        mapping = fit_embedding(rule, X_public)
        # Whoever names an electorate goes on with its allowance, and with its settings.
        settled = "mechanism" in asked or account["electorate"] is not None
        if chosen.method == "teachers" and not settled:
            many = asked.setdefault("n_teachers", teachers_for(self.numbers_, asked))
            reasons.append(f"{many:,} teachers vote, to stand out from the noise.")
        pate = PATEClassifier(
            voters=chosen.method,
            epsilon=self.epsilon,
            delta=self.delta,
            random_state=self.random_state,
            **asked,
        )
        seen = embed(mapping, X_public)
        pate.fit(embed(mapping, X), Y, seen, **account)
        self.promise_: Release | TrainingPrivacy = pate.release_
        self.release_: Release | None = pate.release_
        self.public_rows_: npt.NDArray[np.int64] | None = pate.public_rows_
        self.student_ = pate.student_
        if mapping is not None:
            self.student_ = Student(mapping, pate.student_, Y.shape[1])
        self.shares_: Floats | None = pate.shares_
        self.thresholds_ = pate.thresholds_
        self.reasons_ = tuple(reasons)

    def _directly(
        self,
        chosen: Choice,
        asked: dict[str, Any],
        given: Given,
        account: dict[str, Any],
        seed: int | None,
    ) -> None:
        X, Y, X_public = given
        if chosen.method == "dpsgd":
            if asked.setdefault("network", "mlp") in VECTOR_NETWORKS and "epochs" not in asked:
                asked = {"steps": 100, "sample_rate": 1.0} | asked
            if "weights" in asked:
                asked["normalise"] = "imagenet"
        elif X_public is not None and asked.get("embedding", AUTO) == AUTO:
            asked["embedding"] = self._embedding(X_public, voters=False)
        model = _DIRECT[chosen.method](epsilon=self.epsilon, delta=self.delta, seed=seed, **asked)
        say = account.pop("progress")
        if say is not None:
            model.set_params(progress=partial(say, "training"))
        model.fit(X, Y, X_public, **account)
        model.set_params(progress=None)
        self.shares_, self.thresholds_ = None, model.thresholds_
        if chosen.method == "moments":
            self.shares_ = model.prevalence_
        elif X_public is not None:
            chance = label_probabilities(model, X_public, Y.shape[1])
            self.shares_ = chance.mean(axis=0)
            self.thresholds_ = matching(chance, self.shares_)
        self.promise_, self.release_, self.public_rows_ = model.privacy_, None, None
        self.student_, self.reasons_ = model, chosen.reasons


@dataclass(eq=False, repr=False)
class Student(LabelClassifier):
    """A student of votes together with the public embedding of the rows that it looks at.

    Parameters
    ----------
    embedding
        The public map, None for rows as they are.
    model
        The fitted student.
    labels
        How many.
    """

    embedding: Embedding | None
    model: Any
    labels: int

    def predict_proba(self, X: Any) -> Floats:
        """Return each label's probability: (rows, labels)."""
        rows = embed(self.embedding, _array(X, "X"))
        return label_probabilities(self.model, rows, self.labels)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def _name_network(asked: dict[str, Any]) -> None:
    """Make a teacher of the network that settings name, and a student like it if none is named."""
    names = ("weights", "frozen", "device", "hours")
    how: dict[str, Any] = {name: asked.pop(name) for name in names if name in asked}
    if "epochs" in asked:
        how["n_epochs"] = round(asked.pop("epochs"))
    if "weights" in how:
        how["normalise"] = "imagenet"  # as what most files were trained with
    kind = asked.pop("network", None)
    if kind in IMAGE_NETWORKS:
        asked["teacher"] = ImageNetwork(kind, **how)
        asked.setdefault("student", ImageNetwork(kind, **how))
    elif kind not in (None, VECTOR_NETWORKS[0]) or how:
        rule = f"must be one of {', '.join(IMAGE_NETWORKS)} for teachers with settings of a network"
        raise InputError("network", rule, kind)


def is_table(rows: Any) -> bool:
    """Return whether rows are a table with named columns, rather than numbers alone."""
    columns = isinstance(rows, RawTable | Mapping) and not sparse.issparse(rows)
    return columns or is_path(rows) or is_frame(rows) or is_records(rows)


def _is_names(labels: Any) -> bool:
    some = isinstance(labels, (list, tuple)) and len(labels) > 0
    return some and all(isinstance(name, str) for name in labels)


def _array(rows: Any, name: str) -> Any:
    """Return rows of numbers, checked; pictures on disk stay there."""
    return rows if isinstance(rows, Images) else check_rows(rows, name, images=True)


def _labels(labels: Any, rows: int) -> tuple[Labels, tuple[str, ...]]:
    """Return labels (rows, labels), and their names."""
    if is_frame(labels):  # whose gaps are unknown labels, and whose index is none
        columns = labels.reset_index(drop=True) if hasattr(labels, "reset_index") else labels
        frame = open_table(columns, "labels").table()
        return check_labels(labels_of(frame, frame.header), rows, "labels"), frame.header
    Y = check_labels(labels, rows, "labels")
    return Y, tuple(f"label_{place}" for place in range(Y.shape[1]))


def _warn(what: str) -> None:
    warnings.warn(what, PrivoteWarning, stacklevel=4)
