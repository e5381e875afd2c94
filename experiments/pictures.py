"""Pascal VOC 2012 by budget: every method on features of a public network, over several splits.

Rows are features of EfficientNet-Lite0 at 160 x 160 pixels. Split 0 is the data set's own (train is
private; of val every second picture is public, the others are the test side); further splits draw
as many of each at random. ``dpsgd`` is Opacus' own engine and accountant on the same features: a
linear layer, Poisson samples, one picture *added or removed*, which is weaker than a picture
replaced, the promise of the others; its settings are the same for every budget and were not tuned.
All promises are unconditional.

Run: python experiments/pictures.py --plot docs/pictures/voc.svg
         > experiments/results/voc_by_epsilon.txt
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from expectations import voc

import privote as pv
from privote.learning import LinearStudent, PrivateClassifier

DELTA = 1e-5
EPSILONS = (1.0, 2.0, 4.0, 8.0, 10.0, 20.0)
METHODS = ("auto", "moments", "teachers", "neighbours", "dpsgd")
FIGURES = ("AUC", "MAP", "BAC", "ACC")
# The paper's Table 1 at epsilon 20: ResNet-50; PATE is data-dependent. Its row for DPSGD is left
# out: it may be scored by picture (docs/paper.md), and is then not comparable.
PAPER = {
    "paper, not private": (0.97, 0.85, 0.85, 0.97),
    "paper, Binary PATE": (0.85, 0.57, 0.62, 0.94),
    "paper, Powerset PATE": (0.70, 0.29, 0.58, 0.94),
}


class OpacusLinear:
    """A linear layer trained by Opacus; unknown labels add nothing to the loss."""

    def __init__(self, epsilon: float, seed: int, epochs: int = 20, rate: float = 4.0) -> None:
        self.epsilon, self.seed, self.epochs, self.rate = epsilon, seed, epochs, rate

    def fit(self, X: Any, Y: Any, public: Any) -> OpacusLinear:
        """Train on rows that public rows centre and scale."""
        import torch
        from opacus import PrivacyEngine
        from torch.utils.data import DataLoader, TensorDataset

        torch.manual_seed(self.seed)
        self.centre, self.scale = public.mean(axis=0), public.std(axis=0).mean() * 20
        rows = torch.tensor((X - self.centre) / self.scale, dtype=torch.float32)
        loader = DataLoader(TensorDataset(rows, torch.tensor(Y)), batch_size=1024, shuffle=True)
        model = torch.nn.Linear(X.shape[1], Y.shape[1])
        torch.nn.init.zeros_(model.weight)
        torch.nn.init.constant_(model.bias, -2.0)
        steps = torch.optim.SGD(model.parameters(), lr=self.rate, momentum=0.9)
        model, steps, loader = PrivacyEngine(accountant="prv").make_private_with_epsilon(
            module=model,
            optimizer=steps,
            data_loader=loader,
            target_epsilon=self.epsilon,
            target_delta=DELTA,
            epochs=self.epochs,
            max_grad_norm=1.0,
        )
        for _ in range(self.epochs):
            for x, y in loader:
                steps.zero_grad()
                known = (y >= 0).float()
                loss = torch.nn.functional.binary_cross_entropy_with_logits(
                    model(x), y.clamp(min=0).float(), weight=known, reduction="none"
                )
                loss.sum(dim=1).mean().backward()
                steps.step()
        self.weights = model._module.weight.detach().numpy()
        self.bias = model._module.bias.detach().numpy()
        return self

    def predict_proba(self, X: Any) -> Any:
        """Return probabilities (rows, labels)."""
        return 1 / (1 + np.exp(-((X - self.centre) / self.scale @ self.weights.T + self.bias)))

    def predict(self, X: Any) -> Any:
        """Return 1 from one half on."""
        return (self.predict_proba(X) >= 0.5).astype(int)


def run(task: dict[str, Any], method: str, epsilon: float, seed: int) -> dict[str, float]:
    """Return the figures of one training on the test side, and what was taken."""
    X, X_public, X_test = task["X"]
    started = time.perf_counter()
    if method == "not private":
        centre, scale = X_public.mean(axis=0), X_public.std(axis=0)
        model: Any = LinearStudent().fit((X - centre) / scale, task["Y"])
        X_test = (X_test - centre) / scale
    elif method == "dpsgd":
        model = OpacusLinear(epsilon, seed).fit(X, task["Y"], X_public)
    else:
        model = PrivateClassifier(method, epsilon, DELTA, random_state=seed)
        model.fit(X, task["Y"], X_public, seed=1000 + seed)
    found = pv.metrics.multilabel(
        task["Y_test"], model.predict_proba(X_test), model.predict(X_test)
    )
    row = {name: float(found[name]) for name in FIGURES}
    return row | {"seconds": time.perf_counter() - started}


def line(name: str, rows: list[dict[str, float]]) -> str:
    """Return the mean of every figure, and the range of AUC."""
    means = "  ".join(f"{np.mean([row[figure] for row in rows]):.3f}" for figure in FIGURES)
    auc = [row["AUC"] for row in rows]
    seconds = np.mean([row["seconds"] for row in rows])
    return f"  {name:20s} {means}  {min(auc):.3f} to {max(auc):.3f}  {seconds:7.1f}"


NAMES = {"auto": "privote", "teachers": "by teachers (PATE)", "neighbours": "by neighbours"}


def plot(path: Path, plain: float, auc: dict[str, dict[float, list[float]]]) -> None:
    """Draw AUC by epsilon: privote's methods, no privacy, and the published figures."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.8), layout="constrained")
    axes = figure.subplots()
    axes.axhline(plain, color="0.35", linewidth=1)
    axes.annotate("not private", (1.02, plain), va="bottom", fontsize=9, color="0.35")
    for (method, name), style in zip(NAMES.items(), ("o-", "s--", "^:"), strict=True):
        points = auc.get(method, {})
        means = [float(np.mean(values)) for values in points.values()]
        axes.plot(list(points), means, style, label=name, linewidth=2 if method == "auto" else 1.3)
    for name, (value, *_) in PAPER.items():
        if name != "paper, not private":
            axes.plot([20], [value], "x", color="black", markersize=7)
            label = f"{name.removeprefix('paper, ')}, as published (for its own votes only)"
            axes.annotate(label, (20, value), (-8, 0), textcoords="offset points", ha="right",
                          va="center", fontsize=9)  # fmt: skip
    ticks = sorted({epsilon for points in auc.values() for epsilon in points})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{epsilon:g}" for epsilon in ticks])
    axes.minorticks_off()
    axes.set_xlabel("privacy budget ε (δ = 1e-5); smaller protects better")
    axes.set_ylabel("AUC on test pictures")
    axes.set_title("Pascal VOC 2012: 5,717 private pictures, 20 labels", loc="left", fontsize=10)
    axes.legend(frameon=False, loc="lower left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def measured(
    kept: Path | None, tasks: list[dict[str, Any]], jobs: list[tuple[str, float]]
) -> dict[str, Any]:
    """Return figures by "method|epsilon|split"; what a file keeps is not run again."""
    found: dict[str, Any] = json.loads(kept.read_text()) if kept and kept.exists() else {}
    for method, epsilon in jobs:
        for split, task in enumerate(tasks):
            key = f"{method}|{epsilon:g}|{split}"
            if key not in found:
                found[key] = run(task, method, epsilon, split)
                print(key, file=sys.stderr, flush=True)
                if kept:
                    part = kept.with_suffix(".part")
                    part.write_text(json.dumps(found))
                    part.replace(kept)
    return found


def main() -> int:
    """Run what is not kept yet, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--kept", type=Path, help="a JSON file of figures, to go on from")
    parser.add_argument("--plot", type=Path, help="an SVG file to draw AUC by epsilon into")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    tasks = [voc(split) for split in range(given.splits)]
    pairs = [(method, epsilon) for epsilon in given.epsilons for method in given.methods]
    found = measured(given.kept, tasks, [("not private", 0.0), *pairs])

    def rows(method: str, epsilon: float) -> list[dict[str, float]]:
        return [found[f"{method}|{epsilon:g}|{split}"] for split in range(given.splits)]

    print(f"delta 1e-5, {given.splits} splits; 5,717 private, 2,912 public, 2,911 test pictures")
    print("                       " + "    ".join(FIGURES) + "    AUC of the splits  seconds")
    plain = rows("not private", 0.0)
    print(line("not private", plain))
    auc: dict[str, dict[float, list[float]]] = {}
    for epsilon in given.epsilons:
        print(f"epsilon {epsilon:g}")
        for method in given.methods:
            auc.setdefault(method, {})[epsilon] = [row["AUC"] for row in rows(method, epsilon)]
            print(line("default" if method == "auto" else method, rows(method, epsilon)))
    print("as published, epsilon 20")
    for name, figures in PAPER.items():
        print(f"  {name:20s} " + "  ".join(f"{value:.3f}" for value in figures))
    if given.plot:
        plot(given.plot, float(np.mean([row["AUC"] for row in plain])), auc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
