"""Figures as SVG text, 700 pixels wide, legible in light and in dark.

Ink and ground follow the reader's colour scheme, on their own or inside a page. No difference is
shown by colour alone: markers, dashes and hatches repeat it. Each figure carries a sentence for
those who cannot see it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from io import StringIO
from typing import Any

from privote.errors import missing_extra

from .tables import cell

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
    "font.size": 13,  # legible on a phone, where the figure is half as wide
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
def sheet(height: float, panels: int = 1) -> Iterator[tuple[Any, list[Any]]]:
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
    size = {} if panels == 1 else {"font.size": 9}
    with style.context(["default", _RC | size]):
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.09)
        figure = Figure(figsize=(_WIDTH, height), layout=layout)
        every = figure.subplots(-(-panels // 2), min(panels, 2), squeeze=False).ravel().tolist()
        for axes in every:
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_axisbelow(True)
        for axes in every[panels:]:
            axes.set_axis_off()
        yield figure, every


def heading(axes: Any, title: str, *, small: bool = False) -> None:
    """Put the title above the axes, where a text would have it: on the left."""
    size, pad = (10, 7) if small else (14.5, 12)
    axes.set_title(title, loc="left", fontsize=size, fontweight="bold", pad=pad)


def legend(figure: Any) -> None:
    """Put the legend where it hides nothing: below."""
    figure.legend(loc="outside lower left", ncols=2, handlelength=3.2, columnspacing=1.6)


def svg_of(figure: Any, alt: str) -> str:
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
        f'aria-label="{escape(alt)}"><style>{_STYLE}</style>{body}'
    )


def bars(
    values: Mapping[str, float],
    *,
    title: str,
    axis: str,
    spans: Sequence[tuple[float, float]] | None = None,
) -> str:
    """Return horizontal bars.

    Parameters
    ----------
    values
        How long each bar is, by its name, from top to bottom.
    title, axis
        What stands above the figure, and what the bars show.
    spans
        The interval that each lies in, drawn as a line.
    """
    with sheet(1.3 + 0.46 * len(values)) as (figure, (axes,)):
        longest = max([*values.values(), *(high for _, high in spans or ())])
        axes.barh(range(len(values)), values.values(), height=0.62, color=PALETTE[0])
        for place, value in enumerate(values.values()):
            end = value
            if spans is not None:
                low, end = spans[place]
                axes.plot([low, end], [place, place], color=INK, marker="|", linewidth=1.5)
            axes.annotate(
                cell(value), (end, place), (6, 0), textcoords="offset points", va="center"
            )
        axes.set_xlim(0, longest * 1.12 or 1)  # room for the number of the longest bar
        axes.set_yticks(range(len(values)), values)
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        if longest > 1:
            axes.xaxis.set_major_formatter(lambda value, _: cell(round(value)))
        axes.set_xlabel(axis)
        heading(axes, title)
        said = "; ".join(f"{name} {cell(value)}" for name, value in values.items())
        return svg_of(figure, f"{title}. {axis.capitalize()}: {said}.")


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
    with sheet(3.7) as (figure, (axes,)):
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
