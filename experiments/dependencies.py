"""Label dependence: the paper's matrices, and its three ways to ask, on real votes.

**Ways to ask** (tmc2007: fifty real teachers, five labels). An indicator and the four labels that
most imply it are chosen on the first half of the queries, whose truth counts as public here;
everything is measured on the other half, which each seed takes in an order of its own.

- every label: all five are asked.
- more noise: the same, with so much noise that as many queries fit as the gated way answers.
- indicator only: the four others are set to 0 without being asked.
- gated: the four others are asked where the indicator is *released* as 1, and are 0 elsewhere
  (``pv.dependencies.gated``).

*Worst case*: unconditional (epsilon, 1e-5)-differential privacy; queries answered within the
budget, and all ways on the same queries, with the budget that each then needs. *As the paper
counts*: exact data-dependent costs, answered until the budget is used; that is no promise, and
shown to compare with the paper's 35 and 127. *Allowance*: all queries are answered; how many until
the first voter has nothing left, which only the owner may know.

**Matrices** (with ``--chest FOLDER``, where the label files of CheXpert and PadChest are, e.g.
those in the wheel of torchxrayvision): the positive dependency matrices, PA views, next to the
published ones; the paper's negative one next to what several readings of the label file give.

Run: python experiments/dependencies.py [--seeds 5] [--chest FOLDER]; with --seeds 0 matrices only.
"""

from __future__ import annotations

import argparse
import csv
import sys
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import privote as pv
from privote.accounting.renyi import rounded_up
from privote.datasets import chexpert, load_teacher_votes, padchest

PUBLISHED = Path(__file__).parent / "paper" / "published"
DELTA, EPSILON, LABELS = 1e-5, 8.0, 5
FIGURES = ("ACC", "BAC", "AUC", "MAP")
Array = npt.NDArray[Any]


# -- ways to ask -----------------------------------------------------------------------------------


def family(truth: Array) -> list[int]:
    """Return an indicator and the labels that most imply it, from labels that are public."""
    rate, given = truth.mean(axis=0), pv.dependencies.positive(truth)
    np.fill_diagonal(given, 0)
    common = (rate > 0.03) & (rate < 0.5)
    score = np.where(common[:, None] & common[None], given, 0)
    best = np.sort(score, axis=0)[-(LABELS - 1) :].sum(axis=0)
    indicator = int(best.argmax())
    return [indicator, *np.argsort(-score[:, indicator])[: LABELS - 1].tolist()]


def questions(mechanism: pv.Mechanism, voters: int, epsilon: float) -> int:
    """Return how many labels can be asked within a budget in the worst case."""
    each = mechanism.worst_case_rdp(voters, 1)
    low, high = 0, 1_000_000
    while high - low > 1:
        middle = (low + high) // 2
        fits = pv.epsilon(middle * each, pv.DEFAULT_ORDERS, DELTA) <= epsilon
        low, high = (middle, high) if fits else (low, middle)
    return low


def price(mechanism: pv.Mechanism, voters: int, labels: int) -> float:
    """Return the epsilon of so many labels in the worst case."""
    curve = labels * mechanism.worst_case_rdp(voters, 1)
    return float(pv.epsilon(curve, pv.DEFAULT_ORDERS, DELTA))


def noise_for(queries: int, voters: int) -> float:
    """Return the smallest sigma, to a hundredth of itself, at which so many queries fit."""
    low, high = 1.0, 1e4
    while high > 1.01 * low:
        middle = sqrt(low * high)
        fits = price(pv.BinaryVoting(sigma=middle), voters, LABELS * queries) <= EPSILON
        low, high = (low, middle) if fits else (middle, high)
    return high


def quality(truth: Array, labels: Array) -> list[float]:
    """Return the paper's four figures of released labels."""
    found = pv.metrics.multilabel(truth[: len(labels)], labels.astype(float), labels)
    return [found[name] for name in FIGURES]


def alone(labels: Array) -> Array:
    """Return labels of which only the first was asked."""
    kept = np.zeros_like(labels)
    kept[:, 0] = labels[:, 0]
    return kept


def in_worst_case(votes: Array, truth: Array, sigma: float, seed: int) -> dict[str, list[float]]:
    """Return queries answered, sigma, the budget needed for all of them, and the figures."""
    mechanism, voters = pv.BinaryVoting(sigma=sigma), votes.shape[1]
    guardian = pv.Guardian(
        mechanism,
        pv.Budget(epsilon=EPSILON, delta=DELTA),
        pv.Ledger.in_memory(),
        guarantee="worst-case",
        seed=seed,
    )
    asked = pv.dependencies.gated(guardian.release, votes, 0, batch=1).labels
    same = len(asked)
    fit = questions(mechanism, voters, EPSILON)
    every = mechanism.release(votes[:same], seed=seed)
    noisy = pv.BinaryVoting(sigma=noise_for(same, voters))
    few = every[: fit // LABELS]
    table = {
        "every label": (few, sigma, EPSILON),
        "every label, same queries": (every, sigma, price(mechanism, voters, LABELS * same)),
        "more noise": (noisy.release(votes[:same], seed=seed), noisy.sigma or 0.0, EPSILON),
        "indicator only, same queries": (alone(every), sigma, price(mechanism, voters, same)),
        "gated": (asked, sigma, EPSILON),
    }
    return {
        name: [len(labels), noise, budget, *quality(truth, labels)]
        for name, (labels, noise, budget) in table.items()
    }


def as_the_paper_counts(votes: Array, sigma: float, seed: int) -> tuple[int, int]:
    """Return how many queries a data-dependent budget lasts: every label asked, and gated."""
    mechanism = pv.BinaryVoting(sigma=sigma)
    costs = np.stack([mechanism.rdp(votes[:, :, [at]]) for at in range(LABELS)])
    first = mechanism.release(votes[:, :, [0]], seed=seed)[:, 0] == 1
    gated = costs[0] + first[:, None] * costs[1:].sum(axis=0)
    lasts = []
    for each in (costs.sum(axis=0), gated):
        spent = pv.epsilon(np.cumsum(each, axis=0), pv.DEFAULT_ORDERS, DELTA)
        lasts.append(int((np.asarray(spent) <= EPSILON).sum()))
    return lasts[0], lasts[1]


def until_one_runs_out(votes: Array, sigma: float, seed: int) -> tuple[int, int]:
    """Return how many queries until a voter has nothing left: every label asked, and gated."""
    mechanism = pv.BinaryVoting(sigma=sigma)
    electorate = pv.Electorate(
        mechanism=mechanism, voters=votes.shape[1], labels=1, epsilon=EPSILON, delta=DELTA
    )
    first = mechanism.release(votes[:, :, [0]], seed=seed)[:, 0] == 1
    asked = votes & (first[:, None, None] | (np.arange(LABELS) == 0))
    lasts = [
        int((np.cumsum(cast.sum(axis=2), axis=0) <= electorate.allowance).all(axis=1).sum())
        for cast in (votes, asked)
    ]
    return lasts[0], lasts[1]


def compare(sigmas: list[float], seeds: int) -> None:
    """Print the ways to ask, next to each other."""
    data = load_teacher_votes()
    half = len(data.truth) // 2
    chosen = family(data.truth[:half])
    votes, truth = data.votes[half:][:, :, chosen], data.truth[half:][:, chosen]
    given = pv.dependencies.negative(truth)[0, 1:]
    print(
        f"tmc2007: labels {chosen}; the first is the indicator, and there in "
        f"{truth[:, 0].mean():.1%} of queries;\nwhere it is absent, so are the others in "
        f"{_row(given)} of queries;\n"
        f"{votes.shape[1]} voters, epsilon {EPSILON:g}, delta {DELTA:g}, {seeds} seeds"
    )
    for sigma in sigmas:
        parts = [np.random.default_rng(s).permutation(len(votes)) for s in range(seeds)]
        found = [in_worst_case(votes[p], truth[p], sigma, s) for s, p in enumerate(parts)]
        print(f"\nsigma {sigma:g}, worst case")
        print(f"{'':30s}{'queries':>9s}{'sigma':>8s}{'epsilon':>9s}" + _head(FIGURES))
        for name in found[0]:
            table = np.array([run[name] for run in found])
            queries, noise, budget = table[:, :3].mean(axis=0)
            shown = "".join(
                f"{m:8.3f} ± {s:.3f}"
                for m, s in zip(
                    np.nanmean(table[:, 3:], axis=0), np.nanstd(table[:, 3:], axis=0), strict=True
                )
            )
            print(f"{name:30s}{queries:9.0f}{noise:8.1f}{rounded_up(budget, 3):>9}{shown}")
        for title, count in (
            ("as the paper counts (no promise)", as_the_paper_counts),
            ("allowance, until the first voter runs out (sealed)", until_one_runs_out),
        ):
            lasts = np.mean([count(votes[p], sigma, s) for s, p in enumerate(parts)], axis=0)
            print(f"{title}: {lasts[0]:.0f} queries with every label, {lasts[1]:.0f} gated")


def _head(names: tuple[str, ...]) -> str:
    return "".join(f"{name:>16s}" for name in names)


def _row(values: Array) -> str:
    return " ".join(f"{value:.3f}" for value in values)


# -- matrices --------------------------------------------------------------------------------------


def published(name: str) -> tuple[list[str], Array]:
    """Return a published matrix: names of labels, and P(column | row)."""
    with (PUBLISHED / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    names = [name.replace("Pleural Effusion", "Effusion") for name in head[1:]]
    return names, np.array([row[1:] for row in rows], float)


def agreement(name: str, ours: Array, theirs: Array, images: int) -> None:
    """Print how many cells of a matrix come out to the three digits printed."""
    apart = np.abs(ours - theirs)
    print(
        f"{name}: {images:,} images; {int((apart <= 5e-4 + 1e-9).sum())} of {apart.size} cells "
        f"agree to three decimals; largest difference {apart.max():.6f}"
    )


def positives(folder: Path) -> None:
    """Compare the positive dependency matrices with the published ones."""
    print("\npositive dependency matrices, PA views, uncertain and unmentioned labels not positive")
    names, theirs = published("chexpert")
    data = chexpert(
        _file(folder, "*chexpert*train.csv*"),
        labels=names,
        views=("PA",),
        uncertain="negative",
        blank="negative",
        images=False,
    )
    ours = pv.dependencies.positive(data.Y)
    agreement("CheXpert", ours, theirs, len(data))
    print(f"{'':28s}{'paper: to ' + names[-1]:>20s}{'ours':>8s}")
    for name, one, other in zip(names, theirs[:, -1], ours[:, -1], strict=True):
        print(f"{name:28s}{one:20.3f}{other:8.3f}")
    names, theirs = published("padchest")
    names = [name.replace(" ", "_") for name in names]
    data = padchest(_file(folder, "PADCHEST*.csv*"), labels=names, views=("PA",), images=False)
    agreement("PadChest", pv.dependencies.positive(data.Y), theirs, len(data))


def negatives(folder: Path) -> None:
    """Compare the paper's negative matrix with what readings of the label file give."""
    names, theirs = published("chexpert_negative")
    others = ~np.eye(len(names), dtype=bool)
    readings = []
    for uncertain, blank in product(("missing", "negative", "positive"), ("missing", "negative")):
        data = chexpert(
            _file(folder, "*chexpert*train.csv*"),
            labels=names,
            views=None,
            uncertain=uncertain,
            blank=blank,
            images=False,
        )
        for views in (("PA",), ("AP",), ("AP", "PA"), ("AP", "PA", "L")):
            ours = pv.dependencies.negative(data.Y[np.isin(data.columns["view"], views)])
            for turned, matrix in (("", ours), (", turned", ours.T)):
                apart = np.abs(matrix - theirs)[others]
                what = f"views {'+'.join(views)}, uncertain {uncertain}, blank {blank}{turned}"
                readings.append((float(apart.mean()), float(apart.max()), what))
    near = sum(most <= 5e-4 + 1e-9 for _, most, _ in readings)
    print("\nnegative dependency matrix of CheXpert's first five labels:")
    print(f"{near} of {len(readings)} readings of the label file give the published one; nearest:")
    for mean, most, what in sorted(readings)[:3]:
        print(f"  {what}: mean {mean:.3f}, largest {most:.3f}")


def _file(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise SystemExit(f"there is no {pattern} in {folder}")
    return found[0]


def main() -> int:
    """Compare ways to ask, and matrices where their label files are at hand."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sigma", type=float, nargs="+", default=[7.0, 20.0])
    parser.add_argument("--chest", type=Path, help="folder with the label files")
    arguments = parser.parse_args()
    if arguments.seeds:
        compare(arguments.sigma, arguments.seeds)
    if arguments.chest is not None:
        positives(arguments.chest)
        negatives(arguments.chest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
