"""Countdown: expressions are worked out exactly, puzzles have solutions, answers are judged."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from it2nb.workflows.expressions import BadExpression, work_out
from it2nb.workflows.puzzles import LARGEST_TARGET, LEVELS, Puzzle, make, several, verify

PUZZLE = Puzzle(3, (3, 5, 2), 6, "3+5-2")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7), ("2+3*4", 14), ("(2+3)*4", 20), ("9-4-3", 2), ("8/4/2", 1), ("8/(4/2)", 4),
        ("1/3", Fraction(1, 3)), ("((5))", 5), ("2-3", -1), ("007", 7),
    ],
)  # fmt: skip
def test_expressions_are_worked_out_exactly(text: str, value: Fraction | int) -> None:
    assert work_out(text).value == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a number is missing at 0"), ("2+", "a number is missing at 2"),
        ("2 + 3", "' ' at 1 is out of place"), ("(2", "a ')' is missing"), ("2)", "out of place"),
        ("-2", "a number is missing at 0"), ("1/(2-2)", "division by zero"), ("2**3", "missing"),
        ("__import__('os')", "a number is missing"), ("²", "missing"),
        ("1" * 201, "201 characters"),
    ],
)  # fmt: skip
def test_what_is_no_expression_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(BadExpression) as caught:
        work_out(text)
    assert said in str(caught.value)


@given(st.text("0123456789+-*/() a", max_size=30))
def test_no_text_does_anything_but_have_a_value_or_be_refused(text: str) -> None:
    try:
        worked = work_out(text)
    except BadExpression:
        return
    # Python agrees, where it takes the text at all (it takes no 007).
    try:
        theirs = eval(compile(text, "", "eval"), {"__builtins__": {}})
    except (SyntaxError, OverflowError):
        return
    assert float(worked.value) == pytest.approx(theirs, rel=1e-9, abs=1e-9)


def test_deep_brackets_end_in_a_value_too() -> None:
    assert work_out("(" * 99 + "1" + ")" * 99).value == 1


@pytest.mark.parametrize("level", range(1, len(LEVELS) + 1))
def test_puzzles_of_every_level_are_solved_by_their_solution(level: int) -> None:
    count, operations = LEVELS[level - 1]
    for puzzle in several(level, 100, random.Random(level)):
        assert verify(puzzle, puzzle.solution).verdict == "right", puzzle
        assert len(puzzle.numbers) == count
        assert 1 <= puzzle.target <= LARGEST_TARGET
        assert set(puzzle.solution) - set("0123456789()") <= set(operations)
        assert not puzzle.is_held_out


def test_the_same_stream_makes_the_same_puzzles_and_held_out_ones_are_others() -> None:
    draw = [random.Random(5), random.Random(5)]
    assert [make(6, draw[0]) for _ in range(20)] == [make(6, draw[1]) for _ in range(20)]
    held_out = several(3, 20, random.Random(0), held_out=True)
    trained = {each.prompt for each in several(3, 500, random.Random(0))}
    assert not trained & {each.prompt for each in held_out}


@pytest.mark.parametrize(
    ("answer", "verdict", "reward"),
    [
        ("3+5-2", "right", 1.0), ("5-2+3", "right", 1.0), ("3+5+2", "wrong", 0.1),
        ("3+3", "numbers", 0.0), ("3+5-2-2", "numbers", 0.0), ("8-2", "numbers", 0.0),
        ("3+5-", "text", 0.0), ("six", "text", 0.0),
    ],
)  # fmt: skip
def test_answers_are_judged(answer: str, verdict: str, reward: float) -> None:
    checked = verify(PUZZLE, answer)
    assert (checked.verdict, checked.reward) == (verdict, reward)


def test_a_prompt_is_of_one_width_for_its_level() -> None:
    assert PUZZLE.prompt == "3 5 2=06:"
    assert len({len(each.prompt) for each in several(5, 50, random.Random(1))}) == 1
