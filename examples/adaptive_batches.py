"""Adaptive batches: later queries and baselines may depend on what was released.

An electorate answers four batches. From the second on, the public baseline is the prediction of
a student trained on the labels released so far: a vote that agrees with it costs nothing, so the
better the student, the longer the allowances last. The promise covers all batches together.

Run: python examples/adaptive_batches.py
"""

import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier

import privote as pv

warnings.filterwarnings("ignore", category=pv.PrivoteWarning)  # what they say is printed below

BATCH, BATCHES, VOTERS, LABELS = 150, 4, 100, 8
MECHANISM = pv.BinaryVoting(sigma=20.0)

# Made-up public queries, and voters who see a noisy version of the same linear rule.
rng = np.random.default_rng(1)
X = rng.normal(size=(BATCH * BATCHES, 6))
rule = rng.normal(size=(6, LABELS))
rule /= np.linalg.norm(rule, axis=0)  # so that every label is on about 16 % of the queries
truth = X @ rule > 1.0
seen = (X @ rule)[:, None, :] + rng.normal(0, 0.3, (len(X), VOTERS, LABELS))
votes = seen > 1.0


def run(*, with_student: bool) -> pv.Electorate:
    electorate = pv.Electorate(
        mechanism=MECHANISM, voters=VOTERS, labels=LABELS, epsilon=8.0, delta=1e-5
    )
    released: list[np.ndarray] = []
    for batch in range(BATCHES):
        rows = slice(batch * BATCH, (batch + 1) * BATCH)
        baseline = None
        if with_student and released:
            student = MultiOutputClassifier(LogisticRegression())
            student.fit(X[: rows.start], np.concatenate(released))
            baseline = student.predict(X[rows])  # from released labels only, never from votes
        before = electorate.sealed.spent
        answer = electorate.answer(votes[rows], baseline)
        released.append(answer.labels)
        spent = electorate.sealed.spent - before
        print(
            f"  batch {batch + 1}: {(answer.labels == truth[rows]).mean():.3f} of labels right; "
            f"sealed: {spent.mean():.0f} contributions a voter"
        )
    return electorate


for with_student in (False, True):
    print("Baseline: " + ("the student's predictions" if with_student else "all zeros"))
    electorate = run(with_student=with_student)
    print(
        f"  epsilon={electorate.epsilon:.2f} for all {electorate.answered} queries, past and "
        f"future; allowance {electorate.allowance}; "
        f"sealed: {electorate.sealed.exhausted.sum()} voters have none left"
    )
