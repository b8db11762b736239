"""A served run as an MCP server, over stdio, with the official client."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client

import it2nb
from it2nb.__main__ import UNREADABLE, main
from it2nb.core.errors import It2nbError, Unreachable
from it2nb.server import mcp as serving
from it2nb.server.desk import Desk
from it2nb.server.remote import RemoteSession
from tests.core.driving import LIMIT_S

from .conftest import Served


@contextmanager
def moving(served: Served) -> Iterator[None]:
    """Let the loop go on."""
    done = threading.Event()

    def go() -> None:
        while not done.is_set():
            served.loop.advance(wait=False)
            done.wait(0.005)

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(LIMIT_S)


@pytest.fixture
def desk(served: Served) -> Iterator[Desk]:
    served.loop.advance(3)
    with (
        moving(served),
        RemoteSession(served.server.url, served.server.token, timeout=LIMIT_S) as run,
    ):
        yield Desk(run, LIMIT_S)


def answer(result: Any) -> Any:
    """What a tool said."""
    (content,) = result.content
    return json.loads(content.text)


async def visit(served: Served) -> dict[str, Any]:
    """Do with the official client what an assistant would."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "it2nb", "mcp", "--url", served.server.url, "--wait", "20"],
        env={
            "IT2NB_TOKEN": served.server.token,
            "PYTHONPATH": str(Path(it2nb.__file__).parents[1]),
        },
    )
    seen: dict[str, Any] = {}
    async with Client(stdio_client(server)) as client:
        tools = await client.list_tools()
        seen["tools"] = {each.name: each for each in tools.tools}
        seen["resources"] = [str(each.uri) for each in (await client.list_resources()).resources]
        for name, arguments in (
            ("read_state", {}),
            ("set_knob", {"name": "lr", "value": 0.5, "reason": "flat"}),
            ("set_knob", {"name": "lr", "value": 50}),
            ("set_knob", {"name": "nothing", "value": 1}),
            ("pause", {}),
            ("launch", {}),
            ("read_metrics", {"names": ["loss"], "points": 2}),
            ("read_metrics", {"names": ["loss"], "pionts": 2}),
            ("read_journal", {"rows": 20}),
        ):
            seen.setdefault(name, []).append(await client.call_tool(name, arguments))
        policy = await client.read_resource("it2nb://policy")
        seen["policy"] = json.loads(policy.contents[0].text)  # type: ignore[union-attr]
        with pytest.raises(MCPError, match="no resource"):
            await client.read_resource("it2nb://secrets")
    return seen


def test_an_assistant_sees_and_steers_a_run_over_stdio(served: Served):
    served.loop.advance(3)
    with moving(served):
        seen = asyncio.run(asyncio.wait_for(visit(served), 120))
    tools = seen["tools"]
    assert {"read_state", "read_metrics", "set_knob", "evaluate"} <= tools.keys() | {"evaluate"}
    assert tools["set_knob"].input_schema["properties"]["name"]["enum"] == ["lr", "wd"]
    assert tools["read_state"].annotations.read_only_hint
    # What agents may not do is not offered.
    assert not {"pause", "load_checkpoint", "set_context"} & tools.keys()
    assert "it2nb://state" in seen["resources"]

    state = answer(seen["read_state"][0])
    assert state["status"] == "running"
    assert state["knobs"] == {"lr": 0.1, "wd": 0.0}

    good, far, unknown = seen["set_knob"]
    assert not good.is_error
    assert answer(good)["status"] == "applied"
    assert answer(good)["after"] == 0.5
    assert far.is_error
    assert "outside" in answer(far)["reason"]
    assert unknown.is_error
    assert "no knob is named 'nothing'" in answer(unknown)["reason"]
    # The run refuses what agents may not do, also when it is asked for all the same.
    assert seen["pause"][0].is_error
    assert "agent may not use pause" in answer(seen["pause"][0])["reason"]
    assert seen["launch"][0].is_error
    assert "there is no tool 'launch'" in answer(seen["launch"][0])["error"]

    assert len(answer(seen["read_metrics"][0])["loss"]) == 2
    assert "takes ['names', 'points']" in answer(seen["read_metrics"][1])["error"]
    assert [each["status"] for each in answer(seen["read_journal"][0])] == [
        "applied", "rejected", "rejected", "rejected",
    ]  # fmt: skip
    assert "agent" in seen["policy"]["forbidden"]

    asked = served.session.journal.requests()
    assert set(asked["source"]) == {"http"}
    assert set(asked["actor"]) == {"mcp"}
    assert served.session.status == "running"


def test_a_request_that_waits_for_a_person_is_looked_up_later(served: Served):
    served.session.policy.require_approval("wd", sources=["agent"])
    with (
        moving(served),
        RemoteSession(served.server.url, served.server.token, timeout=LIMIT_S) as run,
    ):
        desk = Desk(run, 0.2)
        told, failed = desk.call("set_knob", {"name": "wd", "value": 0.1})
        assert not failed
        assert "read_request" in told["note"]
        assert served.session.approve(told["id"])
        later, failed = {"status": "pending"}, False
        pause = threading.Event()
        for _ in range(400):
            later, failed = desk.call("read_request", {"id": told["id"]})
            if later["status"] not in ("pending", "waiting"):
                break
            pause.wait(0.02)
    assert not failed
    assert later["status"] == "applied"
    assert served.values["wd"] == 0.1


def test_errors_say_what_was_wrong(desk: Desk):
    for name, arguments, said in (
        ("read_metrics", {"names": "loss"}, "has to be a list"),
        ("read_metrics", {"names": ["lss"]}, "did you mean 'loss'"),
        ("read_metrics", {"points": 10_000}, "from 1 to 1000"),
        ("read_journal", {"rows": True}, "whole number"),
        ("read_request", {}, "has to be the id"),
        ("set_knb", {}, "did you mean 'set_knob'"),
    ):
        told, failed = desk.call(name, arguments)
        assert failed
        assert said in told["error"]


def test_every_resource_can_be_read(desk: Desk):
    assert desk.resource("state")["run_id"]
    assert [each["name"] for each in desk.resource("knobs")] == ["lr", "wd"]
    forbidden = {each["name"]: each["forbidden"] for each in desk.resource("actions")}
    assert forbidden["pause"]
    assert not forbidden["set_knob"]
    assert desk.resource("metrics").keys() == {"loss"}
    assert desk.resource("metrics/loss")["loss"][0] == [1, 1.0]
    assert desk.resource("journal") == []
    assert desk.resource("policy")["said"]
    with pytest.raises(It2nbError, match="no resource"):
        desk.resource("state/lr")


def test_a_run_that_is_not_there_is_a_plain_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(Unreachable):
        serving.serve_stdio("http://127.0.0.1:9", "x", timeout=0.1)
    hasty = functools.partial(serving.serve_stdio, timeout=0.1)
    monkeypatch.setattr(serving, "serve_stdio", hasty)
    assert main(["mcp", "--url", "http://127.0.0.1:9", "--token", "x"]) == UNREADABLE
    assert "no answer from" in capsys.readouterr().err
