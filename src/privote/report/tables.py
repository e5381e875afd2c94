"""Tables of results, for the terminal and for the page.

Rows are plain dicts. What a reader may do with a row is said in words, in a column of its own:
*unconditional* numbers may be published, others are *for the owner's eyes*. Colour only repeats it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from privote.accounting.renyi import rounded_up
from privote.errors import printable
from privote.guarantees import OWNER_ONLY, SANITIZED, UNCONDITIONAL, Guarantee
from privote.polls.poll import UNCERTAIN

Row = Mapping[str, Any]

NOTHING = "–"
#: What the figures of merit are, for who meets them for the first time.
FIGURES_MEAN = (
    "ACC: accuracy. BAC: balanced accuracy (0.5 for random labels). AUC: area under the ROC curve "
    "(0.5 for random scores). MAP: mean average precision. Each is a mean over labels; 1 is best."
)

_MARK_STYLES = {UNCONDITIONAL: "green", SANITIZED: "yellow", OWNER_ONLY: "bold red"}
_MARK_NAMES = {UNCONDITIONAL: "open", SANITIZED: "care", UNCERTAIN: "care", OWNER_ONLY: "sealed"}
_COSTS = {"epsilon", "delta", "price", "cost", "used", "spent", "ε", "δ"}


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: which key of a row, under which heading, with how many digits.

    Attributes
    ----------
    key
        The key in each row; a row without it shows a dash.
    heading
        What stands on top; the key by default.
    digits
        Digits after the point for floats. An epsilon, a delta or a cost, by its key or heading, is
        rounded up: what is said is never below what is so.
    """

    key: str
    heading: str | None = None
    digits: int = 3

    @property
    def costs(self) -> bool:
        """Whether this is what something costs, by its name."""
        return is_cost(self.key) or is_cost(self.title)

    @property
    def title(self) -> str:
        """The heading, or the key if there is none."""
        return self.key if self.heading is None else self.heading


def mark_name(value: Any) -> str | None:
    """Return "open", "care" or "sealed" if the value is a mark, else None."""
    return _MARK_NAMES.get(value) if isinstance(value, str) else None


def is_sealed(rows: Iterable[Row]) -> bool:
    """Return True if a row is marked as being for the owner's eyes."""
    return any(mark_name(value) == "sealed" for row in rows for value in row.values())


def columns_of(rows: Sequence[Row], columns: Sequence[Column | str] | None) -> list[Column]:
    """Return the columns to show: those given, or every key in the order of first appearance."""
    keys = dict.fromkeys(key for row in rows for key in row) if columns is None else columns
    return [key if isinstance(key, Column) else Column(key=str(key)) for key in keys]


def is_numeric(rows: Iterable[Row], key: str) -> bool:
    """Return True if the column holds numbers (or nothing), so that it stands on the right."""
    values = [row.get(key) for row in rows]
    shown = [value for value in values if value is not None]
    return bool(shown) and all(isinstance(v, Real) and not isinstance(v, bool) for v in shown)


def is_cost(name: str) -> bool:
    """Return whether a name is that of an epsilon, a delta or a price."""
    return bool(_COSTS & set(name.lower().replace("_", " ").replace(",", " ").split()))


def cell(value: Any, digits: int = 3, *, cost: bool = False) -> str:
    """Return one value as a reader wants it: 0.944, 12,345, yes, – for nothing.

    A ``cost`` is rounded up.
    """
    if value is None:
        return NOTHING
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return f"{int(value):,}"
    if isinstance(value, Real):
        if cost and math.isfinite(value):
            return _short(rounded_up(float(value), 2, places=digits))
        return _number(float(value), digits)
    return printable(" ".join(str(value).split()))


def table(
    rows: Sequence[Row],
    *,
    columns: Sequence[Column | str] | None = None,
    title: str | None = None,
    caption: str | None = None,
) -> Table:
    """Return a rich table of the rows: numbers on the right, marks in words and colour.

    Parameters
    ----------
    rows
        One dict for each row.
    columns
        Which keys to show, in which order; all of them by default.
    title, caption
        Text above and below.
    """
    shown = columns_of(rows, columns)
    # Text, not str: a label named "[bold]" must stay what it is.
    made = Table(
        box=SIMPLE_HEAD,
        title=None if title is None else Text(printable(title, lines=True), style="bold"),
        caption=None if caption is None else Text(printable(caption, lines=True), style="dim"),
        title_justify="left",
        caption_justify="left",
        header_style="bold",
        pad_edge=False,
    )
    for column in shown:
        right = is_numeric(rows, column.key)
        made.add_column(
            Text(printable(column.title, lines=column.heading is not None)),
            justify="right" if right else "left",
            no_wrap=right,
            overflow="fold",
        )
    for row in rows:
        made.add_row(*(_styled(row.get(column.key), column) for column in shown))
    return made


def _styled(value: Any, column: Column) -> Text:
    style = _MARK_STYLES.get(value, "") if isinstance(value, str) else ""
    return Text(cell(value, column.digits, cost=column.costs), style=style)


def _number(value: float, digits: int) -> str:
    if math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value != 0 and abs(value) < 0.5 * 10**-digits:
        return _short(f"{value:.1e}")  # a delta of 1e-5 is not 0.000
    return f"{value:,.{digits}f}"


def _short(number: str) -> str:
    """Return 1e-5 for 1.0e-05."""
    mantissa, _, exponent = number.partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}" if exponent else number


def plain(value: Any) -> Any:
    """Return the value as what JSON knows; a number that is none is null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # an array of numpy's, or one of its numbers
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def cost_in_words(guarantee: Guarantee) -> str:
    """Return what a page's first sentence says of the guarantee."""
    delta = f"δ = {rounded_up(guarantee.delta)}"
    if guarantee.epsilon is None:
        return "with a sealed ε, which depends on the votes: this is not differential privacy"
    cost = f"ε = {rounded_up(guarantee.epsilon, 4)} and {delta}"
    if guarantee.mark == SANITIZED:
        return f"with {cost}, which hold for these votes only: this is not differential privacy"
    return f"under differential privacy with {cost}"


def spent(guarantee: Guarantee, this: str) -> str:
    """Return what this run costs, in words that are given, and all so far; of which budget."""
    standing = guarantee.standing
    if standing is not None and standing.total is not None:
        share = "" if standing.share is None else f", {100 * standing.share:.0f} % used"
        this += f", {rounded_up(standing.total, 4)} so far, budget {rounded_up(standing.budget)}"
        this += share
    return f"{this}; delta {rounded_up(guarantee.delta)}"


def bill(
    guarantee: Guarantee, *, result: str, quality: str, following: str, target: float | None = None
) -> dict[str, str]:
    """Return a bill of five lines; a released epsilon above its target is said before them."""
    rows = {row.key: row.text for row in guarantee.rows()}
    cost = "sealed" if guarantee.epsilon is None else f"{rounded_up(guarantee.epsilon, 4)} this run"
    standing, above = guarantee.standing, {}
    if standing is not None and standing.continues is not None:
        cost = f"nothing more, since run {standing.continues} paid"
    if guarantee.epsilon is not None and target is not None and guarantee.epsilon > target:
        text = f"released epsilon {rounded_up(guarantee.epsilon, 4)}, above the target {target:g}"
        above["above the target"] = text
    return {
        **above,
        "result": result,
        "quality": quality,
        "epsilon": spent(guarantee, cost),
        "noise": rows.get("sigma") or rows["mechanism"],
        "next": following,
    }
