"""Polls: ballots of people, read in whatever form they come, and what may be published of them."""

from .ballots import PollBallots
from .poll import poll
from .reading import read
from .result import Call, PollResult, Share

__all__ = ["Call", "PollBallots", "PollResult", "Share", "poll", "read"]
