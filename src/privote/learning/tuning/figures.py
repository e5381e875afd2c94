"""How good released labels are to be expected, from the exact distribution of outcomes.

A released label is its own score. Its ROC curve has one corner, so AUC is BAC by another name, and
its average precision is recall * precision + (1 - recall) * prevalence. These are the figures that
:func:`privote.metrics.multilabel` would give for a release, without drawing one where possible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...ballots import Ballots
from ...calibrate.agreement import chance_of_one
from ...entropy import Entropy
from ...errors import InputError
from ...mechanisms import Mechanism
from ...mechanisms.cells import CellMechanism
from ...mechanisms.classes import ClassMechanism, ClassTally

Floats = npt.NDArray[np.float64]
Truth = npt.NDArray[np.int8]

#: Means over labels: accuracy, balanced accuracy, AUC, average precision and F1.
FIGURES = ("ACC", "BAC", "AUC", "MAP", "CF1")
_LINEAR = ("ACC", "BAC", "AUC")  # without a gate, linear in the chances: exact


def label_chances(mechanism: Mechanism, votes: Any) -> Floats:
    """Return the exact probability of 0, 1 and ABSTAIN in each cell: (queries, labels, 3)."""
    if isinstance(mechanism, CellMechanism):
        chances = mechanism.outcome_probabilities(votes)
        if chances.shape[-1] == 3:
            return chances
        return np.concatenate([chances, np.zeros_like(chances[..., :1])], axis=-1)
    if not isinstance(mechanism, ClassMechanism):
        raise InputError(f"mechanism must be a privote mechanism, got {mechanism!r}")
    ballots = Ballots.of(votes)
    mechanism.check(ballots)
    tallies = (mechanism.tally(block) for block in ballots.blocks())
    return np.concatenate([_class_chances(mechanism, tally) for tally in tallies])


def _class_chances(mechanism: ClassMechanism, tally: ClassTally) -> Floats:
    """Return each label's share of the classes that may win: (queries, labels, 3)."""
    one = chance_of_one(mechanism, tally)
    abstain, answer = np.zeros((len(one), 1)), np.ones((len(one), 1))
    if mechanism.gate is not None:
        abstain, answer = np.split(np.exp(mechanism.gate.log_probs(tally.profiles[:, 0])), 2, 1)
    zero = np.maximum(0.0, 1 - one)
    parts = zero * answer, one * answer, np.broadcast_to(abstain, one.shape)
    return np.stack(parts, axis=-1)


def majority(votes: npt.NDArray[Any]) -> Truth:
    """Return what most voters say, without noise, a tie being a 0: (queries, labels)."""
    return np.asarray((votes == 1).sum(axis=1) > (votes == 0).sum(axis=1)).astype(np.int8)


def figures_of(answers: npt.NDArray[Any], truth: Truth) -> dict[str, float]:
    """Return the figures of given labels, 1, 0 and -1: (queries, labels)."""
    counts = _confusion((answers == 0).astype(float), (answers == 1).astype(float), truth)
    return {name: float(values[0]) for name, values in _merit(counts).items()}


def expected_figures(
    chances: Floats,
    truth: Truth,
    prefixes: Sequence[int],
    *,
    releases: int = 20,
    seed: int = 0,
) -> list[dict[str, float]]:
    """Return the figures to expect of the first so many queries.

    Parameters
    ----------
    chances
        (queries, labels, 3) of 0, 1 and ABSTAIN, as `label_chances` returns them.
    truth
        (queries, labels) of 1, 0 and -1 (unknown, left out).
    prefixes
        Numbers of queries; nothing is known of 0 queries (NaN).
    releases, seed
        MAP and CF1, and with a gate all figures, are means over so many simulated releases.

    Returns
    -------
    For each prefix `FIGURES`, and ``coverage``: the share of labels that a gate lets through. A
    figure that no label defines is NaN; so are AUC, BAC and MAP of a label with one class.
    """
    zero, one, abstain = np.moveaxis(chances, -1, 0)
    answered = np.concatenate([[0.0], np.cumsum((1 - abstain).mean(axis=1))])
    drawn = _simulated(chances, truth, prefixes, releases, seed)
    if not abstain.any():
        exact = _merit(_confusion(zero, one, truth, prefixes))
        drawn.update({name: exact[name] for name in _LINEAR})
    return [
        {
            **{name: float(drawn[name][i]) for name in FIGURES},
            "coverage": float(answered[n] / n) if n else math.nan,
        }
        for i, n in enumerate(prefixes)
    ]


def _simulated(
    chances: Floats, truth: Truth, prefixes: Sequence[int], releases: int, seed: int
) -> dict[str, Floats]:
    """Return each figure's mean over simulated releases: (prefixes,)."""
    if isinstance(releases, bool) or not isinstance(releases, int) or releases < 1:
        raise InputError(f"releases must be an integer of at least 1, got {releases!r}")
    entropy = Entropy(seed)
    with np.errstate(divide="ignore"):
        answer = np.log(1 - chances[..., 2]), np.log(chances[..., 2])
        vote = np.log(chances[..., 1]), np.log(chances[..., 0])
    gated = bool(chances[..., 2].any())
    if gated:
        # Given that a label is answered; where it never is, the draw does not matter.
        sure = np.isneginf(answer[0])
        vote = (
            np.where(sure, 0.0, vote[0] - np.where(sure, 0.0, answer[0])),
            np.where(sure, -np.inf, vote[1] - np.where(sure, 0.0, answer[0])),
        )
    seen: dict[str, list[Floats]] = {name: [] for name in FIGURES}
    for _ in range(releases):
        one = entropy.bernoulli(*vote)
        let = entropy.bernoulli(*answer) if gated else np.ones_like(one)
        counts = _confusion((~one & let).astype(float), (one & let).astype(float), truth, prefixes)
        for name, values in _merit(counts).items():
            seen[name].append(values)
    return {name: _mean(np.array(values), axis=0) for name, values in seen.items()}


def _confusion(
    zero: Floats, one: Floats, truth: Truth, prefixes: Sequence[int] | None = None
) -> Floats:
    """Return TP, FP, TN, FN of each label: (prefixes, 4, labels)."""
    yes, no = truth == 1, truth == 0
    cells = np.stack([one * yes, one * no, zero * no, zero * yes], axis=1)
    sums = np.concatenate([np.zeros((1, *cells.shape[1:])), np.cumsum(cells, axis=0)])
    return np.asarray(sums[[len(cells)] if prefixes is None else list(prefixes)])


def _merit(counts: Floats) -> dict[str, Floats]:
    """Return each figure, a mean over the labels that define it: (prefixes,)."""
    tp, fp, tn, fn = np.moveaxis(counts, 1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        counted = tp + fp + tn + fn
        both = (tp + fn > 0) & (tn + fp > 0)
        recall, prevalence = tp / (tp + fn), (tp + fn) / counted
        precision = np.where(tp > 0, tp / (tp + fp), 0.0)
        balanced = np.where(both, (recall + tn / (tn + fp)) / 2, np.nan)
        average = np.where(both, recall * precision + (1 - recall) * prevalence, np.nan)
        f1 = np.where(counted > 0, np.where(tp > 0, 2 * tp / (2 * tp + fp + fn), 0.0), np.nan)
        by_label = {
            "ACC": (tp + tn) / counted,
            "BAC": balanced,
            "AUC": balanced,
            "MAP": average,
            "CF1": f1,
        }
    return {name: _mean(values, axis=1) for name, values in by_label.items()}


def _mean(values: Floats, axis: int) -> Floats:
    """Return the mean over what is defined; NaN if nothing is."""
    defined = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(
            np.where(defined, values, 0.0).sum(axis=axis) / defined.sum(axis=axis), np.float64
        )
