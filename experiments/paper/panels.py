"""Panels of lines beside each other, with one legend: how the paper draws its figures."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from privote.errors import InputError
from privote.report.plots import DASHES, INK, MARKERS, PALETTE, heading, sheet, svg_of
from privote.report.tables import cell

Lines = Mapping[str, Mapping[float, float]]

METRIC_NAMES = {
    "ACC": "accuracy (ACC)",
    "BAC": "balanced accuracy (BAC)",
    "AUC": "area under the ROC curve (AUC)",
    "MAP": "mean average precision (MAP)",
}
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Lines over one pair of axes.

    Attributes
    ----------
    title
        What stands above.
    parameter, quantity
        What stands along the axes; the name of a figure of merit is written out.
    series
        For each line, a dict from the parameter to the quantity; what is NaN is not drawn.
    points
        Drawn as single hollow marks: numbers that others published. One that is named after a
        line, as "Binary, as published" is after "Binary", has its colour.
    references
        Horizontal lines to compare with, such as ``{"without noise": 0.6}``.
    choices
        Vertical lines at values of the parameter, such as ``{"chosen": 9}``.
    log
        Whether the quantity has a logarithmic axis; what is not above 0 is then not drawn.
    joined
        False where the parameter only counts, such as a label's number: marks without lines.
    """

    title: str
    parameter: str
    quantity: str
    series: Lines
    points: Lines = field(default_factory=dict)
    references: Mapping[str, float] = field(default_factory=dict)
    choices: Mapping[str, float] = field(default_factory=dict)
    log: bool = False
    joined: bool = True


def side_by_side(panels: Sequence[Panel], *, paired: bool = False) -> str:
    """Return one figure of all panels, two in a row, with one legend.

    Parameters
    ----------
    panels
        From left to right, then down.
    paired
        True if names of lines are pairs, such as "Binary, exact": lines that share the first part
        share a colour, and those that share the second a dash.
    """
    if not panels:
        raise InputError("panels", "must hold at least one panel")
    drawn = [(_drawable(p.series, p.log), _drawable(p.points, p.log)) for p in panels]
    if not all(lines for lines, _ in drawn):
        raise InputError("series", "must hold at least one number")
    looks = _Looks([name for lines, _ in drawn for name in lines], paired)
    rows = math.ceil(len(panels) / 2)
    height = 3.7 if len(panels) == 1 else 0.3 + 2.6 * rows
    names = looks.names(name for _, points in drawn for name in points)
    names += [name for panel in panels for name in (*panel.references, *panel.choices)]
    if len(panels) % 2 == 0 or len(panels) == 1:  # else the legend has a panel to itself
        height += 0.3 + 0.22 * math.ceil(len(set(names)) / _legend_columns(names))
    with sheet(height, len(panels)) as (figure, every):
        for panel, (lines, points), axes in zip(panels, drawn, every, strict=False):
            _draw(axes, panel, lines, points, looks)
            heading(axes, panel.title, small=len(panels) > 1)
        _legend(figure, looks.marks(figure) if paired else None)
        alt = " ".join(_said(p, lines) for p, (lines, _) in zip(panels, drawn, strict=True))
        return svg_of(figure, alt)


class _Looks:
    """Which colour, dash and marker a name has on the whole sheet."""

    def __init__(self, names: Sequence[str], paired: bool) -> None:
        self._paired = paired
        parts = [self._parts(name) for name in names]
        self._firsts = list(dict.fromkeys(first for first, _ in parts))
        self._lasts = list(dict.fromkeys(last for _, last in parts if last))
        most = max(len(self._firsts), len(self._lasts))
        if most > len(PALETTE):
            few = f"must hold at most {len(PALETTE)} lines to be told apart, got {most}"
            raise InputError("series", few)

    def _parts(self, name: str) -> tuple[str, str]:
        if not self._paired:
            return name, name
        first, comma, last = name.rpartition(", ")
        return (first, last) if comma else (name, "")

    def of_line(self, name: str) -> dict[str, Any]:
        first, last = self._parts(name)
        place = self._firsts.index(first)
        return {
            "color": PALETTE[place],
            "marker": MARKERS[place],
            "linestyle": DASHES[self._lasts.index(last) if last else 0],
            "linewidth": 2,
            "markersize": 6,
        }

    def of_point(self, name: str) -> dict[str, Any]:
        first = name.rpartition(", ")[0]
        known = first in self._firsts
        place = self._firsts.index(first) if known else 0
        return {
            "color": PALETTE[place] if known else INK,
            "marker": MARKERS[place] if known else "*",
            "linestyle": "none",
            "fillstyle": "none",
            "markersize": 9,
            "markeredgewidth": 1.4,
        }

    def names(self, points: Iterable[str]) -> list[str]:
        """Return what the legend names: lines in pairs by each of their parts."""
        if not self._paired:
            return [*self._firsts, *points]
        return list(dict.fromkeys([*self._firsts, *self._lasts, *(_after(p) for p in points)]))

    def marks(self, figure: Any) -> dict[str, Any]:
        """Return what the legend shows for lines in pairs: colours, dashes, and all else."""
        from matplotlib.lines import Line2D

        def mark(**look: Any) -> Any:
            return Line2D([], [], linewidth=2, **look)

        shown = {
            name: mark(color=PALETTE[place], marker=MARKERS[place], markersize=6)
            for place, name in enumerate(self._firsts)
        }
        shown |= {
            name: mark(color=INK, linestyle=DASHES[place]) for place, name in enumerate(self._lasts)
        }
        for axes in figure.axes:
            for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
                if handle.get_linestyle() == "None":
                    look = {"marker": "o", "markersize": 9, "fillstyle": "none"}
                    shown[_after(name)] = mark(color=INK, linestyle="none", **look)
                elif self._parts(name)[0] not in self._firsts:
                    shown[name] = handle
        return shown


def _after(name: str) -> str:
    return name.rpartition(", ")[2]


def _draw(axes: Any, panel: Panel, lines: Lines, points: Lines, looks: _Looks) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    for name, line in lines.items():
        look = looks.of_line(name)
        if not panel.joined:
            look |= {"linestyle": "none", "markersize": 8}
        places = sorted(line)
        axes.plot(places, [line[place] for place in places], label=name, **look)
    for name, line in points.items():
        axes.plot(list(line), list(line.values()), label=name, **looks.of_point(name))
    for number, (name, value) in enumerate(panel.references.items()):
        axes.axhline(value, color=INK, linestyle=DASHES[1 + number % 5], alpha=0.65, label=name)
    for number, (name, value) in enumerate(panel.choices.items()):
        axes.axvline(value, color=INK, linestyle=DASHES[3 - number % 3], alpha=0.65, label=name)
    whole = _whole(lines)
    if panel.log:
        numbers = [v for line in (*lines.values(), *points.values()) for v in line.values()]
        close = max(numbers) < 100 * min(numbers)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if close else (1,)))
        axes.yaxis.set_major_formatter(lambda value, _: _power(value))
        axes.yaxis.set_minor_formatter(NullFormatter())
    elif whole:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: cell(round(value)))
    if all(float(place).is_integer() for line in lines.values() for place in line):
        axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 5, 10], integer=True))
    axes.grid(axis="both")
    axes.set_xlabel(panel.parameter)
    axes.set_ylabel(METRIC_NAMES.get(panel.quantity, panel.quantity))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _power(value: float) -> str:
    """Return 0.1, 1,000 or 10⁻⁶."""
    if 0.01 <= value < 99_999:
        return f"{value:,g}"
    mantissa, _, exponent = f"{value:.0e}".partition("e")
    factor = "" if mantissa == "1" else f"{mantissa}·"
    return f"{factor}10{str(int(exponent)).translate(_RAISED)}"


def _whole(lines: Lines) -> bool:
    return all(float(v).is_integer() for points in lines.values() for v in points.values())


def _said(panel: Panel, lines: Lines) -> str:
    digits = 0 if _whole(lines) else 3
    ends = "; ".join(_range_of(name, points, digits) for name, points in lines.items())
    return f"{panel.title}. {panel.quantity} against {panel.parameter}. {ends}."


def _range_of(name: str, points: Mapping[float, float], digits: int) -> str:
    first, last = min(points), max(points)
    ends = f"{cell(points[first], digits)} at {first:g}, {cell(points[last], digits)} at {last:g}"
    return f"{name}: {ends}"


def _drawable(series: Lines, log: bool) -> Lines:
    """Return lines without what cannot be drawn."""
    lines = {
        name: {x: y for x, y in points.items() if not (math.isnan(y) or (log and y <= 0))}
        for name, points in series.items()
    }
    return {name: points for name, points in lines.items() if points}


def _legend(figure: Any, marks: Mapping[str, Any] | None = None) -> None:
    """Put the legend where it hides nothing: into a panel that is empty, or below.

    Parameters
    ----------
    figure
        The figure.
    marks
        What to show for each name; by default what the panels show, a name of several once.
    """
    if marks is None:
        marks = {}
        for axes in figure.axes:
            handles, names = axes.get_legend_handles_labels()
            marks |= dict(zip(names, handles, strict=True))
    look = {"handlelength": 3.2, "columnspacing": 1.6}
    empty = [axes for axes in figure.axes if not axes.axison]
    if empty:
        empty[0].legend(marks.values(), marks.keys(), loc="center left", **look)
        return
    columns = _legend_columns(marks)
    figure.legend(marks.values(), marks.keys(), loc="outside lower left", ncols=columns, **look)


def _legend_columns(names: Collection[str]) -> int:
    """Return how many names stand beside each other below a figure."""
    longest = max(map(len, names))
    return 4 if longest < 14 else 3 if longest < 24 else 2
