"""``privote plan``: before any vote, what to expect of labels, and what a mechanism buys."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from privote.errors import InputError

from . import options
from .options import Group, MechanismFlags, derived

if TYPE_CHECKING:
    from privote.mechanisms import Mechanism
    from privote.planning import Plan

Size = tuple[int, int, float, float]  # voters, labels, epsilon, delta


@dataclass(frozen=True, kw_only=True)
class Guess:
    """What is to be answered, and what the votes will be like.

    Attributes
    ----------
    queries
        How many are to be answered.
    yes
        The share of yes among all votes, as a guess; 0.1.
    """

    queries: int | None = None
    yes: float | None = None


@derived(
    mechanism=Group(of=MechanismFlags, instead={"name": (options.Name, "")}),
    votes=Group(of=Guess, panel="What to expect"),
)
def plan(
    *,
    mechanism: MechanismFlags,
    votes: Guess,
    epsilon: float,
    delta: float,
    voters: int,
    labels: int,
    surprises_per_query: float | None = None,
    wanted: int | None = None,
    rule: str = "exclusive",
    json: bool = False,
) -> None:
    r"""Say what to expect of labels; or how many queries a mechanism answers, or its noise.

    Example:

        privote plan --voters 250 --labels 20 --queries 1000 --epsilon 8 --delta 1e-5 --yes 0.1

    No votes are read, so every number may be published.

    Without --mechanism it is about the default of `privote label`: the noise on a tally, expected
    precision, recall and F1 of the labels, and what would help where that is not enough. It rests
    on a guess (--yes): if that is wrong, labels suffer and the promise does not.

    With --mechanism it is what that buys. "worst-case" is how many queries fit
    whatever the votes are. "allowance" is how many surprises each voter may cast in its life: 0 is
    a refusal, otherwise it answers any number of queries, but a voter who has run out counts as the
    baseline from then on. With --surprises-per-query the plan says when that happens: allowance /
    surprises.
    "missed" is how often a label that every voter wants is not released: if it is large, there is
    too much noise for so few voters.

    With --wanted sigma is solved for: under the allowance if --surprises-per-query is given, under
    the worst case if not.

    Parameters
    ----------
    surprises_per_query
        How many surprises the busiest voter casts on a query, on average: its yes-votes for binary,
        its non-empty ballots for the others. A guess, never from these votes.
    wanted
        Instead of --sigma: the smallest sigma for this many queries.
    rule : exclusive|shared
        How the budget adds up: exclusive to one mechanism, as without a ledger; or shared with
        others, as in a ledger that lasts.
    """
    where = (voters, labels, epsilon, delta)
    if not mechanism.name:
        if wanted is not None or surprises_per_query is not None:
            raise InputError("--wanted and --surprises-per-query go with --mechanism: give it too")
        _expect(where, votes, rule, json=json)
        return
    if votes != Guess():
        raise InputError("--queries and --yes go without --mechanism")
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


def _expect(where: Size, votes: Guess, rule: str, *, json: bool) -> None:
    """Print what to expect of labels."""
    if votes.queries is None:
        raise InputError("--queries must be given, or --mechanism for what that buys")
    from privote.planning import plan

    from .output import print_json, working

    given: dict[str, Any] = dict(zip(("voters", "labels", "epsilon", "delta"), where, strict=True))
    given |= {name: value for name, value in asdict(votes).items() if value is not None}
    with working("planning"):
        found = plan(**given, rule=rule)
    _warn_of_budget(where)
    if json:
        print_json(found.facts())
    else:
        _show_plan(found)


def _show_plan(found: Plan) -> None:
    from privote.accounting.renyi import rounded_up

    from .output import print_facts, say

    def percent(quality: dict[str, float]) -> str:
        return ", ".join(f"{name} {value:.0%}" for name, value in quality.items() if name != "f1")

    first, best = found.quality, found.quality_by_f1
    facts = {
        "expected": f"F1 {first['f1']:.2f} ({percent(first)})",
        "decided by F1": f"F1 {best['f1']:.2f} ({percent(best)})",
        "noise": f"{found.sigma:.3g} votes on a tally of {found.voters:,}: "
        f"{found.noise_per_voter:.2g} per voter",
        "allowance": f"about {found.allowance:,} surprises a voter, "
        + ("learnt from the votes" if found.learns else "fixed"),
        "electorate": f"{found.voters:,} voters, {found.labels:,} labels, {found.queries:,} "
        f"queries, {100 * found.yes:.3g}% of all votes a yes",
        "budget": f"epsilon {rounded_up(found.epsilon)}, delta {rounded_up(found.delta)}",
    }
    print_facts(facts, title="Plan")
    for sentence in found.changes:
        say(f"- {sentence}")
    say("No votes were read: these numbers may be published.")


def _solve(flags: MechanismFlags, where: Size, wanted: int, surprises: float | None) -> Mechanism:
    """Return the mechanism with the least noise for so many queries."""
    from privote.planning import sigma_for

    from .output import working

    if flags.noisy:
        raise InputError("--wanted solves for sigma: leave out --sigma, or --link-cost")
    tries = 0
    with working("solving for sigma") as tick:

        def make(sigma: float) -> Mechanism:
            nonlocal tries
            tries += 1
            tick(tries)
            return flags.build(sigma)

        sigma = sigma_for(
            make,
            *where,
            wanted,
            guarantee="worst-case" if surprises is None else "allowance",
            surprises_per_query=surprises,
        )
    scale = 10.0 ** (3 - math.floor(math.log10(sigma)))
    return flags.build(math.ceil(sigma * scale) / scale)  # four digits, on the side that fits


def _numbers(
    mechanism: Mechanism, where: Size, surprises: float | None, rule: str
) -> dict[str, Any]:
    from privote.planning import allowance_for, queries_for, queries_until_out

    from .output import working

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
            "missed": 1 - mechanism.unanimous(voters, labels),
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
