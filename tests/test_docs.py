"""The README and the docs: code runs as printed, prints what stands below it, links lead somewhere.

Blocks are told apart by the words behind their fence:

- ``python``: run; all blocks of a page share one namespace and one new folder.
- ``sh run``: run in that folder.
- ``text out``: every line must be in what the last block printed, spaces aside; in the README it is
  all that was printed, line by line. ``...`` leaves out the rest of a line, or, alone, any lines.
- ``needs NAME`` behind either of the first two: left out, with what follows, where the module
  NAME is absent.

Anything else is not run.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md")])
RUNNABLE = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)[^)]*\)|(?:src|href)=\"(?P<html>[^\"]+)\"")
SECONDS = 600  # on the busiest machine: a hang takes for ever


@dataclass(frozen=True)
class Block:
    """A fenced block: the words behind its fence, its text and its line."""

    words: tuple[str, ...]
    body: str
    line: int

    @property
    def kind(self) -> str:
        """What to do with it."""
        if self.words[:1] == ("python",):
            return "python"
        return {("sh", "run"): "sh", ("text", "out"): "out"}.get(self.words[:2], "")

    @property
    def runs(self) -> bool:
        """Whether what it needs is there."""
        needed = self.words[self.words.index("needs") + 1 :] if "needs" in self.words else ()
        return all(find_spec(name) is not None for name in needed)


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(tuple(m["info"].split()), m["body"], text[: m.start()].count("\n") + 1)
        for m in FENCE.finditer(text)
    ]


def run_python(block: Block, page: Path, names: dict[str, Any]) -> str:
    printed = io.StringIO()
    code = compile("\n" * block.line + block.body, str(page), "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


def run_shell(block: Block, page: Path, folder: Path) -> str:
    # The environment that runs the tests is the one the reader would have activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        ["sh", "-e", "-c", block.body],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{page.name}:{block.line} failed:\n{done.stdout}{done.stderr}"
    return done.stdout


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def line_pattern(line: str) -> str:
    return re.escape(line.removesuffix("...")) + (".*" if line.endswith("...") else "")


def lost_lines(body: str, printed: str, *, whole: bool) -> list[str]:
    """Return the lines of a page that were not printed; of a whole output, where it goes wrong."""
    wanted, seen = squeezed(body), squeezed(printed)
    if not whole:
        return [
            line
            for line in wanted
            if not any(re.fullmatch(line_pattern(line), there) for there in seen)
        ]
    text = "".join(f"{line}\n" for line in seen)
    patterns = [r"(?:.*\n)*?" if line == "..." else line_pattern(line) + "\n" for line in wanted]
    if re.fullmatch("".join(patterns), text):
        return []
    fit = next(n for n in range(len(wanted), -1, -1) if re.match("".join(patterns[:n]), text))
    return wanted[fit:] or ["(more was printed than the page shows)"]


def test_an_ellipsis_leaves_out_what_it_says_and_no_more() -> None:
    printed = "one\ntwo  and more\nthree\nfour\n"
    assert not lost_lines("one\ntwo ...\n...\nfour", printed, whole=True)
    assert not lost_lines("four\none", printed, whole=False)
    assert lost_lines("one\nfour", printed, whole=True) == ["four"]
    assert lost_lines("one\ntwo ...\nthree", printed, whole=True)
    assert lost_lines("one\nfive", printed, whole=False) == ["five"]


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.stem)
def test_code_runs_and_prints_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("benchmarks", "examples"):
        (tmp_path / folder).symlink_to(REPOSITORY / folder)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    printed: str | None = None
    for block in blocks(page):
        if block.kind == "out":
            if printed is None:
                continue
            lost = lost_lines(block.body, printed, whole=page.name == "README.md")
            assert not lost, f"{page.name}:{block.line}: not printed: {lost}\nprinted:\n{printed}"
        elif block.kind and not block.runs:
            printed = None
        elif block.kind == "python":
            printed = run_python(block, page, names)
        elif block.kind == "sh":
            printed = run_shell(block, page, tmp_path)


def anchors(page: Path) -> set[str]:
    """Return the places a link can point to: headings, as forges name them, and named anchors."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#{1,6} +(.*?) *$", text, re.MULTILINE)
    named = re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings} | set(named)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_relative_links_exist(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for match in LINK.finditer(text):
        target = match["target"] or match["html"]
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        place = (page.parent / name).resolve() if name else page
        assert place.exists(), f"{page.name} links to {target}, which does not exist"
        if anchor:
            assert anchor in anchors(place), f"{page.name} links to {target}: no such heading"


def test_every_page_is_listed_in_the_index() -> None:
    index = (REPOSITORY / "docs" / "index.md").read_text(encoding="utf-8")
    for page in (REPOSITORY / "docs").glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in index, f"index.md lacks {page.name}"


def test_every_named_script_and_module_exists() -> None:
    for page in RUNNABLE:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"\b((?:examples|tests|docs|benchmarks)/[\w/]+\.\w+)", text):
            assert (REPOSITORY / name).exists(), f"{page.name} names {name}, which does not exist"
