"""The panel in a real kernel: comms, threads, output. Its pages are tests/browser's business."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from it2nb.core.wire import new_id

from .kernels import Cell, Kernel

pytestmark = pytest.mark.kernel

BEGIN = """
import threading
from it2nb.core.session import Session
from it2nb.notebook.panel import Panel

class Run:
    def __init__(self, steps, **more):
        self.lr = 1e-3
        self.session = Session(directory=None, title="digits", watch=("loss",), **more)
        self.session.register_knob(
            "lr", lambda: self.lr, lambda v: setattr(self, "lr", v), min=1e-7, max=0.1, scale="log"
        )
        self.go = threading.Event()
        self.thread = threading.Thread(target=self.train, args=(steps,), daemon=True)
        self.thread.start()

    def train(self, steps):
        with self.session.run():
            for step in range(steps):
                if self.session.step({"loss": 1 / (step + 1)}).stop:
                    break
                if not self.go.is_set():
                    self.go.wait(0.002)
"""


class Panelled:
    """A cell of a kernel that shows a panel, and the page that a browser would have."""

    def __init__(self, kernel: Kernel, code: str) -> None:
        self.kernel = kernel
        self.cell: Cell = kernel.run(code)
        kernel.until(lambda: self.cell.messages("display_data"), "the panel")
        opens = [each["content"] for each in self.cell.messages("comm_open")]
        models = {each["data"]["state"]["_model_name"]: each for each in opens}
        self.opened = len(opens)
        self.state: dict[str, Any] = models["AnyModel"]["data"]["state"]
        self.stream: str = models["AnyModel"]["comm_id"]
        self.control: str = models["WidgetModel"]["comm_id"]
        self.client = new_id()

    def say(self, **request: Any) -> None:
        """Send a request to the main shell, as a front end without subshells does."""
        content = {"v": 2, "client": self.client, **request}
        self.kernel.send_comm(self.control, {"method": "custom", "content": content})

    def submit(self, type: str, **payload: Any) -> str:
        action = {"v": 2, "type": type, "payload": payload, "id": new_id()}
        self.say(kind="submit", action=action)
        return str(action["id"])

    def heard(self, kind: str) -> list[dict[str, Any]]:
        """Return the messages of this kind on the stream so far."""
        return [
            each["content"]["data"]["content"]
            for each in self.kernel.seen()
            if each["msg_type"] == "comm_msg"
            and each["content"]["comm_id"] == self.stream
            and each["content"]["data"].get("method") == "custom"
            and each["content"]["data"]["content"]["kind"] == kind
        ]

    def until(self, kind: str, wanted: Any = lambda message: True) -> dict[str, Any]:
        self.kernel.until(lambda: any(map(wanted, self.heard(kind))), f"a {kind}")
        return next(each for each in self.heard(kind) if wanted(each))

    def greet(self) -> dict[str, Any]:
        self.say(kind="hello")
        return self.until("snapshot", lambda message: message["to"] == self.client)


def result_of(action_id: str) -> Any:
    return lambda message: any(row["action_id"] == action_id for row in message["rows"])


@pytest.fixture
def begun(any_kernel: Kernel) -> Iterator[Kernel]:
    any_kernel.run(BEGIN)
    yield any_kernel
    any_kernel.run("run.session.stop(); run.thread.join(60); panel.close(); del run, panel")


def test_a_panel_is_steered_with_three_comms_and_none_more(begun: Kernel) -> None:
    # C29
    shown = Panelled(begun, "run = Run(10**9); panel = Panel(run.session); display(panel)")
    assert shown.opened <= 3
    assert shown.greet()["state"]["status"] in ("created", "running")
    for value in (2.5e-6, 1e-4, 3.3e-3):
        asked = shown.submit("set_knob", name="lr", value=value)
        told = shown.until("batch", result_of(asked))
        # The value may have come with an earlier batch, never with a later one.
        until_then = [each for each in shown.heard("batch") if each["n"] <= told["n"]]
        values = [knob["value"] for each in until_then for knob in each["knobs"]]
        assert values[-1] == value
    assert begun.value("run.lr") == "0.0033"
    asked = shown.submit("stop")
    shown.until("batch", result_of(asked))
    shown.until("batch", lambda m: (m["head"] or {}).get("status") == "stopped")
    kinds = [each["msg_type"] for each in begun.seen()]
    opens = [
        each
        for each in begun.seen()
        if each["msg_type"] == "comm_open" and each["parent_header"]["msg_id"] != shown.cell.id
    ]
    here = {shown.stream, shown.control}
    assert not [each for each in opens if each["content"]["comm_id"] in here]
    assert "clear_output" not in kinds  # C28


def test_the_display_has_text_and_a_picture_beside_it(begun: Kernel) -> None:
    # C25, C31
    shown = Panelled(begun, "run = Run(20); run.thread.join(60)\npanel = Panel(run.session)\npanel")
    bundles = [each["content"]["data"] for each in shown.cell.messages("display_data")]
    widget, picture = bundles
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert "live where its kernel runs" in widget["text/plain"]
    assert "image/png" in picture and "loss 0.05" in picture["text/plain"]
    assert len(json.dumps(bundles)) < 50_000


def test_a_finished_run_leaves_its_end_in_the_picture(begun: Kernel) -> None:
    shown = Panelled(begun, "run = Run(10**9); panel = Panel(run.session); display(panel)")
    shown.greet()
    shown.submit("stop")

    def renewed() -> list[str]:
        updates = [e for e in begun.seen() if e["msg_type"] == "update_display_data"]
        texts = [each["content"]["data"].get("text/plain", "") for each in updates]
        return [text for text in texts if "digits: stopped" in text]

    begun.until(renewed, "the last picture")


def test_what_is_saved_with_a_panel_is_small(begun: Kernel) -> None:
    # C72
    shown = Panelled(begun, "run = Run(500); panel = Panel(run.session); display(panel)")
    begun.run("run.go.set(); run.thread.join(60)")
    size = int(begun.value("len(__import__('json').dumps(panel.widget.get_state()))"))
    assert size < 8_000
    assert len(shown.state["_esm"]) < 6_000


def test_the_scripts_come_over_the_comm_where_no_server_has_them(begun: Kernel) -> None:
    shown = Panelled(begun, "run = Run(5); panel = Panel(run.session); display(panel)")
    shown.say(kind="asset", name="chart.mjs")
    shown.until("asset")
    sent = next(
        each
        for each in begun.seen()
        if each["msg_type"] == "comm_msg"
        and each["content"]["data"].get("content", {}).get("kind") == "asset"
    )
    assert bytes(sent["buffers"][0][:2]) == b"\x1f\x8b"
    assert 300_000 < len(sent["buffers"][0]) < 500_000


def test_a_broken_message_is_told_in_the_panel_and_prints_nothing(begun: Kernel) -> None:
    shown = Panelled(begun, "run = Run(10**9); panel = Panel(run.session); display(panel)")
    shown.greet()
    shown.say(kind="nonsense")
    told = shown.until("batch", lambda message: message["faults"])
    assert "panel message" in told["faults"][0]
    assert not [
        each
        for each in begun.seen()
        if each["msg_type"] in ("stream", "error")
        and "panel message" in json.dumps(each["content"])
    ]


def test_short_runs_leave_no_comm_thread_or_subscriber(begun: Kernel) -> None:
    # C82
    count = (
        "(len(__import__('comm').get_comm_manager().comms), threading.active_count(),"
        " len(__import__('ipywidgets').widgets.widget._instances))"
    )
    begun.run(
        "run = Run(3); panel = Panel(run.session); display(panel)\nrun.thread.join(60)\n"
        "panel.close()"
    )
    before = begun.value(count)
    begun.run(
        "for _ in range(30):\n"
        "    run = Run(3); panel = Panel(run.session); display(panel)\n"
        "    run.thread.join(60); panel.close()"
    )
    assert begun.value(count) == before


def test_another_view_of_a_session_is_one_of_the_same_panel(begun: Kernel) -> None:
    Panelled(begun, "run = Run(10**9); panel = Panel.of(run.session); display(panel)")
    again = begun.run("display(Panel.of(run.session))")
    begun.until(lambda: len(again.messages("display_data")) == 2, "the second view")
    assert again.messages("comm_open") == []
    assert begun.value("Panel.of(run.session) is panel") == "True"


def test_a_new_run_under_the_same_cell_closes_the_panel_of_the_last(begun: Kernel) -> None:
    begun.run("run = Run(3); panel = Panel(run.session); run.thread.join(60)")
    begun.run(
        "import it2nb.notebook.panel as module\n"
        "module._cell_id = lambda: 'cell-1'\n"
        "display(panel)\nfirst = panel\nrun = Run(3); panel = Panel(run.session)\ndisplay(panel)"
    )
    assert begun.value("(first._closed, panel._closed)") == "(True, False)"


def test_a_cell_that_runs_again_leaves_one_panel_also_without_an_id(begun: Kernel) -> None:
    # C82: nbclient, consoles and scripts tell no id of the cell.
    cell = "run = Run(3); run.thread.join(60); panel = Panel(run.session); display(panel)"
    begun.run(cell)
    count = "len(__import__('comm').get_comm_manager().comms)"
    before = begun.value(count)
    for _ in range(5):
        begun.run(cell)
    assert begun.value(count) == before


def test_messages_from_many_threads_leave_the_kernel_alive(kernel: Kernel, tmp_path: Path) -> None:
    # C71: publishing goes through one sender. `make soak`: 20,000 requests, and as many lines.
    each = 5_000 if os.environ.get("IT2NB_SOAK") else 500
    kernel.run(BEGIN)
    shown = Panelled(kernel, "run = Run(10**9); panel = Panel(run.session); display(panel)")
    shown.greet()
    shown.kernel.run(
        "request = lambda i: {'v': 2, 'kind': 'submit', 'client': 'x', 'action': {'type': 'note',"
        " 'payload': {'text': str(i), 'level': 'info'}}}\n"
        "def many(k):\n"
        f"    for i in range({each}):\n"
        "        panel._bridge.receive(request(i)); print(k, i)\n"
        "threads = [threading.Thread(target=many, args=(k,)) for k in range(4)]\n"
        "for each in threads: each.start()\n"
        "for i in range(2000): print('main', i)\n"
        "for each in threads: each.join(60)"
    )
    asked = shown.submit("set_knob", name="lr", value=0.05)
    shown.until("batch", result_of(asked))
    assert kernel.value("run.lr") == "0.05"
    kernel.run("run.session.stop(); run.thread.join(60); panel.close()")
