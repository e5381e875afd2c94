from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from tests.refusals import refused

from privote.cli.files import claimed, read_array, write_labels


@pytest.mark.parametrize("links", [True, False])
def test_a_file_is_whole_or_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    target = tmp_path / "labels.csv"
    if not links:  # a file system without them still works
        monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError))

    def fail() -> None:
        with claimed(target, force=False) as draft:
            draft.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []
    with claimed(target, force=False) as draft:
        assert not target.exists()
        draft.write_text("done")
    assert target.read_text() == "done"
    assert [path.name for path in tmp_path.iterdir()] == ["labels.csv"]
    os.umask(mask := os.umask(0))
    assert target.stat().st_mode & 0o777 == 0o666 & ~mask


def test_labels_read_back_as_a_baseline(tmp_path: Path) -> None:
    labels = np.array([[1, 0, 1], [0, 0, -1]], np.int8)  # the last was abstained from
    release = SimpleNamespace(labels=labels, label_names=None, query_names=None)
    write_labels(tmp_path / "labels.csv", release)
    assert (read_array(tmp_path / "labels.csv", "baseline") == labels).all()
    release.labels = labels[:, :1]
    write_labels(tmp_path / "one.csv", release)
    assert (read_array(tmp_path / "one.csv", "baseline") == labels[:, :1]).all()


@pytest.mark.parametrize("text", ["", "query,label_0\n0,yes\n", "1,0\n1\n"])
def test_a_baseline_that_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with refused("baseline"):
        read_array(tmp_path / "bad.csv", "baseline")


def test_what_is_read_is_never_replaced(tmp_path: Path) -> None:
    votes = tmp_path / "votes.npz"
    votes.write_text("votes")
    (tmp_path / "link.npz").symlink_to(votes)
    for name in ("votes.npz", "link.npz"):
        with refused("output"), claimed(tmp_path / name, force=True, keep=(votes,)) as draft:
            draft.write_text("labels")
    assert votes.read_text() == "votes"
