"""Results as a notebook shows them: the facts that a summary has, and one drawing of them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from markupsafe import escape

from privote.errors import MissingExtraError
from privote.guarantees import Shown
from privote.polls import PollResult
from privote.release import Release, headline

from .labels import certainty
from .plots import bars

_MOST = 40  # bars that can be told apart


def html(result: Shown) -> str:
    """Return what may be published about a result as a piece of HTML: a table, and an SVG.

    Without matplotlib only the table.
    """
    release = result if isinstance(result, Release) else getattr(result, "release_", None)
    opening = "" if release is None else headline(release)
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in result.brief().items()
    )
    drawing = ""
    with suppress(MissingExtraError):
        drawing = _drawn(result)
    return (
        f'<p>{escape(opening)}</p><table>{rows}</table><div style="max-width:700px">{drawing}</div>'
    )


def _drawn(result: Any) -> str:
    """Return the one figure of a result; nothing where it has nothing to draw."""
    if isinstance(result, Release) and result.probabilities is not None:
        return certainty(result)
    shares = result.shares if isinstance(result, PollResult) else None
    if not shares or len(shares) > _MOST:
        return ""
    values = {share.option: share.share for share in shares}
    axis = "share of the voters" if result.plan.size.each == 1 else "points per voter"
    spans = [(share.low, share.high) for share in shares]
    return bars(values, title=result.title, axis=axis, spans=spans)
