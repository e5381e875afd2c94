"""One estimator for every way to learn from private records; which way, public numbers decide.

Rows may be tables as people have them. What turns them into numbers is fitted on public rows, what
is released is charged first, and all that comes after (students, thresholds) reads released things
and public rows only.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
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
from ..guarantees import Guarantee, Shown
from ..ledger import Account, Budget
from ..release import Release, rows_of
from ..votes.tables import is_frame, is_path, is_records, open_table
from .delivery import Delivery, Records, about
from .dpsgd import DPSGDClassifier
from .embedding import Embedding, embed, embedding_for, fit_embedding
from .gradients import DPLinear
from .methods import AUTO, VOTERS, Numbers, choose, doubts_of, teachers_for
from .mixmatch import MixMatchClassifier
from .moments import DPMoments
from .networks import IMAGE_NETWORKS, VECTOR_NETWORKS, ImageNetwork
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
from .saving import save_student
from .tables import TableEncoder
from .texts import TextNetwork
from .training import PrivateTraining

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
        The budget, for replacing one record or person. Every ``fit`` spends it again: give each
        fold of a cross-validation a budget of its own, or choose settings on public data. Features
        must not be scaled or encoded by a step fitted on private rows (as in a ``Pipeline``): what
        such a step learns is not covered. A step fitted on public rows goes into a
        ``FrozenEstimator``.
    settings
        Further settings of the method, by the names of its estimator
        (:class:`privote.PATEClassifier`, :class:`privote.learning.DPLinear`,
        :class:`privote.learning.DPMoments`, :class:`privote.learning.DPSGDClassifier`).
    pictures
        How pictures become numbers (:class:`privote.learning.PictureEncoder`); None is
        EfficientNet-Lite0 at 160 x 160 pixels. A network among the settings gets the pixels.
    texts
        How columns of texts become numbers (:class:`privote.learning.TextNetwork`); None is
        ``"minilm"`` for texts of more than twenty words, if the extra ``[text]`` is installed, else
        the words of the public rows.
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
    embeddings_
        What rows go through before they are learnt from, in order: public networks, then a public
        map such as ``"pca:64"``.
    guarantee_
        The :class:`privote.guarantees.Guarantee` of what was released.
    release_
        The released labels of methods that vote; else None.
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
    >>> model.predict(X[:3]).shape, model.guarantee_.delta
    ((3, 2), 1e-06)
    """

    method: str = "auto"
    epsilon: float = 8.0
    delta: float = 1e-6
    _: KW_ONLY
    settings: Mapping[str, Any] | None = None
    pictures: PictureEncoder | None = None
    texts: TextNetwork | None = None
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
        resume
            Finish a call with the same arguments that did not return, at no further charge.
        """
        data = Records(X=records, y=labels, public=public, ids=ids, groups=groups)
        delivery = Delivery(
            account=Account(ledger=ledger, dataset=dataset, budget=budget),
            resume=resume,
            electorate=electorate,
            seed=seed,
            progress=progress,
        )
        return self.learn(data, delivery)

    def learn(self, records: Records, delivery: Delivery) -> PrivateClassifier:
        """Learn as :meth:`fit` does, and deliver the fitted model."""
        rows = self._numbers(records, delivery)
        if delivery.seed is None:  # a simulation protects nobody anyway
            check_apart(rows.X, rows.public, "public")
        persons, _ = check_groups(rows.groups, len(rows.y))
        if persons is None:
            persons, _ = check_groups(rows.ids, len(rows.y), "ids")
        self.numbers_ = Numbers(
            records=len(rows.y) if persons is None else len(persons),
            labels=rows.y.shape[1],
            public=0 if rows.public is None else count_rows(rows.public),
            epsilon=self.epsilon,
            delta=self.delta,
            persons=rows.groups is not None,
        )
        names = [*(self.settings or {}), *["electorate"] * (delivery.electorate is not None)]
        images = len(rows.X.shape) != 2
        chosen = choose(self.method, self.numbers_, settings=names, images=images)
        Budget(epsilon=self.epsilon, delta=self.delta).warn(self.numbers_.records)
        for doubt in chosen.doubts:
            warnings.warn(doubt, PrivoteWarning, stacklevel=3)
        self.method_, self.reasons_ = chosen.method, (*chosen.reasons, *self._looks())
        self.classes_ = np.arange(rows.y.shape[1])
        pictures = isinstance(self.encoder_, PictureEncoder)  # numbers may be rounded otherwise
        public = records.public if pictures else rows.public
        delivery = replace(delivery, about=about(public, names=[*self.label_names_]))
        if chosen.method in VOTERS:
            self._by_votes(rows, delivery)
        else:
            self._directly(rows, delivery)
        return self

    def brief(self) -> dict[str, str]:
        """Return what may be said about the run, in a few words each; or that there was none."""
        if not hasattr(self, "guarantee_"):
            return {"not fitted": repr(self)}
        rows = self.guarantee_.rows() if self.release_ is None else rows_of(self.release_)
        return {"method": self.method_, **{row.name: row.text for row in rows if row.brief}}

    def predict_proba(self, X: Any) -> Floats:
        """Return each label's probability (rows, labels), for rows as they were given to fit."""
        return label_probabilities(self.student_, self.encoded(X), len(self.label_names_))

    def encoded(self, X: Any) -> Any:
        """Return rows as the student takes them, each from that row alone."""
        check_is_fitted(self, "student_")
        return _array(X, "X") if self.encoder_ is None else self.encoder_.numbers(X)

    def save(
        self, path: str | os.PathLike[str], *, feature_names: Sequence[str] | None = None
    ) -> None:
        """Write the fitted model to a new ``.student`` file, which :func:`privote.load` reads.

        It holds numbers and no code: the student, how rows become numbers, thresholds and names of
        labels (and of features, if they are given), and what may be published about the run.
        """
        check_is_fitted(self, "student_")
        save_student(
            path,
            self.student_,
            label_names=self.label_names_,
            feature_names=feature_names,
            guarantee=self.guarantee_,
            method=self.method_,
            thresholds=self.thresholds_,
            encoder=self.encoder_,
            doubtful=self.doubtful_,
        )

    @property
    def doubtful_(self) -> bool:
        """Whether public numbers speak against a useful model: :meth:`fit` has warned."""
        return bool(doubts_of(self.numbers_))

    def _looks(self) -> list[str]:
        """Return which public network reads which columns of texts, in sentences."""
        networks = self.encoder_.networks_ if isinstance(self.encoder_, TableEncoder) else {}
        facts = {name: network.to_plain() for name, network in networks.items()}
        return [
            f"The texts in column {name!r:.60} are read by the public network {fact['network']} "
            f"(SHA-256 {fact['sha256']})."
            for name, fact in facts.items()
        ]

    def _numbers(self, given: Records, delivery: Delivery) -> Records:
        """Return rows and labels as numbers, and names; all that can be wrong is refused here."""
        records, labels, public, ids, groups = (
            given.X,
            given.y,
            given.public,
            given.ids,
            given.groups,
        )
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
            return Records(X=X, y=Y, public=X_public, ids=ids, groups=groups)
        if public is None:
            rule = "must be given with a table: encodings are fitted on public rows"
            raise InputError("public", rule)
        columns = {
            "id_column": ids if isinstance(ids, str) else None,
            "group_column": groups if isinstance(groups, str) else None,
        }
        listed = list(labels) if named else []
        raw = open_table(public, "public", public=True)
        others = [*listed, *columns.values()]
        # Whoever read a table before was warned of its columns then.
        rest = [name for name in raw.columns if name not in others]
        features = rest if isinstance(public, RawTable) else features_of(raw, others)
        read = raw_table(records, labels=listed, features=features, **columns)
        raw = raw.only(features)
        texts = replace(self.texts or TextNetwork(), progress=delivery.progress)
        encoder = TableEncoder(texts).fit(raw)
        Y, self.label_names_ = (read.Y, read.label_names) if named else _labels(labels, len(read))
        ids = ids if columns["id_column"] is None else read.ids
        groups = groups if columns["group_column"] is None else read.groups
        X, X_public = (encoder.numbers(side) for side in (read.X, raw))
        self.encoder_, self.n_features_in_ = encoder.with_texts(progress=None), len(features)
        return Records(X=X, y=Y, public=X_public, ids=ids, groups=groups)

    def _look(self, X: Any) -> PictureEncoder | None:
        """Return what turns pictures into numbers; None where something here looks at pixels."""
        settings = dict(self.settings or {})
        student, network = settings.get("student"), settings.get("network", VECTOR_NETWORKS[0])
        pixels = settings.get("teacher") is not None or network not in VECTOR_NETWORKS
        pixels |= not isinstance(student, MixMatchClassifier | None)
        pixels |= not isinstance(settings.get("embedding", AUTO), str)
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
        size = (self.numbers_.records, self.numbers_.labels, self.numbers_.epsilon)
        table = isinstance(self.encoder_, TableEncoder) and self.encoder_.differs_in_kind
        return embedding_for(X_public, *size, scaled=voters or table)

    def _goes_through(self, embedding: Any) -> None:
        """Note what rows go through."""
        networks: list[str] = []
        if isinstance(self.encoder_, TableEncoder):
            networks = [net.to_plain()["network"] for net in self.encoder_.networks_.values()]
        elif self.encoder_ is not None and self.encoder_.network != PIXELS:
            networks = [self.encoder_.network]
        named = [embedding] if isinstance(embedding, str) and embedding != AUTO else []
        self.embeddings_ = (*dict.fromkeys(networks), *named)

    def _by_votes(self, rows: Records, delivery: Delivery) -> None:
        settings = dict(self.settings or {})
        _name_network(settings)
        # What the user chose to look at rows gets them as they are.
        custom = {"teacher", "student"} & set(settings)
        rule = settings.pop("embedding", None if custom else AUTO)
        if isinstance(rule, str) and rule == AUTO:
            rule = self._embedding(rows.public, voters=True)
        mapping = fit_embedding(rule, rows.public)
        self._goes_through(rule)
        # Whoever names an electorate goes on with its allowance, and with its settings.
        settled = "mechanism" in settings or delivery.electorate is not None
        if self.method_ == "teachers" and not settled:
            many = settings.setdefault("n_teachers", teachers_for(self.numbers_, settings))
            reason = f"{many:,} teachers vote, to stand out from the noise."
            self.reasons_ = (*self.reasons_, reason)
        pate = PATEClassifier(
            voters=self.method_,
            epsilon=self.epsilon,
            delta=self.delta,
            random_state=self.random_state,
            **settings,
        )

        def write(pate: PATEClassifier) -> Mapping[str, str]:
            self.release_: Release | None = pate.release_
            self.public_rows_: npt.NDArray[np.int64] | None = pate.public_rows_
            self.student_ = pate.student_
            if mapping is not None:
                self.student_ = Student(mapping, pate.student_, len(self.label_names_))
            self.shares_: Floats | None = pate.shares_
            self.thresholds_ = pate.thresholds_
            self.guarantee_: Guarantee = pate.guarantee_
            return delivery.write(self)

        # Teachers, an embedding and what is expected follow from the number of records.
        delivery_of_pate = replace(delivery, write=write, size_public=True)
        seen = replace(rows, X=embed(mapping, rows.X), public=embed(mapping, rows.public))
        pate.learn(seen, delivery_of_pate)

    def _directly(self, rows: Records, delivery: Delivery) -> None:
        settings, public = dict(self.settings or {}), rows.public
        if self.method_ == "dpsgd":
            if (
                settings.setdefault("network", "mlp") in VECTOR_NETWORKS
                and "epochs" not in settings
            ):
                settings = {"steps": 100, "sample_rate": 1.0} | settings
            if "weights" in settings:
                settings["normalise"] = "imagenet"
        elif public is not None and settings.get("embedding", AUTO) == AUTO:
            settings["embedding"] = self._embedding(public, voters=False)
        self._goes_through(settings.get("embedding"))
        settings |= {"seed": delivery.seed, "progress": partial(delivery.say, "training")}
        model = _DIRECT[self.method_](epsilon=self.epsilon, delta=self.delta, **settings)

        def write(model: PrivateTraining) -> Mapping[str, str]:
            model.set_params(progress=None)
            self.shares_, self.thresholds_ = None, model.thresholds_
            if isinstance(model, DPMoments):
                self.shares_ = model.prevalence_
            elif public is not None:
                chance = label_probabilities(model, public, len(self.label_names_))
                self.shares_ = chance.mean(axis=0)
                self.thresholds_ = matching(chance, self.shares_)
            self.guarantee_, self.release_, self.public_rows_ = model.guarantee_, None, None
            self.student_ = model
            return delivery.write(self)

        model.learn(rows, replace(delivery, write=write))


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
    names = ("weights", "frozen", "device")
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
    listed = isinstance(labels, (list, tuple)) and len(labels) > 0
    return listed and all(isinstance(name, str) for name in labels)


def _array(rows: Any, name: str) -> Any:
    """Return rows of numbers, checked; pictures on disk stay there."""
    return rows if isinstance(rows, Images) else check_rows(rows, name, images=True)


def _labels(labels: Any, rows: int) -> tuple[Labels, tuple[str, ...]]:
    """Return labels (rows, labels), and their names."""
    if is_frame(labels):  # whose gaps are unknown labels, and whose index is none
        columns = labels.reset_index(drop=True) if hasattr(labels, "reset_index") else labels
        frame = open_table(columns, "labels")
        return check_labels(labels_of(frame, frame.header), rows, "labels"), frame.header
    Y = check_labels(labels, rows, "labels")
    return Y, tuple(f"label_{index}" for index in range(Y.shape[1]))
