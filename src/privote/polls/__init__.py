"""Polls: ballots of people, read in whatever form they come, and what may be published of them."""

from .ballots import BallotRule, PollBallots
from .poll import poll
from .reading import read
from .result import Call, PollResult, Share

__all__ = ["BallotRule", "Call", "PollBallots", "PollResult", "Share", "poll", "read"]
