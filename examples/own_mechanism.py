"""A mechanism of your own: say how likely a 1 is for each count, and the rest follows.

A label is released if its yes-votes, plus Laplace noise, reach a quota of the voters. The class
says the log-probabilities, once; privote draws from them, prices them at every count and audits the
price. On the command line, where this file is on Python's path:

    privote label VOTES --mechanism own_mechanism:LaplaceQuota --sigma 9 --quota 0.3 ...
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import privote as pv


@dataclass(frozen=True, kw_only=True)
class LaplaceQuota(pv.VoteMechanism):
    """Release a label if yes-votes plus Laplace noise reach a quota of the voters.

    Parameters
    ----------
    sigma
        The noise's standard deviation, in votes.
    quota
        The bar, as a share of the registered voters.
    """

    name = "laplace-quota"  # in files and ledgers, wherever the class is

    sigma: float
    quota: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.sigma < np.inf:
            raise pv.InputError("sigma", "must be finite and positive", self.sigma)
        if not 0 < self.quota < 1:
            raise pv.InputError("quota", "must lie strictly between 0 and 1", self.quota)

    def vote_log_probs(self, margins: Any, voters: int) -> np.ndarray:
        """Return log Pr[0], log Pr[1] for each margin, yes minus no: (..., 2)."""
        yes = (np.asarray(margins) + voters) / 2
        above = np.sqrt(2) / self.sigma * (yes - self.quota * voters)
        rarer = -np.abs(above) - np.log(2)  # log Pr[noise beyond the distance to the bar]
        likelier = np.log1p(-np.exp(rarer))
        zero, one = np.where(above < 0, [likelier, rarer], [rarer, likelier])
        return np.stack([zero, one], axis=-1)


def main() -> None:
    mechanism = LaplaceQuota(sigma=9.0, quota=0.3)
    votes = np.random.default_rng(0).random((40, 50, 6)) < [0.9, 0.6, 0.02, 0.02, 0.02, 0.02]

    report = pv.audit.exact(mechanism, voters=5, labels=3)
    print(f"audited: {report.neighbours} neighbours, exact for each voter: {report.tight}")
    budget = {"epsilon": 8.0, "delta": 1e-5, "seed": 1}
    for guarantee in ("allowance", "worst-case", "data-dependent"):
        release = pv.label(votes, mechanism=mechanism, guarantee=guarantee, queries=5, **budget)
        print(f"{guarantee}: {release!r}")
    with tempfile.TemporaryDirectory() as folder:
        release.save(Path(folder) / "labels.npz")
        print("saved and loaded:", pv.Release.load(Path(folder) / "labels.npz").guarantee)

    electorate = pv.Electorate(mechanism=mechanism, voters=50, labels=6, epsilon=8.0, delta=1e-5)
    print(f"an electorate's allowance: {electorate.allowance} single votes for life")
    settings = {"sigma": [5.0, 9.0, 15.0]}
    _, trials = pv.planning.tune(votes, mechanism, epsilon=8.0, delta=1e-5, settings=settings)
    for trial in trials:
        print(f"{trial.mechanism}: {trial.queries} queries, {trial.wrong:.2%} of the labels wrong")


if __name__ == "__main__":
    main()
