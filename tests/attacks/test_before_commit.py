"""Nothing that depends on votes or draws is visible before the commit.

Runs on quiet votes and on loud ones, with different draws: whoever sees the ledger's folder, its
published view, the file system's calls and all that is printed or warned sees the same each time,
until the moment at which the commit enters.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.attacks.conftest import Outcome, scaled

import privote as pv
from privote.ledger import Run
from privote.ledger.events import Committed, Event

RNG = np.random.default_rng(0)
SHAPE = (60, 30, 4)
VOTES = {"quiet": np.zeros(SHAPE, bool), "loud": RNG.random(SHAPE) < 0.5}
X, PUBLIC = RNG.normal(size=(240, 3)), RNG.normal(size=(40, 3))
SIDES = {"quiet": X[:, :2] > 9, "loud": X[:, :2] > 0}
POLLS = {
    "quiet": {"Ada": [1] + [0] * 79, "Bo": [0] * 80, "Cy": [0] * 80},
    "loud": {"Ada": [1] * 80, "Bo": [1, 0] * 40, "Cy": [1] * 79 + [0]},
}
Call = Callable[[str, int, Path], Any]
_SEEN: list[Any] | None = None
# Holders, keys and digests, which are random; the folder; and times.
_RANDOM = re.compile(r"[0-9a-f]{16,}|/\S*/(?=[\w.]*ledger)|\d{4}-\d\d-\d\d[ T]\d\d:\d\d[:.+\d]*")


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _SEEN is not None and event.partition(".")[0] in ("open", "os", "socket", "subprocess"):
        _SEEN.append((event, *map(str, arguments[:2])))


sys.addaudithook(_hook)


def label(**how: Any) -> Call:
    def run(kind: str, seed: int, ledger: Path) -> None:
        pv.label(VOTES[kind], epsilon=8.0, delta=1e-5, ledger=ledger, seed=seed, **how)

    return run


def poll(kind: str, seed: int, ledger: Path) -> None:
    pv.poll(POLLS[kind], epsilon=1.0, delta=1e-6, seats=1, shares=True, ledger=ledger, seed=seed)


def train(method: str, **settings: Any) -> Call:
    def run(kind: str, seed: int, ledger: Path) -> None:
        model = pv.PrivateClassifier(method, 8.0, 1e-5, settings=settings)
        model.fit(X, SIDES[kind].astype(np.int8), PUBLIC, ledger=ledger, seed=seed)

    return run


BINARY = pv.BinaryVoting(sigma=7.0)
CASES: dict[str, Call] = {
    "learnt": label(),
    "voters run out": label(mechanism=BINARY, guarantee="allowance"),
    "worst case": label(mechanism=BINARY, guarantee="worst-case"),
    "data-dependent": label(mechanism=BINARY, guarantee="data-dependent", queries=40),
    "poll": poll,
    "gradients": train("gradients", steps=4),
    "moments": train("moments"),
    "dpsgd": train("dpsgd", steps=2, sample_rate=0.5),
    "teachers": train("teachers", n_teachers=20),
    "neighbours": train("neighbours"),
}


def _view(run: Call, kind: str, seed: int, folder: Path, capfd: Any) -> str:
    """Return all that can be seen of a run, from its start until its commit enters."""
    view, append, begin = list[Any](), pv.Ledger.append, Run.__init__
    folder.mkdir()

    def reserved(self: Run, *arguments: Any) -> None:
        global _SEEN
        begin(self, *arguments)
        _SEEN = []

    def entering(self: pv.Ledger, event: Event) -> int:
        global _SEEN
        if isinstance(event, Committed) and _SEEN is not None:
            seen, _SEEN = _SEEN, None
            files = sorted((file.name, file.stat().st_size) for file in folder.iterdir())
            texts = [str(each.message) for each in caught]
            view.extend([seen, files, self.published(), capfd.readouterr(), texts])
        return append(self, event)

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        patch.setattr(Run, "__init__", reserved)
        patch.setattr(pv.Ledger, "append", entering)
        run(kind, seed, folder / "a.ledger")
    assert view
    return _RANDOM.sub("#", "\n".join(map(str, view)))


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_visible_before_the_commit(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], outcome: Outcome, case: str
) -> None:
    if case == "dpsgd":
        pytest.importorskip("opacus")
    views = [
        _view(CASES[case], kind, seed, tmp_path / f"{seed}", capfd)
        for seed, kind in enumerate(["loud", "quiet", "loud", *["quiet", "loud"] * scaled(0, 10)])
    ]
    first, *others = views[1:]  # the one before them loaded what is loaded once
    outcome.of(f"seen before the commit: {case}", [view != first for view in others])
