"""What became of the parameter groups behind one knob, in data and in words."""

from __future__ import annotations

import pytest

from it2nb.core.members import MAX_MEMBERS, members_text, moved
from it2nb.core.session import Session
from it2nb.panel.rows import row_of


def session_of(*values: float) -> tuple[Session, dict[str, float]]:
    """Return a session whose knob ``lr`` scales several members; 13 raises when it is read."""
    groups = {str(at): value for at, value in enumerate(values)}

    def write(value: float) -> None:
        factor = value / groups["0"]
        groups.update({name: each * factor for name, each in groups.items()})

    def members() -> dict[str, float]:
        if 13.0 in groups.values():
            raise RuntimeError("a member can't be read")
        return groups

    session = Session(directory=None)
    session.register_knob("lr", lambda: groups["0"], write, members=members)
    return session, groups


def test_a_result_says_what_became_of_each_group_in_text_data_and_row() -> None:
    session, _ = session_of(0.01, 0.07)
    handle = session.submit({"type": "set_knob", "payload": {"name": "lr", "value": 0.02}})
    session.pump()
    result = handle.result(0)
    said = "2 groups, ratios kept: lr[0] 0.01 → 0.02, lr[1] 0.07 → 0.14"
    assert f"; {said}" in str(result)
    assert result.data == {
        "groups": 2,
        "ratios_kept": True,
        "members": {"0": {"before": 0.01, "after": 0.02}, "1": {"before": 0.07, "after": 0.14}},
    }
    (event,) = (each for each in session.journal.since(0) if each.type == "action_result")
    assert event.payload["data"] == result.data
    assert row_of(event).text == said


def test_each_knob_of_a_batch_tells_its_groups() -> None:
    session, _ = session_of(0.01, 0.07)
    handle = session.submit({"type": "batch", "payload": {"set": {"lr": 0.02}}})
    session.pump()
    (told,) = handle.result(0).data
    assert told["groups"] == 2 and told["members"]["1"] == {"before": 0.07, "after": 0.14}


def test_nothing_is_said_of_one_group_and_of_none_that_moved() -> None:
    assert moved({}, {}) is None
    assert moved({"0": 0.1}, {"0": 0.2}) is None
    assert moved({"0": 0.1, "1": 0.2}, {"0": 0.1, "1": 0.2}) is None
    assert moved({"0": 0.1, "1": 0.2}, {"0": 0.1, "2": 0.2}) is None
    assert members_text("lr", None) == members_text("lr", {"members": [1]}) == ""
    assert members_text("team", {"members": {"anna": 1}}) == ""


def test_a_member_that_can_t_be_read_leaves_the_request_applied() -> None:
    session, groups = session_of(1.0, 13.0)
    handle = session.submit({"type": "set_knob", "payload": {"name": "lr", "value": 2.0}})
    session.pump()
    assert handle.result(0).status == "applied" and groups["0"] == 2.0
    assert handle.result(0).data is None


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ((0.0, 0.1), (0.0, 0.2), True),
        ((0.1, 0.1), (0.2, 0.2), True),
        ((0.1, 0.2), (0.2, 0.2), False),
        ((0.0, 0.0), (0.1, 0.1), False),
        ((False, True), (True, True), False),
    ],
)
def test_ratios_are_said_to_be_kept_where_they_are(
    before: tuple[float, float], after: tuple[float, float], kept: bool
) -> None:
    named = [dict(zip(("decay", "no_decay"), each, strict=True)) for each in (before, after)]
    data = moved(*named)
    assert data is not None and data["ratios_kept"] is kept
    assert (", ratios kept" in members_text("lr", data)) is kept
    assert data["members"]["decay"] == {"before": before[0], "after": after[0]}


def test_four_groups_are_spelled_out_and_sixteen_are_in_the_data() -> None:
    before = {str(at): 0.1 for at in range(40)}
    data = moved(before, dict.fromkeys(before, 0.2))
    assert data is not None and data["groups"] == 40 and len(data["members"]) == MAX_MEMBERS
    text = members_text("lr", data)
    assert text.startswith("40 groups, ratios kept: lr[0] 0.1 → 0.2, ")
    assert text.endswith("lr[3] 0.1 → 0.2, ...")
