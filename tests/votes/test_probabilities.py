"""Votes that are probabilities: as they are, in whatever file, or votes at a threshold."""

import numpy as np
import pandas as pd
import pytest
from tests.refusals import refused
from tests.votes.test_arrays import write

import privote as pv
from privote.labelling import ballots_of

QUERIES, VOTERS, LABELS = 40, 30, 4
CHANCES = np.random.default_rng(3).beta(0.3, 1.5, (QUERIES, VOTERS, LABELS)).round(3)
CHANCES[5, 7], CHANCES[6, 7] = -1, np.nan  # ballots that are missing
ABSENT = np.isnan(CHANCES) | (CHANCES == -1)
GAPS = np.where(ABSENT, np.nan, CHANCES)  # and how else that is written
BUDGET = {"epsilon": 8.0, "delta": 1e-5, "seed": 4}


KINDS = ("npy", "npz", "npz-compressed", "zarr")
EVERY = pytest.mark.parametrize("kind", KINDS)


@EVERY
def test_floats_in_a_file_are_what_they_are_in_memory(tmp_path, kind):
    path = write(kind, tmp_path, CHANCES)
    ballots = ballots_of(path, "auto")
    assert ballots.resolution == 100
    assert ballots.missing
    assert (ballots.to_array() == np.where(ABSENT, -1, np.rint(100 * CHANCES))).all()
    released = pv.label(path, **BUDGET)
    known = pv.label(GAPS, **BUDGET)
    assert (released.tallies == known.tallies).all()
    assert (released.labels == known.labels).all()
    assert released.epsilon == known.epsilon


@EVERY
@pytest.mark.parametrize("odd", [-0.5, 1.5, np.inf])
def test_what_is_no_probability_is_refused_before_any_charge(tmp_path, kind, odd):
    cube = CHANCES.copy()
    cube[-1, 2, 1] = odd  # in the last block
    path = write(kind, tmp_path, cube)
    with refused("votes[query 39, voter 2, label 1]", pv.BallotError) as error:
        pv.label(path, **BUDGET, ledger=tmp_path / "ledger.db")
    assert str(odd) not in str(error.value)
    assert error.value.sealed == f"it is {odd}"
    assert not (tmp_path / "ledger.db").exists()


@EVERY
def test_the_type_tells_and_not_what_the_file_holds(tmp_path, kind):
    votes = (CHANCES > 0.5).astype(np.int8)
    assert ballots_of(write(kind, tmp_path, votes), "auto").resolution == 1
    (tmp_path / "float").mkdir()
    again = write(kind, tmp_path / "float", votes.astype(np.float32))
    assert ballots_of(again, "auto").resolution == 100
    # A mechanism that counts whole votes reads them as such.
    assert (ballots_of(again, pv.BinaryVoting(sigma=3.0)).to_array() == votes).all()


@EVERY
def test_a_threshold_or_a_grid_says_how_they_are_read(tmp_path, kind):
    path = write(kind, tmp_path, CHANCES)
    with refused("votes[query 0, voter 0, label 1]", pv.BallotError):
        pv.label(path, mechanism=pv.BinaryVoting(sigma=9.0), **BUDGET)
    tallies = pv.TallyVoting(sigma=9.0, grid=20)
    ballots = ballots_of(path, tallies)
    assert ballots.resolution == 20
    assert (ballots.to_array() == tallies.ballots(CHANCES).to_array()).all()
    ballots = ballots_of(path, "auto", 0.5)
    assert ballots.resolution == 1
    assert (ballots.to_array() == np.where(ABSENT, -1, CHANCES >= 0.5)).all()


def test_lists_have_no_type():
    """Nor has an array of objects: what numpy makes of it depends on every vote in it."""
    for votes in ([[[1, None], [0, 1]]], [[[1, np.nan], [0, 1]]], [[[1, -1.0], [0, True]]]):
        for form in (votes, np.array(votes, object)):
            ballots = pv.Ballots.of(form, resolution=100)
            assert (ballots.resolution, ballots.missing) == (1, True)
            assert ballots.to_array().tolist() == [[[1, -1], [0, 1]]]
    assert pv.Ballots.of([[[True]]]).missing
    with refused("votes", pv.BallotError):
        pv.Ballots.of([[["HIV positive"]]])


# -- tables and Parquet: the type of a column follows from what is in it ---------------------------


def test_parquet_takes_a_threshold_or_a_word(tmp_path):
    path = write("parquet", tmp_path, CHANCES)
    with refused("votes[query 0, voter 0, label 1]", pv.BallotError):
        pv.label(path, **BUDGET, ledger=tmp_path / "ledger.db")
    soft = ballots_of(path, "auto", soft=True)
    assert (soft.to_array() == np.where(ABSENT, -1, np.rint(100 * CHANCES))).all()
    assert (ballots_of(path, "auto", 0.5).to_array() == np.where(ABSENT, -1, CHANCES >= 0.5)).all()
    votes = np.where(ABSENT, -1, CHANCES >= 0.5)
    (tmp_path / "whole").mkdir()
    assert (
        ballots_of(write("parquet", tmp_path / "whole", votes.astype(float)), "auto").resolution
        == 1
    )


def test_a_table_takes_a_threshold_or_a_word(tmp_path):
    path, full = tmp_path / "votes.csv", np.where(ABSENT, 0, CHANCES)[:5]
    rows = pd.DataFrame(full.reshape(-1, LABELS), columns=[*"abcd"])
    query, voter = np.divmod(np.arange(len(rows)), VOTERS)
    rows.assign(query=query, voter=voter).to_csv(path, index=False)
    with refused("votes.csv, line 4, column 'a'", pv.BallotError):  # 0.0 is a vote
        pv.label(path, **BUDGET, ledger=tmp_path / "ledger.db")
    assert not (tmp_path / "ledger.db").exists()
    assert ballots_of(path, "auto", 0.5).resolution == 1
    soft = ballots_of(path, pv.TallyVoting(sigma=9.0, grid=100))  # whoever names a grid says so
    assert soft.resolution == 100
    order = [int(voter) for voter in soft.voter_names]
    assert (soft.to_array() == np.rint(100 * full)[:, order]).all()
