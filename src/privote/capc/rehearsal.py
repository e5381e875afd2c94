"""A whole coalition on one machine: real processes, real certificates, real sockets on loopback.

`lay_out` writes for every site the folder that its administrator would have, so that what a
rehearsal leaves behind is also an example to copy from. `Rehearsal` starts guardian and answering
parties as programs of their own, and stops them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import PeerError
from .models import SiteModel
from .service import LISTENING
from .terms import Terms
from .transport.certs import make
from .transport.trust import pin

COMMAND = (sys.executable, "-m", "privote", "capc")
_PATIENCE = 120.0  # seconds for a program to come up on a busy machine


def lay_out(
    folder: Path,
    terms: Terms,
    models: Mapping[str, SiteModel],
    *,
    engine: str = "spu",
    insecure: bool = False,
    seed: int | None = None,
    sessions: int = 2,
) -> dict[str, Path]:
    """Write a coalition's files for this machine; returns each site's ``site.toml``.

    Every site gets its own key and certificate, everybody else's pinned, and a free port.
    """
    names = terms.sites
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "coalition.toml").write_text(to_toml(terms.to_dict()), encoding="utf-8")
    for name in names:
        make(folder / name, name)
    servers = [terms.guardian, *terms.parties]
    addresses = dict(zip(servers, _free_addresses(len(servers)), strict=True))
    written = {}
    for index, name in enumerate(names):
        home = folder / name
        for other in names:
            if other != name:
                pin(home / "trust", folder / other / f"{other}.pem")
        plain: dict[str, Any] = {
            "name": name,
            "coalition": "../coalition.toml",
            "certificate": f"{name}.pem",
            "key": f"{name}.key",
            "trust": "trust",
            "engine": engine,
            "sessions": sessions,
            "insecure": insecure or None,
            "seed": None if seed is None else seed + index,  # sites draw apart from each other
            "listen": addresses.get(name),
            "ledger": "ledger.db" if name == terms.guardian else None,
            "state": "state" if name in terms.queriers else None,
            "model": "model.npz" if name in terms.parties else None,
        }
        if name != terms.guardian:
            plain["addresses"] = {other: at for other, at in addresses.items() if other != name}
        if name in terms.parties:
            models[name].save(home / "model.npz")
        written[name] = home / "site.toml"
        written[name].write_text(to_toml(plain), encoding="utf-8")
    return written


def _free_addresses(count: int) -> list[str]:
    """Return addresses on loopback that nobody listens on."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]


def to_toml(plain: Mapping[str, Any]) -> str:
    """Return texts, numbers, flags, lists and tables as TOML; what is None is left out."""
    given = {key: value for key, value in plain.items() if value is not None}
    flat = {key: value for key, value in given.items() if not isinstance(value, Mapping)}
    lines = [f"{key} = {_toml(value)}" for key, value in flat.items()]
    for key, table in given.items():
        if key not in flat:
            lines += ["", f"[{key}]", *(f"{_key(k)} = {_toml(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() else json.dumps(name)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)  # the two write these alike


class Rehearsal:
    """Guardian and answering parties as processes; use it as a context.

    Parameters
    ----------
    sites
        What `lay_out` returned.
    terms
        The coalition's.
    """

    def __init__(self, sites: Mapping[str, Path], terms: Terms) -> None:
        self.sites, self.terms = dict(sites), terms
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Rehearsal:
        try:
            for name in (self.terms.guardian, *self.terms.parties):
                self.start(name)
            for name in self.processes:
                self._await(name)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def log(self, name: str) -> str:
        """Return what a site's program has logged so far."""
        path = self.sites[name].with_name("log.txt")
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def start(self, name: str) -> None:
        """Start a site's program."""
        verb = "guardian" if name == self.terms.guardian else "answer"
        with self.sites[name].with_name("log.txt").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*COMMAND, verb, self.sites[name]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                start_new_session=True,  # a Ctrl-C is for us to pass on, in order
            )

    def _await(self, name: str) -> None:
        end = time.monotonic() + _PATIENCE
        while LISTENING not in self.log(name):
            if self.processes[name].poll() is not None:
                said = self.log(name).strip().splitlines() or ["it said nothing"]
                raise PeerError(f"{name} did not start: {said[-1]}")
            if time.monotonic() > end:
                raise PeerError(f"{name} did not start within {_PATIENCE:g} s")
            time.sleep(0.05)

    def stop(self) -> None:
        """End all programs as an administrator would."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def query(
        self,
        name: str,
        rows: Path,
        output: Path,
        *arguments: str,
        seconds: float = 900.0,
        tick: Callable[[int], None] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a querying party to its end; ``tick`` is told how many sites are done by then."""
        end = time.monotonic() + seconds
        with subprocess.Popen(
            [*COMMAND, "query", self.sites[name], rows, "--output", output, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        ) as process:
            while True:
                try:
                    out, err = process.communicate(timeout=1.0)
                    break
                except subprocess.TimeoutExpired:
                    if time.monotonic() > end:
                        process.kill()
                        raise
                    if tick is not None:
                        tick(self.done())
                except BaseException:
                    process.kill()
                    raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def done(self) -> int:
        """Return how many answering sites have ended a secure session, by what they logged."""
        return sum(f":{party} with " in self.log(party) for party in self.terms.parties)


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
