"""The sheet that figures are drawn on: their look, and how they become SVG text.

Ink and ground follow the reader's colour scheme, on their own or inside a page. No difference is
shown by colour alone: markers, dashes and hatches repeat it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from io import StringIO
from typing import Any

from privote.errors import missing_extra

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
