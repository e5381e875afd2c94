r"""A linear model of private records from one noisy sum: for many labels, or a small epsilon.

A record has features x (through a public embedding,
of norm at most 1), a constant 1 after them, and labels c (0 or 1, as a vector of norm at most √τ;
longer ones are shortened). What leaves is

.. math:: S = \sum_i (x_i, 1) \otimes c_i + \text{noise},

once. Private least squares need features times features as well; those come from *public* rows,
for free. Everything after S is post-processing.

*Sensitivity.* Replacing a record (x, c) by (x′, c′) moves S by D, and

.. math:: \|D\|^2 = (\|x\|^2 + 1)\|c\|^2 + (\|x'\|^2 + 1)\|c'\|^2
    - 2\,(\langle x, x' \rangle + 1)\,\langle c, c' \rangle \le 4\tau,

because each of the first two terms is at most 2τ, ⟨x, x′⟩ ≥ −1 by Cauchy and Schwarz, and
⟨c, c′⟩ ≥ 0 as labels are not negative. So S moves by at most 2√τ: the constant costs nothing that
another direction of x would not (signed labels would cost √2 more). A record whose labels c and c′
have nothing in common reaches it. An unknown label (−1) adds nothing: it counts as a 0 in c, which
leaves c a vector that is not negative and no longer than √τ. A person with several rows adds their
mean: it is no longer than the longest, and the product of two means is a mean of products that are
not negative, so the bound is the same; how many rows there are does not show, the number of persons
is public.

Known for one label as private least squares with a public covariance.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, logit

from ..errors import InputError, finite, positive
from .gradients import PrivateLinear
from .noise import CLIP_MARGIN, Noise, Priced, TrainingPlan
from .rows import (
    BLOCK,
    Floats,
    Labels,
    matching,
)
from .training import (
    MOMENTS,
    Arrays,
    Layout,
    Persons,
)

_SPREADS = np.geomspace(1e-6, 1e6, 121)  # of weights, to choose from
_STEPS = 50  # of Newton's method, each of which moves a logit by about 1 at most


@dataclass(eq=False, repr=False)
class DPMoments(PrivateLinear):
    """A linear model of many labels from one noisy sum of features times labels.

    Parameters
    ----------
    epsilon, delta
        The promise, for one record replaced.
    tau
        Label vectors longer than √tau are shortened to it: about the number of labels that a record
        has, or fewer. A public number.
    ridge
        Least squares' penalty, in units of the mean variance of a feature.
    shrink
        Let the released sums say label by label how large weights are beside the noise, and shrink
        noisy directions accordingly; it costs nothing.
    embedding
        Where rows are put before: see :func:`privote.learning.embedding.fit_embedding`. ``"auto"``:
        principal components, as many as public numbers suggest. None: features are standardised by
        public rows.
    seed
        ``None``: cryptographic noise. A number makes the noise reproducible and the model
        *simulated*: it protects nobody.
    progress
        Called as ``progress(done, steps)``; there is one step.

    Attributes
    ----------
    coef_, intercept_
        (labels, features) and (labels,), of logits on rows in the embedding.
    prevalence_
        (labels,) how common each label is, from the noisy sum of the constant 1 times labels.
    thresholds_
        (labels,) with which ``predict`` says yes to that share of the public rows.
    guarantee_, embedding_
        The :class:`privote.guarantees.Guarantee` of the weights; the public map.
    """

    kind: ClassVar[str] = MOMENTS

    epsilon: float = 8.0
    delta: float = 1e-5
    _: KW_ONLY
    tau: float = 1.0
    ridge: float = 0.3
    shrink: bool = True
    embedding: Any = "auto"
    seed: int | None = None
    progress: Any = None

    def _plan(self, records: int) -> TrainingPlan:
        positive("tau", self.tau)
        if finite("ridge", self.ridge) < 0:
            raise InputError("ridge", "must be 0 or more", self.ridge)
        return TrainingPlan(steps=1)

    def _power(self) -> float:
        return 1.0 if self.embedding_ is None else 0.0

    def _prepare(self, rows: Any, Y: Labels, unit: Persons, X_public: Any, priced: Priced) -> Any:
        if X_public is None:
            raise InputError("X_public", "must be given, for the covariance of features")
        public = self._look(X_public, priced.records, Y.shape[1])
        return moments(self._design(rows), Y, unit, self.tau), public

    def _layout(self, prepared: Any) -> Layout:
        return {"sums": (np.float64, prepared[0].shape)}

    def _draw(self, prepared: Any, priced: Priced, noise: Noise) -> Arrays:
        return {"sums": noise.add(prepared[0], priced.noise_multiplier * np.sqrt(self.tau))}

    def _finish(self, drawn: Arrays, prepared: Any, priced: Priced) -> None:
        (_, public), records = prepared, priced.records
        deviation = priced.noise_multiplier * np.sqrt(self.tau)
        released = drawn["sums"] / records
        weights = self._weights(released, public, (deviation / records) ** 2, records)
        self._calibrate(weights, released[-1], public, records)
        if self.progress is not None:
            self.progress(1, 1)

    def _weights(self, released: Floats, public: Any, variance: float, records: int) -> Floats:
        """Return least squares' weights (features, labels) from the released means.

        ``variance`` is the noise's on each of them. In a direction in which public rows have the
        variance v, a mean of products is v times the weight, plus noise, plus the chance of which
        records there are. With normal weights the likeliest spread g of a label's weights, and then
        the mean weight given the released ones, are the shrunken least squares below.
        """
        seen = public[:, :-1]
        mean = np.asarray(seen.mean(axis=0)).ravel()
        square = np.asarray((seen.T @ seen).toarray() if sp.issparse(seen) else seen.T @ seen)
        spread, axes = np.linalg.eigh(square / seen.shape[0] - np.outer(mean, mean))
        spread = np.maximum(spread, 0.0)[:, None]
        along = axes.T @ (released[:-1] - np.outer(mean, released[-1]))
        # Nobody divides by a direction in which public rows do not vary.
        least = np.finfo(np.float64).eps * max(1.0, float(spread.max()))
        penalty = spread + self.ridge * spread.mean() + least
        if not self.shrink:
            return np.asarray(axes @ (along / penalty))
        share = np.clip(released[-1], 1 / records, 1.0)
        noise = variance * (1 + (axes.T @ mean) ** 2)[:, None]
        noise = noise + spread * share * (1 - share) / records
        fits = []
        for size in _SPREADS:
            total = spread**2 * size + noise
            fits.append(-(np.log(total) + along**2 / total).sum(axis=0))
        chosen = _SPREADS[np.argmax(fits, axis=0)]
        return np.asarray(axes @ (spread * along / (spread * penalty + noise / chosen)))

    def _calibrate(self, weights: Floats, counts: Floats, public: Any, records: int) -> None:
        """Make logits of scores, and thresholds; from what was released and public rows.

        A record of m labels, shortened to √tau, adds √(tau / m) to the count of each: of m labels
        each the counts add up to √(tau m), which says by how much they fall short.
        """
        short = max(1.0, float(np.maximum(counts, 0.0).sum()) / self.tau)
        self.prevalence_ = np.clip(short * counts, 1 / (records + 1), records / (records + 1))
        mean = np.asarray(public[:, :-1].mean(axis=0)).ravel()
        scores = short * np.asarray(public[:, :-1] @ weights - mean @ weights)
        slope, level = np.empty((2, len(counts)))
        for label, share in enumerate(self.prevalence_):
            slope[label], level[label] = _logistic(scores[:, label], float(share))
        self.coef_ = np.ascontiguousarray((short * slope * weights).T)
        self.intercept_ = level - mean @ self.coef_.T
        self.thresholds_ = matching(expit(scores * slope + level), self.prevalence_)


def moments(design: Any, Y: Labels, unit: Persons, tau: float) -> Floats:
    """Return the sum over records of features times labels: (features, labels).

    Rows must have norm at most 1, and then a constant 1. Labels of a row longer than √tau are
    shortened to it; unknown ones add nothing. ``unit`` says which rows belong to one person, who
    adds their mean.
    """
    cast = (Y == 1).astype(np.float64)
    length = np.sqrt(cast.sum(axis=1))
    limit = np.sqrt(tau) * (1 - CLIP_MARGIN)
    cast *= np.minimum(1.0, limit / np.maximum(length, 1.0))[:, None]
    if unit is not None:
        cast /= np.bincount(unit)[unit][:, None]
    blocks = (slice(start, start + BLOCK) for start in range(0, len(cast), BLOCK))
    return sum(
        (np.asarray(design[block].T @ cast[block]) for block in blocks),
        start=np.zeros((design.shape[1], cast.shape[1])),
    )


def _logistic(scores: Floats, share: float) -> tuple[float, float]:
    """Return slope and level of a logistic curve through scores, which are about ``share``.

    Scores of least squares are probabilities but for where they end. The curve has their mean, and
    goes along with them as far as they do themselves: the equations of logistic regression with
    ``share + scores`` in place of labels.
    """
    slope, level = 0.0, float(logit(share))
    target = np.array([share, float(np.mean(scores * (share + scores)))])
    for _ in range(_STEPS):
        chance = expit(slope * scores + level)
        bend = chance * (1 - chance)
        wrong = target - np.array([chance.mean(), (chance * scores).mean()])
        matrix = np.array(
            [
                [bend.mean(), (bend * scores).mean()],
                [(bend * scores).mean(), (bend * scores * scores).mean()],
            ]
        )
        matrix += 1e-12 * np.eye(2) * np.trace(matrix) + 1e-300 * np.eye(2)
        up, steeper = np.linalg.solve(matrix, wrong)
        size = max(1.0, abs(up), abs(steeper) * float(np.abs(scores).max(initial=0.0)))
        slope, level = slope + steeper / size, level + up / size
        if size == 1.0 and abs(up) < 1e-9:
            break
    return max(0.0, slope), level
