"""The rule that chooses a method: public numbers in, a method and its reasons out."""

import math
import re
import statistics
from pathlib import Path

import pytest
from tests.refusals import refused

from privote.errors import InputError
from privote.learning.methods import (
    BAR,
    ENOUGH,
    HOPELESS,
    KEPT,
    METHODS,
    RARE,
    Numbers,
    choose,
    expected,
    kept,
    rule,
    teachers_for,
)

ROOT = Path(__file__).parents[2]


def numbers(**given):
    return Numbers(**{"records": 5000, "labels": 8, "public": 1000, "epsilon": 4.0, "delta": 1e-6,
                      **given})  # fmt: skip


def test_gradients_where_noise_allows_and_moments_elsewhere():
    assert rule(numbers(records=100_000))[0] == "gradients"
    assert rule(numbers(epsilon=0.1))[0] == "moments"
    assert rule(numbers(labels=100))[0] == "moments"
    edge = numbers(labels=1, epsilon=1.0, records=int(BAR))
    assert rule(edge)[0] == "gradients"
    assert rule(numbers(labels=1, epsilon=1.0, records=int(BAR) - 1))[0] == "moments"
    assert set(rule(edge)) == {*METHODS} - {"dpsgd"}  # which needs more than records


def test_settings_and_rows_narrow_the_choice():
    assert choose("auto", numbers(public=0)).method == "gradients"
    assert choose("auto", numbers(epsilon=0.1, public=0)).method == "gradients"
    assert choose("auto", numbers(), images=True).method == "teachers"
    found = choose("auto", numbers(), settings=["n_teachers"])
    assert found.method == "teachers"
    assert "n_teachers" in found.reasons[0]
    assert choose("auto", numbers(), settings=["network"]).method == "dpsgd"
    with pytest.raises(InputError, match="queries, schedule"):
        choose("auto", numbers(), settings=["queries", "schedule"])


@pytest.mark.parametrize(
    ("method", "given", "settings", "argument"),
    [
        ("forest", {}, (), "method"),
        ("moments", {"public": 0}, (), "public"),
        ("teachers", {"public": 0}, (), "public"),
        ("moments", {}, ("queries",), "queries"),
    ],
)
def test_what_does_not_go_together_is_refused(method, given, settings, argument):
    with refused(argument):
        choose(method, numbers(**given), settings=settings)


def test_hopeless_numbers_are_said_and_others_not():
    assert choose("auto", numbers()).doubts == ()
    (doubt,) = choose("auto", numbers(records=100, epsilon=1.0)).doubts
    assert "fewer labels" in doubt
    few = numbers(records=10, labels=1, epsilon=1.0)
    for method in ("auto", "moments", "teachers"):
        (one,) = choose(method, few).doubts
        assert f"{HOPELESS:,.0f} would be enough" in one
        assert "fewer labels" not in one  # there are none
        assert expected(few, method) == (one,)  # and not what others lost


@pytest.mark.parametrize(("records", "teachers"), [(30, 10), (300, 75), (20_000, 250)])
def test_there_are_many_teachers_of_few_records(records, teachers):
    assert teachers_for(numbers(records=records), {}) == teachers


def test_what_labels_kept_is_what_was_measured() -> None:
    """In no data set less than the worst, in half of them at least the middle, at most the best."""
    text = (ROOT / "experiments/results/expectations.txt").read_text("utf-8")
    lines = re.findall(r"from +(\d+): [\d.]+ to [\d.]+  \((.*)\)", text)
    assert len(lines) == len(KEPT)
    for (edge, worst, middle, best), (start, sets) in zip(KEPT, lines, strict=True):
        shares = [float(share) for share in re.findall(r"[\d.]+(?=,|$)", sets)]
        assert edge == float(start)
        assert worst <= min(shares)
        assert middle <= statistics.median(shares) <= middle + 0.011
        assert best <= max(shares)
        assert worst <= middle <= best


def test_a_network_has_an_expectation_and_votes_have_none() -> None:
    linear, network = (expected(numbers(), method) for method in ("moments", "dpsgd"))
    assert linear[0] == network[0]
    assert set(linear) < set(network)
    assert expected(numbers(), "teachers") == ()


def test_rare_labels_are_expected_to_keep_less_and_to_be_warned_of() -> None:
    many = numbers(records=100_000, labels=10, epsilon=8.0)
    ranges = [kept(many, share) for share in (0.3, 0.01, 0.0001)]
    assert ranges == sorted(ranges, reverse=True)
    assert not choose("auto", many).doubts
    # Chest X-rays of 835 patients: near chance, whatever the method.
    few = numbers(records=835, labels=14, epsilon=8.0)
    assert kept(few, 0.05)[0] < 0.5
    (doubt,) = choose("auto", few).doubts
    assert doubt in expected(few, "gradients")
    enough = math.ceil(ENOUGH / RARE * math.sqrt(14) / 8)
    assert f"{enough:,} would be enough" in doubt
    assert not choose("auto", numbers(records=enough, labels=14, epsilon=8.0)).doubts
