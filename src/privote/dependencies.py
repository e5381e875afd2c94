"""Label dependence: how labels go together, and labels implied by others.

All of it works on labels that are public or were released already: it is post-processing, which
costs nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from numbers import Integral
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from .errors import InputError, shown
from .metrics import label_table
from .release import Release

__all__ = ["Implications", "consistent", "negative", "positive"]

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]
Name = str | int
Pair = tuple[Name, Name]
T = TypeVar("T", bound=Hashable)

RULES = ("up", "down")
_FEW = 5  # labels named in a message


# -- matrices: how labels go together --------------------------------------------------------------


def positive(Y: Any) -> Floats:
    """Return how often each label is there where another is: P(column | row), (labels, labels).

    Parameters
    ----------
    Y
        (queries, labels) of 1, 0, or -1 for a missing label or ABSTAIN; or a release. A pair of
        labels is counted where both are known. A row whose label never occurs beside a known
        column is NaN there.
    """
    return _given(Y, 1)


def negative(Y: Any) -> Floats:
    """Return how often each label is absent where another is: P(not column | not row).

    As :func:`positive`, for zeros.
    """
    return _given(Y, 0)


def _given(Y: Any, value: int) -> Floats:
    cells = label_table("Y", Y.labels if isinstance(Y, Release) else Y)
    same = (cells == value).astype(np.float64)
    both = same.T @ same
    cases = same.T @ (cells >= 0).astype(np.float64)
    share: Floats = np.full_like(both, np.nan)
    np.divide(both, cases, out=share, where=cases > 0)
    return share


# -- implications: labels that imply others --------------------------------------------------------


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
            raise InputError("implies", "must contain at least one pair of child and parent")
        object.__setattr__(self, "pairs", tuple(_leaves_first(checked)))

    @classmethod
    def of(cls, source: Any) -> Implications:
        """Return implications as people have them.

        Parameters
        ----------
        source
            Pairs (child, parent); a mapping from a child to its parent or parents; or implications.
        """
        if isinstance(source, cls):
            return source
        if isinstance(source, Mapping):
            return cls(
                tuple(
                    (child, parent)
                    for child, parents in source.items()
                    for parent in _listed(parents)
                )
            )
        if isinstance(source, str) or not isinstance(source, Iterable):
            raise InputError("implies", "must be pairs or a mapping", source)
        return cls(tuple(source))

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
        raise InputError("implies", "must contain pairs (child, parent)", pair)
    child, parent = (_name(one) for one in pair)
    return child, parent


def _name(label: Any) -> Name:
    if isinstance(label, Integral) and not isinstance(label, bool) and int(label) >= 0:
        return int(label)
    if isinstance(label, str) and label.strip():
        return label.strip()
    raise InputError("implies", "must refer to labels by name, or by position from 0", label)


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
        cycle = " -> ".join(map(str, error.args[1]))
        raise InputError("implies", f"must not contain a cycle: {cycle}") from None
    return sorted(pairs, key=lambda pair: order[pair[0]])


def _place(label: Name, labels: int, known: Mapping[str, int] | None) -> int:
    if isinstance(label, str):
        if known is not None and label in known:
            return known[label]
        if known is not None:
            first = ", ".join([*known][:_FEW])
            more = ", ..." if len(known) > _FEW else ""
            raise InputError(
                "implies", f"must name labels ({first}{more}), and {shown(label)} is not one"
            )
        if not (label.isascii() and label.isdigit()):
            raise InputError(
                "implies",
                f"names {shown(label)}, but these labels have no names: use their positions, 0 to "
                f"{labels - 1}",
            )
    place = int(label)
    if place >= labels:
        raise InputError("implies", f"must name labels 0 to {labels - 1}", place)
    return place


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
        made = _propagated(label_table("labels", labels.labels), pairs, rule)
        told = (
            f"{len(stated.pairs)} implications were applied ({rule}) and changed "
            f"{int((made != labels.labels).sum())} labels"
        )
        chances = labels.probabilities
        if chances is not None:
            chances = _propagated(chances, pairs, rule)
        return replace(labels, labels=made, _chances=chances, processed=(*labels.processed, told))
    array = np.asarray(labels)
    if array.dtype.kind == "f" and array.ndim == 2:
        if not ((array >= 0) & (array <= 1)).all():
            raise InputError("labels", "must be probabilities from 0 to 1 where they are floats")
    else:
        array = label_table("labels", labels)
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
