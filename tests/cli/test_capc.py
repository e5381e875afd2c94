"""``privote capc``: certificates, coalitions on one machine, programs that stop cleanly."""

from __future__ import annotations

import json
import signal
import stat
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from tests.capc.sites import client_of, until
from tests.cli.conftest import Run

from privote import BinaryVoting
from privote.capc.certs import Own, Trust, make, read_one
from privote.capc.coalition import Rehearsal, lay_out
from privote.capc.models import SiteModel
from privote.capc.site import Site, begin
from privote.capc.terms import Terms


def test_a_site_trains_again_with_what_it_received(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(4, 3))
    own, asked, test = (
        rng.normal(size=(30, 4)),
        rng.normal(size=(300, 4)),
        rng.normal(size=(500, 4)),
    )
    truth = (own @ weights > 0).astype(int)
    (tmp_path / "records.csv").write_text(
        "\n".join(
            ["a,b,c,d,flu,cold"]
            + [",".join(map(str, [*x, *y])) for x, y in zip(own, truth[:, :2], strict=True)]
        )
    )
    np.savez(tmp_path / "rows.npz", X=asked)
    labels = (asked @ weights > 0).astype(np.int8)
    labels[::7] = -1
    np.savez(tmp_path / "labels.npz", labels=labels, label_names=["flu", "cold", "cough"])
    call = ("capc", "retrain", "records.csv", "rows.npz", "labels.npz", "--labels", "flu,cold")
    done = run(*call, "--output", "model.npz")
    assert done.exit_code == 0, done.output
    model = SiteModel.load(tmp_path / "model.npz")
    assert model.labels == ("flu", "cold")  # what it may answer with
    assert (model.votes(test) == (test @ weights > 0)[:, :2]).mean() > 0.9
    assert stat.S_IMODE((tmp_path / "model.npz").stat().st_mode) == 0o600
    assert run(*call, "--output", "model.npz").exit_code == 2  # it exists
    assert run(*call, "--every-label", "--output", "all.npz").exit_code == 0
    every = SiteModel.load(tmp_path / "all.npz")
    assert every.labels == ("flu", "cold", "cough")
    assert (every.votes(test) == (test @ weights > 0))[:, 2].mean() > 0.9
    np.savez(tmp_path / "labels.npz", labels=labels, label_names=["rash", "cold", "cough"])
    wrong = run(*call, "--output", "b.npz")
    assert wrong.exit_code == 2
    assert "--labels must be one or more of rash, cold, cough, got 'flu'" in wrong.stderr
    assert not (tmp_path / "b.npz").exists()


def test_certificates_from_making_to_revoking(run: Run, tmp_path: Path) -> None:
    done = run("capc", "certs", "make", "north", "--folder", "north", "--json")
    assert done.exit_code == 0, done.output
    fingerprint = json.loads(done.output)["fingerprint"]
    assert stat.S_IMODE((tmp_path / "north" / "north.key").stat().st_mode) == 0o600
    assert run("capc", "certs", "make", "north", "--folder", "north").exit_code == 2

    done = run("capc", "certs", "pin", "north/north.pem", "--trust", "trust", "--name", "north")
    assert done.exit_code == 0, done.output
    assert fingerprint in done.output
    wrong = run("capc", "certs", "pin", "north/north.pem", "--trust", "trust", "--name", "south")
    assert wrong.exit_code == 2
    assert "must be for 'south', but it names 'north'" in wrong.output

    listed = json.loads(run("capc", "certs", "list", "--json").output)
    assert [row["fingerprint"] for row in listed["certificates"]] == [fingerprint]
    assert listed["certificates"][0]["status"] == "valid"
    assert listed["certificates"][0]["days left"] in (364, 365)
    shown = run("capc", "certs", "list", "--folder", "north").output
    assert "own" in shown
    assert "pinned" in shown
    assert "PRIVATE" not in shown

    assert run("capc", "certs", "renew", "north", "--folder", "north").exit_code == 0
    fresh = read_one(tmp_path / "north" / "north.next.pem").fingerprint
    assert run("capc", "certs", "pin", "north/north.next.pem").exit_code == 0
    done = run("capc", "certs", "renew", "north", "--folder", "north", "--switch")
    assert fresh in done.output
    assert read_one(tmp_path / "north" / "north.pem").fingerprint == fresh
    gone = run("capc", "certs", "revoke", "north", "--fingerprint", fingerprint, "--json")
    assert json.loads(gone.output)["revoked"] == [fingerprint]
    listed = json.loads(run("capc", "certs", "list", "--json").output)
    assert [row["fingerprint"] for row in listed["certificates"]] == [fresh]
    assert listed["revoked"] == [fingerprint]
    assert f"Revoked north: {fresh}" in run("capc", "certs", "revoke", "north").output
    assert "No certificate is pinned" in run("capc", "certs", "list").output


@pytest.mark.parametrize(("sigma", "warned"), [(40, True), (2, False)])
def test_a_forecast_of_bad_labels_is_a_warning_before_anybody_is_asked(
    run: Run, sigma: float, warned: bool
) -> None:
    arguments = ("--parties", 12, "--queries", 2, "--clear", "--sigma", sigma, "--seed", 1)
    done = run("capc", "simulate", *arguments, "--epsilon", 20, "--output", "trial")
    assert done.exit_code == 0, done.stderr
    start = "warning: 12 sites answer"
    said = [line for line in done.stderr.splitlines() if line.startswith(start)]
    assert len(said) == warned, done.stderr
    assert all("missed" in line for line in said)


def test_simulate_in_clear(run: Run, tmp_path: Path) -> None:
    arguments = ["--parties", 3, "--queries", 12, "--clear", "--seed", 1]
    done = run("capc", "simulate", *arguments, "--output", "one")
    assert done.exit_code == 0, done.output
    assert "INSECURE" in done.output
    assert "majority, no noise" in done.output
    said = (tmp_path / "one" / "answers" / "statement.txt").read_text()
    assert said.startswith("INSECURE")
    assert "NOT A GUARANTEE" in said
    again = json.loads(run("capc", "simulate", *arguments, "--output", "two", "--json").stdout)
    assert again["engine"] == "clear"
    assert not again["secure"]
    assert again["parties"] == ["site-1", "site-2", "site-3"]
    assert set(again["charged_by_party"]) == {"site-1", "site-2", "site-3"}
    assert max(again["charged_by_party"].values()) <= again["epsilon"] == 20.0
    labels = [np.load(tmp_path / n / "answers" / "labels.npz")["labels"] for n in ("one", "two")]
    np.testing.assert_array_equal(*labels)
    assert labels[0].shape == (12, 10)
    assert run("capc", "simulate", *arguments, "--output", "one").exit_code == 2


@pytest.mark.skipif(find_spec("spu") is None, reason="the secure engine is absent")
def test_processes_engine_and_tls_give_the_labels_of_clear_text(run: Run, tmp_path: Path) -> None:
    """Given the same ballots, masks and noise: bit for bit."""
    arguments = ["--parties", 2, "--queries", 20, "--seed", 4, "--sigma", 3, "--json"]
    clear = run("capc", "simulate", *arguments, "--clear", "--output", "clear")
    assert clear.exit_code == 0, clear.output
    real = run("capc", "simulate", *arguments, "--output", "real")
    assert real.exit_code == 0, real.output
    labels = [
        np.load(tmp_path / name / "answers" / "labels.npz")["labels"] for name in ("clear", "real")
    ]
    np.testing.assert_array_equal(*labels)
    assert set(np.unique(labels[0]).tolist()) == {0, 1}
    assert "asking 2 sites in secure sessions, some seconds each" in real.stderr
    said = json.loads(real.stdout)
    assert said["engine"] == "spu-cheetah"
    assert said["megabytes"] > 1
    assert said["stamp"].startswith("SIMULATED")
    for site in ("guardian", "site-1", "site-2", "querier"):
        log = (tmp_path / "real" / site / "log.txt").read_text()
        assert log.count("SIMULATED") == 1
    assert "guardian has stopped" in (tmp_path / "real" / "guardian" / "log.txt").read_text()


@pytest.mark.parametrize(
    "more",
    [
        ["--mechanism", "tau", "--tau", 1.8, "--sigma", 2, "--epsilon", 50],
        ["--gate-threshold", 3, "--gate-sigma", 2, "--guarantee", "worst-case", "--epsilon", 1000],
    ],
)
def test_simulate_other_mechanisms(run: Run, more: list[Any]) -> None:
    done = run(
        *("capc", "simulate", "--parties", 4, "--queries", 5, "--clear", "--seed", 1, "--json"),
        *("--output", "out", *more),
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["queries"] == 5


def test_a_budget_that_pays_for_no_query_is_refused(run: Run) -> None:
    more = ("--guarantee", "worst-case", "--epsilon", 0.5)
    done = run("capc", "simulate", "--clear", "--queries", 5, "--output", "out", *more)
    assert done.exit_code == 3, done.output
    assert "'site-1'" in done.output
    assert not Path("out").exists()  # the same folder may be named again


@pytest.fixture(scope="module")
def coalition(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the files and terms of a small coalition in clear text."""
    folder = tmp_path_factory.mktemp("coalition")
    rng = np.random.default_rng(3)
    terms = Terms(
        name="test",
        labels=("a", "b"),
        features=3,
        bound=1.0,
        mechanism=BinaryVoting(sigma=2.0),
        guarantee="worst-case",
        epsilon=50.0,
        delta=1e-5,
        guardian="guardian",
        parties={"north": None, "south": None},
        queriers=("east",),
        timeout=20.0,
    )
    models = {
        party: SiteModel(
            layers=((rng.normal(size=(3, 2)), np.zeros(2)),), labels=("a", "b"), thresholds=0.5
        )
        for party in terms.parties
    }
    return lay_out(folder, terms, models, engine="clear", insecure=True), terms


def test_programs_serve_refuse_and_stop(coalition: Any, tmp_path: Path) -> None:
    sites, terms = coalition
    rows = tmp_path / "rows.npz"
    np.savez(rows, X=np.random.default_rng(0).uniform(-1, 1, (4, 3)))
    with Rehearsal(sites, terms) as programs:
        done = programs.query("east", rows, tmp_path / "answers", "--json")
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert said["queries"] == 4
        assert said["stamp"].startswith("INSECURE")
        with np.load(tmp_path / "answers" / "labels.npz") as file:
            assert file["labels"].shape == (4, 2)
            assert file["label_names"].tolist() == ["a", "b"]
        assert "INSECURE" in (tmp_path / "answers" / "statement.txt").read_text()
        written = json.loads((tmp_path / "answers" / "statement.json").read_text())
        assert written["charged_by_party"].keys() == {"north", "south"}
        # The place is taken: refused before anything is charged.
        assert programs.query("east", rows, tmp_path / "answers").returncode == 2

        many = tmp_path / "many.npz"
        np.savez(many, X=np.zeros((900, 3)))
        broke = programs.query("east", many, tmp_path / "more")
        assert broke.returncode == 3
        assert "error: guardian refused: the budget of data set 'north'" in broke.stderr

        _call_as_a_stranger(sites["guardian"], tmp_path)
        until(lambda: "refused a connection" in programs.log("guardian"))
        assert "not pinned here" in programs.log("guardian")

        programs.processes["south"].kill()
        programs.processes["south"].wait()
        left = programs.query("east", rows, tmp_path / "fewer")
        assert left.returncode == 5
        last = left.stderr.strip().splitlines()[-1]
        assert "at least 2 must" in last
        assert last.endswith("(lost south (answering): nobody listens there)")
        guardian = programs.processes["guardian"]
        guardian.send_signal(signal.SIGTERM)
        assert guardian.wait(60) == 0
        north = programs.processes["north"]
        north.send_signal(signal.SIGINT)
        assert north.wait(60) == 0
    assert "guardian has stopped" in programs.log("guardian")
    assert "Traceback" not in programs.log("guardian") + programs.log("north")


def _call_as_a_stranger(file: Path, folder: Path) -> None:
    """Call with a certificate that nobody pinned."""
    make(folder, "east")
    own = Own("east", folder / "east.pem", folder / "east.key")
    site = Site.read(file)
    trust = Trust(file.parent.parent / "east" / "trust")
    client = client_of(
        "guardian", str(site.listen), own, trust, role="querying", log=print, most_message=1 << 20
    )
    lost: list[str] = []
    client.talk("guardian", lambda *_: None, lambda _, why: lost.append(why))
    until(lambda: lost)
    assert "it may not have pinned our certificate" in lost[0]
    client.close()


def test_nobody_there_is_a_peer_that_failed(coalition: Any, run: Run, tmp_path: Path) -> None:
    sites, _ = coalition
    np.savez(tmp_path / "rows.npz", X=np.zeros((2, 3)))
    done = run("capc", "query", sites["east"], tmp_path / "rows.npz", "--output", "out")
    assert done.exit_code == 5, done.output
    assert "guardian cannot be reached or did not answer (nobody listens there; " in done.output
    assert "addresses.guardian is 127.0.0.1:" in done.output
    assert not (tmp_path / "out").exists()


def test_a_site_cannot_be_what_it_is_not(coalition: Any, run: Run) -> None:
    sites, _ = coalition
    for verb, site in (("guardian", "north"), ("answer", "east")):
        assert run("capc", verb, sites[site]).exit_code == 2


def test_rows_of_another_shape_charge_nothing(coalition: Any, run: Run, tmp_path: Path) -> None:
    sites, terms = coalition
    for shape, said in (((2, 5), "(rows, 3)"), ((terms.most_queries + 1, 3), "most_queries")):
        np.savez(tmp_path / "rows.npz", X=np.zeros(shape))
        done = run("capc", "query", sites["east"], tmp_path / "rows.npz", "--output", "out")
        assert done.exit_code == 2
        assert said in done.output


def test_rows_that_are_clipped_are_told(
    coalition: Any, run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sites, terms = coalition
    rows = np.zeros((3, 3))
    for outside, said in ((0.0, False), (2 * terms.bound, True)):
        rows[1] = outside
        np.savez(tmp_path / "rows.npz", X=rows)
        run("capc", "query", sites["east"], tmp_path / "rows.npz", "--output", "out")
        assert ("1 of 3 rows have values beyond bound" in capfd.readouterr().err) == said


def test_what_others_can_read_or_change_is_told(coalition: Any, tmp_path: Path) -> None:
    site = Site.read(coalition[0]["north"])
    assert site.model is not None
    folder = site.model.parent
    told: list[str] = []
    for path, mode, count in ((folder, 0o755, 2), (folder, 0o700, 0)):
        path.chmod(mode)
        site.model.chmod(0o644)
        site.trust.chmod(0o777)
        told.clear()
        begin(site, told.append)
        assert sum(line.startswith("WARNING") for line in told) == count, told
    site.trust.chmod(0o700)


def test_a_fingerprint_may_be_named_as_the_list_shows_it(run: Run) -> None:
    made = [
        json.loads(run("capc", "certs", "make", "north", "--folder", f, "--json").output)
        for f in ("one", "two")
    ]
    for folder in ("one", "two"):
        assert run("capc", "certs", "pin", f"{folder}/north.pem").exit_code == 0
    first, second = (each["fingerprint"] for each in made)
    assert run("capc", "certs", "revoke", "north", "--fingerprint", first[:12]).exit_code == 2
    gone = run("capc", "certs", "revoke", "north", "--fingerprint", first[:16])
    assert f"Revoked north: {first}" in gone.output
    left = json.loads(run("capc", "certs", "list", "--json").output)["certificates"]
    assert [each["fingerprint"] for each in left] == [second]
