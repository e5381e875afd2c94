"""Pictures from the command line: a folder and a table in; a student that predicts pictures out."""

from __future__ import annotations

import csv
import json
import shutil
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from tests.cli.conftest import invoke
from tests.refusals import refused

import privote as pv
from privote.datasets import Images, pictures
from privote.learning import PictureEncoder
from privote.learning.pictures import _WHEELS

pytest.importorskip("efficientnet_lite_pytorch", reason="needs the extra [pictures]")

BUDGET = ("--epsilon", "8", "--delta", "1e-3")


def draw(folder: Path, count: int, seed: int) -> None:
    """Draw discs and squares, as JPEG and PNG, with a table of what there is."""
    folder.mkdir()
    rng = np.random.default_rng(seed)
    with (folder / "labels.csv").open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["file", "who", "disc", "square"])
        for place in range(count):
            image = Image.new("RGB", (60, 48), tuple(rng.integers(0, 90, 3).tolist()))
            disc, square = (rng.random(2) < 0.5).tolist()
            x, y = rng.integers(2, 12, 2).tolist()
            pen = ImageDraw.Draw(image)
            if disc:
                pen.ellipse((x, y, x + 22, y + 22), fill="red")
            if square:
                pen.rectangle((x + 25, y + 4, x + 45, y + 26), fill="yellow")
            name = f"{place:03}.{'jpg' if place % 2 else 'png'}"
            image.save(folder / name)
            table.writerow([name, f"p{place // 2}", int(disc), int(square)])


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    home = tmp_path_factory.mktemp("pictures")
    for name, count, seed in (("private", 40, 0), ("public", 24, 1), ("test", 16, 2)):
        draw(home / name, count, seed)
    return home


@pytest.fixture
def broken(drawn, tmp_path):
    """Return a copy of the folder of private pictures that a test may break."""
    return Path(shutil.copytree(drawn / "private", tmp_path / "private"))


def train(drawn, private, output, *more):
    table = private / "labels.csv"
    sides = ("--table", table, "--public", drawn / "public", "--size", 64)
    return invoke("train", private, *sides, *BUDGET, "--output", output, *more)


@pytest.fixture(scope="module")
def run(drawn):
    output, cache = drawn / "run", drawn / "cache"
    more = ("--labels", "disc,square", "--id-column", "file", "--group-column", "who")
    more += ("--test", drawn / "test" / "labels.csv", "--cache", cache)
    result = train(drawn, drawn / "private", output, *more, "--json")
    assert result.exit_code == 0, result.output
    return output


def test_a_folder_with_a_table_becomes_a_student_of_pictures(drawn, run):
    figures = json.loads((run / "for-the-owner.json").read_text())
    assert "AUC" in json.dumps(figures)
    assert "efficientnet-lite0" in (run / "report.html").read_text()
    cache = drawn / "cache" / "features.sqlite"
    assert cache.stat().st_mode & 0o777 == 0o600  # as private as the pictures

    output = drawn / "predictions.csv"
    result = invoke("predict", run / "student.student", drawn / "test", "--output", output)
    assert result.exit_code == 0, result.output
    with output.open() as stream:
        rows = list(csv.DictReader(stream))
    test = pictures(drawn / "test", drawn / "test" / "labels.csv", labels=("disc", "square"))
    assert [row["file"] for row in rows] == test.ids.tolist()

    student = pv.load(run / "student.student")
    assert student.encoder.to_plain()["size"] == 64
    chance = student.predict_proba(drawn / "test")
    assert np.allclose(chance, student.predict_proba(test.X))
    assert np.allclose(chance[:, 0], [float(row["disc probability"]) for row in rows], atol=1e-6)


def test_what_is_kept_is_what_would_be_computed(drawn, tmp_path, monkeypatch):
    encoder = PictureEncoder(size=64, cache=tmp_path / "cache")
    first, done = encoder.numbers(drawn / "test"), []
    with monkeypatch.context() as patch:
        patch.setattr(PictureEncoder, "_mapped", None)  # nothing is embedded twice
        again = replace(encoder, progress=lambda *told: done.append(told)).numbers(drawn / "test")
    told, kept = [], [at[1:] for at in done]
    anew = PictureEncoder(size=64, progress=lambda *at: told.append(at[1:])).numbers(drawn / "test")
    # How many pictures persons have, and which are kept, is private.
    assert told == kept == [(percent, 100) for percent in range(1, 101)]
    assert first.tobytes() == again.tobytes() == anew.tobytes()


def test_no_picture_moves_the_features_of_another(drawn):
    every = pictures(drawn / "private").X
    encoder = PictureEncoder(size=64)
    base = encoder.numbers(every)
    for place in (0, 17, 39):  # in the first batch, and in the one that is padded
        others = np.delete(np.arange(len(every)), place)
        assert encoder.numbers(every.take(others)).tobytes() == base[others].tobytes()
    turned = np.random.default_rng(0).permutation(len(every))
    assert encoder.numbers(every.take(turned)).tobytes() == base[turned].tobytes()


def test_where_places_matter_pictures_are_mapped_one_at_a_time(drawn, monkeypatch):
    every = pictures(drawn / "test").X
    base = PictureEncoder(size=64).numbers(every)
    monkeypatch.setattr("privote.learning.networks.same_anywhere", lambda *_: False)
    alone = PictureEncoder(size=64).numbers(every)
    assert np.allclose(alone, base, atol=1e-3)
    assert PictureEncoder(size=64).numbers(every.take([5])).tobytes() == alone[5:6].tobytes()


def test_an_array_of_pictures_is_embedded_row_by_row(drawn):
    pixels = np.random.default_rng(0).integers(0, 256, (35, 1, 20, 24)).astype(np.uint8)
    encoder = PictureEncoder(size=64)
    base = encoder.numbers(pixels)
    assert base.shape == (35, 1280)
    assert encoder.numbers(pixels[1:]).tobytes() == base[1:].tobytes()
    for wrong in (pixels.astype(int), pixels.astype(float), pixels[:, :, 0], pixels[:, [0, 0]]):
        with refused("X"):
            encoder.numbers(wrong)


def test_a_picture_is_turned_as_the_camera_was_held(tmp_path):
    image = Image.new("L", (40, 20))
    image.paste(255, (0, 0, 20, 20))  # the left half is white
    exif = image.getexif()
    exif[0x0112] = 6  # to be turned right: then it is the upper half
    image.save(tmp_path / "a.jpg", exif=exif, quality=95)
    pixels = Images(paths=[str(tmp_path / "a.jpg")], size=16, channels=1)[0][0]
    assert pixels[:6].min() > 0.9
    assert pixels[10:].max() < 0.1


def huge() -> bytes:
    """Return a PNG whose header says 30,000 x 30,000 pixels."""
    head = b"IHDR" + struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    checked = struct.pack(">I", len(head) - 4) + head + struct.pack(">I", zlib.crc32(head))
    return b"\x89PNG\r\n\x1a\n" + checked


def table(change):
    def edit(folder: Path) -> None:
        file = folder / "labels.csv"
        file.write_text("\n".join(change(file.read_text().splitlines())) + "\n")

    return edit


# What else is no picture, by its content: tests/attacks/test_pictures.py.
BROKEN = {
    "a missing file": lambda f: (f / "000.png").unlink(),
    "a huge header": lambda f: (f / "000.png").write_bytes(huge()),
    "half a file": lambda f: (f / "001.jpg").write_bytes((f / "001.jpg").read_bytes()[:400]),
    "a folder as PNG": lambda f: [(f / "000.png").unlink(), (f / "000.png").mkdir()],
    "pictures without labels": table(lambda rows: rows[:-1]),
    "labels without pictures": table(lambda rows: [*rows, "999.png,p,1,0"]),
    "a picture twice": table(lambda rows: [*rows, rows[1]]),
    "a climbing path": table(lambda rows: [*rows, "../private/000.png,p,1,0"]),
    "an empty name": table(lambda rows: [*rows, ",p,1,0"]),
    "no label": table(lambda rows: [*rows[:-1], rows[-1][:-1] + "maybe"]),
    "no rows": table(lambda rows: rows[:1]),
    "no table": lambda f: (f / "labels.csv").unlink(),
    "no pictures": lambda f: [p.unlink() for p in f.iterdir() if p.suffix != ".csv"],
}
OPTIONS = (
    *("--labels disc,round", "--id-column who", "--id-column name", "--group-column nobody"),
    *("--columns who", "--size 8", "--device abacus", "--embedding resnet50"),
    *("--weights weights.pth", "--public HERE", "--public HERE/labels.csv"),
)


@pytest.mark.parametrize("case", [*BROKEN, *OPTIONS])
def test_broken_pictures_and_wrong_options_charge_nothing(case, drawn, broken, tmp_path):
    more = ["--labels", "disc,square" if case in BROKEN else "disc"]
    if case in BROKEN:
        BROKEN[case](broken)
    else:
        more += case.replace("HERE", str(broken)).split()
    ledger, output = tmp_path / "ledger.db", tmp_path / "out"
    result = train(drawn, broken, output, *more, "--ledger", ledger)
    assert result.exit_code == 2, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    assert not ledger.exists()
    assert not (output / "student.student").exists()


def test_weights_of_another_digest_are_refused(monkeypatch):
    file = _WHEELS["efficientnet-lite0"][0]
    monkeypatch.setitem(_WHEELS, "efficientnet-lite0", (file, "0" * 64))
    with refused("weights"):
        PictureEncoder(size=64).numbers(np.zeros((1, 3, 64, 64), np.uint8))


def test_without_the_wheels_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("privote.learning.pictures.find_spec", lambda name: None)
    with refused(kind=pv.MissingExtraError) as caught:
        PictureEncoder(size=64).numbers(np.zeros((1, 3, 64, 64), np.uint8))
    assert "[pictures]" in str(caught.value)


def test_labels_may_be_listed_in_one_cell(broken):
    rows = ["image,found"]
    for row in csv.DictReader((broken / "labels.csv").open()):
        there = [name for name in ("disc", "square") if row[name] == "1"]
        rows.append(f"{Path(row['file']).stem},{'|'.join(there)}")
    table = broken / "labels.csv"
    known = pictures(broken, table, labels=("square", "disc"))
    table.write_text("\n".join(rows))
    data = pictures(broken, table, labels=("square", "disc"))
    assert np.array_equal(data.Y, known.Y)
    assert data.ids.tolist() == known.ids.tolist()
    with refused("labels"):  # which labels occur is private: they must be named
        pictures(broken, table)


def test_a_folder_needs_a_table(drawn, tmp_path):
    result = invoke("train", drawn / "private", *BUDGET, "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert "--table must be given" in result.output
