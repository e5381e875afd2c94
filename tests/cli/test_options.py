from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from privote.cli.derived import REQUIRED, Group, derived, signature_of


@dataclass(frozen=True, kw_only=True)
class Lens:
    """What is looked through.

    Attributes
    ----------
    size : MM
        How large; not with ``thick``.
    """

    size: int
    colour: str | None = None
    thick: bool = False


def app_of(group: Group, seen: list[Any]) -> typer.Typer:
    app = typer.Typer()

    @app.command()
    @derived(lens=group)
    def look(at: str, *, lens: Any, twice: bool = False) -> None:
        """Look at something.

        Parameters
        ----------
        twice
            And again.
        """
        seen.append((at, lens, twice))

    return app


@pytest.mark.parametrize(
    ("group", "words", "expected"),
    [
        (Group(of=Lens), "moon --size 3 --thick", Lens(size=3, thick=True)),
        (Group(of=Lens), "moon --size 3 --colour red", Lens(size=3, colour="red")),
        (Group(of=Lens, without=("thick",)), "moon --size 3", Lens(size=3)),
        (Group(of=Lens, only=("size",)), "moon --size 3", Lens(size=3)),
        (Group(of=Lens, instead={"size": (int, 5)}), "moon", Lens(size=5)),
        (Group(of="mechanisms:Gate"), "moon --sigma 1 --threshold 2",
         {"sigma": 1.0, "threshold": 2.0}),
        (Group(of="label", only=("queries", "resume")), "moon", {"resume": False}),
        (Group(of="label", only=("queries", "resume"), unset=True), "moon", {}),
        (Group(of="label", only=("threshold",)), "moon --threshold 1,0",
         {"threshold": [1.0, 0.0]}),
        (Group(of="collect_votes", only=("labels",)), "moon --labels 2", {"labels": 2}),
        (Group(of=Lens), "moon", None),  # --size is required
        (Group(of=Lens, without=("thick",)), "moon --size 3 --thick", None),
        (Group(of=Lens, instead={"colour": (str, REQUIRED)}), "moon --size 3", None),
        (Group(of="mechanisms:Gate"), "moon --sigma 1", None),
    ],
)  # fmt: skip
def test_a_verb_gets_its_options_as_one_or_refuses(group: Group, words: str, expected: Any) -> None:
    seen: list[Any] = []
    done = CliRunner().invoke(app_of(group, seen), words.split())
    assert done.exit_code == (2 if expected is None else 0), done.stderr
    assert seen == ([] if expected is None else [("moon", expected, False)])


def test_help_is_what_docstrings_say() -> None:
    shown = CliRunner().invoke(app_of(Group(of=Lens), []), ["--help"], env={"COLUMNS": "200"})
    lines = [" ".join(line.strip("│ ").split()) for line in shown.stdout.splitlines()]
    assert "* --size MM How large; not with --thick. [required]" in lines
    assert any(line.endswith("And again.") for line in lines)
    assert "Parameters" not in shown.stdout


def test_signatures_are_those_that_python_sees() -> None:
    import inspect

    import privote as pv

    for place, called in (("label", pv.label), ("mechanisms:Gate", pv.Gate)):
        read, words = signature_of(place)
        assert list(read) == list(inspect.signature(called).parameters)
        assert set(words) >= set(read)
