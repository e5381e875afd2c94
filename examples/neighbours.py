"""Neighbours as voters: private records label public rows, with nothing trained on private data.

Every private record within a public radius of a query casts its own labels, and has an allowance
for life. The guarantee is for the record. Noisy tallies are released, and a student learns from the
share of the records near each row that carry a label.

Run: python examples/neighbours.py
"""

import numpy as np

import privote as pv
from privote.learning import LinearStudent

RECORDS, POOL, FEATURES, LABELS = 20_000, 1_000, 10, 6

# Made-up records, public rows and test rows from one source; labels from very rare to common.
rng = np.random.default_rng(0)
rows = rng.normal(size=(RECORDS + 2 * POOL, FEATURES))
rule = rng.normal(size=(FEATURES, LABELS))
bars = np.array([9.0, 7.5, 6.0, 4.0, 2.0, 0.0])
labels = rows @ rule + rng.logistic(size=(len(rows), LABELS)) > bars
X_private, X_public, X_test = np.split(rows, [RECORDS, RECORDS + POOL])
Y_private, Y_public, Y_test = np.split(labels, [RECORDS, RECORDS + POOL])

votes = pv.NeighbourBallots(X_private, Y_private, X_public, share=0.04)
print(votes)
release = pv.label(votes, epsilon=2.0, delta=1e-6)
print(release.summary())

student = LinearStudent().fit(X_public, release.shares)
quality = pv.metrics.multilabel(Y_test, student.predict_proba(X_test))
print(f"student on unseen rows: AUC {quality['AUC']:.3f}")
print(f"Sealed: {release.sealed.exhausted.mean():.3f} of the records have nothing left.")
