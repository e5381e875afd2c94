"""Records as voters: few of very many speak on each query.

Every private record near a query casts its own true labels; all others are silent. Each record
is a voter with its own allowance, so the guarantee is for the record. Because so few speak, the
bar is not half of the voters but is placed by ``false_alarm``.

Run: python examples/sparse_records.py
"""

import numpy as np

import privote as pv

RECORDS, QUERIES, LABELS = 20_000, 400, 8
RADIUS = 0.15  # public: chosen without looking at the private records

# Made-up private records and public queries in a public embedding.
rng = np.random.default_rng(3)
private, queries = rng.normal(size=(RECORDS, 2)), rng.normal(size=(QUERIES, 2))
rule = rng.normal(size=(2, LABELS))
rule /= np.linalg.norm(rule, axis=0)
Y_private, truth = private @ rule > 0.7, queries @ rule > 0.7

near = np.linalg.norm(queries[:, None, :] - private[None, :, :], axis=2) < RADIUS
query, voter = np.nonzero(near)
ballots = pv.SparseBallots(query, voter, Y_private[voter], queries=QUERIES, voters=RECORDS)
print(ballots)
print(f"Sealed: {near.sum(axis=1).mean():.0f} records speak on a query, on average.")

every = {"epsilon": 2.0, "delta": 1e-6, "guarantee": "allowance"}
for sigma in (5.0, 10.0, 20.0):
    mechanism = pv.BinaryVoting(sigma=sigma, false_alarm=0.01)
    release = pv.label(ballots, mechanism=mechanism, **every)
    right = (release.labels == truth).mean()
    print(
        f"{mechanism}: epsilon={release.epsilon:.2f}, "
        f"allowance {release.guarantee.allowance} a record; "
        f"{right:.3f} of labels right; "
        f"sealed: {release.sealed.exhausted.sum()} records have none left"
    )
majority = pv.label(ballots, mechanism=pv.BinaryVoting(sigma=20.0), **every)
print(f"Bar at half of all records instead: {int((majority.labels == 1).sum())} ones released.")
