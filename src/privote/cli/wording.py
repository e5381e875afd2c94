"""Errors in the words of the command line: the library names arguments, a verb has options.

Every verb is a :class:`Verb`. It spells an argument that one of its options is called after as that
option; :data:`ARGUMENTS` has the arguments that are called otherwise in the library.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperCommand

from privote.errors import InputError, PrivoteError, PrivoteWarning, printable

from .output import print_json

# What the library calls it, and what a verb may call it: the first that the verb has counts.
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "votes": ("--votes", "VOTES"),
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
    "n_jobs": ("--jobs",),
    "ids": ("--id-column",),
    "groups": ("--group-column",),
    "features": ("--columns",),
}


class Verb(TyperCommand):
    """A verb whose errors name its options."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; what privote refuses is one line of stderr and an exit code."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _warn
                return super().invoke(ctx)
        except MemoryError:
            error: PrivoteError = InputError("sizes like these need more memory than there is")
        except PrivoteError as refused:
            error = refused
        said = error.worded(self._spelling().spell)
        sealed = getattr(error, "sealed", None)
        if sealed is not None and ctx.params.get("show_sealed"):
            said += f"\nfor the owner's eyes: {sealed}"
        elif sealed is not None and "show_sealed" in ctx.params:
            said += "; --show-sealed says which"
        if ctx.params.get("json"):  # a program reads stdout, where it expects an object
            print_json({"error": said, "exit_code": error.exit_code})
        typer.echo(f"error: {printable(said)}", err=True)
        raise typer.Exit(error.exit_code) from None

    def _spelling(self) -> Spelling:
        own = {
            each.opts[0] if each.param_type_name == "option" else each.metavar or ""
            for each in self.params
        }
        spelling = Spelling(
            (option[2:].replace("-", "_"), option) for option in own if option[:2] == "--"
        )
        for argument, options in ARGUMENTS.items():
            known = [option for option in options if option in own]
            if known:
                spelling[argument] = known[0]
        return spelling


class Spelling(dict[str, str]):
    """What a verb calls each argument that it has an option for."""

    def spell(self, name: str, value: str | None) -> str:
        """Return an argument, and the value it is mentioned with, as options of the verb."""
        option = self.get(name)
        if option is None:
            return name if value is None else f"{name}={value}"
        said = {None: option, "None": f"no {option}", "True": option}
        return said.get(value, f"{option} {value}")


def _warn(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Show a warning: what privote says of its input as one line, others as Python does."""
    if issubclass(category, PrivoteWarning):
        typer.echo(f"warning: {printable(str(message))}", err=True)
    else:
        typer.echo(warnings.formatwarning(message, category, *place[:2]), err=True, nl=False)


def speak(app: typer.Typer) -> None:
    """Make every command of an application, and of those inside it, a :class:`Verb`."""
    for command in app.registered_commands:
        command.cls = Verb
    for group in app.registered_groups:
        if group.typer_instance is not None:
            speak(group.typer_instance)
