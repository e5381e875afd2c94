"""Voters that can be asked anywhere: saved models, models in memory, or a function.

A saved model is loaded where it is asked. **Loading a pickle runs whatever code its author put
there**, on every worker; a ``.student`` file runs none. What is loaded has the digest that was
written down when collecting began, or it is refused.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import os
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ...datasets.tables import table
from ...errors import BallotError, InputError, shown
from ...names import in_order
from ...storage import Folder, as_place, is_url
from ..rows import label_probabilities
from ..students.saving import SUFFIX, SavedStudent, load_student
from .rows import Given, Table

PICKLES = (".joblib", ".pkl", ".pickle")
MODELS = (*PICKLES, SUFFIX)
Answer = Any
Bits = npt.NDArray[np.bool_]
Function = Callable[[str, Any], Answer]


@dataclass(frozen=True, eq=False, kw_only=True)
class Voters(ABC):
    """Some voters, in order, who can be sent to a worker; each tuple has one thing a voter."""

    names: tuple[str, ...]

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return what tells whether these are the voters of another run."""

    def some(self, start: int, stop: int) -> Voters:
        """Return the voters from ``start`` to before ``stop``."""
        held = {name: value for name, value in vars(self).items() if isinstance(value, tuple)}
        return replace(self, **{name: value[start:stop] for name, value in held.items()})

    @abstractmethod
    def ask(self, place: int, rows: Given, labels: int, soft: bool) -> Answer:
        """Return what one of them says: probabilities if ``soft``, else votes."""

    def label_names(self) -> tuple[str, ...] | None:
        """Return the labels' names, if the voters know them."""
        return None


@dataclass(frozen=True, eq=False, kw_only=True)
class FunctionVoters(Voters):
    """Voters behind a function of a voter's name and rows; by its name, or itself."""

    function: str | Function
    folder: str = ""

    def facts(self) -> dict[str, Any]:
        """Return the function's name, and the digest of the file that it is in."""
        found = self._found()
        called = f"{found.__module__}:{getattr(found, '__qualname__', type(found).__name__)}"
        try:
            source = Path(inspect.getsourcefile(inspect.unwrap(found)) or "")
            digest = hashlib.sha256(source.read_bytes()).hexdigest()
        except (OSError, TypeError):  # typed into a prompt, or compiled
            digest = None
        name = self.function if isinstance(self.function, str) else called
        return {"function": name, "sha256": digest}

    def ask(self, place: int, rows: Given, labels: int, soft: bool) -> Answer:
        """Call the function; rows of a table come as a dict of columns."""
        del labels, soft
        given = rows.columns() if isinstance(rows, Table) else rows
        return self._found()(self.names[place], given)

    def _found(self) -> Function:
        if isinstance(self.function, str):
            return _imported(self.function, self.folder)
        return self.function


@dataclass(frozen=True, eq=False, kw_only=True)
class HeldVoters(Voters):
    """Models that lie in memory; they are sent to whoever asks them."""

    models: tuple[Any, ...]

    def facts(self) -> dict[str, Any]:
        """Return a digest of each model."""
        from joblib import hash as joblib_hash

        return {"models": [str(joblib_hash(model)) for model in self.models]}

    def ask(self, place: int, rows: Given, labels: int, soft: bool) -> Answer:
        """Ask a model."""
        return answer(self.models[place], rows, labels, soft)

    def label_names(self) -> tuple[str, ...] | None:
        """Return those that students know."""
        return _agreed(self.models, self.names)


@dataclass(frozen=True, kw_only=True)  # equal groups are loaded once
class SavedVoters(Voters):
    """Models in files, by path or URL, each with its SHA-256."""

    places: tuple[str, ...]
    digests: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """Return the digest of each model."""
        return {"models": list(self.digests)}

    def ask(self, place: int, rows: Given, labels: int, soft: bool) -> Answer:
        """Ask a model, which is loaded the first time."""
        return answer(_loaded(self)[place], rows, labels, soft)

    def label_names(self) -> tuple[str, ...] | None:
        """Return those that students know; nothing is loaded whose author might run code."""
        if not all(place.endswith(SUFFIX) for place in self.places):
            return None
        first = _load(self.places[0], self.names[0], self.digests[0])
        return tuple(first.label_names)


@lru_cache(maxsize=1)
def _loaded(group: SavedVoters) -> list[Any]:
    """Return the models of a group: pieces of one group come one after the other."""
    models = list(map(_load, group.places, group.names, group.digests))
    _agreed(models, group.names)
    return models


def _load(place: str, name: str, digest: str) -> Any:
    data = Folder(place).read("")
    if hashlib.sha256(data).hexdigest() != digest:
        raise InputError(
            f"voter {name!r:.60}: the model {place!r:.200} changed since collecting began"
        )
    try:
        if place.endswith(SUFFIX):
            with tempfile.TemporaryDirectory() as scratch:
                file = Path(scratch, f"model{SUFFIX}")
                file.write_bytes(data)
                return load_student(file)
        import joblib

        return joblib.load(io.BytesIO(data))
    except Exception as error:  # a pickle may fail in any way
        said = " ".join(str(error).split())[:200]
        raise InputError(
            f"voter {name!r:.60}: the model {place!r:.200} cannot be loaded: "
            f"{type(error).__name__}: {said}"
        ) from None


def _agreed(models: Sequence[Any], names: Sequence[str]) -> tuple[str, ...] | None:
    """Return the label names of students, which must be the same in all of them."""
    known = {
        name: tuple(model.label_names)
        for name, model in zip(names, models, strict=True)
        if isinstance(model, SavedStudent)
    }
    for name, labels in known.items():
        first = next(iter(known))
        if labels != known[first]:
            raise InputError(
                f"voters {first!r:.60} and {name!r:.60} must know the same labels in the same "
                f"order, got {shown(known[first])} and {shown(labels)}"
            )
    return next(iter(known.values())) if len(known) == len(models) else None


def answer(model: Any, rows: Given, labels: int, soft: bool) -> Answer:
    """Return what a model says of rows: (rows, labels)."""
    given = _as_wanted(model, rows)
    if soft:
        if isinstance(model, SavedStudent):
            return model.predict_proba(given)
        return label_probabilities(model, given, labels)
    if not hasattr(model, "predict"):
        raise InputError("has no predict: give `threshold`, and its probabilities become votes")
    said = model.predict(given)
    return said.toarray() if sp.issparse(said) else said


def _as_wanted(model: Any, rows: Given) -> Any:
    """Return rows as a model has learnt from them: an array, a frame, or a table."""
    if not isinstance(rows, Table):
        return rows
    if isinstance(model, SavedStudent):
        if model.encoder is not None:
            return rows.raw
        names = model.feature_names or tuple(rows.raw.columns)
        return table(rows.raw, features=names).X
    wanted = getattr(model, "feature_names_in_", None)
    if wanted is None:
        return rows.matrix()
    chosen = Table(rows.raw.only([str(name) for name in wanted]), rows.numeric)
    try:
        import pandas as pd
    except ImportError:  # it then takes the columns in its order, without their names
        return chosen.matrix()
    return pd.DataFrame(chosen.columns())


def check_answer(said: Answer, start: int, rows: int, labels: int, bar: Any) -> Bits:
    """Return an answer as votes (rows, labels); refuse what is none, with its first bad place.

    ``start`` is the first row's query. ``bar`` is None for votes; else a probability at or above
    it is a yes.
    """
    array = np.asarray(said)
    if labels == 1 and array.shape == (rows,):
        array = array[:, None]
    if array.shape != (rows, labels):
        raise BallotError(f"must answer with the shape ({rows}, {labels}), got {array.shape}")
    if array.dtype.kind not in "biuf":
        raise BallotError(f"must answer with numbers, got {array.dtype}")
    soft = bar is not None
    good = (array >= 0) & (array <= 1) if soft else (array == 0) | (array == 1)
    if not good.all():
        row, label = (int(at) for at in np.argwhere(~good)[0])
        rule = "must be a probability in [0, 1]" if soft else "must be a vote of 0 or 1"
        hint = "" if soft or array.dtype.kind != "f" else "; give `threshold` for probabilities"
        # A model's answer is private, and messages end up in logs.
        where, said = f"query {start + row}, label {label}", f"it is {array[row, label]}"
        raise BallotError(f"{where} {rule}{hint}", sealed=said)
    return np.asarray(array >= bar if soft else array == 1)


# -- which voters ------------------------------------------------------------------------------


def open_voters(voters: Any, names: Sequence[str] | None = None) -> Voters:
    """Return voters as they can be asked, whatever they came as; see ``collect_votes``."""
    called = None if names is None else tuple(str(name).strip() for name in names)
    if callable(voters) and not hasattr(voters, "predict"):
        return FunctionVoters(function=voters, names=_needed(called))
    if isinstance(voters, str) and is_function(voters):
        found = FunctionVoters(function=voters, names=_needed(called), folder=os.getcwd())
        found.facts()  # imports it: what cannot be is refused before anything is written
        return found
    if isinstance(voters, Mapping):
        if called is not None:
            raise InputError("names", "cannot be given: these voters have names")
        called, voters = tuple(map(str, voters)), list(voters.values())
    several = isinstance(voters, Iterable) and not isinstance(voters, str | os.PathLike)
    given = list(voters) if several else [voters]
    paths = [isinstance(each, str | os.PathLike) for each in given]
    if not given or (any(paths) and not all(paths)):
        raise InputError("voters", "must be files, or models, or a function", voters)
    if not any(paths):
        for each in given:
            if not any(hasattr(each, name) for name in ("predict", "predict_proba")):
                raise InputError(
                    "voters", "must be files, models that predict, or a function", each
                )
        numbered = tuple(f"voter {place}" for place in range(len(given)))
        return HeldVoters(models=tuple(given), names=called or numbered)
    places = [place for each in given for place in _files(each)]
    known = called or tuple(Path(place).stem for place in places)
    if len(known) != len(places):
        rule = f"must be {len(places)}, one a model in order, got {len(known)}"
        raise InputError("names", rule)
    digests = (hashlib.sha256(Folder(place).read("")).hexdigest() for place in places)
    return SavedVoters(places=tuple(places), names=known, digests=tuple(digests))


def is_function(text: str) -> bool:
    """Return whether this is ``package.module:function``, and no file or URL."""
    return ":" in text and not is_url(text) and not Path(text).exists()


def _needed(names: tuple[str, ...] | None) -> tuple[str, ...]:
    if not names:
        raise InputError("names", "must be given with a function: it is called with each of them")
    return names


def _files(given: str | os.PathLike[str]) -> list[str]:
    """Return a model's file; of a folder, all models in it, by their names."""
    place = as_place(given, "voters")
    if not is_url(place) and Path(place).is_dir():
        held = [each.name for each in Path(place).iterdir() if each.suffix in MODELS]
        if not held:
            raise InputError("voters", f"{place!r} holds no file that ends in {', '.join(MODELS)}")
        return [f"{place}/{name}" for name in in_order(held)]
    if Path(place).suffix not in MODELS:
        raise InputError("voters", f"must be files that end in {', '.join(MODELS)}", place)
    if not is_url(place) and not Path(place).is_file():
        raise InputError("voters", f"{place!r} does not exist")
    return [place]


@lru_cache(maxsize=8)
def _imported(name: str, folder: str) -> Function:
    """Return a function by its name, looked for where the command was given, too."""
    module, _, place = name.partition(":")
    if folder and folder not in sys.path and os.path.isdir(folder):
        sys.path.append(folder)
    try:
        found: Any = import_module(module)
        for part in place.split("."):
            found = getattr(found, part)
    except Exception as error:  # somebody else's module may fail as it likes
        said = " ".join(str(error).split())[:200]
        raise InputError("voters", f"{name!r:.100} cannot be imported: {said}") from None
    if not callable(found):
        raise InputError("voters", f"{name!r:.100} must be a function, and is {shown(found)}")
    function: Function = found
    return function
