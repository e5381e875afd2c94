"""Errors in the words of the command line: the library names arguments, a verb has options.

Every verb is a :class:`Verb`. It spells an argument that one of its options is called after as that
option; :data:`ARGUMENTS` has the arguments that are called otherwise in the library.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from itertools import pairwise
from json import dumps
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from privote.errors import InputError, PrivoteError, PrivoteWarning, printable

from .options import derived
from .output import settle_shown

# What the library calls it, and what a verb may call it: the first that the verb has counts.
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "votes": ("--votes", "VOTES"),
    "voters": ("--voters", "VOTERS"),
    "rows": ("ROWS",),
    "mechanism": ("--mechanism",),
    "sigmas": ("--values",),
    "thresholds": ("--values",),
    "gate_thresholds": ("--values",),
    "taus": ("--values",),
    "norms": ("--norm",),
    "cost": ("--link-cost",),
    "order": ("--link-order",),
    "gate threshold": ("--gate-threshold",),
    "gate sigma": ("--gate-sigma",),
    "Ballots.clip": ("--clip",),
    "ledger": ("--ledger", "LEDGER"),
    "truth": ("--truth",),
    "Y_true": ("--truth",),
    "X": ("DATA", "ROWS"),
    "X_private": ("DATA",),
    "X_public": ("--public",),
    "y": ("--labels",),
    "Y": ("--labels",),
    "Y_private": ("--labels",),
    "n_teachers": ("--teachers",),
    "n_jobs": ("--jobs", "--workers"),
    "ids": ("--id-column",),
    "groups": ("--group-column",),
    "features": ("--columns",),
}


# Typer's own usage error, or click's in older versions of it.
_UsageError: Any = typer.BadParameter.__mro__[1]
_KINDS: dict[Any, str] = {float: "must be a number", int: "must be a whole number"}


class Verb(TyperCommand):
    """A verb whose errors name its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the options; one that is wrong is refused as everything else is."""
        return _read(super().parse_args, ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options; a flag takes no value, so its help names none."""
        return _flagged(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; what privote refuses is one line of stderr and an exit code."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _Said(self._spelling()).warn
                result = super().invoke(ctx)
                settle_shown(ctx.params.get("output"))
                return result
        except MemoryError:
            error: PrivoteError = InputError("sizes like these need more memory than there is")
        except PrivoteError as refused:
            error = refused
        more, sealed = "", getattr(error, "sealed", None)
        if sealed is not None and ctx.params.get("show_sealed"):
            more = f"\nfor the owner's eyes: {sealed}"
        elif sealed is not None and "show_sealed" in ctx.params:
            more = "; --show-sealed says which"
        refuse(error, self._spelling(), more, json=bool(ctx.params.get("json")))

    def _spelling(self) -> Spelling:
        spelling = Spelling((each.name or "", _shown(each)) for each in self.params)
        for argument, options in ARGUMENTS.items():
            known = [option for option in options if option in spelling.values()]
            if known:
                spelling[argument] = known[0]
        return spelling


def _shown(param: Any) -> str:
    """Return an option, or an argument, as it is typed."""
    option: bool = param.param_type_name == "option"
    return str(param.opts[0] if option else param.metavar or param.name.upper())


class Verbs(TyperGroup):
    """Verbs that belong together; says what an interrupt means."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read what comes before the verb."""
        return _read(super().parse_args, ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb."""
        return _read(super().resolve_command, ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options; a flag takes no value, so its help names none."""
        return _flagged(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        """Run the verb, until somebody interrupts it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo(
                "interrupted: no labels were released; where a ledger was given, privote ledger "
                "show says whether anything was charged",
                err=True,
            )
            raise typer.Exit(130) from None


def _flagged(params: list[Any]) -> list[Any]:
    for each in params:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return params


def _read(read: Callable[[Any, list[str]], Any], ctx: Any, args: list[str]) -> Any:
    """Return what typer reads from words; what it refuses is an error of ours."""
    given = list(args)
    try:
        return read(ctx, args)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError" or ctx.resilient_parsing:
            raise
        hint = f"\n{ctx.command_path} --help shows what there is"
        refuse(_as_data(error, given), Spelling(), hint, json="--json" in given)


def _as_data(error: Any, given: list[str]) -> InputError:
    """Return a usage error as the option, the rule and the value."""
    param, kind = getattr(error, "param", None), type(error).__name__
    if param is not None:
        option = _shown(param)
        if kind == "MissingParameter":
            return InputError(option, "must be given")
        wanted = getattr(getattr(param, "type_descriptor", None), "annotation", None)
        rule = _KINDS.get(wanted, f"cannot be read: {error.message}")
        said = [value for name, value in pairwise(given) if name in param.opts]
        said += [word.partition("=")[2] for word in given if word.startswith(f"{option}=")]
        return InputError(option, rule, *said[-1:])
    if kind == "NoSuchOption":
        near = get_close_matches(error.option_name, error.possibilities or (), n=1)
        rule = "is no option here" + (f"; there is {near[0]}" if near else "")
        return InputError(error.option_name, rule)
    if kind == "BadOptionUsage":
        return InputError(error.option_name, "needs a value")
    said_so: str = error.format_message()
    return InputError(said_so[:1].lower() + said_so[1:].rstrip("."))


def refuse(error: PrivoteError, spelling: Spelling, more: str = "", *, json: bool) -> NoReturn:
    """Say what was refused, on stderr and for programs on stdout, and leave with its exit code."""
    said = error.worded(spelling.spell) + more
    if json:  # a program reads stdout, where it expects an object
        facts: dict[str, Any] = {
            "argument": error.argument and spelling.spell(error.argument, None),
            "rule": PrivoteError(error.rule).worded(spelling.spell),
            "value": error.shown,
        }
        facts = {
            "error": said.splitlines()[0],
            "code": error.code,
            "exit_code": error.exit_code,
            **facts,
        }
        typer.echo(dumps(facts, indent=2))
    typer.echo(f"error: {printable(said, lines=True)}", err=True)
    raise typer.Exit(error.exit_code)


class Spelling(dict[str, str]):
    """What a verb calls each argument that it has an option for."""

    def spell(self, name: str, value: str | None) -> str:
        """Return an argument, and the value it is mentioned with, as options of the verb."""
        option = self.get(name)
        if option is None:
            return name if value is None else f"{name}={value}"
        said = {None: option, "None": f"no {option}", "True": option}
        return said.get(value, f"{option} {value}")


class _Said(set[str]):
    """Warnings that a verb has shown; each is said once, whoever else comes to it."""

    def __init__(self, spelling: Spelling) -> None:
        super().__init__()
        self._spelling = spelling

    def warn(
        self, message: Warning | str, category: type[Warning], *place: Any, **more: Any
    ) -> None:
        """Show a warning: what privote says of its input as one line, others as Python does."""
        text = str(message)
        if text in self:
            return
        self.add(text)
        if issubclass(category, PrivoteWarning):
            worded = PrivoteError(text).worded(self._spelling.spell)
            typer.echo(f"warning: {printable(worded)}", err=True)
        else:
            typer.echo(warnings.formatwarning(message, category, *place[:2]), err=True, nl=False)


def speak(app: typer.Typer) -> None:
    """Make every command of an application, and of those inside it, a :class:`Verb`."""
    app.info.cls = Verbs
    for command in app.registered_commands:
        command.cls = Verb
        if command.callback is not None and not hasattr(command.callback, "__signature__"):
            command.callback = derived()(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            speak(group.typer_instance)
