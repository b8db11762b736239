"""What the first Interactive Training release shows of a run. Any thread."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from it2nb.core.control import ENDED
from it2nb.core.wire import KnobView, State

#: Points of a branch in ``get_logs``, the newest.
MAX_POINTS = 5_000
#: Knobs of a group with this name are parameters of the dataset.
DATASET = "dataset"


def branch_name(branch_id: int) -> str:
    """Return the name of a branch: ``main``, ``branch_1``..."""
    return "main" if branch_id == 0 else f"branch_{branch_id}"


def checkpoint_id(entry: Mapping[str, Any]) -> str:
    """Return a checkpoint's uuid, which follows from its path and step."""
    key = f"{entry.get('path')}\n{entry.get('step')}".encode()
    return str(uuid.UUID(bytes=hashlib.sha256(key).digest()[:16], version=4))


def began_at(session: Any) -> float:
    """Return the Unix time of the run's first row."""
    first = session.journal.since(0, limit=1)
    return float(first[0].ts) if first else time.time()


def info(session: Any) -> dict[str, Any]:
    """Status and name."""
    status = session.status
    shown = {"created": "init", "running": "running", "paused": "paused"}.get(status, "stopped")
    name = session.title or session.run_id
    return {"start_time": began_at(session), "status": shown, "run_name": name}


def optimizer(session: Any) -> dict[str, Any]:
    """Hyper-parameters of the optimizer, by name."""
    state: State = session.state()
    found: dict[str, Any] = {}
    for each in session.bound.optimizers:
        kind = type(each)
        found["optimizer_name"] = f"{kind.__module__}.{kind.__name__}"
        break
    for knob in state.knobs:
        if knob.group.lower() != DATASET and not _of_a_module(knob, state):
            name, bracket, _ = knob.name.partition("[")
            if bracket:
                found.setdefault(name, [])
                if isinstance(found[name], list):
                    found[name].append(knob.value)
            else:
                found[knob.name] = knob.value
    return found


def model(session: Any) -> dict[str, Any]:
    """The tree of modules, with what can be done with each."""
    state: State = session.state()
    if state.model_tree is None:
        return {"name": None, "children": [], "module_type": "Unknown", "operators": [],
                "hyperparameters": []}  # fmt: skip
    return _node(state.model_tree, {knob.name: knob for knob in state.knobs}, state)


def dataset(session: Any) -> dict[str, Any]:
    """Parameters of the dataset."""
    state: State = session.state()
    live = {knob.name: knob.value for knob in state.knobs if knob.group.lower() == DATASET}
    return {"initialization_parameters": {}, "interactive_parameters": live}


def checkpoints(session: Any) -> list[dict[str, Any]]:
    """Checkpoints that can be loaded."""
    return [checkpoint(entry) for entry in list(session.checkpoints)[-1000:]]


def checkpoint(entry: Mapping[str, Any]) -> dict[str, Any]:
    """One of them."""
    made = 0.0
    with suppress(OSError, TypeError):
        made = os.path.getmtime(entry["path"])
    return {
        "time": made,
        "checkpoint_dir": str(entry.get("path")),
        "uuid": checkpoint_id(entry),
        "branch_id": branch_name(int(entry.get("branch_id", 0))),
        "global_step": entry.get("step", 0),
    }


def logs(session: Any) -> dict[str, Any]:
    """The newest metrics of each branch."""
    began = began_at(session)
    branches = session.branches
    series: dict[str, list[dict[str, Any]]] = {branch_name(each.id): [] for each in branches}
    total = len(session.metrics)
    for block in session.metrics.blocks(max(0, total - MAX_POINTS), total):
        points = series.setdefault(branch_name(block.branch_id), [])
        for at, (step, t, *values) in enumerate(block.rows.tolist()):
            point = dict(zip(block.names, values, strict=True))
            points.append(
                {
                    "local_step": block.first + at + 1,
                    "wall_time": began + t,
                    "metrics": {**point, "global_step": int(step)},
                }
            )
    tree: dict[str, list[str]] = {branch_name(each.id): [] for each in branches}
    for each in branches:
        if each.parent is not None:
            tree[branch_name(each.parent)].append(branch_name(each.id))
    return {
        "local_step": total,
        "branched_logs": series,
        "current_branch": branch_name(session.branch_id),
        "branch_info": {branch_name(each.id): branch_info(each, began) for each in branches},
        "branch_tree": tree,
    }


def branch_info(branch: Any, at: float) -> dict[str, Any]:
    """Where a branch comes from."""
    parent = None if branch.parent is None else branch_name(branch.parent)
    return {"id": branch_name(branch.id), "wall_time": at, "parent": parent}


def is_over(session: Any) -> bool:
    """Whether the run has ended."""
    return session.status in ENDED


def _of_a_module(knob: KnobView, state: State) -> bool:
    return "." in knob.name and state.model_tree is not None


def _node(tree: Mapping[str, Any], knobs: Mapping[str, KnobView], state: State) -> dict[str, Any]:
    name = str(tree.get("name", ""))
    enabled = {each.name for each in state.actions if each.enabled}
    operators: list[dict[str, Any]] = []
    if "reset_module" in enabled:
        operators.append({"name": "reset_parameters", "signature": []})
    if "freeze" in enabled:
        flag = {"name": "requires_grad", "type": "bool", "value": "True"}
        operators.append({"name": "requires_grad_", "signature": [flag]})
    settings = [
        {"name": each.name.rpartition(".")[2], "value": each.value, "type": each.dtype}
        for each in knobs.values()
        if "." in each.name and each.name.rpartition(".")[0] == name
    ]
    return {
        "name": name or "Model",
        "module_type": tree.get("module_type", "Unknown"),
        "operators": operators,
        "hyperparameters": settings,
        "children": [_node(child, knobs, state) for child in tree.get("children", [])],
    }
