"""What was changed in a run, in the order and at the updates at which a program has to do it."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from it2nb.core.errors import It2nbError
from it2nb.core.recording import RESTORES, Place, Recorded, Recording, keeps

if TYPE_CHECKING:
    from it2nb.core.history import History
    from it2nb.core.wire import Event

#: What changes nothing that is trained.
_HARMLESS = frozenset(
    {"pause", "resume", "note", "evaluate", "save_checkpoint", "list_checkpoints", "set_context",
     "fork"}
)  # fmt: skip


@dataclass
class Line:
    """One entry of a table: when (and in which order), what, and in words who did it."""

    when: int
    seq: float
    call: str
    why: list[str] = field(default_factory=list)
    optimizer: str | None = None


@dataclass(frozen=True)
class Edit:
    """A request for a hyper-parameter that has not come into force yet."""

    update: int
    seq: int
    name: str
    group: str
    said: str
    kind: str
    before: Any = None
    after: Any = None


class Changes:
    """The changes of a run, and what a program needs to make them.

    Attributes
    ----------
    before, after : list of Line
        What is done before and after which update.
    told : list of (update, text)
        The same for people.
    left_out : list of str
        What no program can do.
    needs : set of str
        Parts of `code_text` that are called.
    classes : set of str
        Of the schedulers that are scaled.
    variables : dict of str to str
        The setter of each variable.
    widest : int
        Groups of the largest optimizer that was edited.
    names : dict of str to str
        Class of each thing that was trained, by kind and name: ``optimizer opt``.
    """

    def __init__(self, journal: History, round: int | None = None) -> None:
        self.recording = Recording(journal)
        self.before: list[Line] = []
        self.after: list[Line] = []
        self.told: list[tuple[int, str]] = []
        self.left_out: list[str] = []
        self.needs: set[str] = set()
        self.classes: set[str] = set()
        self.variables: dict[str, str] = {}
        self.widest = 1
        self.edits: list[Edit] = []
        round = self._pick(round)
        self.places = Updates(self.recording.requests)
        rows = journal.tail(len(journal), ("in_force", "knobs_registered"))
        found = [event for event in rows if event.round == round]
        self.groups = _groups_of(found)
        self.in_force = [event for event in found if event.type == "in_force"]
        self.names = _bound_names(self.recording.states)
        self.optimizers = {c for n, c in self.names.items() if n.startswith("optimizer ")}
        for place in keeps([r for r in self.recording.requests if self._can_go_back(r)]):
            self._keep(place)
        steps: list[Recorded | Event] = [*self.recording.requests, *self.in_force]
        for each in sorted(steps, key=_seq):
            if isinstance(each, Recorded):
                self._request(each)
            else:
                self._in_force(each)
        self._find_lost_edits()

    def _pick(self, round: int | None) -> int:
        """Keep the requests of one round alone; the last one by default."""
        rounds = {event.round: event.payload for event in self.recording.rounds}
        chosen = max(rounds, default=0) if round is None else round
        if rounds and chosen not in rounds:
            raise It2nbError(f"round={round!r} is none of {', '.join(map(str, rounds))}")
        if rounds:
            seed = rounds[chosen].get("seed")
            self.told.append((0, f"round {chosen + 1} of {len(rounds)}, seeded with {seed}"))
        self.recording.requests = [
            each for each in self.recording.requests if each.place.round == chosen
        ]
        return chosen

    # --- what it takes ------------------------------------------------------------------------

    @property
    def seed(self) -> int | None:
        """What the cell's run was seeded with."""
        return self.recording.seed if self.recording.cell is not None else None

    @property
    def acts_before(self) -> bool:
        """Whether something is to be done before an update."""
        return bool(self.before) or "held" in self.needs or self.uses_once or self.acts_first

    @property
    def acts_first(self) -> bool:
        """Whether something was asked before the first update, whose gradients were there."""
        return any(line.when == 0 for line in self.after)

    @property
    def is_many(self) -> bool:
        """Whether several optimizers are edited."""
        return len({line.optimizer for line in self.before if line.optimizer}) > 1

    @property
    def uses_once(self) -> bool:
        """Whether a value stands there for one update alone."""
        return bool(self.needs & {"once", "lent", "zero"})

    # --- what was done -------------------------------------------------------------------------

    def _request(self, request: Recorded) -> None:
        update = self.places.update(request.place)
        who = request.actor or request.source or "?"
        if request.type in _HARMLESS:
            return
        if request.type == "stop":
            self.needs.add("stop")
            self.after.append(Line(update, request.place.seq, "stop()", [f"{who}: stop"]))
            self.told.append((update, f"{who:<8} stop"))
        elif request.type in ("set_knob", "set_mode"):
            self._knob(request.place, who, request.type, _told_of(request))
        elif request.type == "batch":
            for each in request.data or []:
                self._knob(request.place, who, "set_knob", each)
        elif request.type in RESTORES and request.restore is not None:
            self._go_back(request, update, who)
        else:
            self.left_out.append(f"{request.what}, asked by {who} at {request.place}")

    def _knob(self, place: Place, who: str, kind: str, found: Mapping[str, Any]) -> None:
        name, update = str(found["name"]), self.places.update(place)
        said = f"{name} {_short(found['before'])} -> {_short(found['after'])}"
        if kind == "set_mode":
            said = f"{name} in mode {found['requested']}"
            kind = "release" if found["requested"] == "release" else "mode"
        group = self.groups.get(name, "")
        if group == "variables":
            self._set_variable(place, name, found["after"], f"{who}: {said}")
        elif any(each in group for each in self.optimizers):
            values = found["before"], found["after"]
            self.edits.append(Edit(update, place.seq, name, group, f"{who}: {said}", kind, *values))
            if found["before"] == 0:
                self.needs.add("zero")
        else:
            self.left_out.append(f"{said}, asked by {who} at {place}")
            return
        self.told.append((update, f"{who:<8} {said}"))

    def _set_variable(self, place: Place, name: str, value: Any, why: str) -> None:
        setter = self.variables.setdefault(name, "set_" + re.sub(r"\W+", "_", name).strip("_"))
        call = f"{setter}({_literal(value)})"
        self.after.append(Line(self.places.update(place), place.seq, call, [why]))

    # --- going back ----------------------------------------------------------------------------

    def _can_go_back(self, request: Recorded) -> bool:
        return request.restore is not None and request.restore.state is not None

    def _keep(self, place: Place) -> None:
        self.needs.add("keep")
        # Before what was asked at the same place, and after what was asked there earlier.
        call = f'keep("{_kept_name(place)}")'
        self.after.append(Line(self.places.update(place), place.seq - 0.5, call))

    def _go_back(self, request: Recorded, update: int, who: str) -> None:
        restore, place = request.restore, request.place
        assert restore is not None
        said = f"{request.what}: the knobs alone"
        if restore.state is not None:
            if not self.names:
                self.left_out.append(f"{request.what}, asked by {who}: nothing has a name here")
                return
            said = f"{request.what}: back to {restore.state}"
            call = f'go_back("{_kept_name(restore.state)}")'
            self.after.append(Line(update, place.seq, call, [f"{who}: {said}"]))
            self._drop_edits(restore.state)
        self.told.append((update, f"{who:<8} {said}"))
        for name, each in (restore.told.get("knobs") or {}).items():
            group = self.groups.get(name, "")
            if group == "variables":
                self._set_variable(place, name, each["after"], f"{name} as it was")
            elif restore.state is None:
                self.edits.append(Edit(update, place.seq, name, group, f"{who}: {said}", "undo"))

    def _drop_edits(self, state: Place) -> None:
        """What was asked and not used yet is as if it had never been asked."""
        for each in self.edits:
            if each.kind == "release" and each.seq < state.seq and each.before != each.after:
                self.left_out.append(f"{each.said}, and then back to the moment after it")
        self.edits.clear()

    # --- optimizers ----------------------------------------------------------------------------

    def _in_force(self, event: Event) -> None:
        found = event.payload
        update = self.places.offset(event.branch_id) + int(found["update"])
        optimizer = str(found["optimizer"])
        edits = self._edits_of(optimizer, found["cells"])
        why = [each.said for each in edits]
        if not _is_expression(optimizer):
            self.left_out.append(f"{'; '.join(why)}: {optimizer} has no name in the code")
            return
        for cell, info in found["cells"].items():
            self.widest = max(self.widest, len(info["how"]))
            own = [each for each in edits if _concerns(each.name, cell)]
            seq = max((each.seq for each in own), default=event.seq)
            released = max((each.seq for each in own if each.kind == "release"), default=seq)
            for table, call in self._calls(optimizer, cell, info):
                when = update if table is self.before else update - 1
                at = released if call.startswith(("free(", "unscale(")) else seq
                table.append(Line(when, at, call, why, optimizer))
                why = []

    def _edits_of(self, optimizer: str, cells: Mapping[str, Any]) -> list[Edit]:
        """Take out the edits that came into force for an optimizer."""
        alone = sum(each.startswith("optimizer ") for each in self.names) <= 1
        found = [
            each
            for each in self.edits
            if (alone or each.group.startswith(f"{optimizer} ("))
            and any(_concerns(each.name, cell) for cell in cells)
        ]
        self.edits = [each for each in self.edits if each not in found]
        return found

    def _calls(
        self, optimizer: str, cell: str, info: Mapping[str, Any]
    ) -> Iterator[tuple[list[Line], str]]:
        """Write what became of one hyper-parameter: each table and call."""
        key, _ = _parse(cell)
        drivers = "[" + ", ".join(info["drivers"]) + "]"
        scaled = _by_group(info["unscaled"])
        if scaled or "scaled" in info["how"]:
            self.classes.update(each for leaves in info["drivers"].values() for each in leaves)
            unnamed = [each for each in info["drivers"] if not self._is_known(each)]
            if unnamed:
                self.left_out.append(f"{cell} of {optimizer}: {unnamed[0]} has no name in the code")
                return
        if any(info["freed"]):
            self.needs.add("freed")
            groups = [at for at, each in enumerate(info["freed"]) if each]
            yield self.after, f'free({optimizer}, "{key}", {groups})'
        if scaled:
            self.needs.add("unscaled")
            yield self.after, f"unscale({optimizer}, {scaled}, {drivers})"
        if _by_group(info["factor"]):
            self.needs.add("lent")
            yield self.after, f"times.update({_by_group(info['factor'], optimizer)})"
        for how in dict.fromkeys(info["how"]):
            chosen = [
                v if h == how else None for h, v in zip(info["how"], info["values"], strict=True)
            ]
            if how != "none":
                yield from self._call(optimizer, cell, how, chosen, drivers)

    def _call(
        self, optimizer: str, cell: str, how: str, chosen: list[Any], drivers: str
    ) -> Iterator[tuple[list[Line], str]]:
        key, index = _parse(cell)
        values = _by_group(chosen)
        if how == "set":
            self.needs.add("put")
            more = "" if index is None else f", {index}"
            # Under a schedule it is written just before the update, or it would be overwritten.
            table = self.after if drivers == "[]" else self.before
            yield table, f'put({optimizer}, "{key}", {values}{more})'
        elif index is not None or (key != "lr" and how != "held"):
            self.left_out.append(f"{cell} under a schedule: {how} {values}")
        else:
            self.needs.add(how)
            if how == "held":
                yield self.after, f'hold({optimizer}, "{key}", {values})'
            elif how == "scaled":
                yield self.before, f"rescale({optimizer}, {values}, {drivers})"
            elif how == "once":
                yield self.before, f"once.update({_by_group(chosen, optimizer)})"
            else:
                yield self.before, f"lend({optimizer}, {values})"

    def _is_known(self, scheduler: str) -> bool:
        return f"scheduler {scheduler}" in self.names and _is_expression(scheduler)

    def _find_lost_edits(self) -> None:
        """An edit that was taken back, or that no update used, is none; others are missing."""
        last = self.recording.last
        end = -1 if last is None else self.places.update(last)
        for each in self.edits:
            same = [e for e in self.edits if (e.update, e.name) == (each.update, each.name)]
            is_taken_back = any(e.kind != "set_knob" and e.seq >= each.seq for e in same)
            if each.update < end and not is_taken_back and same[0].before != same[-1].after:
                self.left_out.append(f"{each.said}, after update {each.update}")


class Updates:
    """Updates counted through all branches, since a program counts them so."""

    def __init__(self, requests: Iterable[Recorded]) -> None:
        self._offsets = {0: 0}
        for each in requests:
            restore = each.restore
            if restore is None or restore.state is None:
                continue
            told = restore.told
            self._offsets[int(told["branch_id"])] = self.update(each.place) - int(told["step"])

    def offset(self, branch_id: int) -> int:
        """Updates before step 0 of a branch."""
        return self._offsets.get(branch_id, 0)

    def update(self, place: Place) -> int:
        """How many updates were made when the run was there."""
        return self.offset(place.branch_id) + place.step


def _seq(each: Recorded | Event) -> int:
    return each.place.seq if isinstance(each, Recorded) else each.seq


def _concerns(knob: str, cell: str) -> bool:
    """Whether a knob is this hyper-parameter: ``opt.lr[1]`` is ``lr``."""
    at = knob.rfind(cell)
    if at < 0 or (at > 0 and knob[at - 1] != "."):
        return False
    rest = knob[at + len(cell) :]
    return not rest or (rest.startswith("[") and rest.endswith("]"))


def _told_of(request: Recorded) -> dict[str, Any]:
    """Return what a request says of its knob."""
    return {key: getattr(request, key) for key in ("name", "requested", "before", "after")}


def _groups_of(events: Iterable[Event]) -> dict[str, str]:
    """Return the panel's group of each knob: ``variables``, or its optimizer."""
    found: dict[str, str] = {}
    for event in events:
        if event.type == "knobs_registered":
            for view in event.payload.get("knobs", []):
                found[view["name"]] = view.get("group") or ""
    return found


def _bound_names(states: list[Event]) -> dict[str, str]:
    """Return kind and name of what was trained, with its class: ``optimizer opt``."""
    for event in reversed(states):
        return dict(event.payload.get("classes", {}))
    return {}


def _by_group(values: Iterable[Any], optimizer: str | None = None) -> str:
    """Write values by group, those that are there; empty for none."""
    key = "{at}" if optimizer is None else f"({optimizer}, {{at}})"
    found = [
        f"{key.format(at=at)}: {_literal(value)}"
        for at, value in enumerate(values)
        if value is not None
    ]
    return "{" + ", ".join(found) + "}" if found else ""


def _parse(cell: str) -> tuple[str, int | None]:
    found = re.fullmatch(r"(\w+)\[(\d+)\]", cell)
    return (cell, None) if found is None else (found[1], int(found[2]))


def _kept_name(place: Place) -> str:
    return f"{place} ({place.seq})"


def _is_expression(name: str) -> bool:
    try:
        node = ast.parse(name, mode="eval").body
    except SyntaxError:
        return False
    return isinstance(node, (ast.Name, ast.Attribute, ast.Subscript))


def _literal(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value!r}")'
    if not isinstance(value, (bool, int, float, str, type(None))):
        raise It2nbError(f"a value of type {type(value).__name__} can't be written as code")
    return repr(value)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else repr(value)
