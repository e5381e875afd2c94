"""Collect votes: what is to be done, what is done already, and the rest by as many as there are.

The work is cut into pieces, a chunk of queries by a group of voters, each with one place in the
votes file. A manifest says first what is collected: sizes, names, the digests of models and rows.
Whoever goes on after a crash compares it, and does the pieces that lack their mark. A piece is made
from public rows and its own voters alone, so it has the same bytes in every run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ballots import Threshold, block_queries, check_shape, check_threshold
from ...errors import BallotError, InputError, PrivoteError, shown, whole
from ...names import Names
from ...storage import as_place
from ...workers import WorkerLostError, each, on_workers, one_thread
from ..rows import Progress
from .pieces import SUFFIXES, Grid, Output, Piece
from .rows import Part, Rows, open_rows
from .voters import Voters, check_answer, open_voters

_FORMAT = 1
_GROUP = 32  # voters of a piece: as many models are in memory at once
_PIECES = 64  # at least, so that workers share the work; unless they have few queries
_FEW = 64
_BYTES = 1 << 26  # of the rows that a worker holds
_LOSSES = 3  # workers that may die one after the other without a piece done in between


@dataclass(frozen=True, kw_only=True)
class Collected:
    """Where votes lie now, how many, under which names, and how much of that is new."""

    output: str
    queries: int
    voters: int
    labels: int
    voter_names: tuple[str, ...]
    label_names: tuple[str, ...] | None
    pieces: int
    done_before: int
    lost_workers: int

    def facts(self) -> dict[str, Any]:
        """Return it as plain values, but for the voters' names, which are the owner's."""
        named = None if self.label_names is None else list(self.label_names)
        return {
            **{name: value for name, value in vars(self).items() if name != "voter_names"},
            "label_names": named,
        }


def collect_votes(
    voters: Any,
    rows: Any,
    output: str | os.PathLike[str],
    *,
    labels: int | Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    threshold: Threshold = None,
    columns: Sequence[str] | None = None,
    chunk: int | None = None,
    group: int | None = None,
    backend: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Collected:
    """Ask many models about many public rows, and write their votes to a file.

    Parameters
    ----------
    voters
        Files of saved models, or folders of them, by path or URL: ``.joblib``, ``.pkl`` and
        ``.pickle`` (**loading one runs the code that its author put there**, on every worker) or
        ``.student``; or models in memory; either in a list, or in a dict by name. Or a function
        ``f(voter, rows)`` that returns votes or probabilities (rows, labels), itself or as
        ``"package.module:function"``.
    rows
        Public rows: ``.npy``, ``.npz`` (array ``X``), ``.csv``, ``.tsv``, ``.parquet`` or
        ``.zarr``, read a run at a time by the workers; or an array or data frame. A function gets a
        run of an array as it is, and one of a table as a dict of columns.
    output
        ``.zarr`` or ``.parquet``, by path or URL. Every worker must be able to reach it, and what
        it reads, by that name.
    labels
        Names of the labels, or how many; students in ``.student`` files know theirs.
    names
        Names of the voters: those a function is called with; for models those of their files unless
        told. A ledger knows voters again by these.
    threshold
        A probability at or above it is a yes; one, or one per label. None: models predict, and a
        function returns votes.
    columns
        Columns of a table that voters may look at; all unless told.
    chunk, group
        Queries, and voters, of a piece of work; what suits the sizes unless told.
    backend, workers, address
        Where to work: see :func:`privote.workers.on_workers`. The votes are the same everywhere.
    resume
        Go on with what another run began: with the same voters, rows and settings only.
    force
        Replace votes that were collected before.
    progress
        Called as ``progress(done, pieces)``.
    """
    place = as_place(output, "output")
    if not place.endswith(SUFFIXES):
        raise InputError("output", f"must end in {' or '.join(SUFFIXES)}", place)
    target, asked, public = Output(place), open_voters(voters, names), open_rows(rows, columns)
    known = _labels(labels, asked)
    before = _begun(target, resume=resume, force=force)
    grid = _grid(public, asked, known, chunk, group, before)
    Names(voters=asked.names).checked(check_shape((grid.queries, grid.voters, grid.labels)))
    bar = None if threshold is None else check_threshold(threshold, grid.labels)
    manifest = _manifest(grid, asked, public, known, bar, columns)
    if before is None:
        target.begin(manifest)
    else:
        _check_same(before, manifest, public.name)
    done_before, lost = grid.total, 0
    if not target.finished():
        done_before = len(target.done(grid))
        work = _Work(target.claim(manifest), grid, asked, public, bar)
        lost = work.finish(progress, backend, workers, address)
        target.finish(grid, manifest)
    return Collected(
        output=place,
        queries=grid.queries,
        voters=grid.voters,
        labels=grid.labels,
        voter_names=asked.names,
        label_names=known if isinstance(known, tuple) else None,
        pieces=grid.total,
        done_before=done_before,
        lost_workers=lost,
    )


@dataclass(frozen=True)
class _Task:
    """One piece, as it is sent to a worker."""

    output: Output
    grid: Grid
    piece: Piece
    voters: Voters
    rows: Part
    bar: Any


def _cast(task: _Task) -> Piece:
    """Ask the voters of a piece about its rows, and keep what they say: the work sent away."""
    start, stop = task.grid.queries_of(task.piece[0])
    votes = np.empty((stop - start, len(task.voters.names), task.grid.labels), np.bool_)
    with one_thread():
        rows = task.rows.load()
        for place, name in enumerate(task.voters.names):
            try:
                labels = task.grid.labels
                said = task.voters.ask(place, rows, labels, task.bar is not None)
                votes[:, place] = check_answer(said, start, stop - start, labels, task.bar)
            except Exception as error:  # a model may fail as it likes
                why = " ".join(_said(error).split())[:300]
                where = f"voter {name!r:.60} on queries {start} to {stop - 1}"
                sealed = getattr(error, "sealed", None)
                raise BallotError(f"{where}: {why}", sealed=sealed) from error
    task.output.keep(task.grid, task.piece, votes)
    return task.piece


def _said(error: Exception) -> str:
    """Return an error's words, its arguments still between backticks for whoever words it again."""
    if not isinstance(error, PrivoteError):
        return f"{type(error).__name__}: {error}"
    return error.worded(lambda name, value: f"`{name}`" if value is None else f"`{name}={value}`")


@dataclass(frozen=True)
class _Work:
    output: Output
    grid: Grid
    voters: Voters
    rows: Rows
    bar: Any

    def finish(self, progress: Progress | None, *where: Any) -> int:
        """Do all pieces that are not done; return how many workers died meanwhile."""
        self.rows.prepare(self.grid.chunk)
        total, lost, in_vain = self.grid.total, 0, 0
        done = self.output.done(self.grid)
        try:
            with on_workers(*where):
                while len(done) < total:
                    before = len(done)
                    wrong: PrivoteError = InputError("output", "does not keep what is written")
                    try:
                        self._round(done, progress)
                    except WorkerLostError as error:
                        wrong, lost = error, lost + 1
                    done = self.output.done(self.grid)  # what is there, not what was said
                    in_vain = 0 if len(done) > before else in_vain + 1
                    if in_vain == _LOSSES:
                        raise wrong
        except PrivoteError as error:
            count = len(self.output.done(self.grid))
            if not count and self.output.is_mine():  # then nothing is in the way of another try
                self.output.clear()
                raise
            more = f"{count} of {total} pieces are done; with `resume=True` the others follow"
            again = type(error)(f"{_said(error)}. {more}")
            if isinstance(again, InputError):
                again.sealed = getattr(error, "sealed", None)
            raise again from error
        return lost

    def _round(self, done: set[Piece], progress: Progress | None) -> None:
        """Do every piece that is not done, once."""
        count = len(done)
        missing = [piece for piece in self.grid.pieces() if piece not in done]
        for _ in each(_cast, map(self._task, missing)):
            count += 1
            if progress is not None:
                progress(count, self.grid.total)

    def _task(self, piece: Piece) -> _Task:
        mine = self.voters.some(*self.grid.voters_of(piece[1]))
        rows = self.rows.part(*self.grid.queries_of(piece[0]))
        return _Task(self.output, self.grid, piece, mine, rows, self.bar)


def _labels(labels: int | Sequence[str] | None, voters: Voters) -> int | tuple[str, ...]:
    """Return the labels' names, or how many there are."""
    own = voters.label_names()
    if labels is None:
        if own is None:
            raise InputError("labels", "must be given: their names, or how many there are")
        return own
    if isinstance(labels, str):
        raise InputError("labels", "must be several names, or how many there are", labels)
    if not isinstance(labels, Sequence):
        return whole("labels", labels) if own is None else own
    said = tuple(str(name).strip() for name in labels)
    Names(labels=said).checked((1, 1, len(said)), "labels")
    if own is not None and own != said:
        raise InputError("labels", f"must be those of the students, {shown(own)}", said)
    return said


def _begun(output: Output, *, resume: bool, force: bool) -> Mapping[str, Any] | None:
    """Return the manifest of what is gone on with; None to begin, where nothing is in the way."""
    if resume and force:
        raise InputError("resume", "goes without `force`: the one goes on, the other begins anew")
    if not output.taken():
        return None
    if force:
        output.clear()
        return None
    if not resume:
        kind = "exists" if output.finished() else "was begun"
        raise InputError(
            "output",
            f"{output.place!r} {kind}; give `resume=True` to go on with it, or `force=True` to "
            "begin anew",
        )
    found = output.manifest()
    if found is None or found.get("format") != _FORMAT:
        raise InputError("output", f"{output.place!r} holds nothing to go on with")
    return found


def _grid(
    rows: Rows,
    voters: Voters,
    labels: int | tuple[str, ...],
    chunk: int | None,
    group: int | None,
    before: Mapping[str, Any] | None,
) -> Grid:
    """Return how votes are cut: as was said, as it was before, or as suits readers and workers."""
    count, width = len(voters.names), labels if isinstance(labels, int) else len(labels)
    if before is not None:
        chunk = before.get("chunk") if chunk is None else chunk
        group = before.get("group") if group is None else group
    even = -(-count // -(-count // _GROUP))  # groups alike: a smaller one would be padded
    group = even if group is None else min(count, whole("group", group))
    if chunk is None:
        # What readers take at once, what fits, and small enough that everybody has some.
        most = min(block_queries(count, width), int(_BYTES / max(1.0, rows.row_bytes)))
        share = -(-rows.count * -(-count // group) // _PIECES)
        fit = max(1, min(most, max(_FEW, share)))
        chunk = fit if fit < 8 else fit // 8 * 8
    return Grid(
        queries=rows.count,
        voters=count,
        labels=width,
        chunk=min(whole("chunk", chunk), rows.count),
        group=group,
    )


def _manifest(
    grid: Grid,
    voters: Voters,
    rows: Rows,
    labels: int | tuple[str, ...],
    bar: Any,
    columns: Sequence[str] | None,
) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "queries": grid.queries,
        "voters": list(voters.names),
        "labels": labels if isinstance(labels, int) else list(labels),
        "chunk": grid.chunk,
        "group": grid.group,
        "threshold": None if bar is None else bar.tolist(),
        "columns": None if columns is None else list(columns),
        "rows": rows.digest,
        "asked": voters.facts(),
    }


def _check_same(before: Mapping[str, Any], now: Mapping[str, Any], rows: str) -> None:
    """Refuse to go on with anything else than what was begun; the message names what differs."""
    if before.get("rows") != now["rows"]:
        raise InputError("rows", f"must be the same as when collecting began, and {rows} is not")
    for name in ("voters", "labels", "chunk", "group", "threshold", "columns"):
        if before.get(name) != now[name]:
            argument = "names" if name == "voters" else name
            raise InputError(
                argument,
                f"must be as it was when collecting began, {shown(before.get(name))}",
                now[name],
            )
    then, asked = before.get("asked") or {}, now["asked"]
    if then == asked:
        return
    if "models" in then and "models" in asked:
        pairs = zip(now["voters"], then["models"], asked["models"], strict=True)
        other = next(name for name, one, two in pairs if one != two)
        raise InputError(f"the model of voter {other!r:.60} changed since collecting began")
    raise InputError(
        "voters",
        f"must be the same as when collecting began: {then.get('function', 'models')!s:.100} was "
        "another, or its file changed",
    )
