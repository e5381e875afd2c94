"""A site: files read strictly, with errors that name file, key, rule and value; its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from privote.capc.site import Log, Site, read_terms
from privote.errors import InputError

TERMS = """
name = "three hospitals"
labels = ["a", "b"]
features = 4
epsilon = 8.0
delta = 1e-5
guardian = "guardian"
queriers = ["north"]
minimum = 2
[mechanism]
mechanism = "binary"
sigma = 4.0
[parties]
north = "all"
south = "all"
west = ["b"]
"""
SITE: dict[str, Any] = {
    "name": '"north"',
    "coalition": '"coalition.toml"',
    "certificate": '"north.pem"',
    "key": '"north.key"',
    "trust": '"trust"',
    "state": '"state"',
    "addresses": '{guardian = "pg.example:7443", south = "10.0.0.2:7443", west = "[::1]:7443"}',
}


def written(folder: Path, terms: str = TERMS, **changes: str | None) -> Path:
    (folder / "coalition.toml").write_text(terms)
    values = {key: value for key, value in {**SITE, **changes}.items() if value is not None}
    file = folder / "site.toml"
    file.write_text("".join(f"{key} = {value}\n" for key, value in values.items()))
    return file


def test_a_site(tmp_path: Path) -> None:
    site = Site.read(written(tmp_path))
    assert site.name == "north"
    assert site.engine == "spu-cheetah"
    assert site.key == tmp_path / "north.key"
    assert site.terms.labels_of("west") == ("b",)
    assert not site.insecure
    assert site.stamp == ""
    site.check_for("querying")
    assert site.callees("querying") == ("guardian", "south", "west")
    assert site.callees("answering") == ("guardian",)
    assert site.callers("answering") == frozenset()  # the only querier is itself


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nmae": '"x"'}, "nmae"),
        ({"key": None}, "key"),
        ({"name": '"North"'}, "a site's name"),
        ({"name": '"east"'}, "name"),
        ({"name": "3"}, "a site's name"),
        ({"key": "7"}, "key"),
        ({"listen": '"7443"'}, "listen"),
        ({"listen": '"h:70000"'}, "listen"),
        ({"addresses": "[]"}, "addresses"),
        ({"addresses": '{south = "x"}'}, "addresses.south"),
        ({"addresses": '{south = "h:0"}'}, "addresses.south"),
        ({"addresses": '{east = "h:1"}'}, "addresses"),
        ({"addresses": '{north = "h:1"}'}, "addresses"),
        ({"engine": '"semi2k"'}, "engine"),
        ({"engine": "[]"}, "engine"),
        ({"engine": '"clear"'}, "engine"),
        ({"seed": "1"}, "seed"),
        ({"seed": "-1", "insecure": "true"}, "seed"),
        ({"insecure": "1"}, "insecure"),
        ({"sessions": "65"}, "sessions"),
        ({"sessions": "0"}, "sessions"),
        ({"sessions": "true"}, "sessions"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    file = written(tmp_path, **changes)
    with pytest.raises(InputError, match=f"site.toml: {said} "):
        Site.read(file)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("delta = 1e-5", "delta = 2.0", "delta"),
        ("minimum = 2", "minimun = 2", "'minimun'"),
        ("epsilon = 8.0\n", "", "epsilon"),
        ("sigma = 4.0", "sigma = -4.0", "sigma"),
    ],
)
def test_terms_are_checked_with_the_files_name(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in TERMS
    file = written(tmp_path, TERMS.replace(old, new))
    with pytest.raises(InputError, match=f"coalition.toml: .*{said}"):
        Site.read(file)


def test_not_toml_and_not_there(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("a = ")
    with pytest.raises(InputError, match=r"bad\.toml: is not TOML"):
        Site.read(tmp_path / "bad.toml")
    with pytest.raises(InputError, match=r"absent\.toml: cannot be read"):
        Site.read(tmp_path / "absent.toml")
    (tmp_path / "long.toml").write_text("#" * (1 << 20) + "\n")
    with pytest.raises(InputError, match="at most"):
        read_terms(tmp_path / "long.toml")


@pytest.mark.parametrize(
    ("role", "changes", "said"),
    [
        ("guardian", {}, "name must be registered as guardian to run `privote capc guardian`"),
        ("answering", {}, "listen must be given for `privote capc answer`"),
        ("answering", {"listen": '"h:1"'}, "model must be given"),
        ("querying", {"state": None}, "state must be given for `privote capc query`"),
        ("querying", {"addresses": '{south = "h:1"}'}, "addresses.guardian must be given"),
        ("querying", {"name": '"south"', "addresses": "{}"}, "registered as querying"),
    ],
)
def test_each_program_says_what_it_lacks(
    tmp_path: Path, role: str, changes: dict[str, str | None], said: str
) -> None:
    site = Site.read(written(tmp_path, **changes))
    with pytest.raises(InputError, match=said):
        site.check_for(role)


def test_insecure_is_stamped(tmp_path: Path) -> None:
    site = Site.read(written(tmp_path, engine='"clear"', insecure="true", seed="7"))
    assert site.stamp.startswith("INSECURE: ")
    assert "SIMULATED" in site.stamp
    assert "SIMULATED" in Site.read(written(tmp_path, insecure="true", seed="7")).stamp
    assert Site.read(written(tmp_path, insecure="true")).stamp == ""


def test_strangers_do_not_fill_the_log(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("privote.capc.site.time.monotonic", lambda: now)
    log = Log()
    line = "E0000 00:00:00.0 1 s.cc:1] Handshake failed with error x: {}: why"
    for _ in range(500):
        log._tell(line.format("CERTIFICATE_VERIFY_FAILED"))
    log._tell(line.format("HTTP_REQUEST"))
    now = 61.0
    log._tell(line.format("CERTIFICATE_VERIFY_FAILED"))
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 3
    assert "does not speak TLS" in said[1]
    assert said[2].endswith("so were 499 more since")
