"""A Trainer in a ``%%it2`` cell: in its thread, steered by its session, beside its own display."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from transformers.utils.notebook import NotebookProgressCallback

import it2nb

from ..notebook.conftest import run_cell as run_cell
from ..notebook.conftest import shell as shell
from .tiny import Parity, arguments, series, tiny_bert

SETUP = """
from transformers import Trainer
import it2nb
class Slow(Trainer):
    def training_step(self, *args, **kwargs):
        if go is not None:
            go.wait(60)
        return super().training_step(*args, **kwargs)
def trainer(**more):
    made = it2nb.make_interactive(Slow)(
        model=tiny_bert(), args=arguments(**more), train_dataset=Parity(), eval_dataset=Parity(8)
    )
    made.remove_callback(made.callback_handler.callbacks[1])
    made.add_callback(NotebookProgressCallback)
    return made
"""


@pytest.fixture
def cell(shell: Any, run_cell: Callable[[str], Any]) -> Iterator[Callable[[str], Any]]:
    shell.user_ns.update(
        tiny_bert=tiny_bert, arguments=arguments, Parity=Parity, go=None,
        NotebookProgressCallback=NotebookProgressCallback,
    )  # fmt: skip
    run_cell(SETUP)
    yield run_cell


def test_the_cell_is_steered_while_it_trains_in_its_thread(cell: Any, shell: Any) -> None:
    go = threading.Event()
    shell.user_ns["go"] = go
    cell("%%it2 --no-wait\nout = trainer(num_train_epochs=2).train()\nafter = out.global_step")
    session = it2nb.current()
    handle = session.submit(
        {"type": "set_knob", "payload": {"name": "max_grad_norm", "value": 0.5}}
    )
    evaluated = session.submit({"type": "evaluate"})
    go.set()
    session.wait(120)
    assert (session.status, shell.user_ns["after"]) == ("finished", 16)
    assert handle.result(0).status == "applied"
    assert evaluated.result(0).data["eval_loss"] > 0
    assert list(series(session, "loss")) == list(range(1, 17))
    assert session.metrics.series("lr")[1][0] == pytest.approx(0.01)


def test_a_stop_ends_the_training_and_the_rest_of_the_cell_runs(cell: Any, shell: Any) -> None:
    go = threading.Event()
    shell.user_ns["go"] = go
    cell("%%it2 --no-wait\nmade = trainer(num_train_epochs=5)\nout = made.train()\nafter = True")
    session = it2nb.current()
    session.stop()
    go.set()
    session.wait(120)
    assert session.status == "stopped"
    assert shell.user_ns["after"] is True
    assert session.step_count == shell.user_ns["out"].global_step <= 1


def test_an_error_of_the_training_is_the_cells_error(cell: Any, shell: Any) -> None:
    cell("%%it2 --no-wait\nmade = trainer()\nmade.train_dataset = None\nmade.train()")
    with pytest.raises(ValueError, match="requires a train_dataset"):
        it2nb.current().wait(120)
    assert it2nb.current().status == "failed"
