"""Options that several verbs share: what they mean, and what is made of them.

A verb is a function with an explicit signature. What an option means stands in the docstring of the
verb, or here if it means the same everywhere.

Parameters
----------
epsilon
    What this run may cost, with --delta. Replacing one voter's ballots (in train: one record or
    person; in a poll: one ballot) changes the probability of any outcome by a factor of at most
    e^epsilon. A smaller epsilon protects better.
delta
    The probability that the epsilon bound may fail. Choose it well below 1 / (number of voters or
    persons), e.g. 1e-5.
ledger : FILE|ADDRESS
    The ledger of charges: a file, or a postgresql:// address with --beside.
beside : NAME
    For a ledger in PostgreSQL: keep its key and anchor on this machine, as NAME.key and NAME.head.
dataset : NAME
    The data set's name in the ledger (default: default). Its budget is for all runs together.
budget : EPSILON
    The epsilon that all runs of the data set may cost together, given at its first run; default:
    this run's epsilon, so that nothing is left for others.
mechanism : NAME
    How a tally becomes labels: tally, binary, tau, powerset or plurality; or package.module:Class,
    a class of your own, which is imported and so runs.
sigma
    Standard deviation of the noise, in votes: PATE's sigma_GNMax. For tally: of the noise added to
    each tally.
tau
    tau, tally: the largest norm of a ballot.
norm
    tau: the norm that is clipped, 2 or 1 (Private-kNN).
max_positives
    powerset: the most ones that a ballot may have.
quota : SHARE
    binary: a label is 1 if more than this share of the voters want it; default: one half.
false_alarm : P
    binary: instead of a quota, how often a label that nobody wants may be released.
gate_threshold
    The gate: a label is withheld unless so many voters agree.
gate_sigma
    The gate: standard deviation of its noise, in votes.
settings : NAME=VALUE
    A setting of a mechanism of your own; may be repeated.
voters
    Number of voters.
labels
    Number of labels per ballot.
seed
    Draw repeatable noise. The result is marked as simulated and protects nobody.
force
    Overwrite existing output.
resume
    Finish a run that failed after it was charged: repeat the same command with this option. No
    further charge.
dry_run
    Say what the run would cost and what to expect, and stop there.
anyway
    Go on where the noise is at least the number of voters, whatever they vote.
show_sealed
    Also show sealed numbers, which must not be published.
verbose
    Show everything that is said about the result.
json
    Write JSON to stdout instead of tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privote.errors import InputError

if TYPE_CHECKING:
    from privote.ledger import Account
    from privote.mechanisms import Mechanism

# Options that must be given, and one that is called otherwise than its parameter.
Number = Annotated[float, typer.Option()]
Count = Annotated[int, typer.Option()]
Name = Annotated[str, typer.Option()]
File = Annotated[Path, typer.Option()]
Settings = Annotated[list[str] | None, typer.Option("--set")]

_GATE = ("gate_threshold", "gate_sigma")
_SETTINGS = ("sigma", "tau", "norm", "max_positives", "quota", "false_alarm", *_GATE)
#: Under which heading help shows an option.
PANELS = {
    **dict.fromkeys((*_SETTINGS, "mechanism", "settings", "clip"), "Mechanism"),
    **dict.fromkeys(("epsilon", "delta", "guarantee", "ledger", "beside"), "Budget"),
    **dict.fromkeys(("dataset", "budget", "electorate", "plan_for"), "Budget"),
}


def words_of(doc: str) -> tuple[str, dict[str, tuple[str, str | None]]]:
    """Return a NumPy docstring without its parameters, and by name their help and metavar."""
    text, _, parameters = doc.partition("\nParameters\n----------\n")
    words: dict[str, tuple[str, str | None]] = {}
    for head, lines in re.findall(r"^(\S.*)\n((?: {4}.*\n?)+)", parameters, re.MULTILINE):
        names, _, metavar = head.partition(" : ")
        words |= dict.fromkeys(names.split(", "), (" ".join(lines.split()), metavar or None))
    return text, words


def numbers(argument: str, text: str | None) -> float | list[float] | None:
    """Return a comma list of numbers, or the number alone if it is one; None if not given."""
    if text is None:
        return None
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(argument, "must be a number or a list: 0.1,0.2", text) from None
    return values[0] if len(values) == 1 else values


def names(text: str | None) -> tuple[str, ...] | None:
    """Return a comma list of names; None if it was not given."""
    return None if text is None else tuple(name.strip() for name in text.split(","))


def account_of(
    ledger: str | None, beside: str | None, dataset: str | None, budget: float | None
) -> Account:
    """Return whom a run is charged to; what needs a ledger is refused without one."""
    from privote.ledger import Account, Location

    for argument, value in {"beside": beside, "dataset": dataset, "budget": budget}.items():
        if ledger is None and value is not None:
            raise InputError(argument, "needs `ledger`")
    place = None if ledger is None else Location.of(ledger, beside)
    return Account(ledger=place, dataset=dataset or "default", budget=budget)


# -- a mechanism -----------------------------------------------------------------------------------


def kind_of(name: str) -> type[Mechanism]:
    """Return the mechanism of this name; ``package.module:Class`` is imported, which runs it."""
    from privote.mechanisms import MECHANISMS, Mechanism

    if name in MECHANISMS:
        return MECHANISMS[name]
    module, colon, place = name.partition(":")
    if not colon:
        rule = f"must be one of {', '.join(MECHANISMS)}, or package.module:Class"
        raise InputError("mechanism", rule, name)
    try:
        kind = getattr(import_module(module), place)
    except Exception as error:  # somebody else's module may fail as it likes
        raise InputError(f"--mechanism {name!r} cannot be imported: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, Mechanism)):
        raise InputError("mechanism", "must be a class that extends privote.Mechanism", name)
    return kind


def settings_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the options of a verb give a mechanism."""
    values = {setting: given.get(setting) for setting in _SETTINGS}
    own = dict(map(_setting, given.get("settings") or ()))
    return {setting: value for setting, value in values.items() if value is not None} | own


def mechanism_of(given: Mapping[str, Any]) -> Mechanism | None:
    """Return the mechanism that the options of a verb name, with its settings; None for auto."""
    name, settings = str(given["mechanism"]), settings_of(given)
    if name in ("", "auto"):
        if settings:
            raise InputError(f"{_option(next(iter(settings)))} needs --mechanism")
        return None
    from privote.mechanisms import MECHANISMS, Gate

    kind, gate = kind_of(name), [settings.pop(part, None) for part in _GATE]
    if None not in gate:
        settings["gate"] = Gate(threshold=gate[0], sigma=gate[1])
    elif gate != [None, None]:
        raise InputError("--gate-threshold and --gate-sigma must be given together")
    for setting in settings.keys() - {*kind.settings()}:
        owners = [repr(of) for of, other in MECHANISMS.items() if setting in other.settings()]
        if not owners:
            has = ", ".join(kind.settings())
            raise InputError(f"{name!r} has no setting {setting!r}; it has {has}")
        owner = ", ".join(owners)
        raise InputError(f"{_option(setting)} applies to mechanism {owner}, not to {name!r}")
    for each in fields(kind):
        if each.name not in settings and each.default is each.default_factory is MISSING:
            raise InputError(f"{_option(each.name)} is required for mechanism {name!r}")
    return kind(**settings)


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError("settings", "must be NAME=VALUE", text)
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        return name.strip(), value


def _option(setting: str) -> str:
    return f"--{setting.replace('_', '-')}" if setting in _SETTINGS else f"--set {setting}"
