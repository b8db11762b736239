"""Session: the state of one live run, and the only thing that changes it."""

from __future__ import annotations

import re
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any

from it2nb.core import builtin, lifetime
from it2nb.core.actions import ActionRegistry
from it2nb.core.bound import Bound
from it2nb.core.control import CONTINUE, RunStatus, StepControl, StopTraining
from it2nb.core.door import Door
from it2nb.core.errors import It2nbError, WrongThread
from it2nb.core.expected import Expected
from it2nb.core.gate import Gate
from it2nb.core.goals import Goal
from it2nb.core.journal import Journal
from it2nb.core.knob_registry import KnobRegistry
from it2nb.core.life import Life
from it2nb.core.lineage import LiveLine
from it2nb.core.metrics import MetricStore
from it2nb.core.odd_loss import OddLoss
from it2nb.core.overview import Pace
from it2nb.core.overwritten import Overwritten
from it2nb.core.patience import Patience
from it2nb.core.policy import Policy
from it2nb.core.queue import ActionHandle
from it2nb.core.rounds import Memory
from it2nb.core.step_number import MOST, StepNumbers
from it2nb.core.taking_up import TakenUp
from it2nb.core.turns import Turns
from it2nb.core.utf8 import whole
from it2nb.core.whereabouts import Whereabouts
from it2nb.core.wire import ActionResult, Branch, new_id

if TYPE_CHECKING:
    from it2nb.core.replay import Replaying
    from it2nb.core.round_runner import Rounds


class Session(Life):
    """The state of one live run: knobs, actions, queue, journal, metrics.

    Parameters
    ----------
    goal : str or Goal, optional
        The metric that the run is after, ``"val_loss"``.
    run_id : str, optional
        Names the run and its folder; made from time and title by default. That of a run whose
        process was killed goes on with it.
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
        self.title = whole(title)
        self.run_id = _checked(run_id) if run_id else _run_id(title, clock.time())
        self.goal = Goal.parse(goal)
        self.total_steps = total_steps
        #: Whether it falls when the run goes back: the loop has no turns for those steps.
        self.total_falls = False
        self.watch = [whole(each) for each in watch]
        self.seed = seed
        self.context = whole(context)
        self.clock = clock
        self.whereabouts = Whereabouts(directory)
        #: Absolute: the program may change its directory. None in memory.
        self.path = None
        if directory is not None:
            self.path = Path(directory).absolute() / self.run_id / "journal.jsonl"

        self.knobs = KnobRegistry()
        self.actions = ActionRegistry()
        self.policy = policy or Policy()
        self.policy.knobs, self.policy.actions = self.knobs, self.actions
        self.metrics = MetricStore()
        self.metrics.on_refused = self.warn_of_value
        self.live_line = LiveLine(self)
        #: Metrics for the step under way; see `log`.
        self.noted: dict[str, Any] = {}
        self.bound = Bound()
        #: What `it2nb.pytorch.rewind.install` gave.
        self.rewind: Any = None
        self.evaluator: Callable[[], Any] | None = None
        #: Whether the loop looks at StepControl; false in a loop driven by hooks.
        self.honours_control = True
        self.stepper: str | None = None
        self.source_cell: str | None = None
        self.error: str | None = None
        self.error_line: int | None = None
        self.exception: BaseException | None = None
        #: How the controllers are doing, as the state tells it.
        self.agent: dict[str, Any] | None = None
        #: The attached controllers, in order.
        self.controllers: list[Any] = []
        #: What `run_rounds` does just now; None outside of rounds.
        self.rounds: Rounds | None = None
        self.max_rounds: int | None = None
        self.memory = Memory()
        self.model_tree: dict[str, Any] | None = None
        self.checkpoints: list[dict[str, Any]] = []
        self.warnings: list[str] = []
        self.results: list[ActionResult] = []
        self.serving: ActionHandle | None = None
        #: What the run printed, where it is caught: a `panel.terminal.Terminal`.
        self.output: Any = None
        #: Waits for the end in the place of `wait` and ``await``; the notebook serves its comms
        #: meanwhile.
        self.waiter: Callable[[Session, float | None], None] | None = None
        self.awaiter: Callable[[Session], Awaitable[None]] | None = None

        self._status: RunStatus = "created"
        self._step = 0
        self._round = 0
        self._branch_id = 0
        self._branches = [Branch(id=0)]
        #: The branch in which rounds begin: another one than 0 in a run that was taken up.
        self._trunk = 0
        self._owner: int | None = None
        self._owner_thread: threading.Thread | None = None
        self._began = False
        #: Whether the evaluator has run: until then what it records is not known.
        self.was_evaluated = False
        #: Whether the first control point began the run, in the midst of the loop.
        self.began_in_loop = False
        self._running = False
        self._told_late = False
        self._attention = True
        self._stopping = False
        # What a handler asked the end for: status, error, whether it was being stopped already.
        self._put_off: tuple[RunStatus | None, str | None, bool] | None = None
        self._fault_rows = 0
        self._started_t = 0.0
        self._elapsed: float | None = None
        self._ended = threading.Event()
        # Who is told of the end may end the run itself, or ask to be told of it.
        self._ending = threading.RLock()
        self._on_end: list[Callable[[], Any]] = []
        self._when_ended: list[Callable[[], Any]] = []
        self._pace = Pace()
        self._pumps = 0
        self.step_numbers = StepNumbers(self)
        #: The replay that this run is; it brings its requests at their control points.
        self.replaying: Replaying | None = None
        #: The run of rank 0, on the other ranks of a distributed training.
        self.led_by: str | None = None

        self.journal = Journal(self.path, self.metrics, run=self.run_id, clock=clock, retain=retain)
        # No row of the session's: the journal writes its own, and holds its lock meanwhile.
        self.journal.on_harm = self.alert
        # One origin for the rows' t and for the metrics'.
        self._t0 = self.journal.t0
        self.turns = Turns()
        self.overwritten = Overwritten(self)
        self.patience = Patience(self)
        self.odd_loss = OddLoss(self)
        self.journal.on_tick = self._look_after
        self.expected = Expected(self)
        self.door = Door(self, queue_size)
        self.queue = self.door.queue
        self.gate = Gate(self)
        builtin.install(self)
        lifetime.watch(self)
        self._taken_up = TakenUp(self) if self.journal.was_taken_up else None
        if self.goal is not None and self.goal.direction is None:
            self.warn(self.goal.undecided())
        self.policy.when_ruled = self.expected.look_out
        if self.goal is not None or self.policy.idle(()):
            self.expected.look_out()

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
            a new branch. What is no whole number is told of once and counted as if it had not
            been given, and so is the fourth of those that go down at every step.
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
        if self._owner != get_ident() and not self._enter(step):
            return CONTINUE
        if step is None:
            step = self._step + 1
        elif type(step) is not int or not self._step <= step <= MOST:
            step = self.step_numbers.read(step, self._step + 1)
        self._step = step
        if self.noted:
            metrics = self.with_noted(metrics)
        if metrics is not None:
            self.metrics.record(
                step, metrics, self.clock.monotonic() - self._t0, self._branch_id, self._round
            )
        if act and (self._attention or step >= self.turns.due):
            return self.gate.pass_through()
        return CONTINUE

    def pump(self, step: int | None = None, *, act: bool = True) -> StepControl:
        """Let requests in without recording anything, for idle loops; see `step`."""
        if self._owner != get_ident() and not self._enter(step):
            return CONTINUE
        if step is not None and step != self._step:
            self._step = self.step_numbers.read(step, self._step)
        self._pumps += 1
        if act and (self._attention or self._step >= self.turns.due):
            return self.gate.pass_through()
        return CONTINUE

    # --- for the parts of the session ------------------------------------------------------

    def request_stop(self) -> None:
        """From now on no optimizer step may happen. Training thread."""
        self._stopping = True
        self._attention = True
        self.change_status("stopped")

    def evaluate_now(self) -> Any:
        """Run the evaluator and record what it returns. Training thread, control point."""
        assert self.evaluator is not None
        found = self.evaluator()
        self.was_evaluated = True
        if found is None:
            return None
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
        self.live_line.enter()
        self.turns.rewind(step)
        self.emit("branch_forked", branch.model_dump(exclude={"v"}))
        return branch

    def resume_branch(self, branch_id: int, step: int) -> None:
        """Go on with a branch that was left for a trial. Training thread."""
        self._branch_id = branch_id
        self._step = step
        self.live_line.enter()
        self.turns.rewind(step)
        self.emit("branch_resumed", {"id": branch_id, "step": step})

    def open_round(self, round: int) -> None:
        """Begin a round: step 0 of a fresh line of steps. Its training thread, between two."""
        self._round, self._step, self._branch_id = round, 0, self._trunk
        self.turns.rewind(0)
        self._owner = None
        self._enter()

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
        self.gate.rouse()

    def _enter(self, step: int | None = None) -> bool:
        """The slow way into a control point: claim it, or say why not."""
        if lifetime.is_inert(self):
            self._warn_once(
                f"run {self.run_id} belongs to the process that forked this one: nothing of this "
                f"loop is recorded or steered; make a TrainingSession inside of what is launched"
            )
            return False
        if self._status == "stopped" and self._owner is None:
            raise StopTraining
        if self._ended.is_set():
            self._warn_once(
                f"run {self.run_id} is over ({self._status}): nothing of what comes now is "
                f"recorded or steered; make a new TrainingSession"
            )
            return False
        if self._owner is not None and self._owner_lives():
            raise WrongThread(
                f"{threading.current_thread().name!r} reached a control point, but "
                f"{self._owner_thread.name if self._owner_thread else '?'!r} is the training "
                f"thread of {self.run_id}; other threads ask with session.submit(...)"
            )
        self.began_in_loop = self.began_in_loop or not self._began
        self.start()
        self._owner = get_ident()
        self._owner_thread = threading.current_thread()
        self._attention = True
        self.gate.begin_round()
        if self._taken_up is not None:
            before, self._taken_up = self._taken_up, None
            before.go_on(step)
        return True

    def _look_after(self) -> None:
        """What is looked at four times a second, beside the training. The journal's thread."""
        self.patience.look()
        self.odd_loss.look()

    def _warn_once(self, text: str) -> None:
        """Tell the loop that its control points do nothing."""
        if not self._told_late:
            self._told_late = True
            warnings.warn(text, stacklevel=4)


def _checked(run_id: object) -> str:
    """It names a folder inside of `directory`, and nothing outside of it."""
    if not isinstance(run_id, str) or not re.fullmatch(r"(?!\.+$)[^/\\\x00-\x1f]{1,200}", run_id):
        raise It2nbError(
            f"run_id={run_id!r:.80} has to be the name of a folder: up to 200 characters, "
            f"none of them / or \\, and not only dots"
        )
    return run_id


def _run_id(title: str, now: float) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40] or "run"
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(now)) + f"-{slug}-{new_id()[:4]}"
