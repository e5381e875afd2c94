"""Language models as voters: a batch of prompts, asked once each, and private labels of them.

Each voter is a clinic. What is private is the clinic's own examples, which it puts in front of
every prompt; the prompts are public. The model is a function that you give: `your_model` below is
the place for it, and stands here for a model that reads, so that this runs without one.

The run is broken off in the middle, as a cluster or a rate limit may do, and goes on: no prompt is
sent twice for what is done.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import privote as pv
from privote.accounting.renyi import rounded_up

LABELS = ["fever", "cough", "rash"]
CLINICS = [f"clinic {number}" for number in range(100)]


def your_model(prompts: list[str]) -> list[str]:
    """Return a model's answer to each prompt. **Your model goes here**: a server's, or your own.

    This one stands for it: it repeats the labels that the last line of a prompt speaks of, as the
    examples in front of it tell.
    """
    answers = []
    for prompt in prompts:
        *examples, question = prompt.splitlines()
        known = dict(line.split(" -> ") for line in examples)
        answers.append(", ".join(label for word, label in known.items() if word in question))
    return answers


def private_examples(clinic: str) -> str:
    """Return a clinic's own examples: some know fewer words than others."""
    words = {"hot": "fever", "shivering": "fever", "coughs": "cough", "spots": "rash"}
    left_out = CLINICS.index(clinic) % 7
    return "\n".join(f"{w} -> {words[w]}" for at, w in enumerate(words) if at != left_out)


def vote(clinic: str, rows: Any) -> np.ndarray:
    """Ask the model about a batch of prompts, as one clinic: (prompts, labels) of 0 and 1."""
    prompts = [f"{private_examples(clinic)}\n{prompt}" for prompt in rows["prompt"]]
    return np.array([[label in said for label in LABELS] for said in your_model(prompts)])


def collect(**how: Any) -> Any:
    return pv.collect_votes(
        vote, "prompts.csv", "votes.zarr", names=CLINICS, labels=LABELS, chunk=40, **how
    )


def break_off(done: int, chunks: int) -> None:
    if done == 2:
        raise ConnectionError("the server has had enough")


if __name__ == "__main__":
    os.chdir(tempfile.mkdtemp())
    rng = np.random.default_rng(0)
    patients = rng.choice(["is hot", "coughs", "has spots", "is well", "is shivering"], (120, 2))
    lines = [f"the patient {first} and {second}" for first, second in patients]
    Path("prompts.csv").write_text("\n".join(["prompt", *lines]) + "\n")

    try:
        collect(progress=break_off)
    except ConnectionError as error:
        print(f"broke off: {error}")
    found = collect(resume=True)
    print(f"resumed: {found.done_before} of {found.chunks} chunks were done before")

    release = pv.label("votes.zarr", epsilon=8.0, delta=1e-5)
    truth = np.array([[f in line for f in ("hot", "coughs", "spots")] for line in lines])
    truth[:, 0] |= np.array(["shivering" in line for line in lines])
    print(f"{(release.labels == truth).mean():.0%} of the labels are as the prompts say")
    print(f"epsilon {rounded_up(release.epsilon)} for a clinic, with all of its examples")
