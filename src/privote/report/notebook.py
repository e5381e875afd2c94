"""Results as a notebook shows them: the facts that a summary has, and one drawing of them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from privote.errors import MissingExtraError
from privote.guarantees import Shown
from privote.planning import Plan
from privote.polls import PollResult
from privote.release import Release, headline

from .labels import certainty, named
from .page import escape
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
    if isinstance(result, Release):
        if result.probabilities is not None:
            return certainty(result)
        ones = (result.labels == 1).sum(axis=0).tolist()
        return _bars(zip(named(result), ones, strict=True), "Released ones", "ones by label")
    if isinstance(result, PollResult):
        shares = result.shares or ()
        spans = [(share.low, share.high) for share in shares]
        values = ((share.option, share.share) for share in shares)
        axis = "share of the voters" if result.plan.size.each == 1 else "points per voter"
        return _bars(values, result.title, axis, spans)
    if isinstance(result, Plan):
        scores = ((kind, quality["f1"]) for kind, quality in result.quality.items())
        return _bars(scores, "Expected quality of the labels", "F1 by kind of voters")
    common = getattr(result, "shares_", None)  # of a model that is fitted
    if common is None:
        return ""
    names = result.label_names_ if hasattr(result, "label_names_") else map(str, result.classes_)
    return _bars(zip(names, common, strict=True), "How common each label is", "estimated share")


def _bars(values: Iterable[tuple[str, float]], title: str, axis: str, spans: Any = None) -> str:
    found = dict(values)
    fits = 0 < len(found) <= _MOST
    return bars(found, title=title, axis=axis, spans=spans) if fits else ""
