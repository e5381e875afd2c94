"""Collect votes: ask many models about many public rows, and keep what they say as a Zarr array.

The votes are cut into chunks, so many queries of so many voters. A chunk is what a worker is asked
for, and zarr writes it as a whole; one that is there is done, so a run that was killed goes on from
there. The array's attributes say what is collected: a run goes on with the same models, rows and
settings only. Votes of which a chunk is absent cannot be read (:mod:`privote.votes.arrays`).

A saved model is loaded where it is asked. **Loading a pickle runs whatever code its author put
there**, on every worker; a ``.student`` file runs none. What is loaded has the digest that it had
when collecting began, or it is refused.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

import joblib
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..errors import BallotError, InputError, PrivoteError, missing_extra, shown, whole
from ..files import as_place, check_file, check_here, check_written, is_url, name_of, written
from ..votes.arrays import (
    ArrayFile,
    ZarrCube,
    file_system,
    open_array,
    open_npy,
    reached,
    stored_files,
)
from ..votes.cells import number
from ..votes.cube import StoredArray, Threshold, block_queries, check_shape, check_threshold
from ..votes.names import check_names, in_order
from ..votes.tables import TABLES, RawTable, is_frame, is_records, open_table
from .rows import Progress, count_rows, label_probabilities, row_size
from .saving import SUFFIX, SavedStudent, load_student
from .workers import each, on_workers, one_thread

ARRAYS = (".npy", ".npz", ".zarr")
MODELS = (".joblib", ".pkl", ".pickle", SUFFIX)
_FORMAT = 3
_OURS = "privote"  # the attribute that says what is collected
_GROUP = 32  # voters of a chunk: as many models are in memory at once
_CHUNKS, _FEW = 64, 64  # at least so many, so that workers share the work; unless of few queries
_BYTES = 1 << 24  # of the rows of a chunk, at most
Bits = npt.NDArray[np.bool_]


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
        ``.zarr``, by path or by a URL that zarr opens. Models must be in the same place for every
        worker; rows are sent to it.
    labels
        Names of the labels, or their number; not needed for ``.student`` files.
    names
        Names of the voters. Required for a function, which is called with each name; default for
        models: their file names. A ledger recognises voters by these names.
    threshold
        A probability at or above it is a yes; one, or one per label. None: models predict, and a
        function returns votes.
    chunk
        Queries per chunk; default: set from the sizes.
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
    path = as_place(output, "output")
    if not path.endswith(".zarr"):
        raise InputError("output", "must end in .zarr", name_of(path, "output"))
    if not is_url(path):
        path = os.path.realpath(path)  # a link could not be removed with what is in it
    electorate, public = open_voters(voters, names), open_rows(rows)
    who = tuple(voter.name for voter in electorate)
    check_names(who, len(who), "voter")
    named = _labels(labels, electorate)
    width = named if isinstance(named, int) else len(named)
    bar = None if threshold is None else check_threshold(threshold, width)
    shape = check_shape((public.count, len(who), width))
    chunk = _usual_chunk(public, shape) if chunk is None else whole("chunk", chunk)
    settings = {
        "rows": public.digest,
        "labels": named if isinstance(named, int) else list(named),
        "threshold": None if bar is None else bar.tolist(),
        "chunk": chunk,
        "voters": [[voter.name, voter.digest] for voter in electorate],
    }
    array = _begun(path, settings, resume=resume, force=force)
    with on_workers(backend, workers, address):
        array = _created(path, settings, shape) if array is None else array
        done, total = _done(array, path), int(np.prod(array.cdata_shape[:2]))
        tasks = _tasks(array, done, public, electorate)
        cast = each(partial(_cast, labels=named, bar=bar), tasks)
        for count, (start, first, votes) in enumerate(cast, start=len(done) + 1):
            _write(path, settings, slice(start, start + len(votes)), first, votes)
            if progress is not None:
                progress(count, total)
    if public.changed():
        _created(path, settings, shape)  # what is there is about other rows
        raise InputError("rows", f"{name_of(public.file)} changed after collecting started")
    ZarrCube(path).check()  # what is there, not what was said
    return Collected(
        output=path,
        queries=public.count,
        voters=len(who),
        labels=width,
        voter_names=who,
        label_names=None if isinstance(named, int) else named,
        chunks=total,
        done_before=len(done),
    )


def _labels(labels: Any, voters: Sequence[Voter]) -> int | tuple[str, ...]:
    """Return the labels' names, or how many there are; students know theirs."""
    if labels is None and all(voter.place.endswith(SUFFIX) for voter in voters):
        labels = voters[0].load().label_names
    if labels is None:
        raise InputError("labels", "must be given: their names, or their number")
    if isinstance(labels, str):
        raise InputError("labels", "must be several names, or their number", labels)
    if not isinstance(labels, Sequence):
        return whole("labels", labels)
    names = tuple(str(name).strip() for name in labels)
    check_names(names, len(names), "label", "labels")
    return names


# -- chunks --------------------------------------------------------------------------------------


def _usual_chunk(rows: Rows, shape: tuple[int, int, int]) -> int:
    """Return how many queries of a chunk suit readers and workers: public sizes decide."""
    queries, voters, labels = shape
    limit = min(block_queries(voters, labels), int(_BYTES / max(1.0, rows.row_bytes)))
    share = queries * -(-voters // _GROUP) // _CHUNKS
    return max(1, min(limit, max(_FEW, share), queries))


def _zarr() -> Any:
    try:
        import zarr
    except ImportError:
        raise missing_extra("files", "collecting votes") from None
    return zarr


def _begun(place: str, settings: dict[str, Any], *, resume: bool, force: bool) -> Any:
    """Return the array that is gone on with; None to begin, where nothing is in the way."""
    if resume and force:
        raise InputError("resume", "cannot be combined with `force`")
    files = [file for file in stored_files(place, "output") if not file.endswith(".partial")]
    if not files:
        return None
    if not resume and not force:
        rule = f"{place!r} exists; give `resume=True` to continue it, or `force=True` to start over"
        raise InputError("output", rule)
    try:
        array = open_array(place, "output", "")
        ours = dict(array.attrs[_OURS])
    except (InputError, ValueError, TypeError, KeyError):
        rule = f"{place!r} contains no votes collected by privote votes"
        raise InputError("output", rule) from None
    check_written(f"output {place!r}", ours, _FORMAT)
    for argument, value in settings.items() if resume else ():
        if ours["settings"].get(argument) != value:
            rule = "must be the same as when collecting started"
            raise InputError(argument, rule, None if argument == "voters" else value)
    return array if resume else None


def _created(place: str, settings: dict[str, Any], shape: tuple[int, int, int]) -> Any:
    """Return a new array without chunks, in place of the votes that were there before."""
    facts: dict[str, Any] = {_OURS: written(_FORMAT) | {"settings": settings}}
    facts["voter_names"] = [name for name, _ in settings["voters"]]
    if isinstance(settings["labels"], list):
        facts["label_names"] = settings["labels"]
    zarr = _zarr()
    with reached(place, "output"):
        return zarr.create_array(
            place,
            shape=shape,
            chunks=(min(settings["chunk"], shape[0]), min(_GROUP, shape[1]), shape[2]),
            dtype=np.bool_,
            compressors=zarr.codecs.ZstdCodec(level=1, checksum=True),
            attributes=facts,
            overwrite=True,
        )


def _done(array: Any, place: str) -> set[tuple[int, ...]]:
    """Return the chunks that are there."""
    files, key = stored_files(place, "output"), array.metadata.encode_chunk_key
    return {at for at in np.ndindex(*array.cdata_shape[:2]) if key((*at, 0)) in files}


def _write(place: str, settings: dict[str, Any], rows: slice, first: int, votes: Bits) -> None:
    """Write a chunk, unless another run has begun to collect other votes in its place."""
    zarr = _zarr()
    with reached(place, "output"):
        with zarr.config.set({"array.write_empty_chunks": True}):
            array = zarr.open_array(place, mode="r+")
        if array.attrs[_OURS]["settings"] != settings:
            raise InputError("output", f"{place!r} is now used by another run")
        array[rows, first : first + votes.shape[1]] = votes


class Task(NamedTuple):
    """A chunk as it is sent to a worker: its first query and voter, its rows and voters."""

    start: int
    first: int
    rows: Any
    voters: tuple[Voter, ...]


def _tasks(
    array: Any, done: set[tuple[int, ...]], rows: Rows, voters: tuple[Voter, ...]
) -> Iterator[Task]:
    """Yield the chunks that are not done, those of a group of voters together."""
    chunk, group, _ = array.chunks
    for column, row in np.ndindex(*array.cdata_shape[1::-1]):
        if (row, column) not in done:
            start, first = row * chunk, column * group
            part = rows.part(start, min(start + chunk, rows.count))
            yield Task(start, first, part, voters[first : first + group])


def _cast(task: Task, *, labels: int | tuple[str, ...], bar: Any) -> tuple[int, int, Bits]:
    """Return where a chunk begins, and what its voters say of its rows: the work sent away."""
    rows, width = count_rows(task.rows), labels if isinstance(labels, int) else len(labels)
    votes = np.empty((rows, len(task.voters), width), np.bool_)
    with one_thread():
        saved = bool(task.voters[0].place)
        models = _loaded(task.voters) if saved else [voter.function for voter in task.voters]
        for index, (voter, model) in enumerate(zip(task.voters, models, strict=True)):
            try:
                answer = _answer(model, voter.name, task.rows, labels, soft=bar is not None)
                votes[:, index] = check_answer(answer, task.start, rows, width, bar)
            except Exception as error:  # a model may fail as it likes
                kind = "" if isinstance(error, PrivoteError) else f"{type(error).__name__}: "
                why = kind + " ".join(str(error).split())[:300]
                where = f"{voter.label} on queries {task.start} to {task.start + rows - 1}"
                sealed = error.sealed if isinstance(error, InputError) else None
                raise BallotError(f"{where}: {why}", sealed=sealed) from error
    return task.start, task.first, votes


def _answer(model: Any, voter: str, rows: Any, labels: int | tuple[str, ...], *, soft: bool) -> Any:
    """Return what a model or a function says of rows: (rows, labels)."""
    if callable(model):
        return model(voter, rows.columns if isinstance(rows, Table) else rows)
    if isinstance(model, SavedStudent) and labels not in (
        len(model.label_names),
        tuple(model.label_names),
    ):
        rule = f"has the labels {shown(model.label_names)}, but {shown(labels)} were requested"
        raise InputError(rule)
    if isinstance(rows, Table):
        rows = rows.for_model(model)
    if soft:
        return label_probabilities(model, rows, labels if isinstance(labels, int) else len(labels))
    if not hasattr(model, "predict"):
        raise InputError("has no predict: give `threshold` to turn its probabilities into votes")
    votes = model.predict(rows)
    return votes.toarray() if sp.issparse(votes) else votes


# -- rows ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Table:
    """Some rows of a table: ``raw`` as they stand in it, and the columns as voters get them.

    What a voter is given must not depend on where the rows were cut: a column is floats where all
    of it holds numbers or gaps.
    """

    raw: RawTable
    columns: dict[str, Any]

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, rows: slice) -> Table:
        return Table(self.raw[rows], {name: cells[rows] for name, cells in self.columns.items()})

    def for_model(self, model: Any) -> Any:
        """Return the rows as a model has learnt from them: a matrix, a frame, or a raw table."""
        if isinstance(model, SavedStudent) and model.encoder is not None:
            return self.raw
        framed = hasattr(model, "feature_names_in_")
        names = model.feature_names_in_ if framed else getattr(model, "feature_names", None)
        listed = [*self.columns] if names is None else [*self.raw.only([*map(str, names)]).columns]
        if framed:
            import pandas as pd

            return pd.DataFrame({name: self.columns[name] for name in listed})
        for name in listed:
            if self.columns[name].dtype != float:
                where = f"{self.raw.name}: column {name!r:.60}"
                raise InputError(f"{where} must contain numbers, like every feature of a model")
        return np.stack([self.columns[name] for name in listed], axis=1)


def _floats(cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column as numbers, NaN for a gap; as it is if a cell is none."""
    try:
        return np.array([number(cell) for cell in cells.tolist()], float)
    except (TypeError, ValueError, OverflowError):
        return cells


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

    def changed(self) -> bool:
        """Return whether something else stands in the file by now."""
        return bool(self.file) and _file_digest(self.file) != self.digest


def open_rows(rows: Any) -> Rows:
    """Open public rows: see :func:`collect_votes`."""
    file, suffix, digest = "", "", ""
    if isinstance(rows, str | os.PathLike):
        file = as_place(rows, "rows")
        suffix = Path(file).suffix
        if suffix not in (*ARRAYS, *TABLES):
            suffixes = ", ".join((*ARRAYS, *TABLES))
            raise InputError("rows", f"must end in one of {suffixes}", name_of(file))
        if suffix != ".zarr":
            check_here("rows", file)
            check_file(file, "rows")
        digest = _file_digest(file)  # before anything is read
    if suffix in TABLES or is_frame(rows) or isinstance(rows, dict) or is_records(rows):
        raw = open_table(file or rows, "rows", public=True)
        table = Table(raw, {name: _floats(cells) for name, cells in raw.columns.items()})
        digest = digest or joblib.hash([*raw.columns.items()])
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
    digest, (system, path) = hashlib.sha256(), file_system(file)
    with reached(file, "rows"):
        for name in sorted(stored_files(file, "rows")):
            data = system.cat_file(f"{path}/{name}")
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
    files = [file for path in places for file in _files(path)]
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

    def function(self) -> Any:
        """Return the function itself."""
        if self.folder not in sys.path and os.path.isdir(self.folder):
            sys.path.append(self.folder)
        try:
            function: Any = resolve_name(self.name)
        except Exception as error:  # somebody else's module may fail as it likes
            text = " ".join(str(error).split())[:200]
            raise InputError("voters", f"{self.name!r:.100} cannot be imported: {text}") from None
        if not callable(function):
            rule = f"{self.name!r:.100} must be a function, not {shown(function)}"
            raise InputError("voters", rule)
        return function


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
        row, label = (int(index) for index in np.argwhere(~good)[0])
        rule = "must be a probability in [0, 1]" if soft else "must be a vote of 0 or 1"
        hint = "" if soft or array.dtype.kind != "f" else "; give `threshold` for probabilities"
        # A model's answer is private, and messages end up in logs.
        where, value = f"query {start + row}, label {label}", f"it is {array[row, label]}"
        raise BallotError(f"{where} {rule}{hint}", sealed=value)
    return np.asarray(array >= bar if soft else array == 1)
