"""Collect votes: ask many models about many public rows, and keep what they say as a Zarr array.

The votes are cut into chunks, so many queries of so many voters. A chunk is what a worker is asked
for, what it writes, and what a run that was killed goes on from: each is there as a whole or counts
as absent, and has the same bytes whoever makes it. The array's attributes say first what is
collected, so that a run goes on with the same models, rows and settings only. The array's own
metadata is written last: until then nobody can read the votes.

A saved model is loaded where it is asked. **Loading a pickle runs whatever code its author put
there**, on every worker; a ``.student`` file runs none. What is loaded has the digest that it had
when collecting began, or it is refused.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .._version import check_written, written
from ..errors import BallotError, InputError, PrivoteError, shown, whole
from ..files import PART, as_place, check_file, check_here, complete, is_url, name_of
from ..votes.arrays import ArrayFile, file_system, open_array, open_npy, reached, stored_files
from ..votes.cells import number
from ..votes.cube import StoredArray, Threshold, block_queries, check_shape, check_threshold
from ..votes.names import check_names, in_order
from ..votes.tables import TABLES, RawTable, is_frame, is_records, open_table
from .rows import Floats, Progress, count_rows, label_probabilities, row_size
from .students.saving import SUFFIX, SavedStudent, load_student
from .workers import each, on_workers, one_thread

ARRAYS = (".npy", ".npz", ".zarr")
MODELS = (".joblib", ".pkl", ".pickle", SUFFIX)
_FORMAT = 2
_ATTRIBUTES, _METADATA, _OURS = ".zattrs", ".zarray", "privote"
_GROUP = 32  # voters of a chunk: as many models are in memory at once
_CHUNKS, _FEW = 64, 64  # at least so many, so that workers share the work; unless of few queries
_BYTES, _AT_ONCE = 1 << 24, 4  # of the rows of a chunk, and chunks that wait for each worker
Bits = npt.NDArray[np.bool_]
Function = Callable[[str, Any], Any]
Place = tuple[int, int]  # of a chunk: which run of queries, and which group of voters


@dataclass(frozen=True, kw_only=True)
class Collected:
    """Where votes lie now, how many, under which names, and how much of that is new."""

    output: str
    queries: int
    voters: int
    labels: int
    voter_names: tuple[str, ...]
    label_names: tuple[str, ...] | None
    chunks: int
    done_before: int

    def facts(self) -> dict[str, Any]:
        """Return it as plain values, but for the voters' names, which are the owner's."""
        return {name: value for name, value in vars(self).items() if name != "voter_names"}


def collect_votes(
    voters: Any,
    rows: Any,
    output: str | os.PathLike[str],
    *,
    labels: int | Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    threshold: Threshold = None,
    chunk: int | None = None,
    group: int | None = None,
    backend: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Collected:
    """Ask many models about many public rows, and write their votes to a Zarr array.

    Parameters
    ----------
    voters
        Files of saved models, or folders of them: ``.joblib``, ``.pkl`` and ``.pickle`` (**loading
        one runs the code that its author put there**, on every worker) or ``.student``. Or a
        function ``f(voter, rows)`` that returns votes or probabilities (rows, labels), itself or as
        ``"package.module:function"``.
    rows
        Public rows: ``.npy``, ``.npz`` (array ``X``) or ``.zarr``, read a chunk at a time; or an
        array. Or a table, which is loaded: ``.csv``, ``.tsv``, ``.parquet``, a data frame or a list
        of records. A function gets rows of an array as they are, those of a table as a dict of
        columns: floats where the whole column holds numbers or gaps.
    output
        ``.zarr``, by path or by a URL that zarr opens. Every worker must be able to reach it, and
        the models, by that name; rows are sent to it.
    labels
        Names of the labels, or their number; not needed for ``.student`` files.
    names
        Names of the voters. Required for a function, which is called with each name; default for
        models: their file names. A ledger recognises voters by these names.
    threshold
        A probability at or above it is a yes; one, or one per label. None: models predict, and a
        function returns votes.
    chunk, group
        Queries, and voters, per chunk; default: set from the sizes.
    backend, workers, address
        Where to work (:func:`privote.learning.workers.on_workers`); the votes are the same
        everywhere.
    resume
        Continue an earlier run with the same voters, rows and settings. For complete votes: collect
        lost chunks again.
    force
        Overwrite votes collected before.
    progress
        Called as ``progress(done, chunks)``.

    Examples
    --------
    >>> import numpy as np, privote as pv, tempfile
    >>> place = tempfile.mkdtemp() + "/votes.zarr"
    >>> def vote(voter, rows):
    ...     return (rows[:, :1] > len(voter)).astype(int)
    >>> rows = np.arange(6.0).reshape(6, 1)
    >>> found = pv.collect_votes(vote, rows, place, labels=1, names=["a", "bb"])
    >>> pv.Ballots.of(place).shape
    (6, 2, 1)
    """
    place = as_place(output, "output")
    if not place.endswith(".zarr"):
        raise InputError("output", "must end in .zarr", name_of(place, "output"))
    # Behind a link, which could not be removed with what is in it.
    folder = Folder(place if is_url(place) else os.path.realpath(place), "output")
    asked, public = open_voters(voters, names), open_rows(rows)
    width, label_names = _labels(labels, asked)
    before = _begun(folder, resume=resume, force=force)
    then = {} if before is None else before[_OURS]["settings"]
    chunk = then.get("chunk") if chunk is None else chunk
    group = then.get("group") if group is None else group
    grid = _grid(public, len(asked), width, chunk, group)
    voter_names = tuple(voter.name for voter in asked)
    check_shape((grid.queries, grid.voters, grid.labels))
    check_names(voter_names, grid.voters, "voter")
    bar = None if threshold is None else check_threshold(threshold, grid.labels)
    settings = {
        "rows": public.digest,
        "labels": width if label_names is None else list(label_names),
        "threshold": None if bar is None else bar.tolist(),
        "chunk": grid.chunk,
        "group": grid.group,
        "voters": [[voter.name, voter.digest] for voter in asked],
    }
    if before is not None:
        _check_same(then, settings, asked)
    attributes = {_OURS: written(_FORMAT) | {"settings": settings}, **(before or {})}
    attributes["voter_names"] = voter_names
    if label_names is not None:
        attributes["label_names"] = label_names
    job = _Job(folder, grid, asked, public, label_names, bar, attributes)
    done = set() if before is None else job.done()
    done_before = len(done)
    if done_before < grid.total:
        job.work(done, progress, backend, workers, address)
    job.finish()
    return Collected(
        output=place,
        queries=grid.queries,
        voters=grid.voters,
        labels=grid.labels,
        voter_names=voter_names,
        label_names=label_names,
        chunks=grid.total,
        done_before=done_before,
    )


def _labels(labels: Any, voters: Sequence[Voter]) -> tuple[int, tuple[str, ...] | None]:
    """Return how many labels there are, and their names; students know theirs."""
    if labels is None and all(voter.place.endswith(SUFFIX) for voter in voters):
        labels = voters[0].load().label_names
    if labels is None:
        raise InputError("labels", "must be given: their names, or their number")
    if isinstance(labels, str):
        raise InputError("labels", "must be several names, or their number", labels)
    if not isinstance(labels, Sequence):
        return whole("labels", labels), None
    names = tuple(str(name).strip() for name in labels)
    check_names(names, len(names), "label", "labels")
    return len(names), names


def _begun(folder: Folder, *, resume: bool, force: bool) -> dict[str, Any] | None:
    """Return the attributes of what is gone on with; None to begin, where nothing is in the way."""
    if resume and force:
        raise InputError("resume", "cannot be combined with `force`")
    files = [file for file in folder.files() if PART not in file]
    if not files:
        return None
    place = repr(folder.place)
    if not resume and not force:
        kind = "exists" if _METADATA in files else "was started"
        rule = f"{place} {kind}; give `resume=True` to continue it, or `force=True` to start again"
        raise InputError("output", rule)
    try:
        attributes: dict[str, Any] = json.loads(folder.read(_ATTRIBUTES))
        ours: dict[str, Any] = dict(attributes[_OURS])
    except (InputError, ValueError, TypeError, KeyError):
        rule = f"{place} contains no votes collected by privote votes"
        raise InputError("output", rule) from None
    check_written(f"output {place}", ours, _FORMAT)
    if resume:
        return attributes
    folder.remove(_METADATA)  # unreadable first: half of it must not be taken for votes
    folder.remove()
    if folder.files():  # or they would be taken for what is collected next
        raise InputError("output", f"{place} has chunks that cannot be removed")
    return None


def _check_same(before: Mapping[str, Any], now: Mapping[str, Any], voters: Sequence[Voter]) -> None:
    """Refuse to go on with anything else than what was begun; the message names what differs."""
    for argument, value in now.items():
        old = before.get(argument)
        if old != value and argument != "voters":
            rule = f"must be the same as when collecting started, {shown(old)}"
            raise InputError(argument, rule, value)
        if old != value:
            pairs = zip(voters, old or (), strict=False)
            others = (voter.label for voter, pair in pairs if [voter.name, voter.digest] != pair)
            other = next(others, "their number")
            raise InputError("voters", f"must be the same as before, and {other} is not")


# -- folders by path or URL ---------------------------------------------------------------------


@dataclass(frozen=True)
class Folder:
    """A folder by its path or URL, reached through fsspec; nothing is made before it is written to.

    ``what`` it is to whoever named it, for messages.
    """

    place: str
    what: str = "folder"

    def files(self) -> dict[str, int]:
        """Return the size of every file in the folder, by its path there; none without a folder."""
        return stored_files(self.place, self.what)

    def read(self, name: str) -> bytes:
        """Return what is in a file."""
        with reached(self.place, self.what):
            system, path = file_system(self.place)
            return bytes(system.cat_file(f"{path}/{name}"))

    def write(self, name: str, data: bytes) -> None:
        """Write a file, durably: it is there as a whole, or as it was before."""
        with reached(self.place, self.what):
            system, path = file_system(self.place)
            system.makedirs(path, exist_ok=True)
            if is_url(self.place):  # an object is whole or absent by itself
                system.pipe_file(f"{path}/{name}", data)
                return
            with complete(Path(path, name), force=True, shared=True) as part:
                part.write_bytes(data)

    def remove(self, name: str = "") -> None:
        """Remove a file, or the folder with all that is in it; nothing if it is not there."""
        with reached(self.place, self.what), suppress(FileNotFoundError):
            system, path = file_system(self.place)
            system.rm(f"{path}/{name}" if name else path, recursive=not name)


# -- chunks -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Grid:
    """How votes (queries, voters, labels) are cut: ``chunk`` queries of ``group`` voters."""

    queries: int
    voters: int
    labels: int
    chunk: int
    group: int

    @property
    def total(self) -> int:
        """How many chunks there are."""
        return -(-self.queries // self.chunk) * -(-self.voters // self.group)

    def places(self) -> Iterator[Place]:
        """Yield the place of every chunk, in the order of the array."""
        groups = range(-(-self.voters // self.group))
        return ((run, at) for run in range(-(-self.queries // self.chunk)) for at in groups)

    def span(self, run: int) -> tuple[int, int]:
        """Return the first query of a run, and where it ends."""
        return run * self.chunk, min((run + 1) * self.chunk, self.queries)

    def pack(self, votes: Bits) -> bytes:
        """Return a chunk as Zarr's codecs ``packbits`` and ``crc32`` encode it, padded."""
        whole = np.zeros((self.chunk, self.group, self.labels), np.bool_)
        whole[: votes.shape[0], : votes.shape[1]] = votes
        bits = bytes([-whole.size % 8]) + np.packbits(whole).tobytes()
        return zlib.crc32(bits).to_bytes(4, "little") + bits

    def metadata(self) -> dict[str, Any]:
        """Return what Zarr has to know of the array."""
        shape = [self.queries, self.voters, self.labels]
        chunks, filters = [self.chunk, self.group, self.labels], [{"id": "packbits"}]
        facts = {"zarr_format": 2, "dtype": "|b1", "fill_value": False, "order": "C"}
        filters.append({"id": "crc32"})
        return {**facts, "shape": shape, "chunks": chunks, "filters": filters, "compressor": None}


def _grid(rows: Rows, voters: int, labels: int, chunk: Any, group: Any) -> Grid:
    """Return how votes are cut: as told, or as suits readers and workers."""
    even = -(-voters // -(-voters // _GROUP))  # groups alike: a smaller one would be padded
    group = even if group is None else min(voters, whole("group", group))
    if chunk is None:
        # What readers take at once, what fits, and small enough that everybody has some.
        most = min(block_queries(voters, labels), int(_BYTES / max(1.0, rows.row_bytes)))
        share = -(-rows.count * -(-voters // group) // _CHUNKS)
        fit = max(1, min(most, max(_FEW, share)))
        chunk = fit if fit < 8 else fit // 8 * 8
    chunk = min(whole("chunk", chunk), rows.count)
    return Grid(queries=rows.count, voters=voters, labels=labels, chunk=chunk, group=group)


def _name(place: Place) -> str:
    return f"{place[0]}.{place[1]}.0"  # as Zarr calls a chunk; every chunk has all labels


def _json(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, indent=1, sort_keys=True).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class _Job:
    folder: Folder
    grid: Grid
    voters: tuple[Voter, ...]
    rows: Rows
    label_names: tuple[str, ...] | None
    bar: Any
    attributes: dict[str, Any]

    def done(self) -> set[Place]:
        """Return the chunks that are there as a whole."""
        files = self.folder.files()
        return {
            place for place in self.grid.places() if _name(place) in files and self._sound(place)
        }

    def _sound(self, place: Place) -> bool:
        data = self.folder.read(_name(place))
        return data[:4] == zlib.crc32(data[4:]).to_bytes(4, "little")

    def work(self, done: set[Place], progress: Progress | None, *where: Any) -> None:
        """Make all chunks that are not done."""
        self.folder.remove(_METADATA)  # nobody reads votes of which some are being made again
        self.folder.write(_ATTRIBUTES, _json(self.attributes))
        try:
            with on_workers(*where):
                self._round(done, progress)
            self.rows.check_unchanged()
        except PrivoteError:
            if not self.done():  # then nothing is in the way of another try
                self.folder.remove()
            raise
        if len(self.done()) < self.grid.total:  # what is there, not what was said
            raise InputError("output", "does not store what is written")

    def _round(self, done: set[Place], progress: Progress | None) -> None:
        """Make every chunk that is not done, once; those of one group of voters together."""
        claim, grid = _digest(_json(self.attributes)), self.grid

        def tasks() -> Iterator[_Task]:
            for run, at in sorted(grid.places(), key=lambda place: place[::-1]):
                if (run, at) not in done:
                    rows = self.rows.part(*grid.span(run))
                    voters = self.voters[at * grid.group : (at + 1) * grid.group]
                    known = (self.label_names, self.bar)
                    yield _Task(self.folder, claim, grid, (run, at), voters, rows, *known)

        for count, _ in enumerate(each(_cast, tasks(), at_once=_AT_ONCE), start=len(done) + 1):
            if progress is not None:
                progress(count, grid.total)

    def finish(self) -> None:
        """Write what makes the chunks votes: they are all there."""
        for file in self.folder.files():
            if PART in file:  # of a process that was killed
                self.folder.remove(file)
        self.folder.write(_METADATA, _json(self.grid.metadata()))


@dataclass(frozen=True)
class _Task:
    """One chunk, as it is sent to a worker.

    ``claim`` is the digest of the attributes. A worker may outlive a run that was killed; it must
    not write into the votes of another one.
    """

    folder: Folder
    claim: str
    grid: Grid
    place: Place
    voters: tuple[Voter, ...]
    rows: Any
    label_names: tuple[str, ...] | None
    bar: Any


def _cast(task: _Task) -> None:
    """Ask the voters of a chunk about its rows, and write what they say: the work sent away."""
    start, stop = task.grid.span(task.place[0])
    votes = np.empty((stop - start, len(task.voters), task.grid.labels), np.bool_)
    with one_thread():
        saved = bool(task.voters[0].place)
        models = _loaded(task.voters) if saved else [voter.function for voter in task.voters]
        for at, (voter, model) in enumerate(zip(task.voters, models, strict=True)):
            try:
                answer = _answer(model, voter.name, task)
                votes[:, at] = check_answer(answer, start, stop - start, task.grid.labels, task.bar)
            except Exception as error:  # a model may fail as it likes
                why = " ".join(_worded(error).split())[:300]
                where = f"{voter.label} on queries {start} to {stop - 1}"
                sealed = error.sealed if isinstance(error, InputError) else None
                raise BallotError(f"{where}: {why}", sealed=sealed) from error
    if _digest(task.folder.read(_ATTRIBUTES)) != task.claim:
        raise InputError("output", f"{task.folder.place!r} is now used by another run")
    task.folder.write(_name(task.place), task.grid.pack(votes))


def _answer(model: Any, voter: str, task: _Task) -> Any:
    """Return what a model or a function says of rows: (rows, labels)."""
    rows, student = task.rows, isinstance(model, SavedStudent)
    if callable(model):
        return model(voter, rows.columns() if isinstance(rows, Table) else rows)
    if student and task.label_names not in (None, tuple(model.label_names)):
        wanted = shown(task.label_names)
        raise InputError(f"has the labels {shown(model.label_names)}, but {wanted} were requested")
    if isinstance(rows, Table):
        rows = rows.for_model(model)
    if task.bar is not None:
        return label_probabilities(model, rows, task.grid.labels)
    if not hasattr(model, "predict"):
        raise InputError("has no predict: give `threshold` to turn its probabilities into votes")
    votes = model.predict(rows)
    return votes.toarray() if sp.issparse(votes) else votes


def _worded(error: Exception) -> str:
    """Return an error's words, its arguments still between backticks for whoever words it again."""
    if not isinstance(error, PrivoteError):
        return f"{type(error).__name__}: {error}"
    return error.worded(lambda name, value: f"`{name}`" if value is None else f"`{name}={value}`")


# -- rows ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Table:
    """Some rows of a table: ``raw`` as they stand in it, and which columns are numbers throughout.

    What a voter is given must not depend on where the rows were cut.
    """

    raw: RawTable
    numeric: frozenset[str]

    def __getitem__(self, rows: slice) -> Table:
        return Table(self.raw[rows], self.numeric)

    def columns(self) -> dict[str, Any]:
        """Return the columns by name: floats, or texts and whatever else."""
        return {
            name: _floats(cells) if name in self.numeric else cells
            for name, cells in self.raw.columns.items()
        }

    def for_model(self, model: Any) -> Any:
        """Return the rows as a model has learnt from them: a matrix, a frame, or a raw table."""
        if getattr(model, "encoder", None) is not None:  # a student's own
            return self.raw
        names = getattr(model, "feature_names_in_", getattr(model, "feature_names", None))
        raw = self.raw if names is None else self.raw.only([*map(str, names)])
        columns = Table(raw, self.numeric).columns()
        if hasattr(model, "feature_names_in_"):
            import pandas as pd

            return pd.DataFrame(columns)
        for name in columns:
            if name not in self.numeric:
                raise InputError(
                    f"{raw.name}: column {name!r:.60} must contain numbers, like every feature of "
                    "a model"
                )
        return np.stack([*columns.values()], axis=1)


def _floats(cells: npt.NDArray[Any]) -> Floats | None:
    """Return a column as numbers, NaN for a gap; None if a cell is none."""
    try:
        return np.array([number(cell) for cell in cells.tolist()], float)
    except (TypeError, ValueError, OverflowError):
        return None


@dataclass(frozen=True, eq=False)
class Rows:
    """Public rows: an array or a table, how many, about how many bytes each, and their digest."""

    values: Any
    count: int
    row_bytes: float
    digest: str
    file: str = ""

    def part(self, start: int, stop: int) -> Any:
        """Return some of the rows."""
        if not self.file or isinstance(self.values, Table):
            return self.values[start:stop]
        with reached(self.file, "rows"):
            return np.array(self.values[start:stop])

    def check_unchanged(self) -> None:
        """Refuse a file in which something else stands by now."""
        if self.file and _file_digest(self.file) != self.digest:
            raise InputError("rows", f"{name_of(self.file)} changed after collecting started")


def open_rows(rows: Any) -> Rows:
    """Open public rows: see :func:`collect_votes`."""
    file, suffix, digest = "", "", ""
    if isinstance(rows, str | os.PathLike):
        file = as_place(rows, "rows")
        suffix = Path(file).suffix
        if suffix not in (*ARRAYS, *TABLES):
            known = ", ".join((*ARRAYS, *TABLES))
            raise InputError("rows", f"must end in one of {known}", name_of(file))
        if suffix != ".zarr":
            check_here("rows", file)
            check_file(file, "rows")
        digest = _file_digest(file)  # before anything is read
    if suffix in TABLES or is_frame(rows) or isinstance(rows, dict) or is_records(rows):
        raw = open_table(file or rows, "rows", public=True)
        numeric = frozenset(
            name for name, cells in raw.columns.items() if _floats(cells) is not None
        )
        table, digest = Table(raw, numeric), digest or joblib.hash([*raw.columns.items()])
        opened = Rows(table, len(raw), 8 * len(raw.columns), digest, file)
    else:
        array = _array(file, suffix) if file else rows
        size = row_size(array) * (array.dtype.itemsize if hasattr(array, "dtype") else 64)
        opened = Rows(array, count_rows(array), size, digest or joblib.hash(rows), file)
    if not opened.count:
        raise InputError("rows", "must have at least one")
    return opened


def _file_digest(file: str) -> str:
    """Return the SHA-256 of a file, or of all files of a Zarr array with their names."""
    if not file.endswith(".zarr"):
        with open(file, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    digest, folder = hashlib.sha256(), Folder(file, "rows")
    for name in sorted(folder.files()):
        data = folder.read(name)
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _array(file: str, suffix: str) -> Any:
    """Return an array that is read where it is sliced, as far as its file allows."""
    if suffix == ".zarr":
        return open_array(file, "rows", "X")
    if suffix == ".npz":
        arrays = ArrayFile(file)
        if "X" not in arrays:
            names = ", ".join(arrays.names)
            raise InputError("rows", f"must have the array 'X' in {name_of(file)}; it has {names}")
        array = arrays.open("X")
        if isinstance(array, StoredArray):
            array.check()
        return array
    return open_npy(file)


# -- voters -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Voter:
    """A voter's name; the digest of what is asked; the function, or the model's file."""

    name: str
    digest: str
    function: Any = None
    place: str = ""

    @property
    def label(self) -> str:
        """What messages call it: a model's file, too."""
        file = f" ({name_of(self.place)})" if self.place else ""
        return f"voter {self.name!r:.60}{file}"

    def load(self) -> Any:
        """Return the model in the file: of a pickle, this runs the code in it."""
        data = Path(self.place).read_bytes()
        if hashlib.sha256(data).hexdigest() != self.digest:
            raise InputError(f"{self.label}: the model changed after collecting started")
        try:
            if self.place.endswith(SUFFIX):
                return load_student(self.place)
            return joblib.load(io.BytesIO(data))
        except Exception as error:  # a pickle may fail in any way
            text = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise InputError(f"{self.label}: the model cannot be loaded: {text}") from None


@lru_cache(maxsize=1)
def _loaded(voters: tuple[Voter, ...]) -> list[Any]:
    """Return the models of a group: chunks of one group come one after the other."""
    return [voter.load() for voter in voters]


def open_voters(voters: Any, names: Sequence[str] | None = None) -> tuple[Voter, ...]:
    """Return voters as they can be asked, whatever they came as; see :func:`collect_votes`."""
    called = None if names is None else [str(name).strip() for name in names]
    if isinstance(voters, str) and ":" in voters and "://" not in voters:
        voters = voters if Path(voters).exists() else Named(voters, os.getcwd())
    if callable(voters):
        if not called:
            rule = "must be given with a function: it is called with each of them"
            raise InputError("names", rule)
        digest = _function_digest(voters)
        return tuple(Voter(name, digest, voters) for name in called)
    places = [voters] if isinstance(voters, str | os.PathLike) else voters
    if not isinstance(places, list | tuple) or not places:
        raise InputError("voters", "must be files of saved models, or a function", voters)
    files = [file for place in places for file in _files(place)]
    called = [Path(file).stem for file in files] if called is None else called
    if len(called) != len(files):
        rule = f"must be {len(files)}, one per model in order, got {len(called)}"
        raise InputError("names", rule)
    return tuple(
        Voter(name, _file_digest(file), None, file)
        for name, file in zip(called, files, strict=True)
    )


def _files(place: Any) -> list[str]:
    """Return a model's file; of a folder, all models in it, by their names."""
    place = as_place(place, "voters")
    check_here("voters", place)
    if Path(place).is_dir():
        names = [file.name for file in Path(place).iterdir() if file.suffix in MODELS]
        if not names:
            raise InputError("voters", f"{place!r} has no file that ends in {', '.join(MODELS)}")
        return [f"{place}/{name}" for name in in_order(names)]
    if Path(place).suffix not in MODELS:
        raise InputError("voters", f"must be files that end in {', '.join(MODELS)}", place)
    return [str(check_file(place, "voters"))]


@dataclass(frozen=True)
class Named:
    """A function by its name, looked for where the command was given, too."""

    name: str
    folder: str

    def __call__(self, voter: str, rows: Any) -> Any:
        """Ask the function."""
        return self.function()(voter, rows)

    def function(self) -> Function:
        """Return the function itself."""
        module, _, attributes = self.name.partition(":")
        if self.folder not in sys.path and os.path.isdir(self.folder):
            sys.path.append(self.folder)
        try:
            function: Any = reduce(getattr, attributes.split("."), import_module(module))
        except Exception as error:  # somebody else's module may fail as it likes
            text = " ".join(str(error).split())[:200]
            raise InputError("voters", f"{self.name!r:.100} cannot be imported: {text}") from None
        if not callable(function):
            rule = f"{self.name!r:.100} must be a function, not {shown(function)}"
            raise InputError("voters", rule)
        return function  # type: ignore[no-any-return]


def _function_digest(function: Any) -> str:
    """Return a function's name, and the digest of the file that it is in."""
    function = function.function() if isinstance(function, Named) else function
    name = f"{function.__module__}:{getattr(function, '__qualname__', type(function).__name__)}"
    try:
        return f"{name} {_file_digest(inspect.getsourcefile(inspect.unwrap(function)) or '')}"
    except (OSError, TypeError):  # typed into a prompt, or compiled
        return name


def check_answer(answer: Any, start: int, rows: int, labels: int, bar: Any) -> Bits:
    """Return an answer as votes (rows, labels); refuse what is none, with its first bad place.

    ``start`` is the first row's query. ``bar`` is None for votes; else a probability at or above
    it is a yes.
    """
    array = np.asarray(answer)
    if labels == 1 and array.shape == (rows,):
        array = array[:, None]
    if array.shape != (rows, labels):
        raise BallotError(f"must return shape ({rows}, {labels}), got {array.shape}")
    if array.dtype.kind not in "biuf":
        raise BallotError(f"must return numbers, got {array.dtype}")
    soft = bar is not None
    good = (array >= 0) & (array <= 1) if soft else (array == 0) | (array == 1)
    if not good.all():
        row, label = (int(at) for at in np.argwhere(~good)[0])
        rule = "must be a probability in [0, 1]" if soft else "must be a vote of 0 or 1"
        hint = "" if soft or array.dtype.kind != "f" else "; give `threshold` for probabilities"
        # A model's answer is private, and messages end up in logs.
        where, value = f"query {start + row}, label {label}", f"it is {array[row, label]}"
        raise BallotError(f"{where} {rule}{hint}", sealed=value)
    return np.asarray(array >= bar if soft else array == 1)
