"""Neighbours as PATE's voters: from an estimator's settings to ballots, noise and plan."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..mechanisms import BinaryVoting, Mechanism
from .neighbour_plan import FALSE_ALARM, NeighbourPlan, can_balance, plan_neighbours
from .neighbours import NeighbourBallots, check_groups
from .voters import VoterNames

_SHARE = 0.01  # of one share for all labels, where none is given


class Settings(Protocol):
    """What is asked of neighbours: parameters of :class:`privote.learning.PATEClassifier`."""

    mechanism: Mechanism | None
    epsilon: float
    delta: float
    guarantee: str
    rounds: int
    choose: str
    queries: int | None
    share: float | None
    metric: str
    embedding: Any


def neighbour_voters(
    settings: Settings, X: Any, Y: npt.NDArray[np.int8], X_public: Any, who: VoterNames
) -> tuple[NeighbourBallots, Mechanism, NeighbourPlan | None]:
    """Return the ballots, the mechanism, and how to ask in passes; None with one share."""
    who.check(X.shape[0])
    names, _ = check_groups(who.groups, X.shape[0])
    voters = X.shape[0] if names is None else len(names)  # how many records persons have is private
    share, mechanism, plan = settings.share, settings.mechanism, None
    if share is None and can_balance(mechanism, settings.guarantee):
        _check_schedule(settings)
        plan = plan_neighbours(
            voters,
            Y.shape[1],
            X_public.shape[0],
            settings.epsilon,
            settings.delta,
            mechanism=mechanism if isinstance(mechanism, BinaryVoting) else None,
            queries=settings.queries,
        )
        share, mechanism = plan.share, plan.mechanism
    share = _SHARE if share is None else share
    near = NeighbourBallots(
        X,
        Y,
        X_public,
        share=share,
        metric=settings.metric,
        radius="query",
        embedding=settings.embedding,
        groups=who.groups,
    )
    return near, mechanism or _for_one_share(voters, share), plan


def _check_schedule(settings: Settings) -> None:
    """Refuse a schedule that passes have no use for."""
    if settings.rounds != 1 or settings.choose != "random":
        raise InputError(
            "rounds and choose go with voters='teachers', or with neighbours of one share: give "
            f"share a number; got rounds={settings.rounds!r}, choose={settings.choose!r}"
        )


def _for_one_share(voters: int, share: float) -> Mechanism:
    """Return Binary voting whose noise suits the neighbours to be expected: public numbers."""
    return BinaryVoting(sigma=max(1.0, share * voters / 5), false_alarm=FALSE_ALARM)
