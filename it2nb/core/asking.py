"""How the run is asked: submit and its short forms. Any thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from it2nb.core.control import RunStatus
from it2nb.core.preview import Preview, foresee
from it2nb.core.standing import Standing
from it2nb.core.values import shown
from it2nb.core.wire import Action, ActionResult

if TYPE_CHECKING:
    from it2nb.core.door import Door
    from it2nb.core.gate import Gate
    from it2nb.core.queue import ActionHandle, RequestQueue
    from it2nb.core.session import Session


#: Stands for a value that was not given; None is one that is refused with a reason.
NOTHING: Any = object()


class Asking(Standing):
    """The part of a session through which everybody asks."""

    door: Door
    gate: Gate
    serving: ActionHandle | None
    queue: RequestQueue

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

    def do(
        self,
        action: str,
        *,
        reason: str | None = None,
        timeout: float = 5.0,
        source: str = "python",
        **args: Any,
    ) -> Any:
        """Ask for an action by name, and wait a moment for its result. Any thread.

        Parameters
        ----------
        action : str
        reason : str, optional
            Why, for the journal. An argument of the action that is called so goes with `submit`.
        timeout : float, seconds
        source : str
            The entry.
        **args
            The action's arguments.

        Returns
        -------
        ActionResult or ActionHandle
            The result; the handle when there is none within `timeout` seconds, before the
            first control point, or on the training thread outside of a handler (there it is
            served at the next control point).
        """
        handle = self.door.enter(Action(type=action, payload=args, reason=reason), source)
        return self.gate.brief_wait(handle, timeout)

    def set(
        self,
        name: str,
        value: Any = NOTHING,
        *,
        mode: str | None = None,
        reason: str | None = None,
        timeout: float = 5.0,
        source: str = "python",
    ) -> Any:
        """Ask for a knob's value, for its mode, or for both; see `do`. Any thread.

        Parameters
        ----------
        name : str
        value : float, int, bool or str, optional
            May be left out for a change of mode alone: ``set("lr", mode="release")``.
        mode : {"rescale", "hold", "release"}, optional
            How the knob goes together with its schedule.
        reason : str, optional
            Why, for the journal.
        """
        if value is NOTHING:
            if mode is None:
                raise TypeError(f"set({name!r}) needs a value, or a mode such as mode='hold'")
            return self.do(
                "set_mode", reason=reason, timeout=timeout, source=source, name=name, mode=mode
            )
        payload = {"name": name, "value": value}
        if mode is not None:
            payload["mode"] = mode
        handle = self.door.enter(Action(type="set_knob", payload=payload, reason=reason), source)
        return self.gate.brief_wait(handle, timeout)

    def batch(
        self, values: Mapping[str, Any], *, reason: str | None = None, timeout: float = 5.0
    ) -> Any:
        """Ask for several knobs at one control point, all or none; see `do`. Any thread."""
        if not isinstance(values, Mapping):
            raise TypeError(
                f"batch takes a mapping of knobs to values, such as {{'lr': 0.1}}, not "
                f"{shown(values)}"
            )
        return self.do("batch", reason=reason, timeout=timeout, set=dict(values))

    def preview(self, action: Action | Mapping[str, Any], *, source: str = "python") -> Preview:
        """Tell what a request would do now, and change nothing. Any thread."""
        return foresee(cast("Session", self), action, source)

    def approve(self, action_id: str, by: str = "human") -> bool:
        """Let a request pass that waits for a person; False when none waits. Any thread."""
        return self.gate.answer(action_id, True, by)

    def refuse(self, action_id: str, by: str = "human") -> bool:
        """Reject a request that waits for a person; False when none waits. Any thread."""
        return self.gate.answer(action_id, False, by)

    def evaluate(self, *, reason: str | None = None, timeout: float = 60.0) -> Any:
        """Evaluate now; the result's `data` holds the metrics. See `do`. Any thread."""
        return self.do("evaluate", reason=reason, timeout=timeout)

    def save_checkpoint(
        self, tag: str | None = None, *, reason: str | None = None, timeout: float = 60.0
    ) -> Any:
        """Save now; the result's `data` holds path and hash. See `do`. Any thread."""
        return self.do("save_checkpoint", reason=reason, timeout=timeout, tag=tag)

    def load_checkpoint(
        self, path: Any = None, *, tag: str | None = None, timeout: float = 60.0, **args: Any
    ) -> Any:
        """Go back to a checkpoint, in a branch of its own. See `do`. Any thread.

        Parameters
        ----------
        path : path or str, optional
            File, folder (its newest file), name or tag; the newest file by default.
        tag : str, optional
            The same, for a tag: one of both.
        """
        for name, value in (("path", path), ("tag", tag)):
            if value is not None:
                args[name] = str(value)
        return self.do("load_checkpoint", timeout=timeout, **args)

    def pause(self, *, reason: str | None = None) -> Any:
        """Hold the loop between two steps; see `do`. Any thread."""
        return self.do("pause", reason=reason)

    def resume(self, *, reason: str | None = None) -> Any:
        """Go on after a pause; see `do`. Any thread."""
        return self.do("resume", reason=reason)

    def stop(self, *, reason: str | None = None) -> RunStatus:
        """End the run after the step under way. Never raises, any thread, any time.

        Returns
        -------
        str
            The status now; ``"running"`` until the control point is reached.
        """
        if not self._ended.is_set() and not self._stopping:
            handle = self.submit(Action(type="stop", reason=reason))
            if self.on_training_thread and self.serving is not None:
                # From inside of a handler: at the next control point it would be a step late.
                self.gate.serve_now(handle)
        return self._status
