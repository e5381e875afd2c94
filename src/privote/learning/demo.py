"""The demo's work: labels from real votes, and a model of a table with words and gaps."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import metrics
from ..accounting.renyi import check_delta
from ..datasets import MultiLabelData, load_patients, load_teacher_votes
from ..errors import BudgetError, PrivoteWarning, positive, whole
from ..labelling import label
from ..mechanisms import BinaryVoting, Mechanism, PowersetVoting, TauVoting
from ..planning import Plan, plan, sigma_for
from ..votes.cube import Ballots
from .jobs import FIGURES
from .methods import AUTO
from .private import PrivateClassifier
from .rows import Labels
from .students.classifiers import LinearStudent
from .tables import TableEncoder

YES = 0.1  # public: about two of 22 labels are present in such a report
NO, OPEN = "always no", "not private"
MODELS = (NO, OPEN, AUTO, "gradients", "moments", "neighbours", "teachers")
MOST_LABELS = 4  # to which ballots are cut for Powerset
# Says what comes next, and of how many steps, while it lasts; yields who is told how many are done.
Telling = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the demo was asked for."""

    epsilon: float
    delta: float
    queries: int
    records: int
    seed: int | None

    def __post_init__(self) -> None:
        whole("queries", self.queries, 1, 4000)
        whole("records", self.records, 200)
        positive("epsilon", self.epsilon)
        check_delta(self.delta)


@dataclass(kw_only=True)
class Outcome:
    """What the demo found.

    Attributes
    ----------
    votes, truth
        (queries, voters, labels) of real teachers; and what they should have said.
    plan
        What public numbers say of these votes.
    rows
        One dict a release: what may be published, and how good the labels are.
    labels
        The released labels by mechanism and guarantee.
    sealed
        What depends on the votes, for the owner's eyes: what data-dependent answers cost, and how
        good the labels would be without noise.
    table
        Private, public and test rows of the table.
    models
        One dict a model of the table.
    chosen
        The model by default, fitted.
    """

    request: Request
    votes: npt.NDArray[np.bool_]
    truth: npt.NDArray[np.bool_]
    plan: Plan
    rows: list[dict[str, Any]] = field(default_factory=list)
    labels: dict[tuple[str, str], Labels] = field(default_factory=dict)
    sealed: dict[str, float] = field(default_factory=dict)
    table: tuple[MultiLabelData, MultiLabelData, MultiLabelData] | None = None
    models: list[dict[str, Any]] = field(default_factory=list)
    chosen: PrivateClassifier | None = None


def run_demo(request: Request, telling: Telling) -> Outcome:
    """Do everything but writing and showing it."""
    with telling("1/4  reading real votes, and asking what to expect: public numbers only", None):
        given = load_teacher_votes()
        votes, truth = given.votes[: request.queries], given.truth[: request.queries]
        expected = plan(
            voters=votes.shape[1],
            labels=votes.shape[2],
            epsilon=request.epsilon,
            delta=request.delta,
            queries=request.queries,
            yes=YES,
        )
        outcome = Outcome(request=request, votes=votes, truth=truth, plan=expected)
    ways = _ways(outcome)
    with telling("2/4  releasing labels: by default, and in other ways", len(ways)) as tick:
        for place, (how, mechanism, guarantee) in enumerate(ways):
            tick(place)
            _release(outcome, how, mechanism, guarantee, place)
    with telling(f"3/4  making up {request.records:,} visits of patients", None):
        sides = load_patients(request.records).split()  # no patient is on two of them
        outcome.table = sides.private, sides.public, sides.test
    with telling("4/4  training models on them, by default and otherwise", len(MODELS) - 1) as tick:
        for name in MODELS:
            if outcome.chosen is None or name != outcome.chosen.method_:  # it has its row already
                outcome.models.append(_model(outcome, name, *outcome.table))
                tick(len(outcome.models))
    return outcome


def _ways(outcome: Outcome) -> list[tuple[str, Mechanism | str, str]]:
    """Return how labels are released: name, mechanism and guarantee."""
    request = outcome.request
    voters, labels = outcome.votes.shape[1:]

    def least(make: Callable[[float], Mechanism], **given: Any) -> Mechanism:
        sizes = (request.epsilon, request.delta, request.queries)
        sigma = sigma_for(make, voters, labels, *sizes, **given)
        return make(math.ceil(100 * sigma) / 100)

    bits = least(
        lambda sigma: BinaryVoting(sigma=sigma),
        guarantee="allowance",
        surprises_per_query=YES * labels,
    )
    tau = least(lambda sigma: TauVoting(sigma=sigma, tau=1.5))
    powerset = least(lambda sigma: PowersetVoting(sigma=sigma, max_positives=MOST_LABELS))
    return [
        ("by default", AUTO, AUTO),
        *(("bits", bits, guarantee) for guarantee in ("allowance", "worst-case", "data-dependent")),
        ("tau", tau, "worst-case"),
        ("powerset", powerset, "worst-case"),
    ]


def _release(
    outcome: Outcome, how: str, mechanism: Mechanism | str, guarantee: str, place: int
) -> None:
    """Release once and note what may be published; a refusal is an answer too."""
    request = outcome.request
    shown, ballots = {"mechanism": AUTO}, Ballots.from_array(outcome.votes)
    if isinstance(mechanism, Mechanism):
        shown = mechanism.parameters()
        if mechanism.most_ones is not None:
            ballots = ballots.clip(mechanism.most_ones)
    row: dict[str, Any] = {
        "how": how,
        "mechanism": shown["mechanism"],
        "sigma": shown.get("sigma"),
        "guarantee": guarantee,
        "epsilon": None,
        "answered": 0,
        "recall": None,
        "precision": None,
        "BAC": None,
        "true": 0,
        "not true": 0,
    }
    outcome.rows.append(row)
    try:
        with warnings.catch_warnings():  # the page says what these would, once
            warnings.simplefilter("ignore", PrivoteWarning)
            release = label(
                ballots,
                mechanism=mechanism,
                epsilon=request.epsilon,
                delta=request.delta,
                guarantee=guarantee,
                queries=request.queries if guarantee == "data-dependent" else None,
                seed=None if request.seed is None else request.seed + place,
            )
    except BudgetError:
        return
    truth = outcome.truth[: release.answered]
    found = metrics.multilabel(truth, release.labels.astype(float), release.labels)
    row |= {"mechanism": release.mechanism["mechanism"], "sigma": release.mechanism["sigma"]}
    row |= {
        "guarantee": release.guarantee,
        "epsilon": release.epsilon,
        "answered": release.answered,
        "BAC": found["BAC"],
    }
    row |= {"recall": found["OR"], "precision": found["OP"]}
    ones = release.labels == 1
    row |= {"true": int((ones & truth).sum()), "not true": int((ones & ~truth).sum())}
    outcome.labels[how, release.guarantee] = release.labels
    if guarantee == "data-dependent":
        plain = (outcome.votes.mean(axis=1) > 0.5).astype(np.int8)
        found = metrics.multilabel(truth, plain.astype(float), plain)
        outcome.sealed = {
            "exact epsilon, by query": float(release.sealed.epsilon),
            "exact epsilon, by voter": float(release.sealed.bills().max()),
            "recall without noise": found["OR"],
            "precision without noise": found["OP"],
            "BAC without noise": found["BAC"],
        }


def _model(
    outcome: Outcome,
    name: str,
    private: MultiLabelData,
    public: MultiLabelData,
    test: MultiLabelData,
) -> dict[str, Any]:
    """Return one row: how good this model of the table is on the test rows."""
    epsilon = None
    if name == NO:
        chance = np.zeros(test.Y.shape)
        said = chance.astype(np.int8)
    elif name == OPEN:
        encoder = TableEncoder().fit(public.X)
        plain = LinearStudent().fit(encoder.numbers(private.X), private.Y)
        rows = encoder.numbers(test.X)
        chance, said = plain.predict_proba(rows), plain.predict(rows)
    else:
        model = PrivateClassifier(name, outcome.request.epsilon, outcome.request.delta)
        with warnings.catch_warnings():  # of methods other than the default, the figures say it
            if name != AUTO:
                warnings.simplefilter("ignore", PrivoteWarning)
            seed = outcome.request.seed
            model.fit(private.X, private.Y, public.X, groups=private.groups, seed=seed)
        if name == AUTO:
            outcome.chosen, name = model, f"{model.method_}, the default"
        chance, said = model.predict_proba(test.X), model.predict(test.X)
        epsilon = model.privacy_["epsilon"]
    found = metrics.multilabel(test.Y, chance, said)
    return {"model": name, "epsilon": epsilon} | {figure: found[figure] for figure in FIGURES}
