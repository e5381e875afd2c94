"""Every role checks every message against its state: who, what, when, how much."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.capc.coalitions import identity, models_for, terms_of
from tests.refusals import refused

import privote as pv
from privote.capc import messages as m
from privote.capc.answering import AnsweringParty
from privote.capc.guardian import PrivacyGuardian
from privote.capc.journal import GuardianJournal, QuerierJournal
from privote.capc.querying import QueryingParty
from privote.capc.roles import (
    Broken,
    Complain,
    Computed,
    Fail,
    Finish,
    Lost,
    Received,
    Role,
    Send,
    Tick,
    batch_rows,
)
from privote.entropy import Entropy

Q = 4  # queries
NONCES = [f"{i:032x}" for i in range(20)]


def sent(actions: list[Any], kind: type[m.Message]) -> list[Any]:
    return [a.message for a in actions if isinstance(a, Send) and isinstance(a.message, kind)]


def refusal(actions: list[Any], to: str) -> str:
    """Return why a message was refused; its sender and this side must both hear of it."""
    sent = [a for a in actions if isinstance(a, Send)]
    assert [s.to for s in sent] == [to], actions
    assert any(isinstance(a, Complain) for a in actions)
    assert isinstance(sent[0].message, m.Refused)
    return sent[0].message.why


class Bench:
    """A role with somebody to talk to it."""

    def __init__(self, role: Role) -> None:
        self.role = role

    def hear(self, sender: str, message: m.Message) -> list[Any]:
        return self.role.on(Received(sender, m.decode(m.encode(message))))

    def greet(self, *seats: tuple[str, str]) -> None:
        for name, role in seats:
            hello = m.Hello(self.role.terms.digest(), "clear", role)
            assert not sent(self.hear(name, hello), m.Refused)


class AtGuardian(Bench):
    def __init__(self, **more: Any) -> None:
        self.terms = terms_of(features=Q, **({"queriers": ("q0", "q1", "p0")} | more))
        self.ledger = pv.Ledger.in_memory()
        self.journal = GuardianJournal(":memory:", self.terms.promise(), "pg")
        super().__init__(
            PrivacyGuardian(self.terms, self.ledger, self.journal, "clear", Entropy(1))
        )
        self.greet(*((q, m.QUERYING) for q in self.terms.queriers))
        self.greet(*((p, m.ANSWERING) for p in self.terms.parties))

    def granted(self, querier: str = "q0", nonce: int = 0, **more: Any) -> str:
        actions = self.hear(querier, m.Ask(Q, more.pop("version", 0), NONCES[nonce], **more))
        (grant,) = sent(actions, m.Grant)
        return str(grant.batch)

    def masked(self, batch: str, *parties: str, querier: str = "q0") -> None:
        for party in parties:
            assert sent(self.hear(party, m.Confirm(batch, querier, Q)), m.Confirmed)
            assert not sent(self.hear(party, m.Masks(batch, np.full((Q, 2), 1000))), m.Refused)


# -- the guardian ---------------------------------------------------------------------------------


def test_strangers_and_other_coalitions_are_refused() -> None:
    at = AtGuardian()
    digest = at.terms.digest()
    for sender, hello, why in (
        ("eve", m.Hello(digest, "clear", m.QUERYING), "not registered as querying"),
        ("p1", m.Hello(digest, "clear", m.QUERYING), "not registered as querying"),
        ("q0", m.Hello(digest, "clear", m.GUARDIAN), "not registered as guardian"),
        ("q0", m.Hello("0" * 64, "clear", m.QUERYING), "different terms"),
        ("q0", m.Hello(digest, "spu-cheetah", m.QUERYING), "uses engine 'spu-cheetah'"),
    ):
        assert why in refusal(at.hear(sender, hello), sender)
    # Whoever was refused must greet again.
    assert "must say hello" in refusal(at.hear("q0", m.Ask(Q, 0, NONCES[0])), "q0")
    assert "must say hello" in refusal(at.hear("p1", m.Ask(Q, 0, NONCES[0])), "p1")
    assert at.ledger.published() == []


def test_confirmation_is_for_those_who_answer_and_once() -> None:
    at = AtGuardian()
    batch, mine = at.granted(), at.granted("p0", 1)
    cases = [
        ("p1", m.Confirm(NONCES[9], "q0", Q), "is unknown"),
        ("p1", m.Confirm(batch, "q1", Q), "is not 4 queries of q1"),
        ("p1", m.Confirm(batch, "q0", Q + 1), "is not 5 queries of q0"),
        ("p0", m.Confirm(mine, "p0", Q), "not for p0 to answer"),
    ]
    for sender, message, why in cases:
        assert why in refusal(at.hear(sender, message), sender)
    at.hear("p1", m.Confirm(batch, "q0", Q))
    assert "already" in refusal(at.hear("p1", m.Confirm(batch, "q0", Q)), "p1")


def test_masks_are_taken_once_from_those_confirmed() -> None:
    at = AtGuardian()
    batch, masks = at.granted(), np.ones((Q, 2), np.int64)
    assert "not confirmed" in refusal(at.hear("p0", m.Masks(batch, masks)), "p0")
    at.masked(batch, "p0")
    assert "already" in refusal(at.hear("p0", m.Masks(batch, masks + 1)), "p0")
    at.hear("p1", m.Confirm(batch, "q0", Q))
    small = m.Masks(batch, np.ones((Q, 1), np.int64))
    assert "must be (4, 2)" in refusal(at.hear("p1", small), "p1")
    assert "too late" in refusal(at.hear("p1", m.Masks(batch, masks)), "p1")
    at.hear("p2", m.Confirm(batch, "q0", Q))
    assert "at least 2" in sent(at.hear("q0", m.Decide(batch, ("p0", "p1"), 0)), m.Refused)[0].why


def test_a_decision_is_for_its_owner_and_once() -> None:
    at = AtGuardian()
    batch = at.granted()
    at.masked(batch, "p0", "p1", "p2")
    assert "is not q1's" in refusal(at.hear("q1", m.Decide(batch, ("p0", "p1"), 0)), "q1")
    assert "does not answer" in refusal(at.hear("q0", m.Decide(batch, ("p0", "px"), 0)), "q0")
    actions = at.hear("q0", m.Decide(batch, ("p0", "p1"), 0))
    assert sent(actions, m.Ready)
    again = at.hear("q0", m.Decide(batch, ("p0", "p1", "p2"), 0))
    assert "already" in refusal(again, "q0")
    for sender, done in (("q1", m.Done(batch, 1)), ("q0", m.Done(batch, 2))):
        assert refusal(at.hear(sender, done), sender)
        assert at.journal.phase(batch) == "deciding"
    at.hear("q0", m.Done(batch, 1))
    assert "already finished" in refusal(at.hear("q0", m.Done(batch, 1)), "q0")
    assert "no longer open (done)" in refusal(at.hear("p0", m.Confirm(batch, "q0", Q)), "p0")


def test_the_guardian_waits_for_masks_on_their_way_but_not_for_ever() -> None:
    for end in ("masks", "time", "lost", "refused"):
        at = AtGuardian()
        batch = at.granted()
        at.masked(batch, "p0", "p1")
        at.hear("p2", m.Confirm(batch, "q0", Q))
        at.role.on(Tick(100.0))
        assert at.hear("q0", m.Decide(batch, ("p0", "p1", "p2"), 0)) == []
        assert at.role.on(Tick(105.0)) == []
        assert at.role.on(Lost("p2", m.QUERYING)) == []
        if end == "masks":
            actions = at.hear("p2", m.Masks(batch, np.ones((Q, 2), np.int64)))
        elif end == "time":
            actions = at.role.on(Tick(111.0))
        elif end == "lost":
            actions = at.role.on(Lost("p2", m.ANSWERING))
        else:
            actions = at.hear("p2", m.Refused(batch, "broken"))
        (ready,) = sent(actions, m.Ready)
        assert ready.parties == (("p0", "p1", "p2") if end == "masks" else ("p0", "p1"))


def test_a_decision_whose_version_cannot_be_said_is_refused() -> None:
    at = AtGuardian()
    at.journal.settle("q0", 2**31, counted=False)
    batch = at.granted()
    at.masked(batch, "p0", "p1")
    (told,) = sent(at.hear("q0", m.Decide(batch, ("p0", "p1"), 0)), m.Refused)
    assert "version" in told.why
    at.granted(nonce=1)


def test_trouble_without_a_message_is_complained_of(monkeypatch: pytest.MonkeyPatch) -> None:
    at = AtGuardian()
    batch = at.granted()
    at.masked(batch, "p0", "p1")
    at.hear("p2", m.Confirm(batch, "q0", Q))
    at.role.on(Tick(100.0))
    at.hear("q0", m.Decide(batch, ("p0", "p1", "p2"), 0))
    monkeypatch.setattr(at.role, "_noise", broken_journal)
    for event in (Tick(111.0), Lost("p2", m.ANSWERING)):
        assert all(isinstance(action, Complain) for action in at.role.on(event))


def broken_journal(*_: Any) -> Any:
    raise pv.LedgerError("the disk is full")


# -- the answering party --------------------------------------------------------------------------


def test_an_answering_party_is_greeted_by_those_it_serves_and_its_guardian() -> None:
    """A site that asks and answers may be called p0 here: as an answering one it has no part."""
    at = AtParty()
    assert sent(at.hear("q0", m.Answer(NONCES[0], Q)), m.Hello)
    hello = m.Hello(at.terms.digest(), "clear", m.ANSWERING)
    assert "must not connect" in refusal(at.hear("p1", hello), "p1")
    hello = m.Hello(at.terms.digest(), "clear", m.GUARDIAN)
    assert sent(at.hear("pg", hello), m.Confirm) == [m.Confirm(NONCES[0], "q0", Q)]


class AtParty(Bench):
    def __init__(self, **more: Any) -> None:
        self.terms = terms_of(features=Q, queriers=("q0", "q1", "p0"), **more)
        models = models_for(self.terms, np.ones((Q, 3, 2)))
        super().__init__(AnsweringParty(self.terms, "p0", models["p0"], "clear", Entropy(1)))
        self.greet(("q0", m.QUERYING), ("q1", m.QUERYING))

    def willing(self, batch: str = NONCES[0]) -> list[Any]:
        assert sent(self.hear("q0", m.Answer(batch, Q)), m.Hello)
        hello = m.Hello(self.terms.digest(), "clear", m.GUARDIAN)
        assert sent(self.hear("pg", hello), m.Confirm) == [m.Confirm(batch, "q0", Q)]
        return self.hear("pg", m.Confirmed(batch, "q0", Q))


def test_an_answering_party_checks_who_asks_for_what() -> None:
    at = AtParty(most_queries=10)
    assert "must say hello" in refusal(at.hear("p1", m.Answer(NONCES[0], Q)), "p1")
    assert "at most 10" in refusal(at.hear("q0", m.Answer(NONCES[0], 11)), "q0")
    at.greet(("p0", m.QUERYING))
    assert "itself" in refusal(at.hear("p0", m.Answer(NONCES[0], Q)), "p0")
    at.willing()
    again = at.hear("q0", m.Answer(NONCES[0], Q))
    assert "already asked" in refusal(again, "q0")
    assert "already" in refusal(at.hear("pg", m.Confirmed(NONCES[0], "q0", Q)), "pg")
    assert "not known" in refusal(at.hear("pg", m.Confirmed(NONCES[5], "q0", Q)), "pg")


def test_batches_that_nobody_confirmed_are_not_remembered() -> None:
    """Naming a batch costs a querying party nothing, so it must not cost memory either."""
    at = AtParty()
    for place in range(50):
        at.hear("q0", m.Answer(f"{place:032x}", Q))
    assert len(at.role._batches) == 1
    assert not at.role._seen


def test_an_answering_party_says_why_it_cannot_answer() -> None:
    for end in ("refused", "lost", "late"):
        at = AtParty()
        at.role.on(Tick(5.0))
        at.hear("q0", m.Answer(NONCES[0], Q))
        if end == "refused":
            actions = at.hear("pg", m.Refused(None, "other terms"))
        elif end == "lost":
            actions = at.role.on(Lost("pg", m.GUARDIAN))
        else:
            actions = at.role.on(Tick(16.0))
        (told_so,) = sent(actions, m.Refused)
        assert told_so.batch == NONCES[0]
        assert "p0 cannot answer" in told_so.why
        assert any(isinstance(a, Complain) for a in actions)


def test_a_broken_session_is_told_to_the_guardian_and_masks_are_never_sent() -> None:
    at = AtParty()
    _, compute = at.willing()
    actions = at.role.on(Broken(compute.session, "the peer is gone"))
    (sent,) = [a for a in actions if isinstance(a, Send)]
    assert (sent.to, type(sent.message)) == ("pg", m.Refused)
    assert at.role.on(Computed(compute.session, None)) == []


# -- the querying party ---------------------------------------------------------------------------


class AtQuerier(Bench):
    def __init__(self, *, abreast: int = 8, **more: Any) -> None:
        self.terms = terms_of(features=Q, **more)
        self.journal = QuerierJournal(":memory:", self.terms.promise(), "q0")
        role = QueryingParty(
            self.terms, "q0", identity(Q, Q), self.journal, "clear", Entropy(1), abreast=abreast
        )
        super().__init__(role)
        (first,) = role.start()
        assert (first.to, first.role, first.message.kind) == ("pg", m.GUARDIAN, "hello")
        hello = m.Hello(self.terms.digest(), "clear", m.GUARDIAN)
        (self.ask,) = sent(self.hear("pg", hello), m.Ask)

    def grant(self) -> list[Any]:
        return self.hear("pg", m.Grant(NONCES[0], self.ask.nonce, Q))

    def share(self, party: str) -> list[Any]:
        hello = m.Hello(self.terms.digest(), "clear", m.ANSWERING)
        assert sent(self.hear(party, hello), m.Answer) == [m.Answer(NONCES[0], Q)]
        (compute,) = self.hear(party, m.Willing(NONCES[0]))
        shares = [{"share": np.ones((Q, 2), np.int64)}]
        return self.role.on(Computed(compute.session, shares))

    def decided(self) -> list[Any]:
        self.grant()
        for party in ("p0", "p1"):
            self.share(party)
        actions = self.share("p2")
        assert sent(actions, m.Decide) == [m.Decide(NONCES[0], ("p0", "p1", "p2"), 0)]
        return self.hear("pg", m.Ready(NONCES[0], ("p0", "p1"), 1))


def test_the_querying_party_believes_only_what_it_asked_for() -> None:
    at = AtQuerier()
    assert "not asked for" in refusal(at.hear("pg", m.Grant(NONCES[0], NONCES[3], Q)), "pg")
    assert "5 queries were granted" in refusal(
        at.hear("pg", m.Grant(NONCES[0], at.ask.nonce, 5)), "pg"
    )
    at.grant()
    assert "must say hello as guardian" in refusal(
        at.hear("p0", m.Ready(NONCES[0], ("p0", "p1"), 1)), "p0"
    )
    early = at.hear("pg", m.Ready(NONCES[0], ("p0", "p1"), 1))
    assert "not submitted" in refusal(early, "pg")
    assert "too early" in refusal(at.hear("pg", m.Closed(NONCES[0])), "pg")
    assert "not the one" in refusal(at.hear("pg", m.Closed(NONCES[1])), "pg")
    for party in ("p0", "p1", "p2"):
        at.share(party)
    for parties in (("p0",), ("p0", "p1", "px")):
        bad = at.hear("pg", m.Ready(NONCES[0], parties, 1))
        assert "parties other than agreed" in refusal(bad, "pg")
    assert at.hear("pg", m.Ready(NONCES[0], ("p0", "p1"), 1))


def test_a_broken_journal_ends_the_batch_and_its_place_stays_at_home() -> None:
    at = AtQuerier()
    at.journal.close()
    actions = at.grant()
    (fail,) = [a for a in actions if isinstance(a, Fail)]
    assert isinstance(fail.error, pv.LedgerError)
    assert ":memory:" not in sent(actions, m.Refused)[0].why
    pg = AtGuardian()
    pg.journal.close()
    actions = pg.hear("q0", m.Ask(Q, 0, NONCES[0]))
    assert refusal(actions, "q0") == "the records of this site cannot be used"
    assert pg.ledger.published() == []


def test_labels_that_are_none_are_not_stored() -> None:
    at = AtQuerier()
    (compute,) = at.decided()
    bad = [{"label": np.full((Q, 2), 7, np.int64)}]
    (fail,) = at.role.on(Computed(compute.session, bad))
    assert isinstance(fail, Fail)
    assert at.journal.batches() == []


GUARDIAN_FAILS: dict[str, Any] = {
    "lost": Lost("pg", m.GUARDIAN),
    "late": Tick(99.0),
    "refused": Received("pg", m.Refused(None, "no", "budget")),
    "broken": Broken(f"{NONCES[0]}:decision", "gone"),
    "hello": Received("pg", m.Hello("0" * 64, "clear", m.GUARDIAN)),
}


@pytest.mark.parametrize("end", GUARDIAN_FAILS)
def test_a_guardian_that_fails_ends_the_batch_but_stored_labels_are_kept(end: str) -> None:
    at = AtQuerier()
    at.role.on(Tick(0.0))
    if end == "broken":
        at.decided()
    (fail,) = [a for a in at.role.on(GUARDIAN_FAILS[end]) if isinstance(a, Fail)]
    assert isinstance(fail.error, pv.BudgetError if end == "refused" else pv.errors.PeerError)
    if end in ("lost", "late", "refused"):
        at = AtQuerier()
        at.role.on(Tick(0.0))
        (compute,) = at.decided()
        at.role.on(Computed(compute.session, [{"label": np.ones((Q, 2), np.int64)}]))
        assert any(isinstance(a, Finish) for a in at.role.on(GUARDIAN_FAILS[end]))


def test_requests_that_break_a_rule_charge_nothing() -> None:
    at = AtGuardian(most_queries=10)
    assert "at most 10 queries" in refusal(at.hear("q0", m.Ask(11, 0, NONCES[0])), "q0")
    poor = AtGuardian(epsilon=0.5)
    actions = poor.hear("q0", m.Ask(Q, 0, NONCES[0]))
    assert "allows 0 more" in refusal(actions, "q0")
    assert sent(actions, m.Refused)[0].code == "budget"
    assert at.ledger.published() == poor.ledger.published() == []
    assert poor.journal.open_batch("q0") is None
    at.granted(nonce=1)
    before = at.ledger.published()
    again = at.hear("q0", m.Ask(Q, 0, NONCES[1]))
    assert "made before" in refusal(again, "q0")
    assert sent(again, m.Refused)[0].code == "repeated"
    assert at.ledger.published() == before


def test_models_and_rows_that_do_not_fit_are_refused() -> None:
    terms = terms_of(features=Q, most_queries=10)
    good = models_for(terms, np.ones((Q, 3, 2)))["p0"]
    other = replace(good, labels=("label1", "label0"))
    for model in (other, replace(good, weights=good.weights[1:])):
        with refused("model"):
            AnsweringParty(terms, "p0", model, "clear")
    with refused("name"):
        AnsweringParty(terms, "q0", good, "clear")
    for shape in ((3, Q + 1), (11, Q), (0, Q)):
        with refused("X"):
            batch_rows(np.ones(shape), terms)
    journal = QuerierJournal(":memory:", terms.promise(), "q0")
    with refused("name"):
        QueryingParty(terms, "p0", identity(2, Q), journal, "clear")
