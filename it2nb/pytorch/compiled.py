"""Steps inside ``torch.compile``.

PyTorch traces its step hooks along with a compiled step. Most of its own optimizers break the
graph around their arithmetic: there our hooks are called between graphs, and split none. Others
(Muon, Adafactor, most of one's own) stay whole, in one graph with what stands around them, and
so they have to. Then our traced hooks call nothing. They leave a mark, which is set when the
graph has run, and the compiled function that holds the step stands for it: its entry is the
moment before the step, its return the control point.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from itertools import count
from threading import get_ident
from typing import Any

import torch
import torch.optim.optimizer as home

#: Told in the panel when a step can't be seen.
NOT_SEEN = (
    "optimizer.step() runs inside torch.compile(fullgraph=True), and this version of PyTorch "
    "shows no entry of the compiled function: the step has no control points and edits don't "
    "reach it. Compile without fullgraph, or leave the step out of the compiled function"
)
#: The mark of a step that nobody follows.
IGNORED = "ignored"

_numbers = count()


class Marks:
    """What compiled code leaves behind: one attribute for each traced step that ran.

    Attributes of an object, since PyTorch writes these without looking at them before: no guard
    on them, no recompilation.
    """


MARKS = Marks()


class Passage:
    """One compiled function with whole steps inside, whose entry and return we are told of."""

    def __init__(self) -> None:
        #: The optimizer of each traced step, by its mark, in the order of their tracing.
        self.steps: dict[str, weakref.ref[Any]] = {}

    def enter(self) -> Callable[[], None]:
        """The compiled function is entered: what has to be in force before its steps.

        Raises
        ------
        StopTraining
        """
        board = _board()
        if board is not None:
            for optimizer in {id(each): each for each in self._alive()}.values():
                board.before(optimizer)
        return _nothing

    def entered(self) -> Callable[[], None]:
        """It is entered, and everything else that had to be set for it is: return its exit."""
        return self.leave

    def leave(self) -> None:
        """The compiled function returns: each step that it took is a control point now.

        Raises
        ------
        StopTraining
        """
        ran = [mark for mark in self.steps if vars(MARKS).pop(mark, None)]
        board = _board()
        for mark in ran if board is not None else ():
            optimizer = self.steps[mark]()
            if optimizer is not None:
                board.overtaken(optimizer)
                board.after(optimizer)

    def _alive(self) -> list[Any]:
        return [each for ref in self.steps.values() if (each := ref()) is not None]


def is_whole(key: int) -> bool:
    """Whether the step that is traced, of the optimizer with this id, is left unbroken.

    This and `mark` are called while tracing: what they return is a constant of the graph.
    """
    optimizer = _optimizer(key)
    if optimizer is None or _breaks_anyway(optimizer):
        return False
    return _passage() is not None or _must_not_break()


def mark(key: int) -> str:
    """Name the mark that the traced step leaves; empty when our hook is to be called instead."""
    if not is_whole(key):
        return ""
    passage = _passage()
    if passage is None:
        _tell()
        return IGNORED
    if _is_inside_another():
        return IGNORED
    name = f"step_{next(_numbers)}"
    passage.steps[name] = weakref.ref(_optimizer(key))
    return name


def prepare() -> None:
    """Let the compiler call the functions above itself instead of tracing them."""
    torch.compiler.assume_constant_result(is_whole)
    torch.compiler.assume_constant_result(mark)


def _optimizer(key: int) -> Any:
    """Return the optimizer with this id: the compiler hands on numbers, and no objects."""
    board = _board()
    steered = None if board is None else board.steered.get(key)
    known = None if steered is None else steered.optimizer()
    if known is not None:
        return known
    # Once for each compilation of an optimizer without knobs; that takes seconds anyway.
    return next((each for each in gc.get_objects() if id(each) == key), None)


def _breaks_anyway(optimizer: Any) -> bool:
    """Whether PyTorch's own code breaks the graph inside this step."""
    step: Any = type(optimizer).step
    while step is not None:
        if getattr(getattr(step, "__code__", None), "co_name", "") == "_use_grad":
            return True
        step = getattr(step, "__wrapped__", None)
    return False


def _frames(module: str) -> Iterator[Any]:
    """The frames of this thread that run code of one of PyTorch's modules, inner ones first."""
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == module:
            yield frame
        frame = frame.f_back


def _passage() -> Passage | None:
    """Return the passage of the compiled function that is traced, or make it.

    None where this version of PyTorch, whose private names these are, keeps them elsewhere.
    """
    for frame in _frames("torch._dynamo.eval_frame"):
        found = frame.f_locals
        entries = getattr(found.get("self"), "enter_exit_hooks", None)
        exits = found.get("cleanups")
        if not isinstance(entries, list) or not isinstance(exits, list):
            continue
        for entry in entries:
            known = getattr(entry, "__self__", None)
            if isinstance(known, Passage):
                return known
        passage = Passage()
        # For good: what was compiled stays so, and a later run may use it again. Its entry comes
        # first and its exit last: a stop that is raised there leaves no setting of PyTorch behind.
        entries.insert(0, passage.enter)
        entries.append(passage.entered)
        exits.append(passage.leave)  # of the call under way
        return passage
    return None


def _is_inside_another() -> bool:
    """Whether the traced step is part of another optimizer's step (a wrapper, SAM, ZeRO)."""
    code = home.Optimizer.profile_hook_step(_board).__code__
    traced = {
        id(tracer): tracer.f_code
        for frame in _frames("torch._dynamo.symbolic_convert")
        if hasattr(tracer := frame.f_locals.get("self"), "f_code")
    }
    running = sum(frame.f_code is code for frame in _frames(home.__name__))
    return running + sum(each is code for each in traced.values()) > 1


def _must_not_break() -> bool:
    """Whether the function that is traced has to stay one graph: a break would raise in it."""
    try:
        from torch._dynamo.symbolic_convert import InstructionTranslator

        tracing = InstructionTranslator.current_tx()
        return bool(tracing.one_graph or tracing.error_on_graph_break)
    except (ImportError, AttributeError):
        # Private, and not in every version: then our hooks break the graph, as they do anyway.
        return False


def _nothing() -> None:
    """What there is to do for an entry at the exit; see `Passage.entered`."""


def _board() -> Any:
    return home.__dict__.get("_it2nb_switchboard")


def _tell() -> None:
    attachment = _board().attachments.get(get_ident())
    if attachment is not None:
        attachment.session.warn(NOT_SEEN)
