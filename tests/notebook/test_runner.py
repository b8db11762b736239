"""Runs in a real kernel: how they begin, what they leave, every way in which they end."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .kernels import Cell, Kernel

pytestmark = pytest.mark.kernel

FOREVER = """%%it2 --no-panel --at loop
turns = 0
print("begun")
while True:
    turns += 1
"""


@pytest.fixture
def quiet(kernel: Kernel) -> Iterator[Kernel]:
    """A kernel in which no run lives before and after."""
    yield kernel
    kernel.run("for each in it2nb.runs(): each.end()")


def end_of(kernel: Kernel) -> str:
    """Wait for the end of the current run; returns its status."""
    kernel.run("try: it2nb.current().wait()\nexcept BaseException: pass")
    return kernel.value("it2nb.current().status")


def test_the_cell_returns_while_its_loop_runs_and_its_variables_are_there(quiet: Kernel) -> None:
    quiet.run(FOREVER).until_text("begun")
    assert quiet.value("it2nb.current().status") == "'running'"
    first = int(quiet.value("turns"))
    quiet.run(f"while turns <= {first}: pass")
    quiet.run("%it2 stop")
    assert end_of(quiet) == "'stopped'"
    # One turn is one step, and after a stop there is none.
    assert quiet.value("turns") == quiet.value("it2nb.current().step_count")


def test_a_second_run_is_refused_with_the_way_out_c30(quiet: Kernel) -> None:
    quiet.run(FOREVER).until_text("begun")
    run_id = quiet.value("it2nb.current().run_id")
    refused = quiet.run(
        "%%it2 --no-panel\nturns = 'overwritten'\nfor _ in range(3): pass", fails=True
    )
    assert "still runs in this namespace" in refused.error
    assert "%it2 panel shows its panel, %it2 wait waits for it, %it2 stop ends it" in refused.error
    assert refused.messages("display_data") == []
    assert "Traceback" not in refused.error
    assert quiet.value("it2nb.current().run_id") == run_id
    assert quiet.value("type(turns)") == "<class 'int'>"
    quiet.run("it2nb.current().end()")
    quiet.run("%%it2 --no-panel\nfor _ in range(3): pass")
    assert end_of(quiet) == "'finished'"
    assert quiet.value("it2nb.current().run_id") != run_id
    assert quiet.value(f"[s.run_id for s in it2nb.runs()].count({run_id})") == "1"


def test_the_same_cell_once_more_shows_the_panel_of_the_run_that_lives(quiet: Kernel) -> None:
    cell = FOREVER.replace(" --no-panel", "")
    first = quiet.run(cell)
    again = quiet.run(cell, fails=True)
    assert "%it2 panel shows its panel" in again.error
    assert views(again) == views(first) != []


def views(cell: Cell) -> list[str]:
    """The models whose views stand under a cell."""
    kind = "application/vnd.jupyter.widget-view+json"
    shown = [each["content"]["data"] for each in cell.messages("display_data")]
    return [data[kind]["model_id"] for data in shown if kind in data]


FAILING = {
    "ValueError": ("for i in range(10):\n    if i == 3: raise ValueError('x')\n", 3, "x"),
    "NameError": ("for i in range(10):\n    if i == 3: not_there\n", 3, "not_there"),
    "SystemExit": ("import sys\nfor i in range(10):\n    if i == 3: sys.exit(5)\n", 4, "5"),
    "KeyboardInterrupt": ("for i in range(10):\n    if i == 3: raise KeyboardInterrupt\n", 3, ""),
    "ZeroDivisionError": (
        "def f():\n    return 1 / 0\n\nfor i in range(10):\n    if i == 3: f()\n", 3, "zero",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_an_error_is_kept_shown_written_and_raised_c33(quiet: Kernel, name: str) -> None:
    body, line, text = FAILING[name]
    cell = quiet.run(f"%%it2 --no-panel --at loop\n{body}")
    assert end_of(quiet) == "'failed'"
    # Under the cell that started it, with the user's own line and nothing of ours.
    quiet.until(lambda: cell.error, "the error under its cell")
    shown = plain(cell.error)
    assert name in shown and text in shown
    assert re.search(rf"In\[\d+\], line {line}", shown)
    assert "it2nb" not in shown.replace("%%it2nb", "")
    assert quiet.value("it2nb.current().error_line") == str(line)
    assert name in quiet.value("it2nb.current().error")
    # In the journal, at its step; the variables are there.
    quiet.run("row = it2nb.current().journal.frame().query(\"type == 'run_failed'\").iloc[0]")
    assert quiet.value("(int(row.step), i)") == "(3, 3)"
    # And a wait raises it, as often as one asks.
    for _ in range(2):
        again = quiet.run("it2nb.current().wait()", fails=True)
        assert name in again.error
        # IPython shows the traceback of an exit on %tb only.
        if name != "SystemExit":
            assert re.search(rf"In\[\d+\], line {line}", plain(again.error))
    assert quiet.value("'alive'") == "'alive'"


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("for i in range(3:\n    pass", "SyntaxError"),
        ("x = 1\nreturn x", "outside function"),
        ("x = 1\n  y = 2", "IndentationError"),
    ],
)
def test_what_can_not_run_is_refused_at_once_c33(quiet: Kernel, body: str, said: str) -> None:
    runs = quiet.value("len(it2nb.runs())")
    cell = quiet.run(f"%%it2 --no-panel\n{body}", fails=True)
    assert said in cell.error
    assert re.search(r"line [23]", plain(cell.error))
    assert quiet.value("len(it2nb.runs())") == runs


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--wach loss", "did you mean 'watch'"),
        ("--evaluate no_such", "there is no 'no_such'"),
        ("--knob no_such=0:1", "there is no such variable"),
        ("--session no_such", "there is no such variable"),
        ("--at session", "--at session needs --session"),
    ],
)
def test_wrong_options_are_refused_and_nothing_starts(quiet: Kernel, line: str, said: str) -> None:
    runs = quiet.value("it2nb.runs()")
    files = sorted(quiet.folder.glob("it2runs/*"))
    cell = quiet.run(f"%%it2 --no-panel {line}\nfor _ in range(3): pass", fails=True)
    quiet.until(lambda: said in cell.text + cell.error, said)
    # No session and no file is left of it either.
    assert quiet.value("it2nb.runs()") == runs
    assert sorted(quiet.folder.glob("it2runs/*")) == files


def test_at_loop_without_a_loop_says_what_to_do(quiet: Kernel) -> None:
    cell = quiet.run("%%it2 --no-panel --at loop\nx = 1", fails=True)
    assert "the cell has no for or while loop" in cell.error


def test_await_runs_on_a_loop_of_its_own_c33(quiet: Kernel) -> None:
    cell = quiet.run(
        "%%it2 --no-panel --at loop\nimport asyncio, threading\n"
        "for i in range(3):\n    await asyncio.sleep(0)\n"
        "where = threading.current_thread() is not threading.main_thread()\n"
        "await asyncio.sleep(0, 'slept')"
    )
    assert end_of(quiet) == "'finished'"
    quiet.until(lambda: "slept" in cell.shown, "the awaited value")
    assert quiet.value("(i, where, it2nb.current().step_count)") == "(2, True, 3)"


def test_the_last_expression_is_displayed_and_out_stays_as_it_was(quiet: Kernel) -> None:
    quiet.run("'before'")
    cell = quiet.run("%%it2 --no-panel\nfor i in range(2): pass\n{'i': i}")
    end_of(quiet)
    quiet.until(lambda: "{'i': 1}" in cell.shown, "the last value")
    assert [each["msg_type"] for each in cell.messages("display_data", "execute_result")] == [
        "display_data"
    ]
    silent = quiet.run("%%it2 --no-panel\nfor i in range(2): pass\ni;")
    end_of(quiet)
    assert silent.shown == ""


def test_another_cell_that_rebinds_a_name_is_warned_in_that_cell(quiet: Kernel) -> None:
    quiet.run("limit = 10**9\ndef bound(): return limit")
    quiet.run(
        "%%it2 --no-panel --at loop\nturns = 0\nprint('begun')\n"
        "while turns < bound():\n    turns += 1\n"
    ).until_text("begun")
    reads = quiet.run("print(limit, turns)")
    used = quiet.run("limit = 10**9 + 1")
    own = quiet.run("for turns in [turns]: pass")
    harmless = quiet.run("something_else = 1")
    hidden = quiet.run("globals()['limit'] = 10**9 + 2")
    for cell, name in ((used, "limit"), (own, "turns"), (hidden, "limit")):
        quiet.until(lambda cell=cell: "rebound" in cell.text, "the warning")  # type: ignore[misc]
        assert f"this cell rebound {name}, and the running loop" in cell.text
    assert "rebound" not in reads.text + harmless.text
    quiet.run(
        "rows = it2nb.current().journal.frame().query(\"type == 'namespace_changed'\").payload"
    )
    assert quiet.value("[row['names'] for row in rows]") == "[['limit'], ['turns'], ['limit']]"
    assert f"(limit {10**9} → {10**9 + 1})" in used.text
    turned = quiet.value("[row['after'] for row in rows if row['names'] == ['turns']]")
    assert turned.startswith("[{'turns': ")
    limits = "[(row['before'], row['after']) for row in rows if row['names'] == ['limit']]"
    one, two, three = ({"limit": 10**9 + more} for more in range(3))
    assert quiet.value(limits) == repr([(one, two), (two, three)])
    quiet.run("it2nb.current().end()")
    after = quiet.run("limit = 0")
    assert "rebound" not in after.text


def test_a_rebound_name_is_told_with_its_values_where_these_are_plain_and_short(
    quiet: Kernel,
) -> None:
    quiet.run("rate, word, model, on = 0.5, 'a', [1], None")
    quiet.run(
        "%%it2 --no-panel --at loop\nturns = 0\nprint('begun')\n"
        "while rate and word and model or on:\n    turns += 1\n"
    ).until_text("begun")
    quiet.run("rate, word, model, on = float('nan'), 'b' * 81, [2], True")
    quiet.run("row = it2nb.current().journal.frame().query(\"type == 'namespace_changed'\")")
    told = quiet.value("row.payload.iloc[0]['before']")
    assert told == "{'on': None, 'rate': 0.5, 'word': 'a'}"
    assert quiet.value("row.payload.iloc[0]['after']") == "{'on': True, 'rate': nan}"
    quiet.run("it2nb.current().end()")


def test_a_variable_knob_that_moves_is_no_rebinding(quiet: Kernel) -> None:
    quiet.run("clip = 1.0")
    quiet.run(
        "%%it2 --no-panel --at loop --knob clip=0.1:10:log\nturns = 0\nprint('begun')\n"
        "while clip > 0:\n    turns += 1\n"
    ).until_text("begun")
    cell = quiet.run("%it2 set clip 0.5")
    assert "applied, asked 0.5, was 1.0, is 0.5" in cell.shown
    assert "rebound" not in cell.text
    assert quiet.value("clip") == "0.5"
    clamped = quiet.run("it2nb.current().set('clip', 99)")
    assert "clamped" in clamped.shown
    assert quiet.value("clip") == "10.0"
    rejected = quiet.run("%it2 set clip nan")
    assert "rejected" in rejected.shown
    assert quiet.value("clip") == "10.0"


def test_switch_interval_is_short_while_a_run_lives_and_restored_after(quiet: Kernel) -> None:
    before = quiet.value("__import__('sys').getswitchinterval()")
    quiet.run(FOREVER).until_text("begun")
    assert float(quiet.value("__import__('sys').getswitchinterval()")) == pytest.approx(1e-4)
    quiet.run("it2nb.current().end()")
    quiet.run("it2nb.current().wait()")
    assert quiet.value("__import__('sys').getswitchinterval()") == before


def test_stop_never_raises_whenever_it_is_called_c57(quiet: Kernel) -> None:
    quiet.run("before = it2nb.TrainingSession(directory=None)\nbefore.stop(); before.stop()")
    quiet.run(
        "%%it2 --no-panel --at loop\nfor i in range(10**9):\n"
        "    if i == 4: said = it2nb.current().stop(), it2nb.current().stop()\n"
    )
    assert end_of(quiet) == "'stopped'"
    assert quiet.value("(i, it2nb.current().step_count, said)") == "(4, 5, ('running', 'running'))"
    assert quiet.value("it2nb.current().stop()") == "'stopped'"
    over = quiet.run("%it2 stop")
    assert "is over already: stopped" in over.shown


def test_a_bare_except_does_not_swallow_a_stop(quiet: Kernel) -> None:
    quiet.run(
        "%%it2 --no-panel --at loop\nswallowed = 0\n"
        "def quietly():\n    global swallowed\n"
        "for i in range(10**9):\n"
        "    try:\n        if i == 4: it2nb.current().stop()\n"
        "    except BaseException:\n        swallowed += 1\n"
    )
    assert end_of(quiet) == "'stopped'"
    assert quiet.value("(i, it2nb.current().step_count)") == "(4, 5)"


def test_signal_handlers_of_the_kernel_stay_as_they_were_c50(quiet: Kernel) -> None:
    quiet.run(
        "import signal\nkept = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)"
    )
    quiet.run(FOREVER).until_text("begun")
    quiet.run("try: it2nb.current().wait(0.1)\nexcept TimeoutError: pass")
    assert (
        quiet.value("kept == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))")
        == "True"
    )


def test_loops_that_step_nothing_can_still_be_paused_and_stopped(quiet: Kernel) -> None:
    """PyTorch is loaded but no optimizer steps: turns let requests in and are no steps."""
    quiet.run("import torch")
    quiet.run(FOREVER.replace("--at loop", "--at optimizer")).until_text("begun")
    paused = quiet.run("%it2 pause")
    assert "pause: applied, after step 0" in paused.shown
    at = quiet.value("turns")
    assert quiet.value("turns") == at
    quiet.run("%it2 resume")
    quiet.run(f"while turns <= {at}: pass")
    quiet.run("%it2 stop")
    assert end_of(quiet) == "'stopped'"


def test_it2nb_off_runs_the_cell_in_its_place(quiet: Kernel) -> None:
    runs = quiet.value("len(it2nb.runs())")
    quiet.run("import os\nos.environ['IT2NB_OFF'] = '1'")
    try:
        cell: Cell = quiet.run(
            "%%it2 --watch loss\nimport threading, asyncio\n"
            "where = threading.current_thread() is threading.main_thread()\n"
            "for i in range(3): print('turn', i)\ni * 10"
        )
        assert cell.text == "turn 0\nturn 1\nturn 2\n"
        assert cell.shown == "20"
        assert quiet.value("where") == "True"
        failed = quiet.run("%%it2\nx = 1\ny = 1 / 0", fails=True)
        assert re.search(r"In\[\d+\], line 3", plain(failed.error))
        awaited = quiet.run("%%it2\nimport asyncio\nawait asyncio.sleep(0, 'slept')")
        assert awaited.shown == "'slept'"
    finally:
        quiet.run("del os.environ['IT2NB_OFF']")
    assert quiet.value("len(it2nb.runs())") == runs


def test_views_of_a_run(quiet: Kernel) -> None:
    quiet.run(
        "%%it2 --no-panel --watch loss --name views\nfor i in range(5):\n    loss = 1 / (i + 1)\n"
    )
    end_of(quiet)
    status = quiet.run("%it2").shown
    assert "views" in status and "finished, step 5 of 5 (100%)" in status and "loss 0.2" in status
    assert "views" in quiet.run("%it2 runs").shown
    assert "pause" in quiet.run("%it2 actions").shown
    assert "status_changed" in quiet.run("%it2 journal 3 --type status_changed").shown
    assert "%it2 set" in quiet.run("%it2 help set").shown
    assert "--watch" in quiet.run("%it2 help").shown
    exported = quiet.run("%it2 export out").shown
    for name in ("journal.jsonl", "requests.csv", "metrics.csv", "state.json", "cell.py"):
        assert name in exported
        assert (quiet.folder / "out" / name).stat().st_size > 0
    unknown = quiet.run("%it2 stauts", fails=True)
    quiet.until(lambda: "did you mean 'status'" in unknown.text, "the hint")


def test_the_user_s_own_session_counts_its_own_steps(quiet: Kernel) -> None:
    quiet.run(
        "s = it2nb.TrainingSession(directory=None)\n"
        "value = {'x': 1.0}\n"
        "s.register_knob('x', get=lambda: value['x'], set=lambda v: value.update(x=v))"
    )
    quiet.run(
        "%%it2 --no-panel --session s\nfor i in range(10):\n"
        "    control = s.step({'loss': i})\n    if control.stop: break\n"
    )
    assert end_of(quiet) == "'finished'"
    assert quiet.value("(s.step_count, it2nb.current() is s)") == "(10, True)"
    again = quiet.run("%%it2 --no-panel --session s\nfor i in range(10): s.step()", fails=True)
    assert "is over (finished)" in again.error


def test_a_session_whose_step_the_cell_calls_is_the_run_s_own_c30(quiet: Kernel) -> None:
    quiet.run("own = it2nb.TrainingSession(directory=None)")
    quiet.run("%%it2 --no-panel\nfor i in range(4): own.step({'loss': i})")
    assert end_of(quiet) == "'finished'"
    assert quiet.value("(it2nb.current() is own, own.step_count)") == "(True, 4)"


def test_the_shell_can_be_left_and_entered_again(quiet: Kernel) -> None:
    quiet.run("%unload_ext it2nb")
    assert "not found" in quiet.run("%it2 status", fails=True).text
    quiet.run("%load_ext it2nb\n%load_ext it2nb")
    quiet.run("%%it2 --no-panel\nfor i in range(2): pass")
    assert end_of(quiet) == "'finished'"


def test_pytorch_is_not_imported_by_us() -> None:
    import subprocess
    import sys

    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "import sys\nshell = InteractiveShell.instance()\n"
        "shell.run_line_magic('load_ext', 'it2nb')\n"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules\n"
        "r = shell.run_cell('%%it2 --no-panel --watch loss\\nfor i in range(5): loss = i')\n"
        "r.raise_error()\nimport it2nb\nassert it2nb.current().wait() == 'finished'\n"
        "assert it2nb.current().step_count == 5\nassert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "error::ResourceWarning", "-c", code], check=True)
