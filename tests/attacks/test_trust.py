"""Forged releases and statements: a file's digest shows damage, and the ledger shows the truth."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zipfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from privote.guardian import record_kept
from privote.ledger.records import DIFFERS, NOT_RECORDED, RELEASED, digest_of
from tests.attacks.conftest import Killed, Outcome, accepted, check, differing, dying_at
from tests.refusals import refused
from typer.testing import CliRunner

import privote as pv
from privote.cli import app
from privote.errors import DrawnError
from privote.files import Draft, write_statement
from privote.labelling import KeptReleases
from privote.release import digest_of_facts

VOTES = np.random.default_rng(0).random((40, 30, 4)) < 0.2
BUDGET: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "mechanism": pv.BinaryVoting(sigma=7.0)}
QUERIES = {"allowance": None, "worst-case": None, "data-dependent": 20}


def label(path: Path, guarantee: str = "worst-case", **changes: Any) -> pv.Release:
    asked = {**BUDGET, "queries": QUERIES[guarantee], "guarantee": guarantee, **changes}
    return pv.label(asked.pop("votes", VOTES), **{"ledger": path, "dataset": guarantee, **asked})


def signed(facts: dict[str, Any]) -> str:
    """Return facts as a forger would write them, who knows how digests are made."""
    return json.dumps({**facts, "digest": digest_of_facts(facts)})


def write(file: Path, *, facts: str, **arrays: Any) -> Path:
    """Write the file of a release."""
    np.savez(file, facts=np.array(facts), **arrays)
    return file


# -- what is genuine -------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", QUERIES)
def test_what_was_released_is_found(path: Path, guarantee: str, tmp_path: Path) -> None:
    first, second = label(path, guarantee, dataset="a"), label(path, guarantee, dataset="b")
    for release, name in ((first, "a"), (second, "b"), (first, "a")):
        release.save(tmp_path / f"{name}.npz")
        write_statement(release, tmp_path / f"{name}.txt")
        for ending in ("npz", "txt", "json"):
            said = check(tmp_path / f"{name}.{ending}", path)
            assert said["status"] == RELEASED, said
            assert said["entries"] == [release.ledger["entry"]]  # type: ignore[index]
    made = pv.dependencies.consistent(first, [(0, 1)])
    assert made.drawn == first.drawn
    named = replace(made, label_names=("w", "x", "y", "z"))
    named.save(tmp_path / "made.npz")
    said = check(tmp_path / "made.npz", path)
    assert (said["status"], said["labels"]) == (RELEASED, "made of what was drawn")


def test_releases_of_several_draws_are_found(path: Path, tmp_path: Path) -> None:
    ledger = pv.Ledger.open(path)
    settings: dict[str, Any] = {"voters": 30, "labels": 1, "epsilon": 8.0, "delta": 1e-5}
    electorate = pv.Electorate(mechanism=BUDGET["mechanism"], ledger=ledger, **settings)
    gated = pv.dependencies.gated(electorate.answer, VOTES, 0)
    assert len(gated.drawn) > 2
    budget = pv.Budget(epsilon=8.0, delta=1e-5)
    door = pv.Guardian(BUDGET["mechanism"], budget, ledger, guarantee="worst-case", dataset="b")
    costly = pv.dependencies.gated(door.release, VOTES, 0)
    for release in (gated, costly):
        release.save(tmp_path / "gated.npz")
        said = check(tmp_path / "gated.npz", path)
        assert (said["status"], len(said["entries"])) == (RELEASED, len(release.drawn)), said
        replace(release, epsilon=0.9 * (release.epsilon or 0)).save(tmp_path / "less.npz")
        assert differing(check(tmp_path / "less.npz", path)) == {"epsilon"}
    ledger.close()


def test_the_digest_is_of_numbers_not_of_their_layout() -> None:
    labels = np.array([[0, 1, -1], [1, 1, 0]], np.int8)
    assert digest_of(labels) == digest_of(np.asfortranarray(labels)) == digest_of(labels[::1])
    tallies = labels.astype(np.int64)
    assert digest_of(tallies) == digest_of(tallies.astype(">i8")) == digest_of(tallies.astype("i4"))
    different = [labels, tallies, labels.T, labels.reshape(-1), labels[:0], labels[:0, :2]]
    assert len({digest_of(array) for array in different}) == len(different)
    with pytest.raises(pv.InputError):
        digest_of(labels.astype("u8"))
    floats = np.arange(6).reshape(2, 3) / 7
    assert digest_of(floats) == digest_of(np.asfortranarray(floats.astype(">f8")))
    assert digest_of(floats[0], floats[1]) != digest_of(floats) != digest_of(floats.T)


@pytest.mark.parametrize("guarantee", QUERIES)
def test_the_published_view_says_nothing_of_what_was_drawn(path: Path, guarantee: str) -> None:
    views = []
    agreed = np.repeat(VOTES[:30, :1], 60, axis=1)
    torn = np.random.default_rng(1).random((30, 60, 4)) < 0.5
    for name, votes in (("agreed", agreed), ("torn", torn)):
        release = label(path, guarantee, votes=votes, dataset=name)
        with closing(pv.Ledger.open(path)) as ledger:
            entries = [e for e in ledger.published() if e["dataset"] == name]
            hidden = ledger.records().outcomes[-1].hidden
        assert hidden["drawn"] == digest_of(release.labels)
        unlike = {"number", "at", "digest", "dataset", "account"}
        views.append([{n: v for n, v in e.items() if n not in unlike} for e in entries])
    assert views[0] == views[1]


# -- what is forged --------------------------------------------------------------------------------

FORGED: dict[str, Any] = {
    "epsilon": 0.01,
    "delta": 1e-9,
    "guarantee": "allowance",
    "budget": 0.5,
    "mechanism": {"mechanism": "binary", "sigma": 70.0},
    "voters": 3000,
    "allowance": 1,
    "terms": {"order": 2.0},
    "simulated": True,
    "dataset": "another",
    "new": False,
    "rule": "exclusive",
    "so_far": 1,
    "total": 7.9,
    "share": 0.5,
    "runs": 3,
    "protects": "a person, with all their records",
    "made": "2020-01-01 00:00 UTC",
    "answered": 7,
    "abstained": 5,
    "labels": 9,
    "drawn": ["0" * 64],
    "sha256": {"labels": "0" * 64, "query_names": None},
}


@pytest.mark.parametrize("guarantee", QUERIES)
def test_every_fact_forged_in_turn(path: Path, guarantee: str, outcome: Outcome) -> None:
    release = label(path, guarantee)
    facts, found = release.facts(), []
    for name, value in FORGED.items():
        if facts[name] == value:
            continue
        forged = {**facts, name: value}
        one = write(path.with_name("forged.npz"), labels=release.labels, facts=signed(forged))
        two = path.with_name("forged.json")
        two.write_text(signed(forged))
        for file in (one, two):
            said = check(file, path)
            found.append(said["status"] == RELEASED)
            if file.suffix == ".json" and name not in ("drawn", "sha256"):
                assert name in differing(said), (name, said)
        two.write_text(json.dumps({**facts, name: value}))  # by one who leaves the digest
        assert "digest" in differing(check(two, path))
    for labels in (1 - release.labels, release.labels[:-1], release.labels[:, :2]):
        true = replace(release, labels=labels).facts()
        for drawn in (release.drawn, (digest_of(labels),)):
            text = signed({**true, "drawn": list(drawn)})
            said = check(write(path.with_name("l.npz"), labels=labels, facts=text), path)
            found.append(said["status"] == RELEASED)
    outcome.of(f"forged facts and labels ({guarantee})", found)


def test_edited_releases_do_not_load(path: Path, tmp_path: Path, outcome: Outcome) -> None:
    release = label(path, queries=10)
    named = replace(release, query_names=tuple(f"q{i}" for i in range(release.answered)))
    facts, file, found = named.facts(), tmp_path / "edited.npz", []
    names, text = np.array(named.query_names), json.dumps(facts)
    whole = {"labels": named.labels, "facts": text, "query_names": names}
    edits: list[dict[str, Any]] = [
        *({"facts": json.dumps({**facts, name: value})} for name, value in FORGED.items()),
        {"labels": 1 - named.labels},
        {"query_names": names[::-1]},
        {"facts": text[:-1] + ', "epsilon": 0.01}'},  # twice, the last one counts
        {"facts": text.replace('"digest"', '"epsilon": 0.01, "digest"')},
    ]
    for value in (float("nan"), -1.0, True, "0.01", [0.01]):
        edits.append({"facts": signed({**facts, "epsilon": value})})
    for edit in edits:
        write(file, **{**whole, **edit})
        found.append(accepted(pv.InputError, pv.Release.load, file))
    write(file, labels=named.labels, facts=text)  # without names
    found.append(accepted(pv.InputError, pv.Release.load, file))
    outcome.of("edited releases", found)
    write(file, **dict(reversed(whole.items())))
    assert pv.Release.load(file).digest == named.digest  # in whatever order


def test_two_members_of_one_name(path: Path, tmp_path: Path) -> None:
    release, file = label(path, queries=10), tmp_path / "r.npz"
    release.save(file)
    forged = signed({**release.facts(), "epsilon": 0.01})
    with zipfile.ZipFile(write(tmp_path / "f.npz", facts=forged)) as source:
        data = source.read("facts.npy")
    with zipfile.ZipFile(file, "a") as both, pytest.warns(UserWarning, match="Duplicate"):
        both.writestr("facts.npy", data)
    with refused():
        pv.Release.load(file)
    assert check(file, path)["status"] == "refused"


def test_words_other_than_those_of_the_facts(path: Path, tmp_path: Path, outcome: Outcome) -> None:
    write_statement(label(path, queries=10), tmp_path / "s.txt")
    text, found = (tmp_path / "s.txt").read_text(), []
    lines = text.splitlines()
    forged = [
        text.replace("epsilon: ", "epsilon: 0.01. Not "),
        text.replace("'worst-case'", "'another'"),
        text + "In short, epsilon is 0.01.\n",
        text + "Software: privote 0.2.0, and epsilon is 0.01.\n",
        "\n".join(line for line in lines if not line.startswith("delta")),
        "",
    ]
    for words in forged:
        (tmp_path / "s.txt").write_text(words)
        said = check(tmp_path / "s.txt", path)
        found.append(said["status"] == RELEASED)
        assert "text" in differing(said)
    outcome.of("statements in other words than their facts", found)
    (tmp_path / "s.json").unlink()
    assert check(tmp_path / "s.txt", path)["status"] == "refused"


def test_other_ledgers_and_older_ones(path: Path, tmp_path: Path) -> None:
    label(path, dataset="first", queries=5)
    old = shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-old"))
    label(path, dataset="second", queries=5).save(tmp_path / "r.npz")
    label(tmp_path / "another.db", dataset="second", queries=5)
    assert check(tmp_path / "r.npz", path)["status"] == RELEASED
    for ledger in (old / "ledger.db", tmp_path / "another.db"):
        said = check(tmp_path / "r.npz", ledger)
        assert said["status"] == DIFFERS
        assert "ledger" in differing(said)
    alone = pv.label(VOTES, **BUDGET, guarantee="worst-case")
    alone.save(tmp_path / "alone.npz")
    assert differing(check(tmp_path / "alone.npz", path)) == {"ledger"}
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER entries_stay")
        connection.execute("UPDATE entries SET body=replace(body, 'second', 'third')")
    done = CliRunner().invoke(
        app, ["ledger", "check", str(tmp_path / "r.npz"), "--ledger", str(path)]
    )
    assert done.exit_code == 4


# -- after a crash ---------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", QUERIES)
def test_what_a_crash_kept_from_being_recorded(
    path: Path, guarantee: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, draft = path.with_name("r.npz"), path.with_name(".r.npz.draft")
    with monkeypatch.context() as patch:
        patch.setattr(pv.Ledger, "append", dying_at("outcome"))
        with pytest.raises(Killed):
            label(path, guarantee, output=output)
    shutil.copy(draft, path.with_name("copy"))
    with refused(None, pv.ChargedError):  # not without the ledger that was charged
        label(path, guarantee, output=output, resume=True, force=True, ledger=None, votes=None)
    with Draft(draft, {}, resume=True) as opened:
        KeptReleases(opened).together()[0].save(output)
    assert check(output, path)["status"] == NOT_RECORDED
    for votes in (VOTES, None, VOTES):  # and again: it is recorded once
        shutil.copy(path.with_name("copy"), draft)
        label(path, guarantee, output=output, resume=True, force=True, votes=votes)
        assert check(output, path)["status"] == RELEASED
    with closing(pv.Ledger.open(path)) as ledger:
        assert [e["kind"] for e in ledger.published()].count("outcome") == 1


def test_a_draft_records_no_more_than_was_charged(path: Path, outcome: Outcome) -> None:
    """What a draft holds is the owner's file: a ledger vouches only for what it charged."""
    release = label(path)
    other = replace(release, labels=1 - release.labels)
    forged: list[dict[str, Any]] = [
        {},  # labels are recorded already
        {"epsilon": 0.01},
        {"dataset": "another"},
        {"ledger": {"entry": 2, "digest": "0" * 64}},
    ]
    found = []
    for facts in forged:
        kept = replace(other, **facts)
        with refused(None, DrawnError):
            record_kept(path, kept, 0)
        kept.save(path.with_name("r.npz"))
        found.append(check(path.with_name("r.npz"), path)["status"] != DIFFERS)
    with closing(pv.Ledger.open(path)) as ledger:
        assert len(ledger.records().outcomes) == 1
    outcome.of("forged drafts that a ledger would vouch for", found)
