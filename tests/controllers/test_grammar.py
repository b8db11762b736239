"""The text of rules: what is read, and what a wrong one is told."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from it2nb.controllers.conditions import (
    All,
    At,
    Compare,
    Crosses,
    Every,
    NoImprovement,
    NotFinite,
)
from it2nb.controllers.grammar import parse, parse_condition
from it2nb.controllers.rule_words import RuleError
from it2nb.controllers.rules import Rule, at, every, when


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("at 1000: lr = 1e-4", at(1000).set("lr", 1e-4)),
        ("at step 1_000: set lr to 1e-4", at(1000).set("lr", 1e-4)),
        ("after 10 steps: lr to 0", at(10).set("lr", 0)),
        ("every 500: lr x 0.5", every(500).multiply("lr", 0.5)),
        ("every 500 steps: lr*0.5", every(500).multiply("lr", 0.5)),
        ("every 500: halve lr", every(500).multiply("lr", 0.5)),
        ("every 500: lr / 4", every(500).multiply("lr", 0.25)),
        ("every 500: multiply lr by 2 then divide wd by 2",
         every(500).multiply("lr", 2).multiply("wd", 0.5)),
        ("every 500: lr[0] + 0.1", every(500).add("lr[0]", 0.1)),
        ("every 500: opt_g.lr - 0.1", every(500).add("opt_g.lr", -0.1)),
        ("every 5: mode = cosine", every(5).set("mode", "cosine")),
        ("every 5: use_ema = true", every(5).set("use_ema", True)),
        ('every 5: "my knob" = "a b"', every(5).set("my knob", "a b")),
        ("no improvement of val_loss by 1 % in 300 steps: lr x 0.5, at most 3 times, cooldown 200",
         Rule(NoImprovement("val_loss", 0.01, 300)).multiply("lr", 0.5).at_most(3).cooldown(200)),
        ("No improvement of val/acc by 0.5 percent within 30: stop",
         Rule(NoImprovement("val/acc", 0.005, 30)).stop()),
        ("no decrease of energy by 2 in 30 steps: stop",
         Rule(NoImprovement("energy", 2, 30, "min", is_share=False)).stop()),
        ("loss > 5 for 20 steps: pause", when(Compare("loss", ">", 5, 20)).pause()),
        ("loss is below -0.5: evaluate", when(Compare("loss", "<", -0.5)).evaluate()),
        ("loss crosses above 5: undo, once", when(Crosses("loss", True, 5)).undo().once()),
        ("loss rises above 5: undo, twice", when(Crosses("loss", True, 5)).undo().at_most(2)),
        ("loss is nan: stop", when(NotFinite("loss")).stop()),
        ("loss is not finite: stop", when(NotFinite("loss")).stop()),
        ("nan: note \"it's over\" then stop", when(NotFinite()).note("it's over").stop()),
        ("nan in loss then stop", when(NotFinite("loss")).stop()),
        ("at 5: save", at(5).save()),
        ("at 5: save best then evaluate", at(5).save("best").evaluate()),
        ("at 5: do goto step=3 exact=true", at(5).do("goto", step=3, exact=True)),
        ("every 10: evaluate, from step 100, until step 900",
         every(10).evaluate().between(100, 900)),
        ("loss > 5 and every 10: pause",
         Rule(All((Compare("loss", ">", 5), Every(10)))).pause()),
        ("at 5: save x then stop", at(5).save("x").stop()),
        ("at 5: stop = 2 then save x 2", at(5).set("stop", 2).multiply("save", 2)),
        ("at 5: x x 2", at(5).multiply("x", 2)),
        ("when loss > 5: pause", when("loss > 5").pause()),
        ("If loss > 5 then pause", when("loss > 5").pause()),
        ("when nan: stop", when("nan").stop()),
        ("loss > 5: then pause", when("loss > 5").pause()),
        ("if > 3 and when is nan: stop",
         Rule(All((Compare("if", ">", 3), NotFinite("when")))).stop()),
    ],
)  # fmt: skip
def test_texts_are_read(text: str, wanted: Rule) -> None:
    assert parse(text) == wanted


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("", 0, "not an empty one"),
        ("loss > 5", 8, "a ':' and what to ask for should stand here, but the rule ends"),
        ("loss >> 5: pause", 6, "a number should stand here, not '>'"),
        ("loss > five: pause", 7, "a number should stand here, not 'five'"),
        ("loss > 5: paus", 10, "did you mean 'pause'?"),
        ("loss abve 5: pause", 5, "did you mean 'above' or 'over'?"),
        ("no improvment of loss in 3: stop", 3, "did you mean 'improvement'?"),
        ("no improvement of energy in 3 steps: stop", 3, "is a smaller or a larger 'energy'"),
        ("at 1.5: stop", 3, "has to be a whole number"),
        ("every 0: stop", 6, "has to be a whole number from 1"),
        ("at 5: lr", 8, "how lr should change has to stand here"),
        ("at 5: lr / 0", 11, "nothing can be divided by 0"),
        ("at 5: note hello", 11, "the text in quotes should stand here"),
        ("at 5: note 'hello", 11, "the quote is not closed"),
        ("at 5: stop, at most 3 tmes", 22, "the rule should end here, not 'tmes'"),
        ("at 5: stop, cooldwn 3", 12, "did you mean 'cooldown'?"),
        ("at 5: stop $", 11, "no rule has this"),
        ("at 5: __import__('os')", 16, "no rule has this"),
        ("loss falls above 3: stop", 11, "falls below is meant"),
        ("at 5: lr = 1e999", 11, "the number is too large"),
        ("at 5: lr x 1e-400", 11, "so small that it reads as 0"),
        ("at 5: lr x 1" + "0" * 400, 11, "the number is too large"),
        ("at 5: stop" + " " * 2000, 0, "at most 2000"),
        ("at 10 and at 20: stop", 10, "no step is two steps at once: write two rules"),
        ("loss > 5 or acc < 1: stop", 9, 'there is no "or" in a rule: write two rules'),
        ("if loss > 5 or nan then stop", 12, 'there is no "or" in a rule: write two rules'),
        ("loss > 5: pause or stop", 16, 'there is no "or" in a rule: write two rules'),
        ("or loss > 5: pause", 0, "write two rules"),
        ("when loss abve 5: pause", 10, "did you mean 'above'"),
        ("val loss > 5: pause", 0, 'stands in quotes: "val loss"'),
        ("loss > 1 and wen acc < 5: pause", 13, "did you mean 'when'"),
        ("evry 100: save", 0, "did you mean 'every'"),
        ("loss 5: pause", 5, "a comparison should stand here"),
        ("loss plateaus for 9 steps: pause", 5, "a comparison should stand here"),
        ("no improvement of loss by -1 in 3: stop", 26, "can't be below 0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_marked(text: str, column: int, said: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse(text)
    assert said in str(caught.value)
    assert caught.value.column == column
    if "\n" in str(caught.value):
        shown, mark = str(caught.value).splitlines()[-2:]
        place = mark.index("^")
        assert (shown + " ")[place] == (text + " ")[column]


def test_a_condition_alone() -> None:
    assert parse_condition("loss > 5") == Compare("loss", ">", 5)
    assert parse_condition("at 3") == At(3)
    with pytest.raises(RuleError, match="should end here"):
        parse_condition("at 3: stop")


names = st.sampled_from(
    ["lr", "loss", "val_loss", "nan", "at", "my knob", 'a"b\\', "x", "lr[0]", "if", "or"]
)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32).map(float)
counts = st.integers(1, 10**6)
conditions = st.one_of(
    counts.map(At),
    counts.map(Every),
    st.builds(Compare, names, st.sampled_from([">", "<", ">=", "<="]), numbers, counts),
    st.builds(Crosses, names, st.booleans(), numbers),
    st.builds(NotFinite, st.none() | names),
    st.builds(
        NoImprovement,
        names,
        st.sampled_from([0.0, 0.5, 2.0]),
        counts,
        st.sampled_from(["min", "max"]),
        st.booleans(),
    ),
)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    made = Rule(draw(conditions))
    for _ in range(draw(st.integers(1, 3))):
        name, number = draw(names), draw(numbers)
        value = draw(st.one_of(numbers, st.booleans(), st.integers(-9, 9), st.text(max_size=9)))
        made = draw(
            st.sampled_from(
                [made.set(name, value), made.multiply(name, number), made.add(name, number),
                 made.stop(), made.save("tag"), made.note(name), made.do("goto", step=3)]
            )
        )  # fmt: skip
    if draw(st.booleans()):
        made = made.at_most(draw(counts)).cooldown(draw(counts)).between(1, draw(counts))
    return made


@settings(max_examples=50)
@given(rules())
def test_a_rules_text_is_read_as_the_same_rule(made: Rule) -> None:
    again = parse(made.text)
    assert again.text == made.text
    assert again.condition == made.condition
    assert (again.most, again.rest, again.start, again.end) == (
        made.most,
        made.rest,
        made.start,
        made.end,
    )
    assert again.actions == made.actions


@settings(max_examples=50)
@given(st.text(max_size=40))
def test_no_text_does_anything_but_raise_a_rule_error(text: str) -> None:
    try:
        parse(text)
    except RuleError as err:
        assert str(err)


words = st.sampled_from(
    ["at", "every", "loss", ">", "5", ":", "lr", "x", "0.5", "then", ",", "once", "no", "of", "in",
     "improvement", "nan", "is", "stop", "'", "for", "steps", "%", "-", "and", "1e9", "note", "do"]
)  # fmt: skip


@settings(max_examples=50)
@given(st.lists(words, max_size=14).map(" ".join))
def test_no_salad_of_its_words_does_either(text: str) -> None:
    try:
        assert isinstance(parse(text), Rule)
    except RuleError as err:
        assert str(err)
