"""Neighbours as voters: private records label public rows, with nothing trained on private data.

Every private record within a public radius of a query casts its own labels, and has an allowance
for life. The guarantee is for the record. A first batch says how common each label is; the rest is
asked with a share for each label.

Run: python examples/neighbours.py
"""

import warnings

import numpy as np

import privote as pv
from privote.learning import NeighbourStudent, balanced_shares

# The student below knows how often noise raises a label; how many records ran out is printed.
warnings.filterwarnings("ignore", category=pv.PrivoteWarning)

RECORDS, POOL, FEATURES, LABELS = 20_000, 1_000, 10, 6

# Made-up records, public rows and test rows from one source; labels from very rare to common.
rng = np.random.default_rng(0)
rows = rng.normal(size=(RECORDS + 2 * POOL, FEATURES))
rule = rng.normal(size=(FEATURES, LABELS))
bars = np.array([9.0, 7.5, 6.0, 4.0, 2.0, 0.0])
labels = rows @ rule + rng.logistic(size=(len(rows), LABELS)) > bars
X_private, X_public, X_test = np.split(rows, [RECORDS, RECORDS + POOL])
Y_private, Y_public, Y_test = np.split(labels, [RECORDS, RECORDS + POOL])

votes = pv.NeighbourBallots(X_private, Y_private, X_public, share=0.02, radius="query")
print(votes)
mechanism = pv.BinaryVoting(sigma=30.0, false_alarm=0.1)
electorate = pv.Electorate(
    mechanism=mechanism, voters=RECORDS, labels=LABELS, epsilon=2.0, delta=1e-6
)
print(f"epsilon={electorate.epsilon:.2f} a record, allowance {electorate.allowance} for life")

first = votes.take(np.arange(200))
known = electorate.answer(first).labels
shares = balanced_shares(known, 0.02, mechanism, RECORDS)  # from released labels: costs nothing
print("shares by label:", " ".join(f"{share:.3f}" for share in shares))
rest = votes.with_share(shares).take(np.arange(200, POOL))
more = electorate.answer(rest).labels

# The student knows the circles and the noise, both public.
student = NeighbourStudent(mechanism).fit(
    X_public, [(first.circles(), known), (rest.circles(), more)]
)
quality = pv.metrics.multilabel(Y_test, student.predict_proba(X_test))
print(f"student on unseen rows: AUC {quality['AUC']:.3f}")
print(f"Sealed: {electorate.sealed.exhausted.mean():.3f} of the records have nothing left.")
