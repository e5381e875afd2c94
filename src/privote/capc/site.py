"""A site: its two small TOML files, the programs made of them, what they log, how they stop.

``coalition.toml`` is the same everywhere (:class:`privote.capc.terms.Terms`); ``site.toml``
says who this site is, where its files are and where the others listen. Both are read strictly: an
unknown key, a missing one or a wrong type is an error that names the file, the key and the rule.
Paths are relative to the file they stand in.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import stat
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from ..errors import InputError, PeerError, PrivoteError
from ..ledger import Ledger
from .answering import AnsweringParty
from .certs import Own, Trust, check_name
from .driver import Driver
from .engine import SecureEngine
from .guardian import PrivacyGuardian
from .journal import GuardianJournal, QuerierJournal
from .messages import ANSWERING, GUARDIAN, QUERYING, printable
from .models import SiteModel
from .querying import QueryingParty
from .roles import LabelledBatch, Role, batch_rows
from .statements import facts_of
from .streams import Log as Say
from .streams import Settings
from .terms import Terms

_MOST_BYTES = 1 << 20  # of a TOML file
_ADDRESS = r"^([A-Za-z0-9._-]{1,253}|\[[0-9a-fA-F:]{2,45}\]):[0-9]{1,5}\Z"
Address = Annotated[str, Meta(pattern=_ADDRESS)]
#: What each program is called, and what it needs beside what all need.
_PROGRAMS = {
    GUARDIAN: ("guardian", "listen", "ledger"),
    ANSWERING: ("answer", "listen", "model"),
    QUERYING: ("query", "state"),
}


class Site(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """What one site runs on: the keys of its ``site.toml``.

    Attributes
    ----------
    name
        Who this is, as the terms name it.
    coalition
        The file of the terms.
    certificate, key, trust
        Own certificate and key, and the folder of pinned certificates.
    listen
        ``HOST:PORT`` for those who call (guardian, answer).
    model
        What this site answers with (answer).
    ledger
        The ledger's file (guardian); the journal lies beside it.
    state
        A folder for what must outlast a run (query).
    addresses
        Where the others listen: name to ``HOST:PORT``.
    sessions
        Secure sessions computing at a time.
    """

    name: str
    coalition: Path
    certificate: Path
    key: Path
    trust: Path
    listen: Address | None = None
    model: Path | None = None
    ledger: Path | None = None
    state: Path | None = None
    addresses: dict[str, Address] = {}
    sessions: Annotated[int, Meta(ge=1, le=64)] = 2

    @classmethod
    def read(cls, path: str | Path, role: str) -> Site:
        """Read ``site.toml`` and the terms it names, for the program of a role."""
        file = Path(path)
        plain = read_toml(file)

        def absolute(_: Any, value: Any) -> Path:
            if not isinstance(value, str) or not value or "\0" in value:
                raise ValueError("must be a path")
            return file.parent / Path(value).expanduser()

        try:
            site = msgspec.convert(plain, cls, dec_hook=absolute)
            site._check(role)
        except (msgspec.ValidationError, InputError) as error:
            raise InputError(f"{file}: {error}") from None
        return site

    @cached_property
    def terms(self) -> Terms:
        """What all sites agreed on."""
        return read_terms(self.coalition)

    def _check(self, role: str) -> None:
        """Refuse a site that the coalition does not have in this role, or that lacks a key."""
        known, (program, *needs) = self.terms.sites, _PROGRAMS[role]
        if not self.terms.may_be(self.name, role):
            raise InputError(
                "name", f"must be registered as {role} to run `privote capc {program}`", self.name
            )
        for other in self.addresses:
            if other not in known or other == self.name:
                rule = f"must be addresses of other sites of the coalition ({', '.join(known)})"
                raise InputError("addresses", rule, other)
        missing = [key for key in needs if getattr(self, key) is None] + [
            f"addresses.{other}" for other in self.callees(role) if other not in self.addresses
        ]
        if missing:
            raise InputError(missing[0], f"must be given for `privote capc {program}`", None)

    def callees(self, role: str) -> tuple[str, ...]:
        """Return whom a program calls."""
        if role == GUARDIAN:
            return ()
        voters = self.terms.voters(self.name) if role == QUERYING else ()
        return (self.terms.guardian, *voters)

    def callers(self, role: str) -> frozenset[str]:
        """Return who may call a program."""
        if role == QUERYING:
            return frozenset()
        answering = self.terms.parties if role == GUARDIAN else ()
        return frozenset({*self.terms.queriers, *answering} - {self.name})


def read_terms(file: Path) -> Terms:
    """Read ``coalition.toml``."""
    plain = read_toml(file)
    try:
        terms = Terms.from_dict(plain)
        for name in terms.sites:
            check_name(name)  # it must fit a certificate
    except PrivoteError as error:
        raise InputError(f"{file}: {error}") from None
    return terms


def read_toml(file: Path) -> dict[str, Any]:
    """Read a TOML file that is not too large to be one."""
    try:
        if not file.is_file():  # a pipe would wait for ever
            raise InputError(f"{file}: does not exist or is not a file")
        if file.stat().st_size > _MOST_BYTES:
            raise InputError(f"{file}: must be at most {_MOST_BYTES} bytes")
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise InputError(f"{file}: is nested too deeply") from None
    except ValueError as error:  # syntax, encoding, and numbers beyond all digits
        raise InputError(f"{file}: is not TOML: {error}") from None


LISTENING = "listening on"  # what a program's log says when it can be called


class Log:
    """One line an event, on stderr.

    gRPC's own lines are left out: anybody can bring them about. ``GRPC_VERBOSITY=error`` shows
    them, and so why a caller was turned away.
    """

    def __init__(self, *, json: bool = False) -> None:
        self._json, self._lock = json, threading.Lock()

    def __call__(self, line: str) -> None:
        """Write one line."""
        moment, said = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"), printable(line)
        text = dumps({"time": moment, "event": said}) if self._json else f"{moment} {said}"
        with self._lock, contextlib.suppress(OSError):  # nobody reads it any more
            print(text, file=sys.stderr, flush=True)


def guardian(site: Site, log: Say) -> Driver:
    """Return the guardian's program; its journal lies beside the ledger, one for each promise."""
    assert site.ledger is not None
    ledger = Ledger.open(site.ledger)
    # Who goes back to earlier terms must find what was counted under them.
    path = site.ledger.with_name(f"{site.ledger.name}.{site.terms.promise()[:12]}.journal")
    journal = GuardianJournal(path, site.terms.promise(), site.name)
    role = PrivacyGuardian(site.terms, ledger, journal, SecureEngine.name)
    return _driver(site, role, log)


def answering(site: Site, log: Say) -> Driver:
    """Return an answering party's program."""
    assert site.model is not None
    model = SiteModel.load(site.model)
    role = AnsweringParty(site.terms, site.name, model, SecureEngine.name)
    return _driver(site, role, log)


def querying(site: Site, X: Any, log: Say) -> Driver:
    """Return a querying party's program for one batch of rows (queries, features)."""
    assert site.state is not None
    terms = site.terms
    rows = batch_rows(X, terms)  # before anything is made
    journal = QuerierJournal(site.state / "answers.db", terms.promise(), site.name)
    role = QueryingParty(terms, site.name, rows, journal, SecureEngine.name, abreast=site.sessions)
    return _driver(site, role, log)


def _driver(site: Site, role: Role, log: Say) -> Driver:
    kind = role.role
    settings = Settings(
        own=Own(site.name, site.certificate, site.key),
        trust=Trust(site.trust),
        addresses={other: site.addresses[other] for other in site.callees(kind)},
        listen=None if kind == QUERYING else site.listen,
        callers=site.callers(kind),
        most_message=site.terms.most_bytes,
        sessions=site.sessions,
    )
    return Driver(role, engine=SecureEngine(), settings=settings, log=log)


def serve(make: Callable[[Site, Say], Driver], site: Site, *, json: bool = False) -> None:
    """Run a program that serves until a signal stops it; what was charged stays charged."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # a connection is an open file
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    log = Log(json=json)
    begin(site, log)
    driver = make(site, log)
    _stop_on_signals(driver)
    log(f"{site.name} {LISTENING} {site.listen}")
    driver.run()
    log(f"{site.name} has stopped")


def ask(site: Site, X: Any, log: Say) -> tuple[dict[str, Any], LabelledBatch]:
    """Have rows (queries, features) labelled; returns what may be said of it, and the answers."""
    began = time.monotonic()
    begin(site, log)
    left_out: list[str] = []

    def tell(text: str) -> None:
        # Of a site that cannot be reached the line before says why.
        unreached = text.endswith("it cannot be reached")
        if text.startswith("lost ") or (" is left out: " in text and not unreached):
            left_out.append(text)
        log(text)

    driver = querying(site, X, tell)
    _warn_of_clipping(X, site.terms.bound, log)
    _stop_on_signals(driver)
    try:
        answers = driver.run()
    except PeerError as error:
        raise PeerError(_explained(str(error), site, driver.reasons, left_out)) from None
    if answers is None:
        raise PeerError("stopped before the batch was answered; run it again to resume it")
    facts = facts_of(site.terms, site.name, answers)
    facts["seconds"] = round(time.monotonic() - began, 2)
    facts["megabytes"] = round(driver.sessions.bytes / 1e6, 3)
    return facts, answers


def _explained(said: str, site: Site, reasons: Mapping[str, str], left_out: list[str]) -> str:
    """Return why a query failed, with whom, and where that site was looked for."""
    guardian = site.terms.guardian
    if not said.startswith(f"{guardian} "):
        # Streams that ended because the query had failed are no reason for it.
        return f"{said} ({'; '.join(left_out)})" if left_out else said
    where = f"addresses.{guardian} is {site.addresses[guardian]}"
    return f"{said} ({'; '.join(filter(None, (reasons.get(guardian), where)))})"


def begin(site: Site, log: Say) -> None:
    """Log what must be known first: which files others can read, or change."""
    for key, path, others in (
        ("model", site.model, stat.S_IRGRP | stat.S_IROTH),
        ("state", site.state, stat.S_IRGRP | stat.S_IROTH),
        ("trust", site.trust, stat.S_IWGRP | stat.S_IWOTH),
    ):
        if path is None or not path.exists() or not path.stat().st_mode & others:
            continue
        if path.absolute().parent.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH):
            what = "changed" if key == "trust" else "read"
            log(f"WARNING: {key} {str(path)!r} can be {what} by others: chmod go-rwx {path}")


def _warn_of_clipping(X: Any, bound: float, log: Say) -> None:
    """Say how many rows lie outside what the models were promised: they are not what was asked."""
    outside = int((np.asarray((abs(X) > bound).sum(axis=1)).ravel() > 0).sum())
    if outside:
        log(
            f"warning: {outside} of {X.shape[0]} rows have values beyond bound={bound:g} of the "
            "terms and are clipped to it; are they on the same scale as the models' rows?"
        )


def _stop_on_signals(driver: Driver) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: driver.stop())
