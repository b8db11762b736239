"""C34: run-all in a headless runner finishes the run; a kernel that ends says what it cut."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import nbformat
import orjson
import pytest
from jupyter_server.services.kernels.kernelmanager import MappingKernelManager
from nbclient import NotebookClient

from .kernels import Kernel

pytestmark = pytest.mark.kernel


def notebook(*cells: str) -> Any:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.metadata.kernelspec = {"name": "python3", "display_name": "python3", "language": "python"}
    return made


def executed(*cells: str, folder: Path, allow_errors: bool = False) -> Any:
    made = notebook(*cells)
    client = NotebookClient(
        made, timeout=120, allow_errors=allow_errors, resources={"metadata": {"path": str(folder)}}
    )
    # A loop of our own, so that none is left behind.
    asyncio.run(client.async_execute())
    return made


def texts(cell: Any) -> str:
    return "".join(out.get("text", "") for out in cell.outputs)


def rows(folder: Path) -> list[dict[str, Any]]:
    [path] = folder.glob("it2runs/*/journal.jsonl")
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_run_all_in_nbclient_finishes_the_run_c34(tmp_path: Path) -> None:
    made = executed(
        "%load_ext it2nb\nimport it2nb, threading\npause = threading.Event()",
        "%%it2 --watch loss\nfor i in range(30):\n    pause.wait(0.02)\n    print(loss := i)\n",
        "print('then')\nsession = it2nb.current()",
        "print(session.status, len(session.metrics.frame()), i)",
        folder=tmp_path,
    )
    assert texts(made.cells[1]).split() == [str(n) for n in range(30)]
    assert texts(made.cells[3]) == "finished 30 29\n"
    assert any(row["type"] == "journal_sealed" for row in rows(tmp_path))


def picture(cell: Any) -> str:
    """Return the text of the run's picture, which a saved notebook keeps."""
    shown = [each["data"] for each in cell.outputs if "image/png" in each.get("data", {})]
    assert len(shown) == 1
    return str(shown[0]["text/plain"])


def test_the_saved_picture_is_of_the_runs_end(tmp_path: Path) -> None:
    made = executed(
        "%load_ext it2nb",
        "%%it2 --watch loss --no-wait\nwhile True: loss = 1.0",
        "%it2 stop",
        "%it2 wait",
        "%%it2 --watch loss\nfor i in range(100): loss = 10.0 + i",
        folder=tmp_path,
    )
    assert ": stopped, step" in picture(made.cells[1])
    assert ": finished, step 100 of 100\nloss 109" in picture(made.cells[4])


def test_a_paused_run_that_nobody_resumes_fails_the_cell_that_waits(tmp_path: Path) -> None:
    made = executed(
        "%load_ext it2nb\nfrom it2nb.notebook import paused\npaused.PAUSED_S = 0.3",
        "%%it2 --watch loss --rule 'loss > 14: pause'\nfor i in range(100): loss = 10.0 + i",
        folder=tmp_path,
        allow_errors=True,
    )
    told = [line for line in texts(made.cells[1]).splitlines() if "is paused after step 6" in line]
    assert len(told) == 1
    assert "by rule (loss 15 > 14)" in told[0] and "fails in 0.3 s" in told[0]
    [error] = [out for out in made.cells[1].outputs if out.output_type == "error"]
    assert error.ename == "RunStaysPaused"
    for part in ("step 6", "loss 15 > 14", "0.3 s", "resume()", "--no-wait", "stop, lower_lr"):
        assert part in error.evalue
    assert ": paused, step 6 of 100" in picture(made.cells[1])


def test_a_failing_run_fails_its_cell_once_c34(tmp_path: Path) -> None:
    made = executed(
        "%load_ext it2nb",
        "%%it2 --no-panel\nfor i in range(5):\n    1 / (3 - i)\n",
        folder=tmp_path,
        allow_errors=True,
    )
    errors = [out for out in made.cells[1].outputs if out.output_type == "error"]
    assert [error.ename for error in errors] == ["ZeroDivisionError"]
    assert "line 3" in "\n".join(errors[0].traceback)


def test_wait_and_no_wait_say_it_explicitly(kernel: Kernel) -> None:
    kernel.run("import threading\ngo = threading.Event()")
    loop = "for i in range(3): go.wait(60)"
    kernel.run(f"%%it2 --no-panel --no-wait\n{loop}", allow_stdin=False)
    assert kernel.value("it2nb.current().is_ended") == "False"
    kernel.run("go.set()\nit2nb.current().wait()")
    kernel.run(f"%%it2 --no-panel --wait\n{loop}")
    assert kernel.value("it2nb.current().status") == "'finished'"
    kernel.run(f"%%it2 --no-panel\n{loop}", allow_stdin=False)
    assert kernel.value("it2nb.current().status") == "'finished'"


def test_an_interrupted_wait_at_the_end_of_the_cell_leaves_the_run_alone(kernel: Kernel) -> None:
    cell = kernel.execute(
        "%%it2 --no-panel --wait --at loop\nprint('begun')\nturns = 0\nwhile True: turns += 1"
    ).until_text("begun")
    # It waits indeed once it serves a comm message (of no target: the kernel closes it again).
    sent = kernel.send_comm("nobody", {}, kind="comm_open")
    kernel.until(
        lambda: any(each["parent_header"].get("msg_id") == sent for each in kernel.seen()),
        "a comm message served in the wait",
    )
    kernel.interrupt()
    cell.wait(fails=True)
    assert "the wait is over, the run is not" in cell.error
    assert kernel.value("it2nb.current().status") == "'running'"
    kernel.run("it2nb.current().end()")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("while True: turns += 1", None),
        ("while True:\n    turns += 1\n    time.sleep(600)", "cut: the process ended"),
    ],
)
def test_a_kernel_that_ends_stops_its_run_and_seals_the_journal_c34(
    tmp_path: Path, body: str, error: str | None
) -> None:
    kernel = Kernel("installed", tmp_path)
    try:
        kernel.run("%load_ext it2nb\nimport time\nturns = 0")
        cell = kernel.run(f"%%it2 --no-panel --at loop\n{body}")
        kernel.run("while turns < 1: pass")
    finally:
        kernel.close()  # it has to end by itself
    assert kernel.process.returncode == 0
    assert "the kernel ends and cuts" in cell.text
    found = rows(tmp_path)
    assert found[-1]["type"] == "journal_sealed"
    last = [row for row in found if row["type"] == "status_changed"][-1]["payload"]
    assert last["status"] == "stopped"
    assert (last.get("error") is None) if error is None else (error in last["error"])


def test_a_silent_run_gives_signs_of_life_c67(kernel: Kernel) -> None:
    kernel.run("import threading\ngo = threading.Event()")
    cell = kernel.run("%%it2 --no-panel\nfor i in range(2): go.wait(60)")
    beats = lambda: cell.messages("update_display_data")  # noqa: E731
    kernel.until(lambda: len(beats()) >= 2, "two signs of life")
    kernel.run("go.set()\nit2nb.current().wait()")
    # A server counts what comes of a cell as activity, and by default nothing else.
    assert beats()[0]["parent_header"]["msg_type"] == "execute_request"
    assert MappingKernelManager().track_message_type("execute_request")
    # An update of an output that nobody shows: clients ignore it.
    assert beats()[0]["content"]["data"] == {}
    threads = kernel.value("[t.name for t in threading.enumerate() if 'heartbeat' in t.name]")
    assert threads == "[]"


def test_a_silent_run_in_a_thread_of_the_users_own_gives_signs_of_life_c67(
    any_kernel: Kernel,
) -> None:
    cell = any_kernel.run("""
import threading
go = threading.Event()
session = it2nb.TrainingSession(directory=None)
def train():
    with session.run():
        while not go.wait(0.1):
            session.step({"loss": 1.0})
thread = threading.Thread(target=train)
thread.start()""")
    beats = lambda: cell.messages("update_display_data")  # noqa: E731
    any_kernel.until(lambda: len(beats()) >= 2, "two signs of life")
    assert beats()[0]["parent_header"]["msg_type"] == "execute_request"
    any_kernel.run("go.set()\nthread.join()")
    assert (
        any_kernel.value("[t.name for t in threading.enumerate() if 'it2nb-heartbeat' in t.name]")
        == "[]"
    )


def test_signs_of_life_end_with_a_run_that_nobody_has_any_more_c67(kernel: Kernel) -> None:
    kernel.run(
        "import gc, threading\n"
        "beats = lambda: [t for t in threading.enumerate() if 'it2nb-heartbeat' in t.name]\n"
        "made = it2nb.TrainingSession(directory=None).start()"
    )
    assert kernel.value("len(beats())") == "1"
    kernel.run(
        "from it2nb.core import lifetime\nlifetime._runs.remove(made)\ndel made\ngc.collect()"
    )
    kernel.run("for thread in beats(): thread.join(60)")
    assert kernel.value("beats()") == "[]"
    kernel.run("quiet = it2nb.TrainingSession(directory=None, heartbeat=False).start()")
    assert kernel.value("beats()") == "[]"
    kernel.run("quiet.end()")


def test_no_heartbeat_sends_none_c67(kernel: Kernel) -> None:
    kernel.run("go.clear()")
    cell = kernel.run("%%it2 --no-panel --no-heartbeat\nfor i in range(2): go.wait(60)")
    threads = kernel.value("[t.name for t in threading.enumerate() if 'heartbeat' in t.name]")
    assert threads == "[]"
    kernel.run("go.set()\nit2nb.current().wait()")
    assert cell.messages("update_display_data") == []
