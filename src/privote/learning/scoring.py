"""How good a model is on private records that it never saw: for its owner, or released with noise.

Which records are kept out is secret: those whose names have the smallest keyed digests, so many as
public numbers say. A record then stands on one side only, and replacing it moves nobody else there.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from ..accounting.allowance import line, mu_of_budget
from ..accounting.renyi import DEFAULT_ORDERS
from ..datasets import MultiLabelData
from ..errors import InputError, plural, positive
from ..guarantees import GAUSSIAN, PERSON, RECORD, Guarantee, worded
from ..ledger import Account, Budget, Outcome, Request, Run, digest_of
from .noise import Noise
from .private import PrivateClassifier
from .rows import (
    BLOCK,
    Floats,
    Labels,
    check_groups,
    fraction,
    label_probabilities,
    padded_blocks,
    same_anywhere,
)
from .teachers import partition_key
from .workers import one_thread

SCORE = "score"
_CELLS = ("hits", "false alarms", "misses", "rightly no")
_SURE = 3.0  # times the noise that a sum of counts must have before it is divided by
_NOTE = (
    "The counts are of records that the model did not learn from. What the model cost is stated "
    "apart; both together cost at most the sum"
)


@dataclass(frozen=True, kw_only=True)
class Holdout:
    """Which private records a model does not see, and what is told of them.

    Attributes
    ----------
    share
        How many, of all.
    epsilon
        What releasing noisy counts of hits and misses may cost; None: only the owner learns them.
    """

    share: float
    epsilon: float | None = None

    def __post_init__(self) -> None:
        fraction("holdout", self.share, "()")
        if self.epsilon is not None:
            positive("score", self.epsilon)

    def rows(
        self, data: MultiLabelData, account: Account, seed: int | None
    ) -> npt.NDArray[np.bool_]:
        """Return which records are kept out: (records,); all of a person's, or none."""
        names, unit = people(data)
        count = round(self.share * len(names))
        if not 0 < count < len(names):
            rule = f"must leave some of {len(names):,} on either side"
            raise InputError("holdout", rule, self.share)
        key = partition_key(account.ledger, account.dataset, seed)
        digests = [hmac.digest(key, f"holdout {name}".encode(), "sha256") for name in names]
        out = np.zeros(len(names), np.bool_)
        out[sorted(range(len(names)), key=digests.__getitem__)[:count]] = True
        return out[unit]


@dataclass(frozen=True, kw_only=True)
class Score:
    """Noisy counts, which may be published, and what follows from them.

    Attributes
    ----------
    guarantee
        What their release alone promises.
    label_names, counts
        Names of the labels; (labels, 4) hits, false alarms, misses and rightly no, with noise.
    deviation
        The standard deviation of the noise on each.
    """

    guarantee: Guarantee
    label_names: tuple[str, ...]
    counts: Floats
    deviation: float

    def rows(self) -> list[dict[str, Any]]:
        """Return each label's counts, accuracy and recall; None where noise is too large."""
        hits, false_alarms, misses, _ = self.counts.T
        right, every = hits + self.counts[:, 3], self.counts.sum(axis=1)
        ratios = zip(
            self.label_names,
            self.counts.tolist(),
            self._shares(right, every, 4),
            self._shares(hits, hits + misses, 2),
            self._shares(hits, hits + false_alarms, 2),
            strict=True,
        )
        return [
            {
                "label": name,
                **dict(zip(_CELLS, map(round, cells), strict=True)),
                "accuracy": accuracy,
                "recall": recall,
                "precision": precision,
            }
            for name, cells, accuracy, recall, precision in ratios
        ]

    def _shares(self, part: Floats, whole: Floats, cells: int) -> list[float | None]:
        """Return part / whole, where the noise on ``whole`` (so many cells) leaves it a meaning."""
        least = _SURE * self.deviation * math.sqrt(cells)
        pairs = zip(part.tolist(), whole.tolist(), strict=True)
        return [min(max(a / b, 0.0), 1.0) if b > least else None for a, b in pairs]

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values, for JSON."""
        facts = {"guarantee": self.guarantee.facts(), "noise": self.deviation}
        return {**facts, "labels": self.rows()}


def people(data: MultiLabelData) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the names of those who are protected, and each record's by place."""
    whose = data.ids if data.groups is None else data.groups
    names, unit = check_groups(whose, len(data), "ids" if data.groups is None else "groups")
    assert names is not None
    assert unit is not None
    return names, unit


def answers(model: PrivateClassifier, X: Any) -> Labels:
    """Return what a model says of private rows (rows, labels), of each by itself.

    Products round by the size of a block and by places in it. A threshold is often a public row's
    own probability, so one more row of a person could turn the answers of all rows like that one.
    Blocks have one size, therefore, or rows are asked about one by one.
    """
    rows = model.encoded(X)

    def chance(block: Any) -> Floats:
        return label_probabilities(model.student_, block, len(model.label_names_))

    with one_thread():
        size = BLOCK if len(rows.shape) == 2 and _alike(chance, rows) else 1
        parts = [chance(block)[: at.stop - at.start] for block, at in padded_blocks(rows, size)]
    return np.asarray(np.concatenate(parts) >= model.thresholds_).astype(np.int8)


def _alike(chance: Callable[[Any], Floats], rows: Any) -> bool:
    """Return whether a block of such rows is answered the same wherever they stand in it."""
    shape = BLOCK, rows.shape[1]
    if not sparse.issparse(rows):
        return same_anywhere(chance, shape, rows.dtype)
    return same_anywhere(lambda block: chance(sparse.csr_matrix(block)), shape)


def cells_of(Y: Labels, predicted: Labels, unit: npt.NDArray[np.int64]) -> Floats:
    """Return how many records stand in each cell, (labels, 4): a person counts as one.

    A person's records share its count among them. Unknown labels stand in no cell.
    """
    truth = np.stack(
        [(Y == said) & (predicted == seen) for said, seen in ((1, 1), (0, 1), (1, 0), (0, 0))],
        axis=2,
    )
    weights = 1 / np.bincount(unit)[unit]
    return np.asarray(np.einsum("r,rlc->lc", weights, truth.astype(np.float64)))


def request_of(
    account: Account, cost: Budget, *, labels: int, records: int, persons: bool, **about: Any
) -> Request:
    """Return what a score asks of a ledger: all of it is public."""

    def price(epsilon: float) -> Floats:
        return line(0.0, mu_of_budget(epsilon, cost.delta, 0.0)) * DEFAULT_ORDERS

    return Request(
        dataset=account.dataset,
        budget=account.budget,
        cost=cost,
        guarantee=SCORE,
        protects=PERSON if persons else RECORD,
        terms={"labels": labels, "records": records, "model": about["model"]},
        price=cache(price),
        layout={"counts": (np.float64, (labels, 4))},
        simulated=about["seed"] is not None,
        output=about["output"],
    )


def drawn(
    run: Run, request: Request, counts: Floats, noise: Noise, names: tuple[str, ...]
) -> Score:
    """Return the score that a run committed; draw and commit it where nobody did.

    A record stands in one of four cells of each label, and a replacement moves two: the counts
    move by at most the root of twice the labels.
    """
    cost = request.cost
    deviation = math.sqrt(2 * len(names)) / mu_of_budget(cost.epsilon, cost.delta, 0.0)
    if run.outcome is None:
        noisy = noise.add(counts, deviation)
        guarantee = worded(
            Guarantee(
                kind=SCORE,
                epsilon=cost.epsilon,
                delta=cost.delta,
                mechanism={"mechanism": "noisy counts", "deviation": deviation},
                voters=request.terms["records"],
                released=f"counts of hits and misses of {plural(len(names), 'label')}",
                protects=request.protects,
                simulated=request.simulated,
                standing=run.standing,
                accountant=GAUSSIAN,
                notes=(_NOTE,),
                drawn=digest_of(noisy),
            )
        )
        run.commit(
            Outcome(
                arrays={"counts": noisy}, facts=guarantee.facts(), statement=guarantee.text or ""
            )
        )
    outcome = run.outcome
    assert outcome is not None
    return Score(
        guarantee=Guarantee.of_facts(outcome.facts),
        label_names=names,
        counts=np.asarray(outcome.arrays["counts"], np.float64),
        deviation=deviation,
    )
