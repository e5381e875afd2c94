"""Files from strangers: whatever they hold, one sentence comes out, or the votes."""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import signal
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from PIL import Image
from tests.attacks.conftest import Outcome, accepted, damaged, in_a_child, scaled, time_limit
from tests.cli.conftest import invoke
from tests.refusals import refused

import privote as pv
from privote.capc.models import SiteModel
from privote.capc.site import read_toml
from privote.cli.files import read_array, read_names
from privote.datasets import Images
from privote.datasets.tables import table
from privote.errors import PrivoteError
from privote.votes import arrays as votefiles

VOTES = np.random.default_rng(0).random((40, 5, 3)) < 0.3
Make = Callable[[Path], Any]


def got_through(read: Callable[[Path], Any], path: Path, want: Any = None) -> str | None:
    """Return what is wrong with how a file was read; None if it was refused, or read rightly."""
    try:
        with time_limit():
            got = read(path)
    except PrivoteError as error:
        return None if "\n" not in str(error) and len(str(error)) < 700 else f"words: {error}"
    except BaseException as error:  # what this is about
        return f"{type(error).__name__}: {error}"
    if want is not None and not np.array_equal(got, want):
        return "other votes"
    return None


def cube(path: Path) -> Any:
    ballots = votefiles.read(path)
    assert ballots.queries * ballots.voters * ballots.labels < 1 << 28
    return ballots.to_array()


def _columns(kind: str = "int64") -> dict[str, Any]:
    query, voter = (axis.reshape(-1).astype(kind) for axis in np.indices(VOTES.shape[:2]))
    labels = {f"label_{i}": VOTES[:, :, i].reshape(-1) for i in range(VOTES.shape[2])}
    return {"query": query, "voter": voter, **labels}


def _zarr(path: Path, **how: Any) -> None:
    given = {"shape": VOTES.shape, "dtype": "int8", "chunks": (8, 5, 3), **how}
    zarr.create_array(str(path), **given)[:] = VOTES.astype(np.int8)


def _group(path: Path) -> None:
    group = zarr.open_group(str(path), mode="w")
    group.create_array("votes", shape=VOTES.shape, dtype="int8")[:] = VOTES.astype(np.int8)


def _parquet(path: Path) -> None:
    pq.write_table(pa.table(_columns()), path, row_group_size=60, write_page_checksum=True)


def _lines(head: str, row: str) -> Make:
    return lambda path: path.write_text("\n".join([head, *(row.format(i) for i in range(30))]))


def _rows(path: Path) -> None:
    rows = np.random.default_rng(1).random((30, 4)).astype(np.float32)
    np.savez_compressed(path, X=rows, Y=(rows > 0.5).astype(np.int8))


def _release(path: Path) -> None:
    mechanism = pv.BinaryVoting(sigma=4.0)
    pv.label(VOTES, epsilon=8, delta=1e-5, mechanism=mechanism).save(path)


def _model(path: Path) -> None:
    line = {"weights": np.ones((4, 2)), "bias": np.zeros(2)}
    SiteModel(**line, labels=("a", "b"), thresholds=np.full(2, 0.5)).save(path)


TERMS = 'name = "a"\n[terms]\nlabels = ["a", "b"]\nvoters = [1, 2]\n'


def truth(path: Path) -> Any:
    return read_array(path, "truth")


# The file, how it is made and read, and what a read that succeeds must give, if a checksum says.
FORMATS: dict[str, tuple[str, Make, Callable[[Path], Any], Any]] = {
    "npy": ("v.npy", lambda path: np.save(path, VOTES), cube, None),
    "npz": ("v.npz", lambda path: np.savez(path, votes=VOTES), cube, VOTES),
    "compressed npz": (
        "v.npz",
        lambda path: np.savez_compressed(path, votes=VOTES.astype(np.int8)),
        cube,
        VOTES,
    ),
    "packed npz": ("v.npz", lambda path: votefiles.write_packed(path, VOTES), cube, VOTES),
    "zarr 3": ("v.zarr", _zarr, cube, None),
    "zarr 2": ("v.zarr", lambda path: _zarr(path, zarr_format=2), cube, None),
    "zarr shards": ("v.zarr", lambda path: _zarr(path, shards=(16, 5, 3)), cube, None),
    "zarr group": ("v.zarr", _group, cube, None),
    "parquet": ("v.parquet", _parquet, cube, None),
    "truth csv": ("t.csv", _lines("query,a,b", "{0},1,0"), truth, None),
    "truth npy": ("t.npy", lambda path: np.save(path, VOTES), truth, None),
    "truth npz": ("t.npz", lambda path: np.savez(path, truth=VOTES), truth, VOTES),
    "names": ("n.txt", _lines("v", "v{0}"), read_names, None),
    "rows npz": ("r.npz", _rows, table, None),
    "rows parquet": (
        "r.parquet",
        lambda path: pq.write_table(pa.table({"a": np.arange(30.0), "b": np.arange(30)}), path),
        table,
        None,
    ),
    "rows csv": ("r.csv", _lines("a,b", "{0},{0}.5"), table, None),
    "release": ("l.npz", _release, pv.Release.load, None),
    "site model": ("m.npz", _model, SiteModel.load, None),
    "toml": ("t.toml", lambda path: path.write_text(TERMS), read_toml, None),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_one_sentence(name: str, tmp_path: Path, outcome: Outcome) -> None:
    file_name, make, read, want = FORMATS[name]
    whole = tmp_path / file_name
    make(whole)
    assert got_through(read, whole, want) is None
    files = sorted(f for f in whole.rglob("*") if f.is_file()) if whole.is_dir() else [whole]
    rng, found = np.random.default_rng(len(name)), []
    for _ in range(scaled(40, 1000)):
        file = files[int(rng.integers(len(files)))]
        before = file.read_bytes()
        # A new file, not the old one written over: that may still be mapped.
        file.unlink()
        file.write_bytes(damaged(before, rng))
        found.append(got_through(read, whole, want))
        file.unlink()
        file.write_bytes(before)
    outcome.of(f"a damaged file: {name}", found)


class Witness:
    """Unpickled, it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def _evil(path: Path, witness: Path, meta: str, chunk: str, facts: dict[str, Any]) -> None:
    """Write an array, (1, 2, 3), whose chunk runs code if it is unpickled."""
    (path / chunk).parent.mkdir(parents=True)
    (path / meta).write_text(json.dumps({"shape": [1, 2, 3], "fill_value": 0, **facts}))
    (path / chunk).write_bytes(pickle.dumps(Witness(witness)))


def _evil_v2(path: Path, witness: Path, codec: Any = None, dtype: str = "|O") -> None:
    facts = {"zarr_format": 2, "chunks": [1, 2, 3], "dtype": dtype, "order": "C"}
    facts |= {"filters": [codec or {"id": "pickle"}], "compressor": None}
    _evil(path, witness, ".zarray", "0.0.0", facts)


def _evil_v3(path: Path, witness: Path, codecs: list[Any], dtype: Any = "int8") -> None:
    facts = {"zarr_format": 3, "node_type": "array", "data_type": dtype, "codecs": codecs}
    grid = {"name": "regular", "configuration": {"chunk_shape": [1, 2, 3]}}
    keys = {"name": "default", "configuration": {"separator": "/"}}
    facts |= {"chunk_grid": grid, "chunk_key_encoding": keys}
    _evil(path, witness, "zarr.json", "c/0/0/0", facts)


def _evil_group(path: Path, witness: Path) -> None:
    """A group whose copy of the metadata says other than the array's own."""
    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    group.create_array("votes", shape=(1, 2, 3), dtype="int8", chunks=(1, 2, 3))
    zarr.consolidate_metadata(str(path), zarr_format=2)
    _evil_v2(path / "other", witness)
    facts = json.loads((path / ".zmetadata").read_text())
    facts["metadata"]["votes/.zarray"] = json.loads((path / "other/.zarray").read_text())
    (path / ".zmetadata").write_text(json.dumps(facts))
    shutil.copy(path / "other/0.0.0", path / "votes/0.0.0")


_SHARD = {
    "name": "sharding_indexed",
    "configuration": {
        "chunk_shape": [1, 2, 3],
        "codecs": [{"name": "numcodecs.pickle"}],
        "index_codecs": [{"name": "bytes"}, {"name": "crc32c"}],
    },
}
# The maker, and what it is told.
EVIL: dict[str, tuple[Any, ...]] = {
    "v2 pickle": (_evil_v2,),
    "v2 pickle as numbers": (_evil_v2, None, "|i1"),
    "v2 msgpack": (_evil_v2, {"id": "msgpack2"}),
    "v2 object without filters": (_evil_v2, {"id": "vlen-utf8"}),
    "v2 codec that is no object": (_evil_v2, "pickle", "|i1"),
    "v2 categories": (_evil_v2, {"id": "categorize"}, "|i1"),
    "v3 pickle": (_evil_v3, [{"name": "numcodecs.pickle"}]),
    "v3 pickle by word": (_evil_v3, ["numcodecs.pickle"]),
    "v3 object": (_evil_v3, [{"name": "vlen-bytes"}], "variable_length_bytes"),
    "v3 shard": (_evil_v3, [_SHARD]),
    "v3 type": (_evil_v3, [{"name": "bytes"}], {"name": "object"}),
    "consolidated": (_evil_group,),
}


@pytest.mark.filterwarnings("ignore")
def test_zarr_runs_no_code(tmp_path: Path, outcome: Outcome) -> None:
    found = []
    for number, (name, (make, *told)) in enumerate(EVIL.items()):
        path, witness = tmp_path / f"{number}.zarr", tmp_path / f"ran-{number}"
        make(path, witness, *told)
        found += [got_through(cube, path) or (f"{name} ran" if witness.exists() else None)]
        if name != "consolidated":  # whose own metadata is harmless, and is what counts
            with refused(kind=pv.BallotError):
                votefiles.read(path)
    outcome.of("a Zarr array that runs code", found)


STRANGE: dict[str, Callable[[Path], Any]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path),
    "folder": Path.mkdir,
    "empty": Path.touch,
    "long name": lambda path: None,
}


# By the ending of a file's name; of several kinds of file with one ending, one is enough.
READERS = {(Path(file).suffix, read) for file, _, read, _ in FORMATS.values()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", STRANGE)
def test_what_is_no_file_is_one_sentence(kind: str, tmp_path: Path, outcome: Outcome) -> None:
    found = []
    for number, (suffix, read) in enumerate(READERS):
        if kind == "empty" and suffix in (".txt", ".toml"):
            continue  # there is nothing in it, which is fine
        path = tmp_path / f"{'x' * 300 if kind == 'long name' else number}{suffix}"
        STRANGE[kind](path)
        # A pipe may wait, and a device fill the memory: not in this process.
        judge = _apart if kind in ("pipe", "device") else got_through
        found.append(judge(read, path))
    outcome.of(f"no file but a {kind}", found)


def _apart(read: Callable[[Path], Any], path: Path) -> str | None:
    """Return what is wrong with a reading in a process of its own, short of memory and time."""

    def job() -> int:
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(5)
        return accepted(PrivoteError, read, path)

    code = in_a_child(job)
    return f"{path.suffix}: {code}" if code else None


def _header(shape: Any, descr: str = "|b1", version: int = 1, pad: int = 0) -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * pad + b"\n"
    count = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + count + text


def _zip_of(path: Path, packing: int = zipfile.ZIP_STORED, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)


def _bomb(path: Path) -> None:
    """Three gigabytes of zeros in three megabytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = packer.compress(_header((3 << 10, 1 << 10, 1 << 10))) + packer.flush(zlib.Z_FULL_FLUSH)
    part = packer.compress(bytes(1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)
    _zip_of(path, votes=head + 192 * part + packer.flush())
    content = bytearray(path.read_bytes())
    for mark, method, size in ((b"PK\x03\x04", 8, 22), (b"PK\x01\x02", 10, 24)):
        place = content.rindex(mark) if mark[2] == 1 else content.index(mark)
        content[place + method] = zipfile.ZIP_DEFLATED
        unpacked = len(_header((3 << 10, 1 << 10, 1 << 10))) + (3 << 30)
        content[place + size : place + size + 4] = struct.pack("<I", unpacked)
    path.write_bytes(content)


def _lying_size(path: Path) -> None:
    """A directory that says less than there is."""
    _zip_of(path, zipfile.ZIP_DEFLATED, votes=_header((100, 10, 10)) + bytes(10_000))
    content = bytearray(path.read_bytes())
    place = content.rindex(b"PK\x01\x02")
    content[place + 24 : place + 28] = struct.pack("<I", 200)
    path.write_bytes(content)


def _twice(path: Path) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")
        for value in (b"\0", b"\1"):
            archive.writestr("votes.npy", _header((1, 1, 1)) + value)


_BITS = np.zeros(2, np.uint8)


def _long_header(path: Path) -> None:
    """A header of three gigabytes, most of it a hole."""
    path.write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 3 << 30))
    os.truncate(path, (3 << 30) + 100)


def _hollow_zarr(shape: list[int], chunks: list[int]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        _evil_v3(path, path / "none", [{"name": "bytes"}])
        facts = json.loads((path / "zarr.json").read_text()) | {"shape": shape}
        facts["chunk_grid"]["configuration"]["chunk_shape"] = chunks
        (path / "zarr.json").write_text(json.dumps(facts))
        shutil.rmtree(path / "c")

    return make


def _runs(path: Path) -> None:
    """A row group of equal values: a few bytes a million rows."""
    part = pa.array(np.zeros(5_000_000, np.int8))
    names = ("query", "voter", *(f"label_{i}" for i in range(30)))
    pq.write_table(pa.table(dict.fromkeys(names, part)), path, row_group_size=len(part))


def _zarr_file(name: str, content: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.mkdir()
        (path / name).write_bytes(content)

    return make


def _pipe_chunk(path: Path) -> None:
    _evil_v3(path, path / "none", [{"name": "bytes"}])
    (path / "c/0/0/0").unlink()
    os.mkfifo(path / "c/0/0/0")


# The ending, and what the file holds or how it is made.
BOMBS: dict[str, tuple[str, bytes | Callable[[Path], Any]]] = {
    "zip bomb": (".npz", _bomb),
    "a directory that lies": (".npz", _lying_size),
    "two arrays of one name": (".npz", _twice),
    "header of gigabytes": (".npy", _long_header),
    "shape beyond the file": (".npy", _header((10**9, 10**6, 100)) + b"\1" * 64),
    "shape beyond integers": (".npy", _header((10**400, 1, 1)) + b"\1" * 64),
    "empty shape beyond memory": (".npy", _header((0, 10**18, 3))),
    "negative shape": (".npy", _header((-2, -2, 3)) + bytes(12)),
    "shape of bools": (".npy", _header((True, True, True)) + b"\1"),
    "deep header": (".npy", _header("(" * 9000)),
    "wide header": (".npy", _header((1, 1, 1), pad=60_000) + b"\1"),
    "objects": (".npy", _header((1, 1, 1), "|O") + pickle.dumps(1)),
    "texts without letters": (".npy", _header((10**12,), "<U0")),
    "npz shape beyond the file": (".npz", lambda p: _zip_of(p, votes=_header((10**9, 99, 99)))),
    "npz packed otherwise": (
        ".npz",
        lambda p: _zip_of(p, zipfile.ZIP_LZMA, votes=_header((1, 1, 1)) + b"\1"),
    ),
    "negative packed shape": (".npz", lambda p: np.savez(p, votes=_BITS, shape=[-1, -1, 16])),
    "unsigned packed shape": (".npz", lambda p: np.savez(p, votes=_BITS, shape=[2**64 - 1, 1, 1])),
    "hollow zarr": (".zarr", _hollow_zarr([10**9, 10**4, 10**3], [1, 10**4, 10**3])),
    "wide zarr": (".zarr", _hollow_zarr([2, 10**6, 10**6], [1, 1, 1])),
    "zarr chunk beyond memory": (".zarr", _hollow_zarr([2, 2, 2], [10**6, 10**6, 10**6])),
    "zarr of negative sides": (".zarr", _hollow_zarr([-2, -2, 2], [1, 1, 1])),
    "zarr chunk that is a pipe": (".zarr", _pipe_chunk),
    "deep metadata": (".zarr", _zarr_file("zarr.json", b'{"a":' * 100_000)),
    "metadata that is no object": (".zarr", _zarr_file(".zarray", b"[1]")),
    "parquet runs": (".parquet", _runs),
}


def test_sizes_that_nothing_backs_are_refused(tmp_path: Path, outcome: Outcome) -> None:
    found = []
    for name, (suffix, make) in BOMBS.items():
        path = tmp_path / f"{name}{suffix}"
        path.write_bytes(make) if isinstance(make, bytes) else make(path)
        broken = _apart(cube, path)
        found.append(broken and f"{name}: {broken}")
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    outcome.of("a file that claims more than it has", found)


TYPES = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


def test_parquet_is_read_in_its_order_or_refused(tmp_path: Path, outcome: Outcome) -> None:
    rng, found = np.random.default_rng(0), []
    rows = np.arange(VOTES.shape[0] * VOTES.shape[1])
    orders = {"sorted": rows, "reversed": rows[::-1], "shuffled": rng.permutation(rows)}
    orders |= {"one late row": np.append(rows[1:], 0), "one row less": rows[:-1]}
    for kind, (order, places) in product(TYPES, orders.items()):
        for size in (7, 60, 1000):
            made = pa.table({name: column[places] for name, column in _columns(kind).items()})
            pq.write_table(made, tmp_path / "v.parquet", row_group_size=size)
            found.append(got_through(cube, tmp_path / "v.parquet", VOTES))
            if order == "sorted":
                assert np.array_equal(cube(tmp_path / "v.parquet"), VOTES)  # kept, not refused
    outcome.of("a Parquet file in another order", found)


@pytest.mark.parametrize("guarantee", ["allowance", "worst-case"])
def test_a_file_that_changes_after_it_was_checked(
    guarantee: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    """What was checked is what is counted, whatever the file's bytes become meanwhile."""
    votes, tallies = np.zeros((4, 20, 3), np.bool_), []
    np.save(tmp_path / "votes.npy", votes)
    ballots = votefiles.read(tmp_path / "votes.npy")
    with (tmp_path / "votes.npy").open("r+b") as stream:
        stream.seek(-votes.size, os.SEEK_END)
        votes.view(np.uint8)[:, 0] = 15  # in range as a count, and not as a vote
        stream.write(votes.tobytes())
    tally = pv.BinaryVoting.tally

    def seen(self: pv.BinaryVoting, block: Any) -> Any:
        tallies.append(tally(self, block))
        return tallies[-1]

    monkeypatch.setattr(pv.BinaryVoting, "tally", seen)
    settings = {"mechanism": pv.BinaryVoting(sigma=40.0), "epsilon": 8.0, "delta": 1e-5}
    pv.label(ballots, guarantee=guarantee, **settings)
    counted = [found.margins for found in tallies if found.margins.shape[1] == 3]  # no forecast
    assert sum(map(len, counted)) >= 1
    through = sum(int((margins != -20).sum()) for margins in counted)
    outcome(f"{guarantee}: votes that grow after the check", votes[:, 0].size, through)


@pytest.mark.parametrize("when", ["checked", "charged"])
@pytest.mark.parametrize("kind", ["npy", "npz", "packed"])
def test_a_file_that_is_cut_off_after_it_was_checked(
    kind: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    """A process that maps a file dies when the file becomes shorter, by SIGBUS."""
    votes = np.random.default_rng(0).random((2048, 4, 8)) < 0.1
    votes &= np.cumsum(votes, axis=2) <= 1
    path = tmp_path / f"votes.{'npy' if kind == 'npy' else 'npz'}"
    write = {"packed": votefiles.write_packed, "npy": np.save}.get(kind)
    np.savez(path, votes=votes) if write is None else write(path, votes)
    # Of ballots for plurality the form is checked, too, just before the charge.
    name = "binary" if when == "charged" else "plurality"
    asked = ["label", path, "--mechanism", name, "--sigma", 5, "--epsilon", 8, "--delta", 1e-5]
    asked += ["--guarantee", "allowance", "--ledger", tmp_path / "ledger.db"]
    asked += ["--output", tmp_path / "labels.npz"]
    place, step = (pv.BinaryVoting, "draw") if when == "charged" else (pv.Ledger, "open")
    before = getattr(place, step)

    def cut_off(*given: Any, **more: Any) -> Any:
        os.truncate(path, 256)
        return before(*given, **more)

    def job() -> int:
        setattr(place, step, cut_off)  # in the child only
        done = invoke(*asked)
        return done.exit_code

    monkeypatch.setattr("privote.votes.cube._BLOCK_CELLS", 8192)
    code = in_a_child(job)
    with closing(pv.Ledger.open(tmp_path / "ledger.db")) as ledger:
        charges = [entry["kind"] for entry in ledger.published()].count("charge")
    if kind != "packed":  # these are in memory by then
        outcome(f"{when}: votes that are cut off in .{kind}", 1, (code, charges) != (0, 1))
        return
    good = (code, charges) == (6, 1)  # its first read is after the charge: closed, nothing released
    good = good and not (tmp_path / "labels.npz").exists()
    votefiles.write_packed(path, votes)  # whole again, and closed for good
    good = good and invoke(*asked, "--resume").exit_code == 6
    outcome(f"{when}: votes that are cut off in .{kind}", 1, not good)


@pytest.mark.parametrize("header", ["query_id,voter_id", "queries,voters", "Voter ID,query index"])
def test_a_column_of_voters_under_another_head_is_no_label(tmp_path, header):
    """Else two rows of one voter would be two voters, each at the price of one."""
    path = tmp_path / "votes.csv"
    path.write_text(f"{header},a\n0,0,1\n0,1,0\n1,0,1\n1,1,1\n")
    with pytest.raises(pv.InputError, match="queries and voters"):
        pv.label(path, epsilon=8, delta=1e-5)


def _packed(form: str) -> bytes:
    Image.new("RGB", (9, 9)).save(data := BytesIO(), form)
    return data.getvalue()


NO_PICTURES: dict[str, bytes | Callable[[Path], Any]] = {
    "a named pipe, which would wait for ever": os.mkfifo,
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n",
    "GIF": _packed("GIF"),
    "TIFF": _packed("TIFF"),
    "cut short": _packed("PNG")[:45],
    "empty": b"",
}


@pytest.mark.parametrize("kind", NO_PICTURES)
def test_what_is_no_picture_is_refused_by_its_content_not_its_name(
    kind: str, tmp_path: Path
) -> None:
    """Each is refused in a sentence, and before anything is run."""
    path, content = tmp_path / "a.png", NO_PICTURES[kind]
    path.write_bytes(content) if isinstance(content, bytes) else content(path)
    images = Images(paths=[str(path)], size=8)
    assert images.unreadable().tolist() == [0]
    with refused(None) as caught:
        images[np.arange(1)]
    assert "a.png" in str(caught.value.sealed)
