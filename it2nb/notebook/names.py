"""Which names of the namespace some code reads and binds, found in its byte code."""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any

_READS = frozenset({"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_BINDS = frozenset({"STORE_NAME", "STORE_GLOBAL", "DELETE_NAME", "DELETE_GLOBAL"})


@dataclass(frozen=True, slots=True)
class Names:
    """Global names that code reads, those that it binds or deletes, and attributes of anything."""

    reads: frozenset[str] = frozenset()
    binds: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()

    def __or__(self, other: Names) -> Names:
        return Names(
            self.reads | other.reads, self.binds | other.binds, self.attributes | other.attributes
        )

    @property
    def all(self) -> frozenset[str]:
        """Names that it reads or binds."""
        return self.reads | self.binds


def names_of(*codes: CodeType | None) -> Names:
    """Return the global names that code objects and the functions inside them use."""
    found: tuple[set[str], set[str], set[str]] = (set(), set(), set())
    for code in codes:
        if code is not None:
            _collect(code, *found, top=True)
    return Names(*map(frozenset, found))


def reach(names: Names, namespace: Mapping[str, Any]) -> Names:
    """Follow functions and classes of the namespace: what they use, the code uses too."""
    known = names
    seen: set[int] = set()
    waiting = list(names.reads)
    while waiting:
        value = namespace.get(waiting.pop())
        for function in _functions(value, namespace):
            if id(function.__code__) in seen:
                continue
            seen.add(id(function.__code__))
            more = names_of(function.__code__)
            waiting += more.reads - known.reads
            known = known | more
    return known


def local_names(code: CodeType | None) -> frozenset[str]:
    """Return every variable name in the code: global, local, in any function inside it."""
    if code is None:
        return frozenset()
    found = set(code.co_names) | set(code.co_varnames) | set(code.co_cellvars)
    for inner in _inner(code):
        found |= local_names(inner)
    return frozenset(found)


def _collect(
    code: CodeType, reads: set[str], binds: set[str], attributes: set[str], *, top: bool
) -> None:
    for each in dis.get_instructions(code):
        # Names in a class body are its own; in the cell's body they are global.
        inside_class = not top and each.opname.endswith("_NAME")
        if each.opname in _READS:
            reads.add(str(each.argval))
        elif each.opname in _BINDS and not inside_class:
            binds.add(str(each.argval))
        elif each.opname in _ATTRIBUTES:
            attributes.add(str(each.argval))
    for inner in _inner(code):
        _collect(inner, reads, binds, attributes, top=False)


def _inner(code: CodeType) -> Iterator[CodeType]:
    return (each for each in code.co_consts if isinstance(each, CodeType))


def _functions(value: Any, namespace: Mapping[str, Any]) -> Iterator[FunctionType]:
    """Yield the functions behind a value that were defined in this namespace."""
    # No getattr on what may be anything: a lazy module imports half the world at that.
    candidates: list[Any] = [value]
    if isinstance(value, FunctionType):
        candidates.append(vars(value).get("__wrapped__"))
    elif isinstance(value, functools.partial):
        candidates.append(value.func)
    kind = value if isinstance(value, type) else type(value)
    if kind.__module__ == namespace.get("__name__"):
        candidates += vars(kind).values()
    for each in candidates:
        if isinstance(each, (classmethod, staticmethod, MethodType)):
            each = each.__func__
        if isinstance(each, FunctionType) and each.__globals__ is namespace:
            yield each
