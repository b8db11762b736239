from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from it2nb.notebook.commands import CellOptions, Command, parse_cell, parse_line
from it2nb.notebook.options import CELL_OPTIONS, VERBS, KnobSpec, Watch, usage
from it2nb.notebook.words import CommandError, expanded, literal, split


def test_no_options_are_the_defaults() -> None:
    assert parse_cell("") == CellOptions()


def test_every_option_is_understood() -> None:
    options = parse_cell(
        "--watch loss,acc --knob clip=0.1:10:log --evaluate fn --session s --steps 1_000 "
        "--at loop --name 'digits, again' --seed 7 --goal val_loss --dir runs --wait "
        "--no-panel --no-heartbeat --steps-of opt_g --no-snapshots --modules"
    )
    assert options == CellOptions(
        watch=(Watch("loss", "loss"), Watch("acc", "acc")),
        knobs=(KnobSpec("clip", 0.1, 10, "log"),),
        evaluate="fn",
        session="s",
        steps=1000,
        at="loop",
        title="digits, again",
        wait=True,
        seed=7,
        panel=False,
        heartbeat=False,
        steps_of="opt_g",
        snapshots=False,
        modules=True,
        directory="runs",
        goal="val_loss",
    )


@pytest.mark.parametrize("quote", ["'", '"'])
def test_any_value_may_stand_in_quotes(quote: str) -> None:
    def quoted(text: str) -> str:
        return f"{quote}{text}{quote}"

    given = parse_cell(
        f"--knob {quoted('clip=0.1:10:log')} --steps {quoted('5')} --at {quoted('loop')} "
        f"--evaluate {quoted('fn')} --session {quoted('s')} --watch {quoted('loss,acc')}"
    )
    plain = "--knob clip=0.1:10:log --steps 5 --at loop --evaluate fn --session s --watch loss,acc"
    assert given == parse_cell(plain)


def test_an_item_by_a_text_keeps_its_own_quotes() -> None:
    for line in ("--knob cfg['k']=0:1", "--knob \"cfg['k']=0:1\""):
        assert parse_cell(line).knobs == (KnobSpec("cfg['k']", 0, 1),)


def test_watch_takes_expressions_with_commas_quotes_and_blanks_inside() -> None:
    options = parse_cell("--watch \"loss,lr=opt.param_groups[0]['lr']\" --watch m=max(a, b)")
    assert [each.expression for each in options.watch] == [
        "loss",
        "opt.param_groups[0]['lr']",
        "max(a, b)",
    ]
    assert [each.name for each in options.watch] == ["loss", "lr", "m"]


def test_watch_keeps_a_comparison_whole() -> None:
    assert parse_cell("--watch a==b").watch == (Watch("a==b", "a==b"),)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("clip=0.1:10", KnobSpec("clip", 0.1, 10)),
        ("clip=1e-6:1:log", KnobSpec("clip", 1e-6, 1, "log")),
        ("k=1:64", KnobSpec("k", 1, 64)),
        ("k=1:", KnobSpec("k", 1, None)),
        ("k=:64", KnobSpec("k", None, 64)),
        ("on", KnobSpec("on")),
        ("mode=a|b|3", KnobSpec("mode", choices=("a", "b", 3))),
        ("cfg.clip=0:1", KnobSpec("cfg.clip", 0, 1)),
        ("cfg['clip']=0:1", KnobSpec("cfg['clip']", 0, 1)),
    ],
)
def test_knob_specs(text: str, spec: KnobSpec) -> None:
    assert parse_cell(f"--knob {text}").knobs == (spec,)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--wach loss", "no option --wach; did you mean 'watch'"),
        ("--watch", "--watch needs a value: --watch NAME[,NAME...]"),
        ("--watch --wait", "--watch needs a value"),
        ("--watch a,", None),
        ("--watch a+", "is no Python expression"),
        ("--watch a,a", "names 'a' twice"),
        ("--knob clip=10:0.1", "10 is above 0.1"),
        ("--knob clip=a:b", "'a' is no number"),
        ("--knob clip=1", "has to be lo:hi"),
        ("--knob clip=nan:1", "'nan' is no number"),
        ("--knob f()=0:1", "can't be assigned to"),
        ("--steps 1.5", "--steps: '1.5' is no whole number"),
        ("--steps 0", "at least 1"),
        ("--at every", "has to be optimizer, loop, session or auto"),
        ("--wait --no-wait", "contradicts"),
        ("--steps 1 --steps 2", "given twice"),
        ("--wait=yes", "takes no value"),
        ("--session a.b", "the name of a variable"),
        ("--seed -1", "at least 0"),
        ("--seed 99999999999", "too large"),
        ("loss", "did you mean --watch loss?"),
        ("--watch 'loss", "is missing in"),
        ("--watch f(x", "')' is missing"),
    ],
)
def test_wrong_options_are_named_with_the_remedy(line: str, said: str | None) -> None:
    if said is None:
        assert parse_cell(line).watch == (Watch("a", "a"),)
        return
    with pytest.raises(CommandError) as caught:
        parse_cell(line)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("", Command("status")),
        ("set lr 3e-4", Command("set", ("lr",), {"value": 3e-4})),
        ("set lr=3e-4", Command("set", ("lr",), {"value": 3e-4})),
        ("set lr --mode release", Command("set", ("lr",), {}, {"mode": "release"})),
        ("set lr[0] 1e-3 --mode hold", Command("set", ("lr[0]",), {"value": 1e-3},
                                               {"mode": "hold"})),
        ("set nesterov true", Command("set", ("nesterov",), {"value": True})),
        ("set betas (0.9, 0.99)", Command("set", ("betas",), {"value": (0.9, 0.99)})),
        ("set name '3'", Command("set", ("name",), {"value": "3"})),
        ("set schedule cosine", Command("set", ("schedule",), {"value": "cosine"})),
        ("do note text='hello there' level=info",
         Command("do", ("note",), {"text": "hello there", "level": "info"})),
        ("do pause", Command("do", ("pause",))),
        ("save best", Command("save", ("best",))),
        ("stop --reason \"loss is flat\"", Command("stop", (), {}, {"reason": "loss is flat"})),
        ("wait 2.5", Command("wait", ("2.5",))),
        ("journal 5 --type metrics", Command("journal", ("5",), {}, {"type": "metrics"})),
    ],
)  # fmt: skip
def test_lines(line: str, command: Command) -> None:
    assert parse_line(line) == command


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("stauts", "no verb 'stauts'; did you mean 'status'"),
        ("set lr", "write it as: %it2 set NAME VALUE; found lr behind set"),
        ("set lr 1 2", "found lr 1 2 behind set"),
        ("do", "write it as: %it2 do ACTION"),
        ("do note text=a text=b", "'text' is given twice"),
        ("pause now", "write it as: %it2 pause; found now"),
        ("set lr 1 --timeout soon", "no number of seconds"),
        ("pause --mode hold", "no option --mode"),
    ],
)
def test_wrong_lines_are_named_with_the_remedy(line: str, said: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_line(line)
    assert said in str(caught.value)


def test_literals_are_python_values_and_anything_else_is_text() -> None:
    assert math.isnan(literal("nan"))
    assert literal("-inf") == -math.inf
    assert literal("None") is None
    assert literal("FALSE") is False
    assert literal("0x10") == 16
    assert literal("__import__('os')") == "__import__('os')"


@given(st.floats(allow_nan=False))
def test_a_number_arrives_to_the_bit(number: float) -> None:
    assert parse_line(f"set lr {number!r}").given["value"] == number


def test_rules_are_read_before_anything_starts() -> None:
    given = parse_cell("--rule 'at 5: lr x 0.5' --watch loss --rule \"nan: note 'over'\"")
    assert given.rules == ("at 5: lr x 0.5", "nan: note 'over'")
    with pytest.raises(CommandError, match="did you mean 'pause'"):
        parse_cell("--rule 'loss > 5: paus'")


@pytest.mark.parametrize(
    "line", ["rule loss > 5 for 20 steps: pause", "rule 'loss > 5 for 20 steps: pause'"]
)
def test_a_rule_is_the_rest_of_the_line(line: str) -> None:
    assert parse_line(line).words == ("loss > 5 for 20 steps: pause",)
    assert parse_line('rule at 5: note "a  b"').words == ('at 5: note "a  b"',)
    with pytest.raises(CommandError, match="rule TEXT"):
        parse_line("rule")


@given(st.text())
def test_any_line_is_parsed_or_refused(line: str) -> None:
    for parse in (parse_cell, parse_line):
        try:
            parse(line)
        except CommandError as err:
            assert str(err)


@given(st.lists(st.text("abc[]()'\" ,", min_size=1)))
def test_split_keeps_every_character_that_is_no_blank(words: list[str]) -> None:
    line = " ".join(words)
    try:
        found = split(line)
    except CommandError:
        return
    assert "".join(found).replace(" ", "") == line.replace(" ", "")


def test_help_names_every_option_and_verb() -> None:
    text = usage()
    assert all(f"--{each.name}" in text for each in CELL_OPTIONS)
    assert all(f"  {verb}" in text for verb in VERBS)
    # What is given and what it does stand apart, however long the one is.
    assert all(f"{each.usage}  " in text for each in VERBS.values() if each.usage)
    assert all(f" {each.help}" in text for each in CELL_OPTIONS)
    assert all(f" {each.help}" in text for each in VERBS.values())


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("--replay $path", "--replay runs/a.jsonl"),
        ("--replay={path} --steps $n", "--replay=runs/a.jsonl --steps 7"),
        ("--dir $spaced", "--dir 'two words'"),
        ("--watch loss$n --name 'costs $n a day' --rule \"loss > 5: note '$path now'\"", None),
        ("--watch cfg={n}x,d['$n']", None),
    ],
)
def test_variables_stand_for_whole_words(line: str, made: str | None) -> None:
    space = {"path": Path("runs/a.jsonl"), "n": 7, "spaced": "two words"}
    assert expanded(line, space) == (made or line)


def test_a_variable_that_is_none_is_said() -> None:
    with pytest.raises(
        CommandError, match=r"\$pth: there is no variable 'pth'; did you mean 'path'"
    ):
        expanded("--replay $pth", {"path": 1})
