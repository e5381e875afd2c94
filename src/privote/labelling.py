"""The everyday job: votes in, private labels and an honest bill out.

:func:`label` answers one batch. An :class:`Electorate` has a lifetime allowance and answers any
number of adaptive batches. Both check everything first, then reserve, draw, commit and deliver
(:mod:`privote.ledger`).
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from .accounting.allowance import FACTOR
from .accounting.filters import fitting
from .accounting.renyi import DEFAULT_ORDERS, Floats, epsilon_at, rounded_up
from .entropy import Entropy
from .errors import BudgetError, InputError, PrivoteWarning, whole
from .guarantees import (
    GUARANTEES,
    VOTER,
    Guarantee,
    Learnt,
    Sealed,
    data_dependent,
    worded,
    worst_case,
)
from .guarantees import allowance as allowances
from .ledger import (
    Account,
    AllowanceRequest,
    AllowanceState,
    Budget,
    Ledger,
    Outcome,
    Request,
    Run,
    digest_of,
)
from .mechanisms import Mechanism, TallyVoting, mechanism_of
from .mechanisms.base import check_electorate
from .mechanisms.tally import PERCENT
from .planning.budget import queries_for
from .planning.forecast import forecast
from .planning.tallies import Outlook, outlook
from .posterior import check_rows
from .release import HELPS, Release, expected, release_of
from .votes.cube import MISSING, Ballots, BallotSource, Counts, Threshold
from .votes.names import folded, voter_names

AUTO = "auto"
POOR = 0.5  # an expected F1 that is warned of
STOPPED = "It stopped after"  # begins the sentence that says so
_NEXT = "the next query would exceed the budget in the worst case"
_SOME = 10  # queries, and voters for each of them: an array that has both is rarely meant so
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
        ballots_of(votes, mechanism, threshold),
        Budget(epsilon=epsilon, delta=delta),
        Account(ledger=ledger, dataset=dataset, budget=budget),
        mechanism=mechanism,
        guarantee=guarantee,
        queries=queries,
        plan_for=plan_for,
        baseline=baseline,
        rows=rows,
        voter_ids=voter_ids,
        anyway=anyway,
        entropy=Entropy(seed),
    ).release(resume=resume)
    warn_of_quality(release)
    return release


class Labelling:
    """A call of :func:`label` that is checked: what it will cost, and then what it releases.

    Parameters
    ----------
    ballots, cost, account
        Votes, what the call may cost, and whom it is charged to.
    protects
        What reaches one voter only; whoever made the voters vouches for it.
    limits, registered
        The allowance, where somebody sets it; how many voters there are, where some may be absent.
    lasts
        Whether later runs of the same voters go on with their allowance.
    about
        Further public terms of the run.

    The others are those of :func:`label`.
    """

    def __init__(
        self,
        ballots: BallotSource,
        cost: Budget,
        account: Account,
        *,
        mechanism: Mechanism | str = AUTO,
        guarantee: str = AUTO,
        queries: int | None = None,
        plan_for: int | None = None,
        baseline: npt.ArrayLike | None = None,
        rows: Any = None,
        voter_ids: Sequence[Any] | None = None,
        protects: str = VOTER,
        anyway: bool = False,
        entropy: Entropy,
        limits: Any = None,
        registered: int | None = None,
        lasts: bool = True,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        _check(mechanism, guarantee, account, plan_for)
        self.cost, self.account, self.mechanism, self.entropy = cost, account, mechanism, entropy
        self.protects, self.limits, self.lasts, self.about = protects, limits, lasts, about or {}
        self.plan_for, self.voters, asked = plan_for, registered or ballots.voters, ballots.queries
        if registered is None:
            warn_of_axes(ballots, voter_ids)
            cost.warn(ballots.voters)
        if queries is not None:
            asked = whole("queries", queries, 1, ballots.queries)
            ballots = ballots.head(asked)
        elif guarantee == "data-dependent":
            raise InputError(
                "queries",
                "must be given for guarantee 'data-dependent': stopping at a cost that depends on "
                "the votes would leak, so the number is fixed in advance",
            )
        if guarantee == AUTO:
            lasting = account.ledger is not None or baseline is not None or voter_ids is not None
            size = ballots.voters, ballots.labels, asked
            guarantee = "allowance" if lasting else guarantee_of(mechanism, cost, *size)
        if baseline is not None and guarantee != "allowance":
            raise InputError("baseline", f"needs guarantee 'allowance', not {guarantee!r}")
        most = _most_positives(mechanism, ballots)
        names = ballots.voter_names if voter_ids is None else voter_ids
        names = None if names is None else voter_names(names, ballots.voters)
        named = (guarantee == "allowance" or voter_ids is not None) and lasts
        self.names = names if named else None
        self.ballots, self.guarantee, self.queries = ballots, guarantee, queries
        self.baseline = allowances.check_baseline(baseline, ballots, most, first=queries)
        self.rows = None if rows is None else check_rows(rows, asked)
        if rows is None and not anyway:
            self._refuse_drowned()

    @cached_property
    def outlook(self) -> Outlook | None:
        """How much noise to expect, by public numbers, where it is learnt; else None."""
        if isinstance(self.mechanism, Mechanism) or self.guarantee != "allowance":
            return None
        return outlook(
            voters=self.voters,
            labels=self.ballots.labels,
            queries=allowances.check_planned(self.plan_for, self.ballots.queries),
            epsilon=self.cost.epsilon,
            delta=self.cost.delta,
        )

    def _refuse_drowned(self) -> None:
        """Refuse tallies whose noise is at least the number of voters, whatever they vote."""
        if self.outlook is not None and self.outlook.drowned:
            raise BudgetError(
                f"{self.outlook} Nothing was charged. Public rows of the queries (`rows`) help, "
                "too; `anyway=True` goes on without",
                code="drowned",
            )

    # -- what it asks of a ledger ------------------------------------------------------------------

    def request(self, output: str | None = None) -> Request:
        """Return what the run asks of a ledger, by public numbers; or raise BudgetError."""
        terms: dict[str, Any] = {
            "mechanism": self._parameters(),
            "voters": self.ballots.voters,
            "labels": self.ballots.labels,
            "queries": self.ballots.queries,
            "missing": self.ballots.missing,
            "sparse": self.ballots.sparse,
            "baseline": digest_of(self.baseline.astype(np.int8)) if self.baseline.any() else None,
            **self.about,
        }
        kind = np.int64 if isinstance(self.mechanism, str) else self.mechanism.outcomes
        request = Request(
            dataset=self.account.dataset,
            budget=self.account.budget,
            cost=self.cost,
            guarantee=self.guarantee,
            protects=self.protects,
            simulated=self.entropy.simulated,
            terms=terms,
            price=None,
            layout={"outcome": (kind, (self.ballots.queries, self.ballots.labels))},
            room=1 << 16,
            output=output,
        )
        if isinstance(self.mechanism, str):
            return self._learnt(request)
        if self.guarantee == "allowance":
            return self._limited(request, self.mechanism)
        if self.guarantee == "worst-case":
            return self._bounded(request, self.mechanism)
        return request

    def _learnt(self, request: Request) -> Request:
        planned = allowances.check_planned(self.plan_for, self.ballots.queries)
        learns, voters = self.guarantee == "allowance", self.ballots.voters
        learnt = allowances.learnt_terms(
            self.cost, voters, self.ballots, planned=planned, learns=learns
        )
        wanted = AllowanceRequest(
            terms={
                "mechanism": self._parameters(),
                "labels": self.ballots.labels,
                "resolution": self.ballots.resolution,
            },
            voters=voters,
            names=self.names,
            queries=self.ballots.queries,
            planned=planned,
            plans=self.plan_for is not None,
            lasts=self.lasts,
        )
        return replace(
            request,
            terms={**request.terms, "learnt": vars(learnt)},
            allowance=wanted,
            price=lambda epsilon: allowances.learnt_price(epsilon, self.cost.delta, voters, learns),
        )

    def _limited(self, request: Request, mechanism: Mechanism) -> Request:
        voters, labels = self.voters, self.ballots.labels
        most, each = allowances.largest_allowance(mechanism, voters, labels, self.cost)
        limits = allowances.check_allowance(self.limits, most, voters, self.cost)

        def price(epsilon: float) -> Floats:
            limit = int(limits.max())
            if epsilon != self.cost.epsilon:
                budget = replace(self.cost, epsilon=epsilon)
                limit = allowances.contributions_that_fit(each, budget)
            return FACTOR * limit * each

        return replace(
            request,
            allowance=AllowanceRequest(
                terms={"mechanism": self._parameters(), "labels": labels},
                voters=voters,
                names=self.names,
                wanted=limits,
                lasts=self.lasts,
            ),
            price=price,
            room=request.room + (24 * voters if len({*limits.tolist()}) > 1 else 0),
        )

    def _bounded(self, request: Request, mechanism: Mechanism) -> Request:
        fit, each = worst_case.queries_that_fit(mechanism, self.ballots, self.cost, self.queries)

        def price(epsilon: float) -> Floats:
            if epsilon == self.cost.epsilon:
                return fit * each
            return fitting(each, epsilon, self.cost.delta, self.ballots.queries) * each

        outcome = {"outcome": (mechanism.outcomes, (fit, self.ballots.labels))}
        return replace(request, price=price, layout=outcome)

    def _parameters(self) -> Mapping[str, Any]:
        if isinstance(self.mechanism, str):
            return _PENDING[self.guarantee]
        return self.mechanism.parameters()

    # -- the run -----------------------------------------------------------------------------------

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
        if run.account is not None:
            return self._draw_limited(run, request)
        assert isinstance(self.mechanism, Mechanism)
        if self.guarantee == "worst-case":
            ballots = self.ballots.head(request.layout["outcome"][1][0])
            outcome = worst_case.draw(ballots, self.mechanism, self.entropy)
            assert request.price is not None
            epsilon = _epsilon(request.price(self.cost.epsilon), self.cost.delta)
            guarantee = self._guaranteed(run, outcome, self.mechanism, epsilon)
            run.commit(_outcome(outcome, guarantee), queries=len(outcome))
            return Sealed()
        priced = data_dependent.draw(self.ballots, self.mechanism, self.cost.delta, self.entropy)
        guarantee = self._guaranteed(
            run, priced.outcome, self.mechanism, priced.epsilon, terms=priced.terms
        )
        run.commit(
            _outcome(priced.outcome, guarantee),
            queries=len(priced.outcome),
            curve=priced.curve.tolist(),
        )
        return data_dependent.sealed(self.ballots, self.mechanism, self.cost.delta, priced.curve)

    def _draw_limited(self, run: Run, request: Request) -> Sealed:
        account, charge = run.account, run.charge
        assert account is not None
        seats = run.ledger.seats(account, self.names)
        voters = len(account.allowance)
        electorate = allowances.Electorate(self.ballots, voters, seats, self.baseline)
        terms, epsilon = None, self.cost.epsilon
        if isinstance(self.mechanism, str):
            terms = Learnt(**charge.terms["learnt"])
            drawn = allowances.draw_learnt(account, electorate, terms, self.entropy)
        else:
            drawn = allowances.draw(account, electorate, self.mechanism, self.entropy)
            each = self.mechanism.contribution_rdp(voters, self.ballots.labels, DEFAULT_ORDERS)
            epsilon = _epsilon(FACTOR * account.allowance.max() * each, self.cost.delta)
        limits: Any = account.allowance if drawn.limit is None else np.full(voters, drawn.limit)
        guarantee = self._guaranteed(
            run,
            drawn.outcome,
            drawn.mechanism,
            epsilon,
            terms=terms,
            allowance=None if self.guarantee == "worst-case" else plain(limits),
            answered_total=account.answered + self.ballots.queries,
        )
        learnt = None if drawn.limit is None else (drawn.mechanism.parameters(), drawn.limit)
        run.commit(
            _outcome(drawn.outcome, guarantee),
            queries=self.ballots.queries,
            learnt=learnt,
            spending=drawn.spending,
        )
        unit, at = self.ballots.resolution**2, slice(None) if seats is None else seats
        account = run.account
        assert account is not None
        return Sealed(
            spent=-(-account.spent[at] // unit),
            clipped=account.clipped[at].copy(),
            allowance=account.allowance[at].copy(),
        )

    def _guaranteed(
        self,
        run: Run,
        outcome: npt.NDArray[Any],
        mechanism: Mechanism,
        epsilon: float | None,
        **facts: Any,
    ) -> Guarantee:
        what = "noisy tallies" if outcome.dtype == np.int64 else "labels"
        shape = f"{len(outcome):,} queries on {outcome.shape[1]:,} labels"
        voters = self.ballots.voters if run.account is None else len(run.account.allowance)
        return Guarantee(
            kind=self.guarantee,
            epsilon=epsilon,
            delta=self.cost.delta,
            mechanism=mechanism.parameters(),
            voters=voters,
            released=f"{what} of {shape}",
            protects=self.protects,
            simulated=self.entropy.simulated,
            standing=run.standing,
            drawn=digest_of(outcome),
            **facts,
        )

    def _released(self, outcome: Outcome, sealed: Sealed) -> Release:
        """Return the release of what was committed; nothing here looks at a vote."""
        ballots, labels = self.ballots, outcome.arrays["outcome"]
        guarantee = Guarantee.of_facts(outcome.facts)
        names, reasons = ballots.query_names, tuple[str, ...]()
        if 0 < len(labels) < ballots.queries:
            reasons = (f"{STOPPED} {len(labels)} of {ballots.queries} queries: {_NEXT}.",)
        release = release_of(
            labels,
            guarantee,
            rows=None if self.rows is None else self.rows[: len(labels)],
            active_share=ballots.active_share,
            asked=ballots.queries,
            reasons=reasons,
            label_names=ballots.label_names,
            query_names=None if names is None else tuple(names[: len(labels)]),
            sealed=sealed,
        )
        return self._forecast(release)

    def _forecast(self, release: Release) -> Release:
        """Return released labels with what is to be expected of them, by public numbers."""
        if not release.answered or release.tallies is not None:
            return release
        mechanism, guarantee = self.mechanism, release.guarantee
        if isinstance(mechanism, str):
            mechanism = mechanism_of(dict(guarantee.mechanism))
        limits = guarantee.allowance
        most = max(limits) if isinstance(limits, tuple) else limits
        # How long an allowance lasts is not told where contributions are few.
        few = self.ballots.sparse or self.baseline.any() or self.ballots.active_share is not None
        return replace(
            release,
            forecast=forecast(
                mechanism,
                guarantee.voters,
                release.labels.shape[1],
                near=self.ballots.active_share,
                allowance=None if few else most or None,
                asked=guarantee.answered_total or release.answered,
            ),
        )


def _epsilon(curve: Floats, delta: float) -> float:
    return epsilon_at(curve, DEFAULT_ORDERS, delta)[0]


def _outcome(array: npt.NDArray[Any], guarantee: Guarantee) -> Outcome:
    """Return what a run commits: the statement's text is worded here, once."""
    guarantee = worded(guarantee)
    return Outcome(
        arrays={"outcome": array}, facts=guarantee.facts(), statement=guarantee.statement()
    )


def plain(limits: Counts) -> int | tuple[int, ...]:
    """Return an allowance as one number if all voters have the same."""
    first = int(limits[0])
    return first if (limits == first).all() else tuple(limits.tolist())


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


def _most_positives(mechanism: Mechanism | str, ballots: BallotSource) -> int | None:
    """Return how many ones a ballot may have; refuse ballots that a mechanism does not count."""
    if isinstance(mechanism, str):
        return None
    if ballots.resolution > mechanism.resolution:
        raise InputError("votes", "must be 0, 1 or missing; only tallies take probabilities")
    mechanism.check(ballots)
    return mechanism.max_positives


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
    words = (("query", "queries"), ("voter", "voters"), ("label", "labels"))
    sizes = ballots.queries, ballots.voters, ballots.labels
    text = " x ".join(
        f"{size:,} {one if size == 1 else many}"
        for size, (one, many) in zip(sizes, words, strict=True)
    )
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
            stacklevel=4,
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
        opened = Ledger.open if ledger is not None else Ledger.in_memory
        self._ledger = ledger if isinstance(ledger, Ledger) else opened(*filter(None, [ledger]))
        self._account = Account(ledger=self._ledger, dataset=dataset, budget=budget)
        self._wanted, self._turn, self._warnings = allowance, threading.Lock(), 0
        nobody = Ballots.from_array(np.broadcast_to(np.int8(MISSING), (1, voters, labels)))
        request = self._labelling(nobody, None, self._names).request()
        with self._ledger.transaction() as state:
            charge = self._ledger.allowance_for(state, request)
            if charge is None:
                facts = self._ledger.allowance_facts(request)
                charge = self._ledger.charge(state, request, **facts)
        self._charge = charge
        if len(self._state.allowance) != self.voters:
            rule = f"must be all {len(self._state.allowance)} voters registered together"
            raise InputError("voters", rule, self.voters)
        assert request.allowance is not None
        if allowance is not None and (self._limits != request.allowance.wanted).any():
            raise BudgetError("this electorate already has an allowance, which cannot be changed")
        each = mechanism.contribution_rdp(self.voters, self.labels, DEFAULT_ORDERS)
        self._curve = FACTOR * self._state.allowance.max() * each
        self.answered = 0

    @property
    def _state(self) -> AllowanceState:
        return self._ledger.state.accounts[self._charge]

    @property
    def _limits(self) -> Counts:
        """The allowance of each voter, in the order of their names."""
        seats = self._ledger.seats(self._state, self._names)
        return self._state.allowance[slice(None) if seats is None else seats]

    def _labelling(
        self, ballots: BallotSource, baseline: Any, names: Sequence[str] | None
    ) -> Labelling:
        return Labelling(
            ballots,
            self._cost,
            self._account,
            mechanism=self.mechanism,
            guarantee="allowance",
            baseline=baseline,
            voter_ids=names,
            entropy=self._entropy,
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
        return plain(self._limits)

    @property
    def epsilon(self) -> float:
        """The guarantee for all batches together, past and future."""
        return _epsilon(self._curve, self.delta)

    @property
    def epsilon_by_voter(self) -> npt.NDArray[np.float64]:
        """Each voter's own guarantee, which follows from its own allowance: (voters,)."""
        values, inverse = np.unique(self._limits, return_inverse=True)
        # What was charged is the cost of the largest allowance; the others cost their part of it.
        curves = (values / values[-1])[:, None] * self._curve
        epsilons = np.array([_epsilon(curve, self.delta) for curve in curves])
        return np.asarray(epsilons[inverse.reshape(-1)])

    @property
    def sealed(self) -> Sealed:
        """For the owner's eyes: what each voter has spent, and who has nothing left."""
        state, seats = self._state, self._ledger.seats(self._state, self._names)
        at = slice(None) if seats is None else seats
        return Sealed(spent=state.spent[at], clipped=state.clipped[at], allowance=self._limits)

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
        ballots.check()
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
        names = voter_names(voter_ids, ballots.voters)
        registered = {folded(name) for name in self._names}
        for place, name in enumerate(names):
            if folded(name) not in registered:
                rule = f"must name registered voters, and voter {place} is not registered"
                raise InputError("voter_ids", rule, sealed=f"it is {name!r:.60}")
        return names
