"""What makes a step in a cell: an optimizer's step, a turn of the loop, or the cell itself."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from it2nb.core.errors import It2nbError
from it2nb.core.session import Session
from it2nb.notebook.commands import At, CellOptions
from it2nb.notebook.discover import find
from it2nb.notebook.names import Names

#: What code that trains by itself calls, under some name or other.
_TRAINS = frozenset({"step", "backward", "fit"})
#: Packages that step no optimizer behind one's back.
_HARMLESS = frozenset(
    {"IPython", "PIL", "builtins", "datasets", "einops", "it2nb", "matplotlib", "numpy", "pandas",
     "plotly", "scipy", "sklearn", "torch", "torchaudio", "torchvision", "tqdm"}
)  # fmt: skip


def control_points(
    options: CellOptions,
    names: Names,
    loops_found: int,
    namespace: Mapping[str, Any],
    *,
    by_itself: bool = False,
) -> At:
    """Decide what makes a step, where ``--at`` does not say it.

    Parameters
    ----------
    options : CellOptions
    names : Names
        That the code uses.
    loops_found : int
    namespace : mapping
    by_itself : bool
        The cell steps the session that is made for it.

    Raises
    ------
    It2nbError
        If what was asked for is not there.
    """
    if options.at == "loop" and not loops_found:
        raise It2nbError(
            "--at loop: the cell has no for or while loop, also not in its functions; call "
            "session.step(...) where a step ends, with %%it2 --session s --at session"
        )
    if options.at == "session" and options.session is None:
        raise It2nbError("--at session needs --session NAME, whose step() the cell calls")
    if options.at != "auto":
        return options.at
    if by_itself or (options.session is not None and options.session in names.reads):
        return "session"
    if not loops_found or may_step_an_optimizer(names, namespace):
        return "optimizer"
    return "loop"


def steps_itself(tree: ast.AST) -> bool:
    """Tell whether code calls ``step`` of the run's own session.

    That is ``it2nb.current().step(...)``, or the same on a name that it gives ``current()``.
    """
    names = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.NamedExpr)) and _is_current(node.value)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "step"
        and (
            _is_current(node.func.value)
            or (isinstance(node.func.value, ast.Name) and node.func.value.id in names)
        )
        for node in ast.walk(tree)
    )


def _is_current(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.NamedExpr) and _is_current(node.value)
    called = node.func
    return "current" in (getattr(called, "attr", None), getattr(called, "id", None))


def may_step_an_optimizer(names: Names, namespace: Mapping[str, Any]) -> bool:
    """Tell whether the code may step an optimizer, as far as one can see from outside."""
    if "torch" in names.binds:  # the cell imports it
        return True
    if "torch" in sys.modules:
        used = {name: namespace[name] for name in names.reads if name in namespace}
        if names.attributes & _TRAINS or find(used).optimizers:
            return True
        return any(_is_unknown(each) for each in used.values())
    return False


def own_session(names: Names, namespace: Mapping[str, Any]) -> str | None:
    """Return the name of a live session whose ``step`` or ``pump`` the code may call."""
    if not names.attributes & {"step", "pump"}:
        return None
    found = [
        name
        for name in names.reads
        if isinstance(namespace.get(name), Session) and not namespace[name].is_ended
    ]
    return found[0] if len(found) == 1 else None


def _is_unknown(value: Any) -> bool:
    """Whether a value's code lives where we can't look: it may train."""
    if isinstance(value, ModuleType):
        home = value.__name__
    else:
        home = getattr(value, "__module__", None) or type(value).__module__
    package = str(home).partition(".")[0]
    return not (
        package in _HARMLESS
        or package in sys.stdlib_module_names
        or package == "__main__"
        or package.startswith("_")
    )
