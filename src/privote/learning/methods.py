"""Which method learns best from private records: public numbers decide, before anything is spent.

The rule was fitted on what ``experiments/methods.py`` measured on six data sets; its output, with
every figure, is kept in ``experiments/results/methods.txt``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..accounting.renyi import check_delta, rounded_up
from ..errors import InputError, positive, whole

_VOTES = ("mechanism", "guarantee", "queries", "student", "embedding", "rounds", "n_jobs")
_AND = ("electorate",)  # which is given to fit
#: Every method, and which settings it takes, by the names of its estimator.
METHODS: Mapping[str, tuple[str, ...]] = {
    "teachers": (*_VOTES, *_AND, "teacher", "n_teachers", "threshold"),
    "neighbours": (*_VOTES, *_AND),
    "gradients": ("embedding", "steps", "sample_rate"),
    "moments": ("embedding",),
    "dpsgd": ("steps", "sample_rate", "network"),
}
AUTO = "auto"
VOTERS = ("teachers", "neighbours")

#: Gradients where records times epsilon, over labels to this power, reach this bar; else moments.
POWER, BAR = 2.0, 56.0
#: Below this signal, models on four of these data sets were right less often than always-no.
HOPELESS = 100.0
#: Up to which signal, the mean and the worst AUC that privacy cost the better of the two.
MEASURED = (
    (500.0, 0.066, 0.079),
    (1500.0, 0.034, 0.059),
    (4000.0, 0.023, 0.039),
    (math.inf, 0.008, 0.019),
)

_TEACHERS = 50  # for each label, at epsilon 1
_EACH = 4  # records of a teacher, at least
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
    fitting = [name for name in (*ranked, "dpsgd") if set(settings) <= set(METHODS[name])]
    if not fitting:
        raise InputError(f"no method takes all of these settings: {', '.join(sorted(settings))}")
    if fitting[0] != ranked[0]:
        why = f"The settings given ({', '.join(sorted(settings))}) belong to it. "
    reason = why or (
        f"{numbers.protected}, {numbers.predicted} and epsilon {rounded_up(numbers.epsilon)}: on "
        f"six public data sets, {fitting[0]} was the best method at this noise level. "
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


def expected(numbers: Numbers, method: str) -> tuple[str, ...]:
    """Return how good a model may be expected to be, in sentences; from public numbers.

    How well labels can be told from features at all is not among them. Where the model is expected
    to be of no use, that is all there is to say: such models are not among those measured.
    """
    if doubts := doubts_of(numbers):
        return doubts
    if method not in ("gradients", "moments"):
        return ()
    mean, worst = next(lost for most, *lost in MEASURED if numbers.signal < most)
    return (
        "On six public data sets, models at this noise level and number of records lost "
        f"{mean:.3f} of AUC on average, and {worst:.3f} at worst, against the same model without "
        "privacy.",
    )


def doubts_of(numbers: Numbers) -> tuple[str, ...]:
    """Return why a model is expected to be of no use, if it is; from public numbers."""
    if numbers.signal >= HOPELESS:
        return ()
    enough = math.ceil(HOPELESS * math.sqrt(numbers.labels) / numbers.epsilon)
    budget = HOPELESS * math.sqrt(numbers.labels) / numbers.records
    return (
        f"{numbers.protected} are too few for {numbers.predicted} at epsilon "
        f"{rounded_up(numbers.epsilon)}: on public data sets, models with this much noise were "
        f"less accurate than always answering no. {enough:,} would be enough, or epsilon "
        f"{rounded_up(budget, 3)}{', or fewer labels' if numbers.labels > 1 else ''}.",
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
        Settings that the user gave: ``teacher`` counts here.
    """
    many = _TEACHERS * (numbers.labels + 2) / math.sqrt(numbers.epsilon)
    most = _MOST if asked.get("teacher") is None else _MOST_OF_OTHERS
    return int(min(max(min(many, numbers.records / _EACH), _FEWEST), most))
