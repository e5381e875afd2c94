"""Three sites and a guardian on one machine, set up and run with the commands of docs/coalition.md.

Copies the TOML files beside this script into a folder, makes and pins certificates, trains a model
for each site, starts the guardian and the answering sites as processes, and lets north ask.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from processes import LISTENING, free_addresses
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from privote.capc.certs import make, pin
from privote.capc.models import SiteModel
from privote.capc.site import read_terms
from privote.datasets.embedded import load_scenes

HERE = Path(__file__).resolve().parent
SITES = ("guardian", "north", "south", "west")
QUERIES = 20


def write_config(folder: Path) -> None:
    """Give every site its file, with ports that are free here, and a key of its own."""
    shutil.copy(HERE / "coalition.toml", folder)
    free = dict(zip(("7400", "7401", "7402", "7403"), free_addresses(4), strict=True))
    for site in SITES:
        text = (HERE / f"{site}.toml").read_text(encoding="utf-8")
        text = re.sub(r"127\.0\.0\.1:(74\d\d)", lambda at: free[at[1]], text)
        (folder / site).mkdir()
        (folder / site / "site.toml").write_text(text, encoding="utf-8")
        make(folder / site, site)  # privote capc certs make SITE --folder ...
    for site in SITES:
        for other in set(SITES) - {site}:
            # Between machines: hand over the file, compare the fingerprint by telephone, then
            # privote capc certs pin OTHER.pem --trust SITE/trust --name OTHER
            pin(folder / site / "trust", folder / other / f"{other}.pem", name=other)


def train(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Let every site train on scenes of its own; return rows to ask, and the truth."""
    terms = read_terms(folder / "coalition.toml")
    data = load_scenes(private=900, public=QUERIES, test=1)
    for place, site in enumerate(SITES[1:]):
        part = slice(300 * place, 300 * (place + 1))
        model = OneVsRestClassifier(LogisticRegression(C=0.1))
        model.fit(data.X_private[part], data.Y_private[part])
        SiteModel.of(model, labels=terms.labels).save(folder / site / "model.npz")
    return data.X_public, data.Y_public


def command(verb: str, site: Path, *more: object) -> list[str]:
    """Return a command line of `privote capc`."""
    return [sys.executable, "-m", "privote", "capc", verb, str(site), *map(str, more)]


def serve(folder: Path, verb: str, site: str) -> subprocess.Popen[bytes]:
    """Start a site's program; its log goes to a file."""
    log = folder / site / "log.txt"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command(verb, folder / site / "site.toml"), stdout=stream, stderr=stream
        )
    return process


def wait_for(folder: Path, programs: dict[str, subprocess.Popen[bytes]]) -> None:
    """Wait until every program listens."""
    for site, process in programs.items():
        log = folder / site / "log.txt"
        while LISTENING.encode() not in log.read_bytes():
            if process.poll() is not None:
                sys.exit(log.read_text(encoding="utf-8"))
            time.sleep(0.05)


def ask(folder: Path) -> Path:
    """Let north have its rows labelled; return the folder of the answers."""
    north, answers = folder / "north" / "site.toml", folder / "answers"
    done = subprocess.run(
        command("query", north, folder / "rows.npz", "--output", answers),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    return answers


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_config(folder)
        X, truth = train(folder)
        np.savez(folder / "rows.npz", X=X)
        programs = {"guardian": serve(folder, "guardian", "guardian")}
        try:
            programs |= {site: serve(folder, "answer", site) for site in ("south", "west")}
            wait_for(folder, programs)
            answers = ask(folder)
        finally:
            for program in programs.values():
                program.terminate()
            for program in programs.values():
                program.wait()
        with np.load(answers / "labels.npz") as file:
            labels = file["labels"]
        print((answers / "statement.txt").read_text(encoding="utf-8"))
        right = float((labels == truth).mean())
        print(f"{labels.shape[0]} rows, {labels.shape[1]} labels each; {right:.0%} are right.")
        print("Two voters are few for any noise; `privote plan` tells beforehand how few.")
        print("What the guardian logged:")
        for line in (folder / "guardian" / "log.txt").read_text(encoding="utf-8").splitlines():
            print("  " + re.sub(r"[0-9a-f]{32}", "RUN", line[25:]))


if __name__ == "__main__":
    main()
