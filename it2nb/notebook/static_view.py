"""What stands beside a live panel for those who have no kernel: a picture, and text."""

from __future__ import annotations

import base64
import threading
import time
import weakref
from typing import Any

from it2nb.core.control import ENDED
from it2nb.core.faults import guard
from it2nb.core.wire import KnobView, State
from it2nb.core.wire_panel import Mark
from it2nb.notebook.picture import WIDTH, draw
from it2nb.panel.rows import MARKING, cut, mark_of, number, rounds_text

#: Between two pictures of a run that goes on, seconds: each costs some 20 kB.
RENEW_S = 60.0
MARKS = 40

#: What stands under the cells of this process.
_all_shown: weakref.WeakSet[StaticView] = weakref.WeakSet()


class StaticView:
    """A display that is renewed while the run goes on and holds its end afterwards.

    Parameters
    ----------
    session : Session or the like
    variable : str
        Python expression for the session.
    display_id : str
        The panel's name for itself.
    """

    def __init__(self, session: Any, variable: str, display_id: str) -> None:
        self._session = session
        self._variable = variable
        self._display_id = f"it2nb-{display_id}"
        # By its name a page finds it again (js/src/extension.ts): display ids aren't saved.
        self._metadata = {"image/png": {"width": WIDTH}, "it2nb": {"panel": display_id}}
        self._shown: str | None = None
        self._shown_at = 0.0
        self._settled = False
        # One picture after the other: an older one must not come behind the last.
        self._lock = threading.Lock()

    def show(self) -> None:
        """Show it under the cell that runs."""
        from IPython.display import display

        with self._lock:
            display(self.bundle(), raw=True, metadata=self._metadata, display_id=self._display_id)
            self._shown = self._session.status
            self._shown_at = time.monotonic()
        _all_shown.add(self)

    def keep_up(self, status: str) -> float | None:
        """Renew what is shown when it is time; returns the seconds until it is again."""
        with self._lock:
            if self._shown is None or self._settled:
                return None
            now = time.monotonic()
            standing = status != "running"
            due = status != self._shown if standing else now - self._shown_at >= RENEW_S
            if due:
                self._renew()
                self._shown, self._shown_at = status, now
            if standing:
                return None
            return max(1.0, self._shown_at + RENEW_S - now)

    def freeze(self) -> None:
        """Show the last state, if it is not the one that is shown."""
        with self._lock:
            status = self._session.status
            if self._shown is not None and (status != self._shown or status not in ENDED):
                self._shown = status
                with guard("static view"):
                    self._renew()

    def settle(self) -> None:
        """Send the run as it stands now, on the calling thread; its end is sent once.

        Those who save a notebook while they run it listen to no cell but the one that runs: what
        another thread sends after it, or for another cell, is lost to them.
        """
        with self._lock:
            if self._shown is None or self._settled:
                return
            self._shown, self._shown_at = self._session.status, time.monotonic()
            self._settled = self._session.is_ended
            with guard("static view"):
                self._renew()

    def shows(self, session: Any) -> bool:
        """Whether it is a view of this session."""
        return self._session is session

    def _renew(self) -> None:
        from IPython.display import update_display

        update_display(
            self.bundle(), raw=True, metadata=self._metadata, display_id=self._display_id
        )

    def bundle(self) -> dict[str, str]:
        """Return picture and text of the run as it is. Any thread."""
        state: State = self._session.state()
        found = {"text/plain": table(state, self._variable)}
        with guard("picture of the run"):
            png = draw(state, self._session.metrics, self._marks())
            found["image/png"] = base64.b64encode(png).decode("ascii")
        return found

    def _marks(self) -> list[Mark]:
        events = self._session.journal.tail(MARKS, types=MARKING)
        return [mark for mark in map(mark_of, events) if mark is not None]


def settle(session: Any) -> None:
    """Bring the pictures of a run up to date, from the cell that has waited for it."""
    for view in list(_all_shown):
        if view.shows(session):
            view.settle()


def summary(session: Any, variable: str, problem: str | None = None) -> str:
    """Return the run in one or two lines, and how to steer it from Python. Any thread."""
    state: State = session.state()
    why = "" if problem is None else f"\nNo live panel here: {problem}"
    return (
        f"it2nb panel: {_where(state)}{why}\n"
        f"In Python: {variable}.set('lr', 3e-4), .pause(), .resume(), .stop(), "
        f".journal.requests(); %it2 help"
    )


def table(state: State, variable: str) -> str:
    """Return state, metrics and knobs as text."""
    lines = [_where(state)]
    if state.error:
        lines.append(state.error)
    metrics = [f"{name} {_latest(each)}" for name, each in list(state.metrics.items())[:24]]
    if metrics:
        lines.append("  ".join(metrics))
    knobs = [knob for knob in state.knobs if not knob.hidden][:60]
    width = max((len(cut(knob.name, 40)) for knob in knobs), default=0)
    lines += [f"{cut(knob.name, 40):<{width}}  {knob_text(knob)}" for knob in knobs]
    lines.append(f"In Python: {variable}.journal.requests(), {variable}.metrics.frame()")
    return "\n".join(lines)


def _where(state: State) -> str:
    of = "" if state.total_steps is None else f" of {state.total_steps:,}"
    branch = f", branch {state.branch_id}" if state.branch_id else ""
    name = cut(state.title or state.run_id, 80)
    rounds = rounds_text(state)
    return f"{name}: {state.status}, {rounds and rounds + ', '}step {state.step:,}{of}{branch}"


def _latest(latest: Any) -> str:
    if latest.value is None:
        return str(latest.nonfinite or "-")
    return number(float(f"{latest.value:.6g}"))


def knob_text(knob: KnobView) -> str:
    """Return a knob's value, with unit, mode and groups."""
    value = number(knob.value) if isinstance(knob.value, float) else str(knob.value)
    parts = [cut(value, 60)]
    if knob.unit:
        parts.append(knob.unit)
    if knob.mode:
        parts.append(f"({knob.mode})")
    if len(knob.members) > 1:
        parts.append(f"x {len(knob.members)} groups")
    return " ".join(parts)
