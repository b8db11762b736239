"""Writing a program: tables of changes, the functions that they need, the cell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from it2nb.pytorch import code_text as text
from it2nb.pytorch.code_body import Body
from it2nb.pytorch.code_changes import Changes, Line
from it2nb.pytorch.places import PLACES

_ONCE_BEFORE = text.FACTOR_BEFORE[text.FACTOR_BEFORE.index("    for (optimizer, at), value") :]


class Writer:
    """Writes what was changed in a run as a program.

    Parameters
    ----------
    changes : Changes
    """

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self.needs = changes.needs

    def text(self) -> str:
        """Return the program."""
        cell = (self._changes.recording.cell or {}).get("text")
        # The cell first: it may find that something has to be left out.
        body = Body(self._changes, cell).text() if isinstance(cell, str) else self._usage()
        sections = [self._head(), self._imports(), self._tables()]
        top = "\n\n".join(each for each in sections if each)
        functions = "\n\n\n".join(each.strip("\n") for each in self._functions())
        parts = (top, functions, body.strip("\n"))
        return "\n\n\n".join(each for each in parts if each) + "\n"

    def _head(self) -> str:
        run = self._changes.recording.journal.run
        lines = [f"{run} as it was steered, in plain PyTorch."]
        for update, said in sorted(self._changes.told, key=lambda each: each[0]):
            lines.append(f"  after update {update:>7,}  {said}")
        if not self._changes.told:
            lines.append("Nobody changed anything.")
        if self._changes.left_out:
            lines.append("Left out, so that its values will differ:")
            lines += [f"  {each}" for each in self._changes.left_out]
        if self._changes.recording.seed is None and self._changes.recording.cell is not None:
            lines.append("The run was not seeded (--seed N): start from the same random state.")
        return "\n".join(f"# {line}" for line in lines)

    def _imports(self) -> str:
        wanted = {
            "copy": "keep" in self.needs,
            "math": "all_alike" in self._multiply(),
            "random": "keep" in self.needs or self._changes.seed is not None,
        }
        third = {"numpy": wanted["random"], "torch": wanted["random"]}
        found = "\n".join(f"import {name}" for name, needed in wanted.items() if needed)
        return "\n\n".join(
            each
            for each in (found, "\n".join(f"import {n}" for n, needed in third.items() if needed))
            if each
        )

    def _tables(self) -> str:
        parts = []
        if self._changes.before:
            parts += ["BEFORE = {  # what is changed before which update; the first is 1"]
            parts += [*_entries(self._changes.before, self._changes.is_many), "}"]
        if self._changes.after:
            parts += ["AFTER = {  # ... and after which"]
            parts += [*_entries(self._changes.after, False), "}"]
        needed = {
            "held": self.needs & {"held"},
            "times": self.needs & {"lent"},
            "once": self._changes.uses_once,
            "lent": self.needs & {"held", "lent", "once", "zero"},
            "kept": self.needs & {"keep"},
        }
        parts += [text.TABLES[name] for name, used in needed.items() if used]
        if self._changes.before or self._changes.after:
            parts.append(text.COUNT.strip("\n"))
        return "\n".join(parts)

    def _functions(self) -> list[str]:
        found = [self._setter(name, function) for name, function in self._changes.variables.items()]
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
        if self._changes.before or self._changes.after:
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
            for event in self._changes.in_force
            for info in event.payload["cells"].values()
            for leaves in info["drivers"].values()
        )

    def _multiply(self) -> str:
        if not self.needs & {"scaled", "unscaled"}:
            return ""
        known = [PLACES[name] for name in sorted(self._changes.classes) if name in PLACES]
        lists = dict.fromkeys(
            ["base_lrs", *(name for each in known for name in each.lists), "_last_lr"]
        )
        scalars = dict.fromkeys(n for each in known for n in (*each.scalars, *each.thresholds))
        keys = dict.fromkeys(["initial_lr", *(key for each in known for key in each.group_keys)])
        return text.MULTIPLY.format(
            same=text.SAME if scalars and self._changes.widest > 1 else "",
            each="leaves(schedulers)" if self._is_nested else "schedulers",
            lists=text.LISTS.format(names=_tuple(lists)),
            scalars=text.SCALARS.format(
                names=_tuple(scalars), alike="all_alike and " if self._changes.widest > 1 else ""
            )
            if scalars
            else "",
            keys=_tuple(keys),
        )

    def _keeping(self) -> list[str]:
        names = [name.partition(" ")[2] for name in self._changes.names]
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
        if not self._changes.acts_before:
            return ""
        many = self._changes.is_many
        key = "(updates + 1, name)" if many else "updates + 1"
        found = text.LET_BEFORE.format(name="name" if many else "")
        if self._changes.acts_first:
            found += text.FIRST_BEFORE
        if self._changes.before:
            found += text.CHANGE_BEFORE.format(key=key)
        if self._changes.uses_once:
            found += text.FACTOR_BEFORE if "lent" in self.needs else _ONCE_BEFORE
        if "held" in self.needs:
            found += text.HELD_BEFORE
        return found

    def _after_update(self) -> str:
        found = text.LET_AFTER
        if self.needs & {"held", "lent", "once", "zero"}:
            found += text.LENT_AFTER
        found += text.COUNT_AFTER
        return found + (text.CHANGE_AFTER if self._changes.after else "")

    def _usage(self) -> str:
        if not self._changes.before and not self._changes.after:
            return ""
        calls = ["before_update()"] if self._changes.acts_before else []
        calls += ["optimizer.step()", "after_update()"]
        return "\n# Call it in the loop, around each update:\n" + "\n".join(
            f"#     {call}" for call in calls
        )


def _entries(lines: list[Line], many: bool) -> Iterable[str]:
    """Write the entries of a table, those of one update together."""
    found: dict[Any, list[Line]] = {}
    for line in lines:
        found.setdefault((line.when, line.optimizer) if many else line.when, []).append(line)
    for key in sorted(found, key=lambda each: each if isinstance(each, int) else each[0]):
        found[key].sort(key=lambda each: each.seq)
        for line in found[key]:
            yield from (f"    # {why}" for why in line.why)
        calls = ", ".join(f"lambda: {line.call}" for line in found[key])
        shown = str(key) if isinstance(key, int) else f'({key[0]}, "{key[1]}")'
        yield f"    {shown}: [{calls}],"


def _tuple(names: Iterable[str]) -> str:
    return "(" + ", ".join(f'"{name}"' for name in names) + ",)"
