"""What an auditor needs of a ledger, without its key: a file that its owner signs.

It holds the public entries, the budgets, and the digests of all that was released. The Ed25519 key
follows from the ledger's own: every export of a ledger has the same public key, whose fingerprint
is compared once, over a channel that both sides trust.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..errors import LedgerError, missing_extra
from ..files import check_file, check_written, written
from . import Finding, Ledger
from .chain import canonical

_FORMAT = 2
_MARKS = ("public_key", "signature")


@dataclass(frozen=True)
class SignedExport:
    """An export whose signature is right: by whose key, and what it says."""

    facts: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """The key that signed it, in a form that can be read out."""
        return _fingerprint(bytes.fromhex(self.facts["public_key"]))

    def check(self, *digests: str) -> list[Finding]:
        """Return which runs released something with one of these digests; as of a ledger."""
        return [
            Finding(run["run"], run["released"][digest], run["status"])
            for run in self.facts["releases"]
            for digest in digests
            if digest in run["released"]
        ]


def public_facts(ledger: Ledger, *, operators: bool = False) -> dict[str, Any]:
    """Return what may be published of a ledger that verifies; with ``operators``, who ran it where.

    Raises
    ------
    LedgerError
        If the ledger does not verify.
    """
    verified = ledger.verify()
    if not verified.ok:
        raise LedgerError("; ".join(verified.problems))
    state, facts = ledger.state, written(_FORMAT)
    facts |= {"entries": ledger.published(), "budgets": ledger.standing()}
    facts |= {"restored": state.restored, "verified": verified.ok, "head": verified.head}
    if operators:
        facts["operators"] = {str(run.number): dict(run.operator) for run in state.runs.values()}
    return facts


def sign(ledger: Ledger, *, operators: bool = False) -> SignedExport:
    """Return a ledger's public facts and the digests of its releases, signed."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError as error:
        raise missing_extra("capc", "signing") from error
    key = Ed25519PrivateKey.from_private_bytes(ledger.secret("signature"))
    releases = [
        {"run": run.number, "status": run.status, "released": digests}
        for run in ledger.state.runs.values()
        if (digests := {digest: what for digest, what in run.released.items() if digest})
    ]
    facts = {
        **public_facts(ledger, operators=operators),
        "releases": releases,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "public_key": key.public_key().public_bytes_raw().hex(),
    }
    return SignedExport({**facts, "signature": key.sign(canonical(facts).encode()).hex()})


def read_signed(path: Path) -> SignedExport | None:
    """Return the export in a file; None if the file is another one, such as a ledger.

    Raises
    ------
    LedgerError
        If it was edited since it was signed.
    """
    with check_file(path, "ledger").open("rb") as stream:
        if stream.read(1) != b"{":
            return None
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise missing_extra("capc", "checking a signature") from error
    try:
        facts = json.loads(path.read_bytes())
        key, signature = (bytes.fromhex(facts[name]) for name in _MARKS)
        signed = {name: value for name, value in facts.items() if name != "signature"}
        Ed25519PublicKey.from_public_bytes(key).verify(signature, canonical(signed).encode())
    except InvalidSignature:
        raise LedgerError(f"{path.name!r} was edited: its signature does not match") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise LedgerError(f"{path.name!r} is not a signed export of a ledger") from None
    check_written(f"the export {path.name!r}", facts, _FORMAT, LedgerError)
    return SignedExport(facts)


def _fingerprint(key: bytes) -> str:
    digits = sha256(key).hexdigest()[:20]
    return "-".join(digits[place : place + 4] for place in range(0, 20, 4))
