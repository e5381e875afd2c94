"""The rule that chooses a method: public numbers in, a method and its reasons out."""

import pytest
from tests.refusals import refused

from privote.errors import InputError
from privote.learning.methods import (
    BAR,
    HOPELESS,
    METHODS,
    Numbers,
    choose,
    expected,
    rule,
    teachers_for,
)


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
    with pytest.raises(InputError, match="network, rounds"):
        choose("auto", numbers(), settings=["rounds", "network"])


@pytest.mark.parametrize(
    ("method", "given", "settings", "argument"),
    [
        ("forest", {}, (), "method"),
        ("moments", {"public": 0}, (), "public"),
        ("teachers", {"public": 0}, (), "public"),
        ("moments", {}, ("rounds",), "rounds"),
    ],
)
def test_what_does_not_go_together_is_refused(method, given, settings, argument):
    with refused(argument):
        choose(method, numbers(**given), settings=settings)


def test_hopeless_numbers_are_said_and_others_not():
    assert choose("auto", numbers()).doubts == ()
    (doubt,) = choose("auto", numbers(records=100, epsilon=1.0)).doubts
    (one,) = choose("auto", numbers(records=20, epsilon=1.0, labels=1)).doubts
    assert "20 records are too few for 1 label at epsilon 1" in one
    assert "fewer labels" in doubt
    assert "fewer labels" not in one  # there are none
    assert "always answering no" in doubt
    few = numbers(records=10, labels=1, epsilon=1.0)
    assert f"{HOPELESS:,.0f} would be enough" in choose("moments", few).doubts[0]


@pytest.mark.parametrize("method", ["moments", "teachers"])
def test_a_hopeless_model_is_not_promised_what_others_lost(method):
    few = numbers(records=35, epsilon=0.5)
    assert expected(few, method) == choose(method, few).doubts


@pytest.mark.parametrize(("records", "teachers"), [(30, 10), (300, 75), (20_000, 250)])
def test_there_are_many_teachers_of_few_records(records, teachers):
    assert teachers_for(numbers(records=records), {}) == teachers
