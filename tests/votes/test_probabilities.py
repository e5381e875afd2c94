"""Votes that are probabilities: as they are, in whatever file, or votes at a threshold."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from tests.refusals import refused
from typer.testing import CliRunner

import privote as pv
from privote.cli import app
from privote.labelling import ballots_of

QUERIES, VOTERS, LABELS = 40, 30, 4
CHANCES = np.random.default_rng(3).beta(0.3, 1.5, (QUERIES, VOTERS, LABELS)).round(3)
CHANCES[5, 7] = -1  # a ballot that is missing
BUDGET = {"epsilon": 8.0, "delta": 1e-5, "seed": 4}


def _npy(path, cube):
    np.save(path, cube)


def _npz(path, cube):
    np.savez(path, votes=cube)


def _packed_npz(path, cube):
    np.savez_compressed(path, votes=cube)


def _zarr(path, cube):
    array = zarr.create_array(
        str(path), shape=cube.shape, dtype=cube.dtype, chunks=(8, *cube.shape[1:])
    )
    array[:] = cube


def _parquet(path, cube):
    query, voter = (axis.reshape(-1) for axis in np.indices(cube.shape[:2]))
    columns = {"query": query, "voter": voter}
    for label in range(cube.shape[2]):
        cells = cube[:, :, label].reshape(-1)
        columns[f"label_{label}"] = pa.array(cells, mask=cells == -1)
    pq.write_table(pa.table(columns), path, row_group_size=7 * cube.shape[1])


FORMATS = [
    ("votes.npy", _npy),
    ("votes.npz", _npz),
    ("votes.npz", _packed_npz),
    ("votes.zarr", _zarr),
    ("votes.parquet", _parquet),
]
EVERY = pytest.mark.parametrize(("name", "write"), FORMATS)


@EVERY
def test_floats_in_a_file_are_what_they_are_in_memory(tmp_path, name, write):
    write(tmp_path / name, CHANCES)
    ballots = ballots_of(tmp_path / name, "auto")
    assert ballots.steps == 100
    assert ballots.missing
    assert (ballots.to_array() == np.where(CHANCES == -1, -1, np.rint(100 * CHANCES))).all()
    released = pv.label(tmp_path / name, **BUDGET)
    known = pv.label(CHANCES, **BUDGET)
    assert (released.tallies == known.tallies).all()
    assert (released.labels == known.labels).all()
    assert released.epsilon == known.epsilon


@EVERY
def test_blocks_of_any_size_hold_the_same(tmp_path, name, write, monkeypatch):
    write(tmp_path / name, CHANCES)
    whole = ballots_of(tmp_path / name, "auto").to_array()
    monkeypatch.setattr("privote.votes.cube._BLOCK_CELLS", 8 * VOTERS * LABELS)
    assert (ballots_of(tmp_path / name, "auto").to_array() == whole).all()
    assert (ballots_of(tmp_path / name, "auto").head(11).to_array() == whole[:11]).all()


@EVERY
@pytest.mark.parametrize("odd", [np.nan, -0.5, 1.5, np.inf])
def test_what_is_no_probability_is_refused_before_any_charge(tmp_path, name, write, odd):
    cube = CHANCES.copy()
    cube[-1, 2, 1] = odd  # in the last block
    write(tmp_path / name, cube)
    with refused("votes[query 39, voter 2, label 1]", pv.BallotError) as error:
        pv.label(tmp_path / name, **BUDGET, ledger=tmp_path / "ledger.db")
    assert str(odd) not in str(error.value)  # it is sealed
    assert not (tmp_path / "ledger.db").exists()


@EVERY
def test_the_type_tells_and_not_what_the_file_holds(tmp_path, name, write):
    votes = (CHANCES > 0.5).astype(np.int8)
    write(tmp_path / name, votes)
    assert ballots_of(tmp_path / name, "auto").steps == 1
    again = tmp_path / f"float-{name}"
    write(again, votes.astype(np.float32))
    assert ballots_of(again, "auto").steps == 100
    # A mechanism that counts whole votes reads them as such.
    assert (ballots_of(again, pv.BinaryVoting(sigma=3.0)).to_array() == votes).all()


@EVERY
def test_a_threshold_makes_votes_of_them(tmp_path, name, write):
    full = np.where(CHANCES == -1, 0, CHANCES)
    write(tmp_path / name, full)
    ballots = ballots_of(tmp_path / name, "auto", 0.5)
    assert ballots.steps == 1
    assert (ballots.to_array() == (full >= 0.5)).all()


@EVERY
def test_a_mechanism_that_counts_whole_votes_refuses_them(tmp_path, name, write):
    write(tmp_path / name, CHANCES)
    with refused("votes[query 0, voter 0, label 1]", pv.BallotError):
        pv.label(tmp_path / name, mechanism=pv.BinaryVoting(sigma=9.0), **BUDGET)


def test_a_mechanism_with_a_grid_takes_its_own_steps(tmp_path):
    tallies = pv.TallyVoting(sigma=9.0, grid=20)
    for name, write in FORMATS:
        write(tmp_path / f"{write.__name__}-{name}", CHANCES)
        ballots = ballots_of(tmp_path / f"{write.__name__}-{name}", tallies)
        assert ballots.steps == 20
        assert (ballots.to_array() == tallies.ballots(CHANCES).to_array()).all()


# -- tables: their cells have no type --------------------------------------------------------------


def _csv(path, decimals=3):
    rows = [
        ",".join([str(query), str(voter), *(f"{chance:.{decimals}f}" for chance in ballot)])
        for query, ballots in enumerate(np.where(CHANCES == -1, 0, CHANCES)[:5])
        for voter, ballot in enumerate(ballots)
    ]
    path.write_text("\n".join(["query,voter,a,b,c,d", *rows]) + "\n")
    return path


def test_a_table_takes_a_threshold_or_a_word(tmp_path):
    path = _csv(tmp_path / "votes.csv")
    with refused("votes.csv, line 2, column 'a'", pv.BallotError) as error:
        pv.label(path, **BUDGET, ledger=tmp_path / "ledger.db")
    assert ".npy" in str(error.value)
    assert not (tmp_path / "ledger.db").exists()
    assert ballots_of(path, "auto", 0.5).steps == 1
    soft = ballots_of(path, pv.TallyVoting(sigma=9.0, grid=100))  # whoever names a grid says so
    assert soft.steps == 100
    expected = np.rint(100 * np.where(CHANCES == -1, 0, CHANCES)[:5])
    order = [int(voter) for voter in soft.voter_names]
    assert (soft.to_array() == expected[:, order]).all()


# -- the verb --------------------------------------------------------------------------------------


@EVERY
def test_the_command_line_needs_no_threshold(tmp_path, name, write):
    write(tmp_path / name, CHANCES)
    output = tmp_path / "labels.npz"
    words = ["label", str(tmp_path / name), "--epsilon", "8", "--delta", "1e-5", "--seed", "4"]
    result = CliRunner().invoke(app, [*words, "--output", str(output), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["answered"] == QUERIES
    known = pv.label(CHANCES, **BUDGET)
    assert (pv.Release.load(output).tallies == known.tallies).all()
