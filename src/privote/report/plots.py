"""Figures as SVG text: queries answered, utility, and how both depend on what was tuned.

Each figure is 700 pixels wide, legible in light and in dark, and carries a sentence for those who
cannot see it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from privote.errors import InputError

from .canvas import PALETTE, heading, legend, sheet, svg_of
from .panels import Panel, check_number, side_by_side
from .tables import OWNER_ONLY, cell


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


def in_parts(
    bars: Mapping[str, Mapping[str, float]], *, title: str, axis: str, sealed: bool = False
) -> str:
    """Return horizontal bars of two parts: how much of each is one thing, and how much the other.

    Parameters
    ----------
    bars
        From top to bottom, each a dict of the same two parts; the second is hatched.
    title
        What stands above the figure.
    axis
        What the bars count.
    sealed
        True if the numbers are for the owner's eyes.
    """
    kinds = {tuple(_check_points(f"bars[{name!r}]", parts)) for name, parts in bars.items()}
    if [len(kind) for kind in kinds] != [2]:
        raise InputError("bars", "must be a dict of bars with the same two parts")
    looks = ({"facecolor": PALETTE[0]}, {"facecolor": "none", "hatch": "///"})
    with sheet(1.8 + 0.46 * len(bars)) as (figure, axes):
        for place, parts in enumerate(bars.values()):
            left = 0.0
            for (part, value), look in zip(parts.items(), looks, strict=True):
                once = part if place == 0 else None
                colour = PALETTE[looks.index(look)]
                axes.barh(place, value, 0.62, left, edgecolor=colour, label=once, **look)
                left += value
            shown = " + ".join(cell(value) for value in parts.values())
            axes.annotate(shown, (left, place), (6, 0), textcoords="offset points", va="center")
        longest = max(sum(parts.values()) for parts in bars.values())
        axes.set_xlim(0, longest * 1.25 or 1)  # room for the numbers of the longest bar
        axes.set_yticks(range(len(bars)), list(bars))
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.xaxis.set_major_formatter(lambda value, _: cell(round(value)))
        axes.set_xlabel(axis)
        heading(axes, title)
        legend(figure)
        said = (
            f"{name}: " + ", ".join(f"{cell(value)} {part}" for part, value in parts.items())
            for name, parts in bars.items()
        )
        return svg_of(figure, f"{title}. {axis.capitalize()}. {'; '.join(said)}.", sealed=sealed)


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
