"""The engine's configuration, and messages to its process."""

from __future__ import annotations

import pytest

from privote.capc.cheetah import runtime_config
from privote.capc.engine import SecureEngine
from privote.errors import MissingExtraError


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privote.capc.engine.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"privote\[capc\]"):
        SecureEngine()


OFF = [
    *("enable_runtime_snapshot", "snapshot_dump_dir"),  # would write inputs to disk
    *("enable_action_trace", "enable_pphlo_trace", "enable_pphlo_profile", "enable_hal_profile"),
    *("trunc_allow_msb_error", "enable_mul_lsb_error"),  # would make results wrong at random
    "disable_matmul_pack",  # would answer a product with several ciphertexts, which leaks
]


def test_the_one_configuration_is_secure_and_exact() -> None:
    pytest.importorskip("spu", reason="spu needs Python 3.11 and the extra [capc]")
    from spu import libspu

    config = runtime_config()
    assert config.protocol == libspu.ProtocolKind.CHEETAH
    assert config.field == libspu.FieldType.FM64
    assert config.experimental_enable_colocated_optimization
    for name in OFF:
        owner = config if hasattr(config, name) else config.cheetah_2pc_config
        assert not getattr(owner, name), name
