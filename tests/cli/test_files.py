from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from tests.refusals import refused

from privote.cli.files import claimed, read_array
from privote.report.tables import write_label_csv


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
    write_label_csv(labels, tmp_path / "labels.csv")
    assert (read_array(tmp_path / "labels.csv", "baseline") == labels).all()
    one = np.array([[1], [0]], np.int8)
    write_label_csv(one, tmp_path / "one.csv")
    assert (read_array(tmp_path / "one.csv", "baseline") == one).all()


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
