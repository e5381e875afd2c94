"""A training that breaks off: charged once, drawn once, and finished from what was committed."""

from contextlib import closing

import numpy as np
import pytest
from tests.refusals import refused

import privote as pv
from privote.errors import BudgetError, ChargedError, CompleteError
from privote.learning.delivery import Delivery, Records
from privote.ledger import Account, Run

RNG = np.random.default_rng(0)
X, PUBLIC = RNG.normal(size=(400, 4)), RNG.normal(size=(60, 4))
Y = (X[:, :2] > 0.3).astype(np.int8)
QUICK = {
    "teachers": {"n_teachers": 20},
    "neighbours": {},
    "gradients": {"steps": 3},
    "moments": {},
    "dpsgd": {"steps": 2, "sample_rate": 1.0},
}


def learnt(method, place, *, resume=False, write=lambda _: {}, public=PUBLIC, output=None):
    model = pv.PrivateClassifier(method, 4.0, 1e-5, settings=QUICK[method])
    account = Account(ledger=place, dataset="ward")
    delivery = Delivery(account=account, output=output, write=write, resume=resume)
    return model.learn(Records(X=X, y=Y, public=public), delivery)


def entries(place):
    with closing(pv.Ledger.open(place)) as ledger:
        return [entry["kind"] for entry in ledger.published()]


@pytest.fixture(params=QUICK)
def method(request):
    if request.param == "dpsgd":
        pytest.importorskip("opacus")
    return request.param


@pytest.mark.parametrize("where", ["reserved", "committed", "student", "written"])
def test_a_training_that_is_killed_is_resumed_at_no_charge(method, where, tmp_path, monkeypatch):
    """As a kill does: nothing runs after it but what another process starts."""
    place, drawn, commit = tmp_path / "a.ledger", [], Run.commit

    class Killed(BaseException):
        pass

    def killed(*_, **__):
        raise Killed

    def committing(run, outcome, **how):
        commit(run, outcome, **how)
        drawn.append(outcome.drawn)
        if where == "committed":
            killed()

    with monkeypatch.context() as patch:
        patch.setattr(Run, "commit", killed if where == "reserved" else committing)
        if where == "student":
            direct = method in ("gradients", "moments", "dpsgd")
            kind = {"dpsgd": pv.learning.DPSGDClassifier, "moments": pv.learning.DPMoments}.get(
                method, pv.learning.DPLinear
            )
            patch.setattr(kind if direct else pv.PATEClassifier,
                          "_finish" if direct else "_train_student", killed)  # fmt: skip
        with pytest.raises(Killed):
            learnt(method, place, write=killed if where == "written" else lambda _: {})
    with refused(None, BudgetError):  # its budget is spent
        learnt(method, place)
    model = learnt(method, place, resume=True)
    assert entries(place).count("charge") == entries(place).count("deliver") == 1
    assert not drawn or model.guarantee_.drawn == drawn[0]
    assert np.isfinite(model.predict_proba(X)).all()
    with refused(None, CompleteError):
        learnt(method, place, resume=True)
    with refused(None, BudgetError):  # what was drawn belongs to its public rows
        learnt(method, place, resume=True, public=PUBLIC[::-1])


def test_a_draw_that_fails_is_charged_and_closed(tmp_path, monkeypatch):
    place = tmp_path / "a.ledger"
    monkeypatch.setattr(pv.learning.DPLinear, "_draw", lambda *_: 1 / 0)
    with pytest.raises(ChargedError):
        learnt("gradients", place)
    monkeypatch.undo()
    with refused(None, ChargedError):
        learnt("gradients", place, resume=True)
