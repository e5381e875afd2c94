"""Names of voters in a ledger: the same voter has the same name, another one never."""

import numpy as np
from tests.refusals import refused

from privote.learning.pate import VoterNames


def names(ids=None, groups=None, electorate="ward 7", **more):
    return VoterNames(ids, groups, electorate, key=lambda: b"k" * 32, seed=0, **more)


def test_records_are_called_by_their_ids_or_rows():
    assert len(set(names().of("neighbours", 5))) == 5
    one, two = names(ids=["a", "b", "c"]), names(ids=["c", "a", "b"])
    assert sorted(one.of("neighbours", 3)) == sorted(two.of("neighbours", 3))
    assert one.of("neighbours", 3)[0] == two.of("neighbours", 3)[1]


def test_persons_are_called_by_their_names_in_the_order_of_the_ballots():
    groups = ["eve", "bob", "eve", "ann"]
    found = names(groups=groups).of("neighbours", 3, np.unique(groups))
    assert [name.rpartition("-")[2] for name in found] == ["ann", "bob", "eve"]
    other = names(groups=groups[::-1]).of("neighbours", 3, np.unique(groups))
    assert found == other


def test_a_name_says_which_scheme_it_is_from():
    groups = ["0", "1", "2"]
    schemes = [
        names(groups=groups).of("neighbours", 3, groups),
        names(ids=groups).of("neighbours", 3),
        names(ids=[0, 1, 2]).of("neighbours", 3),
        names().of("neighbours", 3),
        names().of("teachers", 3),
        names(groups=[0, 1, 2]).of("neighbours", 3, [0, 1, 2]),
        names(groups=groups, electorate="ward 8").of("neighbours", 3, groups),
        names(groups=groups, electorate=None).of("neighbours", 3, groups),
        names(groups=groups, electorate=None).of("neighbours", 3, groups),
    ]
    every = [name for scheme in schemes for name in scheme]
    assert len(set(every)) == len(every)


def test_whom_it_protects_says_which_change_is_covered():
    person, record = "a person, with all their records", "a record"
    secret = "(replaced by any other, or one more or fewer)"
    assert names().protected("teachers", known=False) == f"{record} {secret}"
    assert names(groups=[1]).protected("teachers", known=False) == f"{person} {secret}"
    same = "(other contents under the same id, or one more or fewer)"
    assert names(ids=[1]).protected("teachers", known=True) == f"{record} {same}"
    assert names(groups=[1]).protected("teachers", known=True) == f"{person} {same}"
    row = "(other contents in the same row)"
    assert names().protected("teachers", known=True) == f"{record} {row}"
    for known in (True, False):
        found = names(groups=[1]).protected("neighbours", known=known)
        assert found == f"{person} (replaced by any other; how many there are is public)"


def test_a_key_is_asked_for_once_and_only_where_there_are_parts():
    asked = []
    who = VoterNames(None, None, None, key=lambda: asked.append(1) or b"k" * 32, seed=0)
    who.of("neighbours", 3)
    assert not asked
    assert who.of("teachers", 3)
    assert who.key == b"k" * 32
    assert len(asked) == 1


def test_bad_names_are_refused():
    with refused("electorate"):
        names(electorate=" ")
