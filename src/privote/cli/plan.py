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
    r"""Say what to expect of labels; or how many queries a mechanism answers.

    Example:

        privote plan --voters 250 --labels 20 --queries 1000 --epsilon 8 --delta 1e-5 --yes 0.1

    No votes are read, so every number may be published.

    Without --mechanism it is about the default of `privote label`: the noise on a tally, expected
    precision, recall and F1 of the labels, and what would help where that is not enough. It rests
    on a guess (--yes): if that is wrong, labels suffer and the promise does not.

    With --mechanism it is what that buys. "worst-case" is how many queries fit
    whatever the votes are. "allowance" is how many surprises each voter may cast in its life: 0 is
    a refusal, otherwise it answers any number of queries, but a voter who has run out counts as the
    baseline from then on.
    "missed" is how often a label that every voter wants is not released: if it is large, there is
    too much noise for so few voters.

    Parameters
    ----------
    queries
        How many are to be answered.
    yes : SHARE
        The share of yes among all votes, as a guess, never from the private ones; 0.1 by default.
    rule : exclusive|shared
        How the budget adds up: exclusive to one mechanism, as without a ledger; or shared with
        others, as in a ledger that lasts.
    """
    from privote import planning
    from privote.ledger import Budget

    from .output import print_json, working

    if mechanism.name and (queries is not None or "yes" in size):
        raise InputError("--queries and --yes go without --mechanism")
    if not mechanism.name and queries is None:
        raise InputError("--queries must be given, or --mechanism for what that buys")
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
    for sentence in found.changes:
        say(f"- {sentence}")
    say(_PUBLIC)


def _numbers(mechanism: Mechanism, rule: str = "exclusive", **size: Any) -> dict[str, Any]:
    """Return what a mechanism does within a budget."""
    from privote.planning import allowance_for, queries_for

    return {
        "mechanism": mechanism.parameters(),
        **size,
        "rule": rule,
        "worst_case_queries": queries_for(mechanism, rule=rule, **size),
        "allowance": allowance_for(mechanism, rule=rule, **size),
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
        "worst-case": f"{numbers['worst_case_queries']:,} queries, whatever the votes",
        "allowance": f"{numbers['allowance']:,} surprises a voter, for life ({unit})"
        if numbers["allowance"]
        else "refused: the budget buys not one surprise a voter",
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
    """Try settings on votes: how many queries each answers, and how good the labels are.

    Example:

        privote tune public-votes.npz --over sigma --epsilon 8 --delta 1e-5

    For each, how many of the file's queries fit the budget under every guarantee, and how much of
    the labels is wrong: the expected share of cells released otherwise than wanted. --over
    mechanism puts all mechanisms side by side.

    Not private: the figures depend on the votes, and choosing by them voids the guarantee. Tune on
    votes that are public or paid for, then label others.

    Parameters
    ----------
    over : sigma|tau|mechanism
        What to try.
    truth
        True labels (queries, labels): .npy, .npz or .csv. Unless told, those in the votes' .npz
        under 'truth'; or else what the voters want without noise.
    max_queries
        Look at the first N queries only.
    values : X[,X...]
        The sigmas or taus to try; a grid unless told.
    guarantee : NAME
        Whose answers count: allowance, worst-case or data-dependent.
    drop
        How much more may be wrong than without noise.
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
            raise InputError("values", "goes with `over=sigma` and `over=tau`", values)
        also = [kind_of(mechanism.name)]
        budget = asked["epsilon"], asked["delta"]
        tried = planning.variants(voters, *budget, mechanism.sigma, also)
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
            raise InputError("sigma", "is what is tried: give `values`")
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
        say(f"Nothing whose wrong labels stay {limit} answers a query under {tuning.guarantee}.")
        return
    say(
        f"{chosen.mechanism} answers most under {tuning.guarantee} "
        f"({chosen.fits[tuning.guarantee]:,} queries) while wrong labels stay {limit}. Label other "
        "votes with it, never these."
    )
