"""Whom a site trusts: pinned certificates, read anew whenever the folder changes."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from privote.errors import InputError
from privote.files import complete

from .certs import (
    REVOKED,
    Certificate,
    check_name,
    pinned_files,
    read_all,
    read_one,
)


def pin(folder: Path, file: Path, *, name: str | None = None, alone: bool = False) -> Certificate:
    """Pin a site's certificate: whoever holds its key is that site from here on.

    Parameters
    ----------
    folder
        The trust folder; made if it is not there.
    file
        The certificate that the site's administrator handed over.
    name
        The site it must be for; an error if the certificate names another.
    alone
        Drop the site's older pins. Otherwise both are accepted, as a change-over needs.
    """
    given = read_one(file)
    if name is not None and given.name != check_name(name):
        raise InputError(f"{str(file)!r} must be for {name!r}, but it names {given.name!r}")
    fault = given.fault()
    if fault is not None:
        raise InputError(f"the certificate of {given.name!r} {fault}")
    folder.mkdir(parents=True, exist_ok=True)
    if given.fingerprint in revoked(folder):
        raise InputError(
            f"this certificate of {given.name!r} was revoked and stays so: {given.fingerprint}"
        )
    pinned = folder / f"{given.name}.pem"
    held = [] if alone or not pinned.exists() else read_all(pinned)
    kept = [each for each in held if each.fingerprint != given.fingerprint]
    _replace(pinned, b"".join(each.pem for each in [*kept, given]))
    return given


def revoke(folder: Path, name: str, *, fingerprint: str | None = None) -> list[Certificate]:
    """Remove a site's pins (or one of them) and note their fingerprints as revoked for good."""
    pinned = folder / f"{check_name(name)}.pem"
    if not pinned.exists():
        raise InputError(f"no certificate of {name!r} is pinned in {str(folder)!r}")
    held = read_all(pinned)
    gone = [each for each in held if fingerprint in (None, each.fingerprint)]
    if not gone:
        raise InputError(f"{name!r} has no pinned certificate with fingerprint {fingerprint!r}")
    # Noted first: a crash in between leaves a pin that is revoked, and `Trust` leaves it out.
    noted = revoked(folder) | {each.fingerprint for each in gone}
    _replace(folder / REVOKED, "".join(f"{each}\n" for each in sorted(noted)).encode())
    kept = [each for each in held if each not in gone]
    _replace(pinned, b"".join(each.pem for each in kept)) if kept else pinned.unlink()
    return gone


def revoked(folder: Path) -> frozenset[str]:
    """Return the fingerprints that were revoked."""
    try:
        return frozenset((folder / REVOKED).read_text(encoding="ascii").split())
    except FileNotFoundError:
        return frozenset()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{str(folder / REVOKED)!r} cannot be read: {error}") from None


def _replace(path: Path, data: bytes) -> None:
    with complete(path, force=True) as part:
        part.write_bytes(data)


class Trust:
    """The pinned certificates of a folder, as they are at the moment of asking.

    Expired certificates stay listed, so that a refusal can say why; TLS turns them away.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._seen: object = None
        self._by_fingerprint: dict[str, Certificate] = {}
        self._refresh()

    def _refresh(self) -> dict[str, Certificate]:
        with self._lock:
            files = [*pinned_files(self.folder), self.folder / REVOKED]
            seen = [_state(file) for file in files]
            if seen != self._seen:
                gone = revoked(self.folder)
                found: dict[str, Certificate] = {}
                for file in files[:-1]:
                    for each in read_all(file):
                        if each.name != file.stem:
                            raise InputError(
                                f"{str(file)!r} must hold certificates of {file.stem!r}, got one "
                                f"of {each.name!r}"
                            )
                        if each.fingerprint not in gone:
                            found[each.fingerprint] = each
                self._by_fingerprint, self._seen = found, seen
            return self._by_fingerprint

    def owner(self, fingerprint: str) -> str | None:
        """Return the site whose pinned certificate has this fingerprint."""
        found = self._refresh().get(fingerprint)
        return None if found is None or found.fault() else found.name

    def bundle(self) -> bytes:
        """Return every pinned certificate, for a server."""
        return b"".join(each.pem for each in self._refresh().values())

    def of(self, name: str) -> list[Certificate]:
        """Return the valid pinned certificates of one site; an error says why there is none."""
        held = [each for each in self._refresh().values() if each.name == name]
        valid = [each for each in held if each.fault() is None]
        if not held:
            raise InputError(
                f"no certificate of {name!r} is pinned in {str(self.folder)!r}: "
                "`privote capc certs pin` pins one"
            )
        if not valid:
            raise InputError(f"the pinned certificate of {name!r} {held[-1].fault()}")
        return valid

    def all(self) -> list[Certificate]:
        """Return every pinned certificate."""
        return list(self._refresh().values())


def _state(path: Path) -> tuple[str | int, ...] | None:
    """Return what differs as soon as a file is another one; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return str(path), found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode


@dataclass(frozen=True)
class Own:
    """A site's own key and certificate, read from their files."""

    name: str
    certificate: Path
    key: Path

    def state(self) -> object:
        """Return what differs as soon as one of the two files is another one."""
        return _state(self.certificate), _state(self.key)

    def read(self) -> tuple[bytes, bytes, Certificate]:
        """Return key, certificate and what it says; refuse a pair that nobody would accept."""
        found = read_one(self.certificate)
        if found.name != self.name:
            raise InputError(
                f"{str(self.certificate)!r} must be for this site, {self.name!r}, "
                f"but it names {found.name!r}"
            )
        fault = found.fault()
        if fault is not None:
            raise InputError(f"our own certificate {fault}")
        return self._read_key(found), found.pem, found

    def _read_key(self, certificate: Certificate) -> bytes:
        try:
            status, key = self.key.stat(), self.key.read_bytes()
        except OSError as error:
            raise InputError(f"{str(self.key)!r} cannot be read: {error.strerror}") from None
        if status.st_mode & 0o077:
            raise InputError(
                f"{str(self.key)!r} must be for its owner only (0600), "
                f"its mode is {status.st_mode & 0o777:04o}"
            )
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization

        try:
            ours = serialization.load_pem_private_key(key, password=None).public_key()
        except (ValueError, TypeError):
            raise InputError(f"{str(self.key)!r} must be a PEM private key") from None
        if ours != x509.load_pem_x509_certificate(certificate.pem).public_key():
            raise InputError(f"{str(self.key)!r} is not the key of {str(self.certificate)!r}")
        return key
