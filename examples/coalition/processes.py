"""A coalition's files for one machine, and its guardian and answering sites as processes."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from privote.capc.certs import make, pin
from privote.capc.models import SiteModel
from privote.capc.terms import Terms
from privote.errors import PeerError

TIMEOUT = 120.0  # seconds for a program to come up on a busy machine
LISTENING = "listening"  # the event that a program logs when it can be called


def write_config(
    folder: Path, terms: Terms, models: Mapping[str, SiteModel], *, max_concurrent: int = 2
) -> dict[str, Path]:
    """Write a coalition's files for this machine; returns each site's ``site.toml``.

    Every site gets its own key and certificate, everybody else's pinned, and a free port.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "coalition.toml").write_text(tomli_w.dumps(terms.to_dict()), encoding="utf-8")
    for name in terms.sites:
        make(folder / name, name)
    servers = [terms.guardian, *terms.parties]
    addresses = dict(zip(servers, free_addresses(len(servers)), strict=True))
    written = {}
    for name in terms.sites:
        home = folder / name
        for other in set(terms.sites) - {name}:
            pin(home / "trust", folder / other / f"{other}.pem")
        plain: dict[str, Any] = {
            "name": name,
            "coalition": "../coalition.toml",
            "certificate": f"{name}.pem",
            "key": f"{name}.key",
            "trust": "trust",
            "max_concurrent": max_concurrent,
        }
        if name in addresses:
            plain["listen"] = addresses[name]
        if name == terms.guardian:
            plain["ledger"] = "ledger.db"
        else:
            plain["addresses"] = {other: at for other, at in addresses.items() if other != name}
        if name in terms.queriers:
            plain["state"] = "state"
        if name in terms.parties:
            plain["model"] = "model.npz"
            models[name].save(home / "model.npz")
        written[name] = home / "site.toml"
        written[name].write_text(tomli_w.dumps(plain), encoding="utf-8")
    return written


def free_addresses(count: int) -> list[str]:
    """Return addresses on loopback that nobody listens on."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]


def start(name: str, site: Path, guardian: str) -> subprocess.Popen[bytes]:
    """Start the program of a site; it logs to ``log.txt`` in its folder."""
    verb = "guardian" if name == guardian else "answer"
    with site.with_name("log.txt").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "privote", "capc", verb, site, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # a Ctrl-C is for us to pass on, in order
        )


@contextlib.contextmanager
def running(
    sites: Mapping[str, Path], terms: Terms
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Run guardian and answering parties as processes.

    Parameters
    ----------
    sites
        What `write_config` returned.
    terms
        The coalition's.

    Raises
    ------
    PeerError
        A program did not start.
    """
    programs: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in (terms.guardian, *terms.parties):
            programs[name] = start(name, sites[name], terms.guardian)
        for name, program in programs.items():
            wait_for(name, sites[name].with_name("log.txt"), program)
        yield programs
    finally:
        for program in programs.values():
            program.terminate()
        for program in programs.values():
            try:
                program.wait(15)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()


def wait_for(name: str, log: Path, program: subprocess.Popen[bytes]) -> None:
    """Wait until a program listens."""
    end = time.monotonic() + TIMEOUT
    while LISTENING not in (text := log.read_text(encoding="utf-8", errors="replace")):
        if program.poll() is not None:
            why = (text.strip().splitlines() or ["it logged nothing"])[-1]
            raise PeerError(f"{name} did not start: {why}")
        if time.monotonic() > end:
            raise PeerError(f"{name} did not start within {TIMEOUT:g} s")
        time.sleep(0.05)
