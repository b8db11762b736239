"""Comparison: whether a replay did what was recorded, and where the two part."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from it2nb.core.recording import Place, Recorded, Recording
from it2nb.core.strict import strict
from it2nb.core.surroundings import describe
from it2nb.core.wire import Event

if TYPE_CHECKING:
    from it2nb.core.metrics import MetricStore
    from it2nb.core.replay import Replaying
    from it2nb.core.session import Session

#: Parts of the environment that say nothing of how a run computes.
_ELSEWHERE = frozenset({"git.branch"})


@dataclass(frozen=True, slots=True)
class Parting:
    """The first value in which two runs differ."""

    metric: str
    step: int
    branch_id: int
    round: int
    recorded: float
    replayed: float

    @property
    def by(self) -> float:
        """The difference, replayed minus recorded."""
        return self.replayed - self.recorded

    def __str__(self) -> str:
        branch = f" of branch {self.branch_id}" if self.branch_id else ""
        return (
            f"{self.metric} at step {self.step}{branch}: recorded {self.recorded!r}, "
            f"replayed {self.replayed!r}, a difference of {self.by:.3g}"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a comparison of a replay with its recording found.

    Attributes
    ----------
    is_equal : bool
        All compared metrics and, where it was recorded, the final state are equal to the bit,
        and each recorded request was served and came out as recorded.
    parting : Parting or None
        The first difference.
    metrics : dict of str to str
        ``"equal"``, or how a metric differs, for each one.
    values : int
        Metric values that were compared.
    state : {"equal", "different", "not recorded"}
        The hash of the final weights, optimizers and schedulers.
    start : {"equal", "different", "not recorded"}
        The same before the first step.
    parts : list of str
        What of the final state differs, ``"model net"``.
    requests : list of str
        Requests that were missed, late or came out differently.
    random : Place or None
        The first control point at which the random streams stood differently.
    environment : dict of str to (recorded, replayed)
        What differs in packages, machine and settings.
    notes : list of str
        What else to know.
    """

    is_equal: bool
    parting: Parting | None
    metrics: dict[str, str]
    values: int
    state: Literal["equal", "different", "not recorded"]
    start: Literal["equal", "different", "not recorded"]
    parts: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    random: Place | None = None
    environment: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return self.is_equal

    def __str__(self) -> str:
        if self.is_equal:
            lines = [f"bit-equal: {self.values:,} metric values, final state {self.state}"]
        else:
            lines = ["not equal"]
            if self.parting is not None:
                lines.append(f"  they part at {self.parting}")
            elif self.state == "different":
                lines.append("  the metrics are equal, the final state is not")
        lines += [f"  {n}: {said}" for n, said in self.metrics.items() if said != "equal"]
        if self.start == "different" and not self.is_equal:
            lines.append("  the weights were different before the first step")
        if self.parts:
            lines.append(f"  different at the end: {', '.join(self.parts)}")
        if self.random is not None:
            lines.append(f"  the random streams stood differently from {self.random} on")
        lines += [f"  {each}" for each in (*self.requests, *self.notes)]
        lines += [
            f"  {name}: recorded {was!r}, here {now!r}"
            for name, (was, now) in self.environment.items()
        ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Verdict {self}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def compare(
    recording: Recording,
    session: Session,
    live: Replaying,
    ignore: Sequence[str] = (),
    *,
    is_over: bool,
) -> Verdict:
    """Compare a replay with its recording; see `Replay.verify`. Any thread.

    Parameters
    ----------
    is_over : bool
        Whether the replay's loop has come to its end.
    """
    replayed = Recording(session.journal)
    metrics = _Metrics(recording, session.metrics, live, ignore)
    requests = _requests(session, live, is_over)
    requests += live.own.differences(replayed.requests, is_over=is_over)
    state, parts = _states(recording.states, replayed.states, "end")
    start, _ = _states(recording.states, replayed.states, "start")
    notes = list(live.notes)
    same = state == "different" and metrics.is_equal and metrics.values > 0
    if same and _trained_the_same(recording.states, replayed.states):
        # A notebook may hold objects of before, which the cell makes anew and never trains.
        notes.append(f"left out, for it was not trained: {', '.join(parts)}")
        state, parts = "equal", []
    if recording.unasked:
        event = recording.unasked[0]
        notes.append(
            f"{len(recording.unasked)} changes were made without a request, the first at step "
            f"{event.step} ({event.type}): a replay can't make them"
        )
    if not is_over:
        notes.append("the replay goes on: what it did so far was compared")
    equal = metrics.is_equal and state != "different" and not requests and is_over
    random = _random(recording, replayed, live)
    if not equal and is_over and (cause := _begun_in_loop(recording, replayed)):
        notes.insert(0, cause)
    surroundings = replayed.environment or describe(session)
    return Verdict(
        is_equal=equal,
        parting=metrics.parting,
        metrics=metrics.said,
        values=metrics.values,
        state=state,
        start=start,
        parts=parts,
        requests=requests,
        random=random,
        environment=_differences(recording.environment, surroundings),
        notes=notes,
    )


class _Metrics:
    """Compares two stores curve by curve, in the order in which the branches were trained."""

    def __init__(
        self, recording: Recording, store: MetricStore, live: Replaying, ignore: Sequence[str]
    ) -> None:
        self.said: dict[str, str] = {}
        self.values = 0
        self.parting: Parting | None = None
        recorded = recording.journal.metrics
        trials = recording.trial_branches()
        # A run that was killed or stopped has the metrics up to there, and so has its replay.
        for name in recorded.names():
            if name in ignore:
                continue
            self.said[name] = "equal"
            for line in recorded.lines(name):
                if line[1] not in trials:
                    self._compare(name, line, recorded, store, live)
        for name in store.names():
            if name not in self.said and name not in ignore:
                self.said[name] = "not in the recording"

    @property
    def is_equal(self) -> bool:
        return all(said == "equal" for said in self.said.values())

    def _compare(
        self,
        name: str,
        line: tuple[int, int],
        recorded: MetricStore,
        store: MetricStore,
        live: Replaying,
    ) -> None:
        round, branch_id = line
        steps, values = recorded.series(name, branch_id, round)
        found_steps, found = store.series(name, live.branch(branch_id), round)
        count = min(len(values), len(found))
        self.values += count
        apart = np.flatnonzero(
            (steps[:count] != found_steps[:count]) | ~_same(values[:count], found[:count])
        )
        if len(apart):
            at = int(apart[0])
            parting = Parting(
                name, int(steps[at]), branch_id, round, float(values[at]), float(found[at])
            )
            self._tell(name, f"{len(apart):,} of {count:,} values differ, from step {steps[at]:g}")
            before = self.parting
            if before is None or _order(parting) < _order(before):
                self.parting = parting
        elif len(values) != len(found):
            more = "misses" if len(found) < len(values) else "has"
            self._tell(name, f"the replay {more} {abs(len(found) - len(values)):,} values")

    def _tell(self, name: str, said: str) -> None:
        if self.said[name] == "equal":
            self.said[name] = said


def _order(parting: Parting) -> tuple[int, int, int]:
    return parting.round, parting.branch_id, parting.step


def _same(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.bool_]:
    # By their bits, so that 0.0 and -0.0 differ; any NaN is any other.
    bits = one.view(np.int64) == other.view(np.int64)
    return np.asarray(bits | (np.isnan(one) & np.isnan(other)))


def _requests(session: Session, live: Replaying, is_over: bool) -> list[str]:
    """Say which requests were missed, late, or came out differently."""
    said = [f"{each.what} at {each.place} was left out" for each in live.missed]
    said += [f"{each.what} at {each.place} was served late" for each in live.late]
    for item, handle in (*live.served, *live.own.pairs()):
        if item.type == "fork":
            continue  # it changes nothing; what it found depends on the snapshots that are kept
        result = session.result(handle.id)
        if result is None:
            if is_over:
                said.append(f"{item.what} at {item.place} has no result")
            continue
        for name in ("status", "before", "after"):
            was, now = getattr(item, name), getattr(result, name)
            if strict(was) != strict(now):
                why = f" ({result.reason})" if result.reason else ""
                said.append(f"{item.what} at {item.place}: {name} was {was!r} and is {now!r}{why}")
                break
    return said


def _states(
    recorded: Sequence[Event], replayed: Sequence[Event], when: str
) -> tuple[Literal["equal", "different", "not recorded"], list[str]]:
    was = next((each.payload for each in recorded if each.payload.get("when") == when), None)
    now = next((each.payload for each in replayed if each.payload.get("when") == when), None)
    if was is None or now is None:
        return "not recorded", []
    if was.get("in_loop") or now.get("in_loop"):
        return "not recorded", []  # the first step was made already
    if was.get("sha256") == now.get("sha256"):
        return "equal", []
    one, other = was.get("parts") or {}, now.get("parts") or {}
    return "different", sorted(
        name for name in one.keys() | other.keys() if one.get(name) != other.get(name)
    )


def _trained_the_same(recorded: Sequence[Event], replayed: Sequence[Event]) -> bool:
    """Whether all that the recorded run came to was come to here, under whatever names.

    A model that was there at the start and is as it was does not count. Of optimizers and
    schedulers the new ones take the places of those of before.
    """
    was, now = _come_to(recorded), _come_to(replayed)
    return bool(was["model"]) and all(was[kind] <= now[kind] for kind in was)


def _come_to(states: Sequence[Event]) -> dict[str, Counter[str]]:
    """Count the final hashes by kind."""
    found = {each.payload.get("when"): each.payload.get("parts") or {} for each in states}
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for name, value in found.get("end", {}).items():
        kinds[name.partition(" ")[0]][value] += 1
    kinds["model"] -= Counter(
        value for name, value in found.get("start", {}).items() if name.startswith("model ")
    )
    return kinds


def _random(recording: Recording, replayed: Recording, live: Replaying) -> Place | None:
    """Find the first control point at which the streams stood differently."""
    found: dict[tuple[Any, ...], list[Event]] = {}
    for event in replayed.random:
        found.setdefault(_at(event, event.branch_id), []).append(event)
    for event in recording.random:
        same = found.get(_at(event, live.branch(event.branch_id)), [])
        if same and bool(same[0].payload.get("in_loop")) != bool(event.payload.get("in_loop")):
            continue
        if same and same.pop(0).payload.get("sha256") != event.payload.get("sha256"):
            return Place(event.round, event.branch_id, event.step, 0, event.seq)
    return None


def _begun_in_loop(recording: Recording, replayed: Recording) -> str:
    """Say that a run began in the midst of its loop, where its streams could not be put back."""
    was, now = (
        next((each.payload for each in one.random if each.payload.get("when") == "start"), None)
        for one in (recording, replayed)
    )
    if was is None or now is None:
        return ""
    late = [
        name
        for name, start in (("the recorded run", was), ("the replay", now))
        if start.get("in_loop")
    ]
    if not late or (len(late) == 2 and not now.get("put_back")):
        return ""
    return (
        f"{' and '.join(late)} began at the first control point, when the loop had drawn random "
        f"numbers already, so that it could not begin with the recorded random streams; wrap the "
        f"loop in `with session.run():`, in the recording and in the replay"
    )


def _at(event: Event, branch_id: int) -> tuple[Any, ...]:
    return event.payload.get("when"), event.round, branch_id, event.step


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Compare two descriptions of surroundings, packages and settings one by one."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in sorted(was.keys() - {"run"}):  # what it was called and meant for
        one, other = was.get(key), now.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            # A package that is loaded in one of them only changes nothing by itself.
            for name in sorted(one.keys() & other.keys()):
                if one[name] != other[name] and f"{key}.{name}" not in _ELSEWHERE:
                    found[f"{key}.{name}"] = one[name], other[name]
        elif one != other:
            found[key] = one, other
    return found


__all__ = ["Parting", "Recorded", "Verdict", "compare"]
