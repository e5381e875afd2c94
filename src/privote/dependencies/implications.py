"""Labels that imply others: what is stated, and labels made to agree with it."""

from __future__ import annotations

import csv
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from numbers import Integral
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from ..errors import InputError, shown
from ..files import check_file
from ..release import Release
from ..votes.tables import name_in
from .matrices import cells_of

Name = str | int
Pair = tuple[Name, Name]
T = TypeVar("T", bound=Hashable)

RULES = ("up", "down")
_ARROW = "->"
_FEW = 5  # labels named in a message


@dataclass(frozen=True)
class Implications:
    """Which labels imply which: a child implies its parents, and so all its ancestors.

    Make one with :meth:`of`. Labels are names, or places counted from 0.

    Attributes
    ----------
    pairs
        (child, parent), each once. Whoever implies itself, over others or not, is refused.
    """

    pairs: tuple[Pair, ...]

    def __post_init__(self) -> None:
        checked = tuple(dict.fromkeys(_pair(pair) for pair in self.pairs))
        if not checked:
            raise InputError("implies", "must hold at least one pair of child and parent")
        object.__setattr__(self, "pairs", tuple(_leaves_first(checked)))

    @classmethod
    def of(cls, source: Any) -> Implications:
        """Return implications as people have them.

        Parameters
        ----------
        source
            Pairs (child, parent); a mapping from a child to its parent or parents; the path of a
            file; or implications. A file is a CSV with the columns ``child`` and ``parent``, or a
            text with lines ``child -> parent``, in which empty lines and those that begin with #
            do not count.
        """
        if isinstance(source, cls):
            return source
        if isinstance(source, str | os.PathLike):
            return cls(tuple(_read(source)))
        if isinstance(source, Mapping):
            return cls(
                tuple(
                    (child, parent)
                    for child, parents in source.items()
                    for parent in _listed(parents)
                )
            )
        if not isinstance(source, Iterable):
            raise InputError("implies", "must be pairs, a mapping or the path of a file", source)
        return cls(tuple(source))

    def ancestors(self, label: Name) -> frozenset[Name]:
        """Return all that a label implies, directly or over others."""
        found: set[Name] = set()
        for child, parent in self.pairs:  # leaves first: once a label is in, its parents follow
            if child == label or child in found:
                found.add(parent)
        return frozenset(found)

    def closure(self) -> Implications:
        """Return every pair of a label and one of its ancestors."""
        children = dict.fromkeys(child for child, _ in self.pairs)
        return Implications(
            tuple(
                (child, above)
                for child in children
                for above in sorted(self.ancestors(child), key=str)
            )
        )

    def places(self, labels: int, names: Sequence[str] | None = None) -> list[tuple[int, int]]:
        """Return the pairs as places among so many labels, leaves first.

        Names are looked up in ``names``. Labels without names are known by their places, also where
        these come as text.
        """
        known = None if names is None else {name: place for place, name in enumerate(names)}
        found = ((_place(a, labels, known), _place(b, labels, known)) for a, b in self.pairs)
        return _leaves_first(dict.fromkeys(found))


def _pair(pair: Any) -> Pair:
    if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
        raise InputError("implies", "must hold pairs (child, parent)", pair)
    child, parent = (_name(one) for one in pair)
    return child, parent


def _name(label: Any) -> Name:
    if isinstance(label, Integral) and not isinstance(label, bool) and int(label) >= 0:
        return int(label)
    if isinstance(label, str) and label.strip():
        return label.strip()
    raise InputError("implies", "must call labels by their names, or places from 0", label)


def _listed(parents: Any) -> Iterable[Any]:
    if isinstance(parents, str | Integral):
        return (parents,)
    if isinstance(parents, Iterable):
        return parents
    raise InputError("implies", "must map a child to its parent or parents", parents)


def _leaves_first(pairs: Iterable[tuple[T, T]]) -> list[tuple[T, T]]:
    """Return pairs so that a label's children all come before its own parents."""
    pairs = list(pairs)
    sorter: TopologicalSorter[T] = TopologicalSorter()
    for child, parent in pairs:
        sorter.add(parent, child)
    try:
        order = {label: at for at, label in enumerate(sorter.static_order())}
    except CycleError as error:
        cycle = f" {_ARROW} ".join(map(str, error.args[1]))
        raise InputError("implies", f"must not lead back to where it began: {cycle}") from None
    return sorted(pairs, key=lambda pair: order[pair[0]])


def _place(label: Name, labels: int, known: Mapping[str, int] | None) -> int:
    if isinstance(label, str):
        if known is not None and label in known:
            return known[label]
        if known is not None:
            first = ", ".join([*known][:_FEW])
            more = ", ..." if len(known) > _FEW else ""
            raise InputError(
                "implies", f"must name labels ({first}{more}), and {shown(label)} is none"
            )
        if not (label.isascii() and label.isdigit()):
            raise InputError(
                "implies",
                f"names {shown(label)}, and these labels have no names: call them by their places, "
                f"0 to {labels - 1}",
            )
    place = int(label)
    if place >= labels:
        raise InputError("implies", f"must name labels 0 to {labels - 1}", place)
    return place


def _read(path: str | os.PathLike[str]) -> list[Pair]:
    try:
        lines = check_file(path, "implies").read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("implies", f"{str(path)!r} cannot be read: {error}") from None
    told = {n: line for n, line in enumerate(lines, 1) if line.strip() and line.lstrip()[0] != "#"}
    if _ARROW in next(iter(told.values()), ""):
        rows = {n: [part.strip() for part in line.split(_ARROW)] for n, line in told.items()}
    else:
        table = csv.reader(told.values())
        header = [cell.strip() for cell in next(table, [])]
        if not {"child", "parent"} <= set(header):
            raise InputError(
                "implies",
                f"{str(path)!r} must have the columns child and parent, or lines "
                f"'child {_ARROW} parent'",
            )
        at = [header.index("child"), header.index("parent")]
        cells = [[name_in(cell.strip()) for cell in row] for row in table]
        rows = {
            n: [row[i] for i in at] if len(row) == len(header) else []
            for n, row in zip([*told][1:], cells, strict=False)
        }
    for number, row in rows.items():
        if len(row) != 2 or not all(row):
            raise InputError("implies", f"{str(path)!r} must have one pair in line {number}")
    return [(child, parent) for child, parent in rows.values()]


@overload
def consistent(labels: Release, implies: Any, rule: str = "up") -> Release: ...
@overload
def consistent(
    labels: npt.ArrayLike, implies: Any, rule: str = "up", *, names: Sequence[str] | None = None
) -> npt.NDArray[Any]: ...
def consistent(
    labels: Any, implies: Any, rule: str = "up", *, names: Sequence[str] | None = None
) -> Any:
    """Make labels agree with what implies what. Post-processing of released labels: it is free.

    Parameters
    ----------
    labels
        A release, or its labels (queries, labels): 1, 0, or ABSTAIN (-1). Or probabilities, as
        floats from 0 to 1, of which a child's must not exceed its parents'.
    implies
        What :meth:`Implications.of` takes.
    rule
        Who gives way where a child is 1 and an ancestor 0. ``"up"``: the ancestor; a released
        child raises its ancestors. ``"down"``: the child; it falls with its ancestors. Under either
        rule a label held back (ABSTAIN) is filled in where others settle it, by a 1 below it or a 0
        above it, and stays held back elsewhere.
    names
        What the labels are called, where the implications name them; a release knows that.

    Returns
    -------
    What was given, made consistent: an array is copied, and a release says how it came about
    (``processed``). The labels as they were drawn are no longer in it: keep the first release to
    have both.
    """
    if rule not in RULES:
        raise InputError("rule", f"must be one of {', '.join(RULES)}", rule)
    stated = Implications.of(implies)
    if isinstance(labels, Release):
        pairs = stated.places(labels.labels.shape[1], labels.label_names)
        made = _propagated(cells_of("labels", labels), pairs, rule)
        told = (
            f"{len(stated.pairs)} implications were applied ({rule}), which changed "
            f"{int((made != labels.labels).sum())} labels"
        )
        chances = labels.probabilities
        if chances is not None:
            chances = _propagated(chances, pairs, rule)
        return replace(labels, labels=made, chances=chances, processed=(*labels.processed, told))
    array = np.asarray(labels)
    if array.dtype.kind == "f" and array.ndim == 2:
        if not ((array >= 0) & (array <= 1)).all():
            raise InputError("labels", "must be probabilities from 0 to 1 where they are floats")
    else:
        array = cells_of("labels", labels)
    return _propagated(array, stated.places(array.shape[1], names), rule)


def _propagated(
    labels: npt.NDArray[Any], pairs: Sequence[tuple[int, int]], rule: str
) -> npt.NDArray[Any]:
    """Return a copy in which no child exceeds its parents; ``pairs`` come leaves first."""
    made = labels.copy()
    exact = made.dtype.kind != "f"

    def lift() -> None:
        for child, parent in pairs:
            below, above = made[:, child], made[:, parent]
            made[:, parent] = np.where(below == 1, 1, above) if exact else np.maximum(below, above)

    def lower() -> None:
        for child, parent in reversed(pairs):
            below, above = made[:, child], made[:, parent]
            made[:, child] = np.where(above == 0, 0, below) if exact else np.minimum(below, above)

    # The first pass settles every conflict; the second then only fills in what was held back.
    for step in (lift, lower) if rule == "up" else (lower, lift):
        step()
    return made
