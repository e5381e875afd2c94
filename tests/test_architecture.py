"""The drawings of docs/architecture.md are made from the code: run this file to draw them again."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import privote as pv

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
SRC = ROOT / "src" / "privote"


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


def coalition() -> str:
    """Return the modules of the coalition's room in floors: each uses some of those below it."""
    room = SRC / "capc"
    files = {f"capc.{'.'.join(_parts(file, room))}": file for file in room.rglob("*.py")}
    needs = {name: _needs(name, file, set(files)) for name, file in files.items()}
    floors = []
    while needs:
        floor = sorted(name for name, used in needs.items() if not used & needs.keys())
        assert floor, f"modules that need each other in a circle: {sorted(needs)}"
        needs = {name: used for name, used in needs.items() if name not in floor}
        texts = {name.removeprefix("capc."): files[name].read_text() for name in floor}
        # A folder's own file that only says what it is for is no module.
        lines = [_named(name, text) for name, text in texts.items() if "import" in text]
        floors.append("\n".join(lines))
    return "\n\n".join(filter(None, reversed(floors)))


def _named(name: str, text: str) -> str:
    return f"{name:<19} {(ast.get_docstring(ast.parse(text)) or '').splitlines()[0]}"


def _parts(file: Path, room: Path) -> tuple[str, ...]:
    parts = file.relative_to(room).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def _needs(name: str, file: Path, known: set[str]) -> set[str]:
    """Return which modules of the room a module imports as it is loaded."""
    package = name if file.stem == "__init__" else name.rpartition(".")[0]
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            start = ".".join([*base, *(node.module or "").split(".")]).rstrip(".")
            found |= {start} | {f"{start}.{alias.name}" for alias in node.names}
    return found & known - {name}


class _Path:
    """Which room calls into which: the first time each function is entered from another file."""

    def __init__(self) -> None:
        self.stack: list[str] = []
        self.steps: list[tuple[int, str]] = []
        self.seen: set[str] = set()

    def watch(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if not file.startswith(str(SRC)) or frame.f_code.co_name.startswith("<"):
            return
        if event == "return":
            self.stack.pop()
        elif event == "call":
            where = str(Path(file).relative_to(SRC))
            name = frame.f_code.co_qualname
            if (
                where not in self.stack[-1:]
                and f"{where} {name}" not in self.seen
                and "_"
                not in (
                    name[0],
                    name.rpartition(".")[2][0],
                )
            ):
                self.seen.add(f"{where} {name}")
                self.steps.append((len(set(self.stack)), f"{where}: {name}"))
            self.stack.append(where)


# Rooms that everybody asks all the time would hide the way: numbers are checked, curves converted.
_EVERYWHERE = ("errors.py", "accounting/renyi.py", "links.py", "votes/cube.py")


def path_of_a_vote() -> str:
    """Return who calls whom when votes are labelled under an allowance, charged to a ledger."""
    votes = np.random.default_rng(0).random((20, 30, 4)) < 0.1
    path = _Path()
    for sigma in (21.0, 20.0):  # the first loads what is loaded late
        every = {"guarantee": "allowance", "ledger": pv.Ledger.in_memory(), "seed": 1}
        with _watched(path if sigma == 20.0 else _Path()):
            mechanism = pv.BinaryVoting(sigma=sigma)
            pv.label(votes, mechanism=mechanism, epsilon=8.0, delta=1e-5, **every)
    kept = [(depth, step) for depth, step in path.steps if not step.startswith(_EVERYWHERE)]
    return "\n".join("  " * depth + step for depth, step in kept)


@contextmanager
def _watched(path: _Path) -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(path.watch)
    try:
        yield
    finally:
        sys.setprofile(before)


DRAWINGS = {"rooms": rooms, "path": path_of_a_vote, "coalition": coalition}
_DRAWN = re.compile(r"(<!-- (\w+) -->\n```text\n)(.*?)(^```)", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_drawing_is_that_of_the_code(name: str) -> None:
    shown = {found[2]: found[3].rstrip("\n") for found in _DRAWN.finditer(PAGE.read_text())}
    assert shown[name] == DRAWINGS[name](), "run: .venv/bin/python tests/test_architecture.py"


def test_every_room_is_named() -> None:
    drawn = rooms()
    for file in SRC.iterdir():
        name = file.stem if file.suffix == ".py" else file.name
        if not name.startswith("_") and file.suffix in ("", ".py"):
            assert re.search(rf"^{name}\b", drawn, re.MULTILINE), name


if __name__ == "__main__":
    PAGE.write_text(
        _DRAWN.sub(
            lambda found: found[1] + DRAWINGS[found[2]]() + "\n" + found[4], PAGE.read_text()
        )
    )
