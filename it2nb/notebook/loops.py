"""The loops of a cell: a turn of the outermost one as a control point, and how far it is.

The iterable of a loop (or its condition, for ``while``) is wrapped in the syntax tree, so that
``continue``, ``break`` and ``else`` keep their meaning and the loop's body stays untouched.
"""

from __future__ import annotations

import ast
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from types import MethodType
from typing import Any, Literal

from it2nb.notebook.total import Total

#: The one name that wrapped code looks up: a dunder, hidden from %who.
PROBE = "__it2_loop__"

#: ``outer``: the cell's own outermost loop; ``inner``: inside of another one; ``maybe``: the
#: outermost loop of a function, which is an inner one where another loop called the function.
Rank = Literal["outer", "maybe", "inner"]


class LoopProbe:
    """What wrapped loops call. Does nothing in a thread that is not a run's training thread."""

    def __init__(self) -> None:
        self._by_thread: dict[int, Loops] = {}

    def __reduce__(self) -> str:
        # A function that goes to another process takes its globals along: there, the one of
        # that process stands in.
        return "probe"

    def enter(self, loops: Loops) -> None:
        """The calling thread runs loops of this run from now on."""
        self._by_thread[threading.get_ident()] = loops

    def leave(self) -> None:
        """The calling thread's run is over."""
        self._by_thread.pop(threading.get_ident(), None)

    def _loops(self) -> Loops | None:
        return self._by_thread.get(threading.get_ident())

    def sized(self, value: Any) -> Any:
        """Remember the length of what an ``enumerate`` or ``zip`` hides; returns it as it is."""
        loops = self._loops()
        if loops is not None:
            loops.hint = value
        return value

    def each(self, rank: Rank, iterable: Any) -> Any:
        """Stand in for the iterable of a ``for``."""
        loops = self._loops()
        return iterable if loops is None else Turns(loops, iterable, rank)

    def aeach(self, rank: Rank, iterable: Any) -> Any:
        """Stand in for the iterable of an ``async for``."""
        loops = self._loops()
        return iterable if loops is None else AsyncTurns(loops, iterable, rank)

    def turn(self, rank: Rank, key: int) -> bool:
        """Stand before the condition of a ``while``; always true."""
        loops = self._loops()
        if loops is not None:
            loops.while_turn(rank, key)
        return True

    def through(self) -> None:
        """A ``while`` ended by its condition."""
        loops = self._loops()
        if loops is not None and loops.stack:
            loops.stack[-1].in_turn = False

    def left(self) -> None:
        """A loop is over; when a ``break`` ended it, its last turn counts too."""
        loops = self._loops()
        if loops is not None:
            loops.left()


class Level:
    """One loop under way: turns done, its length where it is known."""

    __slots__ = (
        "_left", "_turns", "done", "in_turn", "key", "length", "outermost", "steps_before", "taken"
    )  # fmt: skip

    def __init__(
        self,
        length: int | None,
        outermost: bool,
        steps: int,
        key: int,
        turns: Any,
        left: Callable[[], int | None] | None = None,
    ) -> None:
        self.length = length
        self.outermost = outermost
        self.key = key
        self.done = 0
        self.in_turn = False
        self.steps_before = steps
        #: Steps that were taken in it; going back takes them away where it takes turns away too.
        self.taken = 0
        self._turns = None if turns is None else weakref.ref(turns)
        # Of an iterable whose turns are taken back with the run's steps; not kept alive by this.
        self._left = weakref.WeakMethod(left) if isinstance(left, MethodType) else None

    @property
    def left(self) -> int | None:
        """Turns that are to come; None where that is not known."""
        tell = None if self._left is None else self._left()
        told = None if tell is None else tell()
        if told is not None or self.length is None:
            return told
        return max(0, self.length - self.done)

    @property
    def kept(self) -> int:
        """Turns that are done and were not taken back."""
        left = self.left if self.winds_back else None
        return self.done if left is None or self.length is None else max(0, self.length - left)

    @property
    def winds_back(self) -> bool:
        """Whether going back takes its turns back too."""
        return self._left is not None

    @property
    def lives(self) -> bool:
        """Whether the loop may still be under way; a ``return`` leaves without a word."""
        return self._turns is None or self._turns() is not None


class Loops:
    """The loops of one run. Training thread only.

    Parameters
    ----------
    steps : callable
        Returns the steps that the run has done.
    on_turn : callable
        Called with the level after each turn of the outermost loop: a control point.
    on_total : callable
        Called with the expected number of steps of the run when that changes.
    one_step_a_turn : bool
        Whether a turn of the outermost loop is a step.
    given : int, optional
        The number of steps that the user expects.
    """

    def __init__(
        self,
        steps: Callable[[], int],
        on_turn: Callable[[Level], None],
        on_total: Callable[[int], None],
        *,
        one_step_a_turn: bool,
        given: int | None = None,
    ) -> None:
        self.stack: list[Level] = []
        #: What an ``enumerate`` or ``zip`` hides, until its loop begins.
        self.hint: Any = None
        self._steps = steps
        self._on_turn = on_turn
        self._one_step_a_turn = one_step_a_turn
        self._total = Total(on_total, given)
        self._seen = 0

    def open(
        self,
        rank: Rank,
        length: int | None,
        key: int = -1,
        turns: Any = None,
        left: Callable[[], int | None] | None = None,
    ) -> Level:
        """A loop begins."""
        self.stack = [] if rank == "outer" else [each for each in self.stack if each.lives]
        self._count()
        outermost = rank == "outer" or (rank == "maybe" and not self.stack)
        level = Level(length, outermost, self._steps(), key, turns, left)
        self.stack.append(level)
        if outermost and self._one_step_a_turn and length is not None:
            self._total.estimate(level.steps_before + length)
        return level

    def begin_turn(self, level: Level) -> None:
        """The body runs from here."""
        level.in_turn = True

    def end_turn(self, level: Level) -> None:
        """The body is through, by its end or by ``continue`` or ``break``."""
        level.in_turn = False
        # An exception that the outer body caught leaves inner loops behind.
        while self.stack and self.stack[-1] is not level:
            self.stack.pop()
        if not self.stack:
            self.stack.append(level)
        level.done += 1
        if level.outermost:
            self._on_turn(level)
        self._estimate(level)

    def while_turn(self, rank: Rank, key: int) -> None:
        """A ``while`` is about to look at its condition."""
        level = self.stack[-1] if self.stack else None
        if level is None or level.key != key:
            level = next((each for each in self.stack if each.key == key), None)
        if level is None:
            level = self.open(rank, None, key)
        else:
            self.end_turn(level)
        self.begin_turn(level)

    def left(self) -> None:
        """The innermost loop is over."""
        if not self.stack:
            return
        level = self.stack[-1]
        if level.in_turn:
            self.end_turn(level)
        if self.stack and self.stack[-1] is level:
            self.stack.pop()

    def _count(self) -> int:
        """Count the steps since the last look; returns how many the run has done."""
        now = self._steps()
        if now != self._seen:
            taken = now - self._seen
            if taken < 0 and self.stack and not any(level.winds_back for level in self.stack):
                # The loop goes on where it is: it has no turns for what was taken back, less the
                # steps of the turn that went back, about as many as in the others.
                inner = self.stack[-1]
                made = max(1, round(inner.taken / inner.done)) if inner.done else 1
                self._total.lose(made - taken, now)
                taken = made
            for level in self.stack:
                level.taken = max(0, level.taken + taken)
            self._seen = now
            self._total.reach(now)
        return now

    def _estimate(self, level: Level) -> None:
        """Work out the length of the run: the steps so far, and the turns that are to come."""
        now = self._count()
        outer = self.stack[0]
        left = outer.left
        if left is None or not outer.outermost:
            return
        if level is outer:
            # Whole turns are the best measure: they hold every inner loop.
            if self._one_step_a_turn:
                self._total.estimate(now + left)
            elif outer.taken and outer.kept:
                self._total.estimate(now + round(outer.taken / outer.kept * left))
            return
        inner = level.left
        if self._one_step_a_turn or outer.done or len(self.stack) != 2 or inner is None:
            return
        if outer.taken and outer.taken == level.taken and level.kept:
            a_turn = level.taken / level.kept * (level.kept + inner)
            self._total.estimate(now + round(a_turn * left - level.taken))


class Turns:
    """Stands in for a ``for`` loop's iterable and holds none of its items."""

    __slots__ = ("__weakref__", "_iterator", "_level", "_loops")

    def __init__(self, loops: Loops, iterable: Any, rank: Rank) -> None:
        sized = iterable if _length(iterable) is not None else loops.hint
        loops.hint = None
        self._loops = loops
        self._iterator: Iterator[Any] = iter(iterable)
        self._level = loops.open(
            rank, _length(sized), turns=self, left=getattr(sized, "it2_turns_left", None)
        )

    def __iter__(self) -> Turns:
        return self

    def __next__(self) -> Any:
        level = self._level
        if level.in_turn:
            self._loops.end_turn(level)
        item = next(self._iterator)
        self._loops.begin_turn(level)
        return item


class AsyncTurns:
    """The same for ``async for``."""

    __slots__ = ("__weakref__", "_iterator", "_level", "_loops")

    def __init__(self, loops: Loops, iterable: Any, rank: Rank) -> None:
        self._loops = loops
        self._iterator: AsyncIterator[Any] = aiter(iterable)
        self._level = loops.open(rank, _length(iterable), turns=self)

    def __aiter__(self) -> AsyncTurns:
        return self

    async def __anext__(self) -> Any:
        level = self._level
        if level.in_turn:
            self._loops.end_turn(level)
        item = await anext(self._iterator)
        self._loops.begin_turn(level)
        return item


def _length(value: Any) -> int | None:
    """Return ``len(value)``, None where it has none or can't tell."""
    if not hasattr(type(value), "__len__"):
        return None
    try:
        return len(value)
    # A DataLoader over an IterableDataset has __len__ and raises TypeError in it.
    except (TypeError, NotImplementedError, ValueError, AttributeError, OverflowError):
        return None


class _Wrapper(ast.NodeTransformer):
    """Wraps loops that are not inside functions, or only those inside the cell's functions."""

    def __init__(self, *, in_functions: bool) -> None:
        self.found = 0
        self._in_functions = in_functions
        self._depth = 0
        self._function = 0

    def _visit_function(self, node: ast.AST) -> ast.AST:
        if not self._in_functions or getattr(node, "decorator_list", None):
            return node
        depth, self._depth = self._depth, 0
        self._function += 1
        self.generic_visit(node)
        self._function -= 1
        self._depth = depth
        return node

    visit_FunctionDef = _visit_function
    visit_AsyncFunctionDef = _visit_function

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._visit_function(node)

    def _wanted(self) -> bool:
        return bool(self._function) is self._in_functions

    def _visit_for(self, node: ast.For | ast.AsyncFor) -> ast.AST | list[ast.stmt]:
        if not self._wanted():
            return self.generic_visit(node)
        rank = self._rank()
        self._inside(node)
        method = "aeach" if isinstance(node, ast.AsyncFor) else "each"
        iterable = _show_length(node.iter)
        node.iter = _call(method, node.iter, ast.Constant(rank), iterable)
        return [node, _statement("left", node)]

    visit_For = _visit_for
    visit_AsyncFor = _visit_for

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.stmt]:
        if not self._wanted():
            return self.generic_visit(node)
        rank = self._rank()
        self._inside(node)
        # The place names the loop from turn to turn.
        key = node.lineno * 1000 + node.col_offset
        turn = _call("turn", node.test, ast.Constant(rank), ast.Constant(key))
        test = ast.BoolOp(ast.And(), [turn, node.test])
        node.test = ast.copy_location(test, node.test)
        node.orelse = [_statement("through", node), *node.orelse]
        return [node, _statement("left", node)]

    def _rank(self) -> Rank:
        if self._depth:
            return "inner"
        self.found += 1
        return "maybe" if self._in_functions else "outer"

    def _inside(self, node: ast.AST) -> None:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1


def wrap(tree: ast.Module, *, in_functions: bool = True) -> tuple[ast.Module, int]:
    """Wrap the loops of a cell, in place.

    Parameters
    ----------
    tree : ast.Module
    in_functions : bool
        Whether to wrap those of its functions when it has no other. Decorated functions are
        left alone: a compiler may read them.

    Returns
    -------
    ast.Module
    int
        How many outermost loops there are.
    """
    wrapper = _Wrapper(in_functions=False)
    tree = wrapper.visit(tree)
    if not wrapper.found and in_functions:
        wrapper = _Wrapper(in_functions=True)
        tree = wrapper.visit(tree)
    return ast.fix_missing_locations(tree), wrapper.found


def _show_length(node: ast.expr) -> ast.expr:
    """``enumerate(x)`` and ``zip(x, y)`` have no length, but their first argument may."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("enumerate", "zip")
        and node.args
        and not isinstance(node.args[0], ast.Starred)
    ):
        node.args[0] = _call("sized", node.args[0], node.args[0])
    return node


def _call(method: str, where: ast.expr, *args: ast.expr) -> ast.expr:
    probe = ast.Attribute(ast.Name(PROBE, ast.Load()), method, ast.Load())
    call = ast.Call(probe, list(args), [])
    return ast.fix_missing_locations(ast.copy_location(call, where))


def _statement(method: str, where: ast.stmt) -> ast.stmt:
    probe = ast.Attribute(ast.Name(PROBE, ast.Load()), method, ast.Load())
    statement = ast.Expr(ast.Call(probe, [], []))
    return ast.fix_missing_locations(ast.copy_location(statement, where))


#: Shared by all runs of this process.
probe = LoopProbe()
