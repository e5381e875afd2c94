"""What a verb says: results on stdout; refusals, warnings and progress on stderr.

Results are tables for people, or JSON and nothing else. The library names arguments, a verb has
options: every verb is a :class:`Verb`, which spells an argument as the option of that name, or as
:data:`ARGUMENTS` has it.

Standard output may be full, closed, or a pipe whose reader leaves. Then the work goes on, and what
becomes of it is said in one place, :func:`check_shown`: a verb has its results on disk before it
prints, or it has none but what it prints.
"""

from __future__ import annotations

import errno
import json as jsonlib
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from privote.errors import (
    CompleteError,
    InputError,
    PrivoteError,
    PrivoteWarning,
    StorageError,
    masked,
    printable,
)

from . import options

if TYPE_CHECKING:
    from privote.guarantees import Fact, Guarantee

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PIPED_WIDTH = 100  # nobody resizes a pipe: wide enough for every table here
Tick = Callable[[int], None]
# What the library calls it, and what a verb may call it: the first that the verb has counts.
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "votes": ("--votes", "VOTES"),
    "ledger": ("--ledger", "LEDGER"),
    "settings": ("--set",),
    "X": ("DATA", "ROWS"),
    "n_teachers": ("--teachers",),
    "n_jobs": ("--jobs", "--workers"),
    "ids": ("--id-column",),
    "groups": ("--group-column",),
    "features": ("--columns",),
    "gate threshold": ("--gate-threshold",),
    "gate sigma": ("--gate-sigma",),
    "X_private": ("DATA",),
    "X_public": ("--public",),
    **dict.fromkeys(("truth", "Y_true"), ("--truth",)),
    **dict.fromkeys(("y", "Y", "Y_private"), ("--labels",)),
    "sigmas": ("--values",),
}
# Of a run that is repeated: what does not change it, and where its files lie.
_APART = ("output", "force", "resume", "show_sealed", "verbose", "json")
_FOLDERS = re.compile(r"^(\w+:)?.*/(?=.)")
# Typer's own usage error, or click's in older versions of it.
_UsageError: Any = typer.BadParameter.__mro__[1]
_KINDS: dict[Any, str] = {float: "must be a number", int: "must be an integer"}


# -- results ---------------------------------------------------------------------------------------


class _Stream:
    """A stream that may fail: what nobody can read is dropped, and why is remembered."""

    def __init__(self, stream: Any, lost: OSError | None = None) -> None:
        self._stream, self.lost = stream, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text, if that is possible."""
        try:
            return int(self._stream.write(text))
        except OSError as error:
            self._leave(error)
            return len(text)

    def flush(self) -> None:
        """Hand on what was written, if that is possible."""
        try:
            self._stream.flush()
        except OSError as error:
            self._leave(error)

    def _leave(self, error: OSError) -> None:
        self.lost = self.lost or error
        nobody = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nobody, self._stream.fileno())
        os.close(nobody)


def hold_streams() -> None:
    """Make standard output and error streams that may fail."""
    streams: Any = sys
    for name in ("stdin", "stdout", "stderr"):
        stream, lost = getattr(sys, name), None
        if stream is None:  # closed: a file that is opened next would be taken for it
            stream, lost = open(os.devnull, "r+"), OSError("it is closed")  # noqa: SIM115
        setattr(streams, name, stream if name == "stdin" else _Stream(stream, lost))


def check_shown(output: Any = None, *, pipe: bool = False) -> None:
    """Say what became of results, at the end of a verb, where they could not be printed.

    Those that are in ``output`` are there: that is one sentence. Those that were only printed are
    lost, which is an error. A reader who leaves, as ``head`` does, wants no more, unless ``pipe``.
    """
    sys.stdout.flush()
    why = sys.stdout.lost if isinstance(sys.stdout, _Stream) else None
    if why is None or (isinstance(why, BrokenPipeError) and not pipe):
        return
    said = f"standard output cannot be written: {why.strerror or why}"
    if output is None:
        raise StorageError(said)
    say(f"warning: {said}. All results are in {output}", err=True)


def say(text: str, *, err: bool = False) -> None:
    """Print lines that may hold names from outside; what would steer a terminal is spelled out."""
    typer.echo(printable(text, lines=True), err=err)


def print_json(payload: Mapping[str, Any]) -> None:
    """Write one JSON object to stdout; numbers that are none become null."""
    from privote.report.tables import plain

    typer.echo(jsonlib.dumps(plain(payload), indent=2, allow_nan=False))


def print_result(
    facts: Mapping[str, Any], *, json: bool, title: str, caption: str | None = None
) -> None:
    """Show what a verb did: its facts as JSON, or in two columns."""
    if json:
        print_json(facts)
    else:
        print_facts(facts, title=title, caption=caption)


def print_bill(
    facts: Mapping[str, str], rows: Iterable[Fact], guarantee: Guarantee, title: str
) -> None:
    """Print a bill, and all else that is said about a result."""
    print_facts(facts, title=f"{title} (SIMULATED)" if guarantee.simulated else title)
    full = {row.name: row.text for row in rows}
    if full:
        print_facts(full, title="In full")


def print_table(
    rows: Sequence[Mapping[str, Any]],
    *,
    columns: Sequence[Any] | None = None,
    title: str | None = None,
    caption: str | None = None,
) -> None:
    """Print rows as `privote.report.tables.table` lays them out."""
    from privote.report.tables import table

    _print(table(rows, columns=columns, title=title, caption=caption))


def print_facts(facts: Mapping[str, Any], *, title: str, caption: str | None = None) -> None:
    """Print names and values in two columns; None is nothing to say."""
    from rich.table import Table
    from rich.text import Text

    from privote.accounting.renyi import rounded_up
    from privote.report.tables import cell, is_cost

    # Text, not str: a file named "[bold]" must stay what it is.
    grid = Table.grid(padding=(0, 2, 0, 0))
    for name, value in facts.items():
        if value is None:
            continue
        shown = cell(value)
        if isinstance(value, float):
            shown = rounded_up(value) if is_cost(name) else f"{value:.6g}"
        grid.add_row(Text(printable(name)), Text(shown, overflow="fold"))
    heading = Text(printable(title, lines=True), style="bold")
    # Below the table, not its own caption, which would be folded to its width.
    below = [] if caption is None else [Text(printable(caption, lines=True), style="dim")]
    _print(heading, grid, *below)


def _print(*renderables: Any) -> None:
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPED_WIDTH
    console = Console(width=width, highlight=False)
    for renderable in renderables:
        console.print(renderable)
    console.print()


def command_of(ctx: Any) -> str:
    """Return the command that repeats this run: all that was given, but no folder or password."""
    words = ["privote", ctx.info_name]
    for param in ctx.command.params:
        source, value = ctx.get_parameter_source(param.name), ctx.params.get(param.name)
        if source is None or source.name != "COMMANDLINE" or param.name in _APART:
            continue
        option = [] if param.param_type_name == "argument" else [param.opts[0]]
        for each in value if isinstance(value, list | tuple) else [value]:
            text = masked(str(each)) if "://" in str(each) else _FOLDERS.sub(r"\1", str(each))
            words += option if value is True else [*option, shlex.quote(text)]
    return " ".join([*words, "--output", "NEW_FOLDER"])


# -- progress --------------------------------------------------------------------------------------


@contextmanager
def stages() -> Iterator[Callable[[str, int, int | None], None]]:
    """Show one bar a stage; yields a function that takes the stage, how much is done, of how much.

    Nothing is shown if stderr is not a terminal, and nothing stays when the work is done.
    """
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield tell


@contextmanager
def working(what: str, total: int | None = None) -> Iterator[Tick]:
    """Show a bar while the block runs; yields a function that takes how much is done."""
    with stages() as tell:
        tell(what, 0, total)
        yield lambda done: tell(what, done, total)


@contextmanager
def telling(what: str, total: int | None = None) -> Iterator[Tick]:
    """Show a bar, or where there is no terminal one line, while the block runs."""
    if not typer.get_text_stream("stderr").isatty():
        typer.echo(what, err=True)
    with working(what, total) as tick:
        yield tick


# -- refusals and warnings -------------------------------------------------------------------------


class _Command:
    """What verbs and groups of them have in common."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the options; one that is wrong is refused as everything else is."""
        parent: Any = super()
        return _read(parent.parse_args, ctx, args)


class Verb(_Command, TyperCommand):
    """A verb whose docstring says what its options mean, and whose errors name them."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.help, words = options.words_of(self.help or "")
        words = {**options.words_of(options.__doc__ or "")[1], **words}
        for each in self.params:
            param: Any = each
            text, metavar = words.get(param.name, (param.help, None))
            param.help, param.secondary_opts = text, []  # no --no-json
            if param.param_type_name == "argument":
                param.metavar = metavar or param.name.upper()
            else:
                param.metavar = "" if param.is_flag else metavar
                param.rich_help_panel = options.PANELS.get(param.name)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; what privote refuses is one line of stderr and an exit code."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _warner(self._spelling())
                result = super().invoke(ctx)
                check_shown(ctx.params.get("output"))
                return result
        except MemoryError:
            error: PrivoteError = InputError("not enough memory for this input")
        except OSError as failed:
            if failed.errno == errno.ENAMETOOLONG:
                text = f"the name {str(failed.filename)[:40]!r}... is too long for a file"
                error = InputError(text)
            elif failed.errno in NO_ROOM:
                error = StorageError(f"a file cannot be written: {failed.strerror}")
            else:
                raise
        except CompleteError as complete:
            status = {"status": complete.code, "message": str(complete)}
            print_json(status) if ctx.params.get("json") else say(str(complete))
            return None
        except PrivoteError as refused:
            error = refused
        more, sealed = "", error.sealed if isinstance(error, InputError) else None
        if sealed is not None and ctx.params.get("show_sealed"):
            more = f"\nfor the owner's eyes: {sealed}"
        elif sealed is not None and "show_sealed" in ctx.params:
            needs = ", with --output," if ctx.params.get("output", "") is None else ""
            more = f"; --show-sealed{needs} shows it"
        refuse(error, self._spelling(), more, json=bool(ctx.params.get("json")))

    def _spelling(self) -> Spelling:
        own = [_shown(each) for each in self.params]
        spelling = Spelling((each.lstrip("-").replace("-", "_").lower(), each) for each in own)
        for argument, spellings in ARGUMENTS.items():
            known = [option for option in spellings if option in spelling.values()]
            if known:
                spelling[argument] = known[0]
        return spelling


def _shown(param: Any) -> str:
    """Return an option, or an argument, as it is typed."""
    option: bool = param.param_type_name == "option"
    return str(param.opts[0] if option else param.metavar or param.name.upper())


class Verbs(_Command, TyperGroup):
    """Verbs that belong together; says what an interrupt means."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb."""
        return _read(super().resolve_command, ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb, until somebody interrupts it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo(
                "interrupted: no labels were released. If you gave a ledger, privote ledger show "
                "tells whether anything was charged",
                err=True,
            )
            raise typer.Exit(130) from None


def _read(read: Callable[[Any, list[str]], Any], ctx: Any, args: list[str]) -> Any:
    """Return what typer reads from words; what it refuses is an error of ours."""
    given = list(args)
    try:
        return read(ctx, args)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError" or ctx.resilient_parsing:
            raise
        hint = f"\nSee {ctx.command_path} --help"
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
        rule = "is not an option of this command" + (f"; did you mean {near[0]}?" if near else "")
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
        typer.echo(jsonlib.dumps(facts, indent=2))
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


def _warner(spelling: Spelling) -> Callable[..., None]:
    """Return what shows a warning: privote's as one line, once, others as Python does."""
    known: set[str] = set()

    def warn(message: Warning | str, category: type[Warning], *place: Any, **_: Any) -> None:
        text = str(message)
        if text in known:
            return
        known.add(text)
        if issubclass(category, PrivoteWarning):
            worded = PrivoteError(text).worded(spelling.spell)
            typer.echo(f"warning: {printable(worded)}", err=True)
        else:
            typer.echo(warnings.formatwarning(message, category, *place[:2]), err=True, nl=False)

    return warn


def speak(app: typer.Typer) -> None:
    """Make every command of an application, and of those inside it, a :class:`Verb`."""
    app.info.cls = Verbs
    for command in app.registered_commands:
        command.cls = Verb
    for group in app.registered_groups:
        if group.typer_instance is not None:
            speak(group.typer_instance)
