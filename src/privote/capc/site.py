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
import resource
import signal
import stat
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
from . import messages as m
from .answerer import AnsweringParty
from .certs import Own, Trust, check_name, read_one
from .engine import SecureEngine
from .guardian import PrivacyGuardian
from .journal import GuardianJournal, QuerierJournal
from .logs import WARNING, Lines, log
from .messages import ANSWERING, GUARDIAN, QUERYING
from .models import SiteModel
from .network import Network
from .parties import LabelledBatch, Party, batch_rows
from .querier import QueryingParty
from .statements import facts_of
from .terms import Terms

_MOST_BYTES = 1 << 20  # of a TOML file
_ADDRESS = r"^([A-Za-z0-9._-]{1,253}|\[[0-9a-fA-F:]{2,45}\]):[0-9]{1,5}\Z"
Address = Annotated[str, Meta(pattern=_ADDRESS)]
ROLES = {"guardian": GUARDIAN, "answer": ANSWERING, "query": QUERYING}  # by the program
_NEEDS = {GUARDIAN: ("listen", "ledger"), ANSWERING: ("listen", "model"), QUERYING: ("state",)}


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
    listen: Address | None = None
    model: Path | None = None
    ledger: Path | None = None
    state: Path | None = None
    addresses: dict[str, Address] = {}
    max_concurrent: Annotated[int, Meta(ge=1, le=64)] = 2

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

    @property
    def journal(self) -> Path:
        """The guardian's journal lies beside the ledger, one for each promise."""
        assert self.ledger is not None
        # Who goes back to earlier terms must find what was counted under them.
        return self.ledger.with_name(f"{self.ledger.name}.{self.terms.promise()[:12]}.journal")

    @cached_property
    def terms(self) -> Terms:
        """What all sites agreed on."""
        return read_terms(self.coalition)

    def _check(self, role: str) -> None:
        """Refuse a site that the coalition does not have in this role, or that lacks a key."""
        known, program = self.terms.sites, {of: name for name, of in ROLES.items()}[role]
        if not self.terms.may_be(self.name, role):
            raise InputError(
                "name", f"must be registered as {role} to run `privote capc {program}`", self.name
            )
        for other in self.addresses:
            if other not in known or other == self.name:
                rule = f"must be addresses of other sites of the coalition ({', '.join(known)})"
                raise InputError("addresses", rule, other)
        missing = [key for key in _NEEDS[role] if getattr(self, key) is None] + [
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
    try:
        terms = Terms.from_dict(read_toml(file))
        for name in terms.sites:
            check_name(name)  # it must fit a certificate
    except PrivoteError as error:
        raise InputError(f"{file}: {str(error).removeprefix(f'{file}: ')}") from None
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
    except InputError:
        raise
    except (RecursionError, ValueError) as error:  # syntax, encoding, numbers beyond all digits
        why = (
            "is nested too deeply" if isinstance(error, RecursionError) else f"is not TOML: {error}"
        )
        raise InputError(f"{file}: {why}") from None


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
    own = [str(name) for name in file["feature_names"]] if "feature_names" in file else None
    if own is None or names is None:
        return X
    if len({*own}) < len(own) or len(own) != X.shape[1]:
        raise InputError("rows", "must have one name for each column, all different", len(own))
    missing = [name for name in names if name not in own]
    if missing:
        raise InputError("rows", "must have every feature of the terms; one is missing", missing[0])
    return X[:, [own.index(name) for name in names]]


# -- programs ------------------------------------------------------------------------------------


def network_of(site: Site, role: str) -> Network:
    """Return how a program of a site reaches the others."""
    return Network(
        own=Own(site.name, site.certificate, site.key),
        trust=Trust(site.trust),
        addresses={other: site.addresses[other] for other in site.callees(role)},
        callers=site.callers(role),
        most_message=site.terms.most_bytes,
        most_calls=2 * site.max_concurrent + 8,
    )


def _party(site: Site, role: str) -> Party:
    network, engine = network_of(site, role), SecureEngine()
    kind: type[Party]
    more: dict[str, Any]
    if role == GUARDIAN:
        assert site.ledger is not None
        journal = GuardianJournal(site.journal, site.terms, site.name)
        kind, more = PrivacyGuardian, {"ledger": Ledger.open(site.ledger), "journal": journal}
    elif role == ANSWERING:
        assert site.model is not None
        kind, more = AnsweringParty, {"model": SiteModel.load(site.model)}
    else:
        assert site.state is not None
        journal_ = QuerierJournal(site.state, site.terms, site.name)
        kind, more = QueryingParty, {"journal": journal_}
    return kind(site.terms, site.name, network, engine, max_concurrent=site.max_concurrent, **more)


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
    warn_of_modes(site)

    async def run() -> None:
        party = _party(site, role)
        assert isinstance(party.transport, Network)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with party.transport.serving(str(site.listen), party.handle):
            log("listening", site=site.name, address=site.listen, role=role)
            await stop.wait()
            await party.stop()
        log("stopped", site=site.name)

    asyncio.run(run())


def ask(site: Site, X: Any) -> tuple[dict[str, Any], LabelledBatch]:
    """Have rows (queries, features) labelled; returns what may be said of it, and the answers."""
    began, rows = time.monotonic(), batch_rows(X, site.terms)  # before anything is made
    warn_of_modes(site)
    _warn_of_clipping(X, site.terms.bound)

    async def run() -> tuple[LabelledBatch, int]:
        party = _party(site, QUERYING)
        assert isinstance(party, QueryingParty)
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            return await party.ask(rows), party.bytes
        finally:
            party.close()

    answers, moved = asyncio.run(run())
    facts = facts_of(site.terms, site.name, answers)
    facts["seconds"] = round(time.monotonic() - began, 2)
    facts["megabytes"] = round(moved / 1e6, 3)
    return facts, answers


def check(site: Site, role: str) -> list[dict[str, str]]:
    """Try all that a program needs, and greet every peer; nothing is charged.

    Returns a row for each thing looked at: what, "ok" or "failed", and why.
    """
    network = network_of(site, role)
    hello = m.Hello(site.terms.digest(), SecureEngine.name)
    looks: dict[str, Callable[[], Any]] = {
        "terms": lambda: f"digest {hello.terms[:12]}",
        "own certificate": lambda: (network.own.read(), read_one(site.certificate).short)[1],
        "secure engine": lambda: SecureEngine().name,
    }
    if role == ANSWERING:
        looks["model"] = lambda: ", ".join(SiteModel.load(str(site.model)).labels)
    for peer in sorted(site.callers(role) | {*site.callees(role)}):
        looks[f"certificate of {peer}"] = lambda p=peer: network.trust.of(p)[0].short  # type: ignore[misc]
    for peer, address in network.addresses.items():
        looks[f"{peer} at {address}"] = lambda p=peer: (
            asyncio.run(network.call(p, hello, 10.0)).kind
        )  # type: ignore[misc]
    rows = []
    for what, look in looks.items():
        try:
            result, why = "ok", look()
        except PrivoteError as error:
            result, why = "failed", m.printable(str(error))
        rows.append({"check": what, "result": result, "why": why})
    return rows


def warn_of_modes(site: Site) -> None:
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
            log(f"others can have {key} {what}", WARNING, path=str(path), advice="chmod go-rwx")


def _warn_of_clipping(X: Any, bound: float) -> None:
    """Say how many rows lie outside what the models were promised: they are not what was asked."""
    outside = int((np.asarray((abs(X) > bound).sum(axis=1)).ravel() > 0).sum())
    if outside:
        why = "are they on the same scale as the models' rows?"
        log("rows are clipped", WARNING, rows=outside, of=X.shape[0], bound=bound, why=why)
