"""How much noise to expect of learnt tallies, before anything is paid for."""

from __future__ import annotations

from dataclasses import dataclass

from ..accounting.allowance import Learning, learning_epsilon, mu_of_budget, settled

QUIET, BUSY = 0.02, 0.2  # shares of yes between which the noise is stated


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """How much noise to expect, before anything is paid for; as text, a line that says so.

    Attributes
    ----------
    voters
        How many: the largest tally.
    sigma_low, sigma_high
        The standard deviation of the noise on a tally, in votes, if voters say yes to 2 % and to
        20 % of the cells.
    """

    voters: int
    sigma_low: float
    sigma_high: float

    @property
    def drowned(self) -> bool:
        """Whether the noise is at least the number of voters even at 2 %."""
        return self.sigma_low >= self.voters

    def __str__(self) -> str:
        ends = dict.fromkeys(f"{sigma:.3g}" for sigma in (self.sigma_low, self.sigma_high))
        drowned = "That is at least the number of voters. " if self.drowned else ""
        return (
            f"The standard deviation of the noise on a tally of {self.voters:,} voters will be "
            f"about {' to '.join(ends)} votes, if they say yes to {100 * QUIET:g} to "
            f"{100 * BUSY:g} % of the cells. "
            f"{drowned}More voters, fewer queries or a larger epsilon help. A pilot of few queries "
            "at a small epsilon tells how good the labels will be."
        )


def outlook(*, voters: int, labels: int, queries: int, epsilon: float, delta: float) -> Outlook:
    """Return the range of the noise of a run that learns its allowance and releases tallies."""
    epsilon0 = learning_epsilon(settled(epsilon, delta)[1], voters)
    mu = mu_of_budget(epsilon, delta, epsilon0)
    learning = Learning(voters=voters, labels=labels, queries=queries, epsilon0=epsilon0)
    needs = QUIET * learning.cells, BUSY * learning.cells * float(learning.window[0])
    low, high = (
        learning.sigma(next((p for p in learning.grid if p >= need), learning.grid[-1]), mu)
        for need in needs
    )
    return Outlook(voters=voters, sigma_low=low, sigma_high=high)
