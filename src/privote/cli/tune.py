"""``privote tune``: sigma, tau or the mechanism, tried on votes. Not private."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privote.errors import InputError

from . import options
from .options import Group, MechanismFlags, command_words, derived, kind_of

if TYPE_CHECKING:
    from privote.mechanisms import Mechanism
    from privote.planning import Tuning

OVER = ("sigma", "tau", "mechanism")
_COUNTED = {
    "allowance": "allow-\nance",
    "worst-case": "worst\ncase",
    "data-dependent": "data-\ndep.",
    "published": "publ.",
}


@dataclass(frozen=True, kw_only=True)
class TuneFlags:
    """What to look at.

    Attributes
    ----------
    truth
        True labels (queries, labels): .npy, .npz or .csv. Unless told, those in the votes' .npz
        under 'truth'; or else what the voters want without noise.
    max_queries
        Look at the first N queries only.
    """

    truth: Path | None = None
    threshold: str | None = None
    max_queries: int = 1000

    def __post_init__(self) -> None:
        if self.max_queries < 1:
            raise InputError("max_queries", "must be at least 1", self.max_queries)

    def read(self, votes: str) -> tuple[Any, Any, str]:
        """Return votes to look at, true labels or None, and what was read."""
        from privote.labelling import has_names, read_as, warn_of_axes
        from privote.votes.cube import Ballots

        from .files import read_truth

        bar = options.parse_threshold(self.threshold)
        ballots = Ballots.of(votes, threshold=bar)
        assert isinstance(ballots, Ballots)  # a file is dense
        warn_of_axes(ballots)
        queries, _, labels = ballots.shape
        known = read_truth(votes, self.truth, queries, labels, ballots.query_names)
        if known is not None and len(known) != queries:
            rule = f"must have {queries} rows, as the votes have queries"
            raise InputError("truth", rule, len(known))
        said = read_as(ballots.shape, named=has_names(ballots))
        head = min(self.max_queries, queries)
        return ballots.head(head).to_array(), None if known is None else known[:head], said


@derived(
    flags=Group(of=TuneFlags),
    mechanism=Group(of=MechanismFlags, instead={"name": (options.Name, "binary")}),
)
def tune(
    votes: str,
    *,
    over: str,
    epsilon: float,
    delta: float,
    flags: TuneFlags,
    mechanism: MechanismFlags,
    values: str | None = None,
    guarantee: str = "allowance",
    drop: float = 0.02,
    json: bool = False,
) -> None:
    """Try settings on votes: how many queries each answers, and how good the labels are.

    Example:

        privote tune public-votes.npz --over sigma --epsilon 8 --delta 1e-5

    For each, how many of the file's queries fit the budget under every guarantee (and by the bound
    published with PATE 2018), and how much of the labels is wrong: the expected share of cells
    released otherwise than wanted. --over mechanism puts all mechanisms side by side.

    Not private: the figures depend on the votes, and choosing by them voids the guarantee. Tune on
    votes that are public or paid for, then label others.

    Parameters
    ----------
    over : sigma|tau|mechanism
        What to try.
    values : X[,X...]
        The sigmas or taus to try; a grid unless told.
    guarantee : NAME
        Whose answers count: allowance, worst-case or data-dependent.
    drop
        How much more may be wrong than without noise.
    """
    from privote import planning

    from .output import stages

    if over not in OVER:
        raise InputError("over", f"must be one of {', '.join(OVER)}", over)
    cube, truth, read_as = flags.read(votes)
    _, voters, labels = cube.shape
    tried: list[Mechanism]
    if over == "mechanism":
        if values is not None:
            raise InputError("values", "goes with `over=sigma` and `over=tau`", values)
        also = [kind_of(mechanism.name)]
        tried = planning.variants(voters, epsilon, delta, mechanism.sigma, also)
    else:
        tried = planning.candidates(over, _built(over, mechanism), voters, labels, _numbers(values))
    with stages() as tell:
        tuning = planning.tune(
            cube,
            tried,
            truth,
            epsilon=epsilon,
            delta=delta,
            guarantee=guarantee,
            drop=drop,
            progress=lambda done, total: tell(f"trying {over}", done, total),
        )
    _show(tuning, _label_command(tuning, flags.threshold), read_as, json=json)


def _built(over: str, flags: MechanismFlags) -> Mechanism:
    """Return the mechanism whose sigma or tau is tried."""
    if over == "sigma":
        if flags.sigma is not None:
            raise InputError("sigma", "is what is tried: give `values`")
        return flags.build(1.0)
    name = flags.name if "tau" in kind_of(flags.name).settings() else "tau"
    return replace(flags, name=name, tau=1.0).build()


def _numbers(text: str | None) -> list[float] | None:
    """Return a comma list as numbers; None if it was not given."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError("values", "must be numbers with commas between", text) from None


def _show(tuning: Tuning, command: str | None, read_as: str, *, json: bool) -> None:
    from privote.accounting.renyi import rounded_up
    from privote.planning import NOT_PRIVATE
    from privote.report.tables import Column

    from .output import print_json, print_table, say

    if json:
        print_json({**tuning.facts(), "read_as": read_as, "command": command})
        return
    say(f"NOT PRIVATE. {NOT_PRIVATE}\nVotes were read as {read_as}.\n")
    chosen = tuning.chosen
    rows = [
        {
            "mechanism": str(trial.mechanism),
            **trial.fits,
            **asdict(trial.quality),
            "chosen": "*" if trial is chosen else "",
        }
        for trial in tuning.trials
    ]
    print_table(
        rows,
        columns=[
            Column(key="mechanism"),
            *(Column(key=name, heading=heading) for name, heading in _COUNTED.items()),
            Column(key="wrong", digits=4),
            Column(key="missed"),
            Column(key="false_alarm", heading="false\nalarm"),
            Column(key="chosen", heading=""),
        ],
        title=f"Queries of {tuning.queries:,} that fit epsilon {rounded_up(tuning.epsilon)} at "
        f"delta {rounded_up(tuning.delta)} ({tuning.voters:,} voters, {tuning.labels:,} labels)",
        caption=f"Labels: expected over all queries, against the {tuning.against}.",
    )
    for name, why in tuning.left_out.items():
        say(f"left out: {name}: {why}")
    limit = f"within {tuning.drop:g} of the best noise-free outcome"
    if chosen is None:
        say(f"Nothing whose wrong labels stay {limit} answers a query under {tuning.guarantee}.")
        return
    say(
        f"{chosen.mechanism} answers most under {tuning.guarantee} "
        f"({chosen.fits[tuning.guarantee]:,} queries) while wrong labels stay {limit}.\n"
        f"To carry it out, with VOTES the private votes (never these):\n{command}"
    )


def _label_command(tuning: Tuning, threshold: str | None) -> str | None:
    """Return the command that labels other votes with what was chosen."""
    chosen = tuning.chosen
    if chosen is None:
        return None
    words = ["privote", "label", "VOTES", *command_words(chosen.mechanism)]
    words += ["--epsilon", repr(tuning.epsilon), "--delta", repr(tuning.delta)]
    words += ["--guarantee", tuning.guarantee]
    # Worst-case stops by itself; the others must be told, or go on while voters run out.
    if tuning.guarantee != "worst-case":
        words += ["--queries", str(chosen.fits[tuning.guarantee])]
    words += [] if threshold is None else ["--threshold", threshold]
    return shlex.join([*words, "--output", "labels.csv"])
