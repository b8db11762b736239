"""A ``%%it2`` cell around an ordinary PyTorch loop: knobs, hooks, evaluation, saves, their end."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
from IPython.core.error import UsageError

import it2nb
from it2nb.core.errors import It2nbError
from it2nb.core.session import Session

LIMIT_S = 60.0
Cells = Callable[[str], Any]

SETUP = """
import torch, threading, it2nb
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
X = torch.randn(64, 4)
Y = (X.sum(1) > 0).long()
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
lrs = []
opt.register_step_pre_hook(lambda o, args, kwargs: lrs.append(o.param_groups[0]["lr"]))
clip = 1.0
reached, go = threading.Event(), threading.Event()

def hold(step, at):
    if step == at:
        reached.set()
        go.wait(60)

def evaluate():
    return {"val_loss": F.cross_entropy(model(X), Y).item(), "training": float(model.training)}
"""

LOOP = """
for epoch in range(5):
    for x, y in [(X, Y)] * 2:
        hold(2 * epoch, at) if x is X else None
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        sched.step()
        opt.zero_grad()
"""


@pytest.fixture
def cells(run_cell: Cells) -> Cells:
    run_cell(SETUP)
    return run_cell


def held(cells: Cells, options: str = "", at: int = 4, loop: str = LOOP) -> Session:
    """Start a run that holds before its step number `at` + 1."""
    cells(f"at = {at}; reached.clear(); go.clear()")
    cells(f"%%it2 --no-panel {options}\n{loop}")
    assert cells("reached.wait(60)")
    return it2nb.current()


def test_knobs_are_there_before_the_first_step_and_edits_hold_from_the_next(cells: Cells) -> None:
    session = held(cells, "--watch loss,lr=opt.param_groups[0]['lr'] --knob clip=0.1:10:log")
    assert {"lr", "momentum", "weight_decay", "clip"} <= set(session.knobs)
    assert session.total_steps == 10
    handle = session.submit({"type": "set_knob", "payload": {"name": "lr", "value": 0.01}})
    other = session.submit({"type": "set_knob", "payload": {"name": "clip", "value": 0.5}})
    cells("go.set()")
    assert session.wait(LIMIT_S) == "finished"
    assert (handle.result().status, handle.result().step) == ("applied", 5)
    assert (other.result().status, cells("clip")) == ("applied", 0.5)
    assert session.step_count == 10
    lrs = cells("lrs")
    assert lrs[:5] == pytest.approx([0.1 * 0.9**k for k in range(5)])
    # Rescaled: the edit is in force at the next step, and the schedule keeps its shape from there.
    assert lrs[5:] == pytest.approx([0.01 * 0.9**k for k in range(5)])
    frame = session.metrics.frame()
    assert list(frame["step"]) == list(range(1, 11))
    assert frame["loss"].notna().all()


def test_evaluate_runs_at_the_control_point_and_leaves_the_training_alone(cells: Cells) -> None:
    plain = held(cells, "--seed 3")
    cells("go.set()")
    plain.wait(LIMIT_S)
    weights = [p.clone() for p in cells("model").parameters()]
    cells(SETUP)
    session = held(cells, "--seed 3 --evaluate evaluate")
    handle = session.submit({"type": "evaluate"})
    cells("go.set()")
    session.wait(LIMIT_S)
    result = handle.result()
    assert result.status == "applied", result
    assert set(result.data) == {"val_loss", "training"}
    # In eval mode while it ran, back in train mode afterwards, and not a bit of the run moved.
    assert result.data["training"] == 0.0
    assert cells("model.training") is True
    for before, after in zip(weights, cells("model").parameters(), strict=True):
        assert torch.equal(before, after)
    assert session.metrics.latest()["val_loss"][0] == result.step


def test_evaluate_takes_the_model_where_it_asks_for_one(cells: Cells) -> None:
    cells("def score(net): return net(X).sum().item() * 0 + float(net is model)")
    session = held(cells, "--evaluate score")
    handle = session.submit({"type": "evaluate"})
    cells("go.set()")
    session.wait(LIMIT_S)
    assert handle.result().status == "applied"
    assert session.metrics.latest()["evaluate"][1] == 1.0


def test_an_evaluation_that_raises_is_failed_and_the_run_goes_on(cells: Cells) -> None:
    cells("def broken(): raise RuntimeError('no data')")
    session = held(cells, "--evaluate broken")
    handle = session.submit({"type": "evaluate"})
    cells("go.set()")
    assert session.wait(LIMIT_S) == "finished"
    assert handle.result().status == "failed"
    assert "no data" in str(handle.result().error)


def test_without_a_function_evaluate_is_unavailable_with_the_reason(cells: Cells) -> None:
    session = held(cells)
    handle = session.submit({"type": "evaluate"})
    schema = next(each for each in session.actions.schemas() if each.name == "evaluate")
    cells("go.set()")
    session.wait(LIMIT_S)
    assert (handle.result().status, schema.enabled) == ("rejected", False)
    assert "--evaluate" in str(schema.reason)
    assert handle.result().reason == schema.reason


def test_a_save_is_one_file_of_what_was_found(cells: Cells) -> None:
    session = held(cells)
    handle = session.submit({"type": "save_checkpoint", "payload": {"tag": "best"}})
    cells("go.set()")
    session.wait(LIMIT_S)
    result = handle.result()
    assert result.status == "applied", result
    content = torch.load(result.data["path"], weights_only=True)
    assert content["meta"]["step"] == 5
    assert len(result.data["sha256"]) == 64


def test_stop_ends_the_run_before_another_optimizer_step(cells: Cells) -> None:
    session = held(cells)
    handle = session.submit({"type": "stop"})
    cells("go.set()")
    assert session.wait(LIMIT_S) == "stopped"
    assert handle.result().step == session.step_count == 5
    # `sched.step()` of that turn did not come either: StopTraining left from opt.step().
    assert len(cells("lrs")) == 5


def test_a_bare_except_in_the_loop_does_not_swallow_the_stop(cells: Cells) -> None:
    loop = (
        "for step in range(10):\n    hold(step, at)\n"
        "    try:\n        F.cross_entropy(model(X), Y).backward(); opt.step()\n"
        "    except BaseException:\n        pass\n"
    )
    session = held(cells, loop=loop)
    session.submit({"type": "stop"})
    cells("go.set()")
    assert session.wait(LIMIT_S) == "stopped"
    assert session.step_count == 5


FUNCTION = """
def train(at):
    net = nn.Linear(4, 2)
    inner_opt = torch.optim.AdamW(net.parameters(), lr=0.05)
    inner_sched = torch.optim.lr_scheduler.StepLR(inner_opt, 100)
    for step in range(10):
        hold(step, at)
        batch_loss = F.cross_entropy(net(X), Y)
        batch_loss.backward()
        inner_opt.step()
        inner_sched.step()
        inner_opt.zero_grad()
"""


def test_an_optimizer_inside_a_function_is_found_at_its_first_step(cells: Cells) -> None:
    cells(FUNCTION)
    session = held(cells, "--watch batch_loss", loop="train(at)")
    assert session.knobs["lr"].value == 0.05
    assert session.stepper is not None and "inner_opt" in session.stepper
    saved = session.submit({"type": "save_checkpoint"})
    moved = session.submit({"type": "set_knob", "payload": {"name": "lr", "value": 0.01}})
    cells("go.set()")
    assert session.wait(LIMIT_S) == "finished"
    assert saved.result().status == "applied", saved.result()
    assert moved.result().status == "applied", moved.result()
    assert session.metrics.frame()["batch_loss"].notna().sum() == 10


def test_watch_and_hooks_work_when_the_cell_itself_imports_torch() -> None:
    import subprocess
    import sys

    code = """
from IPython.core.interactiveshell import InteractiveShell
import sys
shell = InteractiveShell.instance()
shell.run_line_magic('load_ext', 'it2nb')
assert 'torch' not in sys.modules
shell.run_cell('''%%it2 --no-panel --watch loss --seed 5
import torch
from IPython.core.error import UsageError
first = torch.rand(()).item()
w = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(w.parameters(), lr=0.1)
for i in range(6):
    loss = w(torch.ones(3)).sum()
    loss.backward(); opt.step(); opt.zero_grad()
''').raise_error()
import it2nb, torch
session = it2nb.current()
assert session.wait() == 'finished', session
assert session.step_count == 6, session
assert session.metrics.frame()['loss'].notna().all()
assert 'lr' in session.knobs
torch.manual_seed(5)
assert shell.user_ns['first'] == torch.rand(()).item()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_modes_of_the_cell_hold_in_its_thread_c55(cells: Cells) -> None:
    cells("seen = []")
    source = (
        "%%it2 --no-panel --at loop\nfor _ in range(1):\n"
        "    seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled('cpu')))\n"
    )
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        cells(source)
        it2nb.current().wait(LIMIT_S)
    cells(source)
    it2nb.current().wait(LIMIT_S)
    assert cells("seen") == [(False, True), (True, False)]


def test_inference_mode_is_refused(cells: Cells) -> None:
    with torch.inference_mode(), pytest.raises(it2nb.It2nbError, match="inference_mode"):
        cells("%%it2 --no-panel\nfor _ in range(1): pass")
    cells("%%it2 --no-panel\nfor _ in range(1): pass")
    assert it2nb.current().wait(LIMIT_S) == "finished"


def test_after_the_end_nothing_holds_model_or_optimizer_c77(cells: Cells) -> None:
    session = held(cells, "--evaluate evaluate --watch loss")
    cells("go.set()")
    session.wait(LIMIT_S)
    cells("import weakref\nrefs = weakref.ref(model), weakref.ref(opt)\ndel model, opt, sched")
    gc.collect()
    assert cells("[ref() for ref in refs]") == [None, None]
    # The knobs still tell what they were set to.
    assert session.knobs["lr"].value == pytest.approx(0.1 * 0.9**10)
    assert session.knobs["lr"].view().reason == "the run is over"


def test_a_failed_run_holds_nothing_of_its_frames_c77(cells: Cells) -> None:
    cells("import weakref\nrefs = []")
    cells(
        "%%it2 --no-panel\n"
        "def fail():\n    big = torch.zeros(1000)\n    refs.append(weakref.ref(big))\n"
        "    for step in range(3): opt.step()\n"
        "    raise ValueError('with a big tensor')\n"
        "fail()"
    )
    session = it2nb.current()
    with pytest.raises(ValueError, match="big tensor"):
        session.wait(LIMIT_S)
    gc.collect()
    assert cells("refs[0]()") is None
    assert session.status == "failed"
    assert session.error_line == 6


def test_thirty_short_runs_leave_nothing_behind_c82(cells: Cells) -> None:
    from torch.optim import optimizer as home

    def counts() -> tuple[int, int, int]:
        return (
            threading.active_count(),
            len(home._global_optimizer_pre_hooks) + len(home._global_optimizer_post_hooks),
            len(cells("opt")._optimizer_step_pre_hooks),
        )

    def one() -> None:
        cells("%%it2 --no-panel --watch loss\nfor i in range(3):\n    loss = i\n    opt.step()")
        it2nb.current().wait(LIMIT_S)
        _join(others)

    others = set(threading.enumerate())  # of runs that other tests never ended
    one()
    before = counts()
    for _ in range(30):
        one()
    assert counts() == before


def _join(others: Collection[threading.Thread] = ()) -> None:
    """Let threads that have nothing more to do go."""
    for thread in set(threading.enumerate()).difference(others):
        if thread.name.startswith("it2nb"):
            thread.join(LIMIT_S)


def test_two_optimizers_are_knobs_under_their_names(cells: Cells) -> None:
    cells(
        "g, d = nn.Linear(4, 1), nn.Linear(4, 1)\n"
        "opt_g = torch.optim.Adam(g.parameters(), lr=1e-3)\n"
        "opt_d = torch.optim.Adam(d.parameters(), lr=4e-3)\n"
    )
    loop = (
        "for step in range(10):\n    hold(step, at)\n"
        "    for o, n in ((opt_g, g), (opt_d, d)):\n"
        "        n(X).mean().backward(); o.step()\n"
    )
    session = held(cells, loop=loop)
    assert {"opt_g.lr", "opt_d.lr"} <= set(session.knobs)
    assert session.step_count == 4
    cells("go.set()")
    assert session.wait(LIMIT_S) == "finished"
    assert session.step_count == 10


def test_settings_of_layers_are_knobs_where_one_asks_for_them(cells: Cells) -> None:
    session = held(cells, "--modules")
    assert session.knobs["1.p"].value == 0.5
    handle = session.submit({"type": "set_knob", "payload": {"name": "1.p", "value": 0.25}})
    cells("go.set()")
    assert session.wait(LIMIT_S) == "finished"
    assert (handle.result().status, cells("model[1].p")) == ("applied", 0.25)
    assert session.model_tree is not None


def test_knobs_of_an_optimizer_that_a_function_made_keep_their_last_value(cells: Cells) -> None:
    cells(
        "import weakref\n"
        "def fit():\n"
        "    global made\n"
        "    inner = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)\n"
        "    made = weakref.ref(inner)\n"
        "    plan = torch.optim.lr_scheduler.ExponentialLR(inner, 0.5)\n"
        "    for _ in range(3):\n"
        "        F.cross_entropy(model(X), Y).backward()\n"
        "        inner.step()\n"
        "        plan.step()\n"
    )
    cells("%%it2 --no-panel\nfit()")
    session = it2nb.current()
    assert session.wait(LIMIT_S) == "finished"
    gc.collect()
    assert session.knobs["momentum"].value == 0.9
    assert session.knobs["lr"].value == pytest.approx(0.0625)
    # And nothing of the training is kept for that.
    assert session.bound.optimizers == []
    assert cells("made()") is None


@pytest.mark.parametrize(
    "name, said", [("nope", "there is no 'nope'"), ("model", "it is a Sequential, no optimizer")]
)
def test_steps_of_what_is_no_optimizer_is_refused_at_the_start(
    cells: Cells, name: str, said: str
) -> None:
    cells("at = -1")
    with pytest.raises(it2nb.It2nbError, match=said):
        cells(f"%%it2 --no-panel --dir none --wait --steps-of {name}\n{LOOP}")


def test_steps_of_an_optimizer_that_never_steps_is_told_and_requests_are_served(
    cells: Cells,
) -> None:
    cells(
        "%%it2 --no-panel --dir none --wait --steps-of later\n"
        "import it2nb\nit2nb.current().do('note', text='asked')\nat = -1\n"
        f"{LOOP}later = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    )
    session = it2nb.current()
    assert session.step_count == 0
    assert any("--steps-of later: no optimizer" in each for each in session.warnings)
    assert session.journal.requests()["status"].tolist() == ["applied"]


def test_a_variable_out_of_its_bounds_is_refused_unless_the_cell_sets_it_first(
    cells: Cells,
) -> None:
    with pytest.raises(It2nbError, match=r"--knob clip is 1\.0 now, outside of its bounds"):
        cells(f"%%it2 --no-panel --knob clip=2:10\n{LOOP}")
    cells("at = 99")
    cells(f"%%it2 --no-panel --wait --knob clip=2:10\nclip = 3.0\n{LOOP}")
    session = it2nb.current()
    assert session.knobs["clip"].value == 3.0
    assert session.warnings == []
    cells(f"%%it2 --no-panel --wait --knob clip=5:10\nclip = 4.0\n{LOOP}")
    (said,) = it2nb.current().warnings
    assert "--knob clip is 4.0 now, outside of its bounds: min is 5.0" in said


def test_the_verbs_that_go_back_ask_and_show_what_there_is_to_note(cells: Cells) -> None:
    session = held(cells)
    cells("%it2 set lr 0.02 --timeout 0")
    cells("go.set()")
    assert session.wait(LIMIT_S) == "finished"
    lines = ("undo --knobs-only", "goto 3", "load x")
    results = [cells(f"%it2 {line}").result(0) for line in lines]
    assert [each.type for each in results] == ["undo", "goto", "load_checkpoint"]
    assert {each.reason for each in results} == {"the run is over (finished)"}


def test_undo_in_a_line_says_what_does_not_go_back(cells: Cells) -> None:
    session = held(cells, at=4)
    cells("reached.clear(); back = go; go = threading.Event(); at = 6")
    session.submit({"type": "set_knob", "payload": {"name": "lr", "value": 0.02}})
    cells("back.set()")
    assert cells("reached.wait(60)")
    cells("threading.Timer(0.05, go.set).start()")
    said = str(cells("%it2 undo"))
    assert said.startswith("undo: applied, after step ") and "undone set_knob lr" in said
    assert "\n  note: weights, optimizer, schedule and random streams are those of step" in said
    told = re.search(r"no turns for these (\d) steps: about (\d) in all", said)
    assert told is not None and int(told[1]) + int(told[2]) == 10
    assert session.wait(LIMIT_S) == "finished"
    assert abs(session.step_count - int(told[2])) <= 1


def test_a_variable_stands_for_an_options_value(cells: Cells) -> None:
    cells("count = 12; at = 99")
    cells(f"%%it2 --no-panel --wait --steps $count\n{LOOP}")
    assert it2nb.current().total_steps == 12
    with pytest.raises(UsageError, match=r"\$no_such: there is no variable 'no_such'"):
        cells(f"%%it2 --no-panel --replay $no_such\n{LOOP}")


def test_a_value_of_the_run_before_is_none_of_this_one(cells: Cells) -> None:
    cells("acc, at = 0.125, 99")
    body = LOOP + "    acc = 1.0 + epoch\n"
    cells(f"%%it2 --no-panel --wait --watch loss,acc\n{body}")
    frame = it2nb.current().metrics.frame()
    assert frame["acc"].dropna().tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert frame["step"][frame["acc"].first_valid_index()] == 2


def test_a_run_that_takes_its_batches_back_is_as_long_as_before(cells: Cells) -> None:
    cells(
        "%%it2 --no-panel --wait\nrun = it2nb.current()\nsaid = []\n"
        "for n, x in enumerate(run.loop([X] * 30)):\n"
        "    opt.zero_grad(); model(x).square().mean().backward(); opt.step()\n"
        "    said.append(run.total_steps)\n"
        "    if n == 11: run.set('lr', 0.05)\n"
        "    if n == 19: run.do('undo')\n"
    )
    session = it2nb.current()
    assert [e.payload["undone"] for e in session.journal.since(0) if "undone" in e.payload]
    assert session.step_count == session.total_steps == 30
    assert len(cells("said")) > 30
    assert set(cells("said")) == {None, 30}


@pytest.mark.parametrize(
    ("home", "remedy"),
    [
        ("transformers.trainer", "it2nb.make_interactive(Trainer)"),
        ("lightning.pytorch.loops.fit_loop", "it2nb.LightningCallback(it2nb.current())"),
        ("my.trainer", None),
    ],
)
def test_a_trainer_whose_loop_is_its_own_is_told_how_it_is_recorded(
    cells: Cells, home: str, remedy: str | None
) -> None:
    cells(
        "def train():\n    for _ in range(3):\n"
        "        model(X).square().mean().backward(); opt.step()\n"
        f"space = {{'__name__': '{home}'}}\n"
        "exec(compile('def fit(step): step()', 'trainer', 'exec'), space)"
    )
    cells("%%it2 --no-panel --wait\nspace['fit'](train)")
    said = it2nb.current().warnings
    assert it2nb.current().step_count == 3
    assert (remedy is None and said == []) or (len(said) == 1 and str(remedy) in said[0])
    cells("%%it2 --no-panel --wait --watch loss=opt.param_groups[0]['lr']\nspace['fit'](train)")
    assert it2nb.current().warnings == []


def test_a_cell_says_how_often_its_run_is_saved_c67(cells: Cells) -> None:
    saved = "it2nb.current().rewind.saving.autosave_s"
    for options, wanted in (("", 600.0), ("--autosave 30", 30.0), ("--autosave 0", None)):
        session = held(cells, options)
        assert cells(saved) == wanted
        cells("go.set()")
        assert session.wait(LIMIT_S) == "finished"
    cells("mine = it2nb.TrainingSession(autosave_s=7)")
    session = held(cells, "--session mine")
    assert cells(saved) == 7.0
    cells("go.set()")
    assert session.wait(LIMIT_S) == "finished"
