"""Polls: ballots of people, read in whatever form they come, and what may be published of them."""

from .poll import Call, PollResult, Share, poll
from .reading import PollBallots, read

__all__ = ["Call", "PollBallots", "PollResult", "Share", "poll", "read"]
