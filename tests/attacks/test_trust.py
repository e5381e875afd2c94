"""Forged releases and statements: a file's digest shows damage, and the ledger shows the truth."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.attacks.conftest import BINARY, VOTES, Outcome, accepted, check, write_poll
from tests.cli.conftest import invoke, write_rows
from tests.refusals import refused

import privote as pv
from privote.ledger import digest_of
from privote.release import digest_of_facts

QUERIES = {"allowance": None, "worst-case": None, "data-dependent": 20}
pytestmark = pytest.mark.filterwarnings("ignore::privote.PrivoteWarning")


def label(path: Path, guarantee: str = "worst-case", **changes: Any) -> pv.Release:
    asked: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "mechanism": BINARY}
    asked |= {"queries": QUERIES[guarantee], "guarantee": guarantee, "dataset": guarantee}
    asked |= changes
    return pv.label(asked.pop("votes", VOTES["loud"]), **{"ledger": path, **asked})


def signed(facts: dict[str, Any]) -> str:
    """Return facts as a forger would write them, who knows how digests are made."""
    return json.dumps({**facts, "digest": digest_of_facts(facts)})


def write(file: Path, *, facts: str, **arrays: Any) -> Path:
    """Write the file of a release."""
    np.savez(file, facts=np.array(facts), **arrays)
    return file


# -- what is genuine, and what is not --------------------------------------------------------------

VERBS: dict[str, Any] = {
    "label": ["--mechanism", "binary", "--sigma", 7, "--statement", "s.txt", "--output", "l.csv"],
    "poll": ["--seats", 1, "--shares", "--output", "page"],
    "train": ["--labels", "flu,cold", "--public", "public.csv", "--method", "moments"],
}
VERBS["train"] += ["--columns", "a,b,c", "--output", "run"]


@pytest.mark.parametrize("verb", VERBS)
def test_files_that_were_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, verb: str
) -> None:
    """Each is known to the ledger that charged for it; with any edit, and to another, it is not."""
    monkeypatch.chdir(tmp_path)
    np.save("votes.npy", VOTES["loud"])
    write_rows(write_poll(tmp_path).parent, private=120, public=40)
    source = {"label": "votes.npy", "poll": "poll.csv", "train": "private.csv"}[verb]
    before = {*tmp_path.rglob("*")}
    for ledger, epsilon in (("a.ledger", 2), ("b.ledger", 2.5)):
        more = ["--epsilon", epsilon, "--delta", 1e-5, "--ledger", ledger, "--force"]
        done = invoke(verb, source, *VERBS[verb], *more)
        assert done.exit_code == 0, done.output
    made = [file for file in {*tmp_path.rglob("*")} - before if file.is_file()]
    files = [file for file in made if ".ledger" not in file.name]
    assert files
    through = []
    for file in files:
        assert check(file, Path("b.ledger")), file
        through.append(check(file, Path("a.ledger")))
        content = file.read_bytes()
        for edited in (content[:-9], content.replace(b"2", b"1", 1), content + b"\nIn short: 1.\n"):
            file.write_bytes(edited)
            through.append(check(file, Path("b.ledger")))
        file.write_bytes(content)
    outcome(f"edited files of {verb} that a ledger vouches for", len(through), sum(through))


@pytest.mark.parametrize("guarantee", QUERIES)
def test_releases_that_were_saved(path: Path, guarantee: str, outcome: Outcome) -> None:
    """Whoever forges labels or words, and digests to match, has them from no ledger."""
    file, release = path.with_name("r.npz"), label(path, guarantee)
    made = pv.dependencies.consistent(release, [(0, 1)])
    for genuine in (release, replace(release, label_names=("w", "x", "y", "z"))):
        genuine.save(file)
        assert check(file, path)
    assert made.guarantee.drawn == release.guarantee.drawn
    found = []
    for labels in (1 - release.labels, release.labels[:-1], release.labels[:, :2]):
        guarantees = [release.guarantee, replace(release.guarantee, drawn=digest_of(labels))]
        for each in (replace(release, labels=labels, guarantee=one) for one in guarantees):
            write(file, labels=labels, facts=signed(each.facts()))
            found.append(check(file, path))
    for name, value in {"epsilon": 0.01, "voters": 3000, "simulated": True}.items():
        guarantee_ = replace(release.guarantee, text=None, **{name: value})
        facts = replace(release, guarantee=guarantee_).facts()
        assert facts["guarantee"] != release.facts()["guarantee"]
        words = path.with_name("s.txt")
        words.write_text(guarantee_.statement())
        found.append(check(words, path))
        replace(release, guarantee=replace(release.guarantee, **{name: value})).save(file)
        found.append(check(file, path))
    outcome.of(f"forged labels and statements ({guarantee})", found)


def test_labels_that_released_tallies_do_not_say(path: Path, outcome: Outcome) -> None:
    """Tallies are what was drawn; whoever turns labels and digests over has them from nowhere."""
    file, found = path.with_name("r.npz"), []
    votes = np.random.default_rng(0).random((300, 100, 4)) < 0.3
    for rule in ("likely", "f1", 0.7):
        release = pv.decide(
            pv.label(votes, epsilon=8, delta=1e-5, ledger=path, dataset=f"{rule}"), rule
        )
        release.save(file)
        assert check(file, path)
        labels = 1 - release.labels
        forged = signed(replace(release, labels=labels).facts())
        write(file, labels=labels, tallies=release.tallies, facts=forged)
        assert pv.Release.load(file).guarantee.drawn == release.guarantee.drawn
        found.append(check(file, path))
    outcome.of("labels turned over beside genuine tallies", found)


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
    for kind, votes in VOTES.items():
        release = label(path, guarantee, votes=votes, dataset=kind)
        with closing(pv.Ledger.open(path)) as ledger:
            (run,) = ledger.check(digest_of(release.labels))
            entries = [e for e in ledger.published() if e.get("dataset") == kind]
            entries += [e for e in ledger.published() if e.get("run") == run.run]
        unlike = {"number", "at", "digest", "dataset", "account", "holder", "run", "seal"}
        views.append([{n: v for n, v in e.items() if n not in unlike} for e in entries])
    assert views[0] == views[1]
    assert [entry["kind"] for entry in views[0]] == ["budget", "charge", "commit", "deliver"]


# -- what is edited --------------------------------------------------------------------------------

FORGED: dict[str, Any] = {
    "epsilon": 0.01,
    "delta": 1e-9,
    "kind": "allowance",
    "mechanism": {"mechanism": "binary", "sigma": 70.0},
    "voters": 3000,
    "allowance": 1,
    "simulated": True,
    "standing": None,
    "protects": "a person, with all their records",
    "drawn": "0" * 64,
    "text": "It is so.",
}


def test_edited_releases_do_not_load(path: Path, tmp_path: Path, outcome: Outcome) -> None:
    release = label(path, queries=10)
    named = replace(release, query_names=tuple(f"q{i}" for i in range(release.answered)))
    facts, file, found = named.facts(), tmp_path / "edited.npz", []
    names, text = np.array(named.query_names), json.dumps(facts)
    whole = {"labels": named.labels, "facts": text, "query_names": names}

    def told(**changes: Any) -> dict[str, Any]:
        return {**facts, "guarantee": {**facts["guarantee"], **changes}}

    edits: list[dict[str, Any]] = [
        *({"facts": json.dumps(told(**{name: value}))} for name, value in FORGED.items()),
        {"labels": 1 - named.labels},
        {"query_names": names[::-1]},
        {"facts": text[:-1] + ', "asked": 1}'},  # twice, the last one counts
        {"facts": text.replace('"digest"', '"asked": 1, "digest"')},
        *({"facts": signed(told(epsilon=bad))} for bad in (float("nan"), -1.0, True, "0.01", [1])),
    ]
    for edit in edits:
        write(file, **{**whole, **edit})
        found.append(accepted(pv.InputError, pv.Release.load, file) and edit)
    write(file, labels=named.labels, facts=text)  # without names
    found.append(accepted(pv.InputError, pv.Release.load, file))
    outcome.of("edited releases", found)
    write(file, **dict(reversed(whole.items())))
    assert pv.Release.load(file).facts()["digest"] == facts["digest"]  # in whatever order


def test_two_members_of_one_name(path: Path, tmp_path: Path) -> None:
    release, file = label(path, queries=10), tmp_path / "r.npz"
    release.save(file)
    forged = signed({**release.facts(), "asked": 1})
    with zipfile.ZipFile(write(tmp_path / "f.npz", facts=forged)) as source:
        data = source.read("facts.npy")
    with zipfile.ZipFile(file, "a") as both, pytest.warns(UserWarning, match="Duplicate"):
        both.writestr("facts.npy", data)
    with refused():
        pv.Release.load(file)
    assert not check(file, path)


def test_a_ledger_that_is_broken_vouches_for_nothing(path: Path) -> None:
    label(path, queries=5).save(path.with_name("r.npz"))
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER entries_stay")
        connection.execute("UPDATE entries SET body=replace(body, 'worst', 'best')")
    done = invoke("ledger", "check", path.with_name("r.npz"), "--ledger", path)
    assert done.exit_code == 4
