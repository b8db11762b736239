"""An interrupt beside a run: answered where no cell runs, and kept from the run's processes."""

from __future__ import annotations

import pytest

from .kernels import Kernel

pytestmark = pytest.mark.kernel

LOOP = """%%it2 --no-panel --at loop
turns = 0
print("begun")
while True:
    turns += 1
"""

#: What the kernel does with an interrupt while no cell runs.
IDLE = "get_ipython().kernel.saved_sigint_handler"

#: Starts a process while another cell runs, interrupts it, and asks which one answers then.
WORKER = """%%it2 --no-panel
import multiprocessing, os, signal
from multiprocessing.shared_memory import SharedMemory
go.wait(60)
if with_tracker:
    shared = SharedMemory(create=True, size=8)
    shared.close()
    shared.unlink()
with multiprocessing.get_context("fork").Pool(1) as pool:
    before = pool.apply_async(os.getpid).get(60)
    os.kill(before, signal.SIGINT)
    after = pool.apply_async(os.getpid).get(60)
"""


def test_an_interrupt_of_an_idle_kernel_says_how_the_run_ends(any_kernel: Kernel) -> None:
    cell = any_kernel.run(LOOP).until_text("begun")
    answer = "%it2 pause holds it, %it2 stop ends it\n"
    any_kernel.interrupt()
    any_kernel.until(lambda: cell.text.count(answer) == 1, "the answer to an interrupt")
    any_kernel.interrupt()
    any_kernel.until(lambda: cell.text.count(answer) == 2, "the answer to another one")
    assert "it2nb: an interrupt ends what a cell does; " in cell.text
    assert any_kernel.value("it2nb.current().status") == "'running'"
    any_kernel.run("it2nb.current().end()")
    assert any_kernel.value(IDLE) == "<Handlers.SIG_IGN: 1>"
    any_kernel.interrupt()
    assert any_kernel.value("1 + 1") == "2"
    assert cell.text.count("an interrupt") == 2


def test_a_handler_of_somebody_else_stays(kernel: Kernel) -> None:
    kernel.run("import signal\ndef theirs(number, frame): print('theirs')")
    kernel.run(f"{IDLE} = theirs")
    kernel.run(LOOP).until_text("begun")
    assert kernel.value(f"{IDLE} is theirs") == "True"
    kernel.run("it2nb.current().end()")
    assert kernel.value(f"{IDLE} is theirs") == "True"
    kernel.run(f"{IDLE} = signal.SIG_IGN")


@pytest.mark.parametrize("with_tracker", [False, True])
def test_an_interrupt_of_a_cell_leaves_the_processes_of_the_run_alone(
    kernel: Kernel, with_tracker: bool
) -> None:
    kernel.run(f"import threading\ngo, with_tracker = threading.Event(), {with_tracker}")
    kernel.run("before, after = 0, 1")
    kernel.run(WORKER)
    kernel.run("go.set()\nwhile not it2nb.current().is_ended: pass")
    assert kernel.value("before == after") == "True"
