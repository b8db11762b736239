"""Session: the state of one live run, and the only thing that changes it."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from it2nb.core import builtin, lifetime
from it2nb.core.actions import ActionRegistry, spec_from
from it2nb.core.bound import Bound
from it2nb.core.control import CONTINUE, RunStatus, StepControl, StopTraining
from it2nb.core.door import Door
from it2nb.core.errors import JournalError, WrongThread
from it2nb.core.faults import Fault, frameless, guard
from it2nb.core.gate import Gate
from it2nb.core.goals import Goal
from it2nb.core.guards import Condition, Guard
from it2nb.core.journal import Journal
from it2nb.core.knobs import Knob, KnobRegistry
from it2nb.core.metrics import MetricStore
from it2nb.core.overview import Pace, overview
from it2nb.core.policy import Policy, Preview
from it2nb.core.preview import foresee
from it2nb.core.queue import ActionHandle
from it2nb.core.turns import Turns
from it2nb.core.wire import Action, ActionResult, Branch, DType, Scale, State, new_id

if TYPE_CHECKING:
    from it2nb.core.replay import Replaying

#: Rows that a fault may write about itself, so that a fault in a loop can't fill the disk.
MAX_FAULT_ROWS = 200


class Session:
    """The state of one live run: knobs, actions, queue, journal, metrics.

    Parameters
    ----------
    goal : str or Goal, optional
        The metric that the run is after, ``"val_loss"``.
    run_id : str, optional
        Names the run and its folder; made from time and title by default.
    directory : str or Path or None
        The journal is ``directory/run_id/journal.jsonl``; None keeps it in memory.
    title : str
        For people.
    total_steps : int, optional
        Length of the run where it is known.
    watch : sequence of str
        Metrics that the panel shows first.
    seed : int, optional
        Recorded; the session seeds nothing by itself.
    context : str
        What controllers should know about this run.
    policy : Policy, optional
        Permissions, limits, budgets and approvals.
    queue_size : int
        Requests that may wait; one more is rejected.
    retain : int, optional
        Keep only that many events when there is no file.
    clock : object with time() and monotonic(), optional
        Seconds. For tests.

    Notes
    -----
    The training thread is the one that reaches the first control point of a round. Only it
    changes the run, and only at a control point; every other thread may only submit.
    """

    def __init__(
        self,
        goal: str | Goal | None = None,
        *,
        run_id: str | None = None,
        directory: str | Path | None = "it2runs",
        title: str = "",
        total_steps: int | None = None,
        watch: Sequence[str] = (),
        seed: int | None = None,
        context: str = "",
        policy: Policy | None = None,
        queue_size: int = 10_000,
        retain: int | None = None,
        clock: Any = time,
    ) -> None:
        self.title = title
        self.run_id = run_id or _run_id(title, clock.time())
        self.goal = Goal.parse(goal)
        self.total_steps = total_steps
        self.watch = list(watch)
        self.seed = seed
        self.context = context
        self.clock = clock
        self.path = None if directory is None else Path(directory) / self.run_id / "journal.jsonl"

        self.knobs = KnobRegistry()
        self.actions = ActionRegistry()
        self.policy = policy or Policy()
        self.metrics = MetricStore()
        self.bound = Bound()
        self.evaluator: Callable[[], Any] | None = None
        #: Whether the loop looks at StepControl; false in a loop driven by hooks.
        self.honours_control = True
        self.stepper: str | None = None
        self.source_cell: str | None = None
        self.error: str | None = None
        self.error_line: int | None = None
        self.exception: BaseException | None = None
        self.agent: dict[str, Any] | None = None
        self.model_tree: dict[str, Any] | None = None
        self.checkpoints: list[dict[str, Any]] = []
        self.warnings: list[str] = []
        self.results: list[ActionResult] = []
        self.serving: ActionHandle | None = None
        #: Waits for the end in the place of `wait` and ``await``; the notebook serves its comms
        #: meanwhile.
        self.waiter: Callable[[Session, float | None], None] | None = None
        self.awaiter: Callable[[Session], Awaitable[None]] | None = None

        self._status: RunStatus = "created"
        self._step = 0
        self._round = 0
        self._branch_id = 0
        self._branches = [Branch(id=0)]
        self._owner: int | None = None
        self._owner_thread: threading.Thread | None = None
        self._began = False
        self._attention = True
        self._stopping = False
        self._fault_rows = 0
        self._started_t = 0.0
        self._elapsed: float | None = None
        self._ended = threading.Event()
        self._ending = threading.Lock()
        self._on_end: list[Callable[[], Any]] = []
        self._when_ended: list[Callable[[], Any]] = []
        self._pace = Pace()
        self._pumps = 0
        #: The replay that this run is; it brings its requests at their control points.
        self.replaying: Replaying | None = None

        self.journal = Journal(self.path, self.metrics, run=self.run_id, clock=clock, retain=retain)
        # One origin for the rows' t and for the metrics'.
        self._t0 = self.journal.t0
        self.turns = Turns()
        self.door = Door(self, queue_size)
        self.queue = self.door.queue
        self.gate = Gate(self)
        builtin.install(self)
        lifetime.watch(self)
        if self.goal is not None and self.goal.direction is None:
            self.warn(self.goal.undecided())

    # --- what it is -----------------------------------------------------------------------

    @property
    def status(self) -> RunStatus:
        """``created, running, paused, stopped, finished`` or ``failed``. Any thread."""
        return self._status

    @property
    def step_count(self) -> int:
        """Optimizer updates completed on the present branch. Any thread."""
        return self._step

    @property
    def branch_id(self) -> int:
        """The present branch, 0 for the first. Any thread."""
        return self._branch_id

    @property
    def round(self) -> int:
        """The present round, 0 for the first. Any thread."""
        return self._round

    @property
    def branches(self) -> list[Branch]:
        """All branches, oldest first. Any thread."""
        return list(self._branches)

    def place(self) -> list[int]:
        """Say where the run is: round, branch, step, pumps so far, next seq. Any thread.

        The same loop is at the same place again when it is replayed; seq gives the order.
        """
        return [self._round, self._branch_id, self._step, self._pumps, self.journal.next_seq]

    @property
    def started(self) -> bool:
        """Whether `start` was called, by hand or by the first control point."""
        return self._began

    @property
    def is_ended(self) -> bool:
        """Whether the run is over and its journal closed. Any thread."""
        return self._ended.is_set()

    @property
    def stop_requested(self) -> bool:
        """Whether a `stop` was accepted: no optimizer step may happen any more. Any thread."""
        return self._stopping

    @property
    def t(self) -> float:
        """Seconds since the session was made."""
        return float(self.clock.monotonic() - self._t0)

    @property
    def elapsed_s(self) -> float:
        """Seconds from the start of the session until now or its end."""
        return self.t - self._started_t if self._elapsed is None else self._elapsed

    @property
    def steps_per_s(self) -> float | None:
        """Optimizer steps a second over the last seconds; None before that can be told."""
        return self._pace.rate(self.t, self._step, self._status)

    @property
    def owner(self) -> threading.Thread | None:
        """The training thread, once it reached a control point."""
        return self._owner_thread

    @property
    def on_training_thread(self) -> bool:
        """Whether the caller is the training thread."""
        return self._owner == get_ident()

    @property
    def registry(self) -> ActionRegistry:
        """The same as `actions`."""
        return self.actions

    def state(self) -> State:
        """Everything a new onlooker needs, at a cost that does not grow. Any thread."""
        return overview(self)

    def __repr__(self) -> str:
        said = f"<Session {self.run_id} {self._status} at step {self._step}"
        return said + (f": {self.error}>" if self.error else ">")

    # A session is an identity: a copied trainer or config keeps talking to the same one.
    def __copy__(self) -> Session:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Session:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a session can't be pickled: it is tied to a running thread and an open journal. "
            "Keep it out of what you pickle, or reopen its file with it2nb.open(session.path)"
        )

    # --- declaring -------------------------------------------------------------------------

    def register_knob(
        self,
        name: str,
        get: Callable[[], Any],
        set: Callable[[Any], Any],
        *,
        dtype: DType | type = "float",
        min: float | int | None = None,
        max: float | int | None = None,
        step: float | int | None = None,
        description: str = "",
        scale: Scale = "linear",
        choices: Sequence[Any] | None = None,
        unit: str = "",
        group: str = "",
        out_of_bounds: Literal["clamp", "reject"] = "clamp",
        replace: bool = False,
        **more: Any,
    ) -> Knob:
        """Declare a typed setting; see `Knob` for the parameters. Any thread."""
        knob = Knob(
            name, get, set, dtype=dtype, min=min, max=max, step=step, description=description,
            scale=scale, choices=choices, unit=unit, group=group, out_of_bounds=out_of_bounds,
            **more,
        )  # fmt: skip
        return self.add_knob(knob, replace=replace)

    def add_knob(self, knob: Knob, *, replace: bool = False) -> Knob:
        """Add a ready-made knob. While the run lives, the journal tells of it. Any thread."""
        self.knobs.register(knob, replace=replace)
        if self._began and not self._ended.is_set():
            self.emit("knobs_registered", {"knobs": [knob.view().model_dump(exclude={"v"})]})
        return knob

    def action(
        self,
        name: str | Callable[..., Any],
        description: str = "",
        payload_keys: Sequence[str] | None = None,
        *,
        dangerous: bool = False,
        unavailable: Callable[[], str | None] | None = None,
        replace: bool = False,
    ) -> Any:
        """Declare an action, as a decorator of its handler; see `spec_from`. Any thread."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            label = function.__name__ if callable(name) else name
            spec = spec_from(
                function, label, description, payload_keys,
                dangerous=dangerous, unavailable=unavailable,
            )  # fmt: skip
            self.actions.register(spec, replace=replace)
            return function

        return register(name) if callable(name) else register

    def on_evaluate(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Give the function that `evaluate` runs: no arguments, returns a dict of metrics."""
        self.evaluator = function
        return function

    def on_end(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Call `function` once when the session ends, on the thread that ends it."""
        self._on_end.append(function)
        return function

    def when_ended(self, function: Callable[[], Any]) -> Callable[[], None]:
        """Call `function` once all is over and written, at once if it is so already. Any thread.

        Returns
        -------
        callable
            Takes it back.
        """
        with self._ending:
            over = self._ended.is_set()
            if not over:
                self._when_ended.append(function)
        if over:
            function()

        def remove() -> None:
            with self._ending, suppress(ValueError):
                self._when_ended.remove(function)

        return remove

    def bind(
        self,
        model: Any = None,
        *,
        optimizers: Sequence[Any] = (),
        schedulers: Sequence[Any] = (),
        scaler: Any = None,
    ) -> None:
        """Tell what the run trains, for checkpoints, resets and the model tree. Any thread."""
        self.bound.add(model, optimizers, schedulers, scaler)

    def bind_model(self, model: Any) -> None:
        """Tell the model; the same as ``bind(model)``."""
        self.bind(model)

    # --- asking ----------------------------------------------------------------------------

    def submit(
        self,
        action: Action | Mapping[str, Any],
        *,
        source: str = "python",
        wait: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Ask the run to do something. Any thread.

        Parameters
        ----------
        action : Action or mapping
            A mapping that is no valid action gets a `rejected` result.
        source : str
            The entry; set by the entry itself, never from the wire.
        wait : bool
            Wait for the result. On the training thread that makes this call a control point.
        timeout : float, optional
            Seconds to wait.

        Returns
        -------
        ActionResult or ActionHandle
            The result with ``wait=True``, else at once a handle with `id`, `done()`,
            `result(timeout)`, `cancel()`.

        Raises
        ------
        TimeoutError
            If the result is not there in time; the request stays in force.
        """
        handle = self.door.enter(action, source)
        if not wait:
            return handle
        if not handle.done() and self.on_training_thread:
            self.gate.serve_now(handle)
        return handle.result(timeout)

    def result(self, action_id: str) -> ActionResult | None:
        """Return the result of a request by its id; None while there is none. Any thread."""
        handle = self.queue.known(action_id)
        return None if handle is None else handle._result

    def do(self, action: str, *, timeout: float = 5.0, source: str = "python", **args: Any) -> Any:
        """Ask for an action by name, and wait a moment for its result. Any thread.

        Returns
        -------
        ActionResult or ActionHandle
            The result; the handle when there is none within `timeout` seconds, before the
            first control point, or on the training thread outside of a handler (there it is
            served at the next control point).
        """
        handle = self.door.enter(Action(type=action, payload=args), source)
        return self.gate.brief_wait(handle, timeout)

    def set(
        self,
        name: str,
        value: Any,
        *,
        mode: str | None = None,
        timeout: float = 5.0,
        source: str = "python",
    ) -> Any:
        """Ask for a knob's value; the same as ``do("set_knob", ...)``. Any thread."""
        payload = {"name": name, "value": value}
        if mode is not None:
            payload["mode"] = mode
        handle = self.door.enter(Action(type="set_knob", payload=payload), source)
        return self.gate.brief_wait(handle, timeout)

    def batch(self, values: Mapping[str, Any], *, timeout: float = 5.0) -> Any:
        """Ask for several knobs at one control point, all or none; see `do`. Any thread."""
        return self.do("batch", timeout=timeout, set=dict(values))

    def preview(self, action: Action | Mapping[str, Any], *, source: str = "python") -> Preview:
        """Tell what a request would do now, and change nothing. Any thread."""
        return foresee(self, action, source)

    def approve(self, action_id: str, by: str = "human") -> bool:
        """Let a request pass that waits for a person; False when none waits. Any thread."""
        return self.gate.answer(action_id, True, by)

    def refuse(self, action_id: str, by: str = "human") -> bool:
        """Reject a request that waits for a person; False when none waits. Any thread."""
        return self.gate.answer(action_id, False, by)

    def pause(self) -> Any:
        """Hold the loop between two steps; see `do`. Any thread."""
        return self.do("pause")

    def resume(self) -> Any:
        """Go on after a pause; see `do`. Any thread."""
        return self.do("resume")

    def stop(self) -> RunStatus:
        """End the run after the step under way. Never raises, any thread, any time.

        Returns
        -------
        str
            The status now; ``"running"`` until the control point is reached.
        """
        if not self._ended.is_set() and not self._stopping:
            self.submit(Action(type="stop"))
        return self._status

    # --- control points --------------------------------------------------------------------

    def step(
        self,
        metrics: Mapping[str, Any] | None = None,
        step: int | None = None,
        *,
        act: bool = True,
    ) -> StepControl:
        """Record the metrics of one finished optimizer update and let requests in.

        Training thread only; takes no lock while nobody asked for anything.

        Parameters
        ----------
        metrics : mapping of str to float, optional
            Numbers or zero-dimensional tensors.
        step : int, optional
            Its number; one more than the last by default. A smaller one than the last opens
            a new branch.
        act : bool
            False records only: no request is served (for a second call at the same step).

        Returns
        -------
        StepControl
            When the call returns, every accepted change is in force for the next step.

        Raises
        ------
        StopTraining
            When the loop goes on after it was told to stop.
        WrongThread
            When another thread is the training thread.
        """
        if self._owner != get_ident() and not self._enter():
            return CONTINUE
        if step is None:
            step = self._step + 1
        elif step < self._step:
            self._went_back(step)
        self._step = step
        if metrics:
            self.metrics.record(
                step, metrics, self.clock.monotonic() - self._t0, self._branch_id, self._round
            )
        if act and (self._attention or step >= self.turns.due):
            return self.gate.pass_through()
        return CONTINUE

    def pump(self, step: int | None = None, *, act: bool = True) -> StepControl:
        """Let requests in without recording anything, for idle loops; see `step`."""
        if self._owner != get_ident() and not self._enter():
            return CONTINUE
        if step is not None and step != self._step:
            if step < self._step:
                self._went_back(step)
            self._step = step
        self._pumps += 1
        if act and (self._attention or self._step >= self.turns.due):
            return self.gate.pass_through()
        return CONTINUE

    def record(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Record metrics of a step that is over, without a control point. Training thread."""
        self._assert_training_thread("record")
        self.metrics.record(
            self._step if step is None else step,
            metrics,
            self.clock.monotonic() - self._t0,
            self._branch_id,
            self._round,
        )

    def report_eval(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Tell that ``control.evaluate`` was done, and what came out. Training thread."""
        self.record(metrics, step)
        self.gate.paid("evaluate", dict(metrics))

    def checkpoint_saved(self, path: Any, step: int | None = None, tag: str | None = None) -> None:
        """Tell that a checkpoint file is complete. Training thread."""
        entry = {
            "path": str(path),
            "step": self._step if step is None else step,
            "tag": tag,
            "branch_id": self._branch_id,
            "round": self._round,
        }
        self.checkpoints.append(entry)
        self.emit("checkpoint_saved", entry)
        self.gate.paid("save", entry)

    def checkpoint_loaded(self, path: Any, step: int | None = None) -> None:
        """Tell that ``control.load`` was done. Training thread."""
        entry = {"path": str(path), "step": self._step if step is None else step}
        self.emit("checkpoint_loaded", entry)
        self.gate.paid("load", entry)

    def module_reset(self, name: str) -> None:
        """Tell that a module of ``control.reset`` was initialised anew. Training thread."""
        self.emit("module_reset", {"name": name})
        self.gate.paid("reset", {"name": name})

    def every(
        self, steps: int, function: Callable[[Session], Any], *, name: str = ""
    ) -> Callable[[], None]:
        """Call `function(session)` on the training thread at a control point every n steps.

        Returns
        -------
        callable
            Removes it.
        """
        return self.turns.add(steps, function, name or getattr(function, "__name__", "turn"))

    def guard(self, condition: Condition, do: Any = "note", *, cooldown: int = 100) -> Guard:
        """Watch a condition at every control point; see `Guard`. Any thread."""
        watcher = Guard(condition, do, cooldown=cooldown)
        self.every(1, watcher, name=f"guard {type(condition).__name__}")
        return watcher

    def before_change(self, function: Callable[[ActionHandle], Any]) -> Callable[[], None]:
        """Call `function(handle)` before each request that may change the run is carried out."""
        return self.turns.add_before(function)

    # --- the run's life --------------------------------------------------------------------

    def start(self) -> Session:
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
        """End the run here and now, whichever thread calls; see `end`."""
        with self._ending:
            if self._ended.is_set():
                return
            self.error = error or self.error
            final = status or ("stopped" if self._stopping else "finished")
            self._stopping = True
            self._attention = True
            self.door.close(f"the run is over ({final})")
            for call in self._on_end:
                with guard(f"on_end {getattr(call, '__name__', call)}", self.report):
                    call()
            self._on_end.clear()
            self._elapsed = self.t - self._started_t
            if self._status != final:
                self.change_status(final)
            self._owner = None
            self._owner_thread = None
            with guard("closing the journal", self.report):
                self.journal.close()
            self._ended.set()
            waiting, self._when_ended = self._when_ended, []
        lifetime.forget(self)
        for tell in waiting:
            with guard(f"when_ended {getattr(tell, '__name__', tell)}", self.report):
                tell()

    @contextmanager
    def run(self) -> Iterator[Session]:
        """Start, and end when the block is left: finished, stopped, or failed with its error."""
        self.start()
        try:
            yield self
        except StopTraining:
            self.finish("stopped")
        except BaseException as error:
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
            self.waiter(self, timeout)
        else:
            self._ended.wait(timeout)
        if not self._ended.is_set():
            raise TimeoutError(
                f"run {self.run_id} is still {self._status} at step {self._step} after "
                f"{timeout} s; it goes on: session.stop() ends it"
            )
        if self._status == "failed" and self.exception is not None:
            raise self.exception
        return self._status

    def __await__(self) -> Generator[Any, None, RunStatus]:
        """Wait for the end in an event loop: ``await session``; see `wait`."""
        yield from (self.awaiter or until_ended)(self).__await__()
        return self.wait(0)

    def subscribe(self, **options: Any) -> Any:
        """Follow the journal; see `Journal.subscribe`. Any thread."""
        return self.journal.subscribe(**options)

    def emit(
        self,
        type: str,
        payload: Mapping[str, Any],
        *,
        source: str | None = None,
        action_id: str | None = None,
    ) -> None:
        """Write a row of our own into the journal. Any thread; lost after the end."""
        self.write_rows([(type, dict(payload))], source=source, action_id=action_id)

    def warn(self, text: str) -> None:
        """Tell people something, once: a row, and a line in the panel. Any thread."""
        if text not in self.warnings:
            self.alert(text)
            self.emit("note", {"text": text, "level": "warning"})

    def alert(self, text: str) -> None:
        """Show a line in the panel; whoever alerts has written a row of its own. Any thread."""
        if text not in self.warnings:
            self.warnings.append(text)
            del self.warnings[:-50]

    def report(self, fault: Fault) -> None:
        """Record a fault in steering; the training goes on. Any thread."""
        self._fault_rows += 1
        if self._fault_rows <= MAX_FAULT_ROWS:
            self.emit(
                "note",
                {
                    "text": f"{fault.where}: {fault.error}",
                    "level": "error",
                    "traceback": fault.traceback[-2000:],
                },
            )
        self.alert(f"{fault.where}: {fault.error}")

    # --- for the parts of the session ------------------------------------------------------

    def write_rows(
        self,
        rows: Sequence[tuple[str, dict[str, Any]]],
        *,
        source: str | None = None,
        action_id: str | None = None,
    ) -> bool:
        """Write rows at the present step; False when the disk refused them. Any thread."""
        if self._ended.is_set():
            return False
        try:
            return self.journal.append_many(
                rows,
                step=self._step,
                branch_id=self._branch_id,
                round=self._round,
                source=source,
                action_id=action_id,
            )
        except JournalError:
            if self.journal.is_closed:  # another thread ended the run in between
                return False
            raise

    def change_status(self, status: RunStatus) -> None:
        """Move to another status and write it down."""
        self._status = status
        payload: dict[str, Any] = {"status": status}
        if self.error is not None:
            payload["error"] = self.error
        self.emit("status_changed", payload)

    def request_stop(self) -> None:
        """From now on no optimizer step may happen. Training thread."""
        self._stopping = True
        self._attention = True
        self.change_status("stopped")

    def evaluate_now(self) -> Any:
        """Run the evaluator and record what it returns. Training thread, control point."""
        assert self.evaluator is not None
        found = self.evaluator()
        numbers = found if isinstance(found, Mapping) else {"evaluate": found}
        self.metrics.record(self._step, numbers, self.t, self._branch_id, self._round)
        return found

    def fork_branch(self, step: int, reason: str, parent: int | None = None) -> Branch:
        """Open a branch that begins after `step` of the present one, or of `parent`.

        Training thread.
        """
        parent = self._branch_id if parent is None else parent
        branch = Branch(
            id=len(self._branches), parent=parent, step=step, round=self._round,
            reason=reason,
        )  # fmt: skip
        self._branches.append(branch)
        self._branch_id = branch.id
        self._step = step
        self.turns.rewind(step)
        self.emit("branch_forked", branch.model_dump(exclude={"v"}))
        return branch

    def resume_branch(self, branch_id: int, step: int) -> None:
        """Go on with a branch that was left for a trial. Training thread."""
        self._branch_id = branch_id
        self._step = step
        self.turns.rewind(step)
        self.emit("branch_resumed", {"id": branch_id, "step": step})

    def about_to_apply(self, handle: ActionHandle, spec: Any) -> None:
        """Give the turns before a change their chance."""
        self.turns.run_before(handle, self.report)

    def note_result(self, result: ActionResult) -> None:
        """Keep a result for the StepControl under way."""
        if self.on_training_thread:
            self.results.append(result)

    def hold_for_approval(self, handle: ActionHandle, reason: str) -> None:
        """Let a request wait for a human. Training thread."""
        self.gate.hold(handle, reason)

    def call_attention(self) -> None:
        """Make the next control point look at the queue. Any thread."""
        self._attention = True
        self.gate.wake.set()

    def _enter(self) -> bool:
        """The slow way into a control point: claim it, or say why not."""
        if lifetime.is_inert(self):
            return False
        if self._status == "stopped" and self._owner is None:
            raise StopTraining
        if self._ended.is_set():
            return False
        if self._owner is not None and self._owner_lives():
            raise WrongThread(
                f"{threading.current_thread().name!r} reached a control point, but "
                f"{self._owner_thread.name if self._owner_thread else '?'!r} is the training "
                f"thread of {self.run_id}; other threads ask with session.submit(...)"
            )
        self.start()
        self._owner = get_ident()
        self._owner_thread = threading.current_thread()
        self._attention = True
        self.gate.begin_round()
        return True

    def _owner_lives(self) -> bool:
        return self._owner_thread is not None and self._owner_thread.is_alive()

    def _went_back(self, step: int) -> None:
        self.fork_branch(step - 1 if step > 0 else 0, f"the loop gave step {step} again")

    def _assert_training_thread(self, what: str) -> None:
        if self._owner is not None and self._owner != get_ident() and self._owner_lives():
            raise WrongThread(
                f"session.{what} was called on {threading.current_thread().name!r}; only the "
                f"training thread may"
            )


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


def _run_id(title: str, now: float) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40] or "run"
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(now)) + f"-{slug}-{new_id()[:4]}"
