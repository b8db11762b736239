"""Every shape in which a model may answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from it2nb.controllers.provider import ToolCall
from it2nb.controllers.reading import loads, wishes
from it2nb.controllers.tools import Toolbox
from it2nb.core.errors import It2nbError
from it2nb.core.wire import ActionSchema, KnobView

BOX = Toolbox(
    [ActionSchema(name="set_knob"), ActionSchema(name="evaluate"), ActionSchema(name="my action")],
    [
        KnobView(name="lr", dtype="float", value=0.1, min=0, max=1),
        KnobView(name="layers", dtype="int", value=2),
        KnobView(name="nesterov", dtype="bool", value=False),
        KnobView(name="note", dtype="str", value=""),
    ],
)
ASKED = {"type": "set_knob", "payload": {"name": "lr", "value": 0.01}, "reason": "flat"}


def read(text: str = "", *calls: tuple[str, Any]) -> list[tuple[str, dict[str, Any], str]]:
    """What is wanted, of wishes that have nothing wrong."""
    found = wishes(text, [ToolCall(*each) for each in calls], BOX)
    assert all(each.wrong is None for each in found), found
    return [(each.type, each.payload, each.reason) for each in found]


def wrong(text: str = "", *calls: tuple[str, Any]) -> list[str]:
    """Why the wishes can't be asked for."""
    return [each.wrong or "" for each in wishes(text, [ToolCall(*each) for each in calls], BOX)]


@pytest.mark.parametrize(
    "args",
    [
        {"name": "lr", "value": 0.01, "reason": "flat"},
        '{"name": "lr", "value": 0.01, "reason": "flat"}',
        '```json\n{"name": "lr", "value": 0.01, "reason": "flat"}\n```',
        'Sure! {"name": "lr", "value": 0.01, "reason": "flat"} as you wished.',
        json.dumps('{"name": "lr", "value": 0.01, "reason": "flat"}'),
        {"arguments": {"name": "lr", "value": 0.01, "reason": "flat"}},
        {"name": "lr", "value": "1e-2", "reason": "flat"},
    ],
)
def test_a_tool_call_is_read_whatever_its_arguments_are_wrapped_in(args):
    assert read("", ("set_knob", args)) == [("set_knob", {"name": "lr", "value": 0.01}, "flat")]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ASKED),
        json.dumps([ASKED]),
        json.dumps({"thought": "hm", "actions": [ASKED]}),
        f"I would lower it.\n```json\n{json.dumps(ASKED)}\n```\nThat is all.",
        f"```\n{json.dumps(ASKED)}```",
        f"The loss [see above] is flat, so {json.dumps(ASKED)}. Good luck {{smile}}",
        json.dumps({**ASKED, "name": "set_knob", "payload": json.dumps(ASKED["payload"])}),
        json.dumps({"tool": "set_knob", "args": ASKED["payload"], "reason": "flat"}),
    ],
)  # fmt: skip
def test_an_answer_without_tool_calls_is_read_from_its_text(text):
    assert read(text) == [("set_knob", {"name": "lr", "value": 0.01}, "flat")]


@pytest.mark.parametrize(
    "text", ["", "All is well.", "The loss is {falling} [0.2, 0.1].", "lr = 0.01 would be bad"]
)
def test_prose_is_no_request(text):
    assert wishes(text, [], BOX) == []


@pytest.mark.parametrize(
    "text",
    [
        '{"actions": []}',
        '{"thought": "all is well", "actions": []}',
        '```json\n{"actions": null, "reason": "flat"}\n```',
        "[]",
        '{"tool_calls": []}',
    ],
)
def test_json_that_asks_for_nothing_is_no_request_and_nothing_unreadable(text):
    # C68: such an answer cost a second call and left a rejected row.
    assert wishes(text, [], BOX) == []


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "set_knob", "payload": {"name": "lr", "val',
        '{"type": "set_knob", "payload": {"name": "lr", "value": 1e999}}',
        '{"actions": [' + json.dumps(ASKED) + ', {"type": "st',
        '```json\n{"type": "set_knob", "payload": {"name": ```',
        "{'type': 'set_knob', 'payload': {'name': 'lr'}}",
        '{"lr": 0.01}',
        '{"type": "set_knob", "payload": {"name": "lr", "value": NaN}}',
    ],
)
def test_text_that_means_to_be_json_and_is_none_is_said_to_be_unreadable_and_never_mended(text):
    found = wishes(text, [], BOX)
    assert [each.type for each in found] == ["unreadable"]
    assert "JSON" in (found[0].wrong or "")


@pytest.mark.parametrize(
    "args",
    [
        '{"name": "lr", "val', "lr to 0.01 please", "[1, 2]", '"lr"',
        '{"name": "lr", "value": 1e999}', '{"name": "lr", "value": -1e999}',
    ],
)  # fmt: skip
def test_arguments_that_cannot_be_read_are_told_and_keep_their_action(args):
    (found,) = wishes("", [ToolCall("set_knob", args)], BOX)
    assert found.type == "set_knob"
    assert "can't be read" in (found.wrong or "")


def test_wrong_keys_and_values_out_of_range_are_left_to_the_run():
    calls = [
        ("set_knob", {"knob": "lr", "to": 1}),
        ("set_knob", {"name": "lr", "value": 50}),
        ("set_knob", {"name": "lr", "value": "high"}),
        ("launch", {"a": 1}),
    ]
    assert read("", *calls) == [(*each, "") for each in calls]


def test_a_tools_name_stands_for_its_action():
    assert [each.name for each in BOX.tools] == ["set_knob", "evaluate", "my_action"]
    assert read("", ("my_action", None), ("evaluate", "")) == [
        ("my action", {}, ""),
        ("evaluate", {}, ""),
    ]


@pytest.mark.parametrize(
    ("name", "given", "read_as"),
    [
        ("lr", "0.5", 0.5), ("lr", "nan", "nan"), ("lr", "inf", "inf"), ("lr", None, None),
        ("layers", "3", 3), ("layers", "3.5", 3.5), ("nesterov", "True", True),
        ("nesterov", "yes", "yes"), ("note", "3", "3"), ("no knob", "3", "3"),
    ],
)  # fmt: skip
def test_numbers_that_were_written_as_text_are_read_by_the_knobs_type(name, given, read_as):
    ((_, payload, _),) = read("", ("set_knob", {"name": name, "value": given}))
    assert payload["value"] == read_as
    assert type(payload["value"]) is type(read_as)


def test_many_calls_keep_their_order():
    calls = [("set_knob", {"name": "lr", "value": n}) for n in range(200)]
    assert [payload["value"] for _, payload, _ in read("", *calls)] == list(range(200))


def test_deep_and_long_texts_end_in_time():
    assert wishes("[" * 100_000, [], BOX)[0].type == "unreadable"
    assert wishes("{ " * 2_000 + "}" * 2_000, [], BOX)[0].type == "unreadable"
    assert wrong("", ("evaluate", "[" * 100_000))


def test_loads_says_what_is_wrong():
    with pytest.raises(It2nbError, match=r"no JSON object.*list"):
        loads("[1]")


def test_a_text_that_is_far_too_long_is_not_searched():
    flood = "```json {" * 100_000
    (wish,) = wishes(flood, [], BOX)
    assert "900,000 characters; 100,000 are read" in str(wish.wrong)
    (wish,) = wishes("", [ToolCall("set_knob", flood)], BOX)
    assert "900,000 characters" in str(wish.wrong)
