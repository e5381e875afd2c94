"""A site's programs as they are run: what they log."""

from __future__ import annotations

import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from privote.capc.site import Log


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
