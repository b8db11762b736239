"""The cell of a program: its text with calls around the updates, or hooks in their place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from it2nb.pytorch import code_text as text
from it2nb.pytorch.code_cell import Cell, indented

if TYPE_CHECKING:
    from it2nb.pytorch.code_changes import Changes


class Body:
    """The cell with its calls, or hooks in their place.

    Parameters
    ----------
    program : Changes
    cell : str
        Its text.
    """

    def __init__(self, program: Changes, cell: str) -> None:
        self._program = program
        self._cell = cell
        self._options = str((program.recording.cell or {}).get("options") or "")
        self._at = str((program.recording.cell or {}).get("at") or "optimizer")

    def text(self) -> str:
        """Return the cell, seeded and steered."""
        program = self._program
        found = self._steered()
        if "stop" in program.needs:
            found = self._stoppable(found)
        return self._seeded() + f"\n# The cell.\n{found}"

    def _seeded(self) -> str:
        seed = self._program.seed
        if seed is None:
            return ""
        return f"\nrandom.seed({seed})\nnumpy.random.seed({seed})\ntorch.manual_seed({seed})\n"

    def _steered(self) -> str:
        program = self._program
        if not program.before and not program.after:
            return self._cell
        optimizers = [n.partition(" ")[2] for n in program.names if n.startswith("optimizer ")]
        try:
            cell = Cell(self._cell)
        except SyntaxError:
            return self._hooked(optimizers)
        if self._at == "loop":
            if not cell.turns():
                program.left_out.append("the loop is in a function outside of the cell")
            return text.TURNS + text.WHILE + "\n\n" + cell.text()
        found = [(name, step) for name in optimizers for step in cell.steps_of(name)]
        if not found:
            return self._hooked(optimizers)
        found.sort(key=lambda each: each[1].lineno)
        counting = self._steps_of() or found[0][0]
        for name, step in found:
            before = f'before_update("{name}")' if program.is_many else "before_update()"
            cell.around(
                step,
                before if program.acts_before else "",
                "after_update()" if name == counting else "",
            )
        return cell.text()

    def _steps_of(self) -> str | None:
        found = re.search(r"--steps-of[ =](\S+)", self._options)
        return found[1] if found else None

    def _hooked(self, optimizers: list[str]) -> str:
        """The steps are made elsewhere: let the optimizer itself call."""
        program = self._program
        if len(optimizers) != 1:
            program.left_out.append("the cell does not show where its optimizers make their steps")
            return self._cell
        [name] = optimizers
        lines = ["handles = ["]
        if program.acts_before:
            lines.append(f"    {name}.register_step_pre_hook(lambda *_: before_update()),")
        lines.append(f"    {name}.register_step_post_hook(lambda *_: after_update()),")
        lines += ["]", self._cell.rstrip("\n"), "for handle in handles:", "    handle.remove()"]
        return "\n".join(lines) + "\n"

    def _stoppable(self, body: str) -> str:
        try:
            inside = indented(body.strip("\n"))
        except SyntaxError:
            return body  # it ends with the exception's traceback instead
        return f"try:\n{inside}\nexcept Stopped:\n    pass\n"
