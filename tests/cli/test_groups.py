from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from privote.cli.groups import REQUIRED, Group, grouped


@dataclass(frozen=True, kw_only=True)
class Lens:
    size: Annotated[int, typer.Option(help="How large.")]
    colour: Annotated[str | None, typer.Option()] = None
    thick: Annotated[bool, typer.Option("--thick")] = False


def app_of(group: Group, seen: list[Any]) -> typer.Typer:
    app = typer.Typer()

    @app.command()
    @grouped(lens=group)
    def look(at: Annotated[str, typer.Argument()], lens: Lens, twice: bool = False) -> None:
        """Look at something."""
        seen.append((at, lens, twice))

    return app


@pytest.mark.parametrize(
    ("group", "words", "expected"),
    [
        (Group(of=Lens), "moon --size 3 --thick", Lens(size=3, thick=True)),
        (Group(of=Lens), "moon --size 3 --colour red", Lens(size=3, colour="red")),
        (Group(of=Lens, without=("thick",)), "moon --size 3", Lens(size=3)),
        (Group(of=Lens, fixed={"size": 7}), "moon --colour red", Lens(size=7, colour="red")),
        (
            Group(of=Lens, instead={"size": (Annotated[int, typer.Option("--width")], 5)}),
            "moon",
            Lens(size=5),
        ),
    ],
)
def test_a_verb_gets_its_options_as_one(group: Group, words: str, expected: Lens) -> None:
    seen: list[Any] = []
    done = CliRunner().invoke(app_of(group, seen), words.split())
    assert done.exit_code == 0, done.stderr
    assert seen == [("moon", expected, False)]


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (Group(of=Lens), "moon"),  # --size is required
        (Group(of=Lens, without=("thick",)), "moon --size 3 --thick"),
        (Group(of=Lens, fixed={"size": 7}), "moon --size 3"),
        (
            Group(of=Lens, instead={"colour": (Annotated[str, typer.Option()], REQUIRED)}),
            "moon --size 3",
        ),
    ],
)
def test_what_is_no_option_is_refused(group: Group, words: str) -> None:
    seen: list[Any] = []
    done = CliRunner().invoke(app_of(group, seen), words.split())
    assert done.exit_code == 2
    assert seen == []


def test_help_shows_every_option_where_it_is_offered() -> None:
    from privote.cli import app

    shown = CliRunner().invoke(app, ["tune", "--help"], env={"COLUMNS": "200"}).stdout
    for option in ("--gate-sigma", "--max-positives", "--values", "--drop"):
        assert option in shown
