"""C24: a wait in a cell serves the panel, on every supported ipykernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .kernels import Cell, Kernel

pytestmark = pytest.mark.kernel

SETUP = """
import asyncio, comm, threading
got = []

def opened(channel, message):
    got.append(message["content"]["data"])
    channel.on_msg(lambda m: serve(m["content"]["data"]))

def serve(data):
    got.append(data)
    if "do" in data:
        it2nb.current().submit({"type": data["do"]}, source="panel")

comm.get_comm_manager().register_target("test", opened)
"""

LOOP = """%%it2 --no-panel --at loop
turns = 0
print("begun")
while True:
    turns += 1
"""


@pytest.fixture
def run(any_kernel: Kernel) -> Iterator[Kernel]:
    """A kernel with a run that goes on until it is stopped, and an open comm."""
    any_kernel.run(SETUP)
    any_kernel.run(LOOP).until_text("begun")
    any_kernel.send_comm("c1", {"hello": 1}, kind="comm_open")
    yield any_kernel
    any_kernel.run("it2nb.current().end()")


WAITS = {
    "wait": "print('waiting'); print('ended', it2nb.current().wait())",
    "magic": "print('waiting')\n%it2 wait\nprint('ended', it2nb.current().status)",
    "await": "print('waiting'); print('ended', await it2nb.current())",
}


def waiting(run: Kernel, how: str) -> Cell:
    """Run a cell until it waits indeed: it serves a comm message then."""
    cell = run.execute(WAITS[how]).until_text("waiting")
    sent = run.send_comm("c1", {"there": 1})
    run.until(
        lambda: any(each["parent_header"].get("msg_id") == sent for each in run.seen()),
        "a comm message served in the wait",
    )
    return cell


@pytest.mark.parametrize("how", WAITS)
def test_stop_on_the_panel_ends_the_wait_c24(run: Kernel, how: str) -> None:
    cell = run.execute(WAITS[how]).until_text("waiting")
    run.send_comm("c1", {"do": "stop"})
    cell.wait()
    assert "ended stopped" in cell.text


@pytest.mark.parametrize("how", WAITS)
def test_cells_behind_it_run_afterwards_in_order_c24(run: Kernel, how: str) -> None:
    run.run("order = []")
    waiting = run.execute(WAITS[how] + "\norder.append('wait')").until_text("waiting")
    behind = [run.execute(f"order.append({n}); got") for n in range(3)]
    run.send_comm("c1", {"note": 1})
    run.send_comm("c1", {"do": "stop"})
    for cell in (waiting, *behind):
        cell.wait()
    assert run.value("order") == "['wait', 0, 1, 2]"
    assert run.value("got") == "[{'hello': 1}, {'note': 1}, {'do': 'stop'}]"


@pytest.mark.parametrize("how", WAITS)
def test_a_click_before_the_wait_began_is_not_stuck_behind_it_c24(run: Kernel, how: str) -> None:
    """The kernel has read it, and would come to it only after the cell that waits for it."""
    spinning = run.execute("import os\nprint('spins')\nwhile not os.path.exists('go'): pass")
    spinning.until_text("spins")
    waiting = run.execute(WAITS[how])
    run.send_comm("c1", {"do": "stop"})
    run.send_comm("c1", {"note": 2})
    (run.folder / "go").touch()
    waiting.wait()
    (run.folder / "go").unlink()
    assert "ended stopped" in waiting.text
    assert run.value("got") == "[{'hello': 1}, {'do': 'stop'}, {'note': 2}]"


@pytest.mark.parametrize("how", ["wait", "magic"])
def test_an_interrupt_ends_the_wait_alone_c24(run: Kernel, how: str) -> None:
    cell = waiting(run, how)
    behind = run.execute("'not run: the cell before it failed'")
    run.interrupt()
    cell.wait(fails=True)
    assert "the wait is over, the run is not" in cell.error
    assert "%it2 stop ends it" in cell.error
    assert len(cell.error.splitlines()) == 1, cell.error
    assert cell.messages("error")[0]["content"]["ename"] == "WaitInterrupted"
    assert run.reply(behind.id)["content"]["status"] == "aborted"
    before = int(run.value("turns"))
    run.run(f"while turns <= {before}: pass")
    assert run.value("it2nb.current().status") == "'running'"


def test_an_interrupt_of_an_await_says_the_same_c24(run: Kernel) -> None:
    cell = waiting(run, "await")
    run.interrupt()
    cell.wait(fails=True)
    cell.until_text("the wait is over, the run is not")
    assert run.value("it2nb.current().status") == "'running'"
    # And comms are served by the kernel itself again.
    run.send_comm("c1", {"after": 1})
    run.until(lambda: "after" in run.value("got"), "the message after the wait")


@pytest.mark.parametrize(
    "code",
    ["it2nb.current().wait(0.2)", "await asyncio.wait_for(it2nb.current(), 0.2)"],
)
def test_the_time_limit_raises_c24(run: Kernel, code: str) -> None:
    cell: Cell = run.run(code, fails=True)
    assert "TimeoutError" in cell.error
    assert run.value("it2nb.current().status") == "'running'"


def test_the_status_tells_how_a_run_ends_that_an_interrupt_does_not_reach(run: Kernel) -> None:
    assert "interrupt button does not reach it: %it2 stop ends it" in run.run("%it2 status").shown
    run.run("it2nb.current().end()")
    assert "interrupt button" not in run.run("%it2 status").shown


def test_the_verb_tells_that_the_run_goes_on_when_its_time_is_over(run: Kernel) -> None:
    assert "it still runs; waited 0.2 s" in run.run("%it2 wait 0.2").shown
    assert run.value("it2nb.current().status") == "'running'"


def test_comm_messages_have_busy_and_idle_of_their_own(run: Kernel) -> None:
    cell = run.execute(WAITS["wait"]).until_text("waiting")
    run.send_comm("c1", {"note": 3})
    run.send_comm("c1", {"do": "stop"})
    cell.wait()
    states: dict[str, list[str]] = {}
    for each in run.seen():
        if each["msg_type"] == "status" and each["parent_header"].get("msg_type") == "comm_msg":
            parent = each["parent_header"]["msg_id"]
            states.setdefault(parent, []).append(each["content"]["execution_state"])
    assert list(states.values())[-2:] == [["busy", "idle"], ["busy", "idle"]]


def test_a_wait_on_another_thread_is_a_plain_one(run: Kernel) -> None:
    run.run(
        "ended = []\n"
        "waiter = threading.Thread(target=lambda: ended.append(it2nb.current().wait()))\n"
        "waiter.start()\n"
        "it2nb.current().stop()\nwaiter.join(60)"
    )
    assert run.value("ended") == "['stopped']"


def test_a_kernel_that_hides_its_socket_gets_a_plain_wait_and_says_so(run: Kernel) -> None:
    cell = run.execute(
        "from unittest import mock\nfrom it2nb.notebook import shell_messages\n"
        "with mock.patch.object(shell_messages, '_shell_stream', "
        "side_effect=shell_messages.NoShellSocket('it is hidden')):\n"
        "    print('waiting')\n"
        "    try:\n        it2nb.current().wait(0.2)\n"
        "    except TimeoutError:\n        print('in time')\n"
    ).wait()
    assert "in time" in cell.text
    assert "it is hidden" in cell.text


def test_two_awaits_at_once_both_serve_the_panel(run: Kernel) -> None:
    cell = run.execute(
        "other = it2nb.TrainingSession(directory=None)\n"
        "async def both():\n"
        "    print('waiting')\n"
        "    return await asyncio.gather(wait(it2nb.runs()[-2]), wait(other))\n"
        "async def wait(session): return await session\n"
        "other.awaiter = it2nb.runs()[-2].awaiter\n"
        "threading.Timer(0.2, other.end).start()\n"
        "print(await both())"
    ).until_text("waiting")
    run.send_comm("c1", {"note": 9})
    run.send_comm("c1", {"do": "stop"})
    cell.wait()
    assert "['stopped', 'finished']" in cell.text
    run.send_comm("c1", {"after": 2})
    run.until(lambda: "'after': 2" in run.value("got"), "a message after both")
