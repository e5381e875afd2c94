"""Configurations without secrecy, or without exactness, are refused."""

from __future__ import annotations

from typing import Any

import pytest

from privote.capc.secure import engine
from privote.capc.secure.cheetah import CheetahEngine
from privote.capc.secure.compiled import FORBIDDEN, check_config, check_settings, runtime_config
from privote.errors import InputError, MissingExtraError


@pytest.mark.parametrize("protocol", ["SEMI2K", "REF2K", "ABY3", "SECURENN", "cheetah", None])
def test_protocols_refused(protocol: Any) -> None:
    with pytest.raises(InputError, match="protocol must be CHEETAH"):
        check_settings({"protocol": protocol})


@pytest.mark.parametrize("name", list(FORBIDDEN))
def test_forbidden_settings(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} must be off"):
        check_settings({name: "/tmp/inputs" if name == "snapshot_dump_dir" else True})
    check_settings({name: "" if name == "snapshot_dump_dir" else False})


@pytest.mark.parametrize("settings", [{"ot": "plain"}, {"field": "FM32"}, {"max_concurrency": 4}])
def test_unknown_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        check_settings(settings)


def test_engine_takes_no_forbidden_setting() -> None:
    with pytest.raises(InputError, match="enable_runtime_snapshot must be off"):
        CheetahEngine({"enable_runtime_snapshot": True})


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privote.capc.secure.cheetah.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"privote\[capc\]"):
        engine("spu")


def test_engines_by_name() -> None:
    clear = engine("clear")
    assert (clear.name, clear.secure) == ("clear", False)
    with pytest.raises(InputError, match="engine must be"):
        engine("semi2k")


class TestConfig:
    """Of the engine itself, as it is handed over."""

    @pytest.fixture(params=["softspoken", "ferret"])
    def config(self, request: pytest.FixtureRequest) -> Any:
        pytest.importorskip("spu", reason="spu needs Python 3.11 and the extra [capc]")
        return runtime_config(check_settings({"ot": request.param}))

    def test_ours_is_good(self, config: Any) -> None:
        check_config(config)

    def test_ours_names_the_transfer(self, config: Any) -> None:
        other = runtime_config(check_settings({"ot": "softspoken"}))
        ferret = runtime_config(check_settings({"ot": "ferret"}))
        assert other.SerializeToString() != ferret.SerializeToString()

    @pytest.mark.parametrize("name", list(FORBIDDEN))
    def test_forbidden(self, config: Any, name: str) -> None:
        owner = config if hasattr(config, name) else config.cheetah_2pc_config
        setattr(owner, name, "/tmp/inputs" if name == "snapshot_dump_dir" else True)
        with pytest.raises(InputError, match=name):
            check_config(config)

    @pytest.mark.parametrize("name", ["SEMI2K", "REF2K", "ABY3", "SECURENN"])
    def test_protocols(self, config: Any, name: str) -> None:
        from spu import libspu

        config.protocol = getattr(libspu.ProtocolKind, name)
        with pytest.raises(InputError, match="protocol must be CHEETAH"):
            check_config(config)

    def test_fields_and_colocation(self, config: Any) -> None:
        from spu import libspu

        config.experimental_enable_colocated_optimization = False
        with pytest.raises(InputError, match="colocated"):
            check_config(config)
        config.field = libspu.FieldType.FM32
        with pytest.raises(InputError, match="field must be FM64"):
            check_config(config)
