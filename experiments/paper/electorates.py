"""Voters to measure on: real votes, and electorates made after the paper's published statistics.

Where the paper's data is not at hand, an electorate stands in. It is made in two steps.

*Truth.* The rows have the greatest entropy among all distributions with the published rates: how
often each label is there, how often each pair of labels is, and how many labels a row has. A
positive dependency matrix P(column | row) gives the ratio of any two labels' frequencies; one more
published number sets the scale (VOC: 1.52 labels a row; CheXpert: both Pneumonia and Pneumothorax
in 0.06% of rows). The weights are learnt by moment matching with Gibbs sampling.

*Votes.* A voter says yes if signal + shared + own noise passes a bar. The shared noise is what all
voters get wrong together, the own noise is where they differ. Four numbers (signal, bar, own noise,
spread of voters' bars) are set so that the ensemble's accuracy and balanced accuracy, one voter's,
and the mean Powerset gap come out near the published ones. `match` says how near.
"""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from privote.datasets import load_teacher_votes

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.int8]

PUBLISHED = Path(__file__).parent / "published"
VOTERS = 50
# Rows by their number of labels, 1 to 6: the paper's table on Pascal VOC.
VOC_SIZES = (3539, 1677, 484, 105, 17, 1)


@dataclass(frozen=True, kw_only=True)
class Electorate:
    """Votes (queries, voters, labels) with their truth (queries, labels; -1: not known)."""

    name: str
    votes: Bools
    truth: Labels
    made: bool

    def first(self, labels: int) -> Electorate:
        """Return the same voters on the first labels only."""
        return Electorate(
            name=self.name,
            votes=np.ascontiguousarray(self.votes[:, :, :labels]),
            truth=self.truth[:, :labels],
            made=self.made,
        )

    def head(self, queries: int) -> Electorate:
        """Return the first queries."""
        return Electorate(
            name=self.name, votes=self.votes[:queries], truth=self.truth[:queries], made=self.made
        )

    @property
    def digest(self) -> str:
        """A fingerprint of votes and truth."""
        state = hashlib.sha256(np.packbits(self.votes).tobytes())
        state.update(self.truth.tobytes())
        return state.hexdigest()[:16]


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


def rates(name: str) -> Floats:
    """Return how often each label is there: VOC or CheXpert, on the published scale."""
    names, matrix = published(name)
    relative = relative_rates(matrix)
    if name == "voc":
        mean = np.dot(VOC_SIZES, range(1, 7)) / sum(VOC_SIZES)
        return relative * (mean / relative.sum())
    pneumonia, collapse = names.index("Pneumonia"), names.index("Pneumothorax")
    return relative * (0.0006 / matrix[pneumonia, collapse] / relative[pneumonia])


class _Rows:
    """Rows of labels with given rates, pairs and sizes: fitted once, then sampled."""

    def __init__(self, single: Floats, pair: Floats, sizes: Floats | None) -> None:
        self.k = len(single)
        self.field = np.log(single / (1 - single))
        independent = np.outer(single, single)
        self.coupling = np.log(np.maximum(pair, 1e-4) / independent)
        np.fill_diagonal(self.coupling, 0.0)
        self.count = np.zeros(self.k + 1)
        self.empty = sizes is None  # whether a row may have no label
        self._fit(single, pair, sizes)

    def _sweep(self, rows: Floats, rng: np.random.Generator) -> None:
        """Draw every label of every row anew, given the others."""
        for i in rng.permutation(self.k):
            rest = (rows.sum(axis=1) - rows[:, i]).astype(np.int64)
            drive = self.field[i] + rows @ self.coupling[i]
            drive += self.count[np.minimum(rest + 1, self.k)] - self.count[rest]
            chance = 1 / (1 + np.exp(-np.clip(drive, -30, 30)))
            if not self.empty:
                chance[rest == 0] = 1.0
            rows[:, i] = rng.random(len(rows)) < chance

    def _fit(self, single: Floats, pair: Floats, sizes: Floats | None) -> None:
        rng = np.random.default_rng(7)
        rows = (rng.random((4000, self.k)) < single).astype(float)
        if not self.empty:
            rows[rows.sum(axis=1) == 0, int(single.argmax())] = 1
        off = ~np.eye(self.k, dtype=bool)
        for step in range(260):
            self._sweep(rows, rng)
            rate = 1.0 if step < 120 else 0.3
            seen = np.clip(rows.mean(axis=0), 1e-4, 1)
            joint = rows.T @ rows / len(rows)
            self.field += rate * 0.3 * np.log(single / seen)
            change = np.log(np.maximum(pair, 3e-4) / np.maximum(joint, 3e-4))
            self.coupling[off] += rate * 0.1 * np.clip(change[off], -2, 2)
            if sizes is not None:
                have = np.bincount(rows.sum(axis=1).astype(int), minlength=self.k + 1) / len(rows)
                told = np.maximum(sizes, 1e-4) / np.maximum(have[: len(sizes)], 1e-4)
                self.count[: len(sizes)] += rate * 0.2 * np.log(told)
                self.count[len(sizes) :] = -12.0

    def sample(self, number: int, rng: np.random.Generator) -> Labels:
        """Draw independent rows: each from its own chain."""
        rows = np.zeros((number, self.k))
        rows[np.arange(number), rng.integers(self.k, size=number)] = 1
        for _ in range(25):
            self._sweep(rows, rng)
        return rows.astype(np.int8)


@lru_cache(maxsize=4)
def _rows(name: str) -> _Rows:
    single = rates(name)
    _, matrix = published(name)
    forward = matrix * single[:, None]
    pair = (forward + forward.T) / 2
    sizes = None
    if name == "voc":
        sizes = np.array([0.0, *VOC_SIZES]) / sum(VOC_SIZES)
    return _Rows(single, pair, sizes)


@dataclass(frozen=True, kw_only=True)
class Voters:
    """How votes follow from the truth; in units of the shared noise."""

    signal: float
    bar: float
    own: float
    spread: float
    known: float = 1.0  # the share of absent labels whose truth is known


VOC = Voters(signal=2.05, bar=2.5, own=0.62, spread=0.2)
CHEXPERT = Voters(signal=1.0, bar=0.7, own=0.24, spread=0.1, known=0.22)


def cast(truth: Labels, how: Voters, rng: np.random.Generator) -> Bools:
    """Return the votes (queries, voters, labels) of an electorate on these rows."""
    queries, labels = truth.shape
    shared = rng.normal(size=(queries, 1, labels))
    bars = how.bar + how.spread * rng.normal(size=(1, VOTERS, labels))
    own = how.own * rng.standard_normal((queries, VOTERS, labels), dtype=np.float32)
    return np.asarray(how.signal * truth[:, None, :] + shared + own > bars)


@lru_cache(maxsize=8)
def electorate(name: str, seed: int = 0) -> Electorate:
    """Return "voc" (20 labels), "chexpert" (11), or the real votes "tmc2007" (22).

    A seed makes another electorate of the same kind; of the real votes, another order of queries.
    """
    rng = np.random.default_rng([seed, 2023])
    if name == "tmc2007":
        real = load_teacher_votes()
        order = rng.permutation(len(real.votes)) if seed else np.arange(len(real.votes))
        votes, truth = real.votes[order], real.truth[order].astype(np.int8)
        return Electorate(name=name, votes=votes, truth=truth, made=False)
    how, queries = (VOC, 5464) if name == "voc" else (CHEXPERT, 1000)
    truth = _rows(name).sample(queries, rng)
    votes = cast(truth, how, rng)
    unknown = (truth == 0) & (rng.random(truth.shape) >= how.known)
    return Electorate(name=name, votes=votes, truth=np.where(unknown, -1, truth), made=True)


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


#: Published: ensemble's ACC and BAC, one voter's, mean Powerset gap, share of Binary gaps above 40.
AIMS = {"voc": (0.95, 0.65, 0.93, 0.59, 18.0), "chexpert": (0.71, 0.68, 0.77, 0.66, 13.0)}


def match(name: str, seed: int = 0) -> dict[str, tuple[float, float]]:
    """Return how well an electorate matches: (published, made) for each statistic."""
    made = electorate(name, seed)
    some = made.head(1000)
    single = [accuracy(some.votes[:, v], some.truth) for v in range(0, VOTERS, 5)]
    ours = (
        *accuracy(some.votes.mean(axis=1) > 0.5, some.truth),
        *np.mean(single, axis=0),
        float(powerset_gaps(some.votes).mean()),
    )
    names = ("ensemble ACC", "ensemble BAC", "voter ACC", "voter BAC", "mean Powerset gap")
    found = dict(zip(names, zip(AIMS[name], ours, strict=True), strict=True))
    _, matrix = published(name)
    truth = (made.truth == 1).astype(float)
    with np.errstate(invalid="ignore"):
        apart = np.abs((truth.T @ truth) / truth.sum(axis=0)[:, None] - matrix)
    found["dependency matrix, largest difference"] = (0.0, float(apart.max()))
    found["dependency matrix, mean difference"] = (0.0, float(apart.mean()))
    if name == "voc":
        mean = np.dot(VOC_SIZES, range(1, 7)) / sum(VOC_SIZES)
        found["labels a row"] = (float(mean), float(truth.sum(axis=1).mean()))
    found["share of Binary gaps above 40"] = (0.5, float((binary_gaps(some.votes) > 40).mean()))
    return found
