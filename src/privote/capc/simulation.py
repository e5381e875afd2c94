"""A simulated coalition on scenes that come with privote: its terms, its models, and one batch.

Sites are processes of their own, as between machines (`rehearsal`), or roles in this process, in
clear text. Only a simulation knows the truth, so only here labels are judged.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .._version import written
from ..datasets.scenes import load_scenes
from ..errors import BudgetError, InputError, LedgerError, PeerError, PrivoteError, whole
from ..mechanisms import Mechanism
from ..metrics import multilabel
from ..votes.arrays import ArrayFile
from .coalition import Simulation
from .models import SiteModel
from .site import stamp_of
from .statements import facts_of, write
from .terms import Terms

QUERIER, GUARDIAN = "querier", "guardian"
_SCENES = 300  # private scenes of each site
_GRID = 1 << 16  # steps of a whole vote where ballots are clipped
_ERRORS: dict[int, type[PrivoteError]] = {
    error.exit_code: error for error in (InputError, BudgetError, LedgerError, PeerError)
}
# Says what comes next, and of how many steps, while it lasts; yields who is told how many are done.
Telling = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]


def terms_of(
    mechanism: Mechanism,
    parties: int,
    queries: int,
    *,
    guarantee: str,
    epsilon: float,
    delta: float,
) -> Terms:
    """Return the terms of a simulated coalition: more than half of its sites must take part."""
    whole("parties", parties, 2)
    whole("queries", queries)
    counted, labels = mechanism.with_grid(_GRID), tuple(f"digit {d}" for d in range(10))
    shareable = counted.counted(len(labels)).shares is not None
    return Terms(
        name="rehearsal",
        labels=labels,
        features=256,
        bound=1.0,
        bits=16,
        mechanism=counted,
        guarantee=guarantee,
        epsilon=epsilon,
        delta=delta,
        guardian=GUARDIAN,
        parties={f"site-{n}": None for n in range(1, parties + 1)},
        queriers=(QUERIER,),
        minimum=max(2, parties // 2 + 1),
        most_queries=queries,
        noise="sites" if shareable else "guardian",
        timeout=300.0,
    )


def simulate(
    folder: Path, terms: Terms, *, clear: bool, seed: int | None, telling: Telling
) -> dict[str, Any]:
    """Run a batch of a whole coalition; returns its facts, with figures against the truth.

    Everything goes into the folder: answers, a summary and, unless ``clear``, each site's files.
    ``telling`` says what comes next while it lasts.
    """
    if not clear:  # say what is missing before anything is trained
        from .secure.base import engine
        from .transport.streams import grpc_module

        grpc_module()
        engine("spu")
    with telling("training the sites' models", None):
        scenes = made(terms, len(terms.parties), terms.most_queries, _SCENES, seed or 0)
    run = _in_clear if clear else _in_processes
    facts = run(folder, terms, scenes, seed, telling)
    labels = ArrayFile(folder / "answers" / "labels.npz")["labels"]
    facts = {**facts, "figures": scenes.figures(labels)}
    summary = json.dumps({**written(1), **facts}, indent=2, allow_nan=False)
    (folder / "summary.json").write_text(summary + "\n", encoding="utf-8")
    return facts


def _in_processes(
    folder: Path, terms: Terms, scenes: Scenery, seed: int | None, telling: Telling
) -> dict[str, Any]:
    """Run every site as a process; returns what the querying site's statement says."""
    from .rehearsal import Rehearsal, lay_out

    sites = lay_out(folder, terms, scenes.models, insecure=seed is not None, seed=seed)
    rows = folder / QUERIER / "rows.npz"
    np.savez(rows, X=scenes.X)
    began = time.monotonic()
    many = len(terms.parties)
    with ExitStack() as stack:
        with telling(f"starting {many + 1} programs", None):
            rehearsal = stack.enter_context(Rehearsal(sites, terms))
        started = time.monotonic()
        with telling(f"asking {many} sites in secure sessions, some seconds each", many) as tick:
            done = rehearsal.query(QUERIER, rows, folder / "answers", "--json", tick=tick)
        seconds = time.monotonic() - started
    (folder / QUERIER / "log.txt").write_text(done.stderr, encoding="utf-8")
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        why = said[-1].removeprefix("error: ") if said else f"exit {done.returncode}"
        raise _ERRORS.get(done.returncode, PeerError)(
            f"the querying site failed: {why}; every site's log is in {str(folder)!r}"
        )
    facts: dict[str, Any] = json.loads(done.stdout)
    return {**facts, "start_seconds": round(started - began, 2), "seconds": round(seconds, 2)}


def _in_clear(
    folder: Path, terms: Terms, scenes: Scenery, seed: int | None, telling: Telling
) -> dict[str, Any]:
    """Run all roles in this process, in clear text."""
    began = time.monotonic()
    with telling(f"asking {len(terms.parties)} sites", None):
        answers = Simulation(terms, scenes.models, seed=seed).ask(QUERIER, scenes.X)
    facts = facts_of(terms, QUERIER, answers, stamp=stamp_of("clear", seed))
    facts["seconds"] = round(time.monotonic() - began, 2)
    (folder / "answers").mkdir()
    write(folder / "answers", facts, terms, answers)
    return facts


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenery:
    """What a simulation knows and a real coalition does not.

    Attributes
    ----------
    X, Y
        Rows to ask, and their true labels.
    models
        Each answering site's.
    """

    X: npt.NDArray[np.float64]
    Y: npt.NDArray[np.int8]
    models: dict[str, SiteModel]

    def figures(self, labels: npt.NDArray[np.int8]) -> list[dict[str, Any]]:
        """Return how good released labels are, beside the majority and a site alone."""
        votes = np.stack([model.votes(self.X) for model in self.models.values()], axis=1)
        alone = [self._row("", votes[:, site]) for site in range(votes.shape[1])]
        majority = (2 * votes.sum(axis=1) >= votes.shape[1]).astype(np.int8)
        mean = {key: float(np.mean([row[key] for row in alone])) for key in ("ACC", "BAC")}
        return [
            {**self._row("released", labels), "answered": float((labels >= 0).mean())},
            {**self._row("majority, no noise", majority), "answered": 1.0},
            {"labels": "one site alone, mean", **mean, "answered": 1.0},
        ]

    def _row(self, name: str, labels: npt.NDArray[np.int8]) -> dict[str, Any]:
        said = np.maximum(labels, 0)
        found = multilabel(self.Y, said.astype(float), said)
        return {"labels": name, "ACC": float(found["ACC"]), "BAC": float(found["BAC"])}


def made(terms: Terms, parties: int, queries: int, scenes: int, seed: int) -> Scenery:
    """Train a model for each site on scenes of its own, and compose scenes to ask."""
    data = load_scenes(private=parties * scenes, public=queries, test=1, seed=seed)
    parts = np.array_split(np.arange(len(data.X_private)), parties)
    models = {
        party: SiteModel.of(
            _trained(data.X_private[part], data.Y_private[part]), labels=terms.labels
        )
        for party, part in zip(terms.parties, parts, strict=True)
    }
    return Scenery(X=data.X_public.astype(np.float64), Y=data.Y_public, models=models)


def _trained(X: Any, Y: Any) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a rough model votes too
        return OneVsRestClassifier(LogisticRegression(C=0.1)).fit(X, Y)
