"""The demo's work: teachers vote on embedded scenes, mechanisms release, the truth judges."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import metrics
from ..accounting.renyi import DEFAULT_ORDERS, check_delta, epsilon
from ..ballots import Ballots
from ..datasets import Scenes, load_scenes
from ..datasets.landmarks import Landmarks
from ..errors import BudgetError, positive, whole
from ..labelling import label
from ..mechanisms import BinaryVoting, Mechanism, PowersetVoting, TauVoting
from ..planning import (
    allowance_for,
    queries_for,
    queries_that_fit,
    queries_until_out,
    sigma_for,
    surprises,
)
from ..release import Release
from .comparison import FIGURES, Comparison
from .teachers.partition import partition
from .teachers.training import train
from .teachers.votes import cast

# Public: a scene holds one to four of ten digits, 2.3 different ones on average.
SURPRISES = 2.4
MOST_DIGITS = 4
GUARANTEES = ("allowance", "worst-case", "data-dependent")
# Says what comes next, and of how many steps, while it lasts; yields who is told how many are done.
Telling = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the demo was asked for."""

    teachers: int
    epsilon: float
    delta: float
    queries: int
    private: int
    seed: int | None

    def __post_init__(self) -> None:
        for name in ("teachers", "queries", "private"):
            whole(name, getattr(self, name))
        positive("epsilon", self.epsilon)
        check_delta(self.delta)

    @property
    def budget(self) -> tuple[int, int, float, float]:
        """Voters, labels, epsilon and delta."""
        return self.teachers, 10, self.epsilon, self.delta


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Scenes as similarities to public ones: (scenes, landmarks)."""

    private: npt.NDArray[np.float32]
    public: npt.NDArray[np.float32]
    test: npt.NDArray[np.float32]

    @classmethod
    def of(cls, scenes: Scenes) -> Rows:
        """Return all three, by landmarks that come from public scenes only."""
        landmarks = Landmarks().fit(scenes.X_public)
        sides = (scenes.X_private, scenes.X_public, scenes.X_test)
        private, public, test = (landmarks.transform(side) for side in sides)
        return cls(private=private, public=public, test=test)


@dataclass(kw_only=True)
class Outcome:
    """What the demo found.

    Attributes
    ----------
    votes
        (queries, voters, labels) bool, private: all public scenes, of which the first are released.
    rows
        One dict a release: what may be published, and how good the labels are.
    labels
        The released labels by mechanism and guarantee.
    sealed
        One dict a mechanism, for the owner's eyes.
    fits
        For the owner's eyes: how many queries of Binary fit, bound by bound.
    models
        One dict a model: PATE's students and what they are compared with, on test scenes.
    """

    request: Request
    votes: npt.NDArray[np.bool_]
    truth: npt.NDArray[np.int8]
    mechanisms: dict[str, Mechanism]
    rows: list[dict[str, Any]] = field(default_factory=list)
    labels: dict[tuple[str, str], npt.NDArray[np.int8]] = field(default_factory=dict)
    sealed: list[dict[str, Any]] = field(default_factory=list)
    fits: dict[str, int] = field(default_factory=dict)
    models: list[dict[str, Any]] = field(default_factory=list)

    def ballots(self, mechanism: Mechanism) -> Ballots:
        """Return the votes to be released, as this mechanism takes them."""
        ballots = Ballots.from_array(self.votes[: self.request.queries])
        return ballots if mechanism.most_ones is None else ballots.clip(mechanism.most_ones)

    def score(self, labels: npt.NDArray[Any]) -> dict[str, float]:
        """Return the figures of merit of labels for the first queries; a label is its own score."""
        found = metrics.multilabel(self.truth[: len(labels)], labels.astype(float), labels)
        return {name: found[name] for name in FIGURES}


def run_demo(request: Request, telling: Telling) -> Outcome:
    """Do everything but writing and showing it."""
    public = max(2_000, request.queries)
    with telling(f"1/6  composing {request.private:,} private and {public:,} public scenes", None):
        scenes = load_scenes(private=request.private, public=public)
        rows = Rows.of(scenes)
    asking = f"2/6  training {request.teachers} teachers, each on its own part, and asking them"
    with telling(asking, request.teachers) as tick:
        votes = _votes(scenes, rows, request.teachers, tick)
    with telling("3/6  choosing each sigma, from public numbers only", None):
        outcome = Outcome(
            request=request, votes=votes, truth=scenes.Y_public, mechanisms=_mechanisms(request)
        )
    names = [(m, g) for m in outcome.mechanisms for g in GUARANTEES]
    with telling("4/6  releasing labels: three mechanisms, three guarantees", len(names)) as tick:
        for place, (name, guarantee) in enumerate(names):
            tick(place)
            _release(outcome, name, guarantee, place)
    with telling("5/6  pricing these very votes, for the owner's eyes", None):
        _price(outcome)
    contest = "6/6  training a student on released labels, and what it is compared with"
    jobs = _models(outcome, scenes, rows)
    with telling(contest, len(jobs)) as tick:
        for place, job in enumerate(jobs):
            tick(place)
            outcome.models.append(job())
    return outcome


def _models(outcome: Outcome, scenes: Scenes, rows: Rows) -> list[Callable[[], dict[str, Any]]]:
    """Return what makes one row a model: PATE's students, and those they are compared with."""
    request = outcome.request
    contest = Comparison(
        X_private=rows.private,
        Y_private=scenes.Y_private,
        X_public=rows.public,
        X_test=rows.test,
        Y_test=scenes.Y_test,
        epsilon=request.epsilon,
        delta=request.delta,
        n_teachers=request.teachers,
        seed=request.seed,
        ids=scenes.ids_private,
    )
    students: dict[str, dict[str, Any]] = {}
    for name, mechanism in outcome.mechanisms.items():
        # Where single votes count, PATE's own default noise: here more labels beat better ones.
        # Where whole ballots count against an allowance, composition is better.
        whole_ballots = mechanism.surprise_unit == "ballot"
        kind = {"mechanism": mechanism, "guarantee": "worst-case"} if whole_ballots else {}
        students[f"PATE student, {name}"] = kind
    return [
        *(partial(contest.pate, name, **kind) for name, kind in students.items()),
        *contest.rivals(),
    ]


def _votes(
    scenes: Scenes, rows: Rows, teachers: int, tick: Callable[[int], None]
) -> npt.NDArray[np.bool_]:
    part = partition(len(rows.private), teachers, ids=scenes.ids_private, key=0)
    ensemble = train(
        None, rows.private, scenes.Y_private, part, teachers, progress=lambda done, _: tick(done)
    )
    return cast(ensemble, rows.public, "prevalence")


def _mechanisms(request: Request) -> dict[str, Mechanism]:
    """Return the mechanisms, each with the least noise that lets it promise the wanted queries."""
    solve = partial(_least_noise, request.budget, request.queries)
    return {
        "binary": solve(lambda sigma: BinaryVoting(sigma=sigma), SURPRISES),
        "tau": solve(lambda sigma: TauVoting(sigma=sigma, tau=1.5)),
        "powerset": solve(lambda sigma: PowersetVoting(sigma=sigma, max_positives=MOST_DIGITS)),
    }


def _least_noise(
    budget: tuple[int, int, float, float],
    wanted: int,
    make: Callable[[float], Mechanism],
    surprises: float | None = None,
) -> Mechanism:
    guarantee = "worst-case" if surprises is None else "allowance"
    sigma = sigma_for(make, *budget, wanted, guarantee=guarantee, surprises_per_query=surprises)
    return make(math.ceil(10 * sigma) / 10)


def _release(outcome: Outcome, name: str, guarantee: str, place: int) -> None:
    """Release once and note what may be published; a refusal is an answer too."""
    request, mechanism = outcome.request, outcome.mechanisms[name]
    row: dict[str, Any] = {
        "mechanism": name,
        "sigma": mechanism.parameters()["sigma"],
        "guarantee": guarantee,
        "epsilon": None,
        "answered": 0,
        "abstained": 0,
        **dict.fromkeys(FIGURES),
    }
    outcome.rows.append(row)
    try:
        release = label(
            outcome.ballots(mechanism),
            mechanism=mechanism,
            epsilon=request.epsilon,
            delta=request.delta,
            guarantee=guarantee,
            queries=None if guarantee == "worst-case" else request.queries,
            seed=None if request.seed is None else request.seed + place,
        )
    except BudgetError:
        return
    row |= {
        "epsilon": release.epsilon,
        "answered": release.answered,
        "abstained": release.abstained,
        **outcome.score(release.labels),
    }
    outcome.labels[name, guarantee] = release.labels
    _note_sealed(outcome, name, release)


def _note_sealed(outcome: Outcome, name: str, release: Release) -> None:
    """Keep what only the owner may see, in the mechanism's row."""
    if not outcome.sealed or outcome.sealed[-1]["mechanism"] != name:
        outcome.sealed.append({"mechanism": name})
    row = outcome.sealed[-1]
    if release.guarantee == "allowance":
        mechanism = outcome.mechanisms[name]
        ballots = outcome.ballots(mechanism)
        guess = np.zeros((ballots.queries, ballots.labels), np.bool_)
        _, wanted = surprises(mechanism, ballots, guess)
        row["voters_out"] = int((wanted > release.sealed.spent).sum())
    elif release.guarantee == "data-dependent":
        row["exact_per_query"] = float(release.sealed.epsilon)
        row["exact_by_voter"] = float(release.sealed.bills().max())


def _price(outcome: Outcome) -> None:
    request = outcome.request
    for row in outcome.sealed:
        mechanism = outcome.mechanisms[row["mechanism"]]
        curve = mechanism.total_rdp(outcome.ballots(mechanism), DEFAULT_ORDERS, "pate2018")
        row["pate2018"] = float(np.max(epsilon(curve, DEFAULT_ORDERS, request.delta)))
    budget = request.epsilon, request.delta
    found = queries_that_fit(outcome.mechanisms["binary"], outcome.votes, *budget)
    names = {"published": "data-dependent, published", "data-dependent": "data-dependent, exact"}
    outcome.fits = {names.get(name, name): count or 0 for name, count in found.items()}


def answers_by_sigma(request: Request) -> dict[str, dict[float, float]]:
    """Return what Binary can answer at several sigmas: public numbers, no votes."""
    out: dict[str, dict[float, float]] = {"allowance (forecast)": {}, "worst-case": {}}
    for sigma in (5.0, 10.0, 15.0, 20.0, 25.0, 30.0):
        mechanism = BinaryVoting(sigma=sigma)
        allowance = allowance_for(mechanism, *request.budget)
        lasts = queries_until_out(mechanism, 10, allowance, SURPRISES)
        out["allowance (forecast)"][sigma] = lasts
        out["worst-case"][sigma] = queries_for(mechanism, *request.budget)
    return out
