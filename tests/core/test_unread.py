"""What a script asked for in vain and never looked at is told once, when the run ends."""

from __future__ import annotations

import warnings

import pytest

from it2nb.core.errors import It2nbWarning
from it2nb.core.session import Session


def made() -> Session:
    session = Session(directory=None, run_id="r")
    session.register_knob("lr", lambda: 0.1, lambda value: None, max=1.0)

    @session.action("breaks")
    def breaks() -> None:
        raise ValueError("no")

    return session


def told(session: Session) -> list[str]:
    """Step and end the run; what Python was warned of."""
    session.step()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session.end()
        session.end()
    assert all(issubclass(each.category, It2nbWarning) for each in caught)
    return [str(each.message) for each in caught]


def test_a_slip_of_a_script_is_told_when_the_run_ends() -> None:
    session = made()
    session.step()
    session.set("lrr", 0.5)
    session.set("lr", 0.1)
    session.do("breaks")
    (said,) = told(session)
    first, *lines = said.splitlines()
    assert first.startswith("2 requests of run r came to nothing")
    assert lines == [
        "  set_knob lrr: rejected, after step 2 (no knob is named 'lrr'; did you mean 'lr'?)",
        "  breaks: failed, after step 2 (the handler raised ValueError: no)",
    ]


def test_of_many_the_first_ten_are_named() -> None:
    session = made()
    session.step()
    for name in "abcdefghijkl":
        session.set(name, 1.0)
    (said,) = told(session)
    lines = said.splitlines()
    assert [each.split()[1] for each in lines[1:]] == [*(f"{name}:" for name in "abcdefghij"), "2"]
    assert lines[-1] == "  and 2 more"


LOOKS = {
    "result": lambda handle: handle.result(0),
    "status": lambda handle: handle.status,
    "ok": lambda handle: handle.ok,
    "reason": lambda handle: handle.reason,
    "printed": repr,
}


@pytest.mark.parametrize("how", LOOKS)
def test_what_was_looked_at_is_not_told_again(how: str) -> None:
    session = made()
    session.step()
    handle = session.set("lrr", 0.5)
    session.step()
    LOOKS[how](handle)
    assert told(session) == []


def test_a_look_before_the_result_is_none() -> None:
    session = made()
    session.step()
    assert session.set("lrr", 0.5).status == "pending"
    assert len(told(session)) == 1


def test_what_others_asked_for_has_its_own_reader() -> None:
    session = made()
    session.step()
    for source in ("panel", "http", "agent", "rule"):
        session.submit({"type": "set_knob", "payload": {"name": "x", "value": 1}}, source=source)
    assert told(session) == []


def test_a_warning_that_is_an_error_ends_no_run() -> None:
    session = made()
    session.step()
    session.set("lrr", 0.5)
    session.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.end()
    assert session.status == "finished"


def test_a_stop_that_comes_too_late_has_what_it_wanted() -> None:
    # C57
    session = made()
    session.step()
    session.do("stop")
    session.step()
    session.submit({"type": "stop"})
    assert session.queue.unread() == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.end()
