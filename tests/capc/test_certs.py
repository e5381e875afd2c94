"""Certificates: made at the site, pinned by the others, renewed without a gap, revoked for good."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from unittest import mock

import pytest
from tests.refusals import refused

pytest.importorskip("cryptography")

from privote.capc.certs import (
    Certificate,
    Own,
    Trust,
    fingerprint_of,
    make,
    pin,
    read_all,
    read_one,
    renew,
    revoke,
    revoked,
    switch,
)
from privote.errors import InputError


def test_a_key_is_for_its_owner_only_and_never_replaced(tmp_path: Path) -> None:
    made = make(tmp_path, "north", days=30)
    assert stat.S_IMODE((tmp_path / "north.key").stat().st_mode) == 0o600
    assert made.name == "north"
    assert len(made.fingerprint) == 64
    assert 29 < made.days_left <= 30.01
    assert made == read_one(tmp_path / "north.pem")
    assert b"PRIVATE" not in (tmp_path / "north.pem").read_bytes()
    with refused(None):
        make(tmp_path, "north")


def test_a_certificate_can_sign_nothing(tmp_path: Path) -> None:
    from cryptography import x509

    made = x509.load_pem_x509_certificate(make(tmp_path, "north").pem)
    assert made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert made.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign is False


@pytest.mark.parametrize("name", ["", "North", "a b", "-x", "x-", "a/b", "..", "x" * 64, "revoked"])
def test_names_that_no_certificate_can_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="a site's name must be"):
        make(tmp_path, name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("days", [0, -1, 4000, True])
def test_days_are_bounded(tmp_path: Path, days: int) -> None:
    with refused("days"):
        make(tmp_path, "north", days=days)


def test_pinning_knows_by_fingerprint(tmp_path: Path) -> None:
    made = make(tmp_path / "a", "north")
    imposter = make(tmp_path / "b", "north")  # the same name, another key
    pin(tmp_path / "trust", tmp_path / "a" / "north.pem", name="north")
    trust = Trust(tmp_path / "trust")
    assert trust.owner(made.fingerprint) == "north"
    assert trust.owner(imposter.fingerprint) is None
    assert fingerprint_of(imposter.pem) == imposter.fingerprint
    assert trust.bundle() == made.pem


def test_pinning_checks_the_name_and_what_it_is(tmp_path: Path) -> None:
    make(tmp_path, "north")
    with pytest.raises(InputError, match="must be for 'south', but it names 'north'"):
        pin(tmp_path / "trust", tmp_path / "north.pem", name="south")
    with refused(None):
        pin(tmp_path / "trust", tmp_path / "north.key")
    (tmp_path / "no.pem").write_text("nothing")
    with refused(None):
        pin(tmp_path / "trust", tmp_path / "no.pem")
    with refused(None):
        pin(tmp_path / "trust", tmp_path / "absent.pem")
    assert not (tmp_path / "trust").exists()


def test_a_certificate_that_could_sign_is_refused(tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "north")])
    begins = datetime.now(UTC) - timedelta(days=1)
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, begins, begins + timedelta(9))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("north")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    pem = built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (tmp_path / "ca.pem").write_bytes(pem)
    with refused(None):
        pin(tmp_path / "trust", tmp_path / "ca.pem")


def make_when(later: timedelta, folder: Path, days: int) -> Certificate:
    """Make north's certificate as if the clock were so far ahead."""

    class Then(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + later

    with mock.patch("privote.capc.certs.datetime", Then):
        return make(folder, "north", days=days)


def test_expired_and_not_yet_valid_say_so(tmp_path: Path) -> None:
    make_when(timedelta(days=-3), tmp_path / "old", 1)
    make_when(timedelta(days=3), tmp_path / "early", 9)
    with pytest.raises(InputError, match=r"certificate of 'north' expired at 20.* UTC"):
        pin(tmp_path / "trust", tmp_path / "old" / "north.pem")
    with pytest.raises(InputError, match=r"'north' is not valid before 20.*: check the clock"):
        pin(tmp_path / "trust", tmp_path / "early" / "north.pem")
    own = Own("north", tmp_path / "old" / "north.pem", tmp_path / "old" / "north.key")
    with refused(None):
        own.read()


def test_a_pin_that_expires_is_no_longer_anybody(tmp_path: Path) -> None:
    made = make_when(timedelta(days=-3), tmp_path, 1)
    (tmp_path / "trust").mkdir()
    (tmp_path / "trust" / "north.pem").write_bytes(made.pem)
    trust = Trust(tmp_path / "trust")
    assert trust.owner(made.fingerprint) is None
    with pytest.raises(InputError, match="pinned certificate of 'north' expired"):
        trust.of("north")


def test_revoking_is_for_good(tmp_path: Path) -> None:
    made = make(tmp_path, "north")
    pin(tmp_path / "trust", tmp_path / "north.pem")
    trust = Trust(tmp_path / "trust")
    assert revoke(tmp_path / "trust", "north") == [made]
    assert trust.owner(made.fingerprint) is None
    assert revoked(tmp_path / "trust") == {made.fingerprint}
    with refused(None):
        pin(tmp_path / "trust", tmp_path / "north.pem")
    # Even a file copied in by hand does not bring it back.
    (tmp_path / "trust" / "north.pem").write_bytes(made.pem)
    assert trust.owner(made.fingerprint) is None
    with pytest.raises(InputError, match="no certificate of 'south' is pinned"):
        revoke(tmp_path / "trust", "south")


def test_renewing_without_a_gap(tmp_path: Path) -> None:
    old = make(tmp_path, "north")
    pin(tmp_path / "trust", tmp_path / "north.pem")
    trust = Trust(tmp_path / "trust")
    fresh = renew(tmp_path, "north")
    own = Own("north", tmp_path / "north.pem", tmp_path / "north.key")
    assert own.read()[2] == old  # the old one stays in use
    with refused(None):
        renew(tmp_path, "north")
    pin(tmp_path / "trust", tmp_path / "north.next.pem")
    assert {trust.owner(old.fingerprint), trust.owner(fresh.fingerprint)} == {"north"}
    assert switch(tmp_path, "north") == fresh
    assert own.read()[2] == fresh
    assert stat.S_IMODE((tmp_path / "north.key").stat().st_mode) == 0o600
    revoke(tmp_path / "trust", "north", fingerprint=old.fingerprint)
    assert [each.fingerprint for each in trust.of("north")] == [fresh.fingerprint]
    pin(tmp_path / "trust", tmp_path / "north.pem", alone=True)
    assert len(read_all(tmp_path / "trust" / "north.pem")) == 1


def test_own_pair_must_fit(tmp_path: Path) -> None:
    make(tmp_path / "a", "north")
    make(tmp_path / "b", "north")
    mixed = Own("north", tmp_path / "a" / "north.pem", tmp_path / "b" / "north.key")
    with refused(None):
        mixed.read()
    with pytest.raises(InputError, match="must be for this site, 'south', but it names 'north'"):
        Own("south", tmp_path / "a" / "north.pem", tmp_path / "a" / "north.key").read()
    key = tmp_path / "a" / "north.key"
    key.chmod(0o644)
    with pytest.raises(InputError, match=r"owner only \(0600\), its mode is 0644"):
        Own("north", tmp_path / "a" / "north.pem", key).read()


def test_a_file_with_another_sites_certificate_is_an_error(tmp_path: Path) -> None:
    made = make(tmp_path, "north")
    (tmp_path / "trust").mkdir()
    (tmp_path / "trust" / "south.pem").write_bytes(made.pem)
    with pytest.raises(InputError, match="must hold certificates of 'south', got one of 'north'"):
        Trust(tmp_path / "trust")
