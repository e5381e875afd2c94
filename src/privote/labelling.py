"""The everyday job: votes in, private labels and an honest bill out.

:func:`label` answers one batch. An :class:`Electorate` has a lifetime allowance and answers any
number of adaptive batches.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from .accounting.renyi import epsilon as to_epsilon
from .accounting.renyi import rounded_up
from .errors import InputError, PrivoteWarning, whole
from .files import Draft, beside, check_new, complete
from .guardian import AUTO, Guardian, record_kept, seats
from .guardian.accounts import plain
from .ledger import Budget, Ledger
from .ledger.records import digest_of
from .mechanisms import Mechanism, mechanism_of
from .mechanisms.base import check_electorate
from .mechanisms.tally import PERCENT
from .planning.budget import queries_for
from .planning.forecast import forecast
from .release import GUARANTEES, HELPS, Release, Sealed, decide, digest_of_facts
from .votes.cube import Ballots, BallotSource, Threshold

ALL_THERE = b"all"  # the note after the last part
POOR = 0.5  # an expected F1 that is warned of
STOPPED = "It stopped after"  # begins the sentence that says so
_CELL, _QUERY, _MORE = 10, 24, 1 << 16  # bytes of a label, of a row, and of everything else
Rows = npt.NDArray[np.int64]
_SOME = 10  # queries, and voters for each of them: an array that has both is rarely meant so
_NO_FURTHER = "the run that was resumed had got no further"
_NEXT = "the next query would exceed the budget in the worst case"


@dataclass(frozen=True)
class Output:
    """Files that a release goes into.

    Attributes
    ----------
    path
        The first of them: the draft lies beside it until all are written.
    write
        Writes them, and returns the release as it is written. If it fails, what was drawn stays in
        the draft.
    asked
        What else whoever resumes must ask for again, as plain values.
    """

    path: Path
    write: Callable[[Release], Release]
    asked: Mapping[str, Any] = field(default_factory=dict)


def label(
    votes: Any,
    *,
    epsilon: float,
    delta: float,
    mechanism: Mechanism | str = AUTO,
    guarantee: str = AUTO,
    queries: int | None = None,
    plan_for: int | None = None,
    baseline: npt.ArrayLike | None = None,
    threshold: Threshold = None,
    ledger: Any = None,
    dataset: str = "default",
    budget: float | None = None,
    voter_ids: Sequence[Any] | None = None,
    output: str | os.PathLike[str] | Output | None = None,
    resume: bool = False,
    force: bool = False,
    seed: int | None = None,
) -> Release:
    """Release differentially private labels for votes, at a stated epsilon.

    By default there is nothing to tune. About a tenth of epsilon's price is for learning privately
    how often voters say yes, and the noise is set from that. Noisy tallies of all queries are
    released; labels are then decided from all tallies together, at no cost
    (:func:`privote.decide`). ``quality`` of the release is the expected quality of the labels.

    Parameters
    ----------
    votes
        (queries, voters, labels): a bool or 0/1/-1 array (-1 is a missing vote), probabilities,
        ballots, a data frame, or the path or URL of a votes file. An array of floats holds
        probabilities; they are rounded to percents, unless a mechanism is named or a ``threshold``
        is given. Names of
        queries and labels, where there are any, go into the release; names of voters serve as
        ``voter_ids``.
    epsilon, delta
        What this call may cost. Neighbouring votes differ in one voter's ballots, on any or all
        queries.
    mechanism
        ``"auto"`` (default): as described above. Or a mechanism such as
        ``BinaryVoting(sigma=7.0)``.
    guarantee
        ``"allowance"``: unconditional; epsilon is fixed before any vote is seen. Each voter may
        differ from the baseline a limited number of times, and counts as the baseline after that.
        ``"worst-case"``: unconditional; plain composition, and no voter is limited. A named
        mechanism answers until the next query would exceed epsilon. ``"auto"`` (default):
        allowance; for a named mechanism without a ledger, worst-case if all queries fit.
        ``"data-dependent"``: the paper's accounting, which holds for these votes only. The exact
        epsilon is sealed; a sanitized one is published for Binary. ``epsilon`` is then only a
        public design target.
    queries
        Answer only the first ``queries`` queries; default: all. Required for ``"data-dependent"``.
    plan_for
        With a ledger: the total number of queries that the allowance must last for, including
        these. Later calls use the rest at no further charge, up to that number.
    baseline
        (queries, labels): for ``"allowance"``, a public guess of the labels; default: zeros.
    threshold
        For probabilities: a vote is a yes at or above this value; one value, or one per label.
    ledger, dataset, budget
        A :class:`privote.Ledger` or its path, the data set's name in it, and the epsilon that all
        its releases may cost together, in all processes. A budget is set once: here at the first
        call, or by :meth:`privote.Ledger.set_budget`; else the first call's epsilon is the budget,
        and nothing is left for others.
    voter_ids
        Names of the voters, by which a ledger recognises them in later calls; default: the names in
        the votes. Without names a voter is identified by its position, which must be the same in
        every call.
    output
        A new ``.npz`` file for the release. It is reserved before anything is charged, and labels
        are on disk as soon as they are drawn. If the call fails after the charge, it raises
        :class:`privote.ChargedError`, which names the draft. An :class:`Output` writes other files.
    resume
        Finish an earlier call with the same arguments that failed. Released labels stay as they
        are, nothing is charged twice, and the remaining queries are answered. With ``votes=None``,
        only what was released is written.
    force
        Overwrite the file if it exists.
    seed
        An integer draws repeatable noise. The release is marked as simulated and protects nobody.

    Returns
    -------
    Release

    Raises
    ------
    InputError
        Before anything is charged or drawn.
    BudgetError
        If the budget does not allow the request; nothing is released.
    ChargedError
        If the call fails after the charge; ``resume=True`` finishes it.

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> votes = np.random.default_rng(0).random((100, 50, 4)) < 0.1
    >>> release = pv.label(votes, epsilon=8.0, delta=1e-5)
    >>> release.labels.shape, release.epsilon, release.delta
    ((100, 4), 8.0, 1e-05)
    """
    if output is not None and not isinstance(output, Output):
        path = check_new("output", output, (".npz",), force=force or resume)
        output = Output(path, partial(_save, path, force=force))
    _check(mechanism, guarantee)
    if budget is not None and ledger is None:
        raise InputError("budget", "needs a `ledger`, which keeps it", budget)
    if plan_for is not None and ledger is None:
        raise InputError("plan_for", "needs a `ledger`, which keeps what is left for later calls")
    asked = {"epsilon": epsilon, "delta": delta, "guarantee": guarantee, "seed": seed}
    asked |= {"dataset": dataset, "queries": queries}
    asked |= {"mechanism": mechanism, "plan_for": plan_for}
    asked |= {} if output is None else output.asked
    if output is None and resume:
        raise InputError("resume", "needs `output`, the file of the earlier call")
    draft: Draft | None = None
    with ExitStack() as stack:
        if output is not None:
            claimed = Draft(beside(output.path), asked, resume=resume, force=force)
            draft = stack.enter_context(claimed)
        parts = None if draft is None else KeptReleases(draft)
        if parts is not None and resume and (votes is None or parts.all_there):
            release, _ = parts.together()
            release = record_kept(ledger, release, parts.since, parts.draft)
            near, sparse, why = None, False, _NEXT if parts.all_there else _NO_FURTHER
        else:
            ballots = ballots_of(votes, mechanism, threshold)
            warn_of_axes(ballots, voter_ids)
            if voter_ids is not None:
                seats(voter_ids, ballots.voters)
            cost = Budget(epsilon=epsilon, delta=delta)
            wanted = (
                ballots.queries
                if queries is None
                else whole("queries", queries, 1, ballots.queries)
            )
            note = None if draft is None else draft.read()
            names = ballots.voter_names if voter_ids is None else voter_ids
            order = None if names is None else digest_of_facts({"voters": [*map(str, names)]})
            if note is not None:
                known = json.loads(note)
                guarantee = known["guarantee"]
                lasts = getattr(ledger, "lasts", ledger is not None)
                if not lasts and known.get("voters") != order:
                    rule = "must repeat the call with the same voters in the same order"
                    raise InputError("resume", f"{rule}: what is left to each voter depends on it")
            elif guarantee == AUTO:
                only = ledger is not None or baseline is not None or voter_ids is not None
                size = ballots.voters, ballots.labels, wanted
                guarantee = "allowance" if only else guarantee_of(mechanism, cost, *size)
            named, near = partial(_named, ballots, wanted), ballots.active_share
            sparse = ballots.sparse
            if parts is not None and draft is not None:
                parts.name = named
                texts = json.dumps(ballots.query_names)
                draft.reserve(room(ballots.queries, ballots.labels, len(texts)))
                if note is None:
                    draft.note(json.dumps({"guarantee": guarantee, "voters": order}).encode())
            with Guardian(
                mechanism,
                cost,
                Ledger.in_memory() if ledger is None else ledger,
                guarantee=guarantee,
                dataset=dataset,
                total=budget,
                voter_ids=names if guarantee == "allowance" else voter_ids,
                seed=seed,
                draft=draft,
            ) as guardian:
                release = guardian.release(
                    ballots, queries=queries, baseline=baseline, parts=parts, plan_for=plan_for
                )
            if draft is not None:
                draft.note(ALL_THERE)
            release, why = named(release, 0), _NEXT
        if 0 < release.answered < (release.asked or 0):
            text = f"{STOPPED} {release.answered} of {release.asked} queries: {why}."
            release = replace(release, reasons=(*release.reasons, text))
        if release.tallies is None:
            made_by = mechanism_of(release.mechanism) if isinstance(mechanism, str) else mechanism
            few = sparse or baseline is not None
            release = with_forecast(release, made_by, near=near, few=few)
        if output is not None and draft is not None:
            release = output.write(release)
            draft.finish()
    warn_of_quality(release)
    return release


def _save(path: Path, release: Release, *, force: bool) -> Release:
    with complete(path, force=force) as part:
        release.save(part)
    return release


def _check(mechanism: Any, guarantee: Any) -> None:
    if not isinstance(mechanism, Mechanism) and not (
        isinstance(mechanism, str) and mechanism == AUTO
    ):
        rule = "must be 'auto' or a privote mechanism, such as BinaryVoting(sigma=7.0)"
        raise InputError("mechanism", rule, mechanism)
    if guarantee not in (AUTO, *GUARANTEES):
        known = ", ".join((AUTO, *GUARANTEES))
        raise InputError("guarantee", f"must be one of {known}", guarantee)
    if isinstance(mechanism, str) and guarantee == "data-dependent":
        rule = f"must be named with `guarantee={guarantee}`, which does not set the noise"
        raise InputError("mechanism", rule, mechanism)


def ballots_of(
    votes: Any,
    mechanism: Mechanism | str,
    threshold: Threshold = None,
    *,
    soft: bool | None = None,
    **lists: Any,
) -> BallotSource:
    """Return votes as checked ballots; probabilities in steps, where a mechanism counts these.

    Whether they are probabilities is told by the type of an array, by ``soft``, or by a mechanism
    that was named with a grid, never by what the votes are. ``lists`` are public lists of queries
    and voters (:meth:`Ballots.of`).
    """
    if isinstance(mechanism, Mechanism):
        soft, resolution = True, mechanism.resolution
    else:
        resolution = PERCENT
    how = {"threshold": threshold, "resolution": resolution, "soft": soft, **lists}
    ballots = Ballots.of(votes, **how)
    ballots.check()
    return ballots


def guarantee_of(
    mechanism: Mechanism | str, budget: Budget, voters: int, labels: int, queries: int
) -> str:
    """Return under which guarantee a call without a ledger answers all queries: by public numbers.

    In the worst case nobody runs out; where not all queries fit, an allowance lasts longer.
    """
    if isinstance(mechanism, str):
        return "allowance"
    fit = queries_for(mechanism, voters, labels, budget.epsilon, budget.delta)
    return "worst-case" if fit >= queries else "allowance"


def with_forecast(
    release: Release,
    mechanism: Mechanism,
    *,
    near: npt.ArrayLike | None = None,
    few: bool = False,
) -> Release:
    """Return released labels with what is to be expected of them (`planning.forecast`).

    How long an allowance lasts is not told where contributions are ``few``, because of a baseline
    or of voters who seldom speak.
    """
    if not release.answered or release.tallies is not None:
        return release
    each = release.allowance if isinstance(release.allowance, tuple) else (release.allowance or 0,)
    told = forecast(
        mechanism,
        release.voters,
        release.labels.shape[1],
        near=near,
        allowance=None if few or near is not None else max(each) or None,
        asked=release.so_far or release.answered,
    )
    return replace(release, forecast=told)


def warn_of_quality(release: Release) -> None:
    """Warn of labels that are not expected to be good, and of queries that were not answered."""
    said = [*(release.forecast or {}).get("warnings", ())]
    quality = release.quality
    if "learnt" in release.terms and (quality is None or quality["f1"] < POOR):
        said.append(release.expected if quality is None else f"{release.expected}. {HELPS}")
    stopped = [place for place, why in enumerate(release.reasons) if why.startswith(STOPPED)]
    if stopped:
        said.append(" ".join(release.reasons[stopped[0] :]))
    for text in said:
        warnings.warn(text, PrivoteWarning, stacklevel=3)


def read_as(ballots: BallotSource, voter_ids: Any = None) -> str:
    """Return in words what the axes of votes were taken for; by sizes and names, never by votes.

    Where an array without names has more voters than queries, it asks: of votes that came as
    (voters, queries, labels) the promise would be to the wrong ones.
    """
    words = (("query", "queries"), ("voter", "voters"), ("label", "labels"))
    sizes = ballots.queries, ballots.voters, ballots.labels
    said = " x ".join(
        f"{size:,} {one if size == 1 else more}"
        for size, (one, more) in zip(sizes, words, strict=True)
    )
    if not 1 < sizes[0] < sizes[1] or _has_names(ballots, voter_ids):
        return said
    return (
        f"{said}. There are more voters than queries; is that right? The first axis of an array "
        "is the queries, the second the voters, who are protected"
    )


def _has_names(ballots: BallotSource, voter_ids: Any) -> bool:
    """Return whether more than the order of axes tells voters from queries."""
    names = ballots.query_names, ballots.voter_names, voter_ids
    return ballots.sparse or any(listed is not None for listed in names)


def warn_of_axes(ballots: BallotSource, voter_ids: Any = None) -> None:
    """Warn of sizes that look as if the axes of an array were in another order."""
    queries, voters, labels = ballots.queries, ballots.voters, ballots.labels
    odd = None
    if voters == 1:
        odd = "1 voter"
    elif queries == 1:
        return  # a poll: nothing is in the wrong place
    elif voters > 1000 * queries or (queries >= _SOME and voters > _SOME * queries):
        odd = f"{voters} voters and {queries} queries"
    elif labels >= 1000 and labels > 10 * max(queries, voters):
        odd = f"{labels} labels of {queries} queries and {voters} voters"
    if odd is not None and (voters == 1 or not _has_names(ballots, voter_ids)):
        warnings.warn(
            f"votes have {odd}. The axes must be (queries, voters, labels), and the shape is "
            f"({queries}, {voters}, {labels}); are they in this order?",
            PrivoteWarning,
            stacklevel=3,
        )


def _named(ballots: BallotSource, asked: int, release: Release, start: int) -> Release:
    """Return a release, whose first query is at ``start``, with the public names."""
    queries = ballots.query_names
    own = None if queries is None else queries[start : start + release.answered]
    return replace(release, asked=asked, label_names=ballots.label_names, query_names=own)


class KeptReleases:
    """The parts of a release in a draft, each with the rows of a pool that it is about.

    Attributes
    ----------
    name
        Gives a part its public names; it takes where its first query is, too.
    rows
        Which row of a pool each query is, where they come from one: noted with every part.
    answered
        How many queries have their labels in the parts that were read, or kept.
    since
        The ledger entry after which the first of them was drawn, once all are read; 0 without one.
    """

    def __init__(self, draft: Draft) -> None:
        self.draft, self.answered, self.since = draft, 0, 0
        self.name: Callable[[Release, int], Release] = lambda part, start: part
        self.rows: Rows | None = None

    @property
    def all_there(self) -> bool:
        """Whether all that is to be released is in the draft."""
        return self.draft.last == ALL_THERE

    def kept(self, queries: int | None) -> Release | None:
        """Return the next part that was kept, which must be about so many queries.

        None where there is no more.
        """
        data = self.draft.read()
        if data is None:
            return None
        part, about = _part(data)
        rows = self._rows_of(part)
        if queries not in (None, part.answered) or not (
            rows is None or np.array_equal(rows, about)
        ):
            raise InputError("resume", "must repeat the call with the same votes")
        self.answered += part.answered
        return part

    def ahead(self) -> Release | None:
        """Return the part that :meth:`kept` will return next, and leave it there."""
        data = self.draft.ahead()
        return None if data is None else _part(data)[0]

    def taken(self) -> tuple[Rows, Rows] | None:
        """Return what that part took from an allowance that no ledger keeps: spent, refused."""
        data = self.draft.ahead()
        if data is None:
            return None
        with np.load(BytesIO(data), allow_pickle=False) as arrays:
            return (arrays["spent"], arrays["refused"]) if "spent" in arrays else None

    def _rows_of(self, part: Release) -> Rows | None:
        """Return the rows of the next part."""
        return None if self.rows is None else self.rows[self.answered :][: part.answered]

    def keep(self, part: Release) -> None:
        """Append a part of a release, durably."""
        data, rows = BytesIO(), self._rows_of(part)
        about = {} if rows is None else {"rows": rows}
        if rows is None and "taken" in vars(part.sealed):
            about |= dict(zip(("spent", "refused"), part.sealed.taken, strict=True))
        np.savez_compressed(data, **self.name(part, self.answered).arrays(), **about)
        self.draft.keep(data.getvalue())
        self.answered += part.answered

    def together(self) -> tuple[Release, Rows]:
        """Return all parts of the draft as one release, and which rows of a pool they are about."""
        self.draft.read()  # the note before them
        parts: list[tuple[Release, Rows]] = []
        while (data := self.draft.read()) not in (None, ALL_THERE):
            parts.append(_part(data or b""))
        if not parts:
            raise InputError(
                "resume",
                f"needs labels, and {str(self.draft.path)!r} has none: nothing was released. Give "
                "the votes to continue; nothing is charged twice",
            )
        labels = np.concatenate([part.labels for part, _ in parts])
        names = tuple(name for part, _ in parts for name in part.query_names or ())
        self.since = (parts[0][0].ledger or {}).get("entry", 0)
        whole = replace(parts[-1][0], labels=labels, query_names=names or None)
        if whole.tallies is not None:
            tallies = [part.outcome for part, _ in parts]
            whole = decide(replace(whole, tallies=np.concatenate(tallies)))
        whole = replace(whole, drawn=(digest_of(whole.outcome),))
        return whole, np.concatenate([rows for _, rows in parts])


def _part(data: bytes) -> tuple[Release, Rows]:
    with np.load(BytesIO(data), allow_pickle=False) as arrays:
        part = Release.of_arrays(arrays)
        rows = arrays["rows"] if "rows" in arrays else np.arange(part.answered)
    return part, rows.astype(np.int64)


def room(queries: int, labels: int, names: int = 0) -> int:
    """Return how many bytes labels need in a draft at most, with so many bytes of names."""
    return queries * (labels * _CELL + _QUERY) + names + _MORE


# -- an electorate ---------------------------------------------------------------------------------


class Electorate:
    """Registered voters and what is left of their allowances; answers batches of adaptive queries.

    The guarantee is fixed before any vote is seen (see :mod:`privote.accounting.allowance`). A
    voter who has used up the allowance counts as the public baseline from then on; which voters did
    is sealed.

    Parameters
    ----------
    mechanism
        How a tally becomes a release.
    voters, labels
        The size of the electorate, which is fixed. Voters absent from a batch count as missing.
    epsilon, delta
        The guarantee for all batches together, for replacing one voter's ballots in all of them.
    allowance
        ``None``: the largest that keeps the guarantee. Or one value, or one per voter, not larger.
    voter_ids
        Names of the voters; required if their order changes between batches or some are absent.
        Without names a voter is identified by its position, which must never change.
    ledger, dataset, budget
        Where the allowance is kept, and under which name. An electorate with the same mechanism,
        voters and names continues from the ledger.
    seed
        ``None``: secure randomness. An integer makes every batch a simulation.

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> mechanism = pv.BinaryVoting(sigma=7.0)
    >>> electorate = pv.Electorate(mechanism=mechanism, voters=50, labels=4, epsilon=8, delta=1e-5)
    >>> release = electorate.answer(np.zeros((10, 50, 4), bool))
    >>> release.answered
    10
    """

    def __init__(
        self,
        *,
        mechanism: Mechanism,
        voters: int,
        labels: int,
        epsilon: float,
        delta: float,
        allowance: int | npt.ArrayLike | None = None,
        voter_ids: Sequence[Any] | None = None,
        ledger: Ledger | None = None,
        dataset: str = "default",
        budget: float | None = None,
        seed: int | None = None,
    ) -> None:
        check_electorate(voters, labels)
        if voter_ids is not None:
            seats(voter_ids, voters)
        self.voters, self.labels = int(voters), int(labels)
        self._guardian = Guardian(
            mechanism,
            Budget(epsilon=epsilon, delta=delta),
            Ledger.in_memory() if ledger is None else ledger,
            dataset=dataset,
            total=budget,
            allowance=allowance,
            voter_ids=voter_ids,
            seed=seed,
        )
        self._allowance = self._guardian.register(self.voters, self.labels)
        self.answered, self._counting = 0, threading.Lock()
        self._warned = 0

    @property
    def mechanism(self) -> Mechanism:
        """How a tally becomes a release."""
        return self._guardian.mechanism

    @property
    def delta(self) -> float:
        """The delta of the guarantee."""
        return self._guardian.budget.delta

    @property
    def allowance(self) -> int | tuple[int, ...]:
        """How many contributions each voter had from the start: one number, or one per voter."""
        return plain(self._allowance.own)

    @property
    def epsilon(self) -> float:
        """The guarantee for all batches together, past and future."""
        return float(to_epsilon(self._allowance.curve, None, self.delta))

    @property
    def epsilon_by_voter(self) -> npt.NDArray[np.float64]:
        """Each voter's own guarantee, which follows from its own allowance: (voters,)."""
        values, inverse = np.unique(self._allowance.own, return_inverse=True)
        # What was charged is the cost of the largest allowance; the others cost their part of it.
        curves = (values / values[-1])[:, None] * self._allowance.curve
        each = to_epsilon(curves, None, self.delta)
        return np.asarray(np.asarray(each)[inverse.reshape(-1)])

    @property
    def sealed(self) -> Sealed:
        """For the owner's eyes: what each voter has spent, and who has nothing left."""
        return self._allowance.spending()

    def __repr__(self) -> str:
        return (
            f"Electorate({self.voters} voters, {self.labels} labels, "
            f"epsilon={rounded_up(self.epsilon, 4)}, delta={rounded_up(self.delta)}, "
            f"{self.mechanism})"
        )

    # A copy would hold the same allowance twice, and spend it twice.
    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError("an Electorate cannot be copied or pickled: its allowance exists once")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    def answer(
        self,
        votes: Any,
        baseline: npt.ArrayLike | None = None,
        *,
        voter_ids: Sequence[Any] | None = None,
    ) -> Release:
        """Answer all queries of a batch. Queries and baseline may depend on past releases.

        All queries are answered: a voter without allowance left counts as the baseline.

        Parameters
        ----------
        votes
            (queries, voters, labels) array, ballots or path.
        baseline
            (queries, labels): a public guess, e.g. the current student's prediction; default:
            zeros. A vote that agrees with it costs nothing. Never derive it from private votes.
        voter_ids
            Names of this batch's voters, in the order of the second axis.
        """
        ballots = Ballots.of(votes)
        ballots.check()
        if ballots.labels != self.labels:
            raise InputError("votes", f"must have {self.labels} labels, got {ballots.labels}")
        if voter_ids is None and ballots.voters != self.voters:
            raise InputError(
                "votes",
                f"must have {self.voters} voters, got {ballots.voters}; if some are absent, name "
                "the others with `voter_ids`",
            )
        release = self._guardian.release(ballots, baseline=baseline, voter_ids=voter_ids)
        few = ballots.sparse or baseline is not None
        release = with_forecast(release, self.mechanism, near=ballots.active_share, few=few)
        said = (release.forecast or {}).get("warnings", ())
        with self._counting:
            self.answered += release.answered
            more, self._warned = len(said) > self._warned, len(said)
        for text in said if more else ():
            warnings.warn(text, PrivoteWarning, stacklevel=2)
        return release
