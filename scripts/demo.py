"""Run a notebook without a browser, with a hand on its panel.

    python -m scripts.demo notebooks/01_quickstart.ipynb --out demo-out

Starts a kernel, runs the notebook cell by cell as JupyterLab would, and while cells run presses
what a person could press in the panel: the lr slider, a wrong value, pause, resume, evaluate,
save, and in the last wait stop. Writes the executed notebook and the run's journal, and says what
became of each request. Ends with 1 when a cell raised or a request was not answered as it should.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import nbformat

from scripts.kernel_client import CellError, KernelClient

ANSWER_S = 60.0
WIDGET = "application/vnd.jupyter.widget-view+json"


@dataclass(frozen=True)
class Press:
    """One thing that a person does in the panel, and the status that has to come of it."""

    type: str
    payload: dict[str, Any]
    expected: str


# What is pressed while which cell runs, by the cell's id in the notebook.
STEER = (
    Press("set_knob", {"name": "lr", "value": 2e-3}, "applied"),
    Press("set_knob", {"name": "lr", "value": "fast"}, "rejected"),
    Press("set_knob", {"name": "shift", "value": 99}, "clamped"),
    Press("pause", {}, "applied"),
    Press("set_knob", {"name": "shift", "value": 0}, "applied"),
    Press("resume", {}, "applied"),
    Press("evaluate", {}, "applied"),
    Press("save_checkpoint", {"tag": "demo"}, "applied"),
)
PRESSES = {"until": STEER, "wait": (Press("stop", {}, "applied"),)}


class Panel:
    """The panel's end of the channel: asks, and hears the rows that answer."""

    def __init__(self, kernel: KernelClient) -> None:
        self._kernel = kernel
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._ready = asyncio.Event()
        self._client = f"demo-{uuid4().hex[:8]}"
        kernel.on_widget = self._hear

    async def open(self) -> None:
        """Say hello to the panel that the notebook opened, and wait for its snapshot."""
        self._send("hello")
        await asyncio.wait_for(self._ready.wait(), ANSWER_S)

    async def press(self, press: Press) -> dict[str, Any]:
        """Send one request and return the journal row of its result."""
        action = {"v": 2, "id": uuid4().hex, "type": press.type, "payload": press.payload}
        answer = asyncio.get_running_loop().create_future()
        self._answers[str(action["id"])] = answer
        self._send("submit", action=action)
        row: dict[str, Any] = await asyncio.wait_for(answer, ANSWER_S)
        return row

    def _send(self, kind: str, **content: Any) -> None:
        controls = [
            state["control"] for state in self._kernel.widgets.values() if "panel_id" in state
        ]
        if not controls:
            raise RuntimeError("the notebook has opened no panel; does it start a %%it2 cell?")
        message = {"v": 2, "kind": kind, "client": self._client, **content}
        self._kernel.send(controls[-1].removeprefix("IPY_MODEL_"), message)

    def _hear(self, widget: str, content: dict[str, Any], buffers: list[bytes]) -> None:
        if content.get("kind") == "snapshot":
            self._ready.set()
        for row in content.get("rows") or ():
            if row["type"] != "action_result":
                continue
            answer = self._answers.get(row["action_id"])
            if answer is not None and not answer.done():
                answer.set_result(row)


async def press_all(panel: Panel, presses: tuple[Press, ...]) -> list[str]:
    """Press one after the other; return what did not go as it should."""
    wrong: list[str] = []
    if presses:
        await panel.open()
    for press in presses:
        began = time.monotonic()
        row = await panel.press(press)
        took_ms = (time.monotonic() - began) * 1e3
        said = f"{press.type} {press.payload or ''}: {row['status']}"
        print(f"  panel  {said} at step {row['step']}, {took_ms:.0f} ms", flush=True)
        if row["status"] != press.expected:
            wrong.append(f"{said} ({row['reason']}), not {press.expected}")
    return wrong


async def run(
    notebook: Path, out: Path, *, hands_off: bool = False, static: bool = False
) -> list[str]:
    """Execute ``notebook`` into ``out``; return what went wrong, in words.

    Parameters
    ----------
    hands_off : bool
        Run the cells alone and press nothing; the run may be in another process.
    static : bool
        Leave widgets out of the written notebook: without their kernel they are shown as an
        error. The picture beside them stays.
    """
    book = nbformat.read(notebook, as_version=4)
    work = out / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    wrong: list[str] = []
    async with KernelClient(work) as kernel:
        panel = Panel(kernel)
        for number, cell in enumerate(book.cells):
            if cell.cell_type != "code":
                continue
            cell.outputs = []
            presses = () if hands_off else PRESSES.get(cell.get("id"), ())
            began = time.monotonic()
            hand = asyncio.create_task(press_all(panel, presses))
            try:
                await kernel.execute(cell.source, cell.outputs)
                wrong += await hand
            except (CellError, TimeoutError, RuntimeError) as error:
                wrong.append(f"cell {number} ({cell.get('id')}): {error}")
                break
            finally:
                hand.cancel()
            print(f"cell {number} ({cell.get('id')}): {time.monotonic() - began:.2f} s", flush=True)
    write(book, out / notebook.name, static=static)
    for journal in sorted(work.glob("it2runs/*/journal.jsonl")):
        shutil.copy(journal, out / "journal.jsonl")
    if not hands_off and not (out / "journal.jsonl").exists():
        wrong.append("no journal was written")
    return wrong


def write(book: Any, path: Path, *, static: bool = False) -> None:
    """Write the executed notebook."""
    for number, cell in enumerate(c for c in book.cells if c.cell_type == "code"):
        cell.execution_count = number + 1
        if static:
            cell.outputs = [o for o in cell.outputs if WIDGET not in o.get("data", {})]
        for output in cell.outputs:
            output.pop("transient", None)
            if output.output_type == "execute_result":
                output.execution_count = number + 1
    nbformat.write(book, path)


def main(arguments: list[str] | None = None) -> int:
    """Run the demo from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--out", type=Path, default=Path("demo-out"))
    parser.add_argument("--hands-off", action="store_true", help="press nothing in the panel")
    parser.add_argument(
        "--static", action="store_true", help="leave out what needs a kernel to be shown"
    )
    asked = parser.parse_args(arguments)
    began = time.monotonic()
    wrong = asyncio.run(
        run(asked.notebook, asked.out, hands_off=asked.hands_off, static=asked.static)
    )
    print(f"{asked.out / asked.notebook.name} and its journal, {time.monotonic() - began:.0f} s")
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
