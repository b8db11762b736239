"""TrainingSession: the core's session with the doors to PyTorch, figures and the panel."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from it2nb.core.control import RunStatus
from it2nb.core.faults import Fault
from it2nb.core.replay import Replay
from it2nb.core.replay import replay as replay_of
from it2nb.core.session import Session
from it2nb.core.surroundings import Surroundings

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from it2nb.core.knobs import Knob
    from it2nb.pytorch.code import Code
    from it2nb.pytorch.fork import Fork
    from it2nb.pytorch.hooks import Attachment
    from it2nb.server.limits import Limits
    from it2nb.server.server import Server


class TrainingSession(Session):
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
    autosave_s : float, optional
        Seconds between two checkpoint files that are saved by themselves.
    replay : Replay or path, optional
        Do this recorded run again: its requests come at their control points; see
        `it2nb.replay`.
    """

    def __init__(
        self,
        goal: Any = None,
        *,
        watch_metrics: Sequence[str] = (),
        evaluate: Callable[[], Any] | None = None,
        resources_every_s: float = 30.0,
        snapshots: Mapping[str, Any] | bool = True,
        autosave_s: float | None = None,
        replay: Replay | str | Path | None = None,
        **options: Any,
    ) -> None:
        options.setdefault("watch", list(watch_metrics))
        super().__init__(goal, **options)
        self._resources_every_s = resources_every_s
        self._snapshots = snapshots
        self._autosave_s = autosave_s
        if evaluate is not None:
            self.on_evaluate(evaluate)
        if replay is not None:
            (replay if isinstance(replay, Replay) else replay_of(replay)).attach(self)

    def start(self) -> TrainingSession:
        """Begin the run; the first control point does it too. Any thread, idempotent."""
        first = not self.started and not self.is_ended
        super().start()
        if first:
            Surroundings(self, self._resources_every_s).start()
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

    def to_code(self) -> Code:
        """Write the steered run as a plain program, without it2nb; see `it2nb.pytorch.code`."""
        from it2nb.pytorch.code import to_code

        return to_code(self.journal)

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
        return run_figure(self.metrics.frame(), self.journal.requests(), metrics)

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
        """
        from it2nb.server.server import serve

        return serve(
            self, port=port, host=host, token=token, allowed_hosts=allowed_hosts,
            root_path=root_path, limits=limits,
        )  # fmt: skip

    # --- what it trains --------------------------------------------------------------------

    def bind(
        self,
        model: Any = None,
        *,
        optimizers: Sequence[Any] = (),
        schedulers: Sequence[Any] = (),
        scaler: Any = None,
    ) -> None:
        """Tell what the run trains. Any thread.

        With a model and an optimizer the session saves, loads, undoes, forks and resets by
        itself, and every hyper-parameter of the optimizers becomes a knob.
        """
        super().bind(model, optimizers=optimizers, schedulers=schedulers, scaler=scaler)
        for optimizer in optimizers:
            self.register_optimizer(optimizer)
        if self.bound.models and self.bound.optimizers:
            from it2nb.pytorch import modules, rewind

            rewind.install(self, snapshots=self._snapshots, autosave_s=self._autosave_s)
            modules.install(self)

    def bind_model(self, model: Any) -> None:
        """Tell the model; its module tree is in the state. Any thread."""
        super().bind(model)
        if self.bound.optimizers:
            self.bind()
        else:
            from it2nb.pytorch.modules import show_tree

            show_tree(self)

    def register_optimizer(
        self,
        optimizer: Any,
        scheduler: Any = None,
        *,
        name: str | None = None,
        only: Sequence[str] | None = None,
    ) -> list[Knob]:
        """Make every hyper-parameter of an optimizer a knob; see `add_optimizer_knobs`."""
        from it2nb.pytorch.optimizers import add_optimizer_knobs

        super().bind(optimizers=[optimizer], schedulers=[] if scheduler is None else [scheduler])
        return add_optimizer_knobs(self, optimizer, name=name, only=only)

    def register_optimizer_lr(self, optimizer: Any, scheduler: Any = None) -> list[Knob]:
        """Make the learning rates of an optimizer knobs, and nothing else of it. Any thread."""
        return self.register_optimizer(optimizer, scheduler, only=("lr",))

    def autopatch(
        self,
        optimizer: Any,
        metrics_fn: Callable[[], Mapping[str, Any] | None] | None = None,
        *,
        name: str | None = None,
    ) -> Attachment:
        """Let each step of `optimizer` be a step of the run; see `it2nb.autopatch`."""
        from it2nb.pytorch.autopatch import autopatch

        return autopatch(self, optimizer, metrics_fn, name=name)

    def unpatch(self, optimizer: Any = None) -> None:
        """Take `autopatch` back. Any thread."""
        from it2nb.pytorch.autopatch import unpatch

        unpatch(self, optimizer)

    def loop(self, items: Iterable[Any], metrics_fn: Any = None, *, epochs: int = 1) -> Any:
        """Wrap an iterable: each turn is one step, and going back replays its batches."""
        from it2nb.pytorch.loops import loop

        return loop(self, items, metrics_fn, epochs=epochs)

    def log(self, values: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Note metrics for the turn of `loop` under way. Training thread."""
        from it2nb.pytorch.loops import log

        log(self, values, **more)

    # --- going back ------------------------------------------------------------------------

    def on_save(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Save what `function` returns (plain data, tensors) in every checkpoint."""
        self.bound.on_save.append(function)
        return function

    def on_load(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Call `function` with what the `on_save` of the same place had returned."""
        self.bound.on_load.append(function)
        return function

    def train(self, step_fn: Callable[[int], Any], steps: int | None = None) -> RunStatus:
        """Run a training whose updates `step_fn` makes; see `it2nb.pytorch.stepping.train`."""
        from it2nb.pytorch.stepping import train

        return train(self, step_fn, steps)

    def evaluate_now(self) -> Any:
        """Run the evaluator and leave no trace in the training. Training thread."""
        if "torch" not in sys.modules:
            return super().evaluate_now()
        from it2nb.pytorch.evaluate import undisturbed

        with undisturbed(self.bound.models, of=self.evaluator):
            return super().evaluate_now()

    def undo(self, **args: Any) -> Any:
        """Take the last intervention back, in a branch of its own; see `do`."""
        return self.do("undo", **args)

    def goto(self, step: int, **args: Any) -> Any:
        """Go back to a step, in a branch of its own; see `do`."""
        return self.do("goto", step=step, **args)

    def fork(
        self,
        steps: int,
        *,
        step_fn: Callable[[int], Any] | None = None,
        timeout: float | None = None,
    ) -> Fork:
        """Train on with and without the last change; see `it2nb.pytorch.fork.fork`."""
        from it2nb.pytorch.fork import fork

        return fork(self, steps, step_fn=step_fn, timeout=timeout)
