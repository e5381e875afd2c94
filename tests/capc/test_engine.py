"""The engine's configuration, and messages to its process."""

from __future__ import annotations

import os
import threading
from multiprocessing import Pipe

import numpy as np
import pytest

from privote.capc.cheetah import runtime_config
from privote.capc.engine import Ended, Frame, SecureEngine, receive, send
from privote.errors import MissingExtraError


def test_frames_there_and_back() -> None:
    near, far = Pipe()
    arrays = {"a": np.arange(6).reshape(2, 3), "b": np.array(-(2**63)), "c": np.zeros((0, 4), int)}
    big = {"x": np.arange(300_000)}
    sender = threading.Thread(
        target=lambda: (
            send(near, Frame("job", {"n": 1}, [{}, arrays])),
            send(near, Frame("x", {}, [big])),
        )
    )
    sender.start()
    frame, second = receive(far), receive(far)
    sender.join()
    assert (frame.kind, frame.facts, frame.arrays[0]) == ("job", {"n": 1}, {})
    for key, value in arrays.items():
        np.testing.assert_array_equal(frame.arrays[1][key], value)
        assert frame.arrays[1][key].shape == value.shape
    np.testing.assert_array_equal(second.arrays[0]["x"], big["x"])
    os.write(near.fileno(), b"\x01")
    near.close()
    with pytest.raises(Ended):
        receive(far)
    with pytest.raises(Ended):
        send(near, Frame("x"))
    far.close()


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
