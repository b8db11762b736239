"""Watched values: what ``--watch loss,acc`` records at each step.

``loss`` may live in a function that the cell calls, so it is looked up in the user's frames, from
the one that reached the control point outwards. A value is recorded when the name was rebound
or the tensor changed in place, and a number also when a loop sets it to the same in each turn.
One that is set after its step (``loss = train_step(batch)``) is seen at the next control point,
and recorded for the step that it is of. Nothing here keeps a tensor with its graph alive.
"""

from __future__ import annotations

import difflib
import numbers
import sys
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from it2nb.core.faults import guard
from it2nb.core.session import Session
from it2nb.notebook.callers import has_local, is_function, locals_of, user_frames
from it2nb.notebook.options import Watch
from it2nb.notebook.turns import Settings

_MISSING = object()
#: A name that was never found is told of after this many steps.
PATIENCE_STEPS = 100


@dataclass(slots=True)
class _Watched:
    """One watched value and what was seen last."""

    watch: Watch
    code: CodeType | None
    roots: tuple[str, ...]
    seen: Any = _MISSING
    version: int = -1
    found: bool = False
    told: set[str] = field(default_factory=set)
    is_left_out: bool = False
    #: What an earlier cell left in the variables that this one sets; empty once it has set one.
    stale: dict[str, _Left] = field(default_factory=dict)
    #: The value of the newest step is still to come: the loop sets it after its step.
    is_owed: bool = False
    #: The newest step has one.
    was_taken: bool = False
    #: The place that was reached last in a loop that sets it in each turn.
    turn: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class _Left:
    """An object that a variable held before the run, told from any other. Keeps no tensor."""

    kept: Any
    version: int

    @classmethod
    def of(cls, value: Any) -> _Left:
        weak = type(value).__weakrefoffset__ != 0
        return cls(weakref.ref(value) if weak else value, _version(value))

    def is_(self, value: Any) -> bool:
        """Whether it is the same one, unchanged."""
        kept = self.kept() if isinstance(self.kept, weakref.ref) else self.kept
        return kept is value and _version(value) == self.version


@dataclass(slots=True)
class _OnTheirWay:
    """Numbers of one step that an accelerator is still copying; read a step later."""

    step: int
    branch_id: int
    round: int
    numbers: dict[str, Any] = field(default_factory=dict)
    arrived: Any = None


class Watcher:
    """Reads the watched values at a control point. Training thread only, but for `names`.

    Parameters
    ----------
    watches : sequence of Watch
    namespace : mapping
        The user's globals.
    session : Session
        Gets the values that come late, warnings about names that can't be recorded, and faults.
    expected : collection of str
        Names that the cell binds somewhere: not missing, only later.
    own : collection of str
        Globals that it sets: what they hold now is an earlier cell's, and no value of this run.
    """

    def __init__(
        self,
        watches: Sequence[Watch],
        namespace: Mapping[str, Any],
        session: Session,
        expected: frozenset[str] = frozenset(),
        own: frozenset[str] = frozenset(),
    ) -> None:
        self._watched = [_prepare(each) for each in watches]
        for each in self._watched:
            each.stale = {
                root: _Left.of(namespace[root])
                for root in each.roots
                # An int that is set anew may be the same object: Python keeps the small ones.
                if root in own and not isinstance(namespace.get(root), (int, type(None)))
            }
        self._namespace = namespace
        self._session = session
        self._expected = expected
        self._on_their_way: deque[_OnTheirWay] = deque()
        self._points = 0
        self._settings = Settings()
        #: Branch and round of the newest step, and its number unless the loop gives its own.
        self._place = (0, 0, 0)

    @property
    def names(self) -> list[str]:
        """Names of the metrics."""
        return [each.watch.name for each in self._watched]

    def __call__(self) -> dict[str, float]:
        """Return the values that are new since the last call, as floats."""
        if not self._watched:
            return {}
        self.collect_late(wait=False)
        self._points += 1
        values: dict[str, float] = {}
        before: dict[str, float] = {}
        frames = user_frames(sys._getframe(1), self._namespace)
        for each in self._watched:
            was_owed, each.is_owed = each.is_owed, False
            each.was_taken = False
            with guard(f"--watch {each.watch.name}", self._session.report):
                value = self._look_up(each, frames)
                each.is_owed = self._settings.is_later(frames, each.roots)
                before_turn, each.turn = each.turn, self._settings.turn(frames, each.roots)
                if value is _MISSING:
                    self._tell_missing(each, frames)
                    self._leave_out(each)
                    continue
                self._take_in(each)
                is_set_anew = each.turn is not None and each.turn == before_turn
                if self._is_new(each, value, is_set_anew=is_set_anew) and (
                    was_owed or not each.is_owed
                ):
                    each.was_taken = not was_owed
                    self._take(each, value, before if was_owed else values, before=was_owed)
        # Frames refer to the user's locals; the list must not outlive the call.
        frames.clear()
        self._record_before(before)
        session = self._session
        self._place = session.step_count + 1, session.branch_id, session.round
        return values

    def _newest_place(self) -> tuple[int, int, int]:
        """Say where the step was whose control point was the last one."""
        session, (step, *rest) = self._session, self._place
        # Gone back there: it was in another branch. Else the session knows what the loop called it.
        is_here = rest == [session.branch_id, session.round]
        return (session.step_count if is_here else step, *rest)  # type: ignore[return-value]

    def _record_before(self, values: Mapping[str, float]) -> None:
        """Record what was set after the control point of the step that it belongs to."""
        if values:
            session, (step, branch_id, round) = self._session, self._newest_place()
            session.metrics.record(step, values, session.t, branch_id, round)

    def _collect_owed(self) -> None:
        """The run is over: record what was set after its last step."""
        values: dict[str, float] = {}
        for each in self._watched:
            if each.was_taken or not self._points or self._is_stale(each):
                continue
            with guard(f"--watch {each.watch.name}", self._session.report):
                value = _evaluate(each, self._namespace, self._namespace)
                if value is not _MISSING and self._is_new(each, value):
                    self._take(each, value, values, before=True)
        self._record_before(values)

    def collect_late(self, *, wait: bool = True) -> None:
        """Record what accelerators have copied since; `wait` for the rest (at the end)."""
        session = self._session
        while self._on_their_way and (wait or self._on_their_way[0].step <= session.step_count):
            late = self._on_their_way.popleft()
            if late.arrived is not None:
                late.arrived.synchronize()
            numbers = {name: float(number) for name, number in late.numbers.items()}
            session.metrics.record(late.step, numbers, session.t, late.branch_id, late.round)

    def finish(self) -> None:
        """The run is over: record what is late, tell what never came."""
        self._collect_owed()
        self.collect_late()
        for each in self._watched:
            if not each.found and self._points:
                what = "it was never set" if each.stale else "it was never there"
                self._complain(each, what + self._meant(each))
            each.stale = {}
            each.seen = _MISSING

    # --- finding ----------------------------------------------------------------------------

    def _look_up(self, each: _Watched, frames: list[FrameType]) -> Any:
        for frame in frames:
            here = frame.f_code
            if is_function(here) and not any(has_local(here, root) for root in each.roots):
                continue
            if not is_function(here) and self._is_stale(each):
                return _MISSING
            value = _read(frame, each)
            if value is not _MISSING:
                return value
        if self._is_stale(each):
            return _MISSING
        return _evaluate(each, self._namespace, self._namespace)

    def _is_stale(self, each: _Watched) -> bool:
        """Whether the cell has set none of the variables yet that it will set."""
        if each.stale and not all(
            left.is_(self._namespace.get(root)) for root, left in each.stale.items()
        ):
            each.stale = {}
        return bool(each.stale)

    def _tell_missing(self, each: _Watched, frames: Sequence[FrameType]) -> None:
        soon = any(root in self._expected for root in each.roots)
        if each.told or (soon and self._points != PATIENCE_STEPS):
            return
        what = "what it holds is an earlier cell's" if each.stale else "there is no such value"
        self._complain(each, f"{what} after {self._points} steps{self._meant(each, frames)}")

    def _leave_out(self, each: _Watched) -> None:
        """Let the plots be without one that nothing in the cell sets."""
        session, name = self._session, each.watch.name
        soon = any(root in self._expected for root in each.roots)
        if self._points == PATIENCE_STEPS and not soon and name not in session.metrics.names():
            each.is_left_out = name in session.watch
            session.watch = [other for other in session.watch if other != name]

    def _take_in(self, each: _Watched) -> None:
        if each.is_left_out:
            each.is_left_out = False
            self._session.watch = [*self._session.watch, each.watch.name]

    def _meant(self, each: _Watched, frames: Sequence[FrameType] = ()) -> str:
        """Say which variable a name may have meant that is none."""
        names = {
            *(name for name, value in self._namespace.items() if _may_be_number(value)),
            *(name for name in self._expected if name not in self._namespace),
        }
        for frame in frames:
            if is_function(frame.f_code):
                with locals_of(frame) as local:
                    names.update(name for name, value in local.items() if _may_be_number(value))
        names = {name for name in names if not name.startswith("_")}
        for root in each.roots:
            is_there = root in names or root in self._namespace
            close = [] if is_there else difflib.get_close_matches(root, names, n=1)
            if close:
                return f"; did you mean {close[0]!r}?"
        return ""

    def _complain(self, each: _Watched, what: str) -> None:
        if what not in each.told:
            if not each.told:
                self._session.warn(f"--watch {each.watch.name}: {what}")
            each.told.add(what)

    # --- reading ----------------------------------------------------------------------------

    def _is_new(self, each: _Watched, value: Any, *, is_set_anew: bool = False) -> bool:
        each.found = True
        if isinstance(value, Mapping):
            # Compared by its numbers: what else it holds may be tensors, and is not kept.
            numbers_in_it = _numbers(value)
            before, each.seen = each.seen, numbers_in_it
            return bool(before != numbers_in_it)
        version = _version(value)
        seen = each.seen() if isinstance(each.seen, weakref.ref) else each.seen
        if seen is value and version == each.version:
            if is_set_anew and isinstance(value, numbers.Real):
                return True  # small integers and constants are the same object each time
            # A NumPy array changes in place without telling: always look.
            return type(value).__module__ == "numpy" and not isinstance(value, numbers.Number)
        each.version = version
        # Numbers are kept, so that an equal id means the same object; all else only weakly.
        with_weakref = type(value).__weakrefoffset__ != 0
        each.seen = weakref.ref(value) if with_weakref else value
        return True

    def _take(
        self, each: _Watched, value: Any, values: dict[str, float], *, before: bool = False
    ) -> None:
        name = each.watch.name
        if _is_tensor(value):
            self._take_tensor(each, value, values, before)
        elif isinstance(value, Mapping):
            values.update({f"{name}/{key}": number for key, number in _numbers(value).items()})
        elif isinstance(value, numbers.Real):
            values[name] = float(value)
        elif getattr(value, "size", None) == 1 and hasattr(value, "item"):
            values[name] = float(value.item())
        else:
            each.seen = None
            self._complain(each, f"a {type(value).__name__} is no number")

    def _take_tensor(
        self, each: _Watched, value: Any, values: dict[str, float], before: bool
    ) -> None:
        if value.numel() != 1:
            self._complain(each, f"it has {value.numel()} elements; watch one number, its mean()")
            return
        number = value.detach()
        if number.device.type == "cpu":
            values[each.watch.name] = float(number)
            return
        if number.device.type == "meta":
            self._complain(each, "a tensor on the meta device has no value")
            return
        self._send_off(each.watch.name, number, before)

    def _send_off(self, name: str, number: Any, before: bool) -> None:
        """Begin to copy a number from an accelerator; reading it now would wait for it."""
        session = self._session
        place = session.step_count + 1, session.branch_id, session.round
        if before:
            place = self._newest_place()
        newest = self._on_their_way[-1] if self._on_their_way else None
        if newest is None or (newest.step, newest.branch_id, newest.round) != place:
            self._on_their_way.append(_OnTheirWay(*place))
        late = self._on_their_way[-1]
        if number.device.type == "cuda":
            late.numbers[name] = number.to("cpu", non_blocking=True)
            late.arrived = sys.modules["torch"].cuda.Event()
            late.arrived.record()
        else:
            late.numbers[name] = number.clone()


def _prepare(watch: Watch) -> _Watched:
    code = compile(watch.expression, f"<--watch {watch.name}>", "eval")
    if watch.expression.isidentifier():
        return _Watched(watch, None, (watch.expression,))
    return _Watched(watch, code, code.co_names)


def _evaluate(each: _Watched, scope: Mapping[str, Any], local: Mapping[str, Any]) -> Any:
    if each.code is None:
        name = each.roots[0]
        return local.get(name, _MISSING)
    try:
        return eval(each.code, dict(scope) if not isinstance(scope, dict) else scope, local)
    except NameError:
        return _MISSING


def _read(frame: FrameType, each: _Watched) -> Any:
    with locals_of(frame) as local:
        return _evaluate(each, frame.f_globals, local)


def _numbers(value: Mapping[Any, Any]) -> dict[str, float]:
    return {
        key: float(each.detach() if _is_tensor(each) else each)
        for key, each in value.items()
        if isinstance(key, str) and (isinstance(each, numbers.Real) or _is_cpu_scalar(each))
    }


def _version(value: Any) -> int:
    """How often a tensor was changed in place."""
    return getattr(value, "_version", -1) if _is_tensor(value) else -1


def _may_be_number(value: Any) -> bool:
    """Whether a variable holds what can be recorded: numbers, and dicts of them."""
    return isinstance(value, (numbers.Real, Mapping)) or hasattr(type(value), "item")


def _is_cpu_scalar(value: Any) -> bool:
    return _is_tensor(value) and value.numel() == 1 and value.device.type == "cpu"


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    return kind is not None and isinstance(value, kind)
