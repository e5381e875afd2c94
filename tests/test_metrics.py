"""The figures of merit against numbers worked out by hand."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from tests.refusals import refused

from privote.mechanisms import ABSTAIN
from privote.metrics import multilabel

TRUTH = np.array([[1, 0], [1, 1], [0, 1], [0, 0]])
SCORE = np.array([[0.9, 0.6], [0.4, 0.7], [0.2, 0.3], [0.6, 0.1]])
# Answers: label 0 is 1 0 0 1, label 1 is 1 1 0 0.


def test_numbers_worked_out_by_hand() -> None:
    found = multilabel(TRUTH, SCORE)
    # Label 0: tp 1, fp 1, fn 1, tn 1. Pairs (1, 0) in order: .9>.2 .9>.6 .4>.2, not .4>.6: 3/4.
    # Average precision of 1 0 1 0: (1 + 2/3) / 2 = 5/6.
    # Label 1: tp 1, fp 1, fn 1, tn 1. Order .7(1) .6(0) .3(1) .1(0): AUC 3/4, AP 5/6.
    assert found["ACC"] == pytest.approx(0.5)
    assert found["BAC"] == pytest.approx(0.5)
    assert found["AUC"] == pytest.approx(0.75)
    assert found["MAP"] == pytest.approx(5 / 6)
    for name in ("CP", "CR", "CF1", "OP", "OR", "OF1"):
        assert found[name] == pytest.approx(0.5)
    assert found["coverage"] == 1.0
    assert found["undefined"] == []


def test_a_label_with_one_class_is_left_out_and_named() -> None:
    truth = np.column_stack([TRUTH, np.zeros(4, int), np.ones(4, int)])
    score = np.column_stack([SCORE, [0.1, 0.2, 0.9, 0.3], [0.9, 0.9, 0.9, 0.1]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = multilabel(truth, score)
    assert found["undefined"] == [2, 3]
    assert found["BAC"] == pytest.approx(0.5)
    assert found["AUC"] == pytest.approx(0.75)
    assert found["MAP"] == pytest.approx(5 / 6)
    assert found["ACC"] == pytest.approx((0.5 + 0.5 + 0.75 + 0.75) / 4)
    assert np.isnan(found["per_label"]["AUC"]).tolist() == [False, False, True, True]


def test_abstained_and_unknown_cells_are_left_out() -> None:
    truth = np.vstack([TRUTH, [[-1, 1], [1, 0]]])
    score = np.vstack([SCORE, [[0.0, 0.0], [0.0, 1.0]]])
    answers = np.vstack([SCORE >= 0.5, [[0, ABSTAIN], [ABSTAIN, ABSTAIN]]]).astype(int)
    found, plain = multilabel(truth, score, answers), multilabel(TRUTH, SCORE)
    assert found["coverage"] == pytest.approx(8 / 12)
    for name in ("ACC", "BAC", "AUC", "MAP", "CP", "CR", "CF1", "OP", "OR", "OF1"):
        assert found[name] == plain[name]
    np.testing.assert_array_equal(found["per_label"]["counted"], [4, 4])


def test_all_abstained_is_no_error() -> None:
    found = multilabel(TRUTH, SCORE, np.full((4, 2), ABSTAIN))
    assert found["coverage"] == 0.0
    assert found["undefined"] == [0, 1]
    assert all(math.isnan(found[name]) for name in ("ACC", "BAC", "AUC", "MAP", "CF1", "OF1"))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((TRUTH[0], SCORE), "Y_true"),
        ((TRUTH[:0], SCORE[:0]), "Y_true"),
        ((TRUTH, SCORE[:3]), "Y_score"),
        ((TRUTH, SCORE, TRUTH.T), "Y_pred"),
        ((TRUTH * 2, SCORE), "Y_true"),
        ((TRUTH * 0.5, SCORE), "Y_true"),
        ((TRUTH, SCORE, SCORE), "Y_pred"),
        ((TRUTH, np.where(SCORE == 0.7, np.nan, SCORE)), "Y_score"),
        ((TRUTH, SCORE * 3), "Y_score"),
        ((TRUTH, SCORE.astype(str)), "Y_score"),
        ((TRUTH, [[1, 2], [3]]), "Y_score"),
        ((TRUTH, None), "Y_pred"),
    ],
)
def test_wrong_arguments(arguments: tuple[Any, ...], name: str) -> None:
    with refused(name):
        multilabel(*arguments)
