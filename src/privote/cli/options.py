"""Options that several verbs share, and a mechanism made of them.

A verb is a function with an explicit signature. What its own options mean stands in its docstring,
under "Parameters"; what a shared one means stands here, once.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privote.errors import InputError

if TYPE_CHECKING:
    from privote.mechanisms import Mechanism


def _option(text: str, *names: str, metavar: str | None = None, panel: str | None = None) -> Any:
    return typer.Option(*names, help=text, metavar=metavar, rich_help_panel=panel)


_BUDGET, _MECHANISM = "Budget", "Mechanism"

Epsilon = Annotated[
    float,
    _option(
        "What this run may cost, with --delta. Replacing one voter's ballots (in train: one record "
        "or person; in a poll: one ballot) changes the probability of any outcome by a factor of "
        "at most e^epsilon. A smaller epsilon protects better.",
        panel=_BUDGET,
    ),
]
Delta = Annotated[
    float,
    _option(
        "The probability that the epsilon bound may fail. Choose it well below 1 / (number of "
        "voters or persons), e.g. 1e-5.",
        panel=_BUDGET,
    ),
]
LedgerPlace = Annotated[
    str | None,
    _option(
        "The ledger of charges: a file, or a postgresql:// address with --beside.",
        metavar="FILE|ADDRESS",
        panel=_BUDGET,
    ),
]
Beside = Annotated[
    str | None,
    _option(
        "For a ledger in PostgreSQL: keep its key and anchor on this machine, as NAME.key and "
        "NAME.head.",
        metavar="NAME",
        panel=_BUDGET,
    ),
]
Dataset = Annotated[
    str | None,
    _option(
        "The data set's name in the ledger (default: default). Its budget is for all runs "
        "together.",
        metavar="NAME",
        panel=_BUDGET,
    ),
]
Total = Annotated[
    float | None,
    _option(
        "The epsilon that all runs of the data set may cost together, given at its first run; "
        "default: this run's epsilon, so that nothing is left for others.",
        "--budget",
        metavar="EPSILON",
        panel=_BUDGET,
    ),
]
# Where the verb says what they mean.
Output = Annotated[Path, typer.Option()]
Count = Annotated[int, typer.Option()]
Name = Annotated[str, typer.Option()]

Seed = Annotated[
    int | None,
    _option("Draw repeatable noise. The result is marked as simulated and protects nobody."),
]
Force = Annotated[bool, _option("Overwrite existing output.")]
Resume = Annotated[
    bool,
    _option(
        "Finish a run that failed after it was charged: repeat the same command with this option. "
        "No further charge."
    ),
]
DryRun = Annotated[bool, _option("Say what the run would cost and what to expect, and stop there.")]
Anyway = Annotated[
    bool, _option("Go on where the noise is at least the number of voters, whatever they vote.")
]
ShowSealed = Annotated[bool, _option("Also show sealed numbers, which must not be published.")]
Verbose = Annotated[bool, _option("Show everything that is said about the result.")]
Json = Annotated[bool, _option("Write JSON to stdout instead of tables.")]

MechanismName = Annotated[
    str,
    _option(
        "How a tally becomes labels: tally, binary, tau, powerset or plurality; or "
        "package.module:Class, a class of your own, which is imported and so runs.",
        "--mechanism",
        metavar="NAME",
        panel=_MECHANISM,
    ),
]
Sigma = Annotated[
    float | None,
    _option(
        "Standard deviation of the noise, in votes: PATE's sigma_GNMax. For tally: of the noise "
        "added to each tally.",
        panel=_MECHANISM,
    ),
]
Tau = Annotated[
    float | None, _option("tau, tally: the largest norm of a ballot.", panel=_MECHANISM)
]
Norm = Annotated[
    int | None,
    _option("tau: the norm that is clipped, 2 or 1 (Private-kNN).", panel=_MECHANISM),
]
MaxPositives = Annotated[
    int | None, _option("powerset: the most ones that a ballot may have.", panel=_MECHANISM)
]
Quota = Annotated[
    float | None,
    _option(
        "binary: a label is 1 if more than this share of the voters want it; default: one half.",
        metavar="SHARE",
        panel=_MECHANISM,
    ),
]
FalseAlarm = Annotated[
    float | None,
    _option(
        "binary: instead of a quota, how often a label that nobody wants may be released.",
        metavar="P",
        panel=_MECHANISM,
    ),
]
GateThreshold = Annotated[
    float | None,
    _option("The gate: a label is withheld unless so many voters agree.", panel=_MECHANISM),
]
GateSigma = Annotated[
    float | None,
    _option("The gate: standard deviation of its noise, in votes.", panel=_MECHANISM),
]
Settings = Annotated[
    list[str] | None,
    _option(
        "A setting of a mechanism of your own; may be repeated.",
        "--set",
        metavar="NAME=VALUE",
        panel=_MECHANISM,
    ),
]


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


# -- a ledger --------------------------------------------------------------------------------------


def account_of(
    ledger: str | None, beside: str | None, dataset: str | None, budget: float | None
) -> Any:
    """Return whom a run is charged to; what needs a ledger is refused without one."""
    from privote.ledger import Account, Location

    needing = {"beside": beside, "dataset": dataset, "budget": budget}
    for argument, value in needing.items():
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


def settings_of(others: list[str] | None, **given: Any) -> dict[str, Any]:
    """Return the settings that were given: those with an option of their own, and others."""
    values = {name: value for name, value in given.items() if value is not None}
    for text in others or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError("settings", "must be NAME=VALUE", text)
        try:
            values[name.strip()] = json.loads(value)
        except ValueError:
            values[name.strip()] = value
    return values


def mechanism_of(name: str, settings: dict[str, Any]) -> Mechanism | None:
    """Return the mechanism that was named, with its settings; None for auto."""
    if name in ("", "auto"):
        if settings:
            raise InputError(f"--{next(iter(settings)).replace('_', '-')} needs --mechanism")
        return None
    from privote.mechanisms import MECHANISMS, Gate

    kind, settings = kind_of(name), dict(settings)
    gate = {part: settings.pop(f"gate_{part}", None) for part in ("threshold", "sigma")}
    if None not in gate.values():
        settings["gate"] = Gate(**gate)
    elif set(gate.values()) != {None}:
        raise InputError("--gate-threshold and --gate-sigma must be given together")
    for setting in settings.keys() - {*kind.settings()}:
        owners = [of for of, other in MECHANISMS.items() if setting in other.settings()]
        raise InputError(
            f"--{setting.replace('_', '-')} applies to mechanism "
            f"{', '.join(map(repr, owners)) or 'nothing'}, not to {name!r}"
        )
    for each in fields(kind):
        if each.name not in settings and each.default is each.default_factory is MISSING:
            raise InputError(f"--{each.name.replace('_', '-')} is required for mechanism {name!r}")
    return kind(**settings)
