"""Ballots of people in every form they come in; what is malformed gives line and reason."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.refusals import refused

from privote.errors import BallotError, InputError
from privote.polls import read
from privote.polls.mechanisms import Greedy

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
NAMES = ["Ada", "Bo", "Cy"]
LISTED = {"options": NAMES, "column": "approved"}


@pytest.mark.parametrize(
    ("text", "more"),
    [
        (WIDE, {}),
        (WIDE.replace(",", ";").encode("utf-16"), {}),
        ("\ufeff" + WIDE.replace("voter", '"voter"').replace("\n", "\r\n"), {}),
        (WIDE.replace("voter", "Grün").encode("cp1252"), {"encoding": "cp1252", "voter": "Grün"}),
        (WIDE.replace("voter,", "when,voter,").replace("\n", "\n9:00,")[:-5], {"options": NAMES}),
        (LIST, LISTED),
        (LIST.replace("|", ", ").replace(";", "\t"), LISTED),
    ],
)
def test_the_forms_of_a_table_say_the_same(tmp_path: Path, text: str | bytes, more) -> None:
    found = read(file(tmp_path, "poll.csv", text), **more)
    assert found.options == ("Ada", "Bo", "Cy")
    assert found.voters == 3
    assert found.counts.tolist() == [2, 0, 1]
    assert found.size.most == 3  # no rule: never the largest ballot seen


def test_a_frame_is_a_table(tmp_path: Path) -> None:
    frame = pd.DataFrame({"voter": ["a", "b"], "Ada": [True, False], "Bo": [1.0, np.nan]})
    frame.to_parquet(tmp_path / "p.parquet")
    for source in (frame, tmp_path / "p.parquet"):
        assert read(source).counts.tolist() == [1, 1]
        with refused("encoding"):
            read(source, encoding="utf-8")
    points = {"voter": ["a", "b"], "Ada": [3, 0], "Bo": [2.0, None]}
    assert read(points, each=3).counts.tolist() == [3, 2]
    with refused("top"):
        read(frame, top=2)
    with refused("source"):
        read(np.zeros((1, 3, 2)))


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        ("voter,Ada,Bo\nann,1,0\nann,0,1\n", {}, "lines 2 and 3"),
        ("voter,Ada,Bo\nann,1,0\nben,2,0\n", {}, "line 3: .* column"),
        ("voter,Ada,Bo\n,1,0\n", {}, "line 2: the voter"),
        ("voter,Ada,Bo\nann,1,1\n", {"most": 1}, "line 2: .* at most 1"),
        ("voter,Ada,Bo\n", {}, "no ballots"),
        ("", {}, "line 1: "),
        (WIDE, {"encoding": "klingon"}, "^encoding "),
        ("voter,Ada\nann,1\n", {"options": ["Ada"]}, "at least 2 options"),
        ("voter,approved\nann,Ada\n", {}, "^column "),
        ("voter,candidate,score\nann,1,5\nben,2,3\n", {"each": 5}, "^column "),
        ("voter,approved\nann,Ada\n", {"column": "approved"}, "^options "),
        ("voter\nann\n", {}, "^column "),
        ("voter,approved\nann,Eve\n", LISTED, "line 2: .* options"),
        ("voter,approved\na,Ada;Ada\n", LISTED, "line 2: .* twice"),
        ("voter,Ada,Bo\nann,1,0\n", {"options": ["Ada", "Eve"]}, "^options .*'voter'"),
        ("voter,Ada,Bo\nann,1,0\n", {"options": "Ada"}, "^options "),
        ("voter,Ada,Bo\nann,1,0\n", {"options": ["Ada", "Ada"]}, "'Ada' is named twice"),
        ("voter,Ada,Bo\nann,1,0\n", {"top": 2}, "^top "),
        ("1,0\n0,1\n", {}, "line 1: must be a header"),
        ("ann,1,0\nben,0,1\n", {}, "line 1: must be a header"),
        ("ann,1,1,0\nben,0,1,1\n", {}, "columns 2 and 3"),
        ("eve@x.org\ncat@x.org\n", {}, "^column "),
        ("17,eve\n18,cat\n", {"voter": "who"}, "^voter .*2 others"),
        ('when,Who?,What?\nann,"Ada, Bo",Cy\n', {"voter": "when"}, "line 2: .* column"),
    ],
)
def test_a_malformed_table_gives_line_and_reason(tmp_path: Path, text: str, more, said) -> None:
    with pytest.raises(InputError) as caught:
        read(file(tmp_path, "poll.csv", text), **more)
    assert re.search(said, str(caught.value))
    bare = text[:1].isdigit() or text.startswith(("ann", "eve"))  # then the first line is private
    cells = {cell.strip('"') for row in text.splitlines()[0 if bare else 1 :]
             for cell in row.split(",")} - {"", "Ada"}  # fmt: skip
    assert not set(re.findall(r"'([^']*)'", str(caught.value))) & cells


def test_lists_have_commas_and_empty_ballots_and_are_kept_back(tmp_path: Path) -> None:
    text = 'id,approved\n1,"Ada, the elder;Bo"\n2,"Ada, the elder"\n'
    names = {"options": ["Ada, the elder", "Bo"], "column": "approved"}
    assert read(file(tmp_path, "p.csv", text), **names).counts.tolist() == [2, 1]
    # Who voted is public, and so is how many; that somebody approved nothing is not.
    for last in ("Ada\n", "\n", '""\n', "  \n"):
        path = file(tmp_path, "list.csv", "approved\n\nAda;Bo\n" + last)
        assert read(path, **LISTED).voters == 3, last
    with pytest.raises(BallotError) as error:
        read(file(tmp_path, "poll.csv", "voter,approved\nann,Ada;secret\n"), **LISTED)
    assert "secret" not in str(error.value)
    assert "secret" in str(error.value.sealed)


@pytest.mark.parametrize(
    ("heads", "roll"),
    [
        ("Timestamp;Email Address", "Email Address"),  # Google
        ("Timestamp;USERNAME ", "USERNAME"),
        ("ID;Start time;Completion time;Email;Name", "Email"),  # Microsoft
        ("ID;Start time;Completion time", None),
        ("id;submitdate;lastpage;startlanguage;token", "token"),  # LimeSurvey
        ("Respondent ID;Collector ID;Start Date;End Date;IP Address", "Respondent ID"),
        ("StartDate;EndDate;IPAddress;RecordedDate;ResponseId;RecipientEmail", "RecipientEmail"),
        ("ResponseId", None),  # Qualtrics: it numbers responses, not people
        ("#;Submit Date (UTC);Network ID", None),  # Typeform
        ("e-mail", "e-mail"),
        ("User  name", "User  name"),
        ("Participant", "Participant"),
        ("id;name", "id"),
    ],
)
def test_what_form_services_add_is_no_option(tmp_path: Path, heads: str, roll: str | None) -> None:
    first = ";".join(f"{place}a" for place in range(heads.count(";") + 1))
    rows = f"{heads};Ada;Bo\n{first};1;0\n{first.replace('a', 'b')};1;1\n"
    found = read(file(tmp_path, "p.csv", rows))
    assert (found.options, found.roll) == (("Ada", "Bo"), roll)
    assert found.counts.tolist() == [2, 1]
    public = " ".join(found.notes)
    assert ("double votes cannot be detected" in public) is (roll is None)
    assert all(repr(head.strip()) in public for head in heads.split(";")[1:] if head != roll)
    with refused(None, BallotError):  # the same voter, or response
        read(file(tmp_path, "p.csv", rows.replace("b;", "A ;")))


def test_a_voter_named_twice_has_one_ballot_if_it_is_said_which(tmp_path: Path) -> None:
    path = file(tmp_path, "p.csv", "Email,Ada,Bo\nUser3@x,1,0\nb@x,1,1\nuser3@x ,0,1\n")
    for which, counts in (("first", [2, 1]), ("last", [1, 2])):
        found = read(path, duplicates=which)
        assert (found.voters, found.repeated) == (2, 1)
        assert found.counts.tolist() == counts
        assert found.notes[-1].startswith("1 row repeated a voter")
    twice = PB.replace("b;31", "a;31")
    found = read(file(tmp_path, "p.pb", twice), duplicates="last")
    assert (found.voters, found.counts.tolist()) == (3, [2, 1, 1])
    for source in (path, file(tmp_path, "n.csv", "Ada,Bo\n1,0\n"), file(tmp_path, "p.cat", CAT)):
        with refused("duplicates"):
            read(source, duplicates="both" if source == path else "first")
    for name in ("anonymous", True, 2**60, ["a"]):  # Microsoft's word without an account; no names
        with refused(None, BallotError):
            read({"Email": [name, "b"], "Ada": [1, 0], "Bo": [0, 1]})


def test_options_of_records_are_named(tmp_path: Path) -> None:
    records = [{"who": "a", "Ada": 1}, {"who": "b", "Bo": True, "Zoe": 1, "weight": 2}]
    with refused("options"):
        read(records)
    found = read(records, options=["Ada", "Bo"], voter="who")
    assert (found.options, found.roll) == (("Ada", "Bo"), "who")
    assert found.counts.tolist() == [1, 1]
    assert read(records, options=["Ada", "Bo"]).roll is None
    frame = pd.DataFrame({"who": ["a", "b"], "likes": [["Ada", "Bo"], ["Ada"]]})
    frame.to_parquet(tmp_path / "p.parquet")
    for source in (frame, tmp_path / "p.parquet", frame.to_dict("records")):
        found = read(source, column="likes", options=NAMES, voter="who")
        assert found.counts.tolist() == [2, 1, 0]
    for cell in ({"Ada": 1}, [["Ada"]], [None], "Zoe"):
        with refused(None, BallotError):
            read({"likes": [cell, "Ada"]}, column="likes", options=NAMES)
    with refused(None, BallotError):
        read({"voter": ["a", "b"], "Weight": [1, 2], "Ada": [1, 0], "Bo": [0, 1]})


def test_a_separator_may_stand_inside_an_option() -> None:
    options = ["Yes", "Yes, with conditions", "No; never", "No"]
    cells = ["Yes, with conditions", "Yes, No", '"Yes, with conditions", No', "no; NEVER; Yes;", ""]
    found = read({"Q": cells}, column="Q", options=options)
    assert found.counts.tolist() == [2, 2, 1, 2]
    for bad in (["Yes", "yes "], ["Yes"], ["Yes", ""]):
        with refused():
            read({"Q": cells}, column="Q", options=bad)


def test_several_columns_are_several_questions() -> None:
    rows = {"Email": ["a", "b"], "Q1": ["Ada;Bo", "Ada"], "Q2": ["Red", None]}
    options = {"Q1": NAMES, "Q2": ["Red", "Blue"]}
    found = read(rows, column=["Q1", "Q2"], options=options)
    assert found.options == ("Q1: Ada", "Q1: Bo", "Q1: Cy", "Q2: Red", "Q2: Blue")
    assert found.counts.tolist() == [2, 1, 0, 1, 0]
    assert (found.size.squared_shift, found.size.changes) == (5, 5)
    one = {"column": ["Q1", "Q2"], "options": options, "most": 1, "invalid": "empty"}
    assert (read(rows, **one).emptied, read(rows, **one).size.squared_shift) == (1, 4)
    both = read({**rows, "Q1": ["Red", "Red"]}, column=["Q1", "Q2"], options=["Red", "Blue"])
    assert both.options[2:] == ("Q2: Red", "Q2: Blue")
    for column, names in ((["Q1", "Q1"], NAMES), (["Q1", "Q2"], {"Q1": NAMES}), ("Q3", NAMES)):
        with refused():
            read(rows, column=column, options=names)
    with refused("each"):
        read(rows, column="Q2", options=["Red", "Blue"], each=2)


def test_points_and_ballots_beyond_the_rule(tmp_path: Path) -> None:
    path = file(tmp_path, "p.csv", "voter,Ada,Bo,Cy\na,3,2,0\nb,0,1,\nc,3,3,3\n")
    with pytest.raises(BallotError, match=r"line 4: .* 7 points in total and 3 points per option"):
        read(path, each=3, most=7)
    found = read(path, each=3, most=7, invalid="empty")
    assert (found.voters, found.emptied) == (3, 1)
    assert found.counts.tolist() == [3, 3, 0]
    assert (found.size.most, found.size.each) == (7, 3)
    with refused("invalid"):
        read(path, invalid="luck")


def test_many_ballots_come_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privote.polls.reading._ROWS", 3)
    for name, text, more in (("p.csv", WIDE, {}), ("l.csv", LIST, LISTED)):
        head, *rows = text.splitlines()
        many = [f"{n}{row}" for n in range(4) for row in rows]
        found = read(file(tmp_path, name, "\n".join([head, *many]) + "\n"), **more)
        assert found.counts.tolist() == [8, 0, 4]
        with pytest.raises(BallotError, match="lines 2 and 14"):
            read(file(tmp_path, name, "\n".join([head, *many, many[0]]) + "\n"), **more)


SOI = CAT.replace("cat\n", "soi\n", 1)[: CAT.index("13:")] + "13: 1,2,3\n2: 3\n1: 2,1\n"
TOI = SOI.replace("soi\n", "toi\n", 1).replace("13: 1,2,3", "13: {1,2},3")
ONE = PB.replace("approval", "choose-1").replace("p1,p2", "p1").replace('"p2,p1"', "p2")
POINTS = PB.replace("approval", "cumulative\nmax_points;3\nmax_sum_points;4")
POINTS = POINTS[: POINTS.index("voter_id")] + (
    "voter_id;vote;points\na;p1,p2;3,1\nb;p1;2\nc;p2,p1;1,3\nd;p3;1\n"
)


@pytest.mark.parametrize(
    ("ending", "text", "more", "voters", "counts", "most"),
    [
        ("cat", CAT, {}, 16, [13, 13, 2], 3),  # lines are voters
        ("cat", CAT, {"top": 2}, 16, [16, 16, 16], 3),
        ("soi", SOI, {}, 16, [13, 1, 2], 1),  # by the reading, whatever ballots say
        ("soi", SOI, {"top": 2}, 16, [14, 14, 2], 2),
        ("toi", TOI, {}, 16, [13, 14, 2], 3),
        ("pb", PB, {}, 4, [3, 2, 1], 2),  # by the file's own rule
        ("pb", PB, {"most": 3}, 4, [3, 2, 1], 3),
        ("pb", ONE, {}, 4, [2, 1, 1], 1),
        ("pb", PB.replace("approval", "ordinal"), {}, 4, [2, 1, 1], 1),
        ("pb", POINTS, {}, 4, [8, 2, 1], 4),
        ("pb", POINTS, {"each": 1}, 4, [3, 2, 1], 3),
        ("pb", POINTS, {"each": 3, "most": 5}, 4, [8, 2, 1], 5),
    ],
)
def test_archives(tmp_path: Path, ending: str, text: str, more, voters, counts, most) -> None:
    found = read(file(tmp_path, f"x.{ending}", text), **more)
    assert found.voters == voters
    assert found.counts.tolist() == counts
    assert found.size.most == most
    assert found.size.each == (3 if text == POINTS and more.get("each") != 1 else 1)
    if ending == "pb":
        assert found.options == ("Trees", "Bench [p2]", "Bench [p3]")
        assert found.costs == (Fraction(6), Fraction("5.5"), Fraction(4))
        assert found.money == Fraction(10)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("13: {1,2},{3}", "13: {1,2},{4}", "line 8: an option must be an integer from 1"),
        ("13: {1,2},{3}", "13: {1,2},{2}", "line 8: .* twice"),
        ("13: {1,2},{3}", "13 {1,2},{3}", "line 8: must be a number of voters"),
        ("13: {1,2},{3}", "13: {1,2,{3}", "line 8: must be a number of voters"),
        ("13: {1,2},{3}", "12: {1,2},{3}", "declares NUMBER VOTERS 16 but has 15"),
        ("# ALTERNATIVE NAME 2: Bo\n", "", "says 3 and names 2"),
        ("cat\n", "dat\n", "data type 'dat'"),
        ("b;31;p1", "b;31;p9", "line 18: .* not listed"),
        ("b;31;p1", "a;31;p1", "lines 17 and 18"),
        ("b;31;p1", "b;31;p1,p2,p3", "line 18: .* at most 2"),
        ("b;31;p1", "b;31;p1,p1", "line 18: .* twice"),
        ("num_votes;4", "num_votes;5", "declares num_votes 5 but has 4"),
        ("p2;5.5", "p2;dear", "line 13: cost"),
        ("p2;5.5", "p2;-1", "line 13: cost"),
        ("p2;5.5", "p1;5.5", "'p1' is listed twice"),
        ("META", "HEAD", "line 1: must be META"),
        ("voter_id;age;vote", "voter_id;age;choice", "line 16: .*'vote'"),
        ("vote_type;approval", "vote_type;guess", "vote_type"),
        ("max_length;2", "max_length;some", "max_length"),
        (PB[PB.index("VOTES") :], "", "needs a section VOTES"),
        ("b;p1;2", "b;p1;", "line 20: needs integer points"),
        ("max_points;3\nmax_sum_points;4", "x;1", "^each "),
    ],
)
def test_a_malformed_archive_gives_line_and_reason(tmp_path: Path, old, new, said) -> None:
    name, text = next(
        (n, t) for n, t in [("x.cat", CAT), ("x.pb", PB), ("x.pb", POINTS)] if old in t
    )
    with pytest.raises(InputError, match=said):
        read(file(tmp_path, name, text.replace(old, new, 1)))


def test_what_is_no_poll_is_refused(tmp_path: Path) -> None:
    with refused("source"):
        read(tmp_path / "none.csv")
    for name in ("x.xlsx", "x.npy"):
        with pytest.raises(InputError, match="must end in"):
            read(file(tmp_path, name, "PK"))
    with refused("column"):
        read(file(tmp_path, "x.cat", CAT), column="wide")
    found = read(file(tmp_path, "x.cat", CAT))
    assert read(found) is found
    for more in ({"most": 1}, {"each": 2}, {"column": "wide"}):
        with refused(next(iter(more))):
            read(found, **more)


SHARED = {  # voters, options, and how many the greedy rule selects, where the file says which
    "preflib_00026-00000001.cat": (365, 16, None),
    "preflib_00060-00000001.cat": (18202, 921, None),
    "preflib_00074-00000001.cat": (8078, 10, None),
    "pabulib_France_Toulouse_2019.pb": (1494, 30, None),
    "pabulib_Hungary_Budapest_2022_VIII_Jozsefvaros.pb": (520, 33, None),
    "pabulib_Poland_Lodz_2020_Zlotno.pb": (3600, 17, 4),
    "pabulib_Poland_Warszawa_2019_Stara_Ochota.pb": (631, 9, 9),
    "pabulib_Poland_Warszawa_2019_Ursynow_Polnocny.pb": (3779, 51, 12),
}


def first_category(ballot: str) -> list[int]:
    """Return what a PrefLib line approves, read in another way."""
    first = ballot[1:].split("}")[0] if ballot[0] == "{" else ballot.split(",")[0]
    return [int(option) - 1 for option in first.split(",") if option.strip()]


@pytest.mark.parametrize("name", SHARED)
def test_real_polls_are_read_and_come_out_as_they_did(shared_data: Path, name: str) -> None:
    found = read(shared_data / name)
    voters, options, winners = SHARED[name]
    assert (found.voters, len(found.options)) == (voters, options)
    text = (shared_data / name).read_text(encoding="utf-8").replace("\r", "")
    counts = np.zeros(options, int)
    if name.endswith(".cat"):
        for line in text.splitlines():
            if not line.startswith("#"):
                times, _, ballot = line.partition(":")
                counts[first_category(ballot.strip())] += int(times)
    else:
        projects = text[text.index("PROJECTS") : text.index("\nVOTES\n")].split("\n")[1:]
        header, *rows = [line.split(";") for line in projects]
        own = header.index("score" if "score" in header else "votes")
        counts += [int(row[own]) for row in rows]
    assert found.counts.tolist() == counts.tolist()
    if winners is not None:
        won = Greedy(costs=found.costs, money=found.money).winners(counts, voters)
        assert won.tolist() == [row[header.index("selected")] == "1" for row in rows]
        assert won.sum() == winners


def test_an_export_of_polis(tmp_path: Path) -> None:
    """Comments are numbered from 0; -1 disagrees, which is no gap in the ballot and no approval."""
    heads = "participant,group-id,n-comments,n-votes,n-agree,n-disagree,0,1,2"
    file = tmp_path / "participants-votes.csv"
    file.write_text(f"{heads}\n7,0,1,3,2,1,1,-1,1\n8,,0,2,1,0,1,0,\n9,1,0,1,0,1,-1,,\n")
    ballots = read(file)
    assert (ballots.options, ballots.counts.tolist()) == (("0", "1", "2"), [2, 0, 1])
    assert (ballots.voters, ballots.roll) == (3, "participant")
    assert any("Polis" in note for note in ballots.notes)
