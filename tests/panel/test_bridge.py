from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from it2nb.core.goals import Goal
from it2nb.core.round_runner import run_rounds
from it2nb.core.session import Session
from it2nb.panel.bridge import Bridge
from it2nb.panel.terminal import Terminal

from .pages import PATIENCE_S, Page


class Run:
    """A session whose training thread is the test, its panel, and one page."""

    def __init__(self) -> None:
        self.session = Session(directory=None, title="digits", watch=("loss",))
        self.lr = 1e-3
        self.session.register_knob(
            "lr", lambda: self.lr, lambda value: setattr(self, "lr", value), min=1e-7, max=0.1
        )
        self.page = Page()
        self.bridges: list[Bridge] = []

    def open(self, page: Page | None = None, **more: Any) -> Bridge:
        bridge = Bridge(self.session, (page or self.page).send, **more)
        self.bridges.append(bridge)
        return bridge

    def greet(self, bridge: Bridge) -> dict[str, Any]:
        bridge.receive(self.page.hello())
        return self.page.wait(lambda message: message["kind"] == "snapshot")

    def step(self, count: int = 1, loss: Callable[[int], float] = lambda i: 1 / (i + 1)) -> None:
        for _ in range(count):
            self.session.step({"loss": loss(self.session.step_count)})


@pytest.fixture
def run() -> Iterator[Run]:
    made = Run()
    yield made
    made.session.end()
    for bridge in made.bridges:
        bridge.close()


def result_of(request: dict[str, Any]) -> Callable[[dict[str, Any]], bool]:
    """A message with the row of this request's result."""
    return lambda message: any(
        row["type"] == "action_result" and row["action_id"] == request["action"]["id"]
        for row in message.get("rows", ())
    )


def at_step(step: int) -> Callable[[dict[str, Any]], bool]:
    """A batch that tells of this step."""
    return lambda message: (message.get("head") or {}).get("step") == step


def test_a_new_view_gets_a_snapshot_with_the_whole_curve(run: Run) -> None:
    run.session.start()
    run.step(50)
    snapshot = run.greet(run.open())
    assert snapshot["to"] == "page"
    assert snapshot["state"]["title"] == "digits"
    assert [knob["name"] for knob in snapshot["state"]["knobs"]] == ["lr"]
    assert snapshot["watch"] == ["loss"]
    assert run.page.curves["loss"] == {float(i + 1): 1 / (i + 1) for i in range(50)}


def test_batches_bring_the_rest_of_the_curve_without_gap_or_duplicate(run: Run) -> None:
    run.session.start()
    run.step(10)
    bridge = run.open()
    run.greet(bridge)
    run.step(90)
    run.page.wait(lambda m: m["kind"] == "batch" and (m["head"] or {}).get("step") == 100)
    run.page.wait(lambda _: 100.0 in run.page.curves["loss"])
    assert sorted(run.page.curves["loss"]) == [float(step) for step in range(1, 101)]
    numbers = [message["n"] for message in run.page.of("batch")]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_click_is_one_request_from_the_panel_and_its_result_comes_with_the_new_value(
    run: Run,
) -> None:
    run.session.start()
    bridge = run.open()
    run.greet(bridge)
    request = run.page.submit("set_knob", name="lr", value=2.5e-6)
    bridge.receive(request)
    run.page.wait(lambda m: request["action"]["id"] in m.get("received", ()))
    run.step()
    batch = run.page.wait(result_of(request))
    assert run.lr == 2.5e-6
    # The control shows the asked value until the result is there: the true one comes no later.
    until_then = [each for each in run.page.of("batch") if each["n"] <= batch["n"]]
    assert [knob["value"] for each in until_then for knob in each["knobs"]][-1] == 2.5e-6
    assert [mark["label"] for mark in batch["marks"]] == ["lr 2.5e-6"]
    (row,) = (row for row in run.page.rows() if row["type"] == "action_result")
    assert (row["source"], row["status"], row["requested"]) == ("panel", "applied", 2.5e-6)


@pytest.mark.parametrize("value", [-1, "abc", None, True, [1]])
def test_a_refused_request_is_told_and_changes_nothing(run: Run, value: Any) -> None:
    run.session.knobs["lr"].out_of_bounds = "reject"
    run.session.start()
    bridge = run.open()
    run.greet(bridge)
    request = run.page.submit("set_knob", name="lr", value=value)
    bridge.receive(request)
    run.step()
    batch = run.page.wait(result_of(request))
    (row,) = (row for row in batch["rows"] if row["action_id"] == request["action"]["id"])
    assert row["status"] == "rejected" and row["reason"]
    assert run.lr == 1e-3


@pytest.mark.parametrize(
    "message",
    [
        None,
        "stop",
        {},
        {"v": 2, "kind": "nonsense", "client": "page"},
        {"v": 1, "kind": "hello", "client": "page"},
        {"v": 2, "kind": "hello"},
        {"v": 2, "kind": "submit", "client": "page", "action": {"payload": {}}},
        {"v": 2, "kind": "window", "client": "page", "ask": 1, "names": ["loss"], "lo": "a"},
        {"v": 2, "kind": "asset", "client": "page", "name": "../../secrets"},
    ],
)
def test_a_malformed_message_is_a_fault_in_the_panel_and_nothing_else(
    run: Run, message: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run.session.start()
    bridge = run.open()
    run.greet(bridge)
    bridge.receive(message)
    told = run.page.wait(lambda m: m.get("faults"))
    assert "panel message" in told["faults"][0]
    run.step()
    assert capsys.readouterr() == ("", "")
    assert run.session.status == "running"


def test_a_missed_number_is_healed_by_a_snapshot(run: Run) -> None:
    run.session.start()
    run.step(5)
    bridge = run.open()
    first = run.greet(bridge)
    run.page.deaf = True
    run.step(20)
    run.session.emit("note", {"text": "while nobody heard", "level": "info"})
    run.page.deaf = False
    run.page.clear()
    run.page.curves.clear()
    snapshot = run.greet(bridge)
    assert snapshot["n"] >= first["n"]
    assert sorted(run.page.curves["loss"]) == [float(step) for step in range(1, 26)]
    assert "while nobody heard" in [row["text"] for row in snapshot["rows"]]


def test_nothing_is_sent_when_nothing_changes_and_nobody_looks(run: Run) -> None:
    run.session.start()
    run.step(5)
    # Without a page nobody is told of steps; with one and without steps neither.
    run.open(heartbeat_s=None)
    run.step(50)
    bridge = run.open(heartbeat_s=None)
    assert run.page.messages == []
    run.greet(bridge)
    first = run.page.wait(lambda m: m["kind"] == "batch")
    bridge.receive(run.page.hello())
    run.page.wait(lambda m: m["kind"] == "snapshot" and m is not first)
    assert len(run.page.of("batch")) <= 2


def test_a_silent_run_gives_signs_of_life_that_tell_of_lost_batches(run: Run) -> None:
    run.session.start()
    bridge = run.open(heartbeat_s=0.05)
    run.greet(bridge)
    beat = run.page.wait(lambda m: m["kind"] == "heartbeat")
    assert beat["n"] >= 0


def test_the_thread_ends_with_the_run_and_comes_back_for_a_new_view(run: Run) -> None:
    run.session.start()
    bridge = run.open()
    run.greet(bridge)
    run.step(3)
    thread = bridge._sender._thread
    assert thread is not None
    run.session.end()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    run.page.wait(lambda m: m["kind"] == "batch" and (m["head"] or {}).get("status") == "finished")
    run.page.clear()
    snapshot = run.greet(bridge)
    assert snapshot["state"]["status"] == "finished"
    assert sorted(run.page.curves["loss"]) == [1.0, 2.0, 3.0]


def test_a_sender_that_hangs_does_not_hold_the_training(run: Run) -> None:
    # C81: the front end never reads.
    released = threading.Event()
    entered = threading.Event()

    def stuck(content: dict[str, Any], buffers: list[bytes]) -> bool:
        entered.set()
        return released.wait(PATIENCE_S)

    run.session.start()
    bridge = Bridge(run.session, stuck)
    run.bridges.append(bridge)
    bridge.receive(run.page.hello())
    assert entered.wait(PATIENCE_S)
    for _ in range(200):
        bridge.receive(run.page.submit("note", text="x", level="info"))
        run.step()
    assert run.session.step_count == 200
    released.set()


def test_a_send_that_raises_is_survived(run: Run) -> None:
    failing, tried = threading.Event(), threading.Event()
    failing.set()

    def send(content: dict[str, Any], buffers: list[bytes]) -> bool:
        if failing.is_set():
            tried.set()
            raise OSError("the comm is dead")
        return run.page.send(content, buffers)

    run.session.start()
    bridge = Bridge(run.session, send)
    run.bridges.append(bridge)
    bridge.receive(run.page.hello())
    run.step(10)
    assert tried.wait(PATIENCE_S)
    failing.clear()
    snapshot = run.greet(bridge)
    assert snapshot["state"]["status"] == "running"
    run.page.wait(lambda m: any("the comm is dead" in fault for fault in m.get("faults", ())))


def test_non_finite_metrics_travel_as_they_are_and_json_stays_strict(run: Run) -> None:
    # C62. Page.send refuses NaN in the JSON part.
    run.session.start()
    odd = {3: math.nan, 4: math.inf, 5: -math.inf}
    run.step(8, lambda i: odd.get(i, 1.0))
    run.session.knobs["lr"].get = lambda: math.nan
    snapshot = run.greet(run.open())
    assert math.isnan(run.page.curves["loss"][4.0])
    assert run.page.curves["loss"][5.0] == math.inf
    assert run.page.curves["loss"][6.0] == -math.inf
    assert snapshot["state"]["metrics"]["loss"]["value"] == 1.0
    assert snapshot["state"]["knobs"][0]["value"] is None


def test_an_update_is_small_at_any_rate_and_a_spike_is_not_lost(run: Run) -> None:
    # C74
    run.session.start()
    for name in range(5):
        run.session.watch.append(f"m{name}")
    bridge = run.open()
    run.greet(bridge)
    spike = 0
    for block in range(20):
        for _ in range(500):
            values = {f"m{name}": 1.0 for name in range(5)}
            step = run.session.step_count
            loss = 1e6 if step == 7_777 else 1.0
            spike = max(spike, int(loss))
            run.session.step({"loss": loss, **values})
        run.page.wait(at_step((block + 1) * 500))
    run.page.wait(lambda _: 10_000.0 in run.page.curves["loss"])
    sizes = [
        size
        for size, message in zip(run.page.sizes, run.page.messages, strict=True)
        if message["kind"] == "batch"
    ]
    assert max(sizes) < 20_000
    assert run.page.curves["loss"][7_778.0] == 1e6


def test_a_zoom_is_answered_with_finer_points(run: Run) -> None:
    run.session.start()
    run.step(20_000, lambda i: float(i % 97))
    bridge = run.open()
    run.greet(bridge)
    assert len(run.page.curves["loss"]) < 3_000
    bridge.receive(
        {
            "v": 2, "kind": "window", "client": "page", "ask": 7, "names": ["loss"],
            "axis": "step", "lo": 1_000, "hi": 1_500,
        }
    )  # fmt: skip
    answer = run.page.wait(lambda m: m["kind"] == "window")
    assert answer["ask"] == 7 and answer["to"] == "page"
    assert answer["curves"][0]["count"] == 501 and not answer["curves"][0]["thinned"]


def test_each_page_shows_its_own_metrics(run: Run) -> None:
    run.session.start()
    for i in range(10):
        run.session.step({"loss": 1.0, "acc": 0.5, "grad": float(i)})
    bridge = run.open()
    run.greet(bridge)
    assert set(run.page.curves) == {"loss"}
    bridge.receive({"v": 2, "kind": "watch", "client": "page", "names": ["grad", "loss"]})
    chosen = run.page.wait(lambda m: m["kind"] == "snapshot" and m["watch"] == ["grad", "loss"])
    assert {curve["name"] for curve in chosen["curves"]} == {"grad", "loss"}


def test_metrics_that_appear_later_are_shown_when_nobody_chose(run: Run) -> None:
    run.session.watch.clear()
    run.session.start()
    bridge = run.open()
    run.greet(bridge)
    run.session.step({"reward": 1.0})
    lost = run.page.wait(lambda m: m["kind"] == "batch" and m["n"] > 1)
    assert lost
    # The number that was left out makes a page ask again.
    bridge.receive(run.page.hello())
    run.page.wait(lambda m: m["kind"] == "snapshot" and m["watch"] == ["reward"])


def test_a_request_to_a_run_that_is_over_gets_its_result(run: Run) -> None:
    run.session.start()
    run.step(2)
    bridge = run.open()
    run.greet(bridge)
    run.session.end()
    request = run.page.submit("set_knob", name="lr", value=0.01)
    bridge.receive(request)
    told = run.page.wait(lambda m: m.get("unrecorded"))
    (row,) = told["unrecorded"]
    assert row["action_id"] == request["action"]["id"]
    assert row["status"] == "rejected" and row["reason"]
    assert run.lr == 1e-3


def waits(action_id: str) -> Callable[[dict[str, Any]], bool]:
    """A batch that tells of this request among those that wait for a person."""
    return lambda message: any(each["id"] == action_id for each in message.get("waiting") or ())


def test_a_person_lets_a_request_of_an_agent_pass_or_not(run: Run) -> None:
    run.session.policy.require_approval("lr")
    run.session.start()
    bridge = run.open()
    run.greet(bridge)
    for value, approve in ((0.01, False), (0.02, True)):
        action = {"v": 2, "type": "set_knob", "payload": {"name": "lr", "value": value}}
        handle = run.session.submit(action, source="agent")
        run.step()
        told = run.page.wait(waits(handle.id))
        (waiting,) = (each for each in told["waiting"] if each["id"] == handle.id)
        assert (waiting["source"], waiting["payload"]["value"]) == ("agent", value)
        word = {"v": 2, "kind": "answer", "client": "page", "id": handle.id, "approve": approve}
        bridge.receive(word)
        run.step()
        run.page.wait(result_of({"action": {"id": handle.id}}))
        assert handle.result(PATIENCE_S).ok is approve
    assert run.lr == 0.02
    bridge.receive(word)
    run.page.wait(lambda m: any("any more" in fault for fault in m.get("faults", ())))


def test_what_the_run_printed_comes_whole_and_then_as_it_changes(run: Run) -> None:
    run.session.output = Terminal()
    run.session.start()
    run.session.output.write("epoch 1\n12 %")
    bridge = run.open()
    snapshot = run.greet(bridge)
    assert [line["text"] for line in snapshot["output"]["lines"]] == ["epoch 1", "12 %"]
    run.page.wait(lambda m: m["kind"] == "batch")
    run.page.clear()
    run.session.output.write("\r13 %")
    told = run.page.wait(lambda m: m["kind"] == "batch" and m["output"])
    assert told["output"] == {"first": 0, "lines": [{"line": 1, "text": "13 %", "look": ""}]}
    # The end is told with what was printed until then.
    run.session.output.write("\rdone\n")
    run.session.end()
    told = run.page.wait(lambda m: (m.get("head") or {}).get("status") == "finished")
    lines = [line for m in run.page.of("batch") for line in (m["output"] or {"lines": []})["lines"]]
    assert {line["line"]: line["text"] for line in lines} == {1: "done", 2: ""}


def test_pages_learn_that_messages_arrive_beside_a_busy_cell(run: Run) -> None:
    run.session.start()
    bridge = run.open()
    assert run.greet(bridge)["subshell"] is False
    thread = threading.Thread(
        target=bridge.receive, args=(run.page.submit("note", text="x", level="info"),),
        name="subshell-1",
    )  # fmt: skip
    thread.start()
    thread.join()
    run.page.wait(lambda message: message["kind"] == "batch" and message["subshell"])


def test_a_page_is_told_which_round_of_how_many_runs(run: Run) -> None:
    run.session.goal = Goal("loss")
    bridge = run.open()
    run.greet(bridge)

    def train(session: Session, context: Any) -> None:
        for _ in range(3):
            session.step({"loss": 1.0})
        told = (context.round, 2)
        head = run.page.wait(
            lambda m: (m.get("head") or {}).get("round") == told[0] and m["head"]["max_rounds"]
        )["head"]
        assert (head["round"], head["max_rounds"]) == told

    run_rounds(run.session, train, 2)
    state = run.session.state()
    assert (state.round, state.max_rounds) == (1, 2)
