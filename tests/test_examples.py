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

#: The figures of docs/measured.md; those of docs/departures.md are printed by that page.
HEADLINE = r"""
      4        157    253       297            6         38  \(V = 67\)
      7        220    462       514           18        123  \(V = 207\)
      9        249    562       606           31        204  \(V = 342\)
     12        171    526       543           55        366  \(V = 609\)
     20         98    384       386          153        988  \(V = 1693\)
Sigma 7, 564 queries, the costliest voter: epsilon 21.34 by rdp, 19.9\d by pld
.*
  k= 5 .*\(2.1\dx\)
  k=11 .*\(1.8\dx\)
  k=20 .*\(1.8\dx\)
"""

#: Lines that each script must print.
EXPECTED = {
    "first_release.py": r"epsilon: 8 \(unconditional; may be published\)\.\ndelta: 1e-05\.",
    "adaptive_batches.py": r"epsilon=8\.00 for all 600 queries, past and future",
    "who_pays_what.py": r"Two half batches add up to the whole: True",
    "sparse_records.py": r"sigma=20, false_alarm=0\.01\): epsilon=1\.99, allowance 27",
    "neighbours.py": r"student on unseen rows: AUC 0\.[89]",
    "poll.py": r"Fresh noise is refused: epsilon 1 does not fit",
    "coalition/run.py": r"2 of 2 sites took part: south, west",
    "departures.py": r"formula 6\.79; true 20\.30",
    "language_model.py": r"resumed: 2 of 12 chunks were done before\n(.*\n)*.*epsilon",
    "own_mechanism.py": r"laplace-quota \(sigma=9, quota=0\.3\): 31 queries",
    "headline.py": HEADLINE,
}


#: What the last cell of each notebook prints, and how many cells show a result with a drawing.
NOTEBOOKS = {
    "labels_from_votes.ipynb": (r"epsilon: 8 \(unconditional; may be published\)\.", 2),
    "model_from_pictures.ipynb": (
        r"unconditional; may be published\)\.\ndelta: 0\.0001\.",
        1,
    ),
}


@pytest.mark.parametrize("script", EXPECTED)
def test_example_runs(script: str) -> None:
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


def test_every_example_is_tested() -> None:
    files = {*EXAMPLES.rglob("*.py"), *EXAMPLES.rglob("*.ipynb")}
    assert {file.relative_to(EXAMPLES).as_posix() for file in files} == {
        *EXPECTED,
        *NOTEBOOKS,
        "coalition/processes.py",  # what run.py starts
    }


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_runs_and_is_stored_without_outputs(name: str) -> None:
    book = nbformat.read(EXAMPLES / name, as_version=4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    NotebookClient(book, timeout=600, kernel_name="python3").execute()
    printed, shown = NOTEBOOKS[name]
    assert re.search(printed, code[-1].outputs[-1].text), code[-1].outputs
    pages = [
        out.data.get("text/html", "") for cell in code for out in cell.outputs if "data" in out
    ]
    assert sum("<table" in page and "epsilon" in page for page in pages) == shown
