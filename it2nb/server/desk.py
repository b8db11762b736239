"""What an assistant may see of a run and ask it for, without a protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from it2nb.controllers.prompts import cut, thinned
from it2nb.controllers.provider import ToolCall
from it2nb.controllers.reading import wishes
from it2nb.controllers.tools import Toolbox
from it2nb.core.errors import It2nbError, near
from it2nb.core.knob_names import KnobViews
from it2nb.core.restriction import overlap
from it2nb.core.strict import strict
from it2nb.core.wire import Action, ActionResult, State
from it2nb.server.remote import RemoteSession
from it2nb.server.shapes import MCP

#: Points of a metric that are told.
POINTS, MAX_POINTS = 64, 1_000
#: Rows of the journal that are told.
ROWS, MAX_ROWS = 40, 500
#: Characters of one answer.
MAX_CHARS = 100_000

_NUMBER = {"type": "integer", "minimum": 1}
READING: dict[str, tuple[str, dict[str, Any]]] = {
    "read_state": ("Where the run is: status, step, newest metrics, knobs, goal, what waits.", {}),
    "read_metrics": (
        "Curves of metrics as [step, value] pairs, thinned, oldest first.",
        {
            "names": {"type": "array", "items": {"type": "string"}, "description": "all if absent"},
            "points": {**_NUMBER, "maximum": MAX_POINTS, "description": f"{POINTS} if absent"},
        },
    ),
    "read_journal": (
        "The last requests and what became of them, newest last.",
        {"rows": {**_NUMBER, "maximum": MAX_ROWS, "description": f"{ROWS} if absent"}},
    ),
    "read_request": (
        "What became of a request, by its id.",
        {"id": {"type": "string", "description": "as its tool told it"}},
    ),
}
RESOURCES = {
    "state": "Where the run is",
    "knobs": "The knobs: types, bounds, values, the last request for each",
    "actions": "What the run can be asked for, with JSON schemas",
    "metrics": "The curves of all metrics, thinned",
    "journal": "The last requests and what became of them",
    "policy": "Who may do what",
}


class Desk:
    """What an MCP server answers, without the protocol. Any thread.

    Parameters
    ----------
    run : RemoteSession
    wait_s : float, seconds
        For the result of a request; then its id is told, and it stays in force.
    """

    def __init__(self, run: RemoteSession, wait_s: float = 30.0) -> None:
        self._run = run
        self._wait_s = wait_s

    # ---------------------------------------------------------------------------------- tools

    def box(self) -> Toolbox:
        """The actions that an agent may ask for now, as tools."""
        state = self._run.state()
        closed = _closed(state)
        actions = [each for each in state.actions if not _is_closed(each.name, closed)]
        knobs = [each for each in state.knobs if not _is_closed(each.name, closed)]
        return Toolbox(actions, knobs)

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[Any, bool]:
        """Do what a tool says.

        Returns
        -------
        answer : JSON
        failed : bool
            Whether the answer is an error.
        """
        try:
            if name in READING:
                return self._read(name, arguments), False
            return self._ask(name, arguments)
        except (It2nbError, TimeoutError) as err:
            return {"error": str(err)}, True

    def _ask(self, name: str, arguments: dict[str, Any]) -> tuple[Any, bool]:
        box = self.box()
        state = self._run.state()
        known = {*box.actions, *(each.name for each in state.actions)}
        if name not in known:
            raise It2nbError(f"there is no tool {name!r:.80}{near(name, [*known, *READING])}")
        (wish,) = wishes("", [ToolCall(name, arguments)], box)
        handle = self._run.submit(
            Action(
                type=wish.type,
                payload=wish.payload,
                actor=MCP,
                reason=wish.reason or None,
                observed={"step": state.step},
            )
        )
        try:
            result = handle.result(self._wait_s)
        except TimeoutError:
            return {
                "id": handle.id, "status": handle.status,
                "note": "no result yet; it stays in force, look it up with read_request",
            }, False  # fmt: skip
        return told(result), not result.ok

    def _read(self, name: str, arguments: dict[str, Any]) -> Any:
        allowed = READING[name][1]
        unknown = arguments.keys() - allowed.keys()
        if unknown:
            raise It2nbError(f"{name} takes {sorted(allowed) or 'nothing'}, not {sorted(unknown)}")
        if name == "read_metrics":
            points = _count(arguments, "points", POINTS, MAX_POINTS)
            return self.metrics(arguments.get("names"), points)
        if name == "read_journal":
            return self.journal(_count(arguments, "rows", ROWS, MAX_ROWS))
        if name == "read_request":
            return self._request(arguments.get("id"))
        return self.state()

    def _request(self, action_id: Any) -> Any:
        if not isinstance(action_id, str) or not action_id:
            raise It2nbError(f"id={action_id!r:.60} has to be the id of a request")
        result = self._run.client.result(action_id)
        return {"id": action_id, "status": "pending"} if result is None else told(result)

    # -------------------------------------------------------------------------------- reading

    def state(self) -> dict[str, Any]:
        """Where the run is, without what is told elsewhere."""
        state = self._run.state()
        told = state.model_dump(
            include={
                "run_id", "title", "status", "step", "total_steps", "steps_per_s", "elapsed_s",
                "branch_id", "round", "metrics", "goal", "context", "error", "warnings", "waiting",
            }
        )  # fmt: skip
        told["knobs"] = {knob.name: knob.value for knob in state.knobs}
        return told

    def knobs(self) -> list[dict[str, Any]]:
        """The knobs."""
        return [each.model_dump(exclude={"v"}) for each in self._run.state().knobs]

    def actions(self) -> list[dict[str, Any]]:
        """The actions, and which of them an agent may not use."""
        state = self._run.state()
        closed = _closed(state)
        return [
            {**each.model_dump(exclude={"v"}), "forbidden": _is_closed(each.name, closed)}
            for each in state.actions
        ]

    def metrics(self, names: Any = None, points: int = POINTS) -> dict[str, Any]:
        """Curves, thinned; those of the present branch."""
        state = self._run.state()
        known = list(self._run.metrics.latest())
        if names is None:
            names = known
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            raise It2nbError(f"names={names!r:.80} has to be a list of metrics' names")
        unknown = [each for each in names if each not in known]
        if unknown:
            raise It2nbError(f"no metric is named {unknown[0]!r:.80}{near(unknown[0], known)}")
        return {name: self._curve(name, points, state) for name in names}

    def _curve(self, name: str, points: int, state: State) -> list[list[float]]:
        view = self._run.metrics.view(
            name, points=max(points, 4), branch_id=state.branch_id, round=state.round
        )
        pairs = list(zip(view.steps.tolist(), view.values.tolist(), strict=True))
        return thinned([(int(step), value) for step, value in pairs], points)

    def journal(self, rows: int = ROWS) -> list[dict[str, Any]]:
        """The last results."""
        events = self._run.journal.tail(rows, types=["action_result"])
        return [{"step": each.step, **_slim(each.payload)} for each in events]

    def policy(self) -> dict[str, Any]:
        """The rules in force."""
        return self._run.state().policy

    def resource(self, name: str) -> Any:
        """What a resource holds; ``metrics/NAME`` is one curve.

        Raises
        ------
        It2nbError
            If there is none of this name.
        """
        kind, _, rest = name.partition("/")
        if kind == "metrics" and rest:
            return self.metrics([rest], MAX_POINTS)
        if rest or kind not in RESOURCES:
            raise It2nbError(f"there is no resource {name!r:.80}{near(name, RESOURCES)}")
        read: Callable[[], Any] = getattr(self, kind)
        return read()


def told(result: ActionResult) -> dict[str, Any]:
    """A result without what is empty."""
    return _slim(result.model_dump(exclude={"v"}))


def _slim(payload: Any) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if value is not None}


def _count(arguments: dict[str, Any], name: str, default: int, most: int) -> int:
    value = arguments.get(name, default)
    if type(value) is not int or not 1 <= value <= most:
        raise It2nbError(f"{name}={value!r:.40} has to be a whole number from 1 to {most}")
    return value


def _closed(state: State) -> list[str]:
    forbidden = state.policy.get("forbidden", {})
    closed = [str(each) for source in ("agent", "http") for each in forbidden.get(source, [])]
    return [*closed, *map(KnobViews(state.knobs).own_name, closed)]


def _is_closed(name: str, closed: list[str]) -> bool:
    return "*" in closed or any(overlap(name, each) for each in closed)


def text_of(value: Any) -> str:
    """Write an answer as strict JSON of bounded length."""
    return cut(orjson.dumps(strict(value)[0], option=orjson.OPT_INDENT_2).decode(), MAX_CHARS)
