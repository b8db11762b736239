"""What a failed run keeps of its exception: words, and nothing that holds memory (C77)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from it2nb.core.ballast import Gone, frameless, is_large, lighten
from it2nb.core.session import Session


class Big(np.ndarray[Any, Any]):
    """An array that can be watched."""


def big() -> Big:
    return np.zeros(4).view(Big)


class Holder:
    def __init__(self, what: Any) -> None:
        self.what = what


class Batch(Exception):
    def __init__(self, text: str, batch: Any) -> None:
        super().__init__(text)
        self.batch = batch


def attribute(what: Any) -> None:
    Holder(what).typo  # type: ignore[attr-defined]  # noqa: B018


def argument(what: Any) -> None:
    raise AssertionError(what)


def nested(what: Any) -> None:
    raise ValueError("two", {"of": [Holder(what)]})


def member(what: Any) -> None:
    def one(what: Any) -> None:
        raise KeyError(what)

    try:
        one(what)
    except KeyError as err:
        raise ExceptionGroup("several", [err]) from err


def wrapped(what: Any) -> None:
    def one(what: Any) -> None:
        raise KeyError("inner")

    try:
        one(what)
    except KeyError as err:
        raise RuntimeError(err) from None


def field(what: Any) -> None:
    raise Batch("bad batch", what)


def code(what: Any) -> None:
    raise SystemExit(what)


def closure(what: Any) -> None:
    raise ValueError(lambda: what)


FAILING = (attribute, argument, nested, member, wrapped, field, code, closure)


@pytest.mark.parametrize("fail", FAILING)
def test_a_failed_run_lets_go_of_what_its_exception_carried_c77(
    fail: Callable[[Any], None],
) -> None:
    session = Session(directory=None)
    what = big()
    there = weakref.ref(what)
    try:
        with session.run():
            fail(what)
    except BaseException as error:  # noqa: BLE001  one of them is a SystemExit
        kind, said = type(error), str(error)
    del what
    gc.collect()
    assert there() is None
    assert session.status == "failed"
    kept = session.exception
    assert type(kept) is kind
    assert str(kept) == said


def test_what_is_small_stays_as_it_is_c77() -> None:
    holder = Holder("small")
    error = Batch("text", holder)
    error.args = ("text", 3, holder)
    lighten(error)
    assert error.args == ("text", 3, holder)
    assert error.batch is holder


def test_a_thing_that_can_not_say_what_it_is_goes_as_well_c77() -> None:
    class Mute(Holder):
        def __repr__(self) -> str:
            raise RuntimeError("no words")

    error = ValueError(Mute(big()))
    lighten(error)
    assert isinstance(error.args[0], Gone)
    assert "Mute" in str(error)


def test_members_of_a_group_keep_their_types_and_words_c77() -> None:
    twin = frameless(ExceptionGroup("several", [ValueError(1), KeyError("two")]), "where")
    assert isinstance(twin, ExceptionGroup)
    assert [repr(each) for each in twin.exceptions] == ["ValueError(1)", "KeyError('two')"]
    assert twin.__notes__ == ["where"]


def test_large_is_what_holds_an_array_or_many_bytes_c77() -> None:
    assert is_large([{"a": (big(),)}])
    assert is_large(b"x" * 2**20)
    assert not is_large(["text", 1.0, None, int, np, np.float32(1.0)])
