"""A steered run as plain code: what people did while it trained becomes a schedule in the loop."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from it2nb.core.errors import It2nbError
from it2nb.core.recording import RESTORES, Place, Recorded, Recording, keeps
from it2nb.pytorch import code_text as text
from it2nb.pytorch.code_cell import Cell, indented
from it2nb.pytorch.places import PLACES

if TYPE_CHECKING:
    from it2nb.core.history import History
    from it2nb.core.wire import Event

#: What changes nothing that is trained.
_HARMLESS = frozenset(
    {"pause", "resume", "note", "evaluate", "save_checkpoint", "list_checkpoints", "set_context",
     "fork"}
)  # fmt: skip


class Code(str):
    """The text of a program.

    Attributes
    ----------
    left_out : tuple of str
        What the run did and the program does not; empty where it does the same, bit for bit.
    """

    left_out: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether nothing was left out."""
        return not self.left_out

    def __repr__(self) -> str:
        # At a prompt one wants to read it.
        return str(self)


def to_code(journal: History) -> Code:
    """Write a steered run as plain Python and PyTorch, without it2nb. Any thread.

    Parameters
    ----------
    journal : History
        Live or opened.

    Returns
    -------
    Code
        For a ``%%it2`` cell the cell itself, with a schedule and calls around its updates. For
        another loop the schedule, and where to call it.

    Notes
    -----
    The same values to the bit need the same start: the cells before it, the same random state
    (``--seed N``, which the program repeats), versions and machine.
    """
    return _Program(journal).code()


@dataclass
class _Line:
    """One entry of a table: when (and in which order), what, and in words who did it."""

    when: int
    seq: float
    call: str
    why: list[str] = field(default_factory=list)
    optimizer: str | None = None


@dataclass(frozen=True)
class _Edit:
    """A request for a hyper-parameter that has not come into force yet."""

    update: int
    seq: int
    name: str
    group: str
    said: str
    kind: str
    before: Any = None
    after: Any = None


class _Program:
    """Collects the changes of a run, then the parts that they need."""

    def __init__(self, journal: History) -> None:
        self.recording = Recording(journal)
        self.before: list[_Line] = []
        self.after: list[_Line] = []
        self.told: list[tuple[int, str]] = []
        self.left_out: list[str] = []
        self.needs: set[str] = set()
        self.classes: set[str] = set()
        self.variables: dict[str, str] = {}
        self.widest = 1
        self.edits: list[_Edit] = []
        self.places = _Places(self.recording.requests)
        found = journal.tail(len(journal), ("in_force", "knobs_registered"))
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

    # --- what was done -------------------------------------------------------------------------

    def _request(self, request: Recorded) -> None:
        update = self.places.update(request.place)
        who = request.actor or request.source or "?"
        if request.type in _HARMLESS:
            return
        if request.type == "stop":
            self.needs.add("stop")
            self.after.append(_Line(update, request.place.seq, "stop()", [f"{who}: stop"]))
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
            self.edits.append(
                _Edit(update, place.seq, name, group, f"{who}: {said}", kind, *values)
            )
            if found["before"] == 0:
                self.needs.add("zero")
        else:
            self.left_out.append(f"{said}, asked by {who} at {place}")
            return
        self.told.append((update, f"{who:<8} {said}"))

    def _set_variable(self, place: Place, name: str, value: Any, why: str) -> None:
        setter = self.variables.setdefault(name, "set_" + re.sub(r"\W+", "_", name).strip("_"))
        call = f"{setter}({_literal(value)})"
        self.after.append(_Line(self.places.update(place), place.seq, call, [why]))

    # --- going back ----------------------------------------------------------------------------

    def _can_go_back(self, request: Recorded) -> bool:
        return request.restore is not None and request.restore.state is not None

    def _keep(self, place: Place) -> None:
        self.needs.add("keep")
        # Before what was asked at the same place, and after what was asked there earlier.
        call = f'keep("{_kept_name(place)}")'
        self.after.append(_Line(self.places.update(place), place.seq - 0.5, call))

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
            self.after.append(_Line(update, place.seq, call, [f"{who}: {said}"]))
            self._drop_edits(restore.state)
        self.told.append((update, f"{who:<8} {said}"))
        for name, each in (restore.told.get("knobs") or {}).items():
            group = self.groups.get(name, "")
            if group == "variables":
                self._set_variable(place, name, each["after"], f"{name} as it was")
            elif restore.state is None:
                self.edits.append(_Edit(update, place.seq, name, group, f"{who}: {said}", "undo"))

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
                table.append(_Line(when, at, call, why, optimizer))
                why = []

    def _edits_of(self, optimizer: str, cells: Mapping[str, Any]) -> list[_Edit]:
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
    ) -> Iterator[tuple[list[_Line], str]]:
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
    ) -> Iterator[tuple[list[_Line], str]]:
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

    # --- writing -------------------------------------------------------------------------------

    def code(self) -> Code:
        cell = (self.recording.cell or {}).get("text")
        body = _Body(self, cell).text() if isinstance(cell, str) else self._usage()
        sections = [self._head(), self._imports(), self._tables()]
        functions = "\n\n\n".join(each.strip("\n") for each in self._functions())
        text = "\n\n".join(each for each in sections if each)
        code = Code(
            "\n\n\n".join(each for each in (text, functions, body.strip("\n")) if each) + "\n"
        )
        code.left_out = tuple(self.left_out)
        return code

    def _head(self) -> str:
        run = self.recording.journal.run
        lines = [f"{run} as it was steered, in plain PyTorch."]
        for update, said in sorted(self.told, key=lambda each: each[0]):
            lines.append(f"  after update {update:>7,}  {said}")
        if not self.told:
            lines.append("Nobody changed anything.")
        if self.left_out:
            lines.append("Left out, so that its values will differ:")
            lines += [f"  {each}" for each in self.left_out]
        if self.recording.seed is None and self.recording.cell is not None:
            lines.append("The run was not seeded (--seed N): start from the same random state.")
        return "\n".join(f"# {line}" for line in lines)

    def _imports(self) -> str:
        wanted = {
            "copy": "keep" in self.needs,
            "math": "all_alike" in self._multiply(),
            "random": "keep" in self.needs or self.seed is not None,
        }
        third = {"numpy": wanted["random"], "torch": wanted["random"]}
        found = "\n".join(f"import {name}" for name, needed in wanted.items() if needed)
        return "\n\n".join(
            each
            for each in (found, "\n".join(f"import {n}" for n, needed in third.items() if needed))
            if each
        )

    @property
    def seed(self) -> int | None:
        """What the cell's run was seeded with."""
        return self.recording.seed if self.recording.cell is not None else None

    @property
    def acts_before(self) -> bool:
        """Whether something is to be done before an update."""
        return bool(self.before) or "held" in self.needs or self._uses_once or self.acts_first

    @property
    def acts_first(self) -> bool:
        """Whether something was asked before the first update, whose gradients were there."""
        return any(line.when == 0 for line in self.after)

    @property
    def is_many(self) -> bool:
        """Whether several optimizers are edited."""
        return len({line.optimizer for line in self.before if line.optimizer}) > 1

    def _tables(self) -> str:
        parts = []
        if self.before:
            parts += ["BEFORE = {  # what is changed before which update; the first is 1"]
            parts += [*_entries(self.before, self.is_many), "}"]
        if self.after:
            parts += ["AFTER = {  # ... and after which"]
            parts += [*_entries(self.after, False), "}"]
        needed = {
            "held": self.needs & {"held"},
            "times": self.needs & {"lent"},
            "once": self._uses_once,
            "lent": self.needs & {"held", "lent", "once", "zero"},
            "kept": self.needs & {"keep"},
        }
        parts += [text.TABLES[name] for name, used in needed.items() if used]
        if self.before or self.after:
            parts.append(text.COUNT.strip("\n"))
        return "\n".join(parts)

    @property
    def _uses_once(self) -> bool:
        return bool(self.needs & {"once", "lent", "zero"})

    def _functions(self) -> list[str]:
        found = [self._setter(name, function) for name, function in self.variables.items()]
        if "put" in self.needs:
            found.append(text.PUT)
        if "scaled" in self.needs:
            found.append(self._rescale())
        if self.needs & {"scaled", "unscaled"}:
            found.append(self._multiply())
            if self._is_nested:
                found.append(text.LEAVES)
        if "held" in self.needs:
            found.append(text.HOLD)
        if "freed" in self.needs:
            found.append(self._free())
        if "unscaled" in self.needs:
            found.append(text.UNSCALE)
        if "lent" in self.needs:
            found.append(text.LEND)
        if "keep" in self.needs:
            found += self._keeping()
        if "stop" in self.needs:
            found.append(text.STOPPED)
        if self.before or self.after:
            found += [self._before_update(), self._after_update()]
        return [each for each in found if each]

    def _setter(self, name: str, function: str) -> str:
        scope = f"    global {name}\n" if name.isidentifier() else ""
        return f"\n\ndef {function}(value):\n{scope}    {name} = value\n"

    def _rescale(self) -> str:
        kind = text.RESCALE_PLAIN
        if "zero" in self.needs:
            kind = text.RESCALE_ZERO
        if "lent" in self.needs:
            kind = text.RESCALE_TIMES
        return text.RESCALE.format(factors=kind[0], write=kind[1])

    def _free(self) -> str:
        drop = ""
        if "held" in self.needs:
            drop += "        held.pop((optimizer, at, key), None)\n"
        if "lent" in self.needs:
            drop += "        times.pop((optimizer, at), None)\n"
        return text.FREE.format(drop=drop or "        pass\n")

    @property
    def _is_nested(self) -> bool:
        return any(
            len(leaves) > 1
            for event in self.in_force
            for info in event.payload["cells"].values()
            for leaves in info["drivers"].values()
        )

    def _multiply(self) -> str:
        if not self.needs & {"scaled", "unscaled"}:
            return ""
        known = [PLACES[name] for name in sorted(self.classes) if name in PLACES]
        lists = dict.fromkeys(
            ["base_lrs", *(name for each in known for name in each.lists), "_last_lr"]
        )
        scalars = dict.fromkeys(n for each in known for n in (*each.scalars, *each.thresholds))
        keys = dict.fromkeys(["initial_lr", *(key for each in known for key in each.group_keys)])
        return text.MULTIPLY.format(
            same=text.SAME if scalars and self.widest > 1 else "",
            each="leaves(schedulers)" if self._is_nested else "schedulers",
            lists=text.LISTS.format(names=_tuple(lists)),
            scalars=text.SCALARS.format(
                names=_tuple(scalars), alike="all_alike and " if self.widest > 1 else ""
            )
            if scalars
            else "",
            keys=_tuple(keys),
        )

    def _keeping(self) -> list[str]:
        names = [name.partition(" ")[2] for name in self.names]
        objects = "(" + ", ".join(names) + (",)" if len(names) == 1 else ")")
        tables = [name for name in ("held", "times") if self._has_table(name)]
        put_back = "".join(
            f"    {name}.clear()\n    {name}.update({name}_then)\n" for name in tables
        )
        return [
            text.KEEP.format(objects=objects, tables="".join(f", dict({name})" for name in tables)),
            text.GO_BACK.format(
                objects=objects,
                tables="".join(f", {name}_then" for name in tables),
                put_back=put_back,
            ),
        ]

    def _has_table(self, name: str) -> bool:
        wanted = {"held": {"held"}, "times": {"lent"}}[name]
        return bool(self.needs & wanted)

    def _before_update(self) -> str:
        if not self.acts_before:
            return ""
        many = self.is_many
        key = "(updates + 1, name)" if many else "updates + 1"
        found = text.LET_BEFORE.format(name="name" if many else "")
        if self.acts_first:
            found += text.FIRST_BEFORE
        if self.before:
            found += text.CHANGE_BEFORE.format(key=key)
        if self._uses_once:
            found += text.FACTOR_BEFORE if "lent" in self.needs else _ONCE_BEFORE
        if "held" in self.needs:
            found += text.HELD_BEFORE
        return found

    def _after_update(self) -> str:
        found = text.LET_AFTER
        if self.needs & {"held", "lent", "once", "zero"}:
            found += text.LENT_AFTER
        found += text.COUNT_AFTER
        return found + (text.CHANGE_AFTER if self.after else "")

    def _usage(self) -> str:
        if not self.before and not self.after:
            return ""
        calls = ["before_update()"] if self.acts_before else []
        calls += ["optimizer.step()", "after_update()"]
        return "\n# Call it in the loop, around each update:\n" + "\n".join(
            f"#     {call}" for call in calls
        )


class _Body:
    """The cell with its calls, or hooks in their place."""

    def __init__(self, program: _Program, cell: str) -> None:
        self._program = program
        self._cell = cell
        self._options = str((program.recording.cell or {}).get("options") or "")
        self._at = str((program.recording.cell or {}).get("at") or "optimizer")

    def text(self) -> str:
        program = self._program
        found = self._steered()
        if "stop" in program.needs:
            found = self._stoppable(found)
        return self._seeded() + f"\n# The cell.\n{found}"

    def _seeded(self) -> str:
        seed = self._program.seed
        if seed is None:
            return ""
        return f"\nrandom.seed({seed})\nnumpy.random.seed({seed})\ntorch.manual_seed({seed})\n"

    def _steered(self) -> str:
        program = self._program
        if not program.before and not program.after:
            return self._cell
        optimizers = [n.partition(" ")[2] for n in program.names if n.startswith("optimizer ")]
        try:
            cell = Cell(self._cell)
        except SyntaxError:
            return self._hooked(optimizers)
        if self._at == "loop":
            if not cell.turns():
                program.left_out.append("the loop is in a function outside of the cell")
            return text.TURNS + text.WHILE + "\n\n" + cell.text()
        found = [(name, step) for name in optimizers for step in cell.steps_of(name)]
        if not found:
            return self._hooked(optimizers)
        found.sort(key=lambda each: each[1].lineno)
        counting = self._steps_of() or found[0][0]
        for name, step in found:
            before = f'before_update("{name}")' if program.is_many else "before_update()"
            cell.around(
                step,
                before if program.acts_before else "",
                "after_update()" if name == counting else "",
            )
        return cell.text()

    def _steps_of(self) -> str | None:
        found = re.search(r"--steps-of[ =](\S+)", self._options)
        return found[1] if found else None

    def _hooked(self, optimizers: list[str]) -> str:
        """The steps are made elsewhere: let the optimizer itself call."""
        program = self._program
        if len(optimizers) != 1:
            program.left_out.append("the cell does not show where its optimizers make their steps")
            return self._cell
        [name] = optimizers
        lines = ["handles = ["]
        if program.acts_before:
            lines.append(f"    {name}.register_step_pre_hook(lambda *_: before_update()),")
        lines.append(f"    {name}.register_step_post_hook(lambda *_: after_update()),")
        lines += ["]", self._cell.rstrip("\n"), "for handle in handles:", "    handle.remove()"]
        return "\n".join(lines) + "\n"

    def _stoppable(self, body: str) -> str:
        try:
            inside = indented(body.strip("\n"))
        except SyntaxError:
            return body  # it ends with the exception's traceback instead
        return f"try:\n{inside}\nexcept Stopped:\n    pass\n"


class _Places:
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


_ONCE_BEFORE = text.FACTOR_BEFORE[text.FACTOR_BEFORE.index("    for (optimizer, at), value") :]


def _entries(lines: list[_Line], many: bool) -> Iterable[str]:
    """Write the entries of a table, those of one update together."""
    found: dict[Any, list[_Line]] = {}
    for line in lines:
        found.setdefault((line.when, line.optimizer) if many else line.when, []).append(line)
    for key in sorted(found, key=lambda each: each if isinstance(each, int) else each[0]):
        found[key].sort(key=lambda each: each.seq)
        for line in found[key]:
            yield from (f"    # {why}" for why in line.why)
        calls = ", ".join(f"lambda: {line.call}" for line in found[key])
        shown = str(key) if isinstance(key, int) else f'({key[0]}, "{key[1]}")'
        yield f"    {shown}: [{calls}],"


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


def _tuple(names: Iterable[str]) -> str:
    return "(" + ", ".join(f'"{name}"' for name in names) + ",)"


__all__ = ["Code", "to_code"]
