"""C23: what a run prints and shows lands under its own cell, on every supported ipykernel."""

from __future__ import annotations

import pytest

from .kernels import Kernel

pytestmark = pytest.mark.kernel

RUN = """%%it2 --no-panel
import logging, sys, threading, warnings
from concurrent.futures import ThreadPoolExecutor
from tqdm import tqdm
from IPython.display import display

def child():
    print("child print")
    print("child error", file=sys.stderr)
    display("child display")

for i in range(1):
    go.wait(60)
    print("own print")
    warnings.warn("own warning")
    logging.warning("own log")
    display("own display")
    thread = threading.Thread(target=child)
    thread.start()
    thread.join()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(print, "pool print").result()
    for _ in tqdm(range(3), desc="own bar"):
        pass
    done.set()
"own value"
"""


def test_all_of_it_is_under_the_cell_that_started_it_c23(any_kernel: Kernel) -> None:
    any_kernel.run("import threading\ngo, done = threading.Event(), threading.Event()")
    first = any_kernel.run(RUN)
    second = any_kernel.run("print('second'); go.set(); done.wait(60)\nit2nb.current().wait()")
    third = any_kernel.run("print('third')")
    any_kernel.until(lambda: "own value" in first.shown, "the value of the last expression")
    for part in ("own print", "own warning", "own log", "child print", "child error",
                 "pool print", "own bar"):  # fmt: skip
        assert part in first.text
    assert "own display" in first.shown
    assert "child display" in first.shown
    assert second.text == "second\n"
    assert "own" not in second.shown and "child" not in second.shown
    assert third.text == "third\n"
    # The panel shows it too, with the bar as one line, and afterwards nothing is listened to.
    told = any_kernel.value("[each.text for each in it2nb.current().output.lines()[1]]")
    for part in ("own print", "own log", "child print", "child error", "pool print"):
        assert part in told
    assert told.count("own bar") == 1 and "3/3" in told
    assert any_kernel.value("vars(get_ipython().kernel.session).get('send')") == "None"
    assert "second" not in told and "third" not in told


def test_threads_are_started_as_ever_when_no_run_lives(any_kernel: Kernel) -> None:
    assert any_kernel.value("threading.Thread.start.__module__") == "'threading'"
