"""Every example runs by itself, in a process of its own, and shows what it says it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

#: A line that each script must print.
EXPECTED = {
    "first_release.py": r"epsilon: 8 \(unconditional; may be published\)\.\ndelta: 1e-05\.",
    "adaptive_batches.py": r"epsilon=8\.00 for all 600 queries, past and future",
    "who_pays_what.py": r"Two half batches add up to the whole: True",
    "sparse_records.py": r"sigma=20, false_alarm=0\.01\): epsilon=1\.99, allowance 27",
    "neighbours.py": r"student on unseen rows: AUC 0\.[89]",
    "poll.py": r"Fresh noise is refused: the budget of data set 'the quarter'",
    "coalition/run.py": r"Sites that took part: south, west; registered: 2",
    "departures.py": r"formula 6\.79; true 20\.30",
    "language_model.py": r"resumed: 2 of 6 chunks were done before\n(.*\n)*.*epsilon",
    "own_mechanism.py": r"laplace-quota \(sigma=9, quota=0\.3\): 19 queries",
    "headline.py": r"tmc2007: 4000 queries",
}


#: What the last cell of each notebook prints, and how many cells show a result with a drawing.
NOTEBOOKS = {
    "labels_from_votes.ipynb": (r"epsilon: 8 \(unconditional; may be published\)\.", 2),
    "model_from_pictures.ipynb": (r"\(8, 0\.0001\)-differentially private for one record", 1),
}


#: Scripts with a test of their own: run once, whichever worker gets it.
OWN = {"departures.py", "headline.py"}


def run(script: str) -> str:
    """Return what a script prints; it says nothing else."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script)],
        capture_output=True,
        text=True,
        timeout=600,  # on the busiest machine: a hang takes for ever
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    assert re.search(EXPECTED[script], done.stdout), done.stdout
    return done.stdout


@pytest.mark.parametrize("script", sorted(EXPECTED.keys() - OWN))
def test_example_runs(script: str) -> None:
    run(script)


def test_every_example_is_tested() -> None:
    files = {*EXAMPLES.rglob("*.py"), *EXAMPLES.rglob("*.ipynb")}
    assert {file.relative_to(EXAMPLES).as_posix() for file in files} == {*EXPECTED, *NOTEBOOKS}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_runs_and_is_stored_without_outputs(name: str) -> None:
    book = nbformat.read(EXAMPLES / name, as_version=4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    NotebookClient(book, timeout=600, kernel_name="python3").execute()
    printed, drawn = NOTEBOOKS[name]
    assert re.search(printed, code[-1].outputs[-1].text), code[-1].outputs
    pages = [
        out.data.get("text/html", "") for cell in code for out in cell.outputs if "data" in out
    ]
    assert sum("<svg" in page and "epsilon" in page for page in pages) == drawn


def test_departures_are_violations_by_number() -> None:
    printed = run("departures.py")
    pairs = [
        r"claimed order/sigma\^2 = (\S+); true, as drawn = (\S+)",
        r"claimed (\S+); enumerated (\S+)",
        r"bound (\S+); D\(X\|\|X'\) \S+; D\(X'\|\|X\) (\S+)",
        r"gate \+ probability x cost: (\S+); true, jointly: (\S+)",
        r"the vote's worst case (\S+); with a gate of sigma=2, true: (\S+)",
        r"formula (\S+); true (\S+)",
    ]
    for pair in pairs:
        found = re.search(pair, printed)
        assert found, f"{pair} not in:\n{printed}"
        claimed, true = (float(number.rstrip(";:")) for number in found.groups())
        assert true > claimed, found.group()


def test_headline_figures() -> None:
    """The figures of docs/measured.md."""
    printed = run("headline.py")
    rows = {
        int(row[0]): [int(n) for n in row[1:]]
        for row in re.findall(
            r"^ +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)  \(V", printed, re.MULTILINE
        )
    }
    old, exact, by_voter, worst, tested, first_out = rows[7]
    assert 200 <= old <= 240
    assert exact >= 450
    assert by_voter >= 500
    assert worst == 18
    assert tested >= 190
    assert first_out >= 120
    assert rows[12][3] == 55
    assert rows[12][5] >= 360
    assert 90 <= rows[20][0] <= 105
    assert rows[20][1] >= 380
    chances = re.search(r"pass the test of ptr with probability ([\d., ]+)\.", printed)
    assert chances, printed
    assert min(float(chance) for chance in chances[1].split(", ")) >= 0.99
    link = re.search(r"sigma 12 .*by order +2\.5: (\d+), 2\.75: (\d+), 3: (\d+)", printed)
    assert link, printed
    assert max(int(count) for count in link.groups()) >= 490
    gains = [float(gain) for gain in re.findall(r"\((\d+\.\d+)x\)", printed)]
    assert len(gains) == 3
    assert min(gains) >= 1.3
