"""TrainingSession: the core's session with the doors to PyTorch, figures and the panel."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from it2nb.core.control import RunStatus
from it2nb.core.errors import It2nbError, ServerError
from it2nb.core.faults import Fault, guard
from it2nb.core.ranks import Ranks
from it2nb.core.replay import Replay
from it2nb.core.replay import replay as replay_of
from it2nb.core.rounds import Memory
from it2nb.core.surroundings import Surroundings
from it2nb.panel.heartbeat import beat_beside
from it2nb.pytorch.session import TorchSession, checked_autosave

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from it2nb.controllers.attached import Attached
    from it2nb.controllers.late import Late
    from it2nb.core.goal_value import Score
    from it2nb.core.queue import ActionHandle
    from it2nb.core.round_runner import OnError, Train
    from it2nb.core.rounds import Plan, RoundContext
    from it2nb.integrations.tracker import Tracker
    from it2nb.integrations.tracking import Tracking
    from it2nb.pytorch.code import Code
    from it2nb.server.limits import Limits
    from it2nb.server.server import Server


class TrainingSession(TorchSession):
    """The state of one live run; see `it2nb.core.session.Session` for the parameters.

    Parameters
    ----------
    goal : str or Goal, optional
        The metric that the run is after.
    watch_metrics : sequence of str
        The same as `watch`.
    evaluate : callable, optional
        What `evaluate` runs: no arguments, returns a dict of metrics.
    resources_every_s : float, seconds
        Between two ``resources`` rows.
    snapshots : mapping or bool
        What is kept in memory to go back to: ``{"every": 50, "max_bytes": 2**30, ...}``; see
        `it2nb.pytorch.rewind.install`. False keeps none.
    autosave_s : float or None
        Seconds between two checkpoint files that are saved by themselves, of which the last two
        stay; None or 0 saves none. By default 600 where the run has a folder and one process,
        and a checkpoint is small (1 GiB, and a twentieth of what is free there).
    heartbeat : bool
        In a kernel: send signs of life while the run lives, so that the server does not take
        the kernel for idle and cull it.
    replay : Replay or path, optional
        Do this recorded run again: its requests come at their control points; see
        `it2nb.replay`.
    agent : controller, optional
        Attached at once; see `attach`.
    memory : Memory or path, optional
        What is remembered of rounds; in memory by default.
    max_rounds : int, optional
        Rounds that `run_rounds` does, the baseline among them.
    distributed : {"auto", True, False} or mapping
        Several ranks, as ``torchrun`` starts them. By default the session is one of them when
        ``torch.distributed`` has a process group of more than one; make it on every rank.
        Requests are taken on rank 0 and hold at the same step on all; the others keep no
        journal file. A mapping takes ``check_every`` (control points from one at which requests
        are let in to the next; chosen for a delay of about 50 ms by default),
        ``lost_after_s`` (60 s) and ``join_timeout_s`` (600 s). False steers this rank alone; a
        session that was made before the process group is refused when it starts.
    """

    def __init__(
        self,
        goal: Any = None,
        *,
        watch_metrics: Sequence[str] = (),
        evaluate: Callable[[], Any] | None = None,
        resources_every_s: float = 30.0,
        snapshots: Mapping[str, Any] | bool = True,
        autosave_s: float | Literal["auto"] | None = "auto",
        heartbeat: bool = True,
        replay: Replay | str | Path | None = None,
        agent: Any = None,
        memory: Memory | str | Path | None = None,
        max_rounds: int | None = None,
        distributed: bool | str | Mapping[str, Any] = "auto",
        **options: Any,
    ) -> None:
        options.setdefault("watch", list(watch_metrics))
        self.ranks: Ranks | None = None
        if distributed is not False and (distributed != "auto" or "torch" in sys.modules):
            from it2nb.pytorch.distributed import ranks_of

            self.ranks = ranks_of(distributed)
        # A process group that is made later would leave this rank steered alone.
        self._late_ranks = self.ranks is None and distributed is not False
        if self.ranks is not None:
            if replay is not None:
                raise It2nbError("a replay runs in one process: start it without torchrun")
            if not self.ranks.leads:
                options |= self.ranks.names(options)
        super().__init__(goal, **options)
        self._resources_every_s = resources_every_s
        self._snapshots = snapshots
        self._heartbeat = heartbeat
        self._autosave_s = checked_autosave(autosave_s)
        if evaluate is not None:
            self.on_evaluate(evaluate)
        if self.ranks is not None:
            from it2nb.pytorch.distributed import install

            install(self, self.ranks)
        if replay is not None:
            (replay if isinstance(replay, Replay) else replay_of(replay)).attach(self)
        self.max_rounds = max_rounds
        if memory is not None:
            self.memory = memory if isinstance(memory, Memory) else Memory(memory)
        if agent is not None:
            self.attach(agent)

    def start(self) -> TrainingSession:
        """Begin the run; the first control point does it too. Any thread, idempotent."""
        first = not self.started and not self.is_ended
        if first and self._late_ranks and "torch" in sys.modules:
            from it2nb.pytorch.distributed import check_in_time

            check_in_time(self)
        super().start()
        if first:
            Surroundings(self, self._resources_every_s).start()
            # A cell's run has its own, under the cell.
            if self._heartbeat and self.source_cell is None:
                with guard("signs of life", self.report):
                    beat_beside(self)
            # A cell's run is seeded first; then its runner does this.
            if self.source_cell is None and "torch" in sys.modules:
                from it2nb.pytorch.fingerprints import begin

                begin(self)
        return self

    def finish(self, status: RunStatus | None = None, error: str | None = None) -> None:
        """End the run here and now, whichever thread calls; see `end`."""
        if not self.is_ended and "torch" in sys.modules:
            from it2nb.pytorch.fingerprints import end

            end(self)
        super().finish(status, error)

    def to_code(self, round: int | None = None) -> Code:
        """Write the steered run as a plain program, without it2nb; see `it2nb.pytorch.code`."""
        from it2nb.pytorch.code import to_code

        return to_code(self.journal, round)

    @overload
    def report(self, what: Fault) -> None: ...

    @overload
    def report(self, what: str | Path) -> Path: ...

    def report(self, what: Fault | str | Path) -> Path | None:
        """Write the run as one HTML file that opens without a network; see `it2nb.report`.

        Given a `Fault`, as the guards do, it records that instead. Any thread.
        """
        if isinstance(what, Fault):
            super().report(what)
            return None
        from it2nb.report import write

        return write(self.journal, what, title=self.title)

    def export(self, path: str | Path) -> Path:
        """Write the run into one zip file, which `it2nb.open` reads. Any thread."""
        from it2nb.archive import export

        return export(self.journal, path, title=self.title)

    def plot(self, metrics: str | Sequence[str] | None = None) -> go.Figure:
        """Draw the metrics with a marker at each intervention. Any thread."""
        from it2nb.figures import run_figure

        metrics = [metrics] if isinstance(metrics, str) else metrics
        drifts = self.journal.tail(len(self.journal), ("knob_drifted",))
        forks = self.journal.tail(len(self.journal), ("branch_forked",))
        return run_figure(self.metrics.frame(), self.journal.requests(), metrics, drifts, forks)

    def serve(
        self,
        port: int = 0,
        host: str = "127.0.0.1",
        *,
        token: str | None = None,
        allowed_hosts: Sequence[str] = (),
        root_path: str = "",
        limits: Limits | None = None,
    ) -> Server:
        """Serve this run over HTTP and WebSockets, until `Server.close` or the process ends.

        Called again it returns the live server, or moves it to another port. Any thread, also
        inside of a running event loop.

        Parameters
        ----------
        port : int
            0 takes a free one.
        host : str
            Address to listen on; the default is reached from this machine alone.
        token : str, optional
            The secret that every request needs; from ``IT2NB_TOKEN``, else a random one.
        allowed_hosts : sequence of str
            Further names by which browsers reach the server.
        root_path : str
            The path under which a proxy shows it.
        limits : Limits, optional
            Bounds of sizes, rates and sockets.

        Raises
        ------
        PortTaken
            If another program listens there; the message offers a free port.
        MissingDependency
            Without ``pip install 'it2nb[server]'``.
        ServerError
            On another rank than rank 0.
        """
        from it2nb.server.server import serve

        if self.ranks is not None and not self.ranks.leads:
            raise ServerError(f"rank {self.ranks.rank} has no server: rank 0 serves the run")
        return serve(
            self, port=port, host=host, token=token, allowed_hosts=allowed_hosts,
            root_path=root_path, limits=limits,
        )  # fmt: skip

    def track(
        self, tracker: str | Tracker, *, end_wait_s: float = 30.0, **options: Any
    ) -> Tracking | None:
        """Copy metrics and interventions into a tracker while the run goes on. Any thread.

        A thread follows the journal, from its beginning: the training never waits. A tracker
        that fails or hangs is a row ``tracker_failed`` and a line in the panel.

        Parameters
        ----------
        tracker : {"tensorboard", "wandb", "mlflow", "trackio", "aim"} or Tracker
        end_wait_s : float, seconds
            How long the end of the run waits until the tracker has written all.
        **options
            Of the tracker: ``dir``, and what its class in `it2nb.integrations` takes. W&B is
            offline unless ``mode="online"`` is given.

        Returns
        -------
        Tracking or None
            With ``close()``, ``error``, ``is_over``; None on another rank than rank 0.

        Raises
        ------
        MissingDependency
            Without the extra of the tracker's name.
        It2nbError
            If no tracker has this name.
        """
        from it2nb.integrations.trackers import track

        if self.ranks is not None and not self.ranks.leads:
            return None
        return track(self, tracker, end_wait_s=end_wait_s, **options)

    # --- controllers and rounds ------------------------------------------------------------

    def attach(
        self,
        controller: Any,
        *,
        every: int | None = None,
        blocking: bool = False,
        late: Late = "apply",
        timeout_s: float | None = None,
        name: str | None = None,
    ) -> Attached:
        """Put a controller beside the run: a rule, an agent, a search. Any thread.

        Parameters
        ----------
        controller : object
            A `Controller`; an object with ``act``, ``plan`` or ``reflect``; a function of an
            observation; a rule (`it2nb.at`, `it2nb.every`, `it2nb.when`), or a rule's text. One
            that is attached already stays as it is.
        every : int, optimizer steps, optional
            Between two turns: its own, else 1 for rules and functions and 50 for all others.
        blocking : bool
            The loop waits at the control point for its answer, and serves it there.
        late : {"apply", "expire", "rebase"}
            What becomes of an answer that comes when the run has gone on: applied as asked,
            only until its next turn, or worked out anew from the values that are there.
        timeout_s : float, seconds, optional
            How long a blocking turn, a plan or a reflection is waited for.
        name : str, optional
            The actor of its requests.

        Returns
        -------
        Attached
            With `pause()`, `resume()`, `detach()`.

        Raises
        ------
        ControllerError, RuleError
            If it is no controller, or its text no rule.
        SessionEnded
        """
        from it2nb.controllers.attach import attach

        return attach(
            self, controller, every=every, blocking=blocking, late=late, timeout_s=timeout_s,
            name=name,
        )  # fmt: skip

    def run_rounds(
        self,
        train: Train,
        rounds: int | None = None,
        *,
        memory: Memory | None = None,
        seed: int | None = None,
        score: Score = "last",
        on_error: OnError = "raise",
    ) -> list[dict[str, Any]]:
        """Train several times from fresh weights, and let controllers plan each time.

        The first round is the baseline: nothing is planned, and no agent is asked. The global
        random streams are seeded alike before each. What the training declares (knobs, actions,
        turns, rules, what it binds) lasts for its round, and knobs that were there before begin
        each round with their first value. The calling thread trains.

        Parameters
        ----------
        train : callable
            ``train(session, ctx)``: makes fresh weights, registers its knobs, trains.
        rounds : int, optional
            How many, the baseline among them; `max_rounds`, else 5.
        memory : Memory, optional
            The session's by default.
        seed : int, optional
            The session's, else 0.
        score : {"last", "best"}
            Which value of the goal counts for a round.
        on_error : {"raise", "next"}
            What an exception in `train` does: end the run, or this round alone.

        Returns
        -------
        list of dict
            The records, as they are in the memory.

        Raises
        ------
        It2nbError
            If the goal's direction is neither known nor stated: rounds could not be compared.
        SessionEnded
            If the session has made steps already.
        """
        from it2nb.core.round_runner import run_rounds

        if self.ranks is not None:
            raise It2nbError(
                "rounds are not possible on several ranks yet: run them in one process, or make "
                "the session with distributed=False on rank 0 and lead the others yourself"
            )

        between: Callable[[], object] = lambda: None  # noqa: E731
        if "torch" in sys.modules and not self.is_ended:
            from it2nb.pytorch.rounds import Between

            between = Between(self, self._snapshots, self._autosave_s)
        return run_rounds(
            self, train, rounds, memory=memory, seed=seed, score=score, on_error=on_error,
            between=between,
        )  # fmt: skip

    def plan_round(self, ctx: RoundContext | None = None) -> Plan | None:
        """Ask the controllers for a plan of the next round; None when nobody has one."""
        from it2nb.core.planning import plan_round

        return plan_round(self, ctx)

    def apply_plan(self, plan: Any) -> list[ActionHandle]:
        """Ask for what a plan sets, with source ``plan``; on the training thread at once.

        Parameters
        ----------
        plan : Plan, mapping or None

        Returns
        -------
        list of ActionHandle
            In the plan's order; empty in a replay, where the recorded requests come by themselves.
        """
        from it2nb.core.planning import apply_plan

        return apply_plan(self, plan)
