"""What a student learns from, and how many teachers vote: noisy tallies against bits.

Teachers vote on public rows, tallies are released as by default (the allowance is learnt), and a
LinearStudent learns from them. The kept figures are of a draft: floating-point draws.
Figures are macro AUC on test rows, as in ``methods.py``; delta is 1e-5.

``targets`` compares, on rows as they are, what students learn from (bits: labels of Binary voting,
whose noise in the kept figures was that of an earlier default; one half: labels decided by the
posterior; chance: the posterior of a majority; share: the expected
share of voters who want the label; raw: the noisy share itself; no noise: the true share) and, by
share, what teachers say (grid: probabilities in fifteenths; top half: yes to half as many rows as
by "prevalence"; at 0.5: yes where the probability is at least that). ``teachers`` compares how many
teachers vote, by share, on rows embedded as PrivateClassifier does.

Run: python experiments/soft_labels.py targets voc --epsilon 10 --teachers 50 100 250 500
     python experiments/soft_labels.py teachers emotions yeast scene voc
"""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import Any

import numpy as np
from methods import DELTA, SETS, sides
from tasks import SHARED

import privote as pv
from privote.learning import LinearStudent, TableEncoder, cast, train
from privote.learning.embedding import embed, embedding_for, fit_embedding
from privote.learning.teachers import partition, partition_key, top_votes

EACH = (4, 8, 16, 32, 64)  # records of a teacher
Sides = dict[str, Any]


def task(name: str, seed: int) -> Sides:
    """Return private, public and test rows and labels; VOC's are always the same."""
    if name != "voc":
        found = sides(name, seed)
        if hasattr(found["X"][0], "columns"):
            encoder = TableEncoder().fit(found["X"][1])
            found["X"] = [encoder.numbers(rows) for rows in found["X"]]
        return found
    data = np.load(SHARED / "data" / "voc2012_trainval_efficientnet_lite0_160.npz")
    X, Y, private = data["features"].astype(np.float32), data["labels"], data["train"]
    others = np.flatnonzero(~private)
    parts = [np.flatnonzero(private), others[::2], others[1::2]]
    X_parts = [X[rows] for rows in parts]
    return {"X": X_parts, "Y": Y[parts[0]], "Y_test": Y[parts[2]], "groups": None}


def persons(sets: Sides) -> int:
    """Return how many records, or persons, are private."""
    return len(sets["Y"]) if sets["groups"] is None else len(np.unique(sets["groups"]))


def released(votes: Any, epsilon: float, seed: int) -> pv.Release:
    """Return noisy tallies of votes, and what they say: a simulation, without a warning."""
    return pv.label(votes, epsilon=epsilon, delta=DELTA, anyway=True, seed=seed)


def auc(sets: Sides, model: Any) -> float:
    """Return the test AUC of a trained model."""
    chance = model.predict_proba(sets["X"][2])
    return float(pv.metrics.multilabel(sets["Y_test"], chance)["AUC"])


def taught(sets: Sides, targets: Any) -> float:
    """Return the test AUC of a student of these targets."""
    return auc(sets, LinearStudent().fit(sets["X"][1], targets))


def trained(sets: Sides, voters: int, seed: int) -> Any:
    """Return teachers, as PATEClassifier trains them."""
    key = partition_key(None, "", seed)
    part = partition(len(sets["Y"]), voters, groups=sets["groups"], key=key)
    return train(None, sets["X"][0], sets["Y"], part, voters, random_state=seed)


def by_target(sets: Sides, epsilon: float, voters: int, seed: int) -> str:
    """Return the AUC by what a student learns from, and by what teachers say."""
    X, public, _ = sets["X"]
    teachers = trained(sets, voters, seed)
    votes = cast(teachers, public)
    said = released(votes, epsilon, seed)
    targets = {"one half": said.probabilities > 0.5, "chance": said.probabilities}
    targets |= {"share": said.shares, "raw": np.clip(said.tallies / voters, 0, 1)}
    targets["no noise"] = votes.mean(axis=1)
    answers = np.concatenate(list(teachers.predict_proba(public)))
    for name, ballots in {
        "grid": np.rint(15 * answers) / 15,
        "top half": top_votes(
            answers.reshape(len(answers), -1).T, teachers.prevalence / 2, answers.shape[1:]
        ),
        "at 0.5": answers >= 0.5,
    }.items():
        targets[name] = released(ballots, epsilon, seed).shares
    row = {name: taught(sets, cells) for name, cells in targets.items()}
    bits = {"mechanism": pv.BinaryVoting(sigma=voters / 5), "guarantee": "allowance"}
    settings = {"n_teachers": voters, "epsilon": epsilon, "delta": DELTA, "random_state": seed}
    model = pv.PATEClassifier(**bits, **settings)
    row["bits"] = auc(sets, model.fit(X, sets["Y"], public, seed=seed))
    figures = ", ".join(f"{name} {value:.4f}" for name, value in row.items())
    return f"{voters} teachers, seed {seed}: {figures}"


def by_number(sets: Sides, epsilon: float, seed: int) -> str:
    """Return the AUC by the number of teachers, each with so many records."""
    records = persons(sets)
    rule = embedding_for(sets["X"][1], records, sets["Y"].shape[1], epsilon, scaled=True)
    mapping = fit_embedding(rule, sets["X"][1])
    sets = {**sets, "X": [embed(mapping, rows) for rows in sets["X"]]}
    figures = []
    for voters in [records // each for each in EACH if 10 <= records // each <= 2000]:
        votes = cast(trained(sets, voters, seed), sets["X"][1])
        share = released(votes, epsilon, seed).shares
        figures.append(f"n={voters} share {taught(sets, share):.3f}")
    return f"{rule}, seed {seed}: {' | '.join(figures)}"


def main() -> int:
    """Print a line for each set, budget and seed (and number of teachers)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("targets", "teachers"))
    parser.add_argument("sets", nargs="+", choices=(*SETS, "voc"))
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--teachers", type=int, nargs="+", default=[50, 100, 250, 500])
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for seed in range(given.seeds):
        for name in given.sets:
            sets = task(name, seed)
            for epsilon in given.epsilon:
                start = f"{name}, epsilon {epsilon:g}, "
                if given.what == "teachers":
                    print(start + by_number(sets, epsilon, seed), flush=True)
                    continue
                for voters in given.teachers:
                    print(start + by_target(sets, epsilon, voters, seed), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
