"""A site: its two small TOML files, the programs made of them, what they log, how they stop.

``coalition.toml`` is the same everywhere (:class:`privote.capc.terms.Terms`); ``site.toml``
says who this site is, where its files are and where the others listen. Both are read strictly: an
unknown key, a missing one or a wrong type is an error that names the file, the key, the rule and
the value. Paths are relative to the file they stand in.
"""

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
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..entropy import Entropy
from ..errors import InputError, PeerError, PrivoteError, whole
from ..ledger import Ledger
from .answering import AnsweringParty
from .certs import Own, Trust, check_name
from .driver import Driver
from .engine import engine
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

ENGINES = {"spu": "spu-cheetah", "clear": "clear"}
_MOST_BYTES = 1 << 20  # of a TOML file
_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9a-fA-F:]{2,45}\]):([0-9]{1,5})")
#: What each program needs beside what all need.
_NEEDS = {GUARDIAN: ("listen", "ledger"), ANSWERING: ("listen", "model"), QUERYING: ("state",)}
_PROGRAMS = {GUARDIAN: "guardian", ANSWERING: "answer", QUERYING: "query"}


@dataclass(frozen=True, kw_only=True)
class Site:
    """What one site runs on.

    Attributes
    ----------
    file
        Where it was read from.
    name, terms
        Who this is, in which coalition.
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
    engine
        "spu-cheetah", or "clear", which hides nothing and needs ``insecure``.
    insecure
        True only for trials: allows the engine "clear" and a seed; stamped on everything.
    seed
        Makes masks and noise repeatable, so that they protect nobody. For trials.
    sessions
        Secure sessions computing at a time.
    """

    file: Path
    name: str
    terms: Terms
    certificate: Path
    key: Path
    trust: Path
    listen: str | None = None
    model: Path | None = None
    ledger: Path | None = None
    state: Path | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)
    engine: str = "spu-cheetah"
    insecure: bool = False
    seed: int | None = None
    sessions: int = 2

    @classmethod
    def read(cls, path: str | Path) -> Site:
        """Read ``site.toml`` and the terms it names."""
        file = Path(path)
        plain = read_toml(file)
        try:
            taken = {key: _KEYS[key](key, plain[key]) for key in plain if key in _KEYS}
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
        _complete(file, plain)
        for key, value in taken.items():
            if isinstance(value, Path):
                taken[key] = file.parent / value
        terms = read_terms(taken.pop("coalition"))
        site = cls(file=file, terms=terms, **taken)
        site._check()
        return site

    def _check(self) -> None:
        known = self.terms.sites
        shown = ", ".join(known)
        if self.name not in known:
            raise self._wrong("name", f"must be a site of the coalition ({shown})", self.name)
        for other in self.addresses:
            if other not in known or other == self.name:
                raise self._wrong(
                    "addresses", f"must be of other sites of the coalition ({shown})", other
                )
        if self.engine == "clear" and not self.insecure:
            raise self._wrong("engine", "hides nothing: it needs insecure = true", "clear")
        if self.seed is not None and not self.insecure:
            raise self._wrong("seed", "undoes masks and noise: it needs insecure = true", self.seed)

    def _wrong(self, key: str, rule: str, value: Any) -> InputError:
        return InputError(f"{self.file}: {InputError(key, rule, value)}")

    def check_for(self, role: str) -> None:
        """Refuse to run a program that this site cannot be, or that lacks a key."""
        program = _PROGRAMS[role]
        if not self.terms.may_be(self.name, role):
            raise self._wrong(
                "name", f"must be registered as {role} to run `privote capc {program}`", self.name
            )
        for key in _NEEDS[role]:
            if getattr(self, key) is None:
                raise self._wrong(key, f"must be given for `privote capc {program}`", None)
        for other in self.callees(role):
            if other not in self.addresses:
                raise self._wrong(
                    f"addresses.{other}", f"must be given for `privote capc {program}`", None
                )

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

    @property
    def stamp(self) -> str:
        """What must stand on everything this site makes: empty if it is secure."""
        return stamp_of(self.engine, self.seed)


def stamp_of(engine: str, seed: int | None) -> str:
    """Return what must stand on everything made with an engine and a seed; empty if secure."""
    why = []
    if engine == "clear":
        why.append("INSECURE: the engine computes in clear and hides nothing")
    if seed is not None:
        why.append("SIMULATED: masks and noise come from a seed and protect nobody")
    return "; ".join(why)


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
            raise InputError(f"{file}: cannot be read: it is no file, or not there")
        if file.stat().st_size > _MOST_BYTES:
            raise InputError(f"{file}: must be at most {_MOST_BYTES} bytes")
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise InputError(f"{file}: is not TOML that anyone means: nested too deep") from None
    except ValueError as error:  # syntax, encoding, and numbers beyond all digits
        raise InputError(f"{file}: is not TOML: {error}") from None


def _complete(file: Path, plain: Mapping[str, Any]) -> None:
    for key in plain:
        if key not in _KEYS:
            raise InputError(f"{file}: {key} is not a key of a site; known: {', '.join(_KEYS)}")
    for key in _REQUIRED:
        if key not in plain:
            raise InputError(f"{file}: {key} is missing")


# -- what each key may hold: the key and its value -> the value to use ----------------------------


def _path(key: str, value: Any) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise InputError(key, "must be a path", value)
    return Path(value).expanduser()


def _address(key: str, value: Any) -> str:
    found = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if found is None or int(found[1]) > 65535:
        raise InputError(key, "must be HOST:PORT", value)
    return str(value)


def _addresses(key: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise InputError(key, "must be a table of names and HOST:PORT", value)
    for name, address in value.items():
        own = f"{key}.{check_name(name)}"
        if _address(own, address).endswith(":0"):
            raise InputError(own, "must be HOST:PORT, and another port than 0", address)
    return dict(value)


def _engine(key: str, value: Any) -> str:
    if not isinstance(value, str) or value not in ENGINES:
        raise InputError(key, f"must be one of {', '.join(ENGINES)}", value)
    return ENGINES[value]


def _flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(key, "must be true or false", value)
    return value


_KEYS: dict[str, Callable[[str, Any], Any]] = {
    "name": lambda _, value: check_name(value),
    **dict.fromkeys(("coalition", "certificate", "key", "trust"), _path),
    "listen": _address,
    **dict.fromkeys(("model", "ledger", "state"), _path),
    "addresses": _addresses,
    "engine": _engine,
    "insecure": _flag,
    "seed": lambda key, value: whole(key, value, 0, 2**63 - 1),
    "sessions": lambda key, value: whole(key, value, 1, 64),
}
_REQUIRED = ("name", "coalition", "certificate", "key", "trust")


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
