"""A first release: votes in, private labels and a statement out.

Run: python examples/first_release.py
"""

import numpy as np

import privote as pv

# Made-up votes: 100 voters label 200 queries with 20 labels each, and are mostly right.
rng = np.random.default_rng(0)
truth = rng.random((200, 20)) < 0.08
votes = rng.random((200, 100, 20)) < np.where(truth, 0.9, 0.01)[:, None, :]

# How often voters speak is learnt, privately; the noise follows, and tallies are released.
release = pv.label(votes, epsilon=8.0, delta=1e-5)

print(release.summary())
print()
print(release.statement())
print()

# What it was worth: here the truth is known, because it was made up.
wrong = int((release.labels != truth[: release.answered]).sum())
print(f"{wrong} of {release.labels.size} released labels differ from the truth.")

# For the owner's eyes. Asked for by name; never printed or saved by itself.
if release.guarantee == "allowance":
    sealed = release.sealed
    print(
        f"Sealed: the voter who spent most used {sealed.spent.max()} of "
        f"{release.guarantee.allowance} contributions; "
        f"{sealed.exhausted.sum()} voters have none left."
    )
