"""The everyday job: votes in, private labels and an honest bill out.

:func:`label` answers one batch. An :class:`Electorate` has a lifetime allowance and answers any
number of adaptive batches. Both check everything first, then reserve, draw, commit and deliver
(:mod:`privote.ledger`).
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from .accounting.renyi import DEFAULT_ORDERS, epsilon_at, rounded_up
from .entropy import Entropy
from .errors import BudgetError, InputError, PrivoteWarning, plural, whole
from .guarantees import (
    GUARANTEES,
    VOTER,
    Guarantee,
    Learnt,
    Sealed,
    data_dependent,
    worst_case,
)
from .guarantees import allowance as allowances
from .ledger import Account, AllowanceRequest, Budget, Ledger, Outcome, Request, Run, digest_of
from .mechanisms import Mechanism, TallyVoting
from .mechanisms.base import check_electorate
from .mechanisms.tally import PERCENT
from .planning.budget import queries_for
from .planning.chances import forecast
from .planning.tallies import Outlook, outlook
from .posterior import check_rows
from .release import HELPS, Release, expected, release_of
from .votes.cube import MISSING, Ballots, BallotSource, Threshold
from .votes.names import folded, voter_names

AUTO = "auto"
POOR = 0.5  # an expected F1 that is warned of
STOPPED = "It stopped after"  # begins the sentence that says so
# What a charge says in the place of settings that are not known yet.
_PENDING = {
    "allowance": {"mechanism": TallyVoting.name, "noise": "learnt"},
    "worst-case": {"mechanism": TallyVoting.name, "noise": "solved"},
}
Write = Callable[[Release], Mapping[str, str]]


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
    rows: Any = None,
    threshold: Threshold = None,
    ledger: Any = None,
    dataset: str = "default",
    budget: float | None = None,
    voter_ids: Sequence[Any] | None = None,
    anyway: bool = False,
    resume: bool = False,
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
        is given. Names of queries and labels, where there are any, go into the release; names of
        voters serve as ``voter_ids``.
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
    rows
        (queries, features): public rows of the queries, dense or sparse. Labels are decided with
        their help, at no cost.
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
    anyway
        Go on where the noise is at least the number of voters, whatever they vote.
    resume
        Finish an earlier call with the same arguments and ledger that did not return, at no further
        charge.
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
        If the budget does not allow the request; nothing is charged or released.
    ChargedError
        If the call fails after the charge; ``resume=True`` finishes it, unless it says otherwise.

    Examples
    --------
    >>> import numpy as np, privote as pv
    >>> votes = np.random.default_rng(0).random((100, 50, 4)) < 0.1
    >>> release = pv.label(votes, epsilon=8.0, delta=1e-5)
    >>> release.labels.shape, release.epsilon, release.delta
    ((100, 4), 8.0, 1e-05)
    """
    release = Labelling(
        ballots=ballots_of(votes, mechanism, threshold),
        cost=Budget(epsilon=epsilon, delta=delta),
        account=Account(ledger=ledger, dataset=dataset, budget=budget),
        entropy=Entropy(seed),
        mechanism=mechanism,
        guarantee=guarantee,
        queries=queries,
        plan_for=plan_for,
        baseline=baseline,
        rows=rows,
        voter_ids=voter_ids,
        anyway=anyway,
    ).release(resume=resume)
    warn_of_quality(release)
    return release


@dataclass(kw_only=True, eq=False)
class Labelling:
    """A call of :func:`label`, checked: what it asks of a ledger, and then what it releases.

    Attributes
    ----------
    ballots, cost, account, entropy
        Votes, what the call may cost, whom it is charged to, and where its noise comes from.
    mechanism, guarantee, queries, plan_for, baseline, rows, voter_ids, anyway
        As in :func:`label`.
    protects
        What reaches one voter only; whoever made the voters vouches for it.
    limits, registered
        The allowance, where somebody sets it; how many voters there are, where some may be absent.
    lasts
        Whether later runs of the same voters go on with their allowance.
    about
        Further public terms of the run.
    names
        By which a ledger recognises the voters; None where they are known by their place.
    planned
        For how many queries an allowance is learnt, these included.
    named
        The mechanism; None where the noise is learnt.
    """

    ballots: BallotSource
    cost: Budget
    account: Account
    entropy: Entropy
    mechanism: Mechanism | str = AUTO
    guarantee: str = AUTO
    queries: int | None = None
    plan_for: int | None = None
    baseline: Any = None
    rows: Any = None
    voter_ids: Sequence[Any] | None = None
    anyway: bool = False
    protects: str = VOTER
    limits: Any = None
    registered: int | None = None
    lasts: bool = True
    about: Mapping[str, Any] = field(default_factory=dict)
    names: Sequence[str] | None = field(init=False, default=None)
    planned: int = field(init=False)
    named: Mechanism | None = field(init=False)

    def __post_init__(self) -> None:
        ballots, account = self.ballots, self.account
        _check(self.mechanism, self.guarantee, account, self.plan_for)
        if self.registered is None:
            warn_of_axes(ballots, self.voter_ids)
            self.cost.warn(ballots.voters)
        if self.queries is not None:
            ballots = ballots.head(whole("queries", self.queries, 1, ballots.queries))
        elif self.guarantee == "data-dependent":
            raise InputError(
                "queries",
                "must be given for guarantee 'data-dependent': stopping at a cost that depends on "
                "the votes would leak, so the number is fixed in advance",
            )
        if self.guarantee == AUTO:
            keeps = (account.ledger, self.baseline, self.voter_ids)
            size = ballots.voters, ballots.labels, ballots.queries
            lasting = any(each is not None for each in keeps)
            self.guarantee = (
                "allowance" if lasting else guarantee_of(self.mechanism, self.cost, *size)
            )
        if self.baseline is not None and self.guarantee != "allowance":
            raise InputError("baseline", f"needs guarantee 'allowance', not {self.guarantee!r}")
        self.named = self.mechanism if isinstance(self.mechanism, Mechanism) else None
        most = None if self.named is None else self.named.max_positives
        if self.named is not None:
            if ballots.resolution > self.named.resolution:
                raise InputError(
                    "votes", "must be 0, 1 or missing; only tallies take probabilities"
                )
            self.named.check(ballots)
        names: Any = ballots.voter_names if self.voter_ids is None else self.voter_ids
        names = None if names is None else voter_names(names, ballots.voters)
        if self.lasts and (self.guarantee == "allowance" or self.voter_ids is not None):
            self.names = names
        first, self.ballots = self.queries, ballots
        self.baseline = allowances.check_baseline(self.baseline, ballots, most, first=first)
        self.planned = ballots.queries
        if self.plan_for is not None:
            self.planned = whole("plan_for", self.plan_for, ballots.queries)
        if self.rows is not None:
            check_rows(self.rows, ballots.queries)
        elif not self.anyway and self.outlook is not None and self.outlook.drowned:
            raise BudgetError(
                f"{self.outlook} Nothing was charged. Public rows of the queries (`rows`) help, "
                "too; `anyway=True` goes on without",
                code="drowned",
            )

    @cached_property
    def outlook(self) -> Outlook | None:
        """How much noise to expect, by public numbers, where it is learnt; else None."""
        if self.named is not None or self.guarantee != "allowance":
            return None
        return outlook(
            voters=self.ballots.voters,
            labels=self.ballots.labels,
            queries=self.planned,
            epsilon=self.cost.epsilon,
            delta=self.cost.delta,
        )

    def request(self, output: str | None = None) -> Request:
        """Return what the run asks of a ledger, by public numbers; or raise BudgetError."""
        ballots, mechanism, kind = self.ballots, self.named, self.guarantee
        settings = _PENDING[kind] if mechanism is None else mechanism.parameters()
        wanted = AllowanceRequest(
            terms={"mechanism": settings, "labels": ballots.labels},
            voters=self.registered or ballots.voters,
            names=self.names,
            lasts=self.lasts,
        )
        guess = digest_of(self.baseline.astype(np.int8)) if self.baseline.any() else None
        outcomes = np.int64 if mechanism is None else mechanism.outcomes
        request = Request(
            dataset=self.account.dataset,
            budget=self.account.budget,
            cost=self.cost,
            guarantee=kind,
            protects=self.protects,
            simulated=self.entropy.simulated,
            terms={
                "mechanism": settings,
                "voters": ballots.voters,
                "labels": ballots.labels,
                "queries": ballots.queries,
                "missing": ballots.missing,
                "sparse": ballots.sparse,
                "baseline": guess,
                **self.about,
            },
            price=None,
            allowance=wanted if kind == "allowance" or mechanism is None else None,
            layout={"outcome": (outcomes, (ballots.queries, ballots.labels))},
            output=output,
        )
        if mechanism is None:
            plans = self.plan_for is not None
            return allowances.asked_to_learn(request, ballots, self.planned, plans=plans)
        if kind == "allowance":
            return allowances.asked(request, mechanism, ballots.labels, self.limits)
        if kind == "worst-case":
            return worst_case.asked(request, mechanism, ballots, self.queries)
        return request

    def release(
        self, *, output: str | None = None, write: Write | None = None, resume: bool = False
    ) -> Release:
        """Check the votes, reserve, draw, commit and deliver.

        Parameters
        ----------
        output
            Where the release goes: what a run that is resumed is known by, besides its terms.
        write
            Writes the release, and returns the digests of its files by name.
        resume
            Take over the run of an earlier call that did not finish.
        """
        request = self.request(output)
        with Ledger.at(self.account.ledger) as ledger:
            earlier = ledger.find(request) if resume else None
            if earlier is None or earlier.commit is None:
                self.ballots.check()
            with ledger.reserve(request, resume=resume) as run:
                sealed = self._draw(run, request) if run.outcome is None else Sealed()
                assert run.outcome is not None
                release = self._released(run.outcome, sealed)
                run.deliver({} if write is None else write(release))
        return release

    def _draw(self, run: Run, request: Request) -> Sealed:
        """Draw and commit; return what is for the owner's eyes."""
        ballots, mechanism, delta = self.ballots, self.named, self.cost.delta
        account, voters, seats = run.account, ballots.voters, None
        epsilon: float | None = self.cost.epsilon
        if account is not None:
            voters, seats = len(account.allowance), run.ledger.seats(account, self.names)
            seated = allowances.SeatedBallots(ballots, voters, seats, self.baseline)
            if mechanism is None:
                drawn = allowances.draw_learnt(account, seated, self.entropy)
            else:
                drawn = allowances.draw(account, seated, mechanism, self.entropy)
                curve = allowances.curve_of(account, mechanism, ballots.labels)
                epsilon = epsilon_at(curve, DEFAULT_ORDERS, delta)[0]
        elif mechanism is not None and request.price is not None:
            fit = request.layout["outcome"][1][0]
            drawn = worst_case.draw(ballots.head(fit), mechanism, self.entropy)
            epsilon = epsilon_at(request.price(self.cost.epsilon), DEFAULT_ORDERS, delta)[0]
        else:
            assert mechanism is not None
            drawn = data_dependent.draw(ballots, mechanism, delta, self.entropy)
            epsilon = drawn.epsilon
        queries, labels = drawn.outcome.shape
        what = "noisy tallies" if drawn.outcome.dtype == np.int64 else "labels"
        facts = Guarantee(
            kind=self.guarantee,
            epsilon=epsilon,
            delta=delta,
            mechanism=drawn.mechanism.parameters(),
            voters=voters,
            released=f"{what} of {plural(queries, 'query')} on {plural(labels, 'label')}",
            protects=self.protects,
            terms=drawn.terms,
            allowance=drawn.allowance,
            answered_total=drawn.answered_total,
            simulated=self.entropy.simulated,
            standing=run.standing,
            drawn=digest_of(drawn.outcome),
        ).facts()
        run.commit(
            Outcome(arrays={"outcome": drawn.outcome}, facts=facts, statement=facts["text"]),
            queries=queries,
            learnt=drawn.learnt,
            spending=drawn.spending,
            curve=None if drawn.curve is None else drawn.curve.tolist(),
        )
        if run.account is not None:
            return allowances.sealed(run.account, seats, ballots.resolution)
        if drawn.curve is None:
            return Sealed()
        return data_dependent.sealed(ballots, drawn.mechanism, delta, drawn.curve)

    def _released(self, outcome: Outcome, sealed: Sealed) -> Release:
        """Return the release of what was committed; nothing here looks at a vote."""
        ballots, labels = self.ballots, outcome.arrays["outcome"]
        guarantee = Guarantee.of_facts(outcome.facts)
        names, reasons, told = ballots.query_names, tuple[str, ...](), None
        if 0 < len(labels) < ballots.queries:
            why = "the next query would exceed the budget in the worst case"
            reasons = (f"{STOPPED} {len(labels)} of {plural(ballots.queries, 'query')}: {why}.",)
        if self.named is not None and len(labels) and labels.dtype != np.int64:
            # How long an allowance lasts is not told where contributions are few.
            few = ballots.sparse or self.baseline.any() or ballots.active_share is not None
            limits = None if few else guarantee.allowance
            told = forecast(
                self.named,
                guarantee.voters,
                ballots.labels,
                near=ballots.active_share,
                allowance=(max(limits) if isinstance(limits, tuple) else limits) or None,
                asked=guarantee.answered_total or len(labels),
            )
        return release_of(
            labels,
            guarantee,
            rows=None if self.rows is None else self.rows[: len(labels)],
            active_share=ballots.active_share,
            asked=ballots.queries,
            forecast=told,
            reasons=reasons,
            label_names=ballots.label_names,
            query_names=None if names is None else tuple(names[: len(labels)]),
            sealed=sealed,
        )


def _check(mechanism: Any, guarantee: Any, account: Account, plan_for: Any) -> None:
    named = isinstance(mechanism, Mechanism)
    if not named and not (isinstance(mechanism, str) and mechanism == AUTO):
        rule = "must be 'auto' or a privote mechanism, such as BinaryVoting(sigma=7.0)"
        raise InputError("mechanism", rule, mechanism)
    if guarantee not in (AUTO, *GUARANTEES):
        raise InputError("guarantee", f"must be one of {', '.join((AUTO, *GUARANTEES))}", guarantee)
    if not named and guarantee == "data-dependent":
        rule = f"must be named with `guarantee={guarantee}`, which does not set the noise"
        raise InputError("mechanism", rule, mechanism)
    if plan_for is not None and account.ledger is None:
        raise InputError("plan_for", "needs a `ledger`, which keeps what is left for later calls")
    if plan_for is not None and named:
        raise InputError("plan_for", "needs `mechanism=auto`, which learns the allowance")


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
    mechanism: Mechanism | str, cost: Budget, voters: int, labels: int, queries: int
) -> str:
    """Return under which guarantee a call without a ledger answers all queries: by public numbers.

    In the worst case nobody runs out; where not all queries fit, an allowance lasts longer.
    """
    if isinstance(mechanism, str):
        return "allowance"
    fit = queries_for(mechanism, voters, labels, cost.epsilon, cost.delta)
    return "worst-case" if fit >= queries else "allowance"


def warn_of_quality(release: Release) -> None:
    """Warn of labels that are not expected to be good, and of queries that were not answered."""
    texts = [*(release.forecast or {}).get("warnings", ())]
    quality = release.quality
    if isinstance(release.guarantee.terms, Learnt) and (quality is None or quality["f1"] < POOR):
        texts.append(expected(release) if quality is None else f"{expected(release)}. {HELPS}")
    texts += [text for text in release.reasons if text.startswith(STOPPED)]
    for text in texts:
        warnings.warn(text, PrivoteWarning, stacklevel=3)


def read_as(ballots: BallotSource, voter_ids: Any = None) -> str:
    """Return in words what the axes of votes were taken for; by sizes and names, never by votes.

    Where an array without names has more voters than queries, it asks: of votes that came as
    (voters, queries, labels) the promise would be to the wrong ones.
    """
    sizes = ballots.queries, ballots.voters, ballots.labels
    nouns = ("query", "voter", "label")
    text = " x ".join(plural(size, noun) for size, noun in zip(sizes, nouns, strict=True))
    if not 1 < sizes[0] < sizes[1] or _has_names(ballots, voter_ids):
        return text
    return (
        f"{text}. There are more voters than queries; is that right? The first axis of an array "
        "is the queries, the second the voters, who are protected"
    )


def _has_names(ballots: BallotSource, voter_ids: Any) -> bool:
    """Return whether more than the order of axes tells voters from queries."""
    names = (ballots.query_names, ballots.voter_names, voter_ids)
    return ballots.sparse or any(name is not None for name in names)


def warn_of_axes(ballots: BallotSource, voter_ids: Any = None) -> None:
    """Warn of sizes that look as if the axes of an array were in another order."""
    queries, voters, labels = ballots.queries, ballots.voters, ballots.labels
    swapped = voters > 1000 * queries or (queries >= 10 and voters > 10 * queries)
    swapped |= labels >= 1000 and labels > 10 * max(queries, voters)
    swapped &= queries > 1  # one query is a poll
    if voters == 1 or (swapped and not _has_names(ballots, voter_ids)):
        warnings.warn(
            f"votes have {queries} queries, {voters} voters and {labels} labels. The axes must be "
            "(queries, voters, labels); are they in this order?",
            PrivoteWarning,
            stacklevel=5,
        )


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
        ledger: Any = None,
        dataset: str = "default",
        budget: float | None = None,
        seed: int | None = None,
    ) -> None:
        check_electorate(voters, labels)
        if not isinstance(mechanism, Mechanism):
            raise InputError("mechanism", "must be a privote mechanism", mechanism)
        self.voters, self.labels, self.mechanism = int(voters), int(labels), mechanism
        self._names = None if voter_ids is None else voter_names(voter_ids, self.voters)
        self._cost, self._entropy = Budget(epsilon=epsilon, delta=delta), Entropy(seed)
        self._cost.warn(self.voters)
        if not isinstance(ledger, Ledger):
            ledger = Ledger.in_memory() if ledger is None else Ledger.open(ledger)
        self._account = Account(ledger=ledger, dataset=dataset, budget=budget)
        self._wanted, self._turn, self._warnings = allowance, threading.Lock(), 0
        nobody = Ballots.from_array(np.broadcast_to(np.int8(MISSING), (1, voters, labels)))
        request = self._labelling(nobody, None, self._names).request()
        with ledger.transaction() as state:
            charge = ledger.allowance_for(state, request)
            if charge is None:
                charge = ledger.charge(state, request)
        self._charge, registered = charge, state.accounts[charge].allowance
        if len(registered) != self.voters:
            rule = f"must be all {len(registered)} voters registered together"
            raise InputError("voters", rule, self.voters)
        assert request.allowance is not None
        if allowance is not None and (self.sealed.allowance != request.allowance.wanted).any():
            raise BudgetError("this electorate already has an allowance, which cannot be changed")
        self._curve = allowances.curve_of(state.accounts[charge], mechanism, self.labels)
        self.answered = 0

    def _labelling(
        self, ballots: BallotSource, baseline: Any, names: Sequence[str] | None
    ) -> Labelling:
        return Labelling(
            ballots=ballots,
            cost=self._cost,
            account=self._account,
            entropy=self._entropy,
            mechanism=self.mechanism,
            guarantee="allowance",
            baseline=baseline,
            voter_ids=names,
            limits=self._wanted,
            registered=self.voters,
        )

    @property
    def delta(self) -> float:
        """The delta of the guarantee."""
        return self._cost.delta

    @property
    def allowance(self) -> int | tuple[int, ...]:
        """How many contributions each voter had from the start: one number, or one per voter."""
        limits = self._account.ledger.state.accounts[self._charge].limits
        return limits if isinstance(limits, int) else tuple(self.sealed.allowance.tolist())

    @property
    def epsilon(self) -> float:
        """The guarantee for all batches together, past and future."""
        return epsilon_at(self._curve, DEFAULT_ORDERS, self.delta)[0]

    @property
    def epsilon_by_voter(self) -> npt.NDArray[np.float64]:
        """Each voter's own guarantee, which follows from its own allowance: (voters,)."""
        values, inverse = np.unique(self.sealed.allowance, return_inverse=True)
        # What was charged is the cost of the largest allowance; the others cost their part of it.
        curves = (values / values[-1])[:, None] * self._curve
        epsilons = np.array([epsilon_at(curve, DEFAULT_ORDERS, self.delta)[0] for curve in curves])
        return np.asarray(epsilons[inverse.reshape(-1)])

    @property
    def sealed(self) -> Sealed:
        """For the owner's eyes: what each voter has spent, and who has nothing left."""
        state = self._account.ledger.state.accounts[self._charge]
        return allowances.sealed(state, self._account.ledger.seats(state, self._names), 1)

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
        resume: bool = False,
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
        resume
            Finish an earlier call with the same arguments and ledger that did not return.
        """
        ballots = Ballots.of(votes)
        if ballots.labels != self.labels:
            raise InputError("votes", f"must have {self.labels} labels, got {ballots.labels}")
        names = self._present(ballots, voter_ids)
        with self._turn:
            release = self._labelling(ballots, baseline, names).release(resume=resume)
            texts = (release.forecast or {}).get("warnings", ())
            self.answered += release.answered
            more, self._warnings = len(texts) > self._warnings, len(texts)
        for text in texts if more else ():
            warnings.warn(text, PrivoteWarning, stacklevel=2)
        return release

    def _present(self, ballots: BallotSource, voter_ids: Any) -> Sequence[str] | None:
        """Return the names of a batch's voters, who must be registered."""
        if voter_ids is None:
            if ballots.voters != self.voters:
                raise InputError(
                    "votes",
                    f"must have {self.voters} voters, got {ballots.voters}; if some are absent, "
                    "name the others with `voter_ids`",
                )
            return self._names
        if self._names is None:
            raise InputError("`voter_ids` given, but the voters were registered without names")
        names, registered = voter_names(voter_ids, ballots.voters), {*map(folded, self._names)}
        for place, name in enumerate(names):
            if folded(name) not in registered:
                rule = f"must name registered voters, and voter {place} is not registered"
                raise InputError("voter_ids", rule, sealed=f"it is {name!r:.60}")
        return names
