"""Tools made from a session's actions and knobs."""

from __future__ import annotations

import it2nb
from it2nb.controllers.tools import Toolbox, knob_schema
from it2nb.core.wire import ActionSchema, KnobView


def session() -> it2nb.TrainingSession:
    made = it2nb.TrainingSession(directory=None)
    settings = {"lr": 0.1, "mode": "fast", "depth": 2}
    made.register_knob("lr", lambda: settings["lr"], lambda v: settings.update(lr=v), min=0, max=1)
    made.register_knob("depth", lambda: settings["depth"], lambda v: settings.update(depth=v),
                       dtype="int", min=1, max=8)  # fmt: skip
    made.register_knob("mode", lambda: settings["mode"], lambda v: settings.update(mode=v),
                       choices=["fast", "slow"])  # fmt: skip

    @made.action("kick", "move the weight")
    def kick(by: float, reason: int = 0):
        return by

    return made


def test_set_knob_tells_the_types_and_bounds_of_the_knobs():
    schema = knob_schema(session().knobs.views())
    assert schema["properties"]["name"]["enum"] == ["lr", "depth", "mode"]
    assert schema["properties"]["value"]["anyOf"] == [
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "integer", "minimum": 1, "maximum": 8},
        {"enum": ["fast", "slow"]},
    ]


def test_actions_become_tools_with_a_reason_beside_their_arguments():
    made = session()
    box = Toolbox(made.actions.schemas(), made.knobs.views())
    tools = {each.name: each for each in box.tools}
    assert "batch" not in tools  # set_knob several times
    assert "set_mode" not in tools  # no knob has modes
    assert tools["pause"].schema["properties"] == {
        "reason": {"type": "string", "description": "why, in one sentence"}
    }
    assert tools["kick"].schema["properties"]["by"]["type"] == "number"
    assert tools["kick"].schema["properties"]["reason"]["type"] == "integer"  # its own
    assert "lr (float, 0 to 1, is 0.1)" in tools["set_knob"].description
    assert made.actions["kick"].schema().args["properties"].keys() == {"by", "reason"}


def test_what_cannot_be_used_now_is_no_tool():
    actions = [ActionSchema(name="evaluate", enabled=False), ActionSchema(name="set_knob")]
    locked = KnobView(name="lr", dtype="float", locked=True)
    assert Toolbox(actions, [locked]).tools == []
    assert [each.name for each in Toolbox(actions, [KnobView(name="a", dtype="bool")]).tools] == [
        "set_knob"
    ]


def test_set_mode_names_the_knobs_that_have_modes():
    driven = KnobView(name="lr", dtype="float", modes=["rescale", "hold", "release"])
    plain = KnobView(name="wd", dtype="float")
    made = it2nb.TrainingSession(directory=None)
    box = Toolbox([made.actions["set_mode"].schema()], [driven, plain])
    (tool,) = box.tools
    assert tool.schema["properties"]["name"] == {"enum": ["lr"]}


def test_two_actions_whose_names_look_alike_to_a_model_are_one_tool():
    box = Toolbox([ActionSchema(name="a b"), ActionSchema(name="a/b")], [])
    assert [each.name for each in box.tools] == ["a_b"]
    assert box.action("a_b") == "a b"


def test_a_hundred_knobs_make_a_tool_of_bounded_size():
    knobs = [KnobView(name=f"k{n}", dtype="float", description="x" * 500) for n in range(500)]
    (tool,) = Toolbox([ActionSchema(name="set_knob")], knobs).tools
    assert len(tool.description) <= 1_000
    assert len(tool.schema["properties"]["name"]["enum"]) == 500
