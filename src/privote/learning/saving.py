"""A saved student: one file that runs no code when it is loaded.

The file is a zip with what may be published about the student (``facts.json``) and the student
itself: scikit-learn estimators in skops' format, which refuses every type that is not known to be
harmless; networks of privote as plain arrays. Nothing is pickled.
"""

from __future__ import annotations

import io
import json
import os
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .._version import __version__
from ..errors import InputError, PrivoteWarning
from ..files import check_written, written
from ..guarantees import Guarantee
from .dpsgd import DPSGDClassifier
from .mixmatch import MixMatchClassifier
from .networks import ImageNetwork
from .pictures import PictureEncoder
from .rows import Floats, Labels, label_probabilities, worded
from .tables import TableEncoder

SUFFIX = ".student"
_FORMAT = 3
_FACTS, _SKOPS, _ARRAYS = "facts.json", "student.skops", "student.safetensors"
_TABLE = "table.json"  # how rows of a table become numbers
# Types beyond scikit-learn's own that a file may hold: they only compute.
_OURS = (
    "privote.guarantees.Guarantee",
    "privote.ledger.events.Standing",
    "privote.learning.gradients.DPLinear",
    "privote.learning.moments.DPMoments",
    "privote.learning.embedding.Centre",
    "privote.learning.embedding.Embedding",
    "privote.learning.students.LinearStudent",
    "privote.learning.private.Student",
    "privote.learning.students.PartialLabels",
)
# Networks, which are kept as arrays and the parameters they were made with.
_NETWORKS = {"dpsgd": DPSGDClassifier, "image": ImageNetwork, "mixmatch": MixMatchClassifier}
_MOST = 1 << 30  # bytes of a student: a zip may claim to unpack to anything
_DOUBTFUL = (
    "this student may be no better than always answering no: by its file, there were too few "
    "records, or too small an epsilon, when it was trained"
)
_FEW = 1 << 20  # bytes of its facts
_WORDS = 1 << 26  # bytes of what it knows about a table's columns


@dataclass(frozen=True, kw_only=True)
class SavedStudent:
    """A student as it was published.

    Attributes
    ----------
    model
        The fitted classifier.
    label_names
        Names of the labels, in order.
    feature_names
        Names of the columns it looks at, in order; None if they had none.
    guarantee, method
        The guarantee it was trained under, as whoever wrote the file claims it, and the method; or
        None.
    thresholds
        (labels,) from which probability on a label is said to be present; or one number.
    encoder
        What turns rows of a table, or pictures, into numbers; None if rows must be numbers.
    """

    model: Any
    label_names: tuple[str, ...]
    feature_names: tuple[str, ...] | None = None
    guarantee: Guarantee | None = None
    method: str | None = None
    thresholds: Any = 0.5
    encoder: TableEncoder | PictureEncoder | None = None
    version: str = __version__

    def predict_proba(self, X: Any) -> Floats:
        """Return each label's probability: (rows, labels).

        Rows are those of a table where it learnt from one; pictures, or a folder of them, where it
        learnt from pictures.
        """
        if self.encoder is not None:
            X = self.encoder.numbers(X)
        with worded("X", "must be rows like those that the student learnt from"):
            return label_probabilities(self.model, X, len(self.label_names))

    def predict(self, X: Any) -> Labels:
        """Return 1 where a label's probability reaches its threshold: (rows, labels)."""
        return np.asarray(self.predict_proba(X) >= np.asarray(self.thresholds)).astype(np.int8)


def save_student(
    path: str | os.PathLike[str],
    model: Any,
    *,
    label_names: Sequence[str],
    feature_names: Sequence[str] | None = None,
    guarantee: Guarantee | None = None,
    method: str | None = None,
    thresholds: npt.ArrayLike | None = None,
    encoder: TableEncoder | PictureEncoder | None = None,
    doubtful: bool = False,
) -> None:
    """Write a fitted student to a file that ends in ``.student``; see :class:`SavedStudent`.

    Without ``thresholds`` it has those of the model, or one half. Whoever loads a ``doubtful`` one
    is warned.
    """
    target = _check_path(path)
    bars = getattr(model, "thresholds_", 0.5) if thresholds is None else thresholds
    name = next((name for name, kind in _NETWORKS.items() if type(model) is kind), None)
    facts = {
        **written(_FORMAT),
        "label_names": [str(label) for label in label_names],
        "feature_names": None if feature_names is None else [str(name) for name in feature_names],
        "guarantee": None if guarantee is None else guarantee.facts(),
        "method": method,
        "thresholds": np.asarray(bars, np.float64).tolist(),
        "table": isinstance(encoder, TableEncoder),
        "pictures": encoder.to_plain() if isinstance(encoder, PictureEncoder) else None,
        "network": name,
        "doubtful": doubtful,
    }
    if name is None:
        from skops.io import dumps

        member, content = _SKOPS, dumps(model)
    else:
        from safetensors.numpy import save

        arrays = {key: np.ascontiguousarray(value) for key, value in model.to_arrays().items()}
        facts |= {"parameters": model.get_params(), "shape": list(model.shape_)}
        member, content = _ARRAYS, save(arrays)
    try:
        described = json.dumps(facts, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError("student", f"cannot be saved without code: {error}") from None
    partial = target.with_name(target.name + ".part")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(_FACTS, described)
        file.writestr(member, content)
        if isinstance(encoder, TableEncoder):
            file.writestr(_TABLE, json.dumps(encoder.to_plain(), allow_nan=False))
    partial.replace(target)  # at once: a crash leaves the old file or the new one


def load_student(
    path: str | os.PathLike[str],
    *,
    trusted: Sequence[str] = (),
    weights: str | os.PathLike[str] | None = None,
) -> SavedStudent:
    """Read what :func:`save_student` wrote. Runs no code from the file.

    Parameters
    ----------
    trusted
        Names of further types to allow, as ``package.module.Class``. Only for files from a trusted
        source.
    weights
        For a student of pictures: the weights file of its network; of texts: the network's folder.
        It must have the SHA-256 digest that the student's file states.

    Examples
    --------
    >>> import numpy as np, privote as pv, tempfile
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 3))
    >>> model = pv.PrivateClassifier("gradients", 4.0, 1e-6).fit(X, X[:, :1] > 0)
    >>> path = tempfile.mkdtemp() + "/model.student"
    >>> pv.learning.save_student(path, model.student_, label_names=["ill"])
    >>> pv.load(path).predict_proba(X[:2]).shape
    (2, 1)
    """
    target = _check_path(path)
    if not target.is_file():
        raise InputError(f"{str(path)!r} does not exist or is not a file")
    try:
        with zipfile.ZipFile(target) as file:
            facts = json.loads(_read(file, _FACTS, _FEW))
            check_written(f"student {target.name!r}", facts, _FORMAT)
            content = _read(file, _ARRAYS if facts["network"] else _SKOPS, _MOST)
            table = json.loads(_read(file, _TABLE, _WORDS)) if facts["table"] else None
        names, features = facts["label_names"], facts["feature_names"]
        for listed in (names, features or []):
            if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
                raise ValueError("names must be texts")
        model = _network(facts, content) if facts["network"] else _estimator(content, trusted)
        if not hasattr(model, "predict_proba"):
            raise ValueError("it contains no classifier")
        bars = np.asarray(facts["thresholds"], np.float64)
        if bars.shape not in ((), (len(names),)) or not ((bars >= 0) & (bars <= 1)).all():
            raise ValueError("thresholds must be from 0 to 1: one, or one per label")
        plain = facts["guarantee"]
        if facts.get("doubtful"):
            warnings.warn(_DOUBTFUL, PrivoteWarning, stacklevel=2)
        return SavedStudent(
            model=model,
            label_names=tuple(names),
            feature_names=None if features is None else tuple(features),
            guarantee=None if plain is None else Guarantee.of_facts(plain),
            method=None if facts["method"] is None else str(facts["method"]),
            thresholds=bars,
            encoder=_encoder(table, facts.get("pictures"), weights),
            version=str(facts["version"]),
        )
    except InputError:
        raise
    except Exception as error:  # whatever a broken or hostile file leads to
        raise InputError(f"{str(path)!r} is not a saved student: {error}") from None


load = load_student


def _encoder(table: Any, plain: Any, weights: Any) -> TableEncoder | PictureEncoder | None:
    """Return what turns rows into numbers, if anything does."""
    if plain is not None:
        return PictureEncoder.from_plain(plain, weights=weights)
    encoder = None if table is None else TableEncoder.from_plain(table, folder=weights)
    if weights is not None and (encoder is None or not encoder.networks_):
        rule = "applies to a student of pictures or texts, and this is not one"
        raise InputError("weights", rule)
    return encoder


def _check_path(path: str | os.PathLike[str]) -> Path:
    target = Path(path)
    if target.suffix != SUFFIX:
        raise InputError(f"a student's file must end in {SUFFIX}, got {str(path)!r}")
    return target


def _read(file: zipfile.ZipFile, name: str, most: int) -> bytes:
    if file.getinfo(name).file_size > most:
        raise ValueError(f"{name} claims to contain more than {most} bytes")
    return file.read(name)


def _network(facts: dict[str, Any], content: bytes) -> Any:
    if facts["network"] not in _NETWORKS:
        raise InputError(f"unknown kind of network {facts['network']!r} in the student's file")
    from safetensors.numpy import load

    model = _NETWORKS[facts["network"]](**facts["parameters"])
    return model.restored(tuple(map(int, facts["shape"])), load(content))


def _estimator(content: bytes, trusted: Sequence[str]) -> Any:
    from skops.io import get_untrusted_types, loads

    with zipfile.ZipFile(io.BytesIO(content)) as inner:  # which may claim to unpack to anything
        if sum(member.file_size for member in inner.infolist()) > _MOST:
            raise ValueError(f"it claims to unpack to more than {_MOST} bytes")
    allowed = {*_OURS, *trusted}
    unknown = [kind for kind in get_untrusted_types(data=content) if kind not in allowed]
    if unknown:
        raise InputError(
            "the student's file contains types not known to be safe: "
            f"{', '.join(sorted(unknown))}; name them as trusted if you trust its source"
        )
    return loads(content, trusted=sorted(allowed))
