"""Figures as SVG text, 700 pixels wide, legible in light and in dark.

Ink and ground follow the reader's colour scheme, on their own or inside a page. No difference is
shown by colour alone: markers, dashes and hatches repeat it. Each figure carries a sentence for
those who cannot see it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from io import StringIO
from numbers import Real
from typing import Any

from privote.errors import InputError, missing_extra
from privote.release import OWNER_ONLY

from .tables import cell

SEALED = ' data-sealed="true"'  # in a drawing that shows numbers for the owner's eyes

_WIDTH = 7.0  # inches at 100 pixels: 700 pixels
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3)))
# Stand-ins that matplotlib draws with and that become the reader's colours afterwards.
INK, _GROUND = "#010203", "#fdfcfb"
_STYLE = (
    ".privote-figure{color:#1c2530}.privote-figure .ground{fill:#ffffff}"
    "@media screen and (prefers-color-scheme:dark)"
    "{.privote-figure{color:#e4e8ee}.privote-figure .ground{fill:#161b22}}"
)
_FONT = re.compile(r"(font(?:-family)?:(?: [\w. ]*px)? )'[^;\"]*sans-serif")
_RC: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be selected, searched and read aloud
    "svg.hashsalt": "privote",  # the same numbers give the same file
    "font.family": "sans-serif",
    "font.size": 11,
    "text.parse_math": False,  # a name with two dollar signs is still a name
    "hatch.linewidth": 1.2,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.14,
    "legend.framealpha": 0.0,
    "figure.facecolor": _GROUND,
    "axes.facecolor": "none",
}


@contextmanager
def sheets(number: int, height: float) -> Iterator[tuple[Any, list[Any]]]:
    """Yield a figure of 700 pixels and its axes, two in a row, under the settings of this module.

    The last row may hold one that is empty: a place for the legend.
    """
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise missing_extra("report", "drawing figures") from error

    # Figure, not pyplot, and the default style first: no window system is needed, and the user's
    # own figures and settings neither change this one nor are changed.
    size = {} if number == 1 else {"font.size": 9}
    with style.context(["default", _RC | size]):
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.09)
        figure = Figure(figsize=(_WIDTH, height), layout=layout)
        every = figure.subplots(-(-number // 2), min(number, 2), squeeze=False).ravel().tolist()
        for axes in every:
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_axisbelow(True)
        for axes in every[number:]:
            axes.set_axis_off()
        yield figure, every


@contextmanager
def sheet(height: float) -> Iterator[tuple[Any, Any]]:
    """Yield a figure of 700 pixels and its only axes."""
    with sheets(1, height) as (figure, every):
        yield figure, every[0]


def heading(axes: Any, title: str, *, small: bool = False) -> None:
    """Put the title above the axes, where a text would have it: on the left."""
    size, pad = (10, 7) if small else (12.5, 12)
    axes.set_title(title, loc="left", fontsize=size, fontweight="bold", pad=pad)


def legend(figure: Any, marks: Mapping[str, Any] | None = None) -> None:
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
    columns = legend_columns(marks)
    figure.legend(marks.values(), marks.keys(), loc="outside lower left", ncols=columns, **look)


def legend_columns(names: Collection[str]) -> int:
    """Return how many names stand beside each other below a figure."""
    longest = max(map(len, names))
    return 4 if longest < 14 else 3 if longest < 24 else 2


def svg_of(figure: Any, alt: str, *, sealed: bool = False) -> str:
    """Return the figure as an SVG element that follows the reader's colours."""
    out = StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(out, format="svg", metadata=nothing, dpi=100)
    drawn = out.getvalue()
    head, _, body = drawn[drawn.index("<svg") :].partition(">")
    names = " ".join(part for part in head.split() if part.startswith("xmlns"))
    width, height = (round(72 * inches, 2) for inches in figure.get_size_inches())
    body = body.replace(f'style="fill: {_GROUND}"', 'class="ground" fill="#ffffff"')
    body = body.replace(f": {INK}", ": currentColor")
    body = body.replace('"text/css">*{', '"text/css">.privote-figure *{')
    body = _FONT.sub(r"\1system-ui, sans-serif", body)
    return (
        f'<svg {names} class="privote-figure" viewBox="0 0 {width} {height}" width="700" '
        f'height="{round(700 * height / width)}" color="#1c2530" role="img" '
        f'aria-label="{escape(alt)}"{SEALED if sealed else ""}><style>{_STYLE}</style>{body}'
    )


# -- lines ---------------------------------------------------------------------------------------

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


def side_by_side(panels: Sequence[Panel], *, paired: bool = False, sealed: bool = False) -> str:
    """Return one figure of all panels, two in a row, with one legend.

    Parameters
    ----------
    panels
        From left to right, then down.
    paired
        True if names of lines are pairs, such as "Binary, exact": lines that share the first part
        share a colour, and those that share the second a dash.
    sealed
        True if the numbers are for the owner's eyes.
    """
    if not panels:
        raise InputError("panels", "must hold at least one panel")
    drawn = [_numbers(panel) for panel in panels]
    looks = _Looks([name for lines, _ in drawn for name in lines], paired)
    rows = math.ceil(len(panels) / 2)
    height = 3.7 if len(panels) == 1 else 0.3 + 2.6 * rows
    names = looks.names(name for _, points in drawn for name in points)
    names += [name for panel in panels for name in (*panel.references, *panel.choices)]
    if len(panels) % 2 == 0 or len(panels) == 1:  # else the legend has a panel to itself
        height += 0.3 + 0.22 * math.ceil(len(set(names)) / legend_columns(names))
    with sheets(len(panels), height) as (figure, every):
        for panel, (lines, points), axes in zip(panels, drawn, every, strict=False):
            _draw(axes, panel, lines, points, looks)
            heading(axes, panel.title, small=len(panels) > 1)
        legend(figure, looks.marks(figure) if paired else None)
        alt = " ".join(_said(p, lines) for p, (lines, _) in zip(panels, drawn, strict=True))
        return svg_of(figure, alt, sealed=sealed)


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
        shown = check_number(f"references[{name!r}]", value)
        axes.axhline(shown, color=INK, linestyle=DASHES[1 + number % 5], alpha=0.65, label=name)
    for number, (name, value) in enumerate(panel.choices.items()):
        shown = check_number(f"choices[{name!r}]", value)
        axes.axvline(shown, color=INK, linestyle=DASHES[3 - number % 3], alpha=0.65, label=name)
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


def _numbers(panel: Panel) -> tuple[Lines, Lines]:
    """Return lines and points without what cannot be drawn; at least one line with a number."""
    lines = _drawable("series", panel.series, panel.log)
    if not lines:
        raise InputError("series", "must hold at least one number")
    return lines, _drawable("points", panel.points, panel.log) if panel.points else {}


def _drawable(argument: str, series: Any, log: bool) -> dict[str, dict[float, float]]:
    if not isinstance(series, Mapping) or not series:
        raise InputError(argument, "must be a dict with at least one line")
    lines = {
        name: {
            check_number(f"{argument}[{name!r}]", place): check_number(
                f"{argument}[{name!r}]", value
            )
            for place, value in points.items()
            if not (isinstance(value, Real) and (math.isnan(value) or (log and value <= 0)))
        }
        for name, points in series.items()
    }
    return {name: points for name, points in lines.items() if points}


def check_number(name: str, value: Any) -> float:
    """Return a finite number as a float, or say which argument is none."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise InputError(name, "must be a finite number", value)
    return float(value)


# -- bars and histograms -------------------------------------------------------------------------


def answered_by_guarantee(
    answered: Mapping[str, float],
    *,
    title: str,
    sealed: Collection[str] = (),
    axis: str = "queries answered",
) -> str:
    """Return horizontal bars: how many queries each guarantee answers.

    Parameters
    ----------
    answered
        Queries answered, by the name of the guarantee, from top to bottom.
    title
        What stands above the figure.
    sealed
        Names whose number is for the owner's eyes; their bars are hatched and say so.
    axis
        What the bars count, if not queries.
    """
    names = list(_check_points("answered", answered))
    _check_known("sealed", sealed, names)
    height = 1.3 + 0.46 * len(names)
    with sheet(height) as (figure, axes):
        longest = max(answered.values())
        for place, name in enumerate(names):
            value, hidden = answered[name], name in sealed
            look = {"facecolor": "none", "hatch": "///"} if hidden else {"facecolor": PALETTE[0]}
            axes.barh(place, value, height=0.62, edgecolor=PALETTE[1 if hidden else 0], **look)
            axes.annotate(
                cell(value), (value, place), (6, 0), textcoords="offset points", va="center"
            )
        axes.set_xlim(0, longest * 1.12 or 1)  # room for the number of the longest bar
        said_beside = [f"{name}\n{OWNER_ONLY}" if name in sealed else name for name in names]
        axes.set_yticks(range(len(names)), said_beside)
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        if longest > 1:
            axes.xaxis.set_major_formatter(lambda value, _: cell(round(value)))
        axes.set_xlabel(axis)
        heading(axes, title)
        said = (f"{name} {cell(answered[name])}" for name in names)
        alt = f"{title}. {axis.capitalize()}: {'; '.join(said)}."
        return svg_of(figure, alt, sealed=bool(sealed))


def by_probability(parts: Mapping[str, Sequence[int]], *, title: str, axis: str) -> str:
    """Return a histogram of probabilities in equal bins from 0 to 1, on a logarithmic scale.

    Parameters
    ----------
    parts
        How many fall into each bin, for two parts that stand beside each other; the second is
        hatched.
    title
        What stands above the figure.
    axis
        What the probability is of.
    """
    looks = ({"facecolor": PALETTE[0]}, {"facecolor": "none", "hatch": "///"})
    with sheet(3.7) as (figure, axes):
        for place, ((part, counts), look) in enumerate(zip(parts.items(), looks, strict=True)):
            width = 1 / len(counts)
            for number, several in enumerate(zip(*parts.values(), strict=True)):
                share = 0.45 if all(several) else 0.9  # of the bin: one part alone fills it
                left = width * (number + 0.05 + (share * place if all(several) else 0))
                once = part if number == 0 else None
                size = {"x": left, "height": counts[number], "width": share * width}
                axes.bar(**size, align="edge", edgecolor=PALETTE[place], label=once, **look)
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.7)
        axes.yaxis.set_major_formatter(lambda value, _: cell(round(value)))
        axes.set_xlim(0, 1)
        axes.set_xlabel(axis)
        axes.set_ylabel("labels")
        axes.grid(axis="y")
        heading(axes, title)
        legend(figure)
        said = "; ".join(
            f"{part}: " + ", ".join(map(cell, counts)) for part, counts in parts.items()
        )
        return svg_of(figure, f"{title}. Labels by {axis}, in equal steps from 0 to 1. {said}.")


def by_parameter(
    series: Mapping[str, Mapping[float, float]],
    *,
    title: str,
    parameter: str,
    quantity: str,
    references: Mapping[str, float] | None = None,
    sealed: bool = False,
) -> str:
    """Return lines: a quantity against a parameter that was tuned.

    Parameters
    ----------
    series
        For each line, a dict from the parameter to the quantity; what is NaN is not drawn.
    title
        What stands above the figure.
    parameter, quantity
        What stands along the axes; the name of a figure of merit is written out.
    references
        Horizontal lines to compare with, such as ``{"without noise": 0.6}``.
    sealed
        True if the numbers are for the owner's eyes.
    """
    panel = Panel(
        title=title,
        parameter=parameter,
        quantity=quantity,
        series=series,
        references=references or {},
    )
    return side_by_side([panel], sealed=sealed)


def _check_points(name: str, points: Any) -> Mapping[Any, float]:
    if not isinstance(points, Mapping) or not points:
        raise InputError(name, "must be a dict with at least one number", points)
    for key, value in points.items():
        if check_number(f"{name}[{key!r}]", value) < 0:
            raise InputError(f"{name}[{key!r}] must not be negative, got {value!r}")
    return points


def _check_known(name: str, chosen: Collection[str], known: Collection[str]) -> None:
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        raise InputError(name, f"must name what is drawn, got {', '.join(map(repr, unknown))}")


def _check_few(argument: str, what: str, names: Sequence[str]) -> None:
    if len(names) > len(PALETTE):
        raise InputError(
            argument, f"must hold at most {len(PALETTE)} {what} to be told apart, got {len(names)}"
        )
