"""``privote capc``: certificates, coalitions on one machine, programs that stop cleanly."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from tests.capc.coalitions import processes, random_models, terms_of
from tests.cli.conftest import Run

from privote.capc.models import SiteModel


def test_a_site_trains_again_with_what_it_received(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    own, asked = rng.normal(size=(30, 4)), rng.normal(size=(300, 4))
    rows = [[*x.tolist(), *(x[:2] > 0).astype(int).tolist()] for x in own]
    table = ["a,b,c,d,flu,cold", *(",".join(map(str, row)) for row in rows)]
    (tmp_path / "records.csv").write_text("\n".join(table))
    np.savez(tmp_path / "rows.npz", X=asked)
    labels = (asked[:, :3] > 0).astype(np.int8)
    labels[::7] = -1
    np.savez(tmp_path / "labels.npz", labels=labels, label_names=["flu", "cold", "cough"])
    call = ("capc", "retrain", "records.csv", "rows.npz", "labels.npz", "--labels", "flu,cold")
    done = run(*call, "--output", "model.npz", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    before, after = (said[f"balanced accuracy {when}"] for when in ("before", "after"))
    assert 0.5 < before < after <= 1
    model = SiteModel.load(tmp_path / "model.npz")
    assert model.labels == ("flu", "cold", "cough")  # the last one learnt from others alone
    assert ((model.votes(asked) == (asked[:, :3] > 0)).mean(axis=0) > 0.85).all()
    assert stat.S_IMODE((tmp_path / "model.npz").stat().st_mode) == 0o600
    assert run(*call, "--output", "model.npz").exit_code == 2  # it exists
    np.savez(tmp_path / "labels.npz", labels=labels, label_names=["rash", "cold", "cough"])
    wrong = run(*call, "--output", "b.npz")
    assert wrong.exit_code == 2
    assert "--labels must be one or more of rash, cold, cough, got 'flu'" in wrong.stderr
    assert not (tmp_path / "b.npz").exists()


def test_simulate_in_clear(run: Run, tmp_path: Path) -> None:
    arguments = ["--parties", 3, "--queries", 12, "--clear", "--seed", 1]
    done = run("capc", "simulate", *arguments, "--output", "one")
    assert done.exit_code == 0, done.output
    assert "INSECURE" in done.output
    assert "majority, no noise" in done.output
    said = (tmp_path / "one" / "answers" / "statement.txt").read_text()
    assert "NOT A GUARANTEE: INSECURE" in said
    again = json.loads(run("capc", "simulate", *arguments, "--output", "two", "--json").stdout)
    assert again["engine"] == "clear"
    assert not again["secure"]
    assert again["parties"] == ["site-1", "site-2", "site-3"]
    assert set(again["allowance_by_party"]) == {"site-1", "site-2", "site-3"}
    assert again["epsilon"] == 20.0
    labels = [np.load(tmp_path / n / "answers" / "labels.npz")["labels"] for n in ("one", "two")]
    np.testing.assert_array_equal(*labels)
    assert labels[0].shape == (12, 10)
    assert run("capc", "simulate", *arguments, "--output", "one").exit_code == 2


def test_certificates_are_made_pinned_and_listed(run: Run, tmp_path: Path) -> None:
    prints = []
    for folder in ("north", "next"):
        done = run("capc", "certs", "make", "north", "--folder", folder, "--json")
        assert done.exit_code == 0, done.output
        prints.append(json.loads(done.output)["fingerprint"])
    assert run("capc", "certs", "make", "north", "--folder", "north").exit_code == 2
    wrong = run("capc", "certs", "pin", "north/north.pem", "--name", "south")
    assert (wrong.exit_code, (tmp_path / "trust").exists()) == (2, False)
    for folder, fingerprint in zip(("north", "next"), prints, strict=True):
        done = run("capc", "certs", "pin", f"{folder}/north.pem", "--name", "north")
        assert done.exit_code == 0, done.output
        assert fingerprint in done.output
    listed = json.loads(run("capc", "certs", "list", "--json").output)["certificates"]
    assert [row["fingerprint"] for row in listed] == prints  # both are accepted
    assert {row["status"] for row in listed} == {"valid"}
    assert listed[0]["days left"] in (364, 365)
    shown = run("capc", "certs", "list", "--folder", "north").output
    assert "own" in shown
    assert "pinned" in shown
    assert "PRIVATE" not in shown
    (tmp_path / "trust" / "north.pem").unlink()
    assert "No certificate is pinned" in run("capc", "certs", "list").output
    shown = run("capc", "certs", "show", "north/north.pem").output
    assert " ".join(prints[0][place : place + 4] for place in range(0, 16, 4)) in shown


needs_engine = pytest.mark.skipif(find_spec("spu") is None, reason="the secure engine is absent")


@needs_engine
def test_simulate_with_the_secure_engine(run: Run, tmp_path: Path) -> None:
    """With next to no noise, the labels are the majority of the sites' votes."""
    arguments = ("--parties", 3, "--queries", 20, "--sigma", 0.05, "--guarantee", "worst-case")
    real = run("capc", "simulate", *arguments, "--epsilon", 1e9, "--json", "--output", "real")
    assert real.exit_code == 0, real.output
    said = json.loads(real.stdout)
    released, majority, _ = said["metrics"]
    assert {**released, "labels": ""} == {**majority, "labels": ""}
    assert (said["engine"], said["secure"], said["stamp"]) == ("spu-cheetah", True, "")


@pytest.fixture(scope="module")
def coalition(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the files and terms of a small coalition."""
    terms = terms_of(parties=2, features=3, bound=1.0, epsilon=50.0, timeout=60.0)
    folder = tmp_path_factory.mktemp("coalition")
    return processes.write_config(folder, terms, random_models(terms)), terms


def query(site: Path, rows: Path, output: Path) -> subprocess.CompletedProcess[str]:
    """Ask as an administrator would."""
    words = [sys.executable, "-m", "privote", "capc", "query", site, rows, "--output", output]
    return subprocess.run([*words, "--json"], capture_output=True, text=True, timeout=120)


def log_of(site: Path) -> list[dict[str, Any]]:
    """Return what the program of a site has logged."""
    lines = site.with_name("log.txt").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@needs_engine
def test_programs_serve_refuse_and_stop(coalition: Any, tmp_path: Path) -> None:
    sites, terms = coalition

    def asked(name: str, rows: Any) -> tuple[int, str, str]:
        np.savez(tmp_path / "rows.npz", X=rows)
        done = query(sites["q0"], tmp_path / "rows.npz", tmp_path / name)
        return done.returncode, done.stdout, done.stderr

    rows = np.random.default_rng(0).uniform(-1, 1, (4, 3))
    checked = [sys.executable, "-m", "privote", "capc", "check", sites["q0"], "--role", "query"]
    assert subprocess.run(checked, capture_output=True, check=False).returncode == 5
    with processes.running(sites, terms) as programs:
        assert subprocess.run(checked, capture_output=True, check=False).returncode == 0
        code, out, log = asked("answers", rows)
        assert code == 0, log
        said = json.loads(out)
        assert (said["queries"], said["secure"]) == (4, True)
        with np.load(tmp_path / "answers" / "labels.npz") as file:
            assert file["labels"].shape == (4, 2)
            assert file["label_names"].tolist() == ["label0", "label1"]
        assert "epsilon: 50" in (tmp_path / "answers" / "statement.txt").read_text()
        written = json.loads((tmp_path / "answers" / "statement.json").read_text())
        assert written["parties"] == ["p0", "p1"]
        assert asked("answers", rows)[0] == 2  # the place is taken: nothing is charged
        assert asked("again", rows)[0] == 0
        first, second = ((tmp_path / name / "labels.npz") for name in ("answers", "again"))
        np.testing.assert_array_equal(np.load(first)["labels"], np.load(second)["labels"])
        code, out, log = asked("more", np.zeros((900, 3)))
        assert code == 3, log
        programs["p1"].kill()
        programs["p1"].wait()
        code, out, log = asked("fewer", rows / 2)
        assert code == 5, log  # everybody is greeted before anything is charged
        assert "no program is listening there" in out + log
        for name, number in (("pg", signal.SIGTERM), ("p0", signal.SIGINT)):
            programs[name].send_signal(number)
            assert programs[name].wait(60) == 0
            assert log_of(sites[name])[-1]["event"] == "stopped"
        charged = [entry for entry in log_of(sites["pg"]) if entry.get("call") == "request_batch"]
        assert len(charged) == 2


def test_rows_of_another_shape_charge_nothing(coalition: Any, run: Run, tmp_path: Path) -> None:
    sites, terms = coalition
    for shape, said in (((2, 5), "(rows, 3)"), ((terms.most_queries + 1, 3), "most_queries")):
        np.savez(tmp_path / "rows.npz", X=np.zeros(shape))
        done = run("capc", "query", sites["q0"], tmp_path / "rows.npz", "--output", "out")
        assert done.exit_code == 2
        assert said in done.output
