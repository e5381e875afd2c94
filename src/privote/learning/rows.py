"""Rows and labels as classifiers take them and give them, whoever holds the rows.

Rows are arrays, sparse matrices, data frames, lists or images on disk; labels and probabilities are
(rows, labels).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin
from sklearn.utils.validation import validate_data

from ..datasets.images import Images
from ..errors import InputError, PrivoteError, finite, numbers
from ..votes.names import identities

Labels = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float64]
Targets = npt.NDArray[Any]  # int8 of 1, 0 and -1, or float64 with probabilities among them
Progress = Callable[[int, int], None]  # of how much is done, and of how much

NORM_MARGIN = 1e-12  # a row ends just inside the unit ball, so that rounding never leaves it
BLOCK = 1024  # rows that are mapped at once: a public size, and no rest that is rounded otherwise


class LabelClassifier(MultiOutputMixin, ClassifierMixin, BaseEstimator):
    """What classifiers of many labels have in common; each says its own ``predict_proba``."""

    accepts_missing = True  # labels of -1 are left out
    accepts_soft = False  # whether labels may be probabilities, with weights
    thresholds_: Floats | float = 0.5
    n_features_in_: int

    def predict_proba(self, X: Any) -> Floats:
        """Return each label's probability: (rows, labels)."""
        raise NotImplementedError

    def predict(self, X: Any) -> Labels:
        """Return 1 where a label's probability reaches its threshold: (rows, labels)."""
        return np.asarray(self.predict_proba(X) >= self.thresholds_).astype(np.int8)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows of which every known label is predicted."""
        predicted = self.predict(X)
        if predicted.ndim == 1:  # a subclass has made classes of one label
            return float(super().score(X, y, sample_weight))
        truth = check_labels(y, len(predicted))
        if truth.shape != predicted.shape:
            raise InputError("y", f"must have {predicted.shape[1]} labels, got {truth.shape[1]}")
        right = ((truth == predicted) | (truth < 0)).all(axis=1)
        return float(np.average(right, weights=sample_weight))

    def _rows(self, X: Any, name: str = "X", *, reset: bool = False, images: bool = False) -> Any:
        """Return checked rows, with as many features as in :meth:`fit`, of the same names."""
        if images and isinstance(X, Images):  # which stay on disk
            return X
        rows = check_rows(X, name, images=images)
        if not reset and rows.shape[1] != self.n_features_in_:
            expected = f"{type(self).__name__} is expecting {self.n_features_in_} features as input"
            raise InputError(name, f"has {rows.shape[1]} features, but {expected}")
        validate_data(self, X, reset=reset, skip_check_array=True)
        return rows

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        # Often a closure over somebody's screen.
        return {**state, "progress": None} if "progress" in state else state

    def __sklearn_tags__(self) -> Any:
        """Say what this takes: sparse rows, many labels."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        return tags


def check_apart(X: Any, public: Any, argument: str) -> None:
    """Refuse private rows that are given as public ones, too: what follows from those is free."""
    same, arrays = public is X, hasattr(X, "shape") and hasattr(public, "shape")
    if not same and arrays and X.shape == public.shape:
        if sp.issparse(X) and sp.issparse(public):
            same = (X != public).nnz == 0
        elif isinstance(X, np.ndarray) and isinstance(public, np.ndarray):
            same = np.array_equal(X, public)
    if same:
        raise InputError(argument, "must not be the private rows: public rows are not protected")


def count_rows(X: Any) -> int:
    """Return how many rows there are."""
    if hasattr(X, "shape"):
        if not len(X.shape):
            raise InputError("X", "must have rows, got one number")
        return int(X.shape[0])
    if hasattr(X, "__len__"):
        return len(X)
    raise InputError("X", f"must have rows, got {type(X).__name__}")


def row_size(X: Any) -> int:
    """Return how many values a row has, 1 if it does not say."""
    return max(1, int(np.prod(getattr(X, "shape", (1,))[1:])))


def take_rows(X: Any, rows: npt.NDArray[np.intp] | slice) -> Any:
    """Return some rows, of the same kind as ``X`` where that is possible."""
    if isinstance(X, np.ndarray) or sp.issparse(X):
        return X[rows]
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if isinstance(rows, slice):
        return X[rows]
    if hasattr(X, "take"):  # reads nothing yet, where rows are on disk
        return X.take(rows)
    return [X[row] for row in rows]


def padded_blocks(X: Any, size: int = BLOCK) -> Iterator[tuple[Any, slice]]:
    """Yield blocks of exactly ``size`` rows, and the places in ``X`` that they start with.

    Linear algebra rounds by the shape of a block, so a block whose size is private would let one
    record change the last bits of others. The last block is filled up with the last row; what comes
    of those is to be dropped. With one thread, a row of such a block is mapped by itself.
    """
    rows = count_rows(X)
    for start in range(0, rows, size):
        stop = min(start + size, rows)
        if stop - start == size:
            yield X[start:stop], slice(start, stop)
        else:
            yield X[np.minimum(np.arange(start, start + size), rows - 1)], slice(start, stop)


def same_anywhere(
    mapping: Callable[[npt.NDArray[Any]], npt.NDArray[Any]],
    shape: tuple[int, ...],
    dtype: npt.DTypeLike = np.float64,
) -> bool:
    """Return whether a block of this shape maps a row to the same bits wherever it stands in it.

    Some processors' matrix products take the rows of a block in groups that round differently. One
    more private row would then move others to a place where their last bits change, so they have
    to be mapped one at a time. Tried on made-up rows: what is tried is the order of operations,
    which goes by the shape of a block.
    """
    rows = np.random.default_rng(0).normal(size=shape).astype(dtype)
    here, there = mapping(rows), mapping(np.roll(rows, 1, axis=0))
    return here.tobytes() == np.roll(there, -1, axis=0).tobytes()


def normalize_rows(rows: Any) -> Any:
    """Return rows of norm 1, or 0 where there is nothing; each is scaled by itself.

    First to a largest value of 1: squares of tiny values would vanish, or lose their digits, and
    squares of huge ones overflow, and the norm with them.
    """
    largest = abs(rows).max(axis=1)
    rows = _divided(rows, largest.toarray() if sp.issparse(rows) else largest)
    square = rows.multiply(rows) if sp.issparse(rows) else rows * rows
    return _divided(rows, np.sqrt(np.asarray(square.sum(axis=1))) * (1 + NORM_MARGIN))


def _divided(rows: Any, by: Floats) -> Any:
    by = np.where(by > 0, by, 1.0).reshape(-1, 1)
    if not sp.issparse(rows):
        return rows / by
    rows = rows.copy()
    rows.data /= np.repeat(by.ravel(), np.diff(rows.indptr))  # 1 / by may overflow
    return rows


def is_skorch(model: Any) -> bool:
    """Return whether a classifier is a skorch network, which compares labels as real numbers."""
    return any(kind.__module__.startswith("skorch") for kind in type(model).__mro__)


def targets(model: Any, Y: Targets) -> npt.NDArray[Any]:
    """Return labels as this classifier wants them."""
    return Y.astype(np.float32 if is_skorch(model) else np.int64)


def label_probabilities(model: Any, X: Any, labels: int) -> Floats:
    """Return each label's probability of a 1: (rows, labels).

    Takes what scikit-learn's classifiers give: an array (rows, labels), a list with one array
    (rows, classes) a label, two columns for one label; else decisions, squashed; else predictions.
    """
    if hasattr(model, "predict_proba"):
        answers = model.predict_proba(X)
        if isinstance(answers, list):
            answers = np.stack(
                [_of_one(part, kinds) for part, kinds in zip(answers, model.classes_, strict=True)],
                axis=1,
            )
    elif hasattr(model, "decision_function"):
        answers = expit(model.decision_function(X))
    else:
        answers = model.predict(X)
    if sp.issparse(answers):
        answers = answers.toarray()
    chance = np.asarray(answers, np.float64)
    if chance.ndim == 3 and chance.shape[1] == 2:  # skorch: no and yes of every label
        chance = chance[:, 1]
    if chance.ndim == 1:
        chance = chance[:, None]
    if labels == 1 and chance.shape[1] == 2:
        chance = chance[:, 1:]
    if chance.ndim != 2 or chance.shape[1] != labels:
        raise InputError(
            f"{type(model).__name__} must return one probability per label, shape (rows, "
            f"{labels}), got {chance.shape}"
        )
    return chance


def _of_one(chance: npt.NDArray[Any], classes: npt.NDArray[Any]) -> Floats:
    """Return the probability of a 1 from one label's (rows, classes)."""
    kinds = list(np.asarray(classes).tolist())
    if 1 not in kinds:
        return np.zeros(len(chance))
    return np.asarray(chance[:, kinds.index(1)], np.float64)


def matching(chance: Floats, share: Floats) -> Floats:
    """Return the threshold of each label above which that share of public rows lies: (labels,).

    A student of noisy labels ranks better than its probabilities are calibrated.

    Parameters
    ----------
    chance
        (public rows, labels)
    share
        (labels,) how common each label is: from what was released.
    """
    pairs = zip(chance.T, np.clip(share, 0.0, 1.0), strict=True)
    bars = [np.quantile(column, 1 - part) if np.ptp(column) > 0 else 0.5 for column, part in pairs]
    return np.clip(bars, 1e-9, 1.0)


def check_rows(X: Any, name: str = "X", *, images: bool = False) -> Any:
    """Return rows as a float64 matrix, dense or CSR, all finite.

    The type is the same whatever comes in, so that one record with a fraction or a gap rounds
    nobody else's row otherwise. With ``images``, rows of more axes stay as they are.
    """
    if sp.issparse(X):
        if X.dtype.kind not in "biuf":
            raise InputError(name, "must be numbers. Complex data not supported")
        rows = X.tocsr().astype(np.float64)
    else:
        rows = numbers(name, X)
        if rows.ndim == 2:  # in one order: a row's sum over features may be rounded by it
            rows = np.ascontiguousarray(rows, np.float64)
    if rows.ndim < 2 or (rows.ndim > 2 and not images):
        rule = f"must be a matrix (records, features), got shape {rows.shape}"
        raise InputError(name, f"{rule}. Reshape your data: one row is [row]")
    if not min(rows.shape):
        size = f"{rows.shape[1]} feature(s) (shape={rows.shape}) while a minimum of 1 is required."
        raise InputError(name, f"must have rows and features, got {size}")
    if not np.isfinite(rows.data if sp.issparse(rows) else rows).all():
        rule = "must be finite, without NaN or infinity. Gaps may stand in a data frame"
        raise InputError(name, f"{rule} (`PrivateClassifier`), or are filled by public rows before")
    return rows


@contextmanager
def worded(argument: str, rule: str) -> Iterator[None]:
    """Word whatever another library says about private data; its own words are sealed.

    Its warnings are not shown: that a fit did not converge tells of a part.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except PrivoteError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise InputError(argument, rule, sealed=f"it says {text}") from None


def check_labels(y: Any, rows: int, name: str = "y") -> Labels:
    """Return labels (rows, labels) of 1, 0 and -1 (unknown, or ABSTAIN); one axis is one label.

    NaN and None are unknown, too.
    """
    return _cells(y, rows, name, "1, 0 and -1 (unknown)", _hard).astype(np.int8)


def check_targets(y: Any, rows: int) -> Targets:
    """Return what a student learns from: labels or their probabilities.

    Parameters
    ----------
    y
        (rows, labels) of probabilities that a label is present, in [0, 1]; -1, NaN or None where it
        is unknown.
    rows
        How many there must be.

    Returns
    -------
    int8 if there are no probabilities but 0 and 1, else float64.
    """
    allowed = "probabilities from 0 to 1, or -1 (unknown)"
    Y = _cells(y, rows, "y", allowed, lambda p: _hard(p) | ((p > 0) & (p < 1)))
    return Y.astype(np.int8 if _hard(Y).all() else np.float64)


def rounded(Y: Targets) -> Labels:
    """Return 1 where a probability is at least one half, else 0; -1 as it is."""
    return np.asarray(np.floor(Y + 0.5), np.int8)


def _hard(cells: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    return np.asarray((cells == 0) | (cells == 1) | (cells == -1))


def _cells(
    y: Any, rows: int, name: str, allowed: str, good: Callable[[Any], npt.NDArray[np.bool_]]
) -> npt.NDArray[Any]:
    """Return an array of good numbers (rows, labels); one axis is one label."""
    array = numbers(name, y.toarray() if sp.issparse(y) else y)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[0] != rows or array.shape[1] < 1:
        raise InputError(name, f"must have the shape ({rows}, labels), got {array.shape}")
    array = np.where(np.isnan(array), -1, array)
    bad = np.argwhere(~good(array))
    if len(bad):
        row, label = (int(i) for i in bad[0])
        raise InputError(
            name,
            f"must contain {allowed}, and row {row}, label {label} does not",
            sealed=f"it is {array[row, label]}",
        )
    return array


def fraction(name: str, value: Any, ends: str = "[]") -> float:
    """Return a number from 0 to 1; ``ends`` are the brackets that say whether these two are in."""
    number = finite(name, value) if isinstance(value, Real) else -1.0
    if not 0 <= number <= 1 or (number == 0 and "(" in ends) or (number == 1 and ")" in ends):
        raise InputError(name, f"must lie in {ends[0]}0, 1{ends[1]}", value)
    return number


def deviations(X: Any) -> tuple[Floats, Floats]:
    """Return the features' means and standard deviations, 0 where a feature does not vary."""
    mean = np.asarray(X.mean(axis=0), np.float64).ravel()
    if sp.issparse(X):
        square = np.asarray(X.multiply(X).mean(axis=0), np.float64).ravel()
        spread, size = np.sqrt(np.maximum(square - mean**2, 0)), np.sqrt(square)
    else:
        spread, size = np.asarray(X.std(axis=0, dtype=np.float64)), np.abs(X).max(axis=0)
    return mean, np.where(spread > 1e-6 * size, spread, 0.0)  # but for rounding of a constant


def check_groups(
    groups: Any, records: int, name: str = "groups"
) -> tuple[npt.NDArray[Any] | None, npt.NDArray[np.int64] | None]:
    """Return the names of persons, sorted, and each row's person by place; None without groups."""
    if groups is None:
        return None, None
    names, person = np.unique(identities(groups, name, records), return_inverse=True)
    return names, person.reshape(-1).astype(np.int64)
