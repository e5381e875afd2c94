"""What released tallies say: three priors without rows, and the queries' rows beside none.

``alone`` compares priors of a label's true tallies: weights fitted by EM, a normal distribution
about the label's mean, and the fitted weights beside a Beta distribution, which is what privote
does. ``rows`` compares labels decided with the queries' public rows, with random rows and without
any. Teachers are logistic regressions on disjoint parts, votes at one half. Every figure is against
the noise-free majority, on queries in random order.

    python experiments/posterior.py alone --seeds 4       # two minutes
    python experiments/posterior.py rows                  # ten minutes
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr
from sklearn.linear_model import LogisticRegression
from tasks import SHARED

import privote as pv
from privote.accounting.allowance import Learning, learning_epsilon, mu_of_budget, settled
from privote.datasets import load_teacher_votes, mulan
from privote.entropy import Entropy
from privote.posterior import _SMOOTH, Histogram, Posterior, posterior
from privote.votes.contributions import bound_votes

Floats = npt.NDArray[np.float64]
Votes = npt.NDArray[np.bool_]
DELTA = 1e-5
FILES = {
    "VOC 2012, 50 teachers": "votes_voc2012_50.npz",
    "tmc2007, 50 teachers": "votes_tmc2007_50.npz",
    "tmc2007, 250 teachers": "votes_tmc2007_250.npz",
}
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


@dataclass(frozen=True)
class Run:
    """One release, and what the labels should have been."""

    truth: Votes
    tallies: npt.NDArray[np.int64]
    said: Posterior
    learning: Learning


def released(votes: Votes, epsilon: float, seed: int) -> Run:
    """Learn the allowance, cut, and release tallies, as a call without a ledger."""
    queries, voters, labels = votes.shape
    _, rho = settled(epsilon, DELTA)
    epsilon0 = learning_epsilon(rho, voters)
    learning = Learning(voters=voters, queries=queries, labels=labels, epsilon0=epsilon0)
    entropy = Entropy(seed)
    chances = learning.log_probs(votes.sum(axis=(0, 2)))
    allowance = learning.grid[int(entropy.categorical(chances[None])[0])]
    mechanism = pv.TallyVoting(
        sigma=learning.sigma(allowance, mu_of_budget(epsilon, DELTA, epsilon0))
    )
    left = np.full(voters, learning.limit(allowance))
    counted, *_ = bound_votes(votes, np.zeros((queries, labels), bool), left, "vote")
    blocks = pv.Ballots.from_array(counted).blocks()
    tallies = np.concatenate([mechanism.draw(mechanism.tally(block), entropy) for block in blocks])
    said = posterior(tallies, sigma=mechanism.sigma, voters=voters)
    truth = 2 * votes.sum(axis=1) > voters
    return Run(truth, tallies, said, learning)


def figures(truth: Votes, labels: Votes) -> dict[str, float]:
    """Return precision, recall, F1 and accuracy."""
    hits, ones, wanted = (float(x.sum()) for x in (truth & labels, labels, truth))
    return {
        "precision": hits / ones if ones else float("nan"),
        "recall": hits / wanted if wanted else float("nan"),
        "f1": 2 * hits / (ones + wanted) if ones + wanted else 1.0,
        "accuracy": float((truth == labels).mean()),
        "ones": ones,
    }


# -- electorates ----------------------------------------------------------------------------------


def shared(name: str, queries: int, seed: int) -> Votes:
    cube = _cube(FILES[name])
    return cube[np.random.default_rng(seed).permutation(len(cube))[:queries]]


@lru_cache(maxsize=4)
def _cube(file: str) -> Votes:
    with np.load(SHARED / "data" / file) as archive:
        shape = tuple(int(size) for size in archive["shape"])
        bits = np.unpackbits(archive["votes"], count=int(np.prod(shape)))
    return bits.reshape(shape).astype(bool)


def made(
    *,
    queries: int = 600,
    voters: int = 60,
    labels: int = 10,
    share: float | tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.3),
    hit: float = 0.8,
    alarm: float = 0.02,
    uneven: float = 0.0,
    alike: bool = False,
) -> Callable[[int], Votes]:
    """Return an electorate: who wants a label says so with ``hit``, who does not with ``alarm``."""

    def electorate(seed: int) -> Votes:
        rng = np.random.default_rng(1000 + seed)
        shares = np.resize(np.asarray(share, float), labels)
        wanted = rng.random((queries, labels)) < shares
        if alike:  # labels of one group come together
            wanted = (rng.random((queries, 1)) < shares) & (rng.random((queries, labels)) < 0.9)
        weight = np.exp(uneven * rng.normal(size=voters))[None, :, None]
        chance = np.where(wanted[:, None, :], hit, alarm) * np.minimum(weight, 1 / max(hit, 1e-9))
        return rng.random((queries, voters, labels)) < chance

    return electorate


ODD: dict[str, Callable[[int], Votes]] = {
    "empty votes": made(share=0.0, alarm=0.0),
    "only false alarms": made(share=0.0, alarm=0.05),
    "unanimous": made(hit=1.0, alarm=0.0),
    "8 voters": made(voters=8),
    "100 labels": made(labels=100, queries=300, share=(0.003, 0.01, 0.03, 0.1)),
    "very rare labels": made(share=0.002, alarm=0.001),
    "very common labels": made(share=0.85, hit=0.9, alarm=0.1),
    "common, nearly unanimous": made(share=0.18, hit=0.97, alarm=0.01),
    "uneven voters": made(uneven=1.0, hit=0.6),
    "correlated labels": made(alike=True),
    "one label": made(labels=1, queries=1000, share=0.2),
    "undecided voters": made(share=0.3, hit=0.55, alarm=0.2),
    "400 voters": made(voters=400),
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
    print("F1 decided by F1 / at one half: rows | random rows | no rows")
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
                    kinds = []
                    for held in (public, rng.normal(size=(queries, 100)), None):
                        said = posterior(run.tallies, **options, rows=held)
                        kinds.append([said.labels("f1"), said.labels()])
                    scores.append([[figures(run.truth, g)["f1"] for g in kind] for kind in kinds])
                every.append(np.mean(scores, axis=0))
                cells = " | ".join(f"{f1:.3f} / {half:.3f}" for f1, half in every[-1])
                print(f"{f'{name}, {queries:,}, epsilon {epsilon:g}':<30}{cells}", flush=True)
    print("mean".ljust(30) + " | ".join(f"{a:.4f} / {b:.4f}" for a, b in np.mean(every, axis=0)))


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
            vars(said.model)["_weights"] = (weights - _SMOOTH * beta) / (1 - _SMOOTH)
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
