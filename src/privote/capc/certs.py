"""Certificates of a coalition: every site makes its own, the others pin exactly that one.

There is no certificate authority, and so nobody who could make a certificate in another site's
name. A certificate is self-signed and may sign nothing (CA:FALSE); who holds its key is known by
the fingerprint of the certificate that was pinned, never by a name written inside it. Keys are
P-256: the TLS library of gRPC does not accept Ed25519.

A *trust* folder has one file a site, ``NAME.pem``, with one or more pinned certificates: two while
a site changes over to another one. A program reads it when it starts.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ..errors import InputError, whole
from ..files import complete

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MOST_BYTES = 64 * 1024  # of a file with certificates
_MOST_DAYS = 3650
_EARLY = timedelta(minutes=5)  # clocks of sites differ a little


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """One certificate: whose, which, and from when to when.

    Attributes
    ----------
    name
        The site it names.
    fingerprint
        SHA-256 of the certificate, 64 hex digits: what two administrators compare by telephone.
    begins, ends
        When it is valid, UTC.
    pem
        The certificate itself.
    """

    name: str
    fingerprint: str
    begins: datetime
    ends: datetime
    pem: bytes

    def fault(self) -> str | None:
        """Return why it is not valid now, or None."""
        moment = datetime.now(UTC)
        if moment < self.begins:
            return f"is not valid before {_day(self.begins)}: check the clock"
        if moment > self.ends:
            return f"expired at {_day(self.ends)}: `privote capc certs make` makes another"
        return None

    @property
    def short(self) -> str:
        """The first 64 bits of the fingerprint, in groups that can be read out."""
        return " ".join(self.fingerprint[place : place + 4] for place in range(0, 16, 4))

    @property
    def days_left(self) -> float:
        """Days until it expires; negative if it has."""
        return (self.ends - datetime.now(UTC)).total_seconds() / 86400


def check_name(name: str) -> str:
    """Return a site's name if it can stand in a certificate and in a file's name."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(
            "a site's name must be 1 to 63 characters of a-z, 0-9 and '-', and must not start or "
            f"end with '-', got {name!r:.80}"
        )
    return name


def make(folder: Path, name: str, *, days: int = 365) -> Certificate:
    """Make a site's key ``NAME.key`` (0600, it never leaves the site) and certificate ``NAME.pem``.

    Refuses to replace a key or a certificate that is there.
    """
    key_file, certificate_file = folder / f"{check_name(name)}.key", folder / f"{name}.pem"
    for file in (key_file, certificate_file):
        if file.exists():
            raise InputError(f"{str(file)!r} exists: make the new one in another folder")
    whole("days", days, most=_MOST_DAYS)
    key, pem = _signed(name, days)
    try:
        key_file.parent.mkdir(parents=True, exist_ok=True)
        _write_new(key_file, key, 0o600)
        _write_new(certificate_file, pem, 0o644)
    except OSError as error:
        raise InputError(f"{str(key_file.parent)!r} cannot be written: {error.strerror}") from None
    return _parsed(pem, str(certificate_file))[0]


def _write_new(path: Path, data: bytes, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)


def _signed(name: str, days: int) -> tuple[bytes, bytes]:
    """Return a new private key and its self-signed certificate, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begins = datetime.now(UTC) - _EARLY
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=days) + _EARLY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(True, *[False] * 8), critical=True)  # it signs handshakes
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, certificate.public_bytes(serialization.Encoding.PEM)


def read_all(path: Path) -> list[Certificate]:
    """Return every certificate of a PEM file."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{str(path)!r} must be a PEM file of at most {_MOST_BYTES} bytes")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    return _parsed(data, str(path))


def read_one(path: Path) -> Certificate:
    """Return the certificate of a PEM file that holds exactly one."""
    found = read_all(path)
    if len(found) != 1:
        raise InputError(f"{str(path)!r} must contain one certificate, got {len(found)}")
    return found[0]


def fingerprint_of(pem: bytes) -> str:
    """Return the SHA-256 fingerprint of the first certificate in a PEM text."""
    return _parsed(pem, "the presented certificate")[0].fingerprint


def _parsed(data: bytes, where: str) -> list[Certificate]:
    if b"PRIVATE KEY" in data:
        raise InputError(f"{where} contains a private key: share only certificates")
    try:
        found = x509.load_pem_x509_certificates(data)
    except ValueError:
        raise InputError(f"{where} must be a PEM file of certificates") from None
    return [_described(each, where) for each in found]


def _described(each: x509.Certificate, where: str) -> Certificate:
    try:
        names = each.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value.get_values_for_type(x509.DNSName)
        constraints = each.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (x509.ExtensionNotFound, ValueError):
        raise InputError(
            f"{where} is not a site's certificate: `privote capc certs make` makes one"
        ) from None
    if constraints.ca:
        raise InputError(f"{where} must not be able to sign certificates (CA:TRUE)")
    if len(names) != 1 or not NAME.fullmatch(names[0]):
        raise InputError(f"{where} must name exactly one site, got {names!r:.80}")
    return Certificate(
        name=names[0],
        fingerprint=each.fingerprint(hashes.SHA256()).hex(),
        begins=each.not_valid_before_utc,
        ends=each.not_valid_after_utc,
        pem=each.public_bytes(serialization.Encoding.PEM),
    )


def _day(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")


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
    given = read_one(file)
    if name is not None and given.name != check_name(name):
        raise InputError(f"{str(file)!r} must be for {name!r}, but it names {given.name!r}")
    fault = given.fault()
    if fault is not None:
        raise InputError(f"the certificate of {given.name!r} {fault}")
    folder.mkdir(parents=True, exist_ok=True)
    pinned = folder / f"{given.name}.pem"
    held = read_all(pinned) if pinned.exists() else []
    kept = [each for each in held if each.fingerprint != given.fingerprint]
    with complete(pinned, force=True) as part:
        part.write_bytes(b"".join(each.pem for each in [*kept, given]))
    return given


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
        """Return the site whose pinned certificate has this fingerprint."""
        valid = (each for each in self.all() if each.fault() is None)
        return next((each.name for each in valid if each.fingerprint == fingerprint), None)

    def bundle(self) -> bytes:
        """Return every pinned certificate, for a server."""
        return b"".join(each.pem for each in self.all())

    def of(self, name: str) -> list[Certificate]:
        """Return the valid pinned certificates of one site; an error says why there is none."""
        pinned = [each for each in self.all() if each.name == name]
        if not pinned:
            raise InputError(
                f"no certificate of {name!r} is pinned in {str(self.folder)!r}: "
                "`privote capc certs pin` pins one"
            )
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
        found = read_one(self.certificate)
        if found.name != self.name:
            raise InputError(
                f"{str(self.certificate)!r} must be for this site, {self.name!r}, "
                f"but it names {found.name!r}"
            )
        fault = found.fault()
        if fault is not None:
            raise InputError(f"our own certificate {fault}")
        return self._read_key(found), found.pem

    def _read_key(self, certificate: Certificate) -> bytes:
        try:
            status, key = self.key.stat(), self.key.read_bytes()
        except OSError as error:
            raise InputError(f"{str(self.key)!r} cannot be read: {error.strerror}") from None
        if status.st_mode & 0o077:
            raise InputError(
                f"{str(self.key)!r} must be readable by its owner only (0600); its mode is "
                f"{status.st_mode & 0o777:04o}"
            )
        try:
            ours = serialization.load_pem_private_key(key, password=None).public_key()
        except (ValueError, TypeError):
            raise InputError(f"{str(self.key)!r} must be a PEM private key") from None
        if ours != x509.load_pem_x509_certificate(certificate.pem).public_key():
            raise InputError(f"{str(self.key)!r} is not the key of {str(self.certificate)!r}")
        return key
