"""Which method learns best from private records: public numbers decide, before anything is spent.

The rule, and what to expect, rest on eight data sets at several sizes and budgets:
``experiments/expectations.py``, whose output ``experiments/results/expectations.txt`` has every
figure, also with one set left out. Votes were compared on six of them
(``experiments/results/methods.txt``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..accounting.renyi import check_delta, rounded_up
from ..errors import InputError, positive, whole

_VOTES = ("mechanism", "guarantee", "queries", "student", "embedding", "n_jobs")
_AND = ("electorate",)  # which is given to fit
_NETWORK = ("network", "weights", "epochs", "frozen", "device")
#: Every method, and which settings it takes, by the names of its estimator.
METHODS: Mapping[str, tuple[str, ...]] = {
    "teachers": (*_VOTES, *_AND, "teacher", "n_teachers", "threshold", *_NETWORK),
    "neighbours": (*_VOTES, *_AND),
    "gradients": ("embedding", "steps", "sample_rate"),
    "moments": ("embedding",),
    "dpsgd": ("steps", "sample_rate", "schedule", *_NETWORK),
}
AUTO = "auto"
VOTERS = ("teachers", "neighbours")

#: Gradients where records times epsilon, over labels to this power, reach this bar; else moments.
POWER, BAR = 2.0, 56.0
#: Below this signal, models on four of these data sets were right less often than always-no.
HOPELESS = 100.0
#: From which evidence on, how much of their AUC above one half labels kept: in the worst of these
#: data sets, in the middle one (the median), and in the best. Never more than measured, and never
#: less with more evidence: the worst set has 0.24 in the first row, where only four sets have
#: labels.
KEPT = (
    (0.0, 0.16, 0.55, 0.83),
    (30.0, 0.16, 0.81, 0.97),
    (100.0, 0.16, 0.88, 0.98),
    (300.0, 0.72, 0.96, 0.98),
    (1000.0, 0.86, 0.98, 0.99),
    (3000.0, 0.98, 0.98, 0.99),
)
_NETWORKS_TOO = (
    "Those were linear models; networks by DPSGD, measured on three of the sets at epsilon 1 to "
    "10, had an AUC from 0.05 lower to 0.005 higher."
)
RARE = 0.05  # the share of records that carry a label which a warning speaks of
LITTLE, ENOUGH = 100.0, 300.0  # evidence of a rare label: below which it may be lost; is kept
_WEAKEST = 20.0  # epsilon: nobody is advised to take a larger one
_SHARES = (0.3, RARE, 0.01)  # of the records, that carry a label

_TEACHERS = 50  # for each label, at epsilon 1
_EACH, _EACH_NETWORK = 4, 100  # records of a teacher, at least
_FEWEST, _MOST, _MOST_OF_OTHERS = 10, 2000, 500  # teachers; linear ones are trained all at once


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What is public about a training, and all that decides how it is done.

    Attributes
    ----------
    records, persons
        Private records; or how many persons they are of, and then ``persons`` is True.
    labels
        How many there are. (Features do not count: an embedding stands in front of them.)
    public
        Public rows; 0 without any.
    epsilon, delta
        The budget.
    """

    records: int
    labels: int
    public: int
    epsilon: float
    delta: float
    persons: bool = False

    def __post_init__(self) -> None:
        for name in ("records", "labels"):
            whole(name, getattr(self, name))
        whole("public", self.public, 0)
        positive("epsilon", self.epsilon)
        check_delta(self.delta)

    @property
    def protected(self) -> str:
        """Who is protected: so many records, or persons."""
        return f"{self.records:,} {'persons' if self.persons else 'records'}"

    @property
    def predicted(self) -> str:
        """What is predicted: so many labels."""
        return "1 label" if self.labels == 1 else f"{self.labels:,} labels"

    @property
    def signal(self) -> float:
        """How far records stand out of the noise that a model of all labels needs."""
        return self.records * self.epsilon / math.sqrt(self.labels)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A method, and why.

    Attributes
    ----------
    method
        One of :data:`METHODS`.
    reasons
        Why, in short sentences.
    doubts
        What speaks against any hope for a useful model, in short sentences; most often empty.
    """

    method: str
    reasons: tuple[str, ...]
    doubts: tuple[str, ...] = field(default=())


def check_method(method: str, settings: Collection[str]) -> None:
    """Refuse a method that is not known, or that does not take one of these settings."""
    if method not in (AUTO, *METHODS):
        raise InputError("method", f"must be one of {', '.join((AUTO, *METHODS))}", method)
    for name in () if method == AUTO else settings:
        if name not in METHODS[method]:
            raise InputError(name, f"cannot be given with `method={method}`")


def choose(
    method: str, numbers: Numbers, *, settings: Collection[str] = (), images: bool = False
) -> Choice:
    """Return the method to take: the one that was asked for, or by the rule for ``"auto"``.

    Parameters
    ----------
    method
        What was asked for.
    numbers
        What is public.
    settings
        Names of settings that were given: a method that does not take them is out of the question.
    images
        Whether rows are images, which only votes and networks look at.
    """
    check_method(method, settings)
    if method != AUTO:
        if not numbers.public and method in (*VOTERS, "moments"):
            what = "the voters label" if method in VOTERS else "show how features correlate"
            raise InputError(
                "public",
                f"must be given with `method={method}`: public rows (which are not protected) "
                f"that {what}",
            )
        return Choice(method=method, reasons=("It was requested.",), doubts=doubts_of(numbers))
    ranked, why = rule(numbers), ""
    if images:
        ranked, why = ("teachers",), "The rows are images, which teachers can use. "
    elif not numbers.public:
        ranked, why = ("gradients",), "There are no public rows, and this method needs none. "
    order = ("dpsgd", *ranked) if "network" in settings else (*ranked, "dpsgd")
    fitting = [name for name in order if set(settings) <= set(METHODS[name])]
    if not fitting:
        raise InputError(f"no method takes all of these settings: {', '.join(sorted(settings))}")
    if fitting[0] != ranked[0]:
        why = f"The settings given ({', '.join(sorted(settings))}) belong to it. "
    reason = why or (
        f"{numbers.protected}, {numbers.predicted} and epsilon {rounded_up(numbers.epsilon)}: on "
        f"eight public data sets, {fitting[0]} was the better linear method on average at this "
        "noise level. "
    )
    return Choice(method=fitting[0], reasons=(reason.strip(),), doubts=doubts_of(numbers))


def rule(numbers: Numbers, power: float = POWER, bar: float = BAR) -> tuple[str, ...]:
    """Return the methods, best first.

    Gradients look at the records a hundred times, and moments once. So gradients find more where
    the noise allows it: with many records and few labels. Else moments do; they also have public
    rows to go by. Votes were never ahead by more than chance, with voters and students that are as
    linear as the rest.
    """
    direct = ("gradients", "moments")
    if numbers.records * numbers.epsilon / numbers.labels**power < bar:
        direct = ("moments", "gradients")
    return (*direct, "neighbours", "teachers")


def evidence(numbers: Numbers, share: float) -> float:
    """Return how far the records that carry a label stand out of the noise."""
    return numbers.signal * share


def kept(numbers: Numbers, share: float) -> tuple[float, float, float]:
    """Return how much of its AUC above one half a label that this share carries kept elsewhere.

    In the worst, the middle and the best of the data sets.
    """
    least = evidence(numbers, share)
    return next(shares for edge, *shares in reversed(KEPT) if least >= edge)  # type: ignore[return-value]


def kept_in_words(numbers: Numbers, share: float) -> str:
    """Return the same as one says it: the middle, and the range."""
    worst, middle, best = kept(numbers, share)
    return f"{100 * middle:.0f} % ({100 * worst:.0f} % to {100 * best:.0f} %)"


def expected(numbers: Numbers, method: str) -> tuple[str, ...]:
    """Return what privacy may cost, by how rare a label is, in sentences; from public numbers.

    How well labels can be told from features at all is not among them. Measured were gradients and
    moments, and dpsgd beside them; of a method that votes only the doubts are said.
    """
    if numbers.signal < HOPELESS or method in VOTERS:
        return doubts_of(numbers)
    shares = "; ".join(
        f"{kept_in_words(numbers, share)} if {100 * share:.0f} % of the records carry it"
        for share in _SHARES
    )
    return (
        "What privacy costs depends on how rare a label is. On eight public data sets, a label "
        "kept this share of its AUC above 0.5 (the middle data set, and worst to best): "
        f"{shares}. Labels that are hard to predict without privacy lost most.",
        *([_NETWORKS_TOO] if method == "dpsgd" else []),
        *doubts_of(numbers),
    )


def doubts_of(numbers: Numbers) -> tuple[str, ...]:
    """Return what speaks against a useful model, if anything does; from public numbers."""
    if numbers.signal < HOPELESS:
        least, so = HOPELESS, "were less accurate than always answering no"
        aim = "to beat that"
        what = f"{numbers.protected} are too few"
    elif evidence(numbers, RARE) < LITTLE:
        least = ENOUGH / RARE
        rare = f"only {100 * RARE:g} % of the records have"
        so = f"lost labels that {rare} and that are hard to predict"
        what, aim = f"for rare labels, {numbers.protected} are too few", "for them"
    else:
        return ()
    enough = math.ceil(least * math.sqrt(numbers.labels) / numbers.epsilon)
    budget = least * math.sqrt(numbers.labels) / numbers.records
    ways = [f"epsilon {rounded_up(budget, 3)}"] if budget <= _WEAKEST else []
    ways += ["fewer labels"] if numbers.labels > 1 else []
    return (
        f"{what} for {numbers.predicted} at epsilon {rounded_up(numbers.epsilon)}: on public data "
        f"sets, models with this much noise {so}. "
        f"{', or '.join([f'{enough:,} would be enough {aim}', *ways])}.",
    )


def teachers_for(numbers: Numbers, asked: Mapping[str, Any]) -> int:
    """Return how many teachers vote: public numbers decide.

    50 times the labels and two, over the root of epsilon, but no more than one for 4 records: the
    noise on a tally is the same for any number of voters, so that more of them stand out of it,
    until they know too little each. Fitted on ``experiments/results/soft_labels.txt``, six data
    sets of 350 to 10,000 records and 6 to 22 labels at epsilon 1 to 10: there students lose 0.0018
    AUC on average, and 0.009 at worst, to the best of the numbers that were tried. (60 is a little
    better there; two sets of ``experiments/methods.py``, scenes and patients, decided for 50.)

    Parameters
    ----------
    numbers
        What is public.
    asked
        Settings that the user gave: ``teacher`` counts here: any but a linear one gets 100 records
        at least.
    """
    many = _TEACHERS * (numbers.labels + 2) / math.sqrt(numbers.epsilon)
    linear = asked.get("teacher") is None
    many = min(many, numbers.records / (_EACH if linear else _EACH_NETWORK))
    return int(min(max(many, _FEWEST), _MOST if linear else _MOST_OF_OTHERS))
