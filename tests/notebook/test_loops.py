from __future__ import annotations

import ast
import asyncio
import pickle
from typing import Any

import pytest

from it2nb.notebook.loops import PROBE, Level, LoopProbe, Loops, probe, wrap


class Ran:
    """Runs code with wrapped loops on this thread, and keeps what the loops told."""

    def __init__(
        self, source: str, *, one_step_a_turn: bool = True, given: int | None = None, **space: Any
    ) -> None:
        self.turns: list[dict[str, Any]] = []
        self.totals: list[int] = []
        self.steps = 0
        self.space: dict[str, Any] = {"run": self, **space}
        tree, self.found = wrap(ast.parse(source))
        mine = LoopProbe()
        self.loops = Loops(
            lambda: self.steps, self._turn, self.totals.append,
            one_step_a_turn=one_step_a_turn, given=given,
        )  # fmt: skip
        self._counts = one_step_a_turn
        self.space[PROBE] = mine
        mine.enter(self.loops)
        code = compile(tree, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        try:
            result = eval(code, self.space)
            if result is not None:
                asyncio.run(result)
        finally:
            mine.leave()

    def step(self) -> None:
        """What an optimizer does."""
        self.steps += 1

    def _turn(self, level: Level) -> None:
        if self._counts:
            self.steps += 1
        self.turns.append({k: v for k, v in self.space.items() if isinstance(v, int)})


CONTROL_FLOW = """
out = []
for i in range(6):
    if i == 1:
        continue
    if i == {stop}:
        break
    out.append(i)
else:
    out.append("else")
after = i
"""


@pytest.mark.parametrize(("stop", "turns"), [(4, 5), (99, 6)])
def test_continue_break_and_else_keep_their_meaning(stop: int, turns: int) -> None:
    source = CONTROL_FLOW.format(stop=stop)
    plain: dict[str, Any] = {}
    exec(source, plain)
    ran = Ran(source)
    assert ran.space["out"] == plain["out"]
    assert ran.space["after"] == plain["after"]
    # The turn that `break` leaves has done its work: it is a turn too.
    assert len(ran.turns) == turns


@pytest.mark.parametrize(("stop", "turns"), [(4, 5), (99, 6)])
def test_the_same_for_while(stop: int, turns: int) -> None:
    source = f"""
out = []
i = -1
while (i := i + 1) < 6:
    if i == 1:
        continue
    if i == {stop}:
        break
    out.append(i)
else:
    out.append("else")
"""
    plain: dict[str, Any] = {}
    exec(source, plain)
    ran = Ran(source)
    assert ran.space["out"] == plain["out"]
    assert len(ran.turns) == turns


def test_a_turn_comes_after_its_body_and_before_the_next_item() -> None:
    order: list[Any] = []

    def items() -> Any:
        for n in range(2):
            order.append(f"item {n}")
            yield n

    class Noting(Ran):
        def _turn(self, level: Level) -> None:
            order.append("turn")

    Noting("for x in items():\n    order.append(f'body {x}')", items=items, order=order)
    assert order == ["item 0", "body 0", "turn", "item 1", "body 1", "turn"]


def test_only_the_outermost_loop_makes_turns() -> None:
    ran = Ran("for i in range(3):\n    for j in range(4):\n        pass\n    while j < 9: j += 1")
    assert ran.found == 1
    assert [turn["i"] for turn in ran.turns] == [0, 1, 2]


def test_loops_inside_if_with_and_try_are_found() -> None:
    ran = Ran(
        "import contextlib\n"
        "if True:\n    with contextlib.nullcontext():\n        try:\n"
        "            for i in range(2): pass\n"
        "        finally:\n            for k in range(3): pass\n"
    )
    assert ran.found == 2
    assert len(ran.turns) == 5


def test_without_a_loop_of_its_own_the_cell_s_functions_are_looked_at() -> None:
    ran = Ran(
        "def epoch():\n    for j in range(5):\n        pass\n"
        "def train():\n    for i in range(3):\n        epoch()\n        seen.append(i)\n"
        "    return seen\n"
        "train()",
        seen=[],
    )
    assert ran.space["seen"] == [0, 1, 2]
    # The loop of epoch() is inside of train()'s: no turns of its own.
    assert len(ran.turns) == 3
    assert ran.totals == [3]


def test_a_return_out_of_a_loop_leaves_the_next_one_outermost() -> None:
    ran = Ran(
        "def find():\n    for j in range(5):\n        return j\n"
        "def train():\n    for i in range(3):\n        pass\n"
        "find(); find(); train()"
    )
    assert len(ran.turns) == 3


def test_an_exception_out_of_inner_loops_keeps_count() -> None:
    ran = Ran(
        "for i in range(3):\n"
        "    try:\n"
        "        for j in range(5):\n"
        "            if j == 2: raise ValueError\n"
        "    except ValueError:\n"
        "        pass\n"
    )
    assert [turn["i"] for turn in ran.turns] == [0, 1, 2]
    assert ran.loops.stack == []


def test_length_is_known_through_enumerate_and_zip() -> None:
    assert Ran("for i, x in enumerate([1, 2, 3]): pass").totals == [3]
    assert Ran("for a, b in zip([1, 2], [3, 4]): pass").totals == [2]
    assert Ran("for x in iter([1, 2, 3]): pass").totals == []
    assert Ran("for x in range(4): pass\nfor x in range(5): pass").totals == [4, 9]


def test_steps_of_a_run_are_worked_out_from_the_first_turns() -> None:
    ran = Ran(
        "for epoch in range(10):\n    for batch in range(8):\n        run.step()",
        one_step_a_turn=False,
    )
    assert ran.totals == [80]
    accumulated = Ran(
        "for epoch in range(10):\n    for b in range(8):\n        if (b + 1) % 4 == 0: run.step()",
        one_step_a_turn=False,
    )
    assert accumulated.totals[-1] == 20


def test_going_back_in_a_later_epoch_makes_the_run_shorter_at_once() -> None:
    back = "        if run.steps == 90 and not gone: run.steps -= 30; gone.append(run.totals[-1])"
    look = "        if gone and run.steps == 62: gone.append(run.totals[-1])"
    inner = f"    for i in range(20):\n        run.step()\n{back}\n{look}"
    ran = Ran(f"for epoch in range(5):\n{inner}", one_step_a_turn=False, gone=[])
    assert ran.space["gone"] == [100, 70]
    assert ran.steps == ran.totals[-1] == 70


def test_a_run_that_goes_back_ends_as_much_earlier() -> None:
    back = "    if i == 250: run.steps -= 10"
    by_optimizer = Ran(f"for i in range(300):\n    run.step()\n{back}", one_step_a_turn=False)
    assert by_optimizer.steps == by_optimizer.totals[-1] == 290
    assert set(by_optimizer.totals) == {300, 290}
    by_turn = Ran(f"for i in range(300):\n    pass\n{back}")
    assert by_turn.steps == by_turn.totals[-1] == 290
    assert set(by_turn.totals) == {300, 290}


@pytest.mark.parametrize("by_turn", [False, True])
@pytest.mark.parametrize(
    "loop", ["for i in range(100):", "i = 0\nwhile i < 100:\n    i += 1"], ids=["for", "while"]
)
def test_a_given_number_of_steps_falls_with_those_that_the_loop_does_not_make_again(
    loop: str, by_turn: bool
) -> None:
    step = "pass" if by_turn else "run.step()"
    back = "    if run.steps == 80 and not gone: run.steps -= 50; gone.append(run.steps)"
    ran = Ran(f"{loop}\n    {step}\n{back}", one_step_a_turn=by_turn, given=100, gone=[])
    assert ran.totals == [ran.steps] == [50]


def test_a_given_number_of_steps_stands_where_the_loop_goes_by_the_steps() -> None:
    back = "    if run.steps == 80 and not gone: run.steps -= 50; gone.append(1)"
    loop = f"while run.steps < 100:\n    run.step()\n{back}"
    ran = Ran(loop, one_step_a_turn=False, given=100, gone=[])
    assert ran.steps == 100
    assert ran.totals == [50, 100]


@pytest.mark.parametrize("given", [50, 300])
def test_a_given_number_of_steps_stands_beside_what_the_loop_has(given: int) -> None:
    assert Ran("for i in range(100): pass", given=given).totals == []


WINDING = """
class Winding:
    \"\"\"A loop that takes its turns back with the run's steps, as session.loop does.\"\"\"
    def __init__(self, length): self.length, self.at = length, 0
    def __len__(self): return self.length
    def it2_turns_left(self): return self.length - self.at
    def __iter__(self):
        self.at = 0
        while self.at < self.length:
            self.at += 1
            yield self.at

def back(loop, at, by, once=[]):
    if loop.at == at and at not in once:
        once.append(at)
        loop.at -= by
        run.steps -= by
"""


@pytest.mark.parametrize("loop", ["loop", "enumerate(loop)"])
@pytest.mark.parametrize("by_turn", [False, True])
def test_a_loop_that_takes_its_turns_back_ends_where_it_would_have(
    loop: str, by_turn: bool
) -> None:
    step = "pass" if by_turn else "run.step()"
    body = f"loop = Winding(60)\nfor _ in {loop}:\n    {step}\n    back(loop, 40, 8)"
    ran = Ran(f"{WINDING}\n{body}", one_step_a_turn=by_turn)
    # The hook of a turn counts it after its body has gone back.
    assert ran.steps == ran.totals[-1] == 60
    assert set(ran.totals) == {60}
    given = Ran(f"{WINDING}\n{body}", one_step_a_turn=by_turn, given=60)
    assert (given.steps, given.totals) == (60, [])


def test_epochs_over_a_loop_that_takes_its_turns_back_are_as_long_as_before() -> None:
    ran = Ran(
        f"{WINDING}\nloop = Winding(20)\nfor epoch in range(3):\n"
        "    for _ in loop:\n        run.step()\n        back(loop, 12, 7)\n",
        one_step_a_turn=False,
    )
    assert ran.steps == 60
    assert set(ran.totals) == {60}


def test_a_validation_loop_does_not_mislead_the_estimate() -> None:
    ran = Ran(
        "for epoch in range(10):\n"
        "    for batch in range(8): run.step()\n"
        "    for batch in range(3): pass\n",
        one_step_a_turn=False,
    )
    assert set(ran.totals) == {80}


def test_a_length_that_raises_is_no_length() -> None:
    class Stream:
        def __len__(self) -> int:
            raise TypeError("no length")

        def __iter__(self) -> Any:
            return iter([1, 2])

    assert Ran("for x in stream: pass", stream=Stream()).totals == []


def test_items_are_not_held() -> None:
    import weakref

    class Item:
        pass

    ran = Ran(
        "for item in (Item() for _ in range(3)):\n"
        "    ref = weakref.ref(item)\n    del item\n    alive.append(ref() is not None)",
        Item=Item,
        weakref=weakref,
        alive=[],
    )
    assert ran.space["alive"] == [False, False, False]


def test_async_for_and_await() -> None:
    ran = Ran(
        "async def items():\n    for n in range(3):\n        yield n\n"
        "out = []\n"
        "async for x in items():\n    out.append(x)\n"
    )
    assert ran.space["out"] == [0, 1, 2]
    assert len(ran.turns) == 3


def test_other_threads_and_later_calls_see_plain_loops() -> None:
    ran = Ran("def f():\n    for x in range(3): pass\n    return type(x)\nf()")
    turns = len(ran.turns)
    assert ran.space["f"]() is int
    assert len(ran.turns) == turns == 3


def test_comprehensions_and_lambdas_stay_as_they_are() -> None:
    ran = Ran("a = [x for x in range(3)]\nb = (lambda n: [y for y in range(n)])(2)")
    assert ran.found == 0
    assert (ran.space["a"], ran.space["b"]) == ([0, 1, 2], [0, 1])


def test_what_is_not_iterable_raises_as_ever() -> None:
    with pytest.raises(TypeError, match="'int' object is not iterable"):
        Ran("for x in 5: pass")


def test_decorated_functions_are_left_alone() -> None:
    ran = Ran("def deco(f): return f\n@deco\ndef f():\n    for x in range(3): pass\nf()")
    assert (ran.found, ran.turns) == (0, [])


def test_a_function_of_a_cell_can_go_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(probe)) is probe
