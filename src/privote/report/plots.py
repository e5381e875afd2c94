"""Figures as SVG text: queries answered, utility, and how both depend on what was tuned.

Each figure is 700 pixels wide, legible in light and in dark, and carries a sentence for those who
cannot see it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from numbers import Real
from typing import Any

from privote.errors import InputError

from .canvas import DASHES, INK, MARKERS, PALETTE, heading, legend, sheet, svg_of
from .tables import OWNER_ONLY, cell

_METRIC_NAMES = {
    "ACC": "accuracy (ACC)",
    "BAC": "balanced accuracy (BAC)",
    "AUC": "area under the ROC curve (AUC)",
    "MAP": "mean average precision (MAP)",
}


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
    lines = _check_lines(series)
    whole = all(float(v).is_integer() for points in lines.values() for v in points.values())
    with sheet(4.4) as (figure, axes):
        for i, (name, points) in enumerate(lines.items()):
            places = sorted(points)
            _line(axes, i, name, places, [points[place] for place in places])
        for r, (name, value) in enumerate((references or {}).items()):
            shown = _check_number(f"references[{name!r}]", value)
            axes.axhline(shown, color=INK, linestyle=DASHES[1 + r % 5], alpha=0.65, label=name)
        if whole:
            axes.set_ylim(bottom=0)
        axes.grid(axis="both")
        axes.set_xlabel(parameter)
        axes.set_ylabel(_METRIC_NAMES.get(quantity, quantity))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        if whole:
            axes.yaxis.set_major_formatter(lambda value, _: cell(round(value)))
        heading(axes, title)
        legend(figure)
        digits = 0 if whole else 3
        said = "; ".join(_range_of(name, points, digits) for name, points in lines.items())
        alt = f"{title}. {quantity} against {parameter}. {said}."
        return svg_of(figure, alt, sealed=sealed)


def utility_by_answered(
    series: Mapping[str, Sequence[tuple[str, float, float]]],
    *,
    title: str,
    metric: str = "BAC",
    sealed: bool = False,
) -> str:
    """Return lines: a figure of merit against the number of queries answered, as a value changes.

    Parameters
    ----------
    series
        For each guarantee, points (name of the value, queries answered, figure) in the order of
        the values; the first and the last are named. Points without queries or without a figure
        are not drawn.
    title
        What stands above the figure.
    metric
        The key of the figure of merit, such as "BAC".
    sealed
        True if the numbers are for the owner's eyes.
    """
    if not isinstance(series, Mapping) or not series:
        raise InputError("series", "must be a dict with at least one guarantee")
    _check_few("series", "guarantees", list(series))
    kept = {
        name: [point for point in points if point[1] > 0 and not math.isnan(point[2])]
        for name, points in series.items()
    }
    if not any(kept.values()):
        raise InputError(
            "series", "must hold at least one point with an answered query and a figure"
        )
    with sheet(4.4) as (figure, axes):
        from matplotlib.ticker import LogLocator

        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        for i, (name, points) in enumerate(kept.items()):
            if points:
                _line(axes, i, name, [p[1] for p in points], [p[2] for p in points])
            for value, queries, merit in (points[0], points[-1]) if len(points) > 1 else points:
                axes.annotate(
                    value,
                    (queries, merit),
                    (0, 8 if i % 2 == 0 else -16),  # lines that run together are named apart
                    textcoords="offset points",
                    ha="center",
                    fontsize=9,
                    color=PALETTE[i],
                )
        axes.margins(x=0.08, y=0.12)
        axes.grid(axis="both")
        axes.set_xlabel("queries answered")
        axes.set_ylabel(_METRIC_NAMES.get(metric, metric))
        axes.xaxis.set_major_formatter(lambda value, _: cell(round(value)))
        axes.xaxis.set_minor_formatter(lambda *_: "")
        heading(axes, title)
        legend(figure)
        said = [
            f"{name}, {value}: {cell(round(queries))} queries, {cell(merit)}"
            for name, points in kept.items()
            for value, queries, merit in points
        ]
        alt = f"{title}. {metric} against queries answered. {'; '.join(said)}."
        return svg_of(figure, alt, sealed=sealed)


def _line(axes: Any, number: int, name: str, x: Sequence[float], y: Sequence[float]) -> None:
    """Draw one line in its own colour, dash and marker."""
    axes.plot(
        x,
        y,
        linestyle=DASHES[number],
        linewidth=2,
        marker=MARKERS[number],
        markersize=6,
        color=PALETTE[number],
        label=name,
    )


def _range_of(name: str, points: Mapping[float, float], digits: int) -> str:
    first, last = min(points), max(points)
    ends = f"{cell(points[first], digits)} at {first:g}, {cell(points[last], digits)} at {last:g}"
    return f"{name}: {ends}"


def _check_lines(series: Any) -> dict[str, dict[float, float]]:
    """Return lines without what is NaN; at least one with a point."""
    if not isinstance(series, Mapping) or not series:
        raise InputError("series", "must be a dict with at least one line")
    _check_few("series", "lines", list(series))
    lines = {
        name: {
            _check_number(f"series[{name!r}]", place): _check_number(f"series[{name!r}]", value)
            for place, value in points.items()
            if not (isinstance(value, Real) and math.isnan(value))
        }
        for name, points in series.items()
    }
    drawn = {name: points for name, points in lines.items() if points}
    if not drawn:
        raise InputError("series", "must hold at least one number")
    return drawn


def _check_points(name: str, points: Any) -> Mapping[Any, float]:
    if not isinstance(points, Mapping) or not points:
        raise InputError(name, "must be a dict with at least one number", points)
    for key, value in points.items():
        if _check_number(f"{name}[{key!r}]", value) < 0:
            raise InputError(f"{name}[{key!r}] must not be negative, got {value!r}")
    return points


def _check_number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise InputError(name, "must be a finite number", value)
    return float(value)


def _check_known(name: str, chosen: Collection[str], known: Collection[str]) -> None:
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        raise InputError(name, f"must name what is drawn, got {', '.join(map(repr, unknown))}")


def _check_few(argument: str, what: str, names: Sequence[str]) -> None:
    if len(names) > len(PALETTE):
        raise InputError(
            argument, f"must hold at most {len(PALETTE)} {what} to be told apart, got {len(names)}"
        )
