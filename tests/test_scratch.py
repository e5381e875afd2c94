"""What a killed process leaves behind is removed by the next, and nothing that is in use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.refusals import refused

from privote.files import Scratch, sweep

HOLDS = """
import sys, time
from pathlib import Path
{work}
print("ready", flush=True)
time.sleep(60)
"""


def killed(work: str, *arguments: str | Path, kill: bool = True) -> subprocess.Popen[str]:
    """Return a process that did some work and, unless told otherwise, was killed after it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS.format(work=work), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    if kill:
        end(process)
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


MAKES = "from privote.files import Scratch; s = Scratch(Path(sys.argv[1]), 'a-')"


def test_a_folder_is_private_and_goes_with_its_work(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, "a-")
    assert scratch.path.stat().st_mode & 0o777 == 0o700
    (scratch.path / "work").write_text("unfinished")
    scratch.remove()
    scratch.remove()
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    killed(MAKES, tmp_path)
    (left,) = tmp_path.iterdir()
    sweep(tmp_path, "b-")
    assert left.exists(), "another kind's"
    scratch = Scratch(tmp_path, "a-")
    assert list(tmp_path.iterdir()) == [scratch.path]
    scratch.remove()


def test_what_is_in_use_stays(tmp_path: Path) -> None:
    mine = Scratch(tmp_path, "a-")
    theirs = killed(MAKES, tmp_path, kill=False)
    try:
        assert len(list(tmp_path.iterdir())) == 2
        sweep(tmp_path, "a-")
        assert len(list(tmp_path.iterdir())) == 2
    finally:
        end(theirs)
    sweep(tmp_path, "a-")
    assert list(tmp_path.iterdir()) == [mine.path]
    mine.remove()


def test_what_is_not_known_to_be_dead_stays(tmp_path: Path) -> None:
    kept = [tmp_path / "a-01234567", tmp_path / "a-other", tmp_path / "a-abcdefgh"]
    for folder in kept[:2]:
        folder.mkdir()
    (kept[1] / "privote.lock").touch()  # named otherwise than we name
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "privote.lock").touch()
    kept[2].symlink_to(tmp_path / "elsewhere")
    sweep(tmp_path, "a-")
    assert all(folder.exists() for folder in kept)
    sweep(tmp_path / "absent", "a-")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with refused(None):
        Scratch(tmp_path / "absent", "a-")


def test_the_sockets_of_a_killed_program_are_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("grpc")
    from privote.capc.driver import Sessions
    from privote.capc.engine import SecureEngine

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    work = (
        "from privote.capc.tunnel import Tunnel\n"
        "from privote.capc.streams import Outbox\n"
        "channel = Tunnel(Outbox(9), iter(lambda: time.sleep(60), 0), first=True, patience=1.0)"
    )
    running = killed(work, kill=False)
    killed(work)
    try:
        assert len(list(tmp_path.glob("pv-*/peer.sock"))) == 2
        Sessions(SecureEngine.__new__(SecureEngine), at_a_time=1, report=lambda *_: None, log=print)
        assert len(list(tmp_path.glob("pv-*/peer.sock"))) == 1
    finally:
        end(running)
