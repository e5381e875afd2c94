"""``privote plan`` and ``privote tune``: what a budget buys, by public numbers and by votes."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privote.errors import InputError

from . import options
from .options import Group, MechanismFlags, derived, kind_of

if TYPE_CHECKING:
    from privote.mechanisms import Mechanism
    from privote.planning import Plan, Tuning

OVER = ("sigma", "tau", "mechanism")
_PUBLIC = "No votes were read: these numbers may be published."
_COUNTED = {
    "allowance": "allow-\nance",
    "worst-case": "worst\ncase",
    "data-dependent": "data-\ndep.",
}


@derived(
    size=Group(of="plan", without=("queries",), panel="What to expect"),
    mechanism=Group(of=MechanismFlags, instead={"name": (options.Name, "")}),
)
def plan(
    *,
    size: dict[str, Any],
    mechanism: MechanismFlags,
    queries: int | None = None,
    json: bool = False,
) -> None:
    r"""Forecast the quality of labels, or how many queries a mechanism can answer.

    Example:

        privote plan --voters 250 --labels 20 --queries 1000 --epsilon 8 --delta 1e-5 --yes 0.1

    No votes are read, so every number may be published.

    Without --mechanism, it forecasts the default of `privote label`: the noise on each tally, the
    expected F1 of the labels, for voters who agree (clear), for middling ones, and for voters who
    are divided on rare labels (unclear). Nothing public tells these apart: a pilot of few queries
    at a small epsilon does. The forecast depends on a guess (--yes). A wrong guess makes the
    forecast wrong; it does not weaken the privacy guarantee.

    With --mechanism, it shows what that mechanism can do within the budget. "worst-case" is how
    many queries fit, for any votes. "allowance" is how many surprises each voter may cast over all
    queries; a voter who has used it up counts as the baseline from then on. With an allowance of 0
    the mechanism is refused. "missed" is how often a label that every voter wants is not released;
    if it is large, there is too much noise for so few voters.

    Parameters
    ----------
    queries
        Number of queries to answer.
    yes : SHARE
        A guess of the share of yes among all votes; default 0.1. Do not compute it from the private
        votes.
    """
    from privote import planning
    from privote.ledger import Budget

    from .output import print_json, working

    if mechanism.name and (queries is not None or "yes" in size):
        raise InputError("--queries and --yes cannot be combined with --mechanism")
    if not mechanism.name and queries is None:
        raise InputError("give --queries, or --mechanism to see what a mechanism can do")
    chosen = mechanism.build() if mechanism.name else None
    with working("planning"):
        if chosen is None:
            found = planning.plan(queries=queries or 0, **size)
        else:
            numbers = _numbers(chosen, **size)
    Budget(epsilon=size["epsilon"], delta=size["delta"]).warn(size["voters"])
    if json:
        print_json(found.facts() if chosen is None else numbers)
    elif chosen is None:
        _show_plan(found)
    else:
        _show_bought(chosen, numbers)


def _show_plan(found: Plan) -> None:
    from .output import print_facts, say

    print_facts(found.brief(), title="Plan")
    say(_PUBLIC)


def _numbers(mechanism: Mechanism, **size: Any) -> dict[str, Any]:
    """Return what a mechanism does within a budget."""
    from privote.planning import allowance_for, queries_for

    return {
        "mechanism": mechanism.parameters(),
        **size,
        "worst_case_queries": queries_for(mechanism, **size),
        "allowance": allowance_for(mechanism, **size),
        "allowance_counts": f"{mechanism.surprise_unit}s",
        "missed": 1 - mechanism.unanimous(size["voters"], size["labels"]),
    }


def _show_bought(mechanism: Mechanism, numbers: dict[str, Any]) -> None:
    from privote.accounting.renyi import rounded_up

    from .output import print_facts

    unit = "single votes" if numbers["allowance_counts"] == "votes" else "whole ballots"
    facts = {
        "mechanism": str(mechanism),
        "electorate": f"{numbers['voters']:,} voters, {numbers['labels']:,} labels",
        "budget": f"epsilon {rounded_up(numbers['epsilon'])}, delta {rounded_up(numbers['delta'])}",
        "worst-case": f"{numbers['worst_case_queries']:,} queries, for any votes",
        "allowance": f"{numbers['allowance']:,} surprises per voter in total ({unit})"
        if numbers["allowance"]
        else "refused: the budget does not allow one surprise per voter",
        "missed": f"{numbers['missed']:.2g} of the labels that every voter wants",
    }
    print_facts(facts, title="Plan", caption=_PUBLIC)


# -- on votes --------------------------------------------------------------------------------------


@derived(
    asked=Group(of="planning:tune", only=("epsilon", "delta", "guarantee", "drop")),
    mechanism=Group(of=MechanismFlags, instead={"name": (options.Name, "binary")}),
)
def tune(
    votes: str,
    *,
    over: str,
    asked: dict[str, Any],
    mechanism: MechanismFlags,
    truth: Path | None = None,
    threshold: str | None = None,
    max_queries: int = 1000,
    values: str | None = None,
    json: bool = False,
) -> None:
    """Compare settings on votes: queries answered, and quality of the labels.

    Example:

        privote tune public-votes.npz --over sigma --epsilon 8 --delta 1e-5

    For each setting: how many of the file's queries fit the budget under each guarantee, and the
    expected share of labels that come out wrong. --over mechanism compares all mechanisms.

    Not private: the figures depend on the votes, and a setting chosen from them voids the
    guarantee. Tune on votes that are public or already paid for, then label other votes.

    Parameters
    ----------
    over : sigma|tau|mechanism
        What to vary.
    truth
        True labels, shape (queries, labels): .npy, .npz or .csv. Default: the array 'truth' in the
        votes' .npz, or else the noise-free outcome.
    max_queries
        Use only the first N queries.
    values : X[,X...]
        The values of sigma (in votes) or tau to try; default: a grid.
    guarantee : NAME
        Choose the best setting for this guarantee: allowance, worst-case or data-dependent.
    drop
        Largest accepted increase of the share of wrong labels, compared with no noise.
    """
    from privote import planning
    from privote.errors import whole
    from privote.labelling import read_as, warn_of_axes
    from privote.votes.cube import Ballots

    from .files import read_truth
    from .output import print_json, stages

    if over not in OVER:
        raise InputError("over", f"must be one of {', '.join(OVER)}", over)
    ballots = Ballots.of(votes, threshold=options.numbers("threshold", threshold))
    assert isinstance(ballots, Ballots)  # a file is dense
    warn_of_axes(ballots)
    queries, voters, labels = ballots.shape
    head = min(whole("max_queries", max_queries), queries)
    known = read_truth(votes, truth, ballots)
    wanted = options.numbers("values", values)
    grid = None if wanted is None else [wanted] if isinstance(wanted, float) else wanted
    tried: list[Mechanism]
    if over == "mechanism":
        if grid is not None:
            raise InputError("values", "needs `over=sigma` or `over=tau`", values)
        also = [kind_of(mechanism.name)]
        tried = planning.variants(voters, mechanism.sigma, also)
    else:
        tried = planning.candidates(over, _built(over, mechanism), voters, labels, grid)
    with stages() as tell:
        tuning = planning.tune(
            ballots.head(head).to_array(),
            tried,
            None if known is None else known[:head],
            progress=lambda done, total: tell(f"trying {over}", done, total),
            **asked,
        )
    said = read_as(ballots)
    if json:
        print_json({**tuning.facts(), "read_as": said})
    else:
        _show_tuning(tuning, said)


def _built(over: str, flags: MechanismFlags) -> Mechanism:
    """Return the mechanism whose sigma or tau is tried."""
    if over == "sigma":
        if flags.sigma is not None:
            raise InputError("sigma", "is the setting that varies: give `values` instead")
        return flags.build(1.0)
    name = flags.name if "tau" in kind_of(flags.name).settings() else "tau"
    return replace(flags, name=name, tau=1.0).build()


def _show_tuning(tuning: Tuning, read_as: str) -> None:
    from privote.accounting.renyi import rounded_up
    from privote.planning import NOT_PRIVATE
    from privote.report.tables import Column

    from .output import print_table, say

    say(f"NOT PRIVATE. {NOT_PRIVATE}\nVotes were read as {read_as}.\n")
    chosen = tuning.chosen
    rows = [
        {
            "mechanism": str(trial.mechanism),
            **trial.fits,
            **asdict(trial.quality),
            "chosen": "*" if trial is chosen else "",
        }
        for trial in tuning.trials
    ]
    print_table(
        rows,
        columns=[
            Column(key="mechanism"),
            *(Column(key=name, heading=heading) for name, heading in _COUNTED.items()),
            Column(key="wrong", digits=4),
            Column(key="missed"),
            Column(key="false_alarm", heading="false\nalarm"),
            Column(key="chosen", heading=""),
        ],
        title=f"Queries of {tuning.queries:,} that fit epsilon {rounded_up(tuning.epsilon)} at "
        f"delta {rounded_up(tuning.delta)} ({tuning.voters:,} voters, {tuning.labels:,} labels)",
        caption=f"Labels: expected over all queries, against the {tuning.against}.",
    )
    for name, why in tuning.left_out.items():
        say(f"left out: {name}: {why}")
    limit = f"within {tuning.drop:g} of the best noise-free outcome"
    if chosen is None:
        say(f"No setting with wrong labels {limit} answers a query under {tuning.guarantee}.")
        return
    say(
        f"{chosen.mechanism} answers the most queries under {tuning.guarantee} "
        f"({chosen.fits[tuning.guarantee]:,}) with the share of wrong labels {limit}. Use it to "
        "label other votes, never these."
    )
