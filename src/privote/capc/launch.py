"""From a site's files to a role that is being driven: what the three programs begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy.typing as npt

from ..entropy import Entropy
from ..ledger import Ledger
from .journal import GuardianJournal, QuerierJournal
from .messages import ANSWERING, GUARDIAN, QUERYING
from .models import SiteModel
from .roles.answering import AnsweringParty
from .roles.batches import batch_rows
from .roles.guardian import PrivacyGuardian
from .roles.querying import QueryingParty
from .secure.base import engine
from .site import Site
from .transport.driver import Driver
from .transport.streams import Log


def guardian(site: Site, log: Log) -> Driver:
    """Return the guardian's program; its journal lies beside the ledger, one for each promise."""
    site.check_for(GUARDIAN)
    assert site.ledger is not None
    ledger = Ledger.open(site.ledger)
    # Who goes back to earlier terms must find what was counted under them.
    path = site.ledger.with_name(f"{site.ledger.name}.{site.terms.promise()[:12]}.journal")
    journal = GuardianJournal(path, site.terms.promise(), site.name)
    role = PrivacyGuardian(site.terms, ledger, journal, site.engine, Entropy(site.seed))
    return _driver(site, role, log)


def answering(site: Site, log: Log) -> Driver:
    """Return an answering party's program."""
    site.check_for(ANSWERING)
    assert site.model is not None
    model = SiteModel.load(site.model)
    role = AnsweringParty(site.terms, site.name, model, site.engine, Entropy(site.seed))
    return _driver(site, role, log)


def querying(site: Site, X: Any, log: Log, *, baseline: npt.ArrayLike | None = None) -> Driver:
    """Return a querying party's program for one batch of rows (queries, features)."""
    site.check_for(QUERYING)
    assert site.state is not None
    terms = site.terms
    rows = batch_rows(X, terms)  # before anything is made
    journal = QuerierJournal(journal_of(site), terms.promise(), site.name)
    role = QueryingParty(
        terms,
        site.name,
        rows,
        journal,
        site.engine,
        Entropy(site.seed),
        baseline=baseline,
        abreast=site.sessions,
    )
    return _driver(site, role, log)


def journal_of(site: Site) -> Path:
    """Return where a querying party keeps its answers and its half of the counts."""
    assert site.state is not None
    return site.state / "answers.db"


def _driver(site: Site, role: Any, log: Log) -> Driver:
    return Driver(role, engine=engine(site.engine), settings=site.settings(role.role), log=log)
