"""Nothing that depends on votes or draws is visible before the commit.

Runs on quiet votes and on loud ones, with different draws: whoever sees the ledger's folder, its
published view, the file system's calls and all that is printed or warned sees the same each time,
until the moment at which the commit enters.
"""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.attacks.conftest import CHARGES, Charge, Outcome, scaled

import privote as pv
from privote.ledger import Run
from privote.ledger.events import Committed, Event

_SEEN: list[Any] | None = None
# Holders, keys and digests, which are random; the folder; and times.
_RANDOM = re.compile(r"[0-9a-f]{16,}|/\S*/(?=[\w.]*ledger)|\d{4}-\d\d-\d\d[ T]\d\d:\d\d[:.+\d]*")


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _SEEN is not None and event.partition(".")[0] in ("open", "os", "socket", "subprocess"):
        _SEEN.append((event, *map(str, arguments[:2])))


sys.addaudithook(_hook)


def _view(run: Charge, kind: str, seed: int, folder: Path, capfd: Any) -> str:
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
        run(folder / "a.ledger", kind=kind, seed=seed)
    assert view
    return _RANDOM.sub("#", "\n".join(map(str, view)))


@pytest.mark.parametrize("case", CHARGES)
def test_nothing_is_visible_before_the_commit(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], outcome: Outcome, case: str
) -> None:
    if case == "dpsgd":
        pytest.importorskip("opacus")
    views = [
        _view(CHARGES[case], kind, seed, tmp_path / f"{seed}", capfd)
        for seed, kind in enumerate(["loud", "quiet", "loud", *["quiet", "loud"] * scaled(0, 10)])
    ]
    first, *others = views[1:]  # the one before them loaded what is loaded once
    outcome.of(f"seen before the commit: {case}", [view != first for view in others])
