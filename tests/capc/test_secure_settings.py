"""Configurations without secrecy, or without exactness, are refused."""

from __future__ import annotations

from typing import Any

import pytest

from privote.capc.cheetah import FORBIDDEN, check_config, runtime_config
from privote.capc.engine import engine
from privote.errors import InputError, MissingExtraError


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privote.capc.engine.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"privote\[capc\]"):
        engine("spu")


def test_engines_by_name() -> None:
    clear = engine("clear")
    assert (clear.name, clear.secure) == ("clear", False)
    with pytest.raises(InputError, match="engine must be"):
        engine("semi2k")


class TestConfig:
    """Of the engine itself, as it is handed over."""

    @pytest.fixture
    def config(self) -> Any:
        pytest.importorskip("spu", reason="spu needs Python 3.11 and the extra [capc]")
        return runtime_config()

    def test_ours_is_good(self, config: Any) -> None:
        check_config(config)

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
