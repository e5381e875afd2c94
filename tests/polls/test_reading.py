"""Ballots of people in every form they come in; what is malformed gives line and reason."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.errors import BallotError, InputError, UnavailableError
from privote.polls import from_profile, read

CAT = """# DATA TYPE: cat
# TITLE: Three towns
# NUMBER ALTERNATIVES: 3
# NUMBER VOTERS: 16
# ALTERNATIVE NAME 1: Ada
# ALTERNATIVE NAME 2: Bo
# ALTERNATIVE NAME 3: Cy
13: {1,2},{3}
2: 3,{1, 2}
1: {},{1,2,3}
"""
PB = """META
key;value
description;A street
num_projects;3
num_votes;4
budget;10
vote_type;approval
rule;greedy
max_length;2
PROJECTS
project_id;cost;votes;name;selected
p1;6;3;Trees;1
p2;5.5;2;Bench;0
p3;4;1;Bench;1
VOTES
voter_id;age;vote
a;30;p1,p2
b;31;p1
c;32;"p2,p1"
d;33;p3
"""


def file(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


WIDE = "voter,Ada,Bo,Cy\nann,1,0,1\nben,x,,no\ncat,,,\n"
LIST = "voter;approved\nann;Ada|Cy\nben;Ada\ncat;\n"
LONG = "voter\toption\nann\tAda\nben\tAda\nann\tCy\ncat\t\n"


@pytest.mark.parametrize(
    ("text", "more"),
    [
        (WIDE, {}),
        (WIDE.replace(",", ";"), {}),
        (WIDE.replace(",", "\t"), {}),
        ("\ufeff" + WIDE, {}),
        (WIDE.replace("voter", '"voter"').replace("\n", "\r\n"), {}),
        (WIDE.encode("utf-16"), {}),
        (WIDE.replace("voter,", "Timestamp,voter,").replace("\n", "\n9:00,")[:-5],
         {"options": ["Ada", "Bo", "Cy"]}),
        (LIST, {"options": ["Ada", "Bo", "Cy"]}),
        (LIST.replace("|", ", ").replace(";", "\t"), {"options": ["Ada", "Bo", "Cy"]}),
        (LONG, {"options": ["Ada", "Bo", "Cy"], "voters": 3}),
    ],
)  # fmt: skip
def test_the_forms_of_a_table_say_the_same(tmp_path: Path, text: str | bytes, more) -> None:
    found = read(file(tmp_path, "poll.csv", text), **more)
    assert found.options == ("Ada", "Bo", "Cy")
    assert found.voters == 3
    assert found.tally.counts.tolist() == [2, 0, 1]
    assert found.size.most == 3  # no rule: never the largest ballot seen
    assert [row.votes.tolist() for row in found.blocks()] == [[[1, 0, 1], [1, 0, 0], [0, 0, 0]]]


def test_other_encodings_are_named(tmp_path: Path) -> None:
    path = file(tmp_path, "poll.csv", "voter,Grün,Blau\nann,1,0\nben,0,1\n".encode("cp1252"))
    with pytest.raises(InputError, match=r"must be text in UTF-8.* encoding"):
        read(path)
    assert read(path, encoding="cp1252").options == ("Grün", "Blau")
    with refused("encoding"):
        read(path, encoding="klingon")


def test_names_keep_their_commas(tmp_path: Path) -> None:
    text = 'id,approved\n1,"Ada, the elder;Bo"\n2,"Ada, the elder"\n'
    found = read(file(tmp_path, "p.csv", text), options=["Ada, the elder", "Bo"])
    assert found.tally.counts.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        ("voter,Ada,Bo\nann,1,0\nann,0,1\n", {}, "lines 2 and 3 name the same voter"),
        ("voter,Ada,Bo\nann,1,0\nben,2,0\n", {}, "line 3: a cell is not yes or no"),
        ("voter,Ada,Bo\nann,1\n", {}, "line 2: 2 values under a header of 3"),
        ("voter,Ada,Ada\nann,1,0\n", {}, "line 1: columns 2 and 3 are both called the same"),
        ("voter,Ada,\nann,1,0\n", {}, "line 1: column 3 has no name"),
        ("voter,Ada,Bo\n,1,0\n", {}, "line 2: the voter has no name"),
        ("voter,Ada,Bo\nann,1,1\n", {"most": 1}, "line 2: the ballot breaks the poll's rule"),
        ('voter,Ada,Bo\nann,"1,0\n', {}, "line 2: "),
        ("voter,Ada,Bo\n", {}, "not one ballot"),
        ("", {}, "must be a header"),
        ("voter,approved\nann,Ada\n", {}, "options must be named for the form 'list'"),
        ("voter,approved\nann,Eve\n", {"options": ["Ada", "Bo"]}, "line 2: the ballot names some"),
        (
            "voter,option\nann,Eve\n",
            {"options": ["Ada", "Bo"], "voters": 9},
            "line 2: the option is not among",
        ),
        (
            "voter,option\na,Ada\na,Ada\n",
            {"options": ["Ada", "Bo"], "voters": 9},
            "line 3: .* option twice",
        ),
        ("1,0\n0,1\n", {}, "line 1: must be a header with the options' names"),
        ("voter,option\na,Ada\n", {"options": ["Ada"]}, "voters must be given for the form"),
        (
            "voter,option\na,Ada\nb,Ada\n",
            {"options": ["Ada", "Bo"], "voters": 1},
            "voters must be at least those that are named \\(2\\)",
        ),
        ("voter,approved\na,Ada;Ada\n", {"options": ["Ada", "Bo"]}, "line 2: .* option twice"),
        ("voter,Ada,Bo\nann,1,0\n", {"options": ["Ada", "Eve"]}, "options must be a column"),
        ("voter,Ada,Bo\nann,1,0\n", {"top": 2}, "top goes with orders"),
        ("voter,Ada,Bo\nann,1,0\n", {"form": "square"}, "form must be one of"),
    ],
)
def test_a_malformed_table_gives_line_and_reason(tmp_path: Path, text: str, more, said) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read(file(tmp_path, "poll.csv", text), **more)
    rows = text.splitlines()[0 if text[:1].isdigit() else 1 :]
    cells = {cell.strip('"') for row in rows for cell in row.split(",")} - {""}
    quoted = set(re.findall(r"'([^']*)'", str(caught.value)))
    assert not quoted & cells


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        ("ann,1,0\nben,0,1\n", {}, "line 1: must be a header .*, e.g. voter,Ada,Bo above ann,1,0"),
        (
            "ann,1,1,0\nben,0,1,1\n",
            {},
            "columns 2 and 3 are both called the same; the first line reads like",
        ),
        ("eve@x.org\ncat@x.org\n", {}, "`form=list`.*but the first line reads like a row"),
        ("17,eve\n18,cat\n", {"voter": "who"}, "'who' is none; it has 2 others, but the first"),
        ("who,Ada,Bo\nann,1,0\n", {"voter": "whom"}, "is none; it has 'who', 'Ada', 'Bo'"),
        ('when,Which?\n9:00,"Ada, Bo"\n', {"voter": "when"}, "must be said where one column holds"),
        (
            'when,Who?,What?\nann,"Ada, Bo",Cy\n',
            {"voter": "when"},
            "as forms export it, give `form=list`, the `column` and the `options`",
        ),
    ],
)
def test_a_header_that_is_none_or_misnamed_gets_a_hint(tmp_path: Path, text, more, said) -> None:
    with pytest.raises(InputError) as caught:
        read(file(tmp_path, "poll.csv", text), **more)
    assert re.search(said, f"{caught.value.argument} {caught.value.rule}")
    for name in ("ann,1,1", "eve", "17"):
        assert name not in str(caught.value)


def test_what_a_ballot_says_is_not_in_the_message(tmp_path: Path) -> None:
    text = "voter,approved\nann,Ada;secret\n"
    with pytest.raises(BallotError) as error:
        read(file(tmp_path, "poll.csv", text), options=["Ada", "Bo"])
    assert "secret" not in str(error.value)
    assert "secret" in str(error.value.sealed)


def test_points_and_ballots_beyond_the_rule(tmp_path: Path) -> None:
    path = file(tmp_path, "p.csv", "voter,Ada,Bo,Cy\na,3,2,0\nb,0,1,\nc,3,3,3\n")
    with pytest.raises(BallotError, match=r"line 4: .* 7 points in all and 3 points an option"):
        read(path, each=3, most=7)
    found = read(path, each=3, most=7, invalid="empty")
    assert found.voters == 3
    assert found.emptied == 1
    assert found.tally.counts.tolist() == [3, 3, 0]
    assert (found.size.most, found.size.each) == (7, 3)


def test_preflib_lines_are_voters(tmp_path: Path) -> None:
    found = read(file(tmp_path, "x.cat", CAT))
    assert found.voters == 16
    assert found.options == ("Ada", "Bo", "Cy")
    assert found.tally.counts.tolist() == [13, 13, 2]
    assert found.votes().shape == (1, 16, 3)
    assert read(file(tmp_path, "x.cat", CAT), top=2).tally.counts.tolist() == [16, 16, 16]


def test_preflib_orders_approve_their_first_places(tmp_path: Path) -> None:
    text = CAT.replace("cat\n", "soi\n", 1)[: CAT.index("13:")] + "13: 1,2,3\n2: 3\n1: 2,1\n"
    path = file(tmp_path, "x.soi", text)
    assert read(path).tally.counts.tolist() == [13, 1, 2]
    assert read(path).size.most == 1  # by the reading, whatever ballots say
    assert read(path, top=2).tally.counts.tolist() == [14, 14, 2]
    tied = text.replace("soi\n", "toi\n", 1).replace("13: 1,2,3", "13: {1,2},3")
    found = read(file(tmp_path, "x.toi", tied))
    assert found.tally.counts.tolist() == [13, 14, 2]
    assert found.size.most == 3


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("13: {1,2},{3}", "13: {1,2},{4}", "line 8: an option must be a whole number from 1"),
        ("13: {1,2},{3}", "13: {1,2},{2}", "line 8: the ballot names an option twice"),
        ("13: {1,2},{3}", "13 {1,2},{3}", "line 8: must be a number of voters"),
        ("13: {1,2},{3}", "13: {1,2,{3}", "line 8: must be a number of voters"),
        ("13: {1,2},{3}", "12: {1,2},{3}", "says 16 voters and has 15"),
        ("# ALTERNATIVE NAME 2: Bo\n", "", "says 3 and names 2"),
        ("cat\n", "dat\n", "data type 'dat' is none of"),
    ],
)
def test_a_malformed_preflib_file_gives_its_reason(tmp_path: Path, old, new, said) -> None:
    with pytest.raises(InputError, match=said):
        read(file(tmp_path, "x.cat", CAT.replace(old, new, 1)))


def test_pabulib_brings_costs_rule_and_names(tmp_path: Path) -> None:
    found = read(file(tmp_path, "x.pb", PB))
    assert found.options == ("Trees", "Bench [p2]", "Bench [p3]")
    assert found.tally.counts.tolist() == [3, 2, 1]
    assert found.costs == (Fraction(6), Fraction("5.5"), Fraction(4))
    assert (found.money, found.size.most) == (Fraction(10), 2)
    assert read(file(tmp_path, "x.pb", PB), most=3).size.most == 3
    one = PB.replace("approval", "choose-1").replace("p1,p2", "p1").replace('"p2,p1"', "p2")
    assert read(file(tmp_path, "x.pb", one)).size.most == 1
    order = read(file(tmp_path, "x.pb", PB.replace("approval", "ordinal")))
    assert order.tally.counts.tolist() == [2, 1, 1]
    assert order.size.most == 1


def test_pabulib_points(tmp_path: Path) -> None:
    text = PB.replace("approval", "cumulative\nmax_points;3\nmax_sum_points;4")
    text = text[: text.index("voter_id")] + (
        "voter_id;vote;points\na;p1,p2;3,1\nb;p1;2\nc;p2,p1;1,3\nd;p3;1\n"
    )
    path = file(tmp_path, "x.pb", text)
    found = read(path)
    assert found.tally.counts.tolist() == [8, 2, 1]
    assert (found.size.most, found.size.each) == (4, 3)
    assert read(path, each=1).tally.counts.tolist() == [3, 2, 1]
    with refused(None, UnavailableError):
        found.votes()
    with pytest.raises(BallotError, match="line 20: needs whole points"):
        read(file(tmp_path, "y.pb", text.replace("b;p1;2", "b;p1;")))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("b;31;p1", "b;31;p9", "line 18: the ballot names a project that is not listed"),
        ("b;31;p1", "a;31;p1", "lines 17 and 18 name the same voter"),
        ("b;31;p1", "b;31;p1,p2,p3", "line 18: the ballot breaks the poll's rule of at most 2"),
        ("b;31;p1", "b;31;p1,p1", "line 18: the ballot names a project twice"),
        ("num_votes;4", "num_votes;5", "says num_votes 5 and has 4"),
        ("p2;5.5", "p2;dear", "line 13: cost must be an amount"),
        ("p2;5.5", "p1;5.5", "project 'p1' is listed twice"),
        ("META", "HEAD", "line 1: must be META"),
        ("voter_id;age;vote", "voter_id;age;choice", "line 16: VOTES needs a column 'vote'"),
        ("vote_type;approval", "vote_type;guess", "vote_type must be one of"),
        ("max_length;2", "max_length;some", "max_length must be a whole number"),
    ],
)
def test_a_malformed_pabulib_file_gives_line_and_reason(tmp_path: Path, old, new, said) -> None:
    with pytest.raises(InputError, match=said):
        read(file(tmp_path, "x.pb", PB.replace(old, new, 1)))


def test_a_pabulib_file_without_ballots_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs a section VOTES"):
        read(file(tmp_path, "x.pb", PB[: PB.index("VOTES")]))


def test_what_is_no_poll_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        read(tmp_path / "none.csv")
    with pytest.raises(InputError, match="save the sheet as CSV"):
        read(file(tmp_path, "x.xlsx", "PK"))
    with pytest.raises(InputError, match="must end in one of"):
        read(file(tmp_path, "x.npy", "?"))
    with refused("source"):
        read(np.zeros((1, 3, 2)))
    with refused("form"):
        read(file(tmp_path, "x.cat", CAT), form="wide")


def test_a_profile_is_read_by_what_it_has() -> None:
    voters = [SimpleNamespace(approved={0, 2}, weight=1), SimpleNamespace(approved=set(), weight=1)]

    class Profile(list):
        num_cand = 3
        cand_names = ("Ada", "Bo", "Cy")

    found = pv.polls.read(Profile(voters), most=2)
    assert found.tally.counts.tolist() == [1, 0, 1]
    assert (found.voters, found.size.most) == (2, 2)
    assert read(found) is found
    for more in ({"most": 1}, {"each": 2}, {"form": "wide"}):
        with pytest.raises(InputError, match="goes with a file"):
            read(found, **more)
    with pytest.raises(BallotError, match="voter 1: a weight other than 1"):
        from_profile(Profile([SimpleNamespace(approved={0}, weight=13)]))


def test_abcvoting_profiles_go_out_and_come_back(tmp_path: Path) -> None:
    pytest.importorskip("abcvoting", reason="abcvoting is not installed")
    found = read(file(tmp_path, "x.cat", CAT))
    back = read(found.profile())
    assert back.options == found.options
    assert back.tally.counts.tolist() == found.tally.counts.tolist()


def test_many_ballots_come_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privote.polls.ballots._CELLS", 12)
    lines = "".join(f"v{place},{place % 2},{place % 3 == 0:d}\n" for place in range(50))
    found = read(file(tmp_path, "p.csv", "voter,Ada,Bo\n" + lines))
    assert found.tally.counts.tolist() == [25, 17]
    assert max(len(block.votes) for block in found.blocks()) == 6


SHARED = {
    "preflib_00026-00000001.cat": (365, 16),
    "preflib_00026-00000002.cat": (409, 16),
    "preflib_00026-00000003.cat": (476, 16),
    "preflib_00026-00000004.cat": (460, 16),
    "preflib_00026-00000005.cat": (472, 16),
    "preflib_00026-00000006.cat": (415, 16),
    "preflib_00060-00000001.cat": (18202, 921),
    "preflib_00074-00000001.cat": (8078, 10),
    "pabulib_France_Toulouse_2019.pb": (1494, 30),
    "pabulib_Hungary_Budapest_2022_VIII_Jozsefvaros.pb": (520, 33),
    "pabulib_Poland_Lodz_2020_Zlotno.pb": (3600, 17),
    "pabulib_Poland_Warszawa_2019_Stara_Ochota.pb": (631, 9),
    "pabulib_Poland_Warszawa_2019_Ursynow_Polnocny.pb": (3779, 51),
}


@pytest.mark.parametrize("name", SHARED)
def test_real_polls_are_read(shared_data: Path, name: str) -> None:
    found = read(shared_data / name)
    assert (found.voters, len(found.options)) == SHARED[name]
    text = (shared_data / name).read_text(encoding="utf-8")
    if name.endswith(".pb"):
        section = text[
            text.index("PROJECTS") : text.index("VOTES\n" if "\nVOTES\n" in text else "VOTES")
        ]
        header, *rows = [line.strip().split(";") for line in section.splitlines()[1:] if line]
        own = "score" if "score" in header else "votes"
        listed = [int(row[header.index(own)]) for row in rows]
        assert found.tally.counts.tolist() == listed
    else:  # counted once more, in another way
        counts = np.zeros(len(found.options), int)
        for line in text.splitlines():
            if not line.startswith("#"):
                times, _, rest = line.partition(":")
                first = (
                    rest.strip()[1:].split("}")[0]
                    if rest.strip()[0] == "{"
                    else (rest.split(",")[0])
                )
                for option in first.split(","):
                    if option.strip():
                        counts[int(option) - 1] += int(times)
        assert found.tally.counts.tolist() == counts.tolist()


@pytest.mark.parametrize(
    ("name", "winners"),
    [
        ("pabulib_Poland_Warszawa_2019_Ursynow_Polnocny.pb", 12),
        ("pabulib_Poland_Lodz_2020_Zlotno.pb", 4),
        ("pabulib_Poland_Warszawa_2019_Stara_Ochota.pb", 9),
    ],
)
def test_the_greedy_rule_selects_what_was_selected(shared_data: Path, name, winners) -> None:
    from privote.mechanisms.outcomes import Greedy

    found = read(shared_data / name)
    assert found.costs is not None
    assert found.money is not None
    won = Greedy(costs=found.costs, money=found.money).winners(found.tally.counts, found.voters)
    text = (shared_data / name).read_text(encoding="utf-8").replace("\r", "")
    header, *rows = [
        line.split(";")
        for line in text[text.index("PROJECTS") : text.index("\nVOTES\n")].split("\n")[1:]
    ]
    selected = [row[header.index("selected")] == "1" for row in rows]
    assert won.tolist() == selected
    assert won.sum() == winners


def test_an_empty_ballot_counts_where_it_is_an_empty_line(tmp_path: Path) -> None:
    """Who voted is public, and so is how many; that somebody approved nothing is not."""
    for last in ("Ada\n", "\n", '""\n', "  \n"):
        (tmp_path / "list.csv").write_text("approved\n\nAda;Bo\n" + last)
        ballots = read(tmp_path / "list.csv", options=["Ada", "Bo"], form="list")
        assert ballots.size.voters == 3, last


def test_who_approved_nothing_is_counted_in_a_long_table(tmp_path: Path) -> None:
    sizes = set()
    for rows in ("ann,Ada\nben,Ada\n", "ann,Ada\n"):
        (tmp_path / "long.csv").write_text("voter,option\n" + rows)
        sizes.add(read(tmp_path / "long.csv", options=["Ada", "Bo"], voters=4).size.voters)
    assert sizes == {4}
