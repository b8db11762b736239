"""Policy: who may do what, how far, how often, at what cost, and with whose approval."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from it2nb.core.errors import It2nbError
from it2nb.core.policy import Policy
from it2nb.core.restriction import overlap
from it2nb.core.session import Session
from it2nb.core.wire import Action, ActionResult
from tests.core.driving import LIMIT_S, Loop, until


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    monotonic = time


def made(policy: Policy | None = None, **options: Any) -> tuple[dict[str, Any], Session]:
    cell: dict[str, Any] = {"lr": 0.1, "lr[0]": 0.1, "wd": 0.01}
    session = Session(directory=None, policy=policy, **options)
    for name in cell:
        session.register_knob(
            name,
            partial(cell.__getitem__, name),
            partial(cell.__setitem__, name),
            min=0.0,
            max=1.0,
        )
    return cell, session


def ask(
    session: Session, name: str, value: Any, source: str = "agent", **more: Any
) -> ActionResult:
    action = Action(type="set_knob", payload={"name": name, "value": value}, **more)
    result = session.submit(action, source=source, wait=True)
    assert isinstance(result, ActionResult)
    return result


def do(session: Session, what: str, source: str = "agent", **payload: Any) -> ActionResult:
    result = session.submit(Action(type=what, payload=payload), source=source, wait=True)
    assert isinstance(result, ActionResult)
    return result


def test_agents_may_by_default_not_load_pause_resume_reset_note_or_configure_themselves() -> None:
    _, session = made()
    with session.run():
        session.step()
        for name in ("pause", "resume"):
            assert "agent may not use" in str(do(session, name).reason)
        assert do(session, "note", text="x").status == "rejected"
        assert do(session, "load_checkpoint", path="x").status == "rejected"
        assert ask(session, "lr", 0.2).status == "applied"
        session.policy.allow("agent", "note")
        assert do(session, "note", text="x").status == "applied"
        assert do(session, "pause", source="rule").status == "applied"
        session.submit(Action(type="resume"))


def test_the_source_that_decides_is_the_entrys_and_not_what_the_sender_claims() -> None:
    _, session = made()
    with session.run():
        session.step()
        claim = session.submit(
            {"type": "pause", "source": "human:anna", "actor": "human:anna"},
            source="agent",
            wait=True,
        )
        with pytest.raises(ValueError, match="none of"):
            session.submit({"type": "pause"}, source="boss")
    assert claim.status == "rejected"
    assert (claim.source, claim.actor) == ("agent", "human:anna")


def test_a_lock_holds_for_a_knob_its_members_and_what_covers_it() -> None:
    cell, session = made(Policy().lock("lr", against=["agent"], reason="warm-up", until_step=5))
    with session.run():
        session.step()
        assert "locked for agent until step 5 (warm-up)" in str(ask(session, "lr", 0.2).reason)
        assert ask(session, "lr[0]", 0.2).status == "rejected"
        assert ask(session, "learning_rate", 0.2).status == "rejected"
        assert do(session, "batch", set={"wd": 0.5, "lr": 0.2}).status == "rejected"
        assert ask(session, "lr", 0.2, source="panel").status == "applied"
        session.step(step=5)
        assert ask(session, "lr", 0.3).status == "applied"
    assert cell["wd"] == 0.01
    assert overlap("lr[0]", "lr") and overlap("lr", "lr[0]") and not overlap("lr[0]", "lr[1]")
    assert not overlap("lr", "lrx")


def test_a_hidden_knob_is_not_shown_and_only_python_may_use_it() -> None:
    _, session = made(Policy().hide("wd"))
    assert "wd" not in [knob.name for knob in session.state().knobs]
    with session.run():
        session.step()
        assert "hidden" in str(ask(session, "wd", 0.5, source="panel").reason)
        assert ask(session, "wd", 0.5, source="python").status == "applied"


def test_a_locked_knob_is_shown_disabled_with_the_reason() -> None:
    _, session = made(Policy().lock("wd", reason="fixed").confirm("lr"))
    views = {knob.name: knob for knob in session.state().knobs}
    assert (views["wd"].locked, views["wd"].enabled) == (True, False)
    assert "fixed" in str(views["wd"].reason)
    assert views["lr"].confirm


def test_c68_relative_change_and_cooldown_hold_for_agents_and_for_people() -> None:
    cell, session = made(Policy().limit("lr", max_change=2.0, cooldown=10))
    with session.run():
        session.step(step=1)
        for source in ("agent", "panel"):
            assert "factor of 2" in str(ask(session, "lr", 0.5, source).reason)
            assert ask(session, "lr", 0.01, source).status == "rejected"
        assert ask(session, "lr", 0.2).status == "applied"
        assert "8 are left" in str(_at(session, 3, "lr", 0.3).reason)
        assert _at(session, 11, "lr", 0.3).status == "applied"
        assert ask(session, "wd", 0.9).status == "applied"
    assert cell["lr"] == 0.3


def _at(session: Session, step: int, name: str, value: float) -> ActionResult:
    session.step(step=step)
    return ask(session, name, value)


def test_budgets_bound_requests_changes_tokens_money_and_time() -> None:
    clock = Clock()
    _, session = made(clock=clock)
    policy = session.policy
    policy.budget("agent", requests=3, tokens=100, cost=1.0, wall_s=60.0)
    policy.budget("rule", changes=1)
    with session.run():
        session.step()
        assert [ask(session, "lr", 0.1 * k).ok for k in (1, 2, 3, 4)] == [True] * 3 + [False]
        assert "3 of 3 requests" in str(ask(session, "lr", 0.5).reason)
        assert ask(session, "lr", 0.5, source="panel").ok
        assert ask(session, "lr", 0.6, source="rule").ok
        assert "1 of 1 changes" in str(ask(session, "lr", 0.7, source="rule").reason)
        assert do(session, "note", source="rule", text="still may").ok
        policy.budget("agent", tokens=100)
        policy.spend("agent", tokens=100, cost=0.5)
        assert "tokens" in str(ask(session, "lr", 0.5).reason)
        policy.budget("agent", wall_s=60.0)
        assert ask(session, "lr", 0.5).ok
        clock.now += 61
        assert "of 60 s" in str(ask(session, "lr", 0.4).reason)
    assert policy.spent("agent").tokens == 100


@pytest.mark.parametrize("answer", ["approve", "refuse", "expire", "end"])
def test_an_approval_is_given_refused_or_expires_and_says_by_whom(answer: str) -> None:
    clock = Clock()
    cell, session = made(Policy(approval_timeout_s=30.0).require_approval("lr"), clock=clock)
    with session.run():
        session.step()
        handle = session.submit(
            Action(type="set_knob", payload={"name": "lr", "value": 0.5}), source="agent"
        )
        session.step()
        assert (handle.status, cell["lr"]) == ("waiting", 0.1)
        assert [each.id for each in session.state().waiting] == [handle.id]
        assert not session.approve("nobody")
        if answer == "approve":
            assert session.approve(handle.id, by="anna")
        elif answer == "refuse":
            assert session.refuse(handle.id, by="anna")
        elif answer == "expire":
            clock.now += 31
        if answer != "end":
            session.step()
            assert session.state().waiting == []
    result = handle.result(0)
    wanted = {"approve": "applied", "refuse": "rejected", "expire": "expired", "end": "expired"}
    assert result.status == wanted[answer]
    assert cell["lr"] == (0.5 if answer == "approve" else 0.1)
    if answer == "refuse":
        assert result.reason == "refused by anna"
    kinds = [event.type for event in session.journal.since(0)]
    assert "approval_requested" in kinds
    assert ("approval_given" in kinds) is (answer == "approve")


def test_an_approval_is_served_while_the_run_is_paused() -> None:
    cell, session = made(Policy().require_approval("lr"))
    loop = Loop(session)
    loop.advance()
    session.submit(Action(type="pause"))
    handle = session.submit(
        Action(type="set_knob", payload={"name": "lr", "value": 0.5}), source="agent"
    )
    loop.advance(wait=False)
    until(lambda: handle.status == "waiting")
    session.approve(handle.id)
    assert handle.result(LIMIT_S).status == "applied"
    assert session.resume().ok
    loop.came_back()
    loop.finish()
    assert cell["lr"] == 0.5


def test_a_persons_change_locks_the_knob_against_controllers() -> None:
    _, session = made(Policy(human_lock=10))
    with session.run():
        session.step(step=1)
        assert ask(session, "lr", 0.2, source="panel", actor="human:anna").ok
        assert "set by human:anna" in str(ask(session, "lr", 0.3).reason)
        assert ask(session, "lr", 0.4, source="magic").ok
        session.step(step=11)
        assert ask(session, "lr", 0.3).ok


def test_replayed_requests_pass_since_they_were_judged_before() -> None:
    _, session = made(Policy().lock("lr"))
    with session.run():
        session.step()
        assert ask(session, "lr", 0.5, source="replay").ok


def test_a_preview_tells_value_and_verdict_and_changes_nothing() -> None:
    cell, session = made(Policy().lock("wd", against=["agent"]).require_approval("evaluate"))
    with session.run():
        session.step()
        before = session.journal.next_seq

        def preview(name: str, value: Any, source: str = "agent") -> Any:
            return session.preview(
                Action(type="set_knob", payload={"name": name, "value": value}), source=source
            )

        clamped = preview("lr", 5.0)
        assert (clamped.verdict, clamped.status, clamped.value) == ("allow", "clamped", 1.0)
        assert preview("wd", 0.5).reason == "wd is locked for agent"
        assert preview("wd", 0.5, "panel").status == "applied"
        asked = session.preview(Action(type="evaluate"), source="agent")
        assert (asked.verdict, asked.status) == ("wait", "waiting")
        assert preview("lr", "x").reason == "'x' is not a number"
        assert session.preview({"type": "puase"}).verdict == "reject"
        assert session.preview({}).verdict == "reject"
        assert session.preview(Action(type="evaluate")).verdict == "allow"
        assert session.preview(Action(type="pause", valid_until_step=0)).status == "expired"
        assert session.journal.next_seq == before
    assert cell["lr"] == 0.1


def test_wrong_rules_are_refused_with_the_remedy() -> None:
    policy = Policy()
    for wrong in (
        lambda: policy.limit("lr", max_change=0.5),
        lambda: policy.limit("lr", cooldown=0),
        lambda: policy.lock("lr", against=["boss"]),
        lambda: policy.forbid("boss", "lr"),
        lambda: policy.budget("agent", tokens=-1),
        lambda: policy.budget("agent", cost=float("nan")),
    ):
        with pytest.raises(It2nbError):
            wrong()


def test_the_rules_in_force_can_be_shown() -> None:
    said = (
        Policy().lock("lr", reason="r").limit("wd", cooldown=5).budget("agent", tokens=9).describe()
    )
    assert said["rules"]["lr"]["lock_reason"] == "r"
    assert said["rules"]["wd"] == {"cooldown": 5}
    assert said["budgets"]["agent"] == {"tokens": 9}
    assert "pause" in said["forbidden"]["agent"]


def test_a_request_that_waits_for_approval_can_be_taken_back() -> None:
    cell, session = made(Policy().require_approval("lr"))
    with session.run():
        session.step()
        handle = session.submit(
            Action(type="set_knob", payload={"name": "lr", "value": 0.5}), source="agent"
        )
        session.step()
        assert handle.status == "waiting"
        assert handle.cancel()
        assert not handle.cancel()
        assert not session.approve(handle.id)
        session.step()
    assert handle.result(0).status == "cancelled"
    assert cell["lr"] == 0.1


def test_a_request_that_its_entry_knows_to_be_wrong_is_a_rejected_row() -> None:
    session = Session(directory=None)
    session.step()
    asked = Action(type="note", payload={"text": "hi"}, actor="llm")
    handle = session.door.enter(asked, "python", wrong="the ninth of eight")
    assert handle.result(0).status == "rejected"
    assert handle.result(0).reason == "the ninth of eight"
    assert session.journal.requests()["actor"].tolist() == ["llm"]
    session.end()


def test_a_used_up_budget_is_told_before_anything_is_asked() -> None:
    policy = Policy().budget("agent", tokens=100, wall_s=60)
    assert policy.used_up("agent") is None
    assert "61 of 60 s" in (policy.used_up("agent", 61.0) or "")
    policy.spend("agent", tokens=100)
    assert "100 of 100 tokens" in (policy.used_up("agent") or "")
    assert policy.used_up("rule") is None


def warned_of(session: Session) -> list[str]:
    with session.run():
        for _ in range(60):
            session.step({"loss": 1.0})
    return session.warnings


@pytest.mark.parametrize(
    ("rule", "name", "meant"),
    [
        (lambda policy: policy.forbid("agent", "sotp"), "sotp", "'stop'"),
        (lambda policy: policy.lock("lrr", against=["rule"]), "lrr", "'lr'"),
        (lambda policy: policy.limit("lrr", max_change=2), "lrr", "'lr'"),
        (lambda policy: policy.require_approval("evaluat"), "evaluat", "'evaluate'"),
    ],
)
@pytest.mark.parametrize("early", [True, False])
def test_a_rule_for_what_nobody_knows_is_told_of_once(
    rule: Any, name: str, meant: str, early: bool
) -> None:
    policy = Policy()
    if early:
        rule(policy)
    session = Session(directory=None, policy=policy)
    session.register_knob("lr", lambda: 0.1, lambda value: None)
    if not early:
        rule(session.policy)
    (said,) = warned_of(session)
    assert f"no knob or action is named {name!r}" in said
    assert f"did you mean {meant}" in said


def test_rules_that_hold_for_something_are_not_told_of() -> None:
    session = Session(directory=None)
    session.register_knob("lr", lambda: 0.1, lambda value: None)
    session.policy.forbid("agent", "stop", "learning_rate").lock("lr[0]").require_approval("*")
    assert warned_of(session) == []
