"""A participatory budget, start to end: plan, winners under the budget, shares, the page.

Uses a real Pabulib file if the shared data is there, else a small one that is made up.

Run: python examples/poll.py
"""

import os
import tempfile
from pathlib import Path

import numpy as np

import privote as pv
from privote.polls.planning import poll_plans
from privote.report.polls import poll_page

shared = Path(os.environ.get("PRIVOTE_SHARED", Path(__file__).resolve().parents[2] / "shared"))
source = shared / "data" / "pabulib_Poland_Lodz_2020_Zlotno.pb"
folder = Path(tempfile.mkdtemp())

if not source.exists():
    rng = np.random.default_rng(0)
    liked = rng.random((3000, 6)) < [0.5, 0.4, 0.3, 0.25, 0.15, 0.05]
    ballots = [",".join(f"p{place}" for place in np.flatnonzero(row)[:3]) for row in liked]
    projects = [f"p{place};{cost};Project {place}" for place, cost in enumerate((5, 4, 6, 2, 3, 1))]
    source = folder / "made_up.pb"
    source.write_text(
        "META\nkey;value\nbudget;10\nvote_type;approval\nmax_length;3\n"
        "PROJECTS\nproject_id;cost;name\n" + "\n".join(projects) + "\n"
        "VOTES\nvoter_id;vote\n" + "\n".join(f"{v};{b}" for v, b in enumerate(ballots)) + "\n"
    )

# Reading tells the public numbers: voters, options, and the most approvals a ballot may have.
ballots = pv.polls.read(source)
print(ballots.size)

# Before the poll: from those numbers alone.
epsilons, plans = poll_plans(
    ballots.voters, len(ballots.options), epsilon=1.0, delta=1e-6, most=ballots.size.most, seats=4
)
for epsilon, plan in zip(epsilons, plans["winners"], strict=True):
    print(f"epsilon {epsilon:g}: four seats are decided {plan.gap:.0f} votes apart")

# After it: who is paid for, with shares; charged to these people's budget before it is drawn.
result = pv.poll(
    ballots,
    epsilon=1.0,
    delta=1e-6,
    shares=True,
    dataset="the quarter",
    ledger=folder / "polls.db",
    budget=1.2,
)
(folder / "poll.html").write_text(poll_page(result), encoding="utf-8")
print(result.summary())

try:
    pv.poll(ballots, epsilon=1.0, delta=1e-6, dataset="the quarter", ledger=folder / "polls.db")
except pv.BudgetError as error:
    print("Fresh noise is refused:", error)
