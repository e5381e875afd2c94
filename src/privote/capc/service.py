"""A site's programs: made of its files, what they log, how they stop, a batch that is asked."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from json import dumps
from typing import Any

import numpy as np
import numpy.typing as npt

from ..entropy import Entropy
from ..errors import PeerError
from ..ledger import Ledger
from .journal import GuardianJournal, QuerierJournal
from .messages import ANSWERING, GUARDIAN, QUERYING, printable
from .models import SiteModel
from .roles.answering import AnsweringParty
from .roles.base import Role
from .roles.batches import LabelledBatch, batch_rows
from .roles.guardian import PrivacyGuardian
from .roles.querying import QueryingParty
from .secure.base import engine
from .site import Site
from .statements import facts_of
from .transport.driver import Driver
from .transport.server import Settings
from .transport.streams import Log as Say
from .transport.trust import Own, Trust

LISTENING = "listening on"  # what a program's log says when it can be called
_REFUSED = re.compile(r"Handshake failed .*?: ?([A-Z_]+): ?([^:]*)$")
_MINUTE, _REASONS = 60.0, 100  # seconds; kinds of refusals that are remembered
_NOISE = re.compile(r"^[IWEF]\d{4} [\d:.]+ +\d+ \S+\.cc:\d+\] ")


class Log:
    """A log on stderr; as a context it also tells gRPC's own lines in our words.

    gRPC's library turns a caller with an unknown certificate away before any of our code sees it,
    and says so on the process's stderr alone. That is where those lines are taken from.
    """

    def __init__(self, *, json: bool = False) -> None:
        self._json, self._lock = json, threading.Lock()
        self._stderr = os.dup(2)
        self._reader: threading.Thread | None = None
        self._turned_away: dict[str, tuple[float, int]] = {}  # when last told, how many since

    def __call__(self, line: str) -> None:
        """Write one line."""
        moment, said = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"), printable(line)
        text = dumps({"time": moment, "event": said}) if self._json else f"{moment} {said}"
        data = f"{text}\n".encode()
        with self._lock, contextlib.suppress(OSError):  # nobody reads it any more
            os.write(self._stderr, data)

    def __enter__(self) -> Log:
        inward, outward = os.pipe()
        sys.stderr.flush()
        os.dup2(outward, 2)
        os.close(outward)
        self._reader = threading.Thread(target=self._read, args=(inward,), daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        sys.stderr.flush()
        os.dup2(self._stderr, 2)  # closes the pipe's end, and so ends its reader
        if self._reader is not None:
            self._reader.join(1.0)

    def _read(self, inward: int) -> None:
        with os.fdopen(inward, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self._tell(line.rstrip())

    def _tell(self, line: str) -> None:
        refused = _REFUSED.search(line)
        if refused:
            why = _MEANING.get(refused[1], refused[1].lower().replace("_", " "))
            self._refused(f"refused a connection: {why} ({refused[2].strip() or refused[1]})")
        elif line and not _NOISE.match(line):
            with self._lock, contextlib.suppress(OSError):
                os.write(self._stderr, (line + "\n").encode())

    def _refused(self, line: str) -> None:
        """Log a refusal once a minute, with how many there were: anybody can bring one about."""
        now = time.monotonic()
        last, more = self._turned_away.get(line, (-_MINUTE, 0))
        if now - last < _MINUTE:
            self._turned_away[line] = last, more + 1
            return
        if len(self._turned_away) >= _REASONS:
            self._turned_away.clear()
        self._turned_away[line] = now, 0
        self(f"{line}; so were {more} more since" if more else line)


_MEANING = {
    "CERTIFICATE_VERIFY_FAILED": "the caller's certificate is not pinned here, or has expired",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the caller showed no certificate",
    "WRONG_VERSION_NUMBER": "the caller does not speak TLS",
    "HTTP_REQUEST": "the caller does not speak TLS",
}


def guardian(site: Site, log: Say) -> Driver:
    """Return the guardian's program; its journal lies beside the ledger, one for each promise."""
    site.check_for(GUARDIAN)
    assert site.ledger is not None
    ledger = Ledger.open(site.ledger)
    # Who goes back to earlier terms must find what was counted under them.
    path = site.ledger.with_name(f"{site.ledger.name}.{site.terms.promise()[:12]}.journal")
    journal = GuardianJournal(path, site.terms.promise(), site.name)
    role = PrivacyGuardian(site.terms, ledger, journal, site.engine, Entropy(site.seed))
    return _driver(site, role, log)


def answering(site: Site, log: Say) -> Driver:
    """Return an answering party's program."""
    site.check_for(ANSWERING)
    assert site.model is not None
    model = SiteModel.load(site.model)
    role = AnsweringParty(site.terms, site.name, model, site.engine, Entropy(site.seed))
    return _driver(site, role, log)


def querying(site: Site, X: Any, log: Say, *, baseline: npt.ArrayLike | None = None) -> Driver:
    """Return a querying party's program for one batch of rows (queries, features)."""
    site.check_for(QUERYING)
    assert site.state is not None
    terms = site.terms
    rows = batch_rows(X, terms)  # before anything is made
    journal = QuerierJournal(site.state / "answers.db", terms.promise(), site.name)
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
    return Driver(role, engine=engine(site.engine), settings=settings, log=log)


def serve(make: Callable[[Site, Say], Driver], site: Site, *, json: bool = False) -> None:
    """Run a program that serves until a signal stops it; what was charged stays charged."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # a connection is an open file
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with Log(json=json) as log:
        begin(site, log)
        driver = make(site, log)
        _stop_on_signals(driver)
        log(f"{site.name} {LISTENING} {site.listen}, engine {site.engine}")
        driver.run()
        log(f"{site.name} has stopped")


def ask(
    site: Site, X: Any, *, baseline: npt.ArrayLike | None = None
) -> tuple[dict[str, Any], LabelledBatch]:
    """Have rows (queries, features) labelled; returns what may be said of it, and the answers."""
    began = time.monotonic()
    with Log() as log:
        begin(site, log)
        left_out: list[str] = []

        def tell(text: str) -> None:
            # Of a site that cannot be reached the line before says why.
            unreached = text.endswith("it cannot be reached")
            if text.startswith("lost ") or (" is left out: " in text and not unreached):
                left_out.append(text)
            log(text)

        driver = querying(site, X, tell, baseline=baseline)
        _warn_of_clipping(X, site.terms.bound, log)
        _stop_on_signals(driver)
        try:
            answers = driver.run()
        except PeerError as error:
            raise PeerError(_explained(str(error), site, driver.reasons, left_out)) from None
        if answers is None:
            raise PeerError("stopped before the batch was answered; run it again to resume it")
    facts = facts_of(site.terms, site.name, answers, stamp=site.stamp)
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
    """Log what must be known first: the stamp, and which files others can read, or change."""
    if site.stamp:
        log(site.stamp)
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
            "terms, and are clipped to it: are they scaled as the models' rows were?"
        )


def _stop_on_signals(driver: Driver) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: driver.stop())
