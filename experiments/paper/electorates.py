"""Voters to measure on: real votes, and electorates made for the chest X-rays.

*Real votes* come with privote: fifty logistic regressions on disjoint parts of Pascal VOC's train
pictures, as the paper cuts them, voting at one half, as the paper's do, on its 5,823 val pictures;
and fifty teachers of tmc2007. A seed is another order of the queries.

*Made votes* stand in for the chest X-rays, whose pictures may not be passed on. The truth is drawn
from the owner's own label file, if the data folder has it. Else, and always for MIMIC-CXR, rows
have the greatest entropy among all distributions with the published rates: a positive dependency
matrix P(column | row) gives the ratio of any two labels' frequencies, one more published number
sets the scale, and the weights are learnt by moment matching with Gibbs sampling. A voter says yes
if signal + shared + own noise passes a bar. The shared noise is what all voters get wrong together,
the own noise is where they differ, more on some queries than on others. Five numbers are set so
that accuracies, the Powerset gap and the queries answered come out near the published ones; `fit`
says how near.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from privote.datasets import load_teacher_votes

from .sources import CHEXPERT, PADCHEST, chest_labels, voc_labels

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.int8]

PUBLISHED = Path(__file__).parent / "published"
VOTERS = 50
QUERIES = 1000  # of a made electorate


@dataclass(frozen=True, kw_only=True)
class Electorate:
    """Votes (queries, voters, labels) with their truth (queries, labels; -1: not known)."""

    votes: Bools
    truth: Labels

    def first(self, labels: int) -> Electorate:
        """Return the same voters on the first labels only."""
        votes = np.ascontiguousarray(self.votes[:, :, :labels])
        return replace(self, votes=votes, truth=self.truth[:, :labels])

    def head(self, queries: int) -> Electorate:
        """Return the first queries."""
        return replace(self, votes=self.votes[:queries], truth=self.truth[:queries])


def published(name: str) -> tuple[list[str], Floats]:
    """Return a published matrix: names of labels, and P(column | row)."""
    with (PUBLISHED / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    return head[1:], np.array([row[1:] for row in rows], float)


def relative_rates(matrix: Floats) -> Floats:
    """Return the frequencies of labels that a dependency matrix implies, up to their scale.

    P(j | i) / P(i | j) is the ratio of j's frequency to i's. Least squares over all pairs, in
    logarithms; a pair counts by its smaller entry, which has the fewest digits.
    """
    size = len(matrix)
    lines, values, weights = [], [], []
    for i in range(size):
        for j in range(i + 1, size):
            low = min(matrix[i, j], matrix[j, i])
            if low > 0:
                line = np.zeros(size)
                line[j], line[i] = 1, -1
                lines.append(line)
                values.append(np.log(matrix[i, j] / matrix[j, i]))
                weights.append(low)
    weight = np.array(weights)[:, None]
    found = np.linalg.lstsq(np.array(lines) * weight, np.array(values) * weight[:, 0], rcond=None)
    return np.exp(found[0])


class _Rows:
    """Rows of labels with given rates and pairs: fitted once, then sampled."""

    def __init__(self, single: Floats, pair: Floats) -> None:
        self.k = len(single)
        self.field = np.log(single / (1 - single))
        self.coupling = np.log(np.maximum(pair, 1e-4) / np.outer(single, single))
        np.fill_diagonal(self.coupling, 0.0)
        rng = np.random.default_rng(7)
        rows = (rng.random((4000, self.k)) < single).astype(float)
        off = ~np.eye(self.k, dtype=bool)
        for step in range(260):
            self._sweep(rows, rng)
            rate = 1.0 if step < 120 else 0.3
            seen = np.clip(rows.mean(axis=0), 1e-4, 1)
            joint = rows.T @ rows / len(rows)
            self.field += rate * 0.3 * np.log(single / seen)
            change = np.log(np.maximum(pair, 3e-4) / np.maximum(joint, 3e-4))
            self.coupling[off] += rate * 0.1 * np.clip(change[off], -2, 2)

    def _sweep(self, rows: Floats, rng: np.random.Generator) -> None:
        """Draw every label of every row anew, given the others."""
        for i in rng.permutation(self.k):
            drive = self.field[i] + rows @ self.coupling[i]
            chance = 1 / (1 + np.exp(-np.clip(drive, -30, 30)))
            rows[:, i] = rng.random(len(rows)) < chance

    def sample(self, number: int, rng: np.random.Generator) -> Labels:
        """Draw independent rows: each from its own chain."""
        rows = np.zeros((number, self.k))
        for _ in range(25):
            self._sweep(rows, rng)
        return rows.astype(np.int8)


@dataclass(frozen=True, kw_only=True)
class Voters:
    """How votes follow from the truth; in units of the shared noise.

    Attributes
    ----------
    uneven
        Spread, over queries, of the logarithm of the own noise: on some, voters hardly agree.
    known
        The share of absent labels whose truth is known, where rows are made.
    file
        The label file that truth is drawn from.
    rate
        A label and how often it is there, to set the scale of rows that are made: CheXpert's and
        PadChest's from their files, MIMIC's from the paper that presents it (Johnson et al. 2019).
    """

    signal: float
    bar: float
    own: float
    spread: float
    uneven: float
    rate: tuple[str, float]
    voters: int = VOTERS
    known: float = 1.0
    file: str | None = None


MADE = {
    "chexpert": Voters(
        signal=1.02, bar=0.79, own=0.27, spread=0.08, uneven=2.2,
        rate=("Pneumonia", 0.024), known=0.22, file=CHEXPERT,
    ),
    "mimic": Voters(
        signal=1.84, bar=2.11, own=0.59, spread=1.56, uneven=0.23,
        rate=("Pleural Effusion", 0.238), known=0.3,
    ),
    "padchest": Voters(
        signal=1.95, bar=1.66, own=1.41, spread=0.07, uneven=0.44,
        rate=("Cardiomegaly", 0.091), voters=10, file=PADCHEST,
    ),
}  # fmt: skip


@lru_cache(maxsize=4)
def _rows(name: str) -> _Rows:
    names, matrix = published(name)
    relative = relative_rates(matrix)
    label, rate = MADE[name].rate
    single = relative * (rate / relative[names.index(label)])
    forward = matrix * single[:, None]
    return _Rows(single, (forward + forward.T) / 2)


def _truth(name: str, data: Path | None, rng: np.random.Generator) -> Labels:
    """Return rows of labels: from the owner's file, or made. The first k labels are the paper's."""
    how = MADE[name]
    found = None if how.file is None else chest_labels(data, how.file)
    if found is not None:
        return found[0][rng.choice(len(found[0]), QUERIES, replace=False)]
    truth = _rows(name).sample(QUERIES, rng)
    if name == "chexpert":  # Effusion is the last of the matrix and the fifth of the labels
        truth = truth[:, [0, 1, 2, 3, 10, 4, 5, 6, 7, 8, 9]]
    return np.where((truth == 0) & (rng.random(truth.shape) >= how.known), -1, truth)


def cast(truth: Labels, how: Voters, rng: np.random.Generator) -> Bools:
    """Return the votes (queries, voters, labels) of an electorate on these rows."""
    queries, labels = truth.shape
    shared = rng.normal(size=(queries, 1, labels))
    bars = how.bar + how.spread * rng.normal(size=(1, how.voters, labels))
    own = how.own * rng.standard_normal((queries, how.voters, labels), dtype=np.float32)
    own *= np.exp(how.uneven * rng.normal(size=(queries, 1, 1)))
    return np.asarray(how.signal * (truth == 1)[:, None, :] + shared + own > bars)


@lru_cache(maxsize=12)
def electorate(name: str, seed: int = 0, data: Path | None = None) -> Electorate:
    """Return the real votes "voc" (20 labels) or "tmc2007" (22), or the made ones.

    Made are "chexpert" (11 labels), "mimic" (13) and "padchest" (15, ten voters). A seed makes
    another electorate of the same kind; of the real votes, another order of queries.
    """
    rng = np.random.default_rng([seed, 2023])
    if name in MADE:
        truth = _truth(name, data, rng)
        return Electorate(votes=cast(truth, MADE[name], rng), truth=truth)
    real = load_teacher_votes("voc2012" if name == "voc" else name)
    labels = voc_labels(data, "val") if name == "voc" else None
    truth = real.truth.astype(np.int8) if labels is None else labels
    order = rng.permutation(len(truth)) if seed else np.arange(len(truth))
    return Electorate(votes=real.votes[order], truth=truth[order])


def powerset_gaps(votes: Bools) -> npt.NDArray[np.int64]:
    """Return, for each query, the votes of the leading set less those of the next: (queries,)."""
    gaps = np.empty(len(votes), np.int64)
    for row, ballots in enumerate(np.packbits(votes, axis=2)):
        counts = np.sort(np.unique(ballots, axis=0, return_counts=True)[1])[::-1]
        gaps[row] = counts[0] - (counts[1] if len(counts) > 1 else 0)
    return gaps


def binary_gaps(votes: Bools) -> npt.NDArray[np.int64]:
    """Return the difference of yes and no in every cell: (queries, labels)."""
    return np.abs(2 * votes.sum(axis=1, dtype=np.int64) - votes.shape[1])


def accuracy(answers: Bools, truth: Labels) -> tuple[float, float]:
    """Return ACC and BAC, means over labels, of what is known."""
    known = truth >= 0
    right = (answers == (truth == 1)) & known
    acc = right.sum(axis=0) / known.sum(axis=0)
    yes = (truth == 1).sum(axis=0)
    no = (truth == 0).sum(axis=0)
    sure = (yes > 0) & (no > 0)
    hits = (right & (truth == 1)).sum(axis=0)[sure] / yes[sure]
    rejects = (right & (truth == 0)).sum(axis=0)[sure] / no[sure]
    return float(acc.mean()), float((hits + rejects).mean() / 2)
