"""Linear models of all labels at once.

The loss is scikit-learn's: the sum of log-losses plus |w|^2 / (2 C), the intercept not penalised.
A target may be a probability p: its log-loss at margin m is log(1 + exp(m)) - p m, so that the best
answer is p itself.
The best weights are a combination of the records, w = X' a (representer theorem), so the search
happens in records: one product with the Gram matrix X X' per iteration serves all labels, and the
margins along a direction that was walked before are known without another product.

Each iteration takes a Newton step in the space spanned by the gradient, the step before and the
intercept: conjugate gradients whose two parameters are solved for instead of given by a formula. A
step that does not lower the loss is halved. Nothing here reads another part's records or sizes: a
part's weights are the same to the last bit, whatever the other parts hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.special import expit

from ..errors import positive, whole
from .rows import Targets

Floats = npt.NDArray[np.float64]
Layer = tuple[Floats, Floats]  # weights (outputs, inputs), biases (outputs,)
Product = Callable[[Floats], Floats]

_USUAL = 15  # iterations, to tell whether a Gram matrix pays for itself
_DENSE = 0.03  # share of non-zeros above which a dense Gram matrix is the quicker one
_SLOWER = 30  # how many times as long a multiplication takes in a sparse product
_HALVINGS = 30
_SLACK = 1e-6  # rounding of a sum of losses
_TINY = 1e-30


@dataclass(frozen=True, kw_only=True)
class Solver:
    """The one way linear models are fitted here, teachers' and students' alike.

    The attributes are parameters of :class:`privote.learning.LinearTeachers`, which says what they
    do.
    """

    C: float = 1.0
    tol: float = 1e-3
    max_iter: int = 100

    def __post_init__(self) -> None:
        positive("C", self.C)
        positive("tol", self.tol)
        whole("max_iter", self.max_iter)

    def fit(self, X: Any, Y: Targets) -> Layer:
        """Return weights and biases fitted to checked rows and targets; there may be no rows.

        Labels with one class get weights of zero and a constant bias.
        """
        learnable, constant = one_class(Y)
        weights = np.zeros((Y.shape[1], X.shape[1]))
        with np.errstate(divide="ignore"):  # the logarithm of 0 is what is meant
            bias = np.log(constant / (1 - constant))
        if learnable.any():
            how: dict[str, Any] = {"C": float(self.C), "tol": float(self.tol)}
            how["max_iter"] = int(self.max_iter)
            weights[learnable], bias[learnable] = fit_logistic(X, Y[:, learnable], **how)
        return weights, bias


def answer(X: Any, layer: Layer) -> Floats:
    """Return probabilities (rows, labels)."""
    weights, bias = layer
    return np.asarray(expit(np.asarray(X @ weights.T) + bias))


def one_class(Y: Targets) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Return which labels have both classes, and the constant for those that do not.

    The constant counts one more record than there is, without the label: a teacher who knows
    nothing of a label says no. A probability strictly between 0 and 1 is of both classes.
    """
    answered = Y >= 0
    learnable = (answered & (Y > 0)).any(axis=0) & (answered & (Y < 1)).any(axis=0)
    return learnable, (answered * Y).sum(axis=0) / (answered.sum(axis=0) + 1)


def fit_logistic(
    X: Any, Y: Targets, *, C: float, tol: float, max_iter: int
) -> tuple[Floats, Floats]:
    """Fit one logistic regression per label: weights (labels, features), intercepts (labels,).

    Parameters
    ----------
    X
        (records, features) float64, dense or CSR.
    Y
        (records, labels) of 1, 0, probabilities and -1 (unknown: left out); every label has both
        classes.
    C, tol, max_iter
        As of :class:`Solver`.
    """
    if sp.issparse(X) and X.nnz > _DENSE * X.shape[0] * X.shape[1]:
        X = X.toarray()
    # With an intercept that is free, centred records have the same best weights, found sooner.
    centre = np.asarray(X.mean(axis=0)).ravel()
    if not sp.issparse(X):
        X = X - centre
    product, length = _gram(X, centre, Y.shape[1])
    # Overflow means a step far too long: its loss is infinite, and it is halved.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        start = _State.at_zero(Y, 1.0 / C)
        duals, intercepts = _search(product, length, start, tol, max_iter)
    if sp.issparse(X):  # not centred: sum_i a_i (x_i - centre)
        weights = np.asarray((X.T @ duals.T).T) - np.outer(duals.sum(axis=1), centre)
    else:
        weights = duals @ X
    return weights, intercepts - weights @ centre


def _gram(X: Any, centre: Floats, labels: int) -> tuple[Product, Any]:
    """Return the product with the centred Gram matrix, and the records' root mean square length.

    The matrix itself is made where that is quicker than a product with X' and one with X each time.
    """
    records, features = X.shape
    if sp.issparse(X):
        squares = float(X.multiply(X).sum()) - records * float(centre @ centre)
        length = np.sqrt(max(squares, _TINY) / records)
        turned = X.T.tocsr()
        if records**2 > 2 * _SLOWER * X.nnz:
            return lambda rows: _sparse_product(X, turned, rows), length
        gram = (X @ turned).toarray()
        gram -= gram.mean(axis=0)
        gram -= gram.mean(axis=1)[:, None]
        return lambda rows: _turned(gram @ rows.T), length
    length = np.sqrt(max(float(np.vdot(X, X)), _TINY) / records)
    if records * features < 2 * _USUAL * labels * (2 * features - records):
        gram = X @ X.T
        return lambda rows: _turned(gram @ rows.T), length
    return lambda rows: _turned(X @ (rows @ X).T), length


def _sparse_product(X: Any, turned: Any, rows: Floats) -> Floats:
    """Return the product with the centred Gram matrix of sparse records, which stay sparse."""
    out = np.asarray(X @ (turned @ (rows - rows.mean(axis=1)[:, None]).T))
    return _turned(out - out.mean(axis=0))


def _turned(columns: Floats) -> Floats:
    return np.ascontiguousarray(columns.T)


def _search(
    product: Product, length: float, state: _State, tol: float, max_iter: int
) -> tuple[Floats, Floats]:
    """Return the best combination of records (labels, records) and intercepts (labels,)."""
    bar = tol * state.weight.sum(axis=1)
    duals, intercepts = np.zeros_like(state.duals), np.zeros_like(state.intercepts)
    active = np.arange(len(bar))
    for _ in range(max_iter):
        residuals = state.residuals()
        gradient = residuals + state.penalty * state.duals
        along = product(gradient)
        slopes, levels = _dots(gradient, along), _sums(residuals)
        far = (slopes > (bar[active] * length) ** 2) | (np.abs(levels) > bar[active])
        if not far.all():
            duals[active], intercepts[active] = state.duals, state.intercepts
            active, state = active[far], state.only(far)
            gradient, along, slopes, levels = gradient[far], along[far], slopes[far], levels[far]
        if not len(active):
            break
        state.walk(gradient, along, slopes, levels)
    duals[active], intercepts[active] = state.duals, state.intercepts
    return duals, intercepts


@dataclass
class _State:
    """Where the search stands: one row per label still searched, one column per record.

    A cell with target p is of the class that is likelier, with a doubt q = min(p, 1 - p): with u
    the margin times its sign, its loss is log(1 + exp(u)) - q u. As q is at most one half, the two
    terms never nearly cancel.
    """

    sign: Floats  # +1 where the likelier class is 0, -1 where it is 1, 0 where it is unknown
    weight: Floats  # 0 where the label is unknown
    lean: Any  # sign times doubt; None where no label is in doubt
    penalty: float
    duals: Floats
    margins: Floats  # without the intercept
    intercepts: Floats
    step: Floats  # the last one, in duals
    step_margins: Floats
    right: Floats  # probability of the likelier class
    wrong: Floats  # one minus it
    loss: Floats  # with the penalty

    @classmethod
    def at_zero(cls, Y: Targets, penalty: float) -> _State:
        """Start with every probability at 1/2, where curvature is largest and steps are safe."""
        target = np.ascontiguousarray(Y.T)
        sign = np.array([1.0, -1.0, 0.0])[np.rint(target).astype(np.int8)]  # by 0, 1, -1
        weight, lean = np.abs(sign), None
        if target.dtype != np.int8:
            lean = sign * np.minimum(target, 1 - target)
        half, zeros = np.full_like(sign, 0.5), np.zeros_like(sign)
        return cls(
            sign=sign,
            weight=weight,
            lean=lean,
            penalty=penalty,
            duals=zeros,
            margins=zeros,
            intercepts=np.zeros(len(sign)),
            step=zeros,
            step_margins=zeros,
            right=half,
            wrong=half,
            loss=weight.sum(axis=1) * np.log(2),
        )

    def residuals(self) -> Floats:
        """Return the derivatives of the loss by the margins."""
        hard = self.sign * self.wrong
        return hard if self.lean is None else hard - self.lean

    def only(self, rows: npt.NDArray[np.bool_]) -> _State:
        """Return the state of some of the labels."""
        fields: dict[str, Any] = {
            name: value[rows] if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }
        return _State(**fields)

    def walk(self, gradient: Floats, along: Floats, slopes: Floats, levels: Floats) -> None:
        """Take one step in the space of gradient, last step and intercept.

        ``along`` are the margins of ``gradient``, ``slopes`` its squared length and ``levels`` the
        derivatives by the intercept.
        """
        first, second, lift = self._newton(gradient, along, slopes, levels)
        step = first[:, None] * gradient + second[:, None] * self.step
        step_margins = first[:, None] * along + second[:, None] * self.step_margins
        constant, linear = _dots(self.duals, self.margins), _dots(self.duals, step_margins)
        square = _dots(step, step_margins)
        part = np.ones_like(lift)
        for left in reversed(range(_HALVINGS)):
            margins = self.margins + part[:, None] * step_margins
            intercepts = self.intercepts + part * lift
            lifted = margins + intercepts[:, None]
            odds = np.exp(self.sign * lifted)
            right = 1 / (1 + odds)
            norm = constant + 2 * part * linear + part**2 * square  # |w|^2
            loss = self.penalty / 2 * norm - _sums(np.log(right) * self.weight)
            if self.lean is not None:
                loss -= _dots(self.lean, lifted)
            worse = ~(loss <= self.loss * (1 + _SLACK))
            if not worse.any():
                break
            part[worse] *= 0.5 if left > 1 else 0.0
        if (part < 1).any():
            step, step_margins = part[:, None] * step, part[:, None] * step_margins
        self.step, self.step_margins, self.duals = step, step_margins, self.duals + step
        self.margins, self.intercepts = margins, intercepts
        self.right, self.wrong, self.loss = right, odds * right, loss

    def _newton(self, gradient: Floats, along: Floats, slopes: Floats, levels: Floats) -> Floats:
        """Return how far to go along gradient, last step and intercept: (3, labels)."""
        weight = self.right * self.wrong * self.weight
        first, two = weight * along, weight * self.step_margins
        mixed = _dots(gradient, self.step_margins)
        H = np.empty((len(weight), 3, 3))
        H[:, 0, 0] = _dots(first, along) + self.penalty * slopes
        H[:, 0, 1] = H[:, 1, 0] = _dots(first, self.step_margins) + self.penalty * mixed
        H[:, 1, 1] = _dots(two, self.step_margins)
        H[:, 1, 1] += self.penalty * _dots(self.step, self.step_margins)
        H[:, 0, 2] = H[:, 2, 0] = _sums(first)
        H[:, 1, 2] = H[:, 2, 1] = _sums(two)
        H[:, 2, 2] = _sums(weight)
        downhill = -np.stack([slopes, mixed, levels], axis=1)
        scale = np.sqrt(np.maximum(H[:, range(3), range(3)], _TINY))
        H /= scale[:, :, None] * scale[:, None, :]
        # Parallel directions make it singular, and its rounding the step. A little more curvature
        # shortens the step a little.
        H[:, range(3), range(3)] += np.sqrt(np.finfo(np.float64).eps)
        steps = np.linalg.solve(H, (downhill / scale)[:, :, None])[:, :, 0] / scale
        return np.ascontiguousarray(np.nan_to_num(steps).T)


def _dots(a: Floats, b: Floats) -> Floats:
    """Return the inner products of rows."""
    return np.asarray(np.matmul(a[:, None, :], b[:, :, None])[:, 0, 0])


def _sums(a: Floats) -> Floats:
    """Return the sums of rows."""
    return np.asarray(a @ np.ones(a.shape[1]))
