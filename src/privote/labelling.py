"""The everyday job: votes in, private labels and an honest bill out."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .ballots import Ballots, BallotSource, Threshold
from .dependencies import Implications, consistent
from .drafts import Draft, beside, complete, drafted
from .errors import InputError, PrivoteWarning
from .guardian import Guardian, record_kept, seats
from .ledger import Budget, Ledger, Location
from .ledger.records import digest_of
from .mechanisms import Mechanism, mechanism_of
from .planning.choice import AUTO, STOPPED, Chosen, Request, expected, settled
from .release import Release
from .storage import check_here

ALL_THERE = b"all"  # the note after the last part
_CELL, _QUERY, _MORE = 3, 24, 1 << 16  # bytes of a label, of a row, and of everything else
Rows = npt.NDArray[np.int64]
_SOME = 10  # queries, and voters for each of them: an array that has both is rarely meant so
_NO_FURTHER = "the run that is finished here got no further"


def label(
    votes: Any,
    *,
    epsilon: float,
    delta: float,
    mechanism: Mechanism | str = AUTO,
    guarantee: str = AUTO,
    queries: int | str | None = None,
    yes: float | None = None,
    agreement: float | None = None,
    most_ones: int | None = None,
    quality: float | None = None,
    baseline: npt.ArrayLike | None = None,
    bound: str = "exact",
    threshold: Threshold = None,
    ledger: Any = None,
    dataset: str = "default",
    consumer: str | None = None,
    voter_ids: Sequence[Any] | None = None,
    implies: Any = None,
    seed: int | None = None,
    output: str | os.PathLike[str] | Draft | None = None,
    resume: bool = False,
    force: bool = False,
) -> Release:
    """Release private labels for votes, within a budget.

    Parameters
    ----------
    votes
        (queries, voters, labels): bool or 0/1/-1 array, probabilities with ``threshold``, ballots,
        a data frame, or the path or URL of a votes file. Names of queries and labels, where there
        are any, go into the release; names of voters serve as ``voter_ids``.
    epsilon, delta
        The budget, for replacing one voter's ballots on all queries.
    mechanism
        ``"auto"`` (default): what :func:`privote.advise` says, from public numbers; or the one that
        an allowance of these voters was charged for already. Or e.g. ``BinaryVoting(sigma=7.0)``.
    guarantee
        ``"auto"`` (default): allowance or worst-case, whichever promises better labels by public
        numbers. ``"allowance"``: unconditional, epsilon fixed before any vote is seen.
        ``"worst-case"``: unconditional, plain composition; answers until the next query would not
        fit. ``"ptr"``: unconditional at the prices of consensus; a private test decides whether all
        labels leave or none, and is charged either way. Binary only. ``"data-dependent"``: the
        paper's; about these votes only, exact epsilon sealed, a sanitized one published for Binary;
        ``epsilon`` is no more than a public design target.
    queries
        How many to answer: the first ones. None: as many as will be good; under an allowance they
        are released in batches, until released labels say that voters run out. ``"all"``, or a
        number: those, warned where they will not be good. A number is needed for
        ``"data-dependent"`` and ``"ptr"``.
    yes
        The share of yes among all votes, if you know it; 0.1 for the advice, unless told. This and
        the next three are public guesses. They are never read from the votes: settings that follow
        the votes would tell of them.
    agreement, most_ones, quality
        For ``mechanism="auto"``, as in :func:`privote.advise`.
    baseline
        (queries, labels) public guess for ``"allowance"``; zeros by default.
    bound
        For ``"data-dependent"``: ``"exact"``, or ``"pate2018"`` to compare.
    ledger, dataset, consumer
        A :class:`privote.Ledger` or its path: then the budget is the data set's, over all runs
        and all processes. Without one, the budget is this call's.
    voter_ids
        Names of the voters, where their allowances last beyond one call; those in the votes unless
        given. Without names a voter is known by its place in the votes, which must then be the
        same in every call.
    implies
        Which labels imply which: what :meth:`privote.dependencies.Implications.of` takes, e.g. a
        file. After the draw a 1 raises all that it implies, as :func:`privote.dependencies.
        consistent` has it; that is free, and the release says so. Labels as they were drawn are not
        kept: for both, leave this out and call that function.
    seed
        An integer makes a simulation, marked as such; it protects nobody. The same call gives the
        same labels again; another ``queries`` may cut batches elsewhere, and then gives others.
    output
        A new ``.npz`` file to save the release in. It is claimed before anything is charged, and
        labels are on disk as soon as they are drawn: if anything fails after that,
        :class:`privote.errors.ChargedError` says where they are. A draft instead of a path:
        whoever opened it writes what is to be made of it.
    resume
        Finish what an earlier call with the same arguments left behind in ``output``. Labels that
        were released stay as they are, what was charged is not charged again, and the queries that
        are left are answered. With None for ``votes`` only what was released is written.
    force
        Replace the file if it exists.

    Bad input raises before anything is charged or drawn. What is to be expected of the labels is in
    ``forecast`` and ``reasons`` of the release, and a :class:`privote.PrivoteWarning` where it is
    not good.
    """
    path = draft = None
    if isinstance(output, Draft):
        draft = output
    elif output is not None:
        path = check_output(output, ".npz", replaced=force or resume)
    guesses: dict[str, Any] = {
        "yes": yes,
        "agreement": agreement,
        "most_ones": most_ones,
        "quality": quality,
    }
    asked = {"epsilon": epsilon, "delta": delta, "guarantee": guarantee, "seed": seed}
    asked |= {"dataset": dataset, "consumer": consumer, "queries": queries}
    asked |= {"mechanism": str(mechanism), **guesses}
    implied = None if implies is None else Implications.of(implies)
    asked |= {"implies": None if implied is None else implied.pairs}
    claimed = draft if path is None else beside(path)
    with drafted(claimed, asked, resume=resume, force=force) as draft:
        parts = None if draft is None else KeptReleases(draft)
        if parts is not None and resume and (votes is None or parts.all_there):
            release, _ = parts.together()
            release = record_kept(ledger, release, parts.since)
            made_by = mechanism if isinstance(mechanism, Mechanism) else None
            release = expected(
                release,
                made_by or mechanism_of(release.mechanism),
                yes=yes,
                paced=queries is None,
                why=None if parts.all_there else _NO_FURTHER,
            )
        else:
            ballots = Ballots.of(votes, threshold=threshold)
            warn_of_axes(ballots, voter_ids)
            if implied is not None:
                implied.places(ballots.labels, getattr(ballots, "label_names", None))
            if voter_ids is not None:
                seats(voter_ids, ballots.voters)
            request = Request(
                mechanism=mechanism,
                guarantee=guarantee,
                budget=Budget(epsilon=epsilon, delta=delta),
                scope=(dataset, consumer),  # as the ledger has them, below
                queries=queries,
                simulated=seed is not None,
                for_allowance=baseline is not None or voter_ids is not None,
                **guesses,
            )
            names = getattr(ballots, "voter_names", None) if voter_ids is None else voter_ids
            with _opened(ledger) as book:
                if book is not None:
                    request = replace(request, scope=book.known(dataset, consumer))
                note = None if draft is None else draft.read()
                if note is None:
                    chosen = settled(request, ballots, book, names)
                else:
                    chosen = _noted(note, mechanism)
                if chosen.warning is not None:
                    warnings.warn(chosen.warning, PrivoteWarning, stacklevel=2)
                named = _naming(ballots, chosen.reasons, request.wanted(ballots))
                if parts is not None and draft is not None:
                    parts.name = named
                    texts = json.dumps(getattr(ballots, "query_names", None))
                    draft.reserve(room(ballots.queries, ballots.labels, len(texts)))
                    if note is None:
                        draft.note(_note(chosen))
                with Guardian(
                    chosen.mechanism,
                    request.budget,
                    ledger if book is None else book,
                    guarantee=chosen.guarantee,
                    dataset=dataset,
                    consumer=consumer,
                    voter_ids=names if chosen.guarantee == "allowance" else voter_ids,
                    seed=seed,
                    draft=draft,
                ) as guardian:
                    pace = chosen.pace(request, ballots.voters, ballots.labels)
                    release = guardian.release(
                        ballots,
                        queries=request.exactly(ballots, chosen.guarantee),
                        baseline=baseline,
                        bound=bound,
                        parts=parts,
                        pace=pace,
                    )
                if draft is not None:
                    draft.note(ALL_THERE)
            release = expected(
                named(release, 0),
                chosen.mechanism,
                yes=yes,
                baseline=baseline,
                paced=pace is not None and not pace.through,
                why=None if pace is None else pace.why,
                quality=request.bar,
                near=getattr(ballots, "near", None),
            )
        if implied is not None:
            release = consistent(release, implied)
        if path is not None and draft is not None:
            with complete(path, force=force) as part:
                release.save(part)
            draft.finish()
    warn_of_quality(release)
    return release


@contextmanager
def _opened(ledger: Any) -> Iterator[Ledger | None]:
    """Yield the ledger, if there is one by now; a new one is made once all is settled."""
    if ledger is None:
        yield Ledger.in_memory()
        return
    if isinstance(ledger, str | os.PathLike):
        ledger = Location.of(ledger)
    if not isinstance(ledger, Location):
        yield ledger if isinstance(ledger, Ledger) else None  # the guardian refuses anything else
    elif not (ledger.file.exists() or ledger.head.exists()):
        yield None
    else:
        with closing(Ledger.open(ledger)) as book:
            yield book


def warn_of_quality(release: Release) -> None:
    """Warn of labels that are not expected to be good, and of queries that were not answered."""
    said = [] if release.forecast is None else [*release.forecast.warnings]
    stopped = [place for place, why in enumerate(release.reasons) if why.startswith(STOPPED)]
    if stopped:
        said.append(" ".join(release.reasons[stopped[0] :]))
    for text in said:
        warnings.warn(text, PrivoteWarning, stacklevel=3)


def read_as(shape: Sequence[int], *, named: bool) -> str:
    """Return in words what the axes of votes were taken for; by sizes and names, never by votes.

    Where an array without names has more voters than queries, it asks: of votes that came as
    (voters, queries, labels) the promise would be to the wrong ones.
    """
    words = (("query", "queries"), ("voter", "voters"), ("label", "labels"))
    said = " x ".join(
        f"{size:,} {one if size == 1 else more}"
        for size, (one, more) in zip(shape, words, strict=True)
    )
    if named or not 1 < shape[0] < shape[1]:
        return said
    return (
        f"{said}. More voters than queries: is that so? Of an array the first axis is the queries, "
        "the second the voters, who are protected"
    )


def has_names(ballots: BallotSource, voter_ids: Any = None) -> bool:
    """Return whether more than the order of axes tells voters from queries."""
    names = [getattr(ballots, f"{axis}_names", None) for axis in ("query", "voter")]
    return ballots.sparse or any(name is not None for name in (*names, voter_ids))


def warn_of_axes(ballots: BallotSource, voter_ids: Any = None) -> None:
    """Warn of sizes that look as if the axes of an array were in another order."""
    queries, voters, labels = ballots.queries, ballots.voters, ballots.labels
    odd = None
    if voters == 1:
        odd = "1 voter"
    elif has_names(ballots, voter_ids) or queries == 1:
        return  # named, or a poll: nothing is in the wrong place
    elif voters > 1000 * queries or (queries >= _SOME and voters > _SOME * queries):
        odd = f"{voters} voters and {queries} queries"
    elif labels >= 1000 and labels > 10 * max(queries, voters):
        odd = f"{labels} labels of {queries} queries and {voters} voters"
    if odd is not None:
        warnings.warn(
            f"votes have {odd}: their axes are (queries, voters, labels), got shape "
            f"({queries}, {voters}, {labels}); are they in this order?",
            PrivoteWarning,
            stacklevel=3,
        )


def _naming(
    ballots: BallotSource, reasons: tuple[str, ...], asked: int
) -> Callable[[Release, int], Release]:
    """Return what gives a release the public names; it takes where its first query is, too."""
    labels, queries = (getattr(ballots, name, None) for name in ("label_names", "query_names"))

    def named(release: Release, start: int) -> Release:
        stop = start + release.answered
        return replace(
            release,
            asked=asked,
            reasons=reasons,
            label_names=labels,
            query_names=None if queries is None else queries[start:stop],
        )

    return named


def _note(chosen: Chosen) -> bytes:
    """Return settings as a draft keeps them: once they are charged, a ledger has less to offer."""
    facts = {"guarantee": chosen.guarantee, "reasons": chosen.reasons, "warning": chosen.warning}
    return json.dumps({**facts, "mechanism": chosen.mechanism.parameters()}, default=str).encode()


def _noted(note: bytes, mechanism: Mechanism | str) -> Chosen:
    facts = json.loads(note)
    return Chosen(
        mechanism=mechanism
        if isinstance(mechanism, Mechanism)
        else mechanism_of(facts["mechanism"]),
        guarantee=facts["guarantee"],
        reasons=tuple(facts["reasons"]),
        warning=facts["warning"],
    )


class KeptReleases:
    """The parts of a release in a draft, each with the rows of a pool that it is about.

    Attributes
    ----------
    name
        Gives a part its public names; it takes where its first query is, too.
    answered
        How many queries have their labels in the parts that were read, or kept.
    since
        The ledger entry after which the first of them was drawn, once all are read; 0 without one.
    """

    def __init__(self, draft: Draft) -> None:
        self.draft, self.answered, self.since = draft, 0, 0
        self.name: Callable[[Release, int], Release] = lambda part, start: part

    @property
    def all_there(self) -> bool:
        """Whether all that is to be released is in the draft."""
        return self.draft.last == ALL_THERE

    def kept(self, queries: int | None, rows: Rows | None = None) -> Release | None:
        """Return the next part that was kept, which must be about so many queries, or these rows.

        None where there is no more.
        """
        data = self.draft.read()
        if data is None:
            return None
        part, about = _part(data)
        if queries not in (None, part.answered) or not (
            rows is None or np.array_equal(rows, about)
        ):
            raise InputError("resume", "must be with the same votes, and these are cut otherwise")
        self.answered += part.answered
        return part

    def keep(self, part: Release, rows: Rows | None = None) -> None:
        """Append a part of a release, durably."""
        data = BytesIO()
        about = {} if rows is None else {"rows": np.asarray(rows, np.int64)}
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
                f"needs labels, and {str(self.draft.path)!r} has none: nothing was released. With "
                "the votes it goes on, and pays no second time for what the ledger has charged",
            )
        labels = np.concatenate([part.labels for part, _ in parts])
        names = tuple(name for part, _ in parts for name in part.query_names or ())
        self.since = (parts[0][0].ledger or {}).get("entry", 0)
        drawn = (digest_of(labels),)
        whole = replace(parts[-1][0], labels=labels, query_names=names or None, drawn=drawn)
        return whole, np.concatenate([rows for _, rows in parts])


def _part(data: bytes) -> tuple[Release, Rows]:
    with np.load(BytesIO(data), allow_pickle=False) as arrays:
        part = Release.of_arrays(arrays)
        rows = arrays["rows"] if "rows" in arrays else np.arange(part.answered)
    return part, rows.astype(np.int64)


def room(queries: int, labels: int, names: int = 0) -> int:
    """Return how many bytes labels need in a draft at most, with so many bytes of names."""
    return queries * (labels * _CELL + _QUERY) + names + _MORE


def check_output(output: Any, suffix: str, *, replaced: bool) -> Path:
    """Refuse a place to write to before anything is charged."""
    check_here("output", output)
    if not isinstance(output, str | os.PathLike) or Path(output).suffix != suffix:
        raise InputError("output", f"must be a file that ends in {suffix}", output)
    path = Path(output)
    if path.is_dir() or (path.is_symlink() and not path.exists()):
        raise InputError(
            "output", f"must be a file, and {str(path)!r} is a folder or leads nowhere"
        )
    if path.exists() and not replaced:
        raise InputError("output", f"must be new, and {str(path)!r} exists; or give `force=True`")
    return path
