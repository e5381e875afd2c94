"""Who pays for what is learnt, and how it gets where it belongs before the run counts as delivered.

Every method checks, reserves, draws, commits and delivers (:mod:`privote.ledger`). What follows
from a committed outcome and public rows is free, and comes before the delivery: a process that dies
in between is resumed from what was committed, without another draw.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..datasets.images import Images
from ..ledger import Account, digest_of, digest_of_text

Write = Callable[[Any], Mapping[str, str]]


@dataclass(frozen=True, kw_only=True)
class Records:
    """What is learnt from.

    Attributes
    ----------
    X, y
        Private rows and labels.
    public
        Public rows of the same kind, if any.
    ids, groups
        (records,): names of the records, and of the persons they belong to.
    """

    X: Any
    y: Any
    public: Any = None
    ids: Any = None
    groups: Any = None


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """Who is charged for a training, how it runs, and where the fitted model goes.

    Attributes
    ----------
    account
        Whom the run is charged to.
    about
        Further public terms, which a resumed run repeats.
    output
        Where the model goes: what a resumed run is known by, besides its public terms.
    write
        Writes the fitted estimator that it is given, and returns the SHA-256 of its files, by name.
    resume
        Finish the run of an earlier call with the same arguments, at no further charge.
    electorate, size_public, seed, progress
        See :class:`privote.PATEClassifier`.
    """

    account: Account = field(default_factory=Account)
    about: Mapping[str, Any] = field(default_factory=dict)
    output: str | None = None
    write: Write = lambda _: {}
    resume: bool = False
    electorate: str | None = None
    size_public: bool = False
    seed: int | None = None
    progress: Callable[[str, int, int], None] | None = None

    def say(self, what: str, done: int, total: int) -> None:
        """Tell whoever wants to know how far a stage is."""
        if self.progress is not None:
            self.progress(what, done, total)


def about(public: Any, **terms: Any) -> dict[str, Any]:
    """Return further public terms of a run: what was drawn fits these public rows only."""
    if public is None:
        return {**terms, "public": None}
    if isinstance(public, Images):
        digest = digest_of_text(json.dumps([Path(path).name for path in public.paths]))
    elif sp.issparse(public):
        rows = public.tocsr()
        digest = digest_of(rows.data, rows.indices, rows.indptr)
    else:
        digest = digest_of(np.asarray(public))
    return {**terms, "public": digest}
