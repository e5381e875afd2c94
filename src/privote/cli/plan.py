"""``privote plan``: before any vote, what to choose, what it buys, and how much noise it takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privote.errors import InputError

from . import options
from .groups import Group, grouped
from .mechanism import MechanismFlags, kind_of, spelled

if TYPE_CHECKING:
    from privote.mechanisms import Mechanism
    from privote.planning import Advice

Size = tuple[int, int, float, float]  # voters, labels, epsilon, delta
_ADVICE = "Advice"


@dataclass(frozen=True, kw_only=True)
class Guess:
    """What is to be answered, and what the votes will be like."""

    queries: Annotated[
        int | None, typer.Option(help="How many are to be answered.", rich_help_panel=_ADVICE)
    ] = None
    yes: Annotated[
        float | None,
        typer.Option(help="The share of yes among all votes; 0.1.", rich_help_panel=_ADVICE),
    ] = None
    agreement: Annotated[
        float | None,
        typer.Option(
            help="The share of the voters that says yes to a wanted label; 0.8.",
            rich_help_panel=_ADVICE,
        ),
    ] = None
    most_ones: Annotated[
        int | None,
        typer.Option(
            help="The most labels that a ballot may say yes to, if the rules limit it.",
            rich_help_panel=_ADVICE,
        ),
    ] = None


@grouped(
    mechanism=Group(of=MechanismFlags, instead={"name": (options.Name, "")}),
    votes=Group(of=Guess),
)
def plan(
    mechanism: MechanismFlags,
    votes: Guess,
    epsilon: options.Epsilon,
    delta: options.Delta,
    voters: options.Voters,
    labels: options.Labels,
    surprises_per_query: Annotated[
        float | None,
        typer.Option(
            help="How many surprises the busiest voter casts on a query, on average: its yes-votes "
            "for binary, its non-empty ballots for the others. A guess, never from these votes."
        ),
    ] = None,
    wanted: Annotated[
        int | None,
        typer.Option(
            help="Instead of --sigma: the smallest sigma for this many queries. "
            "For tau, instead of --tau: the largest tau."
        ),
    ] = None,
    rule: Annotated[
        str,
        typer.Option(
            metavar="exclusive|shared",
            help="How the budget adds up: exclusive to one mechanism, as without a ledger; or "
            "shared with others, as in a ledger that lasts.",
        ),
    ] = "exclusive",
    json: options.Json = False,
) -> None:
    r"""Say what to choose; or how many queries a budget buys, or how much noise they need.

    Example:

        privote plan --voters 60 --labels 12 --epsilon 8 --delta 1e-5 --queries 400 --yes 0.18

    No votes are read, so every number may be published.

    Without --mechanism it is advice: the mechanism, guarantee, noise, bar and number of queries
    that promise the best labels for --queries, with reasons. It rests on what the votes will be
    like (--yes, --agreement), as a guess: if that is wrong, labels suffer and the promise does not.

    With --mechanism it is what that buys. "worst-case" is how many queries fit
    whatever the votes are. "allowance" is how many surprises each voter may cast in its life: 0 is
    a refusal, otherwise it answers any number of queries, but a voter who has run out counts as the
    baseline from then on. With --surprises-per-query the plan says when that happens: allowance /
    surprises.
    "missed" is how often a label that every voter wants is not released: if it is large, there is
    too much noise for so few voters.

    With --wanted sigma is solved for: under the allowance if --surprises-per-query is given, under
    the worst case if not. For tau with --sigma it is tau that is solved for: the largest that fits.
    """
    where = (voters, labels, epsilon, delta)
    if not mechanism.name:
        if wanted is not None or surprises_per_query is not None:
            raise InputError("--wanted and --surprises-per-query go with --mechanism: give it too")
        _advise(where, votes, rule, json=json)
        return
    if votes != Guess():
        raise InputError("--queries, --yes, --agreement and --most-ones go without --mechanism")
    if wanted is not None and rule != "exclusive":
        raise InputError(f"--wanted is solved for an exclusive budget, got --rule {rule!r}")
    if wanted is None:
        chosen = mechanism.build()
    else:
        chosen = _solve(mechanism, where, wanted, surprises_per_query)
    numbers = _numbers(chosen, where, surprises_per_query, rule)
    _warn_of_budget(where)
    if wanted is not None:
        numbers["wanted"] = wanted
    if json:
        from .output import print_json

        print_json(numbers)
    else:
        _show(chosen, numbers)


def _warn_of_budget(where: Size) -> None:
    from privote.ledger import Budget

    Budget(epsilon=where[2], delta=where[3]).warn(where[0])


def _advise(where: Size, votes: Guess, rule: str, *, json: bool) -> None:
    """Print what to choose, and why."""
    if votes.queries is None:
        raise InputError("--queries must be given for advice, or --mechanism for what it buys")
    from privote.planning import advise

    from .output import print_json
    from .progress import working

    given: dict[str, Any] = dict(zip(("voters", "labels", "epsilon", "delta"), where, strict=True))
    given |= {name: value for name, value in asdict(votes).items() if value is not None}
    with working("advising"):
        advice = advise(**given, rule=rule)
    _warn_of_budget(where)
    if json:
        print_json(advice.facts())
    else:
        _show_advice(advice)


def _show_advice(advice: Advice) -> None:
    from privote.accounting.renyi import rounded_up
    from privote.report.bill import noise

    from .output import print_facts, print_table, say

    outlook = advice.outlook
    facts = {
        "mechanism": str(advice.mechanism),
        "noise": noise(advice.mechanism.parameters(), outlook.voters),
        "guarantee": advice.guarantee,
        "queries": f"{advice.queries:,} of {advice.asked:,}",
        "electorate": f"{outlook.voters:,} voters, {outlook.labels:,} labels, "
        f"{100 * outlook.yes:.3g}% of all votes a yes",
        "budget": f"epsilon {rounded_up(advice.epsilon)}, delta {rounded_up(advice.delta)}",
    }
    if advice.allowance is not None:
        facts["allowance"] = f"{advice.allowance:,} surprises a voter, for life"
        facts["lasts about"] = (
            f"{advice.lasts:,} queries for the busiest voter, {advice.lasts_typical:,} for a "
            "typical one"
        )
    rows = [
        {
            "say yes to a wanted label": f"{each.agreement:.0%} of the voters"
            + (" (as stated)" if each.agreement == outlook.level else ""),
            "missed": f"{each.missed:.2g}",
            "false alarm": f"{each.false_alarm:.2g}",
        }
        for each in advice.expected
    ]
    print_facts(facts, title="Advice")
    print_table(rows, title="How often labels come out wrong")
    for sentence in (*advice.reasons, *advice.changes):
        say(f"- {sentence}")
    say("No votes were read: these numbers may be published.")


def _solve(flags: MechanismFlags, where: Size, wanted: int, surprises: float | None) -> Mechanism:
    """Return the mechanism with the least noise, or the least clipping, for so many queries."""
    from privote.planning import sigma_for, tau_for

    from .progress import working

    solvers: dict[str, Callable[..., float]] = {"sigma": sigma_for, "tau": tau_for}
    lacking = flags.lacking()
    if len(lacking) > 1:
        needed = " or ".join(spelled(first) for first, *_ in lacking)
        raise InputError(f"{needed} must be given with --wanted for mechanism {flags.name!r}")
    setting = lacking[0][0] if lacking else None
    if setting not in solvers:
        free = [group for group in kind_of(flags.name).needs() if group[0] in solvers]
        which = " and ".join(map(spelled, free[-1])) if free else "--wanted"
        raise InputError(f"--wanted solves for sigma, or for tau given sigma: leave out {which}")

    def make(value: float) -> Mechanism:
        given: Any = {setting: value}
        return replace(flags, **given).build()

    solve = solvers[setting]
    tries = 0
    with working(f"solving for {setting}") as tick:

        def counted(value: float) -> Mechanism:
            nonlocal tries
            tries += 1
            tick(tries)
            return make(value)

        value = solve(
            counted,
            *where,
            wanted,
            guarantee="worst-case" if surprises is None else "allowance",
            surprises_per_query=surprises,
        )
    return make(_rounded(value, up=setting == "sigma"))


def _rounded(value: float, *, up: bool) -> float:
    """Return four digits on the side that still fits: more noise, or more clipping."""
    scale = 10.0 ** (3 - math.floor(math.log10(value)))
    return (math.ceil(value * scale) if up else math.floor(value * scale)) / scale


def _numbers(
    mechanism: Mechanism, where: Size, surprises: float | None, rule: str
) -> dict[str, Any]:
    from privote.planning import allowance_for, queries_for, queries_until_out, unanimous_miss

    from .progress import working

    voters, labels, epsilon, delta = where
    with working("planning"):
        allowance = allowance_for(mechanism, *where, rule=rule)
        numbers: dict[str, Any] = {
            "mechanism": mechanism.parameters(),
            "voters": voters,
            "labels": labels,
            "epsilon": epsilon,
            "delta": delta,
            "rule": rule,
            "worst_case_queries": queries_for(mechanism, *where, rule=rule),
            "allowance": allowance,
            "allowance_counts": f"{mechanism.surprise_unit}s",
            "missed": unanimous_miss(mechanism, voters, labels),
        }
    if surprises is not None:
        numbers["surprises_per_query"] = surprises
        numbers["queries_until_out"] = queries_until_out(mechanism, labels, allowance, surprises)
    return numbers


def _show(mechanism: Mechanism, numbers: dict[str, Any]) -> None:
    from privote.accounting.renyi import rounded_up

    from .output import print_facts

    unit = "single votes" if numbers["allowance_counts"] == "votes" else "whole ballots"
    facts = {
        "mechanism": str(mechanism),
        "electorate": f"{numbers['voters']:,} voters, {numbers['labels']:,} labels",
        "budget": f"epsilon {rounded_up(numbers['epsilon'])}, delta {rounded_up(numbers['delta'])}",
        "worst-case": f"{numbers['worst_case_queries']:,} queries, whatever the votes",
        "allowance": f"{numbers['allowance']:,} surprises a voter, for life ({unit})",
    }
    if numbers["allowance"] == 0:
        facts["allowance"] = "refused: the budget buys not one surprise a voter"
    if "queries_until_out" in numbers:
        facts["lasts about"] = (
            f"{numbers['queries_until_out']:,} queries for a voter with "
            f"{numbers['surprises_per_query']:g} surprises a query"
        )
    facts["missed"] = f"{numbers['missed']:.2g} of the labels that every voter wants"
    caption = "No votes were read: these numbers may be published."
    print_facts(facts, title="Plan", caption=caption)
