"""A site's two small TOML files: the coalition's public terms, and what only this site knows.

``coalition.toml`` is the same everywhere (:class:`privote.capc.terms.Terms`); ``site.toml``
says who this site is, where its files are and where the others listen. Both are read strictly: an
unknown key, a missing one or a wrong type is an error that names the file, the key, the rule and
the value. Paths are relative to the file they stand in.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError, PrivoteError, whole
from .messages import ANSWERING, GUARDIAN, QUERYING
from .terms import Terms
from .transport.certs import check_name

ENGINES = {"spu": "spu-cheetah", "clear": "clear"}
_MOST_BYTES = 1 << 20  # of a TOML file
_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9a-fA-F:]{2,45}\]):([0-9]{1,5})")
#: What each program needs beside what all need.
_NEEDS = {
    GUARDIAN: ("listen", "ledger"),
    ANSWERING: ("listen", "model"),
    QUERYING: ("state",),
}
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
