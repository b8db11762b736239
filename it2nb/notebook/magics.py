"""``%%it2`` and ``%it2``: thin, between IPython and what does the work."""

from __future__ import annotations

import atexit
import os
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand

from it2nb.core.errors import It2nbError
from it2nb.core.faults import guard
from it2nb.core.wire import ActionResult
from it2nb.notebook.cell import compile_cell
from it2nb.notebook.commands import parse_cell, parse_line
from it2nb.notebook.completion import complete
from it2nb.notebook.inline import run_inline
from it2nb.notebook.options import usage
from it2nb.notebook.output import CellOutput
from it2nb.notebook.plan import plan_of
from it2nb.notebook.rebinding import RebindingWatch
from it2nb.notebook.runner import running
from it2nb.notebook.starting import start
from it2nb.notebook.verbs import run_command
from it2nb.notebook.warmup import WarmUp
from it2nb.notebook.words import CommandError, expanded

#: At the end of the process a run gets this long to reach its next control point, seconds.
#: A server kills a kernel that takes longer than 2.5 to end.
LAST_STEP_S = 1.5


class Refused(It2nbError):
    """A cell was not started, or a line not carried out; shown without our own frames."""

    def _render_traceback_(self) -> list[str]:
        return [f"it2nb: {self}"]


@magics_class
class It2Magics(Magics):
    """The magics of one shell."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.warm_up = WarmUp()
        self.rebinding = RebindingWatch(shell)
        self._raw: str | None = None

    # --- the cell ---------------------------------------------------------------------------

    @no_var_expand
    @cell_magic("it2")  # type: ignore[arg-type]  # IPython leaves its decorators untyped
    def it2_cell(self, line: str, cell: str) -> None:
        """Run the cell's loop in the background, steered by a panel; ``%it2 help``."""
        __tracebackhide__ = True
        shell: Any = self.shell
        options = _understood(lambda text: parse_cell(expanded(text, shell.user_ns)), line)
        if options.help:
            print(usage())
            return
        if os.environ.get("IT2NB_OFF") == "1":
            header = f"%%it2 {line}".rstrip()
            run_inline(shell, compile_cell(shell, header, cell, raw=self._raw))
            return
        output = CellOutput(shell)
        waits = options.wait if options.wait is not None else not output.allows_stdin
        try:
            plan = plan_of(shell, line.strip(), options, cell, self._raw)
            run = start(shell, plan, output, waits=waits)
        except It2nbError as err:
            raise Refused(str(err)) from None
        self.rebinding.follow(run.session, run.wiring.bound_names)
        if waits:
            try:
                run.session.wait()
            finally:
                run.cell_waits = False

    # --- the line ---------------------------------------------------------------------------

    @line_magic("it2")  # type: ignore[arg-type]
    def it2_line(self, line: str) -> Any:
        """Look at the current run, or ask it for something; ``%it2 help``."""
        __tracebackhide__ = True  # IPython leaves such frames out
        command = _understood(parse_line, line)
        try:
            return run_command(command, self.shell)
        except CommandError as err:
            raise UsageError(str(err)) from None
        except It2nbError as err:
            raise Refused(str(err)) from None

    # --- events of the shell ----------------------------------------------------------------

    def before_cell(self, info: Any) -> None:
        """Keep the raw text of the cell: the magic itself is not told it."""
        self._raw = info.raw_cell
        self.rebinding.before_cell()

    def after_cell(self, result: Any) -> None:
        """Look what the cell did to the running loop, and whether it imported PyTorch."""
        if getattr(self.shell, "kernel", None) is not None:
            self.warm_up.after_cell()
        self._raw = None
        info = getattr(result, "info", None)
        self.rebinding.after_cell(getattr(info, "raw_cell", None) or "")


def _understood(parse: Any, line: str) -> Any:
    try:
        return parse(line)
    except CommandError as err:
        # A usage error shows one line, not a traceback through us.
        raise UsageError(str(err)) from None


_loaded: dict[int, It2Magics] = {}


def load(shell: Any) -> None:
    """Register the magics with a shell; twice is once."""
    if id(shell) in _loaded:
        return
    magics = It2Magics(shell)
    shell.register_magics(magics)
    # A result as one line, not as a dump of its fields.
    plain = shell.display_formatter.formatters["text/plain"]
    plain.for_type(ActionResult, lambda result, printer, cycle: printer.text(str(result)))
    shell.events.register("pre_run_cell", magics.before_cell)
    shell.events.register("post_run_cell", magics.after_cell)
    shell.set_hook("complete_command", complete, str_key="%it2")
    _loaded[id(shell)] = magics
    if getattr(shell, "kernel", None) is not None:
        # The first cell shows its panel at once when all is imported by then.
        magics.warm_up.begin()


def unload(shell: Any) -> None:
    """Take the magics away; a live run goes on."""
    magics = _loaded.pop(id(shell), None)
    if magics is None:
        return
    shell.events.unregister("pre_run_cell", magics.before_cell)
    shell.events.unregister("post_run_cell", magics.after_cell)
    shell.magics_manager.magics["line"].pop("it2", None)
    shell.magics_manager.magics["cell"].pop("it2", None)


@atexit.register
def _at_exit() -> None:
    """The kernel ends: a live run is stopped in good order, and told to have been cut."""
    for run in running.all():
        with guard("ending a run at exit"):
            run.cut(LAST_STEP_S)
