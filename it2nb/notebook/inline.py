"""A cell in its place, as if there were no magic: ``IT2NB_OFF=1``."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
import threading
from typing import Any

from it2nb.notebook.cell import Cell


def run_inline(shell: Any, cell: Cell) -> None:
    """Run a compiled cell on the calling thread, and show its last value as IPython does."""
    value = eval(cell.code, shell.user_global_ns, shell.user_ns)
    if inspect.iscoroutine(value):
        value = _on_a_loop(_whole(value, shell, cell))
    elif cell.last is not None:
        value = eval(cell.last, shell.user_global_ns, shell.user_ns)
        if cell.last.co_flags & inspect.CO_COROUTINE:
            value = _on_a_loop(value)
    if value is not None:
        sys.displayhook(value)


async def _whole(body: Any, shell: Any, cell: Cell) -> Any:
    await body
    if cell.last is None:
        return None
    value = eval(cell.last, shell.user_global_ns, shell.user_ns)
    return await value if cell.last.co_flags & inspect.CO_COROUTINE else value


def _on_a_loop(coroutine: Any) -> Any:
    """Run a coroutine to its end beside the kernel's own loop, which is busy with this cell."""
    kept: list[Any] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            kept.append(asyncio.run(coroutine))
        # Handed to the cell as it is.
        except BaseException as err:  # noqa: BLE001
            failed.append(err)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return kept[0]
