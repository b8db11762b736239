"""The life of a run: its beginning, its one end, and the wait for it."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, cast

from it2nb.core import lifetime
from it2nb.core.asking import Asking
from it2nb.core.ballast import frameless
from it2nb.core.control import RunStatus, StopTraining
from it2nb.core.declaring import Declaring
from it2nb.core.drifted import tell_ended
from it2nb.core.errors import It2nbWarning, SessionEnded, WrongThread
from it2nb.core.faults import Fault, guard, is_pressed

if TYPE_CHECKING:
    from it2nb.core.patience import Patience
    from it2nb.core.queue import ActionHandle
    from it2nb.core.session import Session

#: Requests that came to nothing and are named when the run ends.
UNREAD = 10


class Life(Declaring, Asking):
    """The part of a session that begins and ends its run, and lets others wait for the end."""

    error_line: int | None
    exception: BaseException | None
    serving: ActionHandle | None
    waiter: Callable[[Session, float | None], None] | None
    awaiter: Callable[[Session], Awaitable[None]] | None
    _attention: bool
    _running: bool
    _put_off: tuple[RunStatus | None, str | None, bool] | None
    patience: Patience

    def start(self) -> Self:
        """Begin the run; the first control point does it too. Any thread, idempotent."""
        if not self._began and not self._ended.is_set():
            self._began = True
            self._started_t = self.t
            self.change_status("running")
        return self

    def end(self, status: RunStatus | None = None, error: str | None = None) -> None:
        """End the run: every request gets its result, the journal is sealed. Idempotent.

        From another thread than the training thread it stops the run first, and waits for up
        to ten seconds until the loop has left.
        """
        if self._owner is not None and not self.on_training_thread and self._owner_lives():
            self.stop()
            self._ended.wait(10.0)
        self.finish(status, error)

    def finish(self, status: RunStatus | None = None, error: str | None = None) -> None:
        """End the run here and now, whichever thread calls; see `end`.

        From inside of a request's handler it ends as soon as the request has its result.
        """
        if self.serving is not None and self.on_training_thread and not self._ended.is_set():
            self._put_off = self._put_off or (status, error, self._stopping)
            self._stopping = self._attention = True
            return
        self._finish(status, error, self._stopping)

    def finish_put_off(self) -> None:
        """End the run, where a handler asked for it. Training thread, between two requests."""
        if self._put_off is not None and self.serving is None:
            status, error, was_stopping = self._put_off
            self._put_off = None
            self._finish(status, error, was_stopping)

    def _finish(self, status: RunStatus | None, error: str | None, was_stopping: bool) -> None:
        pressed: KeyboardInterrupt | None = None
        with self._ending:
            if self._ended.is_set():
                return
            self.error = error or self.error
            final = status or ("stopped" if was_stopping else "finished")
            self._stopping = True
            self._attention = True
            self.door.close(f"the run is over ({final})")
            if self.noted and self.on_training_thread:
                with guard("metrics noted after the last step", self.report):
                    self.record(self.with_noted())
            with guard("metrics that never came", self.report):
                self.expected.close()
            with guard("a loss that is no number", self.report):
                self.odd_loss.look()
            if self.on_training_thread or not self._owner_lives():
                # Else the loop hangs, and what holds it may hold what a knob has to read.
                with guard("the last values of the knobs", self.report):
                    tell_ended(cast("Session", self))
            while self._on_end:
                pressed = self._tell_end("on_end", self._on_end.pop(0)) or pressed
            if self._ended.is_set():  # one of them ended it
                if pressed is not None:
                    raise pressed
                return
            self._elapsed = self.t - self._started_t
            if self._status != final:
                self.change_status(final)
            self._owner = None
            self._owner_thread = None
            with guard("closing the journal", self.report):
                self.journal.close()
            self._ended.set()
            waiting, self._when_ended = self._when_ended, []
        lifetime.forget(cast("Session", self))
        with guard("telling of requests that came to nothing"):
            self._tell_unread()
        for tell in waiting:
            pressed = self._tell_end("when_ended", tell) or pressed
        if pressed is not None:
            raise pressed

    def _tell_end(self, what: str, call: Callable[[], Any]) -> KeyboardInterrupt | None:
        """Call one who waits for the end: nothing that it raises keeps the run from its end.

        Returns
        -------
        KeyboardInterrupt or None
            Ctrl-C that came meanwhile, to be raised when all is done.
        """
        pressed: KeyboardInterrupt | None = None
        with guard(f"{what} {getattr(call, '__name__', call)}", self.report, passes=()):
            try:
                call()
            except KeyboardInterrupt as error:
                if not is_pressed(error):
                    raise
                pressed = error
        return pressed

    def _tell_unread(self) -> None:
        """Say once what a script asked for in vain and never looked at."""
        unread = self.queue.unread()
        if not unread:
            return
        told = "\n  ".join(str(each) for each in unread[:UNREAD])
        more = f"\n  and {len(unread) - UNREAD} more" if len(unread) > UNREAD else ""
        many = "1 request" if len(unread) == 1 else f"{len(unread)} requests"
        warnings.warn(
            f"{many} of run {self.run_id} came to nothing, and what came of them was not looked "
            f"at (handle.result(), handle.status, journal.requests()):\n  {told}{more}",
            It2nbWarning,
            stacklevel=4,
        )

    @contextmanager
    def run(self) -> Iterator[Self]:
        """Start, and end when the block is left: finished, stopped, or failed with its error.

        Raises
        ------
        SessionEnded
            If the run is over, or runs already: a run has one beginning and one end.
        """
        if self.rounds is not None and self.on_training_thread:
            # A training that is one round of several: beginning and end are the rounds'.
            yield self
            return
        if self._ended.is_set() or self._running:
            state = f"is over ({self._status})" if self._ended.is_set() else "runs already"
            raise SessionEnded(
                f"run {self.run_id} {state}; make a new TrainingSession for another run"
            )
        self._running = True
        self.start()
        try:
            yield self
        except StopTraining:
            self.finish("stopped")
        except BaseException as error:
            # Ctrl-C and SystemExit end a run as well: its row is written, and they go on.
            self.fail(error)
            raise
        else:
            self.finish()

    def fail(self, error: BaseException, line: int | None = None) -> None:
        """End the run because the loop raised `error`."""
        fault = Fault("training loop")
        fault.catch(error)
        self.exception = self.exception or frameless(error, fault.traceback)
        self.error_line = line
        self.emit(
            "run_failed",
            {"error": fault.error, "traceback": fault.traceback[-8000:], "line": line},
        )
        self.finish("failed", fault.error)

    def wait(self, timeout: float | None = None) -> RunStatus:
        """Wait for the end of the run. Any thread but the training thread.

        Ending the wait does not end the run.

        Returns
        -------
        str
            The status at the end.

        Raises
        ------
        TimeoutError
            If it has not ended within `timeout` seconds.
        BaseException
            What the loop raised, when it failed.
        """
        if self.on_training_thread:
            raise WrongThread("the training thread can't wait for itself to end")
        if self.waiter is not None:
            self.waiter(cast("Session", self), timeout)
        else:
            self._ended.wait(timeout)
        if not self._ended.is_set():
            raise TimeoutError(
                f"run {self.run_id} is still {self._status} at step {self._step} after "
                f"{timeout} s; {self._what_next()}"
            )
        if self._status == "failed" and self.exception is not None:
            raise self.exception
        return self._status

    def __await__(self) -> Generator[Any, None, RunStatus]:
        """Wait for the end in an event loop: ``await session``; see `wait`."""
        yield from (self.awaiter or until_ended)(cast("Session", self)).__await__()
        return self.wait(0)

    def change_status(self, status: RunStatus) -> None:
        """Move to another status and write it down."""
        self._status = status
        payload: dict[str, Any] = {"status": status}
        if self.error is not None:
            payload["error"] = self.error
        self.emit("status_changed", payload)

    def _what_next(self) -> str:
        """Say what a run does that was waited for in vain."""
        if self._status == "paused":
            return "it waits to be resumed: session.resume() lets it go on, session.stop() ends it"
        held = self.patience.held()
        return "it goes on: session.stop() ends it" if held is None else held


async def until_ended(session: Session) -> None:
    """Wait in an event loop until a session has ended."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def tell() -> None:
        with suppress(RuntimeError):  # the loop may be closed by then
            loop.call_soon_threadsafe(over.set)

    remove = session.when_ended(tell)
    try:
        await over.wait()
    finally:
        remove()
