"""The registry of the paper's claims is complete, and what it measures can be run and kept."""

from __future__ import annotations

import csv
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiments.paper import budgets, electorates, images, runner, sensitivity, theory, tuning
from experiments.paper.claims import BY_KEY, CLAIMS, PARTS, PLACES
from experiments.paper.counts import fitting
from experiments.paper.kinds import FAILS, HOLDS, NOT_RUN, PART, Bench
from experiments.paper.page import write
from experiments.paper.telling import file_name

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("PRIVOTE_SHARED", REPOSITORY.parent / "shared"))

#: The paper's captions and theorem-like statements, by their labels, as its source has them.
_LABELS = """
lemma:rdp-gaussian lemma:rdp-composition prop:binary-pate lemma:rdp-gaussian-multilabel
alg:extended-pate prop:gap thm:pate-rdp-bound fig:binary_powerset_negative_votes
fig:powerset-binary-pate-compare-metrics-sigma fig:powerset-binary-pate fig:tpate
tab:compare-dpsgd-pate tab:dpsgd-pate-chexpert tab:binary-pate-vary-epsilon fig:retrain
tab:data-stats-final lemma:coordindep prop:coorddepend fig:treeMulti matrix:dependency-chexpert
tab:pascal_dependency_matrix tab:mimic_dependency_matrix tab:cxpert_dependency_matrix
tab:padchest_dependency_matrix tab:extreme-multilabel fig:datasets_class_distribution
tab:powerset-binary-pate-pascal tab:powerset-binary-pate-cxpert
tab:pascal-voc-positive-labels-per-data-point tab:pascal-voc-delta-values
tab:powerset-tau-pate-pascal fig:cdf-gaps fig:powerset-binary-gaps-metrics-num-labels-pascal
fig:powerset-binary-gaps-metrics-num-labels-cxpert fig:app-tune-tau2 fig:app-tune-tau1
fig:app-tune-sigma fig:app-compare-methods-directly tab:diff-epsilon tab:diff-epsilon#2
fig:PascalVOC-eps10 fig:cross-domain fig:retrain-cxpert-tau fig:ap-chexpert-ensemble-self-pate
alg:tau-clipping-privateknn tab:data-stats-final#2
"""
KEYS = _LABELS.split()

_FLOAT = re.compile(r"\\begin\{(figure|table|algorithm)(\*?)\}(.*?)\\end\{\1\2\}", re.DOTALL)
_STATEMENT = re.compile(r"\\begin\{(lemma|prop|theorem)\}(.*?)\\end\{\1\}", re.DOTALL)
_LABEL = re.compile(r"\\label\{([^}]*)\}")


def _keys_of(source: str) -> list[str]:
    """Return the label of every caption and statement, in order; a second use has "#2"."""
    places = []
    for found in _FLOAT.finditer(source):
        assert found[3].count(r"\caption{") == 1
        places.append((found.start(), _LABEL.findall(found[3])))
    places += [(found.start(), _LABEL.findall(found[2])) for found in _STATEMENT.finditer(source)]
    seen: dict[str, int] = {}
    keys = []
    for _, labels in sorted(places):
        assert len(labels) == 1, labels
        seen[labels[0]] = seen.get(labels[0], 0) + 1
        keys.append(labels[0] if seen[labels[0]] == 1 else f"{labels[0]}#{seen[labels[0]]}")
    return keys


def _statements(source: str) -> dict[str, str]:
    """Return what the printed paper calls its statements: LaTeX counts them by section."""
    main, _, appendix = source.partition("\\appendix")
    found = {}
    for text, names in ((main, "123456789"), (appendix, "ABCDEFGHI")):
        parts = re.split(r"\\section\{", text)[1:]
        for name, part in zip(names, parts, strict=False):
            for number, one in enumerate(_STATEMENT.finditer(part), 1):
                kind = {"lemma": "Lemma", "prop": "Proposition", "theorem": "Theorem"}[one[1]]
                found[_LABEL.findall(one[2])[0]] = f"{kind} {name}.{number}"
    return found


def test_every_caption_and_statement_is_a_claim() -> None:
    assert len(KEYS) == len(set(KEYS)) == 38 + 8
    assert sorted(BY_KEY) == sorted(KEYS)
    assert len(CLAIMS) == len(BY_KEY)
    assert len({file_name(key) for key in BY_KEY}) == len(BY_KEY)


def test_the_list_is_that_of_the_papers_source() -> None:
    sources = [path for path in sorted((SHARED / "seed").glob("*.txt")) if path.is_file()]
    texts = [path.read_text(encoding="utf-8") for path in sources]
    found = [text for text in texts if "multi-winner" in text.lower() and r"\caption{" in text]
    if not found:
        pytest.skip("the paper's source is absent: put it at ../shared/seed")
    assert found[0].count(r"\caption{") == 38
    assert _keys_of(found[0]) == KEYS == [claim.key for claim in CLAIMS]
    named = _statements(found[0])
    assert len(named) == 8
    assert named == {key: PLACES[key] for key in named}


def test_every_claim_has_its_place_in_the_paper_and_on_the_page() -> None:
    assert sorted(key for keys in PARTS.values() for key in keys) == sorted(KEYS)
    assert len(set(PLACES.values())) == len(PLACES) == len(KEYS)
    assert PLACES["fig:tpate"] == "Figure 4"
    assert PLACES["tab:data-stats-final#2"] == "Table 18"


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.key)
def test_a_claim_says_what_it_is_and_what_measures_it(claim) -> None:
    assert claim.kind in {"theorem", "table", "figure", "algorithm"}
    assert all((claim.title, claim.says, claim.data, claim.paper))
    assert (claim.measure is None) == (claim.verdict is None)
    assert claim.measure is not None or claim.needs


THEORY = {
    "lemma:rdp-gaussian": HOLDS,
    "lemma:rdp-composition": HOLDS,
    "prop:binary-pate": PART,
    "lemma:rdp-gaussian-multilabel": HOLDS,
    "prop:gap": HOLDS,
    "thm:pate-rdp-bound": PART,
    "lemma:coordindep": PART,
    "prop:coorddepend": PART,
    "alg:extended-pate": FAILS,
    "alg:tau-clipping-privateknn": FAILS,
}


def test_theory_is_measured_kept_and_written(tmp_path: Path) -> None:
    told: list[str] = []
    bench = Bench(seeds=1)
    first = runner.run(
        bench, tmp_path / "kept", only=list(THEORY), progress=lambda key, *_: told.append(key)
    )
    assert {r.claim.key: r.verdict[0] for r in first} == THEORY
    assert told[-1] == "done"
    more = [*THEORY, "fig:cdf-gaps"]
    so_far = runner.run(bench, tmp_path / "kept", only=more, kept_only=True)
    assert [r.claim.key for r in so_far if r.verdict[0] == NOT_RUN] == ["fig:cdf-gaps"]
    again = runner.run(bench, tmp_path / "kept", only=list(THEORY))
    assert all(r.kept for r in again)
    assert [r.verdict for r in again] == [r.verdict for r in first]
    facts = write(tmp_path / "out", again, bench, "python -m experiments.paper")
    page = (tmp_path / "out" / "paper.html").read_text(encoding="utf-8")
    assert all(r.claim.command.replace("&", "&amp;") in page for r in first)
    assert "<dt>does not hold</dt><dd>2</dd>" in page
    assert facts["verdicts"] == {HOLDS: 4, PART: 4, FAILS: 2}
    assert (tmp_path / "out" / "csv" / "thm-pate-rdp-bound.csv").is_file()
    text = (tmp_path / "out" / "paper.md").read_text(encoding="utf-8")
    assert _sections(text) == sorted(map(file_name, THEORY))
    assert text.count("Measured by `python -m experiments.paper --only ") == len(THEORY)
    assert "[Proposition 3.1](#prop-binary-pate)" in text  # Lemma A.1 shares its measurement
    assert _pictures(text) == ["thm-pate-rdp-bound.svg"]
    assert (tmp_path / "out" / "pictures" / "paper" / "thm-pate-rdp-bound.svg").is_file()
    assert "`python experiments/extreme.py`" in text


def _sections(text: str) -> list[str]:
    """Return the names of a page's sections; each is linked from the overview."""
    named = sorted(re.findall(r'^<a id="([^"]+)"></a>\n\n### ', text, re.MULTILINE))
    linked = re.findall(r"^\| [^|]+ \| \[[^|]+\]\(#([^)]+)\) \| [^|]+ \|$", text, re.MULTILINE)
    assert sorted(linked) == named
    return named


def _pictures(text: str) -> list[str]:
    return sorted(re.findall(r"\]\(pictures/paper/([^)]+)\)", text))


def test_the_kept_page_has_every_claim_and_every_figure_a_picture() -> None:
    docs = REPOSITORY / "docs"
    text = (docs / "paper.md").read_text(encoding="utf-8")
    assert _sections(text) == sorted(map(file_name, KEYS))
    assert "not run" not in text.partition("\n## ")[0]
    figures = {f"{file_name(c.key)}.svg" for c in CLAIMS if c.kind == "figure"}
    assert figures <= set(_pictures(text))
    assert _pictures(text) == sorted(one.name for one in (docs / "pictures" / "paper").iterdir())
    size = sum(one.stat().st_size for one in (docs / "pictures" / "paper").iterdir())
    assert size < 1_500_000


def test_the_kept_page_says_what_the_kept_verdicts_say() -> None:
    text = (REPOSITORY / "docs" / "paper.md").read_text(encoding="utf-8")
    results = REPOSITORY / "experiments" / "paper" / "results"
    with (results / "verdicts.csv").open(encoding="utf-8", newline="") as file:
        kept = {row["key"]: row["verdict"] for row in csv.DictReader(file)}
    assert sorted(kept) == sorted(KEYS)
    for key, word in kept.items():
        section = text.partition(f'<a id="{file_name(key)}"></a>')[2].partition("\n### ")[2]
        assert section.partition("\n### ")[0].count(f"**Verdict: {word}.**") == 1, key


def test_another_parameter_measures_anew(tmp_path: Path) -> None:
    only = ["fig:treeMulti"]
    runner.run(Bench(seeds=1), tmp_path, only=only)
    assert not runner.run(Bench(seeds=2), tmp_path, only=only)[0].kept
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "notes.csv").write_text("x\n")
    assert not runner.run(Bench(seeds=1, data=tmp_path / "data"), tmp_path, only=only)[0].kept
    assert len([f for f in tmp_path.iterdir() if f.suffix == ".json"]) == 3
    kept = next(tmp_path.glob("*.json"))
    assert set(json.loads(kept.read_text())) == {"seconds", "measured"}


def test_verdicts_follow_the_numbers() -> None:
    assert theory.gaussian_verdict({"difference": 0.1})[0] == FAILS
    assert theory.composition_verdict({"ratio": 1.1})[0] == FAILS
    assert theory.theorem_six_verdict({"forth": 0.9, "back": 0.9, "loose": 2})[0] == HOLDS
    assert sensitivity.norms_verdict({"l1": 7.0, "binary": 6.2, "paper": 6.2})[0] == HOLDS
    gaps = {"binary": [47, 47], "powerset": [47, 18], "BAC": [0.6, 0.7]}
    assert budgets.gaps_by_labels_verdict(gaps)[0] == HOLDS
    assert budgets.better_labels_verdict(gaps)[0] == PART
    noise = {"many": [0.7, 0.7], "few": [0.7, 0.66, 0.6]}
    adds, takes = ({"paper": [737, after], "exact": [800, 900]} for after in (756, 700))
    assert tuning.ensemble_noise_verdict({**noise, "gate": adds})[0] == HOLDS
    assert tuning.ensemble_noise_verdict({**noise, "gate": takes})[0] == PART


def test_counting_stops_at_the_first_query_that_does_not_fit() -> None:
    costs = np.full((10, 2), [1.0, 2.0])
    orders = np.array([2.0, 3.0])
    # At order 2 the conversion of 2017 leaves 16 - log(1e5); at order 3 half of the logarithm.
    assert fitting(costs, 16.0, 1e-5, orders, old=True) == 5
    assert fitting(costs, 200.0, 1e-5, orders, old=True) == 10


def test_rates_follow_from_a_matrix_of_dependencies() -> None:
    rates = np.array([0.1, 0.2, 0.4])
    joint = np.array([[0.1, 0.05, 0.04], [0.05, 0.2, 0.06], [0.04, 0.06, 0.4]])
    found = electorates.relative_rates(joint / rates[:, None])
    np.testing.assert_allclose(found / found[0], rates / rates[0])


def test_published_matrices_are_as_the_paper_has_them() -> None:
    sizes = {"voc": 20, "mimic": 13, "chexpert": 11, "padchest": 15, "chexpert_negative": 5}
    for name, size in sizes.items():
        names, matrix = electorates.published(name)
        assert matrix.shape == (size, size)
        assert len(names) == size
        assert (np.diag(matrix) == 1).all()
    names, matrix = electorates.published("chexpert")
    assert matrix[names.index("Pneumonia"), names.index("Lung Opacity")] == 0.585


def test_images_are_learnt_from_in_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("opacus")
    small = {"TEACHERS": 4, "PUBLIC": 60, "TEST": 100, "STEPS": 2, "LESSONS": (120, 120)}
    for name, value in small.items():
        monkeypatch.setattr(images, name, value)
    rows = images.one("learnt", 80, 0, (8.0,))
    assert [row["model"] for row in rows] == [
        images.OPEN,
        images.GRADIENTS,
        images.ALLOWANCE,
        images.WORST,
        images.PAPER,
        images.POWERSET,
    ]
    assert all(0 <= row["AUC"] <= 1 for row in rows)
    assert rows[3]["labelled"] == 60


def test_the_line_between_dpsgd_and_pate_follows_the_figures() -> None:
    names = (images.GRADIENTS, images.ALLOWANCE, images.WORST)
    low = dict.fromkeys((*names, images.PAPER, images.POWERSET, images.OPEN), 0.6)
    facts = {
        f"{seen} {private} {epsilon:g}": dict(low)
        for seen in images.SEEN
        for private in images.SIZES
        for epsilon in (0, *images.EPSILONS)
    }
    word, reason = images.contest_verdict(facts)
    assert word == FAILS
    assert "ahead of DPSGD nowhere" in reason
    facts[f"learnt {images.SIZES[-1]} 20"][images.PAPER] = 0.8
    word, reason = images.contest_verdict(facts)
    assert word == HOLDS
    assert f"at {images.SIZES[-1]} scenes, features learnt, epsilon 20" in reason


def test_a_long_measurement_goes_on_where_it_was_broken_off(tmp_path: Path) -> None:
    bench = Bench(parts=tmp_path / "parts")
    assert bench.once("one", lambda: [np.float64(1.5)]) == [1.5]
    assert bench.once("one", lambda: pytest.fail("it was made before")) == [1.5]


def test_the_quick_profile_shows_what_a_full_run_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = replace(BY_KEY["prop:gap"], slow=True)
    monkeypatch.setattr(runner, "CLAIMS", (slow,))
    monkeypatch.setattr(runner, "KEPT", tmp_path / "results")
    assert runner.run(Bench(), tmp_path / "kept")[0].verdict[0] == NOT_RUN
    full = Bench(profile="full")
    write(
        tmp_path / "out", runner.run(full, tmp_path / "kept"), full, "python -m experiments.paper"
    )
    (tmp_path / "out" / "slow").rename(tmp_path / "results")
    (shown,) = runner.run(Bench(), tmp_path / "kept")
    assert shown.verdict[0] == HOLDS
    assert "Not measured in this run" in shown.verdict[1]
    assert "--profile full" in shown.verdict[1]
