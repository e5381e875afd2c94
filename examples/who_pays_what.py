"""Who pays what: each voter's own bill for the same release.

Costs are data-dependent here, so every number printed is sealed: for the owner's eyes. A bill
asks how far the release could move if this voter's ballots, and no one else's, were different.

Run: python examples/who_pays_what.py
"""

import numpy as np

import privote as pv

QUERIES, VOTERS, LABELS, DELTA = 40, 60, 10, 1e-5
NAMES = ["North (votes with the majority)", "South (against it)", "East (one typical voter)"]

rng = np.random.default_rng(2)
truth = rng.random((QUERIES, LABELS)) < 0.15
votes = rng.random((QUERIES, VOTERS, LABELS)) < np.where(truth, 0.85, 0.03)[:, None, :]
votes[:, 0], votes[:, 1] = truth, ~truth

for mechanism in (pv.BinaryVoting(sigma=9.0), pv.PowersetVoting(sigma=5.0)):
    bills = pv.bills(mechanism, votes, DELTA)  # (voters,): each voter's own epsilon, exact
    print(f"{mechanism}: {QUERIES} queries x {LABELS} labels, {VOTERS} voters. Sealed:")
    for name, bill in zip(NAMES, bills, strict=False):
        print(f"  {name:32s} epsilon {bill:.3f}")
    print(f"  {'the largest of all voters':32s} epsilon {bills.max():.3f}")
    # Summed per query the cost covers every voter at once, so it is never smaller.
    everyone = pv.epsilon(mechanism.total_rdp(votes), None, DELTA)
    worst = pv.epsilon(QUERIES * mechanism.worst_case_rdp(VOTERS, LABELS), None, DELTA)
    print(f"  {'per query, summed':32s} epsilon {everyone:.3f}")
    print(f"  {'worst case over all votes':32s} epsilon {worst:.3f}")

# Bills add over batches, curve by curve and direction by direction.
mechanism, half = pv.BinaryVoting(sigma=9.0), QUERIES // 2
whole = mechanism.rdp_by_voter(votes)  # (voters, 2, orders)
parts = mechanism.rdp_by_voter(votes[:half]) + mechanism.rdp_by_voter(votes[half:])
print(f"Two half batches add up to the whole: {np.allclose(parts, whole)}")
