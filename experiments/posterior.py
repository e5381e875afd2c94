"""What released tallies say: three priors without rows, and the queries' rows beside none.

``alone`` compares priors of a label's true tallies: weights fitted by EM, a normal distribution
about the label's mean, and the fitted weights beside a Beta distribution, which is what privote
does. ``rows`` compares labels decided with the queries' public rows, with random rows and without
any to a reference that shares nothing with privote (``tools/rows.py`` of the shared data). Teachers
are logistic regressions on disjoint parts, votes at one half. Every figure is against the
noise-free majority, on queries in random order.

    python experiments/posterior.py alone --seeds 5       # two minutes
    python experiments/posterior.py rows --seeds 5        # ten minutes
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr
from sklearn.linear_model import LogisticRegression
from tallies import ODD, SHARED, Run, Votes, figures, released, shared

from privote import posterior as model
from privote.datasets import load_teacher_votes, mulan
from privote.posterior import Histogram, Posterior, posterior

Floats = npt.NDArray[np.float64]
DATA = SHARED / "data"
VOC = "voc2012_trainval_efficientnet_lite0_160.npz"
CELLS = {
    "voc2012": (50, (300, 1000, 3000)),
    "voc2012-200": (200, (300, 1500)),
    "tmc2007": (50, (300, 1000, 4000)),
    "tmc2007-250": (250, (2000,)),
    "scene": (40, (300, 1196)),
    "yeast": (60, (150, 480)),
}


# -- votes with rows -------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def described(name: str) -> tuple[Votes, Floats]:
    """Return teachers' votes (queries, voters, labels) and the queries' rows."""
    if name.startswith("voc"):
        with np.load(DATA / VOC) as file:
            X, Y, train = file["features"].astype(np.float32), file["labels"], file["train"]
            ids = file["ids"].tolist()
        if name == "voc2012":
            with np.load(DATA / "votes_voc2012_50.npz") as file:
                bits, shape = file["votes"], tuple(file["shape"])
                places = {text: place for place, text in enumerate(ids)}
                X = X[[places[text] for text in file["ids"].tolist()]]
            return np.unpackbits(bits, count=int(np.prod(shape))).reshape(shape).astype(bool), X
        sides = X[train], Y[train] == 1, X[~train]
    elif name == "scene":
        train, test = (mulan(DATA / f"mulan_scene-{side}.arff") for side in ("train", "test"))
        sides = train.X, train.Y == 1, test.X
    else:
        file, public = ("tmc2007-500", 4000) if name.startswith("tmc") else ("yeast", 480)
        data = mulan(DATA / f"mulan_{file}.arff")
        order = np.random.default_rng(0).permutation(len(data.Y))
        private = order[public:28_000]
        sides = data.X[private], data.Y[private] == 1, data.X[order[:public]]
    return cast(*sides, teachers=CELLS[name][0]), sides[2]


def cast(X: Any, Y: Votes, public: Any, *, teachers: int) -> Votes:
    """Return the votes of teachers on public rows."""
    votes = np.zeros((public.shape[0], teachers, Y.shape[1]), bool)
    parts = np.array_split(np.random.default_rng(0).permutation(len(Y)), teachers)
    for teacher, part in enumerate(parts):
        for label, wanted in enumerate(Y[part].T):
            fit = LogisticRegression(solver="liblinear", tol=1e-2, dual=X.shape[1] > len(part))
            votes[:, teacher, label] = (
                fit.fit(X[part], wanted).predict(public)
                if 0 < wanted.sum() < len(part)
                else wanted[0]
            )
    return votes


def table_rows(seeds: int) -> None:
    """Print F1 by F1 and at one half: of the reference, with rows, with random ones, without."""
    sys.path.append(str(SHARED / "tools"))
    from rows import posterior as reference

    print("F1 decided by F1 / at one half: reference | rows | random rows | no rows")
    every = []
    for name, (voters, sizes) in CELLS.items():
        votes, rows = described(name)
        for queries in sizes:
            for epsilon in (8.0, 2.0):
                scores = []
                for seed in range(seeds):
                    rng = np.random.default_rng(seed)
                    order = rng.permutation(len(votes))[:queries]
                    run, public = released(votes[order], epsilon, seed), np.asarray(rows[order])
                    options = {"sigma": run.said.model.sigma, "voters": voters}
                    sigma = (options["sigma"] ** 2 + 1 / 12) ** 0.5
                    kinds = [by_chance(reference(run.tallies, sigma, voters, public))]
                    for held in (public, rng.normal(size=(queries, 100)), None):
                        said = posterior(run.tallies, **options, rows=held)
                        kinds.append([said.labels("f1"), said.labels()])
                    scores.append([[figures(run.truth, g)["f1"] for g in kind] for kind in kinds])
                every.append(np.mean(scores, axis=0))
                cells = " | ".join(f"{f1:.3f} / {half:.3f}" for f1, half in every[-1])
                low = "!" if (every[-1][1] < 0.97 * every[-1][0]).any() else ""
                print(f"{f'{name}, {queries:,}, epsilon {epsilon:g}':<30}{cells} {low}", flush=True)
    print("mean".ljust(30) + " | ".join(f"{a:.4f} / {b:.4f}" for a, b in np.mean(every, axis=0)))


def by_chance(chances: Floats) -> list[Votes]:
    """Return labels with the largest expected F1, and those at one half."""
    order = np.sort(chances, axis=None)[::-1]
    scores = np.cumsum(order) / (np.arange(1, order.size + 1) + order.sum())
    return [chances >= order[scores.argmax()], chances > 0.5]


# -- priors without rows ---------------------------------------------------------------------------


def electorates() -> Iterator[tuple[str, Callable[[int], Votes]]]:
    """Name votes: shared ones, embedded ones, and ones that are made."""
    names = ("VOC 2012, 50 teachers", "tmc2007, 50 teachers", "tmc2007, 250 teachers")
    for name in names:
        for queries in (300, 1000) if "250" in name else (300, 1000, 3000):
            yield (
                f"{name}, {queries:,}",
                lambda seed, name=name, queries=queries: shared(name, queries, seed),
            )
    for name in ("tmc2007", "tmc2007-250", "voc2012"):
        votes = load_teacher_votes(name).votes
        yield (
            f"embedded {name}, 500",
            lambda seed, votes=votes: np.random.default_rng(seed).permutation(votes)[:500],
        )
    yield from ODD.items()


def priors(run: Run) -> Iterator[tuple[str, Posterior]]:
    """Name what is said under each prior."""
    for name in ("fitted", "normal", "both"):
        said = posterior(run.tallies, sigma=run.said.model.sigma, voters=run.said.model.voters)
        weights, beta = said.model._weights, said.model._beta
        if name == "fitted":
            vars(said.model)["_weights"] = (weights - model._SMOOTH * beta) / (1 - model._SMOOTH)
        elif name == "normal":
            vars(said.model)["_weights"] = normal(said.model)
        yield name, said


def normal(bins: Histogram) -> Floats:
    """Return the weights of normal distributions with the means and variances of the Beta ones."""
    mean = bins._beta @ bins._grid
    spread = np.sqrt(bins._beta @ bins._grid**2 - mean**2)
    middles = (bins._grid[:-1] + bins._grid[1:]) / 2
    below = ndtr((middles - mean[:, None]) / spread[:, None])
    return np.diff(below, axis=1, prepend=0.0, append=1.0)


def table_alone(seeds: int) -> None:
    """Print by how much the stated precision is off under each prior, where it is stated."""
    off, scores, runs = defaultdict(list), defaultdict(list), 0
    for _, votes in electorates():
        for seed in range(seeds):
            for epsilon in (8.0, 4.0, 2.0, 1.0):
                run, runs = released(votes(seed), epsilon, seed), runs + 1
                for name, said in priors(run):
                    for by in ("likely", "f1"):
                        actual = figures(run.truth, said.labels(by))
                        if run.truth.any():
                            scores[name, by].append(actual["f1"])
                        if quality := said.quality(by, learnt=run.learning.learns):
                            off[name, by].append(quality["precision"] - actual["precision"])
    print(f"{runs} runs; stated precision - actual: stated, |off|, mean, 99 %, largest; mean F1")
    for key, gaps in off.items():
        size, high = np.abs(gaps).mean(), np.quantile(gaps, 0.99)
        print(
            f"{key[0]:<8}{key[1]:<8}{len(gaps):>4}  {size:.3f}  {np.mean(gaps):+.3f}  {high:+.3f}  "
            f"{max(gaps):+.3f}  {np.mean(scores[key]):.4f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("alone", "rows"))
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    (table_alone if arguments.what == "alone" else table_rows)(arguments.seeds)


if __name__ == "__main__":
    main()
