"""A ``%%it2`` cell in its thread: start, the body, and every way in which it can end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from types import CodeType
from typing import Any

from it2nb.core.control import RunStatus, StopTraining
from it2nb.core.errors import It2nbError
from it2nb.core.faults import guard
from it2nb.core.session import Session
from it2nb.core.switching import switch_interval
from it2nb.notebook import modes
from it2nb.notebook.failure import Failure, failure_of
from it2nb.notebook.interrupts import IdleInterrupts, shield
from it2nb.notebook.loops import PROBE, probe
from it2nb.notebook.output import CellOutput, caught_output, flush, inherited_context
from it2nb.notebook.plan import Plan
from it2nb.notebook.waiting import await_end, untouched, wait_for_end
from it2nb.notebook.wiring import Wiring
from it2nb.panel.heartbeat import Heartbeat


class Run:
    """One run of a cell in a background thread.

    Parameters
    ----------
    shell : InteractiveShell
    plan : Plan
    session : Session
    wiring : Wiring
    output : CellOutput
        Of the cell that starts it.

    Attributes
    ----------
    cell_waits : bool
        Whether the cell that started it shows its error by raising it.
    panel : Panel or None
        What stands under that cell, kept for its picture at the end.
    """

    def __init__(
        self, shell: Any, plan: Plan, session: Session, wiring: Wiring, output: CellOutput
    ) -> None:
        self.session = session
        self.cell = plan.cell
        self.cell_waits = False
        self.panel: Any = None
        self.wiring = wiring
        self._shell = shell
        self._modes = plan.modes
        self._output = output
        wanted = plan.options.heartbeat and output.kernel is not None
        self._heartbeat = Heartbeat(output.send) if wanted else None
        self._thread: threading.Thread | None = None
        kernel = output.kernel
        self._interrupts = IdleInterrupts(kernel, self._answer_interrupt)
        session.output = output.terminal
        headless = not output.allows_stdin
        session.waiter = lambda of, timeout: wait_for_end(of, timeout, kernel, headless=headless)
        session.awaiter = lambda of: await_end(of, kernel, headless=headless)

    @property
    def lives(self) -> bool:
        """Whether it is under way. Any thread."""
        # The thread itself may need a moment to go after the session has ended.
        return self._thread is not None and self._thread.is_alive() and not self.session.is_ended

    def start(self) -> None:
        """Start the thread in the context of the calling cell; returns at once."""
        context = contextvars.copy_context()
        self._shell.user_ns[PROBE] = probe
        self._shell.user_ns_hidden[PROBE] = probe
        self._thread = threading.Thread(
            target=context.run,
            args=(self._run,),
            name=f"it2nb-{self.session.run_id}",
            # A loop that never ends must not keep the process from ending.
            daemon=True,
        )
        self._interrupts.begin()
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait until its thread is gone; False after `timeout` seconds. Any other thread."""
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def cut(self, timeout: float) -> None:
        """The process ends: stop after the step under way, which has `timeout` seconds left."""
        session = self.session
        self._output.show_warning(
            f"it2nb: the kernel ends and cuts {session.run_id} at step {session.step_count}; "
            f"its journal is closed in good order\n"
        )
        session.stop()
        self.join(timeout)
        if not session.is_ended:
            session.finish("stopped", "cut: the process ended before the next step")

    def _answer_interrupt(self) -> None:
        if self.lives:
            self._output.show_warning(
                f"it2nb: an interrupt ends what a cell does; {untouched(self.session)}\n"
            )

    # --- on the training thread -------------------------------------------------------------

    def _run(self) -> None:
        shield()
        with self._output.bound():
            status: RunStatus | None = None
            failure: Failure | None = None
            try:
                with contextlib.ExitStack() as stack:
                    self._enter(stack)
                    try:
                        self._execute()
                    finally:
                        flush()
                        self.wiring.leave()
            except StopTraining:
                status = "stopped"
            # Anything that a cell can raise, SystemExit and KeyboardInterrupt too, ends the run
            # and is kept: out of a thread nobody would ever see it.
            except BaseException as error:  # noqa: BLE001
                failure = failure_of(error, self.cell.filename, self._shell)
            # Nothing of ours is left in the process by now: whoever waits may begin the next run.
            self._end(status, failure)

    def _enter(self, stack: contextlib.ExitStack) -> None:
        """Set up what holds while the cell runs."""
        session = self.session
        stack.enter_context(switch_interval)
        stack.enter_context(inherited_context)
        stack.enter_context(caught_output.entered(self._output))
        if self._heartbeat is not None:
            self._heartbeat.start()
            stack.callback(self._heartbeat.stop)
        probe.enter(self.wiring.loops)
        stack.callback(probe.leave)
        stack.enter_context(modes.entered(self._modes))
        session.start()
        with guard("connecting to the loop", session.report):
            self.wiring.enter()

    def _execute(self) -> None:
        space = self._shell.user_ns
        body = eval(self.cell.code, self._shell.user_global_ns, space)
        if inspect.iscoroutine(body):
            self._on_own_loop(body, space)
            return
        value = None
        if self.cell.last is not None:
            value = eval(self.cell.last, self._shell.user_global_ns, space)
            if inspect.iscoroutine(value) and _awaits(self.cell.last):
                value = _in_loop(value)
        _show(value)

    def _on_own_loop(self, body: Any, space: dict[str, Any]) -> None:
        async def whole() -> None:
            await body
            if self.cell.last is not None:
                value = eval(self.cell.last, self._shell.user_global_ns, space)
                if inspect.iscoroutine(value) and _awaits(self.cell.last):
                    value = await value
                _show(value)

        _in_loop(whole())

    def _end(self, status: RunStatus | None, failure: Failure | None) -> None:
        session = self.session
        self._interrupts.end()
        self.wiring.release()
        if failure is None:
            session.finish(status)
            return
        session.exception = failure.error
        if not self.cell_waits:
            with guard("showing the error", session.report):
                self._output.show_error(failure.name, failure.text, failure.shown)
        session.fail(failure.error, failure.line)


def _awaits(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_COROUTINE)


def _in_loop(coroutine: Any) -> Any:
    """Run a coroutine on an event loop of this thread."""
    with asyncio.Runner() as runner:
        return runner.run(coroutine)


def _show(value: Any) -> None:
    if value is not None:
        from IPython.display import display

        display(value)


class Running:
    """The live run of a namespace: one at a time."""

    def __init__(self) -> None:
        self._runs: dict[int, Run] = {}

    def refuse_second(self, namespace: dict[str, Any]) -> None:
        """Say that another run lives, where one does.

        Raises
        ------
        RunInProgress
        """
        live = self._runs.get(id(namespace))
        if live is not None and live.lives:
            session = live.session
            raise RunInProgress(
                f"{session.run_id} still runs in this namespace ({session.status}, step "
                f"{session.step_count}), and two loops would overwrite each other's variables. "
                f"%it2 panel shows its panel, %it2 wait waits for it, %it2 stop ends it",
                session,
            )

    def begin(self, namespace: dict[str, Any], run: Run) -> None:
        """Start a run; it is the namespace's own from here."""
        self._runs[id(namespace)] = run
        run.start()

    def all(self) -> list[Run]:
        """Return every run that lives."""
        return [run for run in self._runs.values() if run.lives]


class RunInProgress(It2nbError):
    """Another run lives in this namespace.

    Parameters
    ----------
    message : str
        For people.
    session : Session
        The session of the run that lives.
    """

    def __init__(self, message: str, session: Session) -> None:
        super().__init__(message)
        self.session = session


#: The runs of this process.
running = Running()
