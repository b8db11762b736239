"""The routes of the first Interactive Training release; CASES C05: no false success."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.sync.client import ClientConnection

from it2nb.core.actions import ActionSpec
from it2nb.core.builtin import NameArgs
from it2nb.core.control import StepControl
from tests.core.driving import LIMIT_S, until

from .conftest import Served


def command(name: str, args: Any = "", uuid: str = "u1") -> dict[str, Any]:
    text = args if isinstance(args, str) else json.dumps(args)
    return {"command": name, "args": text, "time": 1.5, "uuid": uuid, "status": "requested"}


@pytest.fixture
def heard(served: Served) -> Iterator[ClientConnection]:
    with served.socket("/ws/message/") as socket:
        # It tells what happens from now on: wait until it does.
        served.session.emit("checkpoint_saved", {"path": "probe", "step": 0, "branch_id": 0})
        yield socket


def messages_of(socket: ClientConnection, uuid: str) -> Iterator[dict[str, Any]]:
    while True:
        message = json.loads(socket.recv(timeout=LIMIT_S))
        if message["uuid"] == uuid:
            yield message


def outcome(served: Served, socket: ClientConnection, asked: dict[str, Any]) -> dict[str, Any]:
    """Send a command and return the message with its end."""
    answer = served.http.post("/api/command/", json=asked)
    assert (answer.status_code, answer.json()) == (200, {"status": "success"})
    told = messages_of(socket, asked["uuid"])
    assert next(told)["status"] == "pending"
    served.loop.advance()
    return next(told)


def test_update_optimizer_sets_one_or_several_knobs(
    served: Served, heard: ClientConnection
) -> None:
    done = outcome(served, heard, command("update_optimizer", {"lr": {"value": 0.2}}))
    assert (done["status"], done["command"], done["time"]) == ("success", "update_optimizer", 1.5)
    assert json.loads(done["args"]) == {"lr": {"value": 0.2}}
    both = {"lr": {"value": "0.3"}, "wd": {"value": 0.1}}
    done = outcome(served, heard, command("update_optimizer", both, "u2"))
    assert json.loads(done["args"]) == {"lr": {"value": 0.3}, "wd": {"value": 0.1}}
    assert served.values == {"lr": 0.3, "wd": 0.1}
    assert served.session.journal.requests()["source"].tolist() == ["http", "http"]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("update_optimizer", {"lr": {"value": -1}}),
        ("update_optimizer", {"lr": {"value": "abc"}}),
        ("update_optimizer", {"foo": {"value": 3}}),
        ("update_optimizer", {"lr": {"value": 0.2}, "foo": {"value": 3}}),
        ("update_dataset", {"split": "train"}),
        ("update_dataset_runtime_hyperparameters", {"mix": 0.5}),
        ("model_layer_operation", {"layer_name": "fc", "operation_name": "explode"}),
        ("model_layer_parameter_update", {"layer_name": "d", "param_name": "p", "value": 0.1}),
    ],
)
def test_what_was_refused_is_told_as_failed_with_the_reason(
    served: Served, heard: ClientConnection, name: str, args: dict[str, Any]
) -> None:
    done = outcome(served, heard, command(name, args))
    assert done["status"] == "failed"
    assert done["error"]
    assert served.values == {"lr": 0.1, "wd": 0.0}
    result = served.session.result("u1")
    assert result is not None
    assert result.status == "rejected"


def test_pause_resume_evaluate_and_stop(served: Served, heard: ClientConnection) -> None:
    served.session.on_evaluate(lambda: {"acc": 0.5})
    assert outcome(served, heard, command("do_evaluate"))["status"] == "success"
    answer = served.http.post("/api/command/", json=command("pause_training", uuid="p"))
    assert answer.status_code == 200
    served.loop.advance(wait=False)
    until(lambda: served.session.status == "paused")
    assert served.http.get("/api/get_info/").json()["status"] == "paused"
    for name, uuid in (("resume_training", "r"), ("stop_training", "s")):
        served.http.post("/api/command/", json=command(name, uuid=uuid))
    served.loop.came_back()
    served.loop.advance(wait=False)
    assert served.session.wait(LIMIT_S) == "stopped"
    ended = {u: next(m for m in messages_of(heard, u) if m["status"] != "pending")
             for u in ("p", "r", "s")}  # fmt: skip
    assert {each["status"] for each in ended.values()} == {"success"}
    assert served.http.get("/api/get_info/").json()["status"] == "stopped"


def test_checkpoints_are_saved_listed_and_loaded_by_their_uuid(
    served: Served, heard: ClientConnection
) -> None:
    session = served.session

    def act(control: StepControl) -> None:
        if control.save:
            session.checkpoint_saved("runs/c1")
        if control.load:
            session.checkpoint_loaded(control.load)

    served.loop._act = act
    assert outcome(served, heard, command("save_checkpoint"))["status"] == "success"
    (entry,) = served.http.get("/api/get_checkpoints/").json()
    assert entry["checkpoint_dir"] == "runs/c1"
    assert entry["branch_id"] == "main"
    assert set(entry) == {"time", "checkpoint_dir", "uuid", "branch_id", "global_step"}
    wanted = {"uuid": entry["uuid"], "branch_name": "again"}
    done = outcome(served, heard, command("load_checkpoint", wanted, "u2"))
    assert done["status"] == "success"
    assert set(json.loads(done["args"])) == {"uuid", "branch_name", "branch_info"}
    unknown = served.http.post("/api/command/", json=command("load_checkpoint", {"uuid": "x"}))
    assert unknown.status_code == 422


def test_layers_are_reset_frozen_and_set(served: Served, heard: ClientConnection) -> None:
    done: list[Any] = []

    def register(name: str) -> None:
        def handler(payload: dict[str, Any], session: Any) -> None:
            done.append((name, payload["name"]))

        served.session.actions.register(ActionSpec(name, handler, "", NameArgs), replace=True)

    for name in ("reset_module", "freeze", "unfreeze"):
        register(name)
    p = {"value": 0.1}
    served.session.register_knob(
        "enc.drop.p", lambda: p["value"], lambda v: p.update(value=v), min=0, max=1
    )
    for args, uuid in (
        ({"operation_name": "reset_parameters", "params": {}}, "a"),
        ({"operation_name": "requires_grad_", "params": {"requires_grad": "False"}}, "b"),
        ({"operation_name": "requires_grad_", "params": {"requires_grad": True}}, "c"),
    ):
        asked = command("model_layer_operation", {"layer_name": "enc", **args}, uuid)
        assert outcome(served, heard, asked)["status"] == "success"
    assert done == [("reset_module", "enc"), ("freeze", "enc"), ("unfreeze", "enc")]
    args = {"layer_name": "enc.drop", "param_name": "p", "value": "0.4"}
    asked = command("model_layer_parameter_update", args, "d")
    assert outcome(served, heard, asked)["status"] == "success"
    assert p == {"value": 0.4}


def test_a_dataset_is_set_where_the_run_can_do_it(served: Served, heard: ClientConnection) -> None:
    mix = {"value": 0.1}
    served.session.register_knob(
        "mix", lambda: mix["value"], lambda v: mix.update(value=v), min=0, max=1, group="dataset"
    )
    name = "update_dataset_runtime_hyperparameters"
    assert outcome(served, heard, command(name, {"mix": 0.7}))["status"] == "success"
    info = served.http.get("/api/get_dataset_info/").json()
    assert info == {"initialization_parameters": {}, "interactive_parameters": {"mix": 0.7}}
    assert "mix" not in served.http.get("/api/get_optimizer_info/").json()
    asked: list[Any] = []
    served.session.action("update_dataset", payload_keys=["split"])(
        lambda payload, session: asked.append(payload)
    )
    done = outcome(served, heard, command("update_dataset", {"split": "b"}, "u2"))
    assert (done["status"], asked) == ("success", [{"split": "b"}])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (command("fly"), 400),
        (command("update_optimizer", "{"), 422),
        (command("update_optimizer", "[]"), 422),
        (command("update_optimizer", {}), 422),
        (command("model_layer_operation", {}), 422),
        (command("pause_training", uuid="x" * 200), 422),
        ({"args": ""}, 422),
        ([], 422),
    ],
)
def test_a_bad_command_gets_4xx_with_the_reason(served: Served, body: Any, status: int) -> None:
    answer = served.http.post("/api/command/", json=body)
    assert answer.status_code == status
    assert answer.json()["status"] == "error"
    assert answer.json()["message"]


def test_what_it_shows_of_a_run(served: Served) -> None:
    served.loop.advance(3)
    info = served.http.get("/api/get_info/").json()
    assert (info["status"], info["run_name"]) == ("running", "served")
    assert info["start_time"] > 0
    assert served.http.get("/api/get_optimizer_info/").json() == {"lr": 0.1, "wd": 0.0}
    served.session.model_tree = {
        "name": "", "module_type": "Net", "children": [
            {"name": "fc", "module_type": "Linear", "children": []}],
    }  # fmt: skip
    tree = served.http.get("/api/get_model_info/").json()
    assert (tree["name"], tree["module_type"]) == ("Model", "Net")
    assert set(tree["children"][0]) == {
        "name", "module_type", "operators", "hyperparameters", "children",
    }  # fmt: skip
    logs = served.http.get("/api/get_logs/").json()
    assert set(logs) == {
        "local_step", "branched_logs", "current_branch", "branch_info", "branch_tree",
    }  # fmt: skip
    assert [each["metrics"]["loss"] for each in logs["branched_logs"]["main"]] == [1.0, 0.5, 1 / 3]
    assert logs["branch_tree"] == {"main": []}
    assert logs["current_branch"] == "main"


def test_metrics_are_told_as_they_come_in_strict_json(
    served: Served, heard: ClientConnection
) -> None:
    odd = {1: 0.5, 2: float("nan")}
    served.loop._loss = lambda step: odd[step]
    served.loop.advance(2)
    told: list[dict[str, Any]] = []
    while len(told) < 2:
        message = json.loads(heard.recv(timeout=LIMIT_S), parse_constant=pytest.fail)
        if message["command"] == "log_update":
            told.append(json.loads(message["args"], parse_constant=pytest.fail))
    assert [each["metrics"]["loss"] for each in told] == [0.5, None]
    assert [each["metrics"]["global_step"] for each in told] == [1, 2]
    assert set(told[0]) == {"local_step", "wall_time", "branch_id", "metrics"}


def test_a_change_from_elsewhere_is_told_too(served: Served, heard: ClientConnection) -> None:
    told = served.post("set_knob", {"name": "lr", "value": 0.4})
    served.loop.advance()
    message = next(messages_of(heard, told["id"]))
    assert (message["command"], message["status"]) == ("update_optimizer", "success")
    assert json.loads(message["args"]) == {"lr": {"value": 0.4}}
