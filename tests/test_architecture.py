"""The drawing of docs/architecture.md is made from the code: run this file to draw it again."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
SRC = ROOT / "src" / "privote"
_DRAWN = re.compile(r"(<!-- rooms -->\n```text\n)(.*?)(^```)", re.DOTALL | re.MULTILINE)


def rooms() -> str:
    """Return the floors of the house, top first, each room with what its docstring says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    floors = project["tool"]["importlinter"]["contracts"][0]["layers"]
    drawn = []
    for floor in floors:
        names = [name.strip(" ()") for name in floor.split(" : ")]
        drawn += [line for name in names for line in _room(name)] + [""]
    return "\n".join(drawn[:-1])


def _room(name: str) -> Iterator[str]:
    file = SRC / f"{name}.py"
    file = file if file.exists() else SRC / name / "__init__.py"
    if file.exists():
        said = ast.get_docstring(ast.parse(file.read_text())) or ""
        yield f"{name:<12} {said.splitlines()[0] if said else ''}".rstrip()


def test_the_drawing_is_that_of_the_code() -> None:
    drawing = _DRAWN.search(PAGE.read_text())
    assert drawing is not None
    assert drawing[2].rstrip("\n") == rooms(), "run: .venv/bin/python tests/test_architecture.py"


def test_every_room_is_named() -> None:
    drawn = rooms()
    for file in SRC.iterdir():
        name = file.stem if file.suffix == ".py" else file.name
        if not name.startswith("_") and file.suffix in ("", ".py"):
            assert re.search(rf"^{name}\b", drawn, re.MULTILINE), name


def test_every_file_that_the_page_names_is_there() -> None:
    for name in re.findall(r"`([\w/]+\.py)`", PAGE.read_text()):
        assert (SRC / name).exists() or (ROOT / name).exists(), name


if __name__ == "__main__":
    PAGE.write_text(
        _DRAWN.sub(lambda found: found[1] + rooms() + "\n" + found[3], PAGE.read_text())
    )
