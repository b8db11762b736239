"""Counterfactuals: what would have happened without the last change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from it2nb.core.errors import It2nbError, Rejected, WrongThread
from it2nb.core.wire import Action
from it2nb.pytorch.rewind import install

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from it2nb.core.session import Session


@dataclass(frozen=True)
class Fork:
    """Two ways on from one moment.

    Attributes
    ----------
    frame : pandas.DataFrame
        ``arm`` ("with", "without"), ``step``, and a column for each metric.
    change : str or None
        What the arms differ in; None when nothing was changed before.
    from_step : int
        Both begin after it.
    is_equal : bool
        Whether both arms end with the same weights, to the bit.
    branches : dict of str to int
        Where the journal and the metrics hold each arm.
    """

    frame: pd.DataFrame
    change: str | None
    from_step: int
    is_equal: bool
    branches: dict[str, int]

    def plot(self) -> go.Figure:
        """Draw both curves of each metric."""
        import plotly.graph_objects as go
        from plotly.subplots import make_subplots

        names = [name for name in self.frame.columns if name not in ("arm", "step")]
        figure = make_subplots(rows=max(1, len(names)), shared_xaxes=True, vertical_spacing=0.04)
        for row, name in enumerate(names, start=1):
            for arm, (colour, dash) in _STYLES.items():
                part = self.frame[self.frame["arm"] == arm].dropna(subset=[name])
                line = go.Scatter(
                    x=part["step"], y=part[name], mode="lines", name=self._label(arm),
                    legendgroup=arm, showlegend=row == 1, line={"color": colour, "dash": dash},
                )  # fmt: skip
                figure.add_trace(line, row=row, col=1)
            figure.update_yaxes(title_text=name, row=row, col=1)
        figure.update_xaxes(title_text="step", row=max(1, len(names)), col=1)
        figure.update_layout(height=120 + 220 * max(1, len(names)), template="plotly_white")
        return figure

    def _label(self, arm: str) -> str:
        return f"{arm} {self.change}" if self.change else arm


#: The two stay apart without colour too.
_STYLES = {"with": ("#1f77b4", "solid"), "without": ("#ff7f0e", "dash")}


def fork(
    session: Session,
    steps: int,
    *,
    step_fn: Callable[[int], Any] | None = None,
    timeout: float | None = None,
) -> Fork:
    """Train on with and without the last change, from the same state, data and random streams.

    Afterwards the run goes on where it was, to the bit. While it lasts other requests wait.

    Parameters
    ----------
    session : Session
    steps : int
        Updates on each of the two branches.
    step_fn : callable, optional
        ``step_fn(step) -> metrics`` does exactly one update, with data that `step` or the
        random streams determine. Not needed in a ``for batch in session.loop(loader)``.
    timeout : float, optional
        Seconds to wait; the fork goes on when they are over.

    Returns
    -------
    Fork

    Raises
    ------
    Rejected
        If the data can't be run twice, or the state from before the change is not kept any more.
    TimeoutError
        If it is not done in time.
    It2nbError
        If an arm failed; the run is where it was.

    Notes
    -----
    Where the control point is inside an iteration (a hook on ``optimizer.step``, with
    ``scheduler.step()`` after it), `step_fn` begins anew while the loop would have finished
    its iteration: both arms lack the same rest. `stepping.train` and ``session.loop`` don't.
    """
    rewind = install(session)
    if step_fn is None and session.on_training_thread:
        raise WrongThread(
            "session.fork(k) was called in the loop that would have to train meanwhile; call it "
            "in another cell, or give a function that does one update: step_fn=fn"
        )
    asked = Action(type="fork", payload={"steps": steps})
    if step_fn is not None:
        rewind.trials.step_fns[asked.id] = step_fn
    result = session.submit(asked, wait=True, timeout=timeout)
    rewind.trials.step_fns.pop(asked.id, None)
    if result.status == "rejected":
        raise Rejected(result.reason or "the fork was rejected")
    if not result.ok:
        raise It2nbError(f"the fork has no outcome: {result.reason}")
    return _told(session, result.data)


def _told(session: Session, data: dict[str, Any]) -> Fork:
    frame = session.metrics.frame()
    arm_of = {branch: arm for arm, branch in data["branches"].items()}
    frame = frame[frame["branch_id"].isin(list(arm_of))]
    arms = frame["branch_id"].map(arm_of)
    values = frame.drop(columns=[c for c in _BOOKKEEPING if c in frame]).dropna(axis=1, how="all")
    values.insert(0, "arm", arms)
    values.insert(1, "step", frame["step"])
    return Fork(
        values.reset_index(drop=True),
        data["change"],
        data["from_step"],
        data["is_equal"],
        dict(data["branches"]),
    )


_BOOKKEEPING = ("step", "branch_id", "round", "t", "ts", "seq")
