"""Voters to measure on, all real.

Fifty logistic regressions on disjoint parts of Pascal VOC's train pictures, as the paper cuts it,
voting at one half, as the paper's do, on its 5,823 val pictures; fifty teachers of tmc2007. These
come with privote. Eight radiologists on eleven findings of CheXpert's test set, where the data
folder has them, alone or with ten models on five findings. A seed is another order of the queries.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from privote.datasets import load_teacher_votes

from .sources import RADIOLOGISTS, find, voc_labels

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.int8]

PUBLISHED = Path(__file__).parent / "published"
VOTERS = 50
#: The paper's eleven findings of CheXpert, in its order; the ten models have the first five.
FINDINGS = (
    "Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion",
    "Enlarged Cardiomediastinum", "Fracture", "Lung Lesion", "Lung Opacity", "Pneumonia",
    "Pneumothorax",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Electorate:
    """Votes (queries, voters, labels) with their truth (queries, labels; -1: not known)."""

    votes: Bools
    truth: Labels

    @property
    def voters(self) -> int:
        """How many vote."""
        return int(self.votes.shape[1])

    def first(self, labels: int) -> Electorate:
        """Return the same voters on the first labels only."""
        votes = np.ascontiguousarray(self.votes[:, :, :labels])
        return replace(self, votes=votes, truth=self.truth[:, :labels])

    def head(self, queries: int) -> Electorate:
        """Return the first queries."""
        return replace(self, votes=self.votes[:queries], truth=self.truth[:queries])


@lru_cache(maxsize=12)
def electorate(name: str, seed: int = 0, data: Path | None = None) -> Electorate:
    """Return the votes "voc" (20 labels), "tmc2007" (22), "radiologists" (11) or "readers" (5)."""
    if name in ("radiologists", "readers"):
        some = _readers(data, with_models=name == "readers")
    else:
        real = load_teacher_votes("voc2012" if name == "voc" else name)
        labels = voc_labels(data, "val") if name == "voc" else None
        truth = real.truth.astype(np.int8) if labels is None else labels
        some = Electorate(votes=real.votes, truth=truth)
    rng = np.random.default_rng([seed, 2023])
    order = rng.permutation(len(some.truth)) if seed else np.arange(len(some.truth))
    return Electorate(votes=some.votes[order], truth=some.truth[order])


def _readers(data: Path | None, *, with_models: bool) -> Electorate:
    """Return radiologists' votes; models say yes as often as a label is there."""
    place = find(data, RADIOLOGISTS)
    assert place is not None
    with np.load(place.path) as file:
        names = [str(name) for name in file["label_names"]]
        columns = [names.index(one) for one in (FINDINGS[:5] if with_models else FINDINGS)]
        votes = file["radiologists"][:, :, columns] == 1
        truth = file["truth"][:, columns].astype(np.int8)
        if with_models:
            order = [[str(n) for n in file["model_label_names"]].index(one) for one in FINDINGS[:5]]
            scores = file["models"][:, :, order]
            bars = [np.quantile(scores[:, :, k], 1 - rate, axis=0) for k, rate in
                    enumerate(truth.mean(axis=0))]  # fmt: skip
            votes = np.concatenate([votes, scores > np.stack(bars, axis=-1)], axis=1)
    return Electorate(votes=votes, truth=truth)


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
    first, second = np.nonzero(np.triu(np.minimum(matrix, matrix.T) > 0, 1))
    there, back = matrix[first, second], matrix[second, first]
    lines = np.zeros((len(first), len(matrix)))
    lines[np.arange(len(first)), second] = 1
    lines[np.arange(len(first)), first] = -1
    weights = np.minimum(there, back)
    target = np.log(there / back) * weights
    return np.asarray(np.exp(np.linalg.lstsq(lines * weights[:, None], target, rcond=None)[0]))


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
