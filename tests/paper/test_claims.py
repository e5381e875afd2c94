"""The paper's claims: rules on kept figures, the kept page, and what measuring rests on."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from experiments.paper import data, electorates, learning, page, sources, theory
from experiments.paper.__main__ import RESULTS, kept
from experiments.paper.bench import Bench
from experiments.paper.claims import BY_NAME, CLAIMS, Claim
from experiments.paper.counts import answered, fitting
from sklearn.metrics import average_precision_score, balanced_accuracy_score, roc_auc_score

import privote as pv

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "paper.md"


# -- the page --------------------------------------------------------------------------------------


def test_the_page_is_what_the_kept_figures_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page.page(kept(RESULTS))


def test_the_page_can_be_read_in_ten_minutes() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(text.split()) <= 3_000
    rows = [line for line in text.splitlines() if line.startswith("| **")]
    assert len(rows) == len(CLAIMS)
    for claim in CLAIMS:
        assert f"`{claim.key}`" in text
        assert (RESULTS / f"{claim.key}.csv").is_file() or "**not run**" in text


def test_a_name_means_one_claim() -> None:
    assert len(BY_NAME) == 2 * len(CLAIMS)


def test_verdicts_follow_the_rules() -> None:
    def claim(**tests: object) -> Claim:
        return Claim(key="k", place="P", says="s", measure=lambda _: None, tests=tests)

    both = {"VOC": lambda f: [f["a"] > 1, f["a"] > 2], "MIMIC": None}
    assert claim(**both).verdict({"a": 3})[1] == {"VOC": "holds", "MIMIC": "not tested"}
    assert claim(**both).verdict({"a": 3})[0] == "in part"
    assert claim(VOC=both["VOC"]).verdict({"a": 3})[0] == "holds"
    assert claim(VOC=both["VOC"]).verdict({"a": 2})[0] == "in part"
    assert claim(VOC=both["VOC"]).verdict({"a": 1})[0] == "fails"
    assert claim(MIMIC=None).verdict({})[0] == "not tested"
    assert claim(VOC=both["VOC"]).verdict({})[0] == "not tested"


@pytest.mark.parametrize(
    ("key", "changed", "word"),
    [
        ("lemmas", {"composed": 1.1}, "in part"),
        ("theorem-5.2", {"back": 0.9}, "holds"),
        ("algorithm-1", {"tau_code": 0.9}, "holds"),
        ("algorithm-2", {"l1": 7.0, "binary": 6.2}, "holds"),
        ("table-3", {"power_exact": 1.0}, "in part"),
        ("table-13", {"val_equal": False}, "fails"),
    ],
)
def test_other_figures_would_be_another_verdict(key: str, changed: object, word: str) -> None:
    facts = kept(RESULTS)[key]["facts"]
    claim = BY_NAME[key]
    assert set(changed) <= set(facts)
    assert claim.verdict({**facts, **changed})[0] == word != claim.verdict(facts)[0]


def test_the_kept_figures_have_what_every_rule_and_cell_asks_for() -> None:
    for key, one in kept(RESULTS).items():
        claim = BY_NAME[key]
        for rule in filter(None, claim.tests.values()):
            assert rule(one["facts"])
        for text in (claim.published, claim.account, claim.exact, claim.elsewhere):
            text.format_map(one["facts"])


# -- counting --------------------------------------------------------------------------------------


def test_a_gate_is_priced_as_published_code_prices_it() -> None:
    # Gate + Pr[answered] x vote: next to no vote passes, so only the check is paid for.
    votes = np.random.default_rng(0).random((300, 50, 2)) < 0.5
    plain = answered(pv.BinaryVoting(sigma=7.0), votes, 8.0, paper=True)
    gate = pv.Gate(threshold=1e6, sigma=300.0)
    assert answered(pv.BinaryVoting(sigma=7.0, gate=gate), votes, 8.0, paper=True) > 5 * plain
    gate = pv.Gate(threshold=-1e6, sigma=300.0)
    assert answered(pv.BinaryVoting(sigma=7.0, gate=gate), votes, 8.0, paper=True) <= plain


def test_counting_stops_at_the_first_query_that_does_not_fit() -> None:
    costs = np.full((10, 2), [1.0, 2.0])
    orders = np.array([2.0, 3.0])
    # At order 2 the conversion of 2017 leaves 16 - log(1e5); at order 3 half of the logarithm.
    assert fitting(costs, 16.0, 1e-5, orders, old=True) == 5
    assert fitting(costs, 200.0, 1e-5, orders, old=True) == 10


def test_bounded_noise_that_reaches_further_costs_less() -> None:
    near, far = (theory._bounded_delta(bound, 4.0) for bound in (20.0, 60.0))
    assert far < near
    # One count, delta at epsilon 0: the total variation of the noise and the noise moved by one.
    x, mass = theory._bounded(10.0)
    moved = np.interp(x - 1, x, mass, left=0.0, right=0.0)
    variation = np.abs(mass - moved).sum() / 2
    assert theory._bounded_delta(10.0, 0.0, labels=1) == pytest.approx(variation, rel=0.01)


def test_figures_by_picture_are_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    Y, chance = (rng.random((40, 7)) < 0.4).astype(np.int8), rng.random((40, 7))
    chance[:, 3] = chance[:, 2]  # a tie counts half
    rows = [r for r in range(40) if 0 < Y[r].sum() < 7]
    found = learning.figures(Y, chance)
    for name, score in (
        ("BAC", lambda y, p: balanced_accuracy_score(y, p > 0.5)),
        ("AUC", roc_auc_score),
    ):
        expected = np.mean([score(Y[r], chance[r]) for r in rows])
        assert found[f"{name}, picture"] == pytest.approx(expected)
    chance[:, 3] = rng.random(40)
    expected = np.mean([average_precision_score(Y[r], chance[r]) for r in rows])
    assert learning.figures(Y, chance)["MAP, picture"] == pytest.approx(expected)


# -- data ------------------------------------------------------------------------------------------


def test_rates_follow_from_a_matrix_of_dependencies() -> None:
    rates = np.array([0.1, 0.2, 0.4])
    joint = np.array([[0.1, 0.05, 0.04], [0.05, 0.2, 0.06], [0.04, 0.06, 0.4]])
    found = electorates.relative_rates(joint / rates[:, None])
    np.testing.assert_allclose(found / found[0], rates / rates[0])


#: A label file of three reports: nothing found, Atelectasis denied, Pneumonia.
CHEXPERT = """Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,Enlarged Cardiomediastinum,\
Cardiomegaly,Lung Opacity,Lung Lesion,Edema,Consolidation,Pneumonia,Atelectasis,Pneumothorax,\
Pleural Effusion,Pleural Other,Fracture,Support Devices
CheXpert-v1.0-small/train/patient00000/study1/view1_frontal.jpg,F,50,Frontal,PA,1.0,,,,,,,,,,,,,
CheXpert-v1.0-small/train/patient00001/study1/view1_frontal.jpg,F,50,Frontal,PA,,,,,,,,,0.0,,,,,
CheXpert-v1.0-small/train/patient00002/study1/view1_frontal.jpg,F,50,Frontal,PA,,,,1.0,,,1.0,1.0,,,,,,
"""


def test_files_are_found_behind_links_and_in_wheels(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    assert data.hierarchy(Bench(data=folder)) is None
    (tmp_path / "elsewhere").mkdir()
    with zipfile.ZipFile(tmp_path / "elsewhere" / "torchxrayvision-1.0-any.whl", "w") as wheel:
        wheel.writestr("torchxrayvision/data/chexpert_train.csv", CHEXPERT)
    other = tmp_path / "other"
    other.mkdir()
    (other / "linked").symlink_to(tmp_path / "elsewhere")
    assert sources.find(other, sources.VOC) is None
    measured = data.hierarchy(Bench(data=other))
    assert measured is not None
    assert measured.facts["opacity"] == 1.0
    Y, names = sources.chest_labels(other, sources.CHEXPERT)
    assert names[:2] == ("Atelectasis", "Cardiomegaly")
    assert Y[:, 0].tolist() == [0, 0, -1]
    # Of two reports that deny the first finding, one says nothing of the second.
    assert data.negative(Y, known=False)[0, 1] == 0.5
    assert data.negative(Y, known=True)[0, 1] == 1.0
