"""A site: its two small TOML files, the programs made of them, how they run and stop.

``coalition.toml`` is the same everywhere (:class:`privote.capc.terms.Terms`); ``site.toml``
says who this site is, where its files are and where the others listen. Both are read strictly: an
unknown key, a missing one or a wrong type is an error that names the file, the key and the rule.
Paths are relative to the file they stand in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import time
import tomllib
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from ..datasets.tables import table
from ..errors import InputError, PrivoteError
from ..ledger import Ledger
from ..votes.arrays import ArrayFile
from .answerer import AnsweringParty
from .certs import Own, Trust, check_name, read_one
from .engine import SecureEngine
from .guardian import PrivacyGuardian
from .journal import GuardianJournal, QuerierJournal
from .labelled import LabelledBatch
from .logs import WARNING, Lines, log
from .messages import ANSWERING, GUARDIAN, QUERYING, Hello, printable
from .models import SiteModel
from .network import Network
from .parties import Party, batch_rows
from .querier import QueryingParty
from .terms import PROMISE, Terms, longest_message

_MOST_BYTES = 1 << 20  # of a TOML file
_ADDRESS = r"^([A-Za-z0-9._-]{1,253}|\[[0-9a-fA-F:]{2,45}\]):[0-9]{1,5}\Z"
Address = Annotated[str, Meta(pattern=_ADDRESS)]
#: The programs of `privote capc`, and which keys of ``site.toml`` each needs.
ROLES = {GUARDIAN: ("listen", "ledger"), ANSWERING: ("listen", "model"), QUERYING: ("state",)}


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
    max_concurrent
        Secure sessions computing at a time.
    """

    name: str
    coalition: Path
    certificate: Path
    key: Path
    trust: Path
    listen: Address = ""
    model: Path | None = None
    ledger: Path | None = None
    state: Path | None = None
    addresses: dict[str, Address] = {}
    max_concurrent: Annotated[int, Meta(ge=1, le=64)] = 2

    @classmethod
    def read(cls, path: str | Path, role: str) -> Site:
        """Read ``site.toml`` and the terms it names, for the program of a role."""
        file = Path(path)

        def absolute(_: Any, value: Any) -> Path:
            if not isinstance(value, str) or not value or "\0" in value:
                raise ValueError("must be a path")
            return file.parent / Path(value).expanduser()

        try:
            site = msgspec.convert(read_toml(file), cls, dec_hook=absolute)
            site._check(role)
        except (msgspec.ValidationError, InputError) as error:
            raise InputError(f"{file}: {str(error).removeprefix(f'{file}: ')}") from None
        return site

    @cached_property
    def terms(self) -> Terms:
        """What all sites agreed on."""
        return read_terms(self.coalition)

    def _check(self, role: str) -> None:
        """Refuse a site that the coalition does not have in this role, or that lacks a key."""
        terms = self.terms
        members = {
            GUARDIAN: (terms.guardian,),
            ANSWERING: terms.parties,
            QUERYING: terms.queriers,
        }
        if self.name not in members[role]:
            rule = f"must be a site that the terms let `privote capc {role}`"
            raise InputError("name", rule, self.name)
        strange = {*self.addresses} - ({*terms.sites} - {self.name})
        if strange:
            rule = f"must be of other sites of the coalition ({', '.join(terms.sites)})"
            raise InputError("addresses", rule, min(strange))
        missing = [key for key in ROLES[role] if not getattr(self, key)] + [
            f"addresses.{other}" for other in self.callees(role) if other not in self.addresses
        ]
        if missing:
            raise InputError(missing[0], f"must be given for `privote capc {role}`", None)

    def callees(self, role: str) -> tuple[str, ...]:
        """Return whom a program calls."""
        if role == GUARDIAN:
            return ()
        voters = self.terms.voters(self.name) if role == QUERYING else ()
        return (self.terms.guardian, *voters)

    def network(self, role: str) -> Network:
        """Return how a program of the site reaches the others, and who may call it."""
        parties = self.terms.parties if role == GUARDIAN else ()
        callers = () if role == QUERYING else (*self.terms.queriers, *parties)
        return Network(
            own=Own(self.name, self.certificate, self.key),
            trust=Trust(self.trust),
            addresses={other: self.addresses[other] for other in self.callees(role)},
            callers=frozenset(callers) - {self.name},
            most_message=longest_message(self.terms),
            most_calls=2 * self.max_concurrent + 8,
        )

    def party(self, role: str) -> Party:
        """Return the program of a role."""
        common = (self.terms, self.name, self.network(role), SecureEngine(), None)
        slots = self.max_concurrent
        if role == ANSWERING:
            return AnsweringParty(*common, slots, model=SiteModel.load(str(self.model)))
        if role == QUERYING:
            journal = QuerierJournal(self.state, self.terms, self.name)
            return QueryingParty(*common, slots, journal=journal)
        assert self.ledger is not None
        # One for each promise: who goes back to earlier terms must find what was counted then.
        beside = f"{self.ledger.name}.{self.terms.digest(PROMISE)[:12]}.journal"
        kept = GuardianJournal(self.ledger.with_name(beside), self.terms, self.name)
        return PrivacyGuardian(*common, slots, ledger=Ledger.open(self.ledger), journal=kept)


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
    if not os.path.isfile(file) or file.stat().st_size > _MOST_BYTES:  # a pipe would wait for ever
        raise InputError(f"{file}: must be a file of at most {_MOST_BYTES} bytes")
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, RecursionError, ValueError) as error:
        raise InputError(f"{file}: cannot be read as TOML: {error}") from None


def read_rows(path: str | Path, terms: Terms) -> Any:
    """Return rows to ask (queries, features), their columns in the order of the terms.

    A table's columns are matched by name, and so are an ``.npz`` file's if it has the array
    ``feature_names``; without names its columns must be those of the terms, in order.
    """
    names = None if isinstance(terms.features, int) else terms.features
    if Path(path).suffix != ".npz":
        if names is None:
            rule = f"must be .npz: the array X, as {terms.embedding} makes it"
            raise InputError("rows", rule, str(path))
        return table(path, features=names).X
    X, file = table(path).X, ArrayFile(path)
    if names is None or "feature_names" not in file:
        return X
    own = [str(name) for name in file["feature_names"]]
    if len({*own}) < len(own) or len(own) != X.shape[1]:
        raise InputError("rows", "must have one name for each column, all different", len(own))
    missing = [name for name in names if name not in own]
    if missing:
        raise InputError("rows", "must have every feature of the terms; one is missing", missing[0])
    return X[:, [own.index(name) for name in names]]


# -- programs ------------------------------------------------------------------------------------


@contextlib.contextmanager
def logging_to(stream: Any, *, json: bool) -> Iterator[None]:
    """Write what is logged to a stream while the block runs."""
    handler, logger = logging.StreamHandler(stream), logging.getLogger("privote.capc")
    handler.setFormatter(Lines(as_json=json))
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)


def serve(site: Site, role: str) -> None:
    """Run a program that serves until a signal stops it; what was charged stays charged."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # a connection is an open file
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    async def run() -> None:
        party = site.party(role)
        assert isinstance(party.transport, Network)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with party.transport.serving(site.listen, party.handle):
            log("listening", site=site.name, address=site.listen, role=role)
            await stop.wait()
            await party.stop()
        log("stopped", site=site.name)

    asyncio.run(run())


def ask(site: Site, X: Any) -> tuple[dict[str, Any], LabelledBatch]:
    """Have rows (queries, features) labelled; returns what may be said of it, and the answers."""
    began, rows = time.monotonic(), batch_rows(X, site.terms)  # before anything is made
    outside = int((np.asarray((abs(X) > site.terms.bound).sum(axis=1)).ravel() > 0).sum())
    if outside:
        why = "are they on the same scale as the models' rows?"
        log("rows are clipped", WARNING, rows=outside, of=len(rows), why=why)

    async def run() -> tuple[LabelledBatch, int]:
        party, task = site.party(QUERYING), asyncio.current_task()
        assert isinstance(party, QueryingParty)
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with contextlib.closing(party.journal):
            return await party.ask(rows), party.bytes

    answers, moved = asyncio.run(run())
    seconds, megabytes = round(time.monotonic() - began, 2), round(moved / 1e6, 3)
    return {**answers.facts(), "seconds": seconds, "megabytes": megabytes}, answers


def check(site: Site, role: str) -> list[dict[str, str]]:
    """Try all that a program needs, and greet every peer; nothing is charged.

    Returns a row for each thing looked at: what, "ok" or "failed", and why.
    """
    network, rows = site.network(role), []
    hello = Hello(site.terms.digest(), SecureEngine.name)

    def own() -> str:
        network.own.read()
        return read_one(site.certificate).short

    def look(what: str, work: Callable[[], str]) -> None:
        try:
            result, why = "ok", work()
        except PrivoteError as error:
            result, why = "failed", printable(str(error))
        rows.append({"check": what, "result": result, "why": why})

    look("terms", lambda: f"digest {hello.terms[:12]}")
    look("own certificate", own)
    look("secure engine", lambda: SecureEngine().name)
    if role == ANSWERING:
        look("model", lambda: ", ".join(SiteModel.load(str(site.model)).labels))
    for peer in sorted(network.callers | {*network.addresses}):
        look(f"certificate of {peer}", lambda peer=peer: network.trust.of(peer)[0].short)  # type: ignore[misc]
    for peer, address in network.addresses.items():
        greeting = network.call(peer, hello, 10.0)
        look(f"{peer} at {address}", lambda call=greeting: asyncio.run(call).kind)  # type: ignore[misc]
    return rows
