from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from it2nb.notebook.failure import chain_of, failure_of, render


class Big:
    pass


def fail(keep: list[Any]) -> None:
    big = Big()
    keep.append(weakref.ref(big))
    try:
        raise KeyError("inner")
    except KeyError as err:
        also_big = Big()
        keep.append(weakref.ref(also_big))
        raise ValueError("outer") from err


def caught(keep: list[Any]) -> BaseException:
    try:
        fail(keep)
    except ValueError as err:
        return err
    raise AssertionError


def test_nothing_of_the_frames_stays_alive_c77(shell: Any) -> None:
    refs: list[Any] = []
    failure = failure_of(caught(refs), __file__, shell)
    gc.collect()
    assert [ref() for ref in refs] == [None, None]
    assert isinstance(failure.error, ValueError)


def test_line_text_and_traceback_are_the_user_s(shell: Any) -> None:
    failure = failure_of(caught([]), __file__, shell)
    assert failure.line == fail.__code__.co_firstlineno + 8
    assert (failure.name, failure.text) == ("ValueError", "outer")
    shown = "\n".join(failure.shown)
    assert "also_big = Big()" in shown
    assert "KeyError" in shown


def test_it_can_be_raised_again(shell: Any) -> None:
    failure = failure_of(caught([]), __file__, shell)
    for _ in range(3):
        with pytest.raises(ValueError, match="outer"):
            raise failure.error


def test_groups_are_gone_through() -> None:
    inner = ValueError("one")
    group = ExceptionGroup("several", [inner, TypeError("two")])
    assert inner in list(chain_of(group))


def test_a_formatter_that_fails_falls_back_to_python_s() -> None:
    broken = SimpleNamespace(InteractiveTB=None)
    assert "ValueError: outer" in "".join(render(caught([]), broken))


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_exception_that_can_not_say_its_text_is_kept_all_the_same(shell: Any) -> None:
    try:
        raise Unspeakable
    except Unspeakable as err:
        failure = failure_of(err, __file__, shell)
    assert "Unspeakable, whose text can't be made" in failure.text
