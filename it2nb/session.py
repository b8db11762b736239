"""TrainingSession: the core's session with the doors to PyTorch, figures and the panel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from it2nb.core.session import Session
from it2nb.core.surroundings import Surroundings

if TYPE_CHECKING:
    import plotly.graph_objects as go


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
    """

    def __init__(
        self,
        goal: Any = None,
        *,
        watch_metrics: Sequence[str] = (),
        evaluate: Callable[[], Any] | None = None,
        resources_every_s: float = 30.0,
        **options: Any,
    ) -> None:
        options.setdefault("watch", list(watch_metrics))
        super().__init__(goal, **options)
        self._resources_every_s = resources_every_s
        if evaluate is not None:
            self.on_evaluate(evaluate)

    def start(self) -> TrainingSession:
        """Begin the run; the first control point does it too. Any thread, idempotent."""
        first = not self.started and not self.is_ended
        super().start()
        if first:
            Surroundings(self, self._resources_every_s).start()
        return self

    def plot(self, metrics: Sequence[str] | None = None) -> go.Figure:
        """Draw the metrics with a marker at each intervention. Any thread."""
        from it2nb.figures import run_figure

        return run_figure(self.metrics.frame(), self.journal.requests(), metrics)
