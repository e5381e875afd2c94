"""Errors in the words of the command line: the library names arguments, a verb has options.

Every verb is a :class:`Verb`. It spells an argument that one of its options is called after as that
option; :data:`ARGUMENTS` has the arguments that are called otherwise in the library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperCommand

from privote.errors import InputError, PrivoteError

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
_NAME = r"(?:gate )?\w+"
# Names at the beginning, and what follows them where a message is about them.
_ABOUT = re.compile(
    rf"({_NAME}(?:(?:, | and ){_NAME})*)(?= (?:must|may|goes?|holds?|given|needs?|applies|both)\b)"
)
_ASIDE = re.compile(r"(\([^()]*\)|'[^']*')")


class Verb(TyperCommand):
    """A verb whose errors name its options."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; what privote refuses is said in the words of the command line."""
        try:
            return self._invoke(ctx)
        except PrivoteError as error:
            said = spelled(str(error), self._spelling())
            sealed = getattr(error, "sealed", None)
            if sealed is not None and ctx.params.get("show_sealed"):
                said += f"\nfor the owner's eyes: {sealed}"
            elif sealed is not None and "show_sealed" in ctx.params:
                said += "; --show-sealed says which"
            error.args = (said,)
            if ctx.params.get("json"):  # a program reads stdout, where it expects an object
                print_json({"error": said, "exit_code": error.exit_code})
            raise

    def _invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MemoryError:
            raise InputError("sizes like these need more memory than there is") from None

    def _spelling(self) -> dict[str, str]:
        """Return how this verb spells each argument that it has an option for."""
        own = {
            each.opts[0] if each.param_type_name == "option" else each.metavar or ""
            for each in self.params
        }
        spelling = {option[2:].replace("-", "_"): option for option in own if option[:2] == "--"}
        for argument, options in ARGUMENTS.items():
            known = [option for option in options if option in own]
            if known:
                spelling[argument] = known[0]
        return spelling


def spelled(message: str, spelling: Mapping[str, str]) -> str:
    """Return a message with the arguments it names spelled as options.

    An argument is known by where it stands: in front of its rule, in front of its value
    (``epsilon=8``), or by a name that is no English word. What stands in parentheses or quotes
    stays: a mechanism's settings, the axes of an array, a file's name.
    """
    about = _ABOUT.match(message)
    lead = "" if about is None else about[0]
    words = re.split(r"(, | and )", lead)
    parts = _ASIDE.split(message[len(lead) :])
    parts[::2] = [_sure(part, spelling) for part in parts[::2]]
    return "".join([*(spelling.get(word, word) for word in words), *parts])


def _sure(text: str, spelling: Mapping[str, str]) -> str:
    """Return a text with the arguments that can be nothing else spelled as options."""
    for name, option in spelling.items():
        alone = rf"(?<![\w.=/-]){re.escape(name)}"
        text = re.sub(rf"{alone}=None\b", f"no {option}", text)
        text = re.sub(rf"{alone}=True\b", option, text)
        text = re.sub(rf"{alone}=(?=\S)", f"{option} ", text)
        if not re.fullmatch("[a-z ]+", name):
            text = re.sub(rf"{alone}(?![\w.=/-])", option, text)
    return text


def speak(app: typer.Typer) -> None:
    """Make every command of an application, and of those inside it, a :class:`Verb`."""
    for command in app.registered_commands:
        command.cls = Verb
    for group in app.registered_groups:
        if group.typer_instance is not None:
            speak(group.typer_instance)
