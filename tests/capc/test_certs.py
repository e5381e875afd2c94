"""Certificates: made at the site, pinned by the others beside older ones, known by fingerprint."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.refusals import refused

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from privote.capc.certs import Own, Trust, make, pin, read_one


def test_a_key_is_for_its_owner_only_and_never_replaced(tmp_path: Path) -> None:
    made = make(tmp_path, "north", days=30)
    assert stat.S_IMODE((tmp_path / "north.key").stat().st_mode) == 0o600
    assert (made.name, len(made.fingerprint)) == ("north", 64)
    assert made.ends - datetime.now(UTC) < timedelta(days=31)
    assert made == read_one(tmp_path / "north.pem")
    assert b"PRIVATE" not in (tmp_path / "north.pem").read_bytes()
    parsed = x509.load_pem_x509_certificate(made.pem).extensions
    assert parsed.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert parsed.get_extension_for_class(x509.KeyUsage).value.key_cert_sign is False
    with refused(None):
        make(tmp_path, "north")
    for days in (0, -1, 4000, True):
        with refused("days"):
            make(tmp_path, "south", days=days)


@pytest.mark.parametrize("name", ["", "North", "a b", "-x", "x-", "a/b", "..", "x" * 64])
def test_names_that_no_certificate_can_have(tmp_path: Path, name: str) -> None:
    with refused("name"):
        make(tmp_path, name)
    assert not list(tmp_path.iterdir())


def test_a_second_certificate_is_known_beside_the_first(tmp_path: Path) -> None:
    made, fresh, imposter = (make(tmp_path / folder, "north") for folder in "abc")
    pin(tmp_path / "trust", tmp_path / "a" / "north.pem", name="north")
    trust = Trust(tmp_path / "trust")
    assert trust.owner(made.fingerprint) == "north"
    assert trust.bundle() == made.pem
    pin(tmp_path / "trust", tmp_path / "b" / "north.pem")
    pin(tmp_path / "trust", tmp_path / "b" / "north.pem")  # again: nothing changes
    trust = Trust(tmp_path / "trust")
    assert trust.of("north") == [made, fresh]
    assert trust.owner(imposter.fingerprint) is None, "the same name, another key"
    (tmp_path / "trust" / "north.pem").unlink()
    trust = Trust(tmp_path / "trust")
    assert trust.owner(made.fingerprint) is trust.owner(fresh.fingerprint) is None
    with refused(None):
        trust.of("north")


def unusual(folder: Path, *, ca: bool = False, begins: int = -1) -> Path:
    """Write a key and a certificate of north that can sign others or begins on another day."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "north")])
    start = datetime.now(UTC) + timedelta(days=begins)
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, start, start + timedelta(2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("north")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    folder.mkdir()
    own = folder / "north.key"
    own.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    own.chmod(0o600)
    (folder / "north.pem").write_bytes(built.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    return folder / "north.pem"


def test_only_a_sites_valid_certificate_is_pinned(tmp_path: Path) -> None:
    make(tmp_path, "north")
    (tmp_path / "no.pem").write_text("nothing")
    unusual(tmp_path / "ca", ca=True)
    unusual(tmp_path / "old", begins=-3)
    unusual(tmp_path / "early", begins=3)
    (tmp_path / "two.pem").write_bytes(2 * (tmp_path / "north.pem").read_bytes())
    (tmp_path / "long.pem").write_bytes(bytes(1 << 17))
    bad = ("north.key", "no.pem", "absent.pem", "ca/north.pem", "two.pem", "long.pem")
    for file in (*bad, "old/north.pem", "early/north.pem"):
        with refused(None):
            pin(tmp_path / "trust", tmp_path / file)
    with refused(None):
        pin(tmp_path / "trust", tmp_path / "north.pem", name="south")
    assert not (tmp_path / "trust").exists()


def test_a_pin_that_expires_is_nobodys_any_more(tmp_path: Path) -> None:
    old = unusual(tmp_path / "old", begins=-3)
    with refused(None):
        Own("north", old, tmp_path / "old" / "north.key").read()
    (tmp_path / "trust").mkdir()
    (tmp_path / "trust" / "north.pem").write_bytes(old.read_bytes())
    trust = Trust(tmp_path / "trust")
    assert trust.owner(read_one(old).fingerprint) is None
    with refused(None) as caught:
        trust.of("north")
    assert "expired" in str(caught.value)


def test_own_pair_must_fit(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    made = make(a, "north")
    make(b, "north")
    assert Own("north", a / "north.pem", a / "north.key").read()[1] == made.pem
    (b / "text.key").write_text("no key")
    (b / "text.key").chmod(0o600)
    for name, key in (
        *(("north", b / f"{key}.key") for key in ("north", "text", "absent")),
        ("south", a / "north.key"),
    ):
        with refused(None):
            Own(name, a / "north.pem", key).read()
    (a / "north.key").chmod(0o644)
    with refused(None):
        Own("north", a / "north.pem", a / "north.key").read()


def test_a_file_with_another_sites_certificate_is_an_error(tmp_path: Path) -> None:
    made = make(tmp_path, "north")
    (tmp_path / "trust").mkdir()
    (tmp_path / "trust" / "south.pem").write_bytes(made.pem)
    with refused(None):
        Trust(tmp_path / "trust")
    with refused("trust"):
        Trust(tmp_path / "nowhere")
