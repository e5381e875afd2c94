"""What others ask for: entries of a registry, and a model card."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privote as pv
from privote.guarantees import Fact
from privote.report.forms import OPEN, model_card, registry_entries, yaml_of

yaml = pytest.importorskip("yaml")

# Of schemas/deployments-schema.yaml (opendp/deployments-registry-data, MIT): what is required, what
# else there is, and which words a field may have.
REQUIRED = {
    "": {"url_slug", "status", "tier", "deployment"},
    "basic": {
        *("name", "data_curators", "description", "intended_use"),
        *("data_product_type", "data_product_region", "publication_date"),
    },
    "administrative": {"registry_authors"},
}
FIELDS = {
    "basic": {*REQUIRED["basic"], "data_product_sector"},
    "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "privacy_loss": {
        *("privacy_unit", "privacy_unit_details"),
        *("privacy_parameters", "privacy_parameters_details"),
    },
    "deployment_model": {
        *("model_name", "model_name_details", "actors", "release_type", "release_type_details"),
        *("data_source_type", "data_source_type_details", "access_type", "access_type_details"),
    },
    "accounting": {"post_processing", "composition"},
    "implementation": {"preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"},
    "administrative": {"sources", "notes", "registry_authors"},
}
WORDS = {
    "status": {"Converted", "Draft", "Pending", "Approved"},
    "data_product_type": {"Summary statistics", "Machine learning model", "Dataset"},
    "variant_name": {"Pure DP", "Approximate DP", "Renyi DP", "Custom"},
    "model_name": {"Local", "Central", "Shuffle", "Federated"},
    "release_type": {"One release", "Many releases"},
}


def check_entry(entry: dict[str, Any]) -> None:
    """Check an entry against the registry's schema: names, types and words of its fields."""
    assert entry.keys() == REQUIRED[""]
    assert entry["tier"] in (1, 2, 3)
    parts = entry["deployment"]
    assert {"basic", "administrative"} <= parts.keys() <= FIELDS.keys()
    flat = {"status": entry["status"]}
    for name, part in parts.items():
        assert REQUIRED.get(name, set()) <= part.keys() <= FIELDS[name]
        flat |= part
    assert all(flat[name] in words for name, words in WORDS.items())
    date.fromisoformat(flat.pop("publication_date"))
    cost = flat.pop("privacy_parameters")
    assert cost.keys() == {"epsilon", "delta"}
    assert all(isinstance(value, float) for value in cost.values())
    for name in ("data_curators", "registry_authors"):
        assert all(isinstance(each, str) for each in flat.pop(name))
    assert all(isinstance(value, str) for value in flat.values())


def test_a_ledger_as_entries_of_the_registry(tmp_path: Path) -> None:
    votes = np.random.default_rng(0).random((40, 30, 5)) < 0.3
    terms: dict[str, Any] = {"mechanism": pv.BinaryVoting(sigma=9.0), "delta": 1e-5}
    with pv.Ledger.at(tmp_path / "a.db") as ledger:
        for epsilon in (2.0, 1.0):
            wanted = {**terms, "epsilon": epsilon, "budget": 8.0, "guarantee": "allowance"}
            pv.label(votes, ledger=ledger, dataset='ward: "3"\n', **wanted)
        pv.label(votes, ledger=ledger, dataset="trial", epsilon=2.0, seed=1, **terms)
        entries, rest = registry_entries(ledger.state)
        (standing, _) = ledger.standing()
    assert rest == ["trial"]
    (entry,) = entries
    (read,) = yaml.safe_load_all(yaml_of(entry))
    assert read == entry
    check_entry(read)
    loss = read["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"]["epsilon"] >= standing["used"]
    assert read["deployment"]["deployment_model"]["release_type"] == "Many releases"
    assert OPEN in read["deployment"]["basic"]["data_curators"]


def test_a_model_card_is_yaml_and_then_tables_nothing_leaves() -> None:
    release = pv.label(np.ones((300, 60, 4), bool), epsilon=8.0, delta=1e-5)
    facts = [Fact("a", "a | b", "two\nlines <b>")]
    card = model_card(release.guarantee, facts, ["flu", "[x](y)"], "tabular-classification")
    _, front, body = card.split("---\n", 2)
    assert yaml.safe_load(front)["privacy"]["epsilon"] >= release.epsilon
    assert yaml.safe_load(front)["privacy"]["delta"] == 1e-5
    assert r"| a \| b | two lines \<b\> |" in body
    assert r"\[x\](y)" in body
    for row in release.guarantee.rows():
        assert f"| {row.name} |".replace("_", r"\_") in body
