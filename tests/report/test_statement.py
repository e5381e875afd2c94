"""What a privacy officer reads about a trained model."""

import math
from types import SimpleNamespace

import pytest

from privote.report.statement import TrainingStatement


def said(**changes):
    facts = {"epsilon": 2.0, "delta": 1e-6, "simulated": False, "guarantee": "noisy moments"}
    promise = SimpleNamespace(
        facts=lambda: {**facts, **changes.get("facts", {})},
        statement=lambda: "PRIVACY STATEMENT\n\nMechanism: binary.",
    )
    fitted = SimpleNamespace(
        method_="moments",
        reasons_=("Many labels.",),
        numbers_=SimpleNamespace(records=1234),
        encoder_=object(),
    )
    outcome = SimpleNamespace(
        promise=promise,
        fitted=fitted,
        persons=changes.get("persons", True),
        label_names=("flu", "cold"),
        feature_names=("age", "notes"),
        job=SimpleNamespace(method="auto"),
    )
    return TrainingStatement(outcome=outcome, digest="d1g3st")


def test_it_says_whom_what_which_and_what_would_void_it():
    text = said().statement()
    assert "each of 1,234 persons" in text
    assert "at most a factor e^2, which is 7.39" in text
    assert "predicts flu, cold from the columns age, notes" in text
    assert "d1g3st" in text
    assert "was chosen. Many labels." in text
    assert "void this" in text
    assert text.count("PRIVACY STATEMENT") == 1
    assert text.endswith("Mechanism: binary.")


def test_the_example_is_what_epsilon_allows():
    # Odds of 1 to 99 grow by e^2 at most, and the share is rounded up.
    (example,) = [text for name, text in said().parts() if name == "What that means"]
    stated = float(example.split("rise above ")[1].split(" per cent")[0])
    true = 100 * math.exp(2) / (math.exp(2) + 99)
    assert true <= stated < 1.01 * true


def test_a_factor_that_no_number_holds_is_not_given_as_another():
    text = said(facts={"epsilon": 1000.0}).statement()
    assert "at most a factor e^1000, plus 1e-06." in text


def test_records_are_not_said_to_be_persons():
    text = said(persons=False).statement()
    assert "each of 1,234 records" in text
    assert "A person with several records is protected less" in text


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"simulated": True}, "SIMULATED: the noise came from a seed, so this protects nobody"),
        ({"epsilon": None}, "about these votes only"),
        ({"guarantee": "data-dependent"}, "about these votes only"),
    ],
)
def test_where_nothing_is_promised_it_says_so(facts, words):
    text = said(facts=facts).statement()
    assert words in text
    assert "at most a factor" not in text


def test_the_facts_name_the_model():
    facts = said().facts()
    assert facts["model"] == {"file": "student.student", "sha256": "d1g3st"}
    assert facts["records"] == 1234
