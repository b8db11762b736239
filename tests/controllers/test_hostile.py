"""Controllers at their worst, in each of their methods: the training goes on, and a row tells."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

import it2nb
from it2nb.controllers import attached as attached_module
from it2nb.controllers import thinking
from it2nb.controllers.worker import within
from it2nb.core import patience
from it2nb.core.faults import is_pressed
from it2nb.core.wire import Action

from ..core.driving import LIMIT_S, until
from .contract import Bench, ask

ERRORS = (SystemExit(3), KeyboardInterrupt(), GeneratorExit(), ValueError("no"))


def ids(error: BaseException) -> str:
    return type(error).__name__


class Hostile:
    """Raises in one of its methods, and behaves in the others."""

    name = "hostile"
    source = "agent"
    configurable = frozenset({"depth"})

    def __init__(self, where: str, error: BaseException) -> None:
        self.where, self.error = where, error
        self.is_on = False

    def _do(self, where: str) -> None:
        if self.is_on and where == self.where:
            raise self.error

    def ask(self, seen: Any) -> Any:
        self._do("ask")
        return ask("set_knob", name="lr", value=0.2)

    def tell(self, result: Any) -> None:
        self._do("tell")

    def plan(self, ctx: Any) -> Any:
        self._do("plan")
        return {"settings": {"lr": 0.3}}

    def reflect(self, ctx: Any, record: Any) -> str:
        self._do("reflect")
        return "fine"

    def describe(self) -> dict[str, Any]:
        self._do("describe")
        return {"kind": "test"}

    def call_row(self) -> dict[str, Any]:
        self._do("call_row")
        return {}

    def configure(self, depth: int) -> None:
        self._do("configure")

    def knob_names(self) -> list[str]:
        self._do("knob_names")
        return ["lr"]


class Quick(Hostile):
    """Is asked on the training thread."""

    is_quick = True


METHODS = (
    "ask", "tell", "plan", "reflect", "describe", "call_row", "configure", "knob_names",
)  # fmt: skip


@pytest.mark.parametrize("kind", [Hostile, Quick])
@pytest.mark.parametrize("error", ERRORS, ids=ids)
@pytest.mark.parametrize("where", METHODS)
def test_what_a_method_raises_ends_nothing_and_is_told(
    where: str, error: BaseException, kind: type[Hostile]
) -> None:
    bench = Bench()
    session = bench.session
    made = kind(where, error)
    attached = session.attach(made, every=2, blocking=True)
    made.is_on = True
    told: list[Any] = []

    def train(session: Any, ctx: Any) -> None:
        for step in range(6):
            if step == 3 and ctx.round == 1:
                asked = Action(type="configure_agent", payload={"options": {"depth": 3}})
                told.append(session.submit(asked, source="python"))
            session.step({"val_loss": 1.0})

    records = session.run_rounds(train, 2)
    assert session.status == "finished" and len(records) == 2
    (configured,) = told
    assert configured.result(0).ok is (where != "configure")
    rows = [str(each.payload) for each in session.journal.tail(10_000)]
    name = type(error).__name__
    if where != "describe":  # its rows are without what it says of itself
        assert any(name in each for each in [*rows, *session.warnings])
    calls = bench.events("agent_call")
    assert calls and all(bool(each.get("error")) is (where == "ask") for each in calls)
    (plan,), reflections = bench.events("agent_plan"), bench.events("agent_reflection")
    assert bool(plan.get("error")) is (where == "plan")
    assert all(bool(each.get("error")) is (where == "reflect") for each in reflections)
    assert bool(attached.errors) is (where in ("ask", "plan", "reflect"))


def raised() -> None:
    raise KeyboardInterrupt


def after_a_press() -> None:
    try:
        pressed()
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt from error


def pressed() -> None:
    signal.raise_signal(signal.SIGINT)


def handled() -> None:
    def handler(*args: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handler)
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as error:
        assert is_pressed(error)
        raise
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("what", "is_theirs"), [(raised, True), (pressed, False), (after_a_press, False)]
)
def test_ctrl_c_is_told_from_an_interrupt_that_code_raises(what: Any, is_theirs: bool) -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        what()
    assert is_pressed(caught.value) is not is_theirs


def test_a_handler_of_ctrl_c_may_raise_it_itself() -> None:
    with pytest.raises(KeyboardInterrupt):
        handled()


def test_ctrl_c_in_a_rule_still_ends_the_training() -> None:
    session = it2nb.TrainingSession(directory=None)

    @it2nb.rule
    def rule(seen: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1_000_000):
            pass

    session.attach(rule)
    with pytest.raises(KeyboardInterrupt), session.run():
        for _ in range(3):
            session.step({"loss": 1.0})
    assert session.step_count == 1


class Locked:
    """Thinks under a lock, and needs it for all that it does."""

    name = "locked"
    source = "agent"
    configurable = frozenset({"depth"})

    def __init__(self) -> None:
        self.lock, self.over = threading.Lock(), threading.Event()
        self.asked = threading.Event()

    def _think(self, *given: Any) -> None:
        with self.lock:
            self.asked.set()
            self.over.wait(LIMIT_S)

    ask = plan = reflect = _think

    def describe(self) -> dict[str, Any]:
        with self.lock:
            return {}

    def call_row(self) -> dict[str, Any]:
        with self.lock:
            return {}

    def configure(self, depth: int) -> None:
        with self.lock:
            pass


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached_module, "QUICK_S", 0.05)
    monkeypatch.setattr(thinking, "PATIENCE_S", 0.05)


def test_one_that_hangs_with_its_lock_is_paused_and_configured_all_the_same(
    impatient: None,
) -> None:
    bench = Bench()
    made = Locked()
    attached = bench.session.attach(made, every=1)
    bench.loop.advance()
    assert made.asked.wait(LIMIT_S)
    requests = [
        ask("configure_agent", options={"depth": 3}), ask("set_agent", enabled=False)
    ]  # fmt: skip
    handles = [bench.session.submit(each, source="panel") for each in requests]
    bench.loop.advance(3)
    assert [each.result(0).status for each in handles] == ["failed", "applied"]
    assert "not back after 0.05 s" in str(handles[0].result(0).error)
    assert not attached.enabled
    made.over.set()
    bench.close()


def test_between_rounds_too(impatient: None) -> None:
    session = it2nb.TrainingSession("loss", directory=None)
    made = Locked()
    session.attach(made, timeout_s=0.1)

    def train(session: Any, ctx: Any) -> None:
        session.step({"loss": 1.0})

    assert len(session.run_rounds(train, 3)) == 3
    errors = [each.payload["error"] for each in session.journal.tail(1000, ("agent_plan",))]
    assert len(errors) == 2 and "still thinks" in errors[-1]
    made.over.set()


@pytest.mark.parametrize("name", ["locked", None])
def test_a_blocking_one_that_hangs_is_told_of_and_a_persons_pause_frees_the_run(
    impatient: None, name: str | None
) -> None:
    bench = Bench()
    made = Locked()
    attached = bench.session.attach(made, every=1, blocking=True)
    bench.loop.advance(1, wait=False)
    assert made.asked.wait(LIMIT_S)
    for payload in ({"enabled": True}, {"enabled": False, "name": "somebody else"}):
        bench.session.submit(Action(type="set_agent", payload=payload), source="panel")
    said = "the run waits for it until it is paused or stopped"
    until(lambda: any(said in each["text"] for each in bench.events("note")))
    mine: dict[str, Any] = {"enabled": False, "name": name}
    bench.session.submit(Action(type="set_agent", payload=mine), source="panel")
    bench.loop.came_back()
    assert not attached.enabled
    bench.loop.advance(2)
    made.over.set()
    bench.close()


def test_a_rule_that_hangs_on_the_training_thread_is_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "QUICK_S", 0.3)
    monkeypatch.setattr(patience, "HELD_S", 0.0)
    bench = Bench()
    began, over = threading.Event(), threading.Event()

    @it2nb.rule
    def slow(seen: Any) -> None:
        if seen.step == 2:
            began.set()
            over.wait(LIMIT_S)

    bench.session.attach("loss > 900: pause")
    bench.session.attach(slow)
    assert bench.session.patience.held() is None
    bench.loop.advance(2, wait=False)
    assert began.wait(LIMIT_S)
    until(lambda: bool(bench.events("note")))
    (note,) = bench.events("note")
    assert note["text"].startswith("controller slow is not back after ")
    assert "at step 2: it runs on the training thread" in note["text"]
    assert "it2nb.current().controllers[1].detach() keeps it from being asked again" in note["text"]
    assert [each for each in bench.session.warnings if "not back" in each] == [note["text"]]
    held = bench.session.patience.held()
    assert held is not None and held.startswith("controller slow is not back after ")
    with pytest.raises(TimeoutError, match=r"at step 2 after 0 s; controller slow is not back"):
        bench.session.wait(0)
    over.set()
    for _ in range(2):
        bench.loop.came_back()
    assert bench.session.patience.held() is None
    bench.close()


def test_a_function_that_evaluates_has_more_patience_than_a_rule_and_a_request_has_its_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "QUICK_S", 0.0)
    monkeypatch.setattr(patience, "HELD_S", 0.0)
    bench = Bench()
    began, over = threading.Event(), threading.Event()

    def hold(session: Any) -> None:
        began.set()
        over.wait(LIMIT_S)
        began.clear()
        over.clear()

    bench.session.every(2, hold)
    bench.session.action("slow")(lambda payload, session: hold(session))
    bench.loop.advance()
    for asked, said in ((False, "hold is not back"), (True, "the request 'slow' is not back")):
        if asked:
            bench.session.submit({"type": "slow"})
        bench.loop.advance(wait=False)
        assert began.wait(LIMIT_S)
        until(lambda: bench.session.patience.held() is not None)
        held = str(bench.session.patience.held())
        assert held.startswith(said)
        assert held.endswith("waits for it; what never comes back ends with the process alone")
        over.set()
        bench.loop.came_back()
    assert bench.events("note") == []
    bench.close()


def test_no_agent_frees_itself_from_being_waited_for() -> None:
    bench = Bench()
    bench.session.policy.allow("agent", "set_agent")
    made = Locked()
    attached = bench.session.attach(made, every=1, blocking=True)
    asked = Action(type="set_agent", payload={"enabled": False})
    handle = bench.session.submit(asked, source="agent")
    assert not attached._is_pausing(handle)
    assert attached._is_pausing(bench.session.submit(asked.model_copy(update={"id": "b"})))
    bench.close()


def test_what_has_to_be_quick_is_given_up() -> None:
    over = threading.Event()
    assert within(LIMIT_S, "it", lambda: 3) == 3
    with pytest.raises(TimeoutError, match=r"it is not back after 0\.01 s"):
        within(0.01, "it", lambda: over.wait(LIMIT_S))
    with pytest.raises(ValueError, match="no"):
        within(LIMIT_S, "it", lambda: int("no"))
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        within(LIMIT_S, "it", lambda: exec("raise SystemExit(3)"))
    over.set()


def test_one_that_the_run_waits_for_cannot_wait_for_the_run() -> None:
    bench = Bench()
    session = bench.session
    got: list[Any] = []

    class Waits:
        name = "waits"
        source = "agent"

        def ask(self, seen: Any) -> Any:
            got.append(session.set("lr", 0.2))  # a handle, at once
            session.submit(ask("set_knob", name="lr", value=0.3), wait=True)

        def plan(self, ctx: Any) -> Any:
            session.submit(ask("set_knob", name="lr", value=0.3), wait=True)

    attached = session.attach(Waits(), every=1, blocking=True)
    bench.loop.advance(2)
    assert "WrongThread" in str(attached.error) and "return the request" in str(attached.error)
    assert attached.errors == 2
    assert got[0].result(0).ok
    bench.close()


def test_one_beside_the_run_may_wait_for_its_requests() -> None:
    bench = Bench()
    session = bench.session
    got: list[Any] = []

    def waits(seen: Any) -> None:
        if not got:
            asked = ask("set_knob", name="lr", value=0.3)
            got.append(session.submit(asked, source="agent", wait=True, timeout=LIMIT_S))

    attached = session.attach(waits, every=1)

    def is_told() -> bool:
        bench.loop.advance()
        return bool(got)

    until(is_told)
    assert got[0].ok and attached.error is None
    bench.close()
