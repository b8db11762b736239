"""``%%it2 --replay``: the same cell again, in a real kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .notebook.kernels import Kernel

pytestmark = pytest.mark.kernel

SETUP = """
import threading, torch
from torch import nn
gate = threading.Semaphore(0)
shift = 0
def fresh():
    global model, opt, sched
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 60)
fresh()
def evaluate():
    with torch.no_grad():
        return {"val": model(torch.randn(8, 4)).square().mean().item()}
"""

OPTIONS = "--no-panel --watch loss --knob shift=0:3 --evaluate evaluate"
LOOP = """
for step in range(60):
    if step in (20, 40):
        gate.acquire(timeout=60)
    x = torch.randn(16, 4) + shift
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    opt.step()
    sched.step()
    opt.zero_grad()
"""

STEER = """
s = it2nb.current()
asked = [s.submit({"type": "set_knob", "payload": {"name": "lr", "value": 3e-3}}, source="panel"),
         s.submit({"type": "set_knob", "payload": {"name": "shift", "value": 1}}, source="panel")]
gate.release()
asked[1].result(60)
asked = [s.submit({"type": "evaluate"}, source="magic"),
         s.submit({"type": "undo"}, source="panel")]
gate.release()
asked[1].result(60)
s.wait(60)
recorded = str(s.path)
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    made = Kernel("installed", tmp_path_factory.mktemp("kernel"))
    try:
        made.run("%load_ext it2nb\nimport it2nb")
        made.run(SETUP)
        made.run(f"%%it2 {OPTIONS} --seed 3\n{LOOP}")
        made.run(STEER)
        made.run("weights = [p.detach().clone() for p in model.parameters()]")
        yield made
    finally:
        made.close()


def replay(kernel: Kernel, loop: str = LOOP, more: str = "", *, fails: bool = False) -> str:
    """Replay the recorded run; returns what the cell showed as its error."""
    # In a replay nobody waits at the gate: what was asked there comes by itself.
    kernel.run("fresh(); shift = 0; gate = threading.Semaphore(9)")
    path = kernel.value("recorded").strip("'")
    cell = kernel.run(f"%%it2 {OPTIONS} --replay {path} {more}\n{loop}", fails=fails)
    if not fails:
        kernel.run("it2nb.current().wait(60)")
    return cell.error


def test_the_same_cell_is_replayed_to_the_bit_with_its_seed(kernel: Kernel) -> None:
    replay(kernel)
    verdict = kernel.value("str(it2nb.current().replaying.verify())")
    assert "bit-equal" in verdict, verdict
    same = "all(torch.equal(a, b) for a, b in zip(weights, model.parameters()))"
    assert kernel.value(same) == "True"
    assert kernel.value("shift") == "0"  # undone
    sources = kernel.value("sorted(set(it2nb.current().journal.requests()['source']))")
    assert sources == "['replay']"
    assert kernel.value("it2nb.current().seed") == "3"
    status = kernel.run("%it2 status").shown
    assert "  replay of " in status and ": bit-equal" in status
    assert "warning:" not in status
    assert kernel.value("it2nb.current().warnings") == "[]"


MAKES = """
model = nn.Linear(4, 1)
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(20):
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward(); opt.step(); opt.zero_grad()
"""


@pytest.mark.parametrize("before", ["del model, opt", "fresh()"])
def test_what_the_cell_makes_anew_is_compared_and_not_what_it_found(
    kernel: Kernel, before: str
) -> None:
    kernel.run(before)
    kernel.run(f"%%it2 --no-panel --watch loss --seed 3\n{MAKES}")
    kernel.run("it2nb.current().wait(60); own = str(it2nb.current().path)")
    kernel.run(f"%%it2 --no-panel --watch loss --replay $own\n{MAKES}")
    kernel.run("it2nb.current().wait(60)")
    verdict = kernel.value("str(it2nb.current().replaying.verify())")
    assert "bit-equal: 20 metric values, final state equal" in verdict, verdict
    assert "the weights were different" not in verdict
    kernel.run("fresh()")


def test_what_is_trained_now_has_the_name_and_the_tree(kernel: Kernel) -> None:
    kernel.run("fresh()")
    kernel.run(f"%%it2 --no-panel --watch loss --seed 3\n{MAKES}")
    kernel.run("it2nb.current().wait(60); rows = it2nb.current().journal.since(0)")
    kernel.run("end = [e.payload for e in rows if e.type == 'state_hash'][-1]")
    assert kernel.value("sorted(end['parts'])") == "['model model', 'optimizer opt']"
    kernel.run("tree = [e.payload for e in rows if e.type == 'model_tree'][-1]")
    assert "Sequential" not in kernel.value("tree")
    kernel.run("fresh()")


def test_a_changed_cell_is_refused_with_the_difference_unless_told_to_go_on(
    kernel: Kernel,
) -> None:
    changed = LOOP.replace("sum(1, keepdim", "mean(1, keepdim")
    said = replay(kernel, changed, fails=True)
    assert "this cell is not the recorded one" in said
    assert "-    loss = (model(x) - x.sum" in said
    assert "+    loss = (model(x) - x.mean" in said
    assert "--go-on" in said
    assert "Traceback" not in said
    replay(kernel, changed, "--go-on")
    assert kernel.value("it2nb.current().replaying.verify().is_equal") == "False"
    assert "they part at loss at step 1" in kernel.value("str(it2nb.current().replaying.verify())")


def test_a_file_that_is_not_there_is_told_in_a_line(kernel: Kernel, tmp_path: Path) -> None:
    cell = kernel.run(
        "%%it2 --no-panel --replay nothing.jsonl\nfor i in range(3): pass", fails=True
    )
    assert "can't be read" in cell.error
    assert "Traceback" not in cell.error


def test_the_run_becomes_a_program_that_trains_the_same_weights_in_the_same_kernel(
    kernel: Kernel,
) -> None:
    replay(kernel)
    kernel.run("code = it2nb.current().to_code()")
    assert kernel.value("code.left_out") == "()"
    assert kernel.value("'it2nb' in code") == "False"
    kernel.run("fresh(); shift = 0; gate = threading.Semaphore(9)")
    kernel.run("exec(code, globals())")
    same = "all(torch.equal(a, b) for a, b in zip(weights, model.parameters()))"
    assert kernel.value(same) == "True"


def test_export_writes_one_file_and_a_report(kernel: Kernel) -> None:
    replay(kernel)
    assert "run.zip" in kernel.run("%it2 export run.zip").shown
    assert kernel.value("len(it2nb.open('run.zip').requests())") == "4"
    assert "run.html" in kernel.run("%it2 export run.html").shown
    assert kernel.value("'<!doctype html>' in open('run.html').read()") == "True"
