"""``privote tune``: sigma, tau, a gate, a threshold or the mechanism, on votes. Not private."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privote.errors import InputError

from . import options
from .options import Group, MechanismFlags, command_words, derived, kind_of

if TYPE_CHECKING:
    from privote.planning import Tuning

OVER = ("sigma", "tau", "gate", "threshold", "mechanism")
_RULE, _LOOK = "What to choose by", "What to look at"


@dataclass(frozen=True, kw_only=True)
class TuneFlags:
    """The budget to fit, what to look at and what to choose by."""

    epsilon: options.Epsilon
    delta: options.Delta
    guarantee: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Whose answers count: allowance, worst-case, ptr or data-dependent.",
            rich_help_panel=_RULE,
        ),
    ] = "allowance"
    drop: Annotated[
        float,
        typer.Option(help="How much more may be wrong than without noise.", rich_help_panel=_RULE),
    ] = 0.02
    missed: Annotated[
        float | None,
        typer.Option(help="How much of what should be 1 may be missed.", rich_help_panel=_RULE),
    ] = None
    truth: Annotated[
        Path | None,
        typer.Option(
            help="True labels (queries, labels): .npy, .npz or .csv. Unless told, those in the "
            "votes' .npz under 'truth'; or else what the voters want without noise.",
            rich_help_panel=_LOOK,
        ),
    ] = None
    threshold: options.Threshold = None
    empty_chunks: options.EmptyChunks = None
    max_queries: Annotated[
        int, typer.Option(help="Look at the first N queries only.", rich_help_panel=_LOOK)
    ] = 1000
    by_voter: Annotated[
        bool,
        typer.Option(
            "--by-voter",
            help="Also count by each voter's exact bill; takes minutes but for binary.",
            rich_help_panel=_LOOK,
        ),
    ] = False
    beyond: Annotated[
        bool,
        typer.Option(
            "--beyond",
            help="Also say how much is wrong if all queries are answered under the allowance.",
            rich_help_panel=_LOOK,
        ),
    ] = False

    def __post_init__(self) -> None:
        if self.max_queries < 1:
            raise InputError("max_queries", "must be at least 1", self.max_queries)

    def settings(self) -> dict[str, Any]:
        """Return what every tuning takes."""
        names = ("epsilon", "delta", "guarantee", "drop", "missed", "by_voter", "beyond")
        return {name: getattr(self, name) for name in names}

    def read(self, votes: str, *, soft: bool) -> tuple[Any, Any, str]:
        """Return votes, or probabilities, to look at, true labels or None, and what was read."""
        from privote.labelling import has_names, read_as, warn_of_axes
        from privote.votes.arrays import read_probabilities
        from privote.votes.cube import Ballots

        from .files import read_truth

        if soft:
            cube, names = read_probabilities(votes)
            shape, named = cube.shape, names is not None
        else:
            bar = options.parse_threshold(self.threshold)
            ballots = Ballots.of(votes, threshold=bar, empty_chunks=self.empty_chunks)
            assert isinstance(ballots, Ballots)  # a file is dense
            warn_of_axes(ballots)
            shape, names = ballots.shape, ballots.query_names
            named = has_names(ballots)
            cube = ballots.head(min(self.max_queries, ballots.queries)).to_array()
        known = read_truth(votes, self.truth, shape[0], shape[2], names)
        if known is not None and len(known) != shape[0]:
            rule = f"must have {shape[0]} rows, as the votes have queries"
            raise InputError("truth", rule, len(known))
        head = self.max_queries
        said = read_as(shape, named=named)
        return cube[:head], None if known is None else known[:head], said


@derived(
    flags=Group(of=TuneFlags),
    mechanism=Group(of=MechanismFlags, instead={"name": (options.Name, "binary")}),
)
def tune(
    context: typer.Context,
    votes: options.VotesFile,
    over: Annotated[
        str, typer.Option(metavar="|".join(OVER), show_default=False, help="What to try.")
    ],
    flags: TuneFlags,
    mechanism: MechanismFlags,
    values: Annotated[
        str | None,
        typer.Option(
            metavar="X[,X...]",
            help="The values to try: sigmas, taus, a gate's T, or thresholds; a grid unless told.",
        ),
    ] = None,
    gate_sigmas: Annotated[
        str | None, typer.Option(metavar="S[,S...]", help="gate: sigma_T, with each T.")
    ] = None,
    refine: Annotated[
        bool, typer.Option("--refine", help="sigma: also search between the values.")
    ] = False,
    equal: Annotated[
        str,
        typer.Option(
            metavar="noise|quality",
            help="mechanism: all with --sigma, or all as wrong as binary with --sigma.",
        ),
    ] = "noise",
    prevalence: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|P[,P...]",
            help="threshold: also try yes to this share of the queries; one for all, one per "
            "label, or a file (.npy, .npz, .csv) with one per label, or per voter and label.",
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write a page with curves here, .html.")
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Try settings on votes: how many queries each answers, and how good the labels are.

    Example:

        privote tune public-votes.npz --over sigma --epsilon 8 --delta 1e-5 --report sigma.html

    For each, how many of the file's queries fit the budget under every guarantee (and by the bound
    published with PATE 2018), and how much of the labels is wrong: the expected share of cells
    released otherwise than wanted. --over mechanism puts all mechanisms side by side.

    Not private: the figures depend on the votes, and choosing by them voids the guarantee. Tune on
    votes that are public or paid for, then label others.
    """
    from .files import check_new
    from .output import stages

    if over not in OVER:
        raise InputError("over", f"must be one of {', '.join(OVER)}", over)
    if report is not None:
        check_new("report", report, (".html",), force=force, keep=(Path(votes),))
    for argument, given, owner in (
        ("gate_sigmas", gate_sigmas is not None, "gate"),
        ("refine", refine, "sigma"),
        ("prevalence", prevalence is not None, "threshold"),
    ):
        if given and owner != over:
            raise InputError(argument, f"goes with `over={owner}`", over)
    cube, truth, said = flags.read(votes, soft=over == "threshold")
    call = _Call(mechanism, _numbers("values", values), flags.settings())
    with stages() as tell:
        call.how["progress"] = lambda done, total: tell(f"trying {over}", done, total)
        if over == "gate":
            tuning = call.gate(cube, truth, _numbers("gate_sigmas", gate_sigmas))
        elif over == "mechanism":
            tuning = call.mechanism(cube, truth, equal)
        elif over == "threshold":
            tuning = call.threshold(cube, truth, prevalence)
        else:
            tuning = call.tau(cube, truth) if over == "tau" else call.sigma(cube, truth, refine)
    _show(tuning, context, report, flags.threshold, said, json=json)


@dataclass(frozen=True)
class _Call:
    """The library's functions, called with what the options say."""

    flags: MechanismFlags
    values: list[float] | None
    how: dict[str, Any]

    def sigma(self, cube: Any, truth: Any, refine: bool) -> Tuning:
        from privote.planning import tune_sigma

        if self.flags.sigma is not None:
            raise InputError("sigma", "is what is tried: give `values`")
        kind = self.flags.build(1.0)
        return tune_sigma(
            cube, truth, mechanism=kind, sigmas=self.values, refine=refine, **self.how
        )

    def tau(self, cube: Any, truth: Any) -> Tuning:
        from privote.planning import tune_tau

        kind = replace(self.flags, name="tau", tau=1.0).build()
        norms = (2, 1) if self.flags.norm is None else (self.flags.norm,)
        return tune_tau(cube, truth, mechanism=kind, taus=self.values, norms=norms, **self.how)

    def gate(self, cube: Any, truth: Any, sigmas: list[float] | None) -> Tuning:
        from privote.planning import tune_gate

        chosen = {"gate_thresholds": self.values, "gate_sigmas": sigmas}
        return tune_gate(cube, truth, mechanism=self.flags.build(), **chosen, **self.how)

    def mechanism(self, cube: Any, truth: Any, equal: str) -> Tuning:
        from privote.planning import tune_mechanism

        also = [kind_of(self.flags.name)]
        return tune_mechanism(
            cube, truth, sigma=self.flags.sigma, also=also, equal=equal, **self.how
        )

    def threshold(self, cube: Any, truth: Any, prevalence: str | None) -> Tuning:
        from privote.learning.teachers.votes import top_share
        from privote.planning import tune_threshold

        if truth is None:
            raise InputError("truth", "must be given: the majority depends on the threshold")
        share = _shares(prevalence, cube.shape[2])
        how = {**self.how, "thresholds": self.values}
        if share is not None:
            how["others"] = {"prevalence": top_share(cube, share)}
        return tune_threshold(cube, truth, mechanism=self.flags.build(), **how)


def _numbers(argument: str, text: str | None) -> list[float] | None:
    """Return a comma list as numbers; None if it was not given."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(argument, "must be numbers with commas between", text) from None


def _shares(text: str | None, labels: int) -> Any:
    """Return ``--prevalence``: from a file, or the numbers themselves."""
    import numpy as np

    from .files import read_array

    if text is None:
        return None
    if Path(text).suffix in (".npy", ".npz", ".csv"):
        array = read_array(Path(text), "prevalence", "prevalence")
        return array[0] if array.shape == (1, labels) else array
    values = _numbers("prevalence", text)
    assert values is not None
    return np.full(labels, values[0]) if len(values) == 1 else np.array(values)


def _show(
    tuning: Tuning,
    context: typer.Context,
    report: Path | None,
    threshold: str | None,
    read_as: str,
    *,
    json: bool,
) -> None:
    from privote.planning import NOT_PRIVATE
    from privote.report import tuning as pages

    from .output import print_json, print_table, say

    carried_out = _label_command(tuning, threshold)
    if report is not None:
        pages.write_tuning_page(report, tuning, command=_command(context))
    if json:
        shown = None if report is None else str(report)
        print_json({**tuning.facts(), "read_as": read_as, "command": carried_out, "report": shown})
        return
    say(f"NOT PRIVATE. {NOT_PRIVATE}\nVotes were read as {read_as}.\n")
    print_table(
        pages.rows_of(tuning),
        columns=pages.columns_of(tuning),
        title=pages.title_of(tuning),
        caption=f"Labels: expected over all queries, against the {tuning.against}.",
    )
    for name, why in tuning.left_out.items():
        say(f"left out: {name}: {why}")
    say(pages.verdict(tuning))
    if carried_out is not None:
        say(f"To carry it out, with VOTES the private votes (never these):\n{carried_out}")
    if report is not None:
        say(f"Report: {report}")


def _label_command(tuning: Tuning, threshold: str | None) -> str | None:
    """Return the command that labels other votes with what was chosen."""
    chosen = tuning.chosen
    if chosen is None or chosen.details.get("thresholds", "") is None:
        return None  # nothing is good, or no threshold makes such votes
    words = ["privote", "label", "VOTES", *command_words(chosen.mechanism)]
    words += ["--epsilon", repr(tuning.epsilon), "--delta", repr(tuning.delta)]
    words += ["--guarantee", tuning.guarantee]
    queries = chosen.fits[tuning.guarantee]
    # Worst-case stops by itself; the others must be told, or go on while voters run out.
    if tuning.guarantee != "worst-case":
        words += ["--queries", str(queries)]
    bars = chosen.details.get("thresholds", threshold)
    if bars is not None:
        text = ",".join(map(str, bars)) if isinstance(bars, list) else str(bars)
        words += ["--threshold", text]
    return shlex.join([*words, "--output", "labels.csv"])


def _command(context: typer.Context) -> str:
    """Return the command that is being run, without what was left at its default."""
    words = context.command_path.split()
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if value is None or value == parameter.default:
            continue
        if parameter.param_type_name == "argument":
            words.append(str(value))
        elif isinstance(value, bool):
            words.append(parameter.opts[0])
        else:
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            words += [parameter.opts[0], shown]
    return shlex.join(words)
