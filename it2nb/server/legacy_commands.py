"""Commands of the first Interactive Training release, as requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from it2nb.core.faults import guard
from it2nb.core.wire import Action, new_id
from it2nb.server.answers import Refusal
from it2nb.server.legacy_views import checkpoint_id

if TYPE_CHECKING:
    from it2nb.server.legacy import Command

#: Commands without arguments: the request's type.
_PLAIN = {
    "pause_training": "pause",
    "resume_training": "resume",
    "stop_training": "stop",
    "do_evaluate": "evaluate",
    "save_checkpoint": "save_checkpoint",
}
_OTHERS = frozenset(
    {
        "load_checkpoint", "model_layer_operation", "model_layer_parameter_update",
        "update_dataset", "update_dataset_runtime_hyperparameters", "update_optimizer",
    }
)  # fmt: skip
#: The request's type: what the first release calls it.
COMMANDS = {
    **{ours: theirs for theirs, ours in _PLAIN.items()},
    "load_checkpoint": "load_checkpoint",
    "set_knob": "update_optimizer",
    "batch": "update_optimizer",
    "reset_module": "model_layer_operation",
    "freeze": "model_layer_operation",
    "unfreeze": "model_layer_operation",
}


def action_of(command: Command, session: Any) -> Action:
    """Make the request that a command means; raises the Refusal that a bad one deserves."""
    name = command.command
    if name not in _PLAIN and name not in _OTHERS:
        known = ", ".join(sorted([*_PLAIN, *_OTHERS]))
        raise Refusal(400, f"Unknown command type {name[:80]!r}; known: {known}")
    args = _arguments(command) if name in _OTHERS else {}
    kind, payload = _request(name, args, session)
    return Action(type=kind, payload=payload, id=command.uuid or new_id(), actor="human:v1")


def _arguments(command: Command) -> dict[str, Any]:
    try:
        args = orjson.loads(command.args or "{}")
    except orjson.JSONDecodeError as err:
        raise Refusal(422, f"args: no JSON ({err})") from None
    if not isinstance(args, dict):
        raise Refusal(422, f"args: has to be a JSON object, not {str(args)[:80]!r}")
    return args


def _request(name: str, args: dict[str, Any], session: Any) -> tuple[str, dict[str, Any]]:
    if name in _PLAIN:
        return _PLAIN[name], {}
    if name == "update_optimizer":
        return _settings({key: _value_in(each) for key, each in args.items()}, session)
    if name == "load_checkpoint":
        return "load_checkpoint", {"path": _path_of(args.get("uuid"), session)}
    if name == "model_layer_parameter_update":
        knob = f"{_text(args, 'layer_name')}.{_text(args, 'param_name')}".lstrip(".")
        return _settings({knob: args.get("value")}, session)
    if name == "model_layer_operation":
        return _operation(args)
    if args and all(key in session.knobs for key in args):
        return _settings(args, session)
    # A run that can do it has an action of that name; another one says that it can't.
    return name, args


def _settings(values: Mapping[str, Any], session: Any) -> tuple[str, dict[str, Any]]:
    """Make one request of values, each to the knob of that name; several are all or none."""
    if not values:
        raise Refusal(422, "args: names no parameter")
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, (list, tuple)) and name not in session.knobs:
            flat.update({f"{name}[{at}]": each for at, each in enumerate(value)})
        else:
            flat[name] = value
    flat = {name: _number(name, value, session) for name, value in flat.items()}
    if len(flat) == 1:
        ((name, value),) = flat.items()
        return "set_knob", {"name": name, "value": value}
    return "batch", {"set": flat}


def _number(name: str, value: Any, session: Any) -> Any:
    """Read numbers in text, which the first release's page sends."""
    if isinstance(value, str) and name in session.knobs:
        dtype = session.knobs[name].dtype
        if dtype == "bool" and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if dtype in ("float", "int"):
            with guard("number in a text"):
                return float(value) if dtype == "float" else int(value)
    return value


def _value_in(given: Any) -> Any:
    return given["value"] if isinstance(given, dict) and "value" in given else given


def _operation(args: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    layer, operation = _text(args, "layer_name"), _text(args, "operation_name")
    if operation == "reset_parameters":
        return "reset_module", {"name": layer}
    if operation == "requires_grad_":
        params = args.get("params")
        wanted = params.get("requires_grad", True) if isinstance(params, dict) else True
        frozen = str(wanted).lower() in ("false", "0")
        return ("freeze" if frozen else "unfreeze"), {"name": layer}
    return "model_layer_operation", dict(args)


def _text(args: Mapping[str, Any], key: str) -> str:
    value = args.get(key)
    if not isinstance(value, str):
        raise Refusal(422, f"args: {key} is {value!r:.60}, it has to be text")
    return value


def _path_of(uuid: Any, session: Any) -> str:
    for entry in session.checkpoints:
        if checkpoint_id(entry) == uuid:
            return str(entry["path"])
    raise Refusal(422, f"args: no checkpoint has the uuid {uuid!r:.80}")
