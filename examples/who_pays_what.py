"""Who pays what: each voter's own bill for the same release.

Costs are data-dependent here, so every number printed is sealed: for the owner's eyes. A voter
whose votes agree with a large majority pays little; a voter whose votes decide pays more.

Run: python examples/who_pays_what.py
"""

import numpy as np

import privote as pv

NAMES = ["North", "South", "East", "West", "Centre"]
QUERIES, VOTERS, LABELS, DELTA = 40, 60, 10, 1e-5
MECHANISM = pv.BinaryVoting(sigma=9.0)

rng = np.random.default_rng(2)
truth = rng.random((QUERIES, LABELS)) < 0.15
votes = rng.random((QUERIES, VOTERS, LABELS)) < np.where(truth, 0.85, 0.03)[:, None, :]
votes[:, 0] = False  # North never says yes
votes[:, 1] = rng.random((QUERIES, LABELS)) < 0.5  # South tosses a coin

curves = MECHANISM.rdp_by_voter(votes)  # (voters, 2, orders): both directions, exact
bills = pv.bills(MECHANISM, votes, DELTA)  # (voters,): the same as epsilons

print(f"{QUERIES} queries x {LABELS} labels, {VOTERS} voters, delta={DELTA:g}. Sealed:")
for name, bill in zip(NAMES, bills, strict=False):
    print(f"  {name:8s} epsilon {bill:.3f}")
print(f"  the largest of all {VOTERS} voters: {bills.max():.3f}")

# Bills add over batches, curve by curve and direction by direction.
half = QUERIES // 2
parts = MECHANISM.rdp_by_voter(votes[:half]) + MECHANISM.rdp_by_voter(votes[half:])
print(f"Two half batches add up to the whole: {np.allclose(parts, curves)}")

# The bill per query covers every voter at once, so it is never smaller.
everyone = pv.epsilon(MECHANISM.total_rdp(votes), None, DELTA)
worst = pv.epsilon(QUERIES * MECHANISM.worst_case_rdp(VOTERS, LABELS), None, DELTA)
print(f"Per query, summed: {everyone:.3f}. Worst case over all votes: {worst:.3f}.")
