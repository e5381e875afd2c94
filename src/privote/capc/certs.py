"""Certificates of a coalition: every site makes its own, the others pin exactly that one.

There is no certificate authority, and so nobody who could make a certificate in another site's
name. A certificate is self-signed and may sign nothing (CA:FALSE); who holds its key is known by
the fingerprint of the certificate that was pinned, never by a name written inside it. Keys are
P-256: the TLS library of gRPC does not accept Ed25519.

A *trust* folder has one file a site, ``NAME.pem``, with one or more pinned certificates: two while
a site changes over to another one. Running programs notice when it changes.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ..errors import InputError, whole
from ..files import complete

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MOST_BYTES = 64 * 1024  # of a file with certificates
_MOST_DAYS = 3650
_EARLY = timedelta(minutes=5)  # clocks of sites differ a little


@dataclass(frozen=True)
class Certificate:
    """One certificate: whose, and the certificate itself."""

    name: str
    x509: x509.Certificate

    @property
    def pem(self) -> bytes:
        """The certificate as a file has it."""
        return bytes(self.x509.public_bytes(Encoding.PEM))

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, 64 hex digits."""
        return str(self.x509.fingerprint(hashes.SHA256()).hex())

    @property
    def short(self) -> str:
        """The first 64 bits of the fingerprint, in groups, to be compared by telephone."""
        return " ".join(self.fingerprint[place : place + 4] for place in range(0, 16, 4))

    @property
    def ends(self) -> datetime:
        """When it expires, UTC."""
        ends: datetime = self.x509.not_valid_after_utc
        return ends

    def fault(self) -> str | None:
        """Return why it is not valid now, or None."""
        moment, begins = datetime.now(UTC), self.x509.not_valid_before_utc
        if moment < begins:
            return f"is not valid before {begins:%Y-%m-%d %H:%M} UTC: check the clock"
        if moment > self.ends:
            made = "`privote capc certs make` makes another"
            return f"expired at {self.ends:%Y-%m-%d %H:%M} UTC: {made}"
        return None


def check_name(name: str) -> str:
    """Return a site's name if it can stand in a certificate and in a file's name."""
    if not NAME.fullmatch(name):
        rule = "must be 1 to 63 of a-z, 0-9 and '-', which must not be its first or last"
        raise InputError("name", f"of a site {rule}", name)
    return name


def make(folder: Path, name: str, *, days: int = 365) -> Certificate:
    """Make a site's key ``NAME.key`` (0600, it never leaves the site) and certificate ``NAME.pem``.

    Refuses to replace a key or a certificate that is there.
    """
    files = {folder / f"{check_name(name)}.key": 0o600, folder / f"{name}.pem": 0o644}
    for file in files:
        if file.exists():
            raise InputError(f"{str(file)!r} exists: make the new one in another folder")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begins = datetime.now(UTC) - _EARLY
    ends = begins + timedelta(days=whole("days", days, most=_MOST_DAYS)) + _EARLY
    number, both = x509.random_serial_number(), ExtendedKeyUsageOID
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), number, begins, ends)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(True, *[False] * 8), critical=True)  # it signs handshakes
        .add_extension(x509.ExtendedKeyUsage([both.SERVER_AUTH, both.CLIENT_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for (file, mode), data in zip(
            files.items(), (private, certificate.public_bytes(Encoding.PEM)), strict=True
        ):
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
                stream.write(data)
    except OSError as error:
        raise InputError(f"{str(folder)!r} cannot be written: {error.strerror}") from None
    return Certificate(name, certificate)


def read_all(path: Path) -> list[Certificate]:
    """Return every certificate of a PEM file."""
    try:
        data = path.read_bytes() if path.stat().st_size <= _MOST_BYTES else b""
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    if b"PRIVATE KEY" in data:
        raise InputError(f"{str(path)!r} contains a private key: share only certificates")
    try:
        return [Certificate(_site_of(each), each) for each in x509.load_pem_x509_certificates(data)]
    except (x509.ExtensionNotFound, ValueError):
        made = "as `privote capc certs make` makes it"
        raise InputError(f"{str(path)!r} must be a site's certificate, {made}") from None


def _site_of(certificate: x509.Certificate) -> str:
    """Return the one site that a certificate names, if it cannot sign others; else ValueError."""
    of = certificate.extensions.get_extension_for_class
    (name,) = of(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
    if of(x509.BasicConstraints).value.ca or not NAME.fullmatch(name):
        raise ValueError
    return str(name)


def read_one(path: Path) -> Certificate:
    """Return the certificate of a PEM file that holds exactly one."""
    certificates = read_all(path)
    if len(certificates) != 1:
        raise InputError(f"{str(path)!r} must contain one certificate, got {len(certificates)}")
    return certificates[0]


def pin(folder: Path, file: Path, *, name: str | None = None) -> Certificate:
    """Pin a site's certificate, beside older ones: whoever holds its key is that site.

    Parameters
    ----------
    folder
        The trust folder; made if it is not there.
    file
        The certificate that the site's administrator handed over.
    name
        The site it must be for; an error if the certificate names another.
    """
    new = read_one(file)
    if name is not None and new.name != name:
        raise InputError(f"{str(file)!r} must be for {name!r}, but it names {new.name!r}")
    if (fault := new.fault()) is not None:
        raise InputError(f"the certificate of {new.name!r} {fault}")
    folder.mkdir(parents=True, exist_ok=True)
    pinned = folder / f"{new.name}.pem"
    old = [each for each in (read_all(pinned) if pinned.exists() else []) if each != new]
    with complete(pinned, force=True) as part:
        part.write_bytes(b"".join(each.pem for each in [*old, new]))
    return new


class Trust:
    """The pinned certificates of a folder, read anew whenever it changed.

    Expired certificates stay listed, so that a refusal can say why; TLS turns them away.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: list[tuple[Path, int]] | None = None
        self._pinned: list[Certificate] = []
        self.all()

    def all(self) -> list[Certificate]:
        """Return every pinned certificate."""
        if not self.folder.is_dir():
            raise InputError("trust", "must be a folder with pinned certificates", str(self.folder))
        files = sorted(file for file in self.folder.glob("*.pem") if NAME.fullmatch(file.stem))
        seen = [(file, file.stat().st_mtime_ns) for file in files]
        if seen != self._seen:
            pinned = [(file, each) for file in files for each in read_all(file)]
            for file, each in pinned:
                if each.name != file.stem:
                    rule = f"must contain certificates of {file.stem!r}, got one of {each.name!r}"
                    raise InputError(f"{str(file)!r} {rule}")
            self._seen, self._pinned = seen, [each for _, each in pinned]
        return self._pinned

    def owner(self, fingerprint: str) -> str | None:
        """Return the site whose pinned, valid certificate has this fingerprint."""
        valid = (each for each in self.all() if each.fault() is None)
        return next((each.name for each in valid if each.fingerprint == fingerprint), None)

    def bundle(self) -> bytes:
        """Return every pinned certificate, for a server."""
        return b"".join(each.pem for each in self.all())

    def of(self, name: str) -> list[Certificate]:
        """Return the valid pinned certificates of one site; an error says why there is none."""
        pinned = [each for each in self.all() if each.name == name]
        if not pinned:
            rule = f"is not pinned in {str(self.folder)!r}: `privote capc certs pin` pins one"
            raise InputError(f"a certificate of {name!r} {rule}")
        valid = [each for each in pinned if each.fault() is None]
        if not valid:
            raise InputError(f"the pinned certificate of {name!r} {pinned[-1].fault()}")
        return valid


@dataclass(frozen=True)
class Own:
    """A site's own key and certificate, read from their files."""

    name: str
    certificate: Path
    key: Path

    def read(self) -> tuple[bytes, bytes]:
        """Return key and certificate; refuse a pair that nobody would accept."""
        own = read_one(self.certificate)
        if own.name != self.name:
            rule = f"must be for this site, {self.name!r}, but it names {own.name!r}"
            raise InputError(f"{str(self.certificate)!r} {rule}")
        if (fault := own.fault()) is not None:
            raise InputError(f"our own certificate {fault}")
        try:
            mode, key = self.key.stat().st_mode & 0o777, self.key.read_bytes()
            fits = load_pem_private_key(key, None).public_key() == own.x509.public_key()
        except OSError as error:
            raise InputError(f"{str(self.key)!r} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError):
            raise InputError(f"{str(self.key)!r} must be a PEM private key") from None
        if mode & 0o077:
            rule = f"must be readable by its owner only (0600); its mode is {mode:04o}"
            raise InputError(f"{str(self.key)!r} {rule}")
        if not fits:
            raise InputError(f"{str(self.key)!r} is not the key of {str(self.certificate)!r}")
        return key, own.pem
