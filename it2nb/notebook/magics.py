"""``%%it2`` and ``%it2``: thin, between IPython and what does the work."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import importlib
import inspect
import os
import sys
import threading
from dataclasses import replace
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand

from it2nb.core.errors import It2nbError
from it2nb.core.faults import guard
from it2nb.core.recording import cell_row
from it2nb.core.replay import replay
from it2nb.core.session import Session
from it2nb.core.wire import ActionResult
from it2nb.notebook.cell import Cell, compile_cell
from it2nb.notebook.commands import CellOptions, parse_cell, parse_line
from it2nb.notebook.completion import complete
from it2nb.notebook.control_points import own_session
from it2nb.notebook.loops import wrap
from it2nb.notebook.names import names_of, reach
from it2nb.notebook.options import usage
from it2nb.notebook.output import CellOutput
from it2nb.notebook.rebinding import RebindingWatch
from it2nb.notebook.runner import Run, running
from it2nb.notebook.verbs import run_command
from it2nb.notebook.wiring import Wiring
from it2nb.notebook.words import CommandError
from it2nb.session import TrainingSession

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
        self.rebinding = RebindingWatch(shell)
        self._raw: str | None = None

    # --- the cell ---------------------------------------------------------------------------

    @no_var_expand
    @cell_magic("it2")  # type: ignore[arg-type]  # IPython leaves its decorators untyped
    def it2_cell(self, line: str, cell: str) -> None:
        """Run the cell's loop in the background, steered by a panel; ``%it2 help``."""
        __tracebackhide__ = True
        shell: Any = self.shell
        options = _understood(parse_cell, line)
        if options.help:
            print(usage())
            return
        header = f"%%it2 {line}".rstrip()
        if os.environ.get("IT2NB_OFF") == "1":
            run_inline(shell, compile_cell(shell, header, cell, raw=self._raw))
            return
        loops_found = 0

        def rewrite(tree: Any) -> Any:
            nonlocal loops_found
            tree, loops_found = wrap(tree)
            return tree

        compiled = compile_cell(shell, header, cell, raw=self._raw, rewrite=rewrite)
        output = CellOutput(shell)
        waits = options.wait if options.wait is not None else not output.allows_stdin
        try:
            run = running.begin(
                shell.user_ns,
                lambda: self._make(compiled, options, output, loops_found, waits, line.strip()),
            )
        except It2nbError as err:
            raise Refused(str(err)) from None
        self.rebinding.follow(run.session, run.wiring.bound_names)
        if waits:
            try:
                run.session.wait()
            finally:
                run.cell_waits = False

    def _make(
        self,
        cell: Cell,
        options: CellOptions,
        output: CellOutput,
        loops_found: int,
        waits: bool,
        line: str,
    ) -> Run:
        shell: Any = self.shell
        if options.session is None:
            names = reach(names_of(cell.code, cell.last), shell.user_ns)
            options = replace(options, session=own_session(names, shell.user_ns))
        again = None if options.replay is None else replay(options.replay)
        if again is not None:
            again.check(cell.text, go_on=options.go_on)
        session = _session(options, shell.user_ns, cell)
        if again is not None:
            again.attach(session, go_on=options.go_on)
        wiring = Wiring(session, cell, options, shell.user_ns, loops_found)
        session.emit("source_cell", cell_row(cell.text, line, wiring.at))
        wiring.check()
        wiring.connect()
        run = Run(shell, cell, session, wiring, output, heartbeat=options.heartbeat)
        run.cell_waits = waits
        if options.panel:
            with guard("showing the panel", session.report):
                _show_panel(session)
        return run

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
        """Look what the cell did to the running loop."""
        self._raw = None
        info = getattr(result, "info", None)
        self.rebinding.after_cell(getattr(info, "raw_cell", None) or "")


def _understood(parse: Any, line: str) -> Any:
    try:
        return parse(line)
    except CommandError as err:
        # A usage error shows one line, not a traceback through us.
        raise UsageError(str(err)) from None


def _session(options: CellOptions, namespace: dict[str, Any], cell: Cell) -> Session:
    """Make the run's session, or take the user's."""
    if options.session is not None:
        session = namespace.get(options.session)
        if not isinstance(session, Session):
            what = "there is no such variable" if session is None else f"it is a {type(session)}"
            raise It2nbError(f"--session {options.session}: {what}; give a TrainingSession")
        if session.is_ended:
            raise It2nbError(
                f"--session {options.session}: {session.run_id} is over ({session.status}); a "
                f"session is one run, so make a new one in this cell's place"
            )
        if options.evaluate is None and options.title:
            session.title = options.title
        session.watch.extend(each.name for each in options.watch if each.name not in session.watch)
    else:
        directory = options.directory or "it2runs"
        session = TrainingSession(
            options.goal,
            directory=None if directory == "none" else directory,
            title=options.title,
            watch=[each.name for each in options.watch],
            seed=options.seed,
        )
    if options.steps is not None:
        session.total_steps = options.steps
    if options.seed is not None:
        session.seed = options.seed
    session.source_cell = cell.text
    return session


def _show_panel(session: Session) -> None:
    from IPython.display import display

    from it2nb.notebook.panel import Panel

    display(Panel(session))


def run_inline(shell: Any, cell: Cell) -> None:
    """Run a cell in its place, as if there were no magic (``IT2NB_OFF=1``)."""
    space = shell.user_ns

    async def whole(body: Any) -> Any:
        await body
        if cell.last is None:
            return None
        value = eval(cell.last, shell.user_global_ns, space)
        return await value if cell.last.co_flags & inspect.CO_COROUTINE else value

    value = eval(cell.code, shell.user_global_ns, space)
    if inspect.iscoroutine(value):
        value = _on_a_loop(whole(value))
    elif cell.last is not None:
        value = eval(cell.last, shell.user_global_ns, space)
        if cell.last.co_flags & inspect.CO_COROUTINE:
            value = _on_a_loop(value)
    if value is not None:
        sys.displayhook(value)


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
        # The first cell shows its panel at once when the widgets are imported by then.
        threading.Thread(target=_warm_up, name="it2nb-warm-up", daemon=True).start()


def _warm_up() -> None:
    with guard("importing the panel"):
        importlib.import_module("it2nb.notebook.panel")


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
