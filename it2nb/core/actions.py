"""Actions: what a run can be asked to do, from typed signatures to validation and JSON schema."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.errors import PydanticUserError

from it2nb.core.errors import ActionError, Rejected, UnknownAction, near
from it2nb.core.faults import guard
from it2nb.core.wire import ActionSchema, Offer

if TYPE_CHECKING:
    from it2nb.core.session import Session

Handler = Callable[[dict[str, Any], "Session"], Any]

#: Actions that come with a model, or with what trains it.
OF_A_MODEL = frozenset({"undo", "goto", "fork", "list_checkpoints", "freeze", "unfreeze"})
#: Further names of arguments, by action: what people write for a path that is a tag.
ALSO: Mapping[str, Mapping[str, str]] = {"load_checkpoint": {"tag": "path"}}


@dataclass(frozen=True, slots=True)
class Owed:
    """A handler returns it when the loop has to do the thing itself, after the control point.

    The result is sent when the loop reports it done, or at its next control point as `failed`.

    Attributes
    ----------
    kind : {"evaluate", "save", "load", "reset"}
    value : str, optional
        Tag, path or module name.
    """

    kind: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Deferred:
    """A handler returns it when it gives the result itself, some control points later.

    It keeps ``session.serving`` and calls `it2nb.core.serving.settle` with it, also when the
    session ends before (``session.on_end``).
    """


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """One action: a name, typed arguments, a handler.

    Attributes
    ----------
    name, description : str
    handler : callable
        ``handler(payload, session)``, called on the training thread at a control point. What
        it returns becomes the result's `data`. `Rejected` means that nothing was touched.
    args : pydantic model class, optional
        The arguments. Without one, any mapping is taken as it is.
    keys : tuple of str, optional
        The paper's untyped form: the names that the payload must hold.
    optional : tuple of str
        Names that it may hold, to be told beside `keys`.
    dangerous : bool
        The panel asks before it sends.
    unavailable : callable, optional
        Returns why it can't be done now, or None.
    knobs : callable, optional
        Given a payload, the knobs that it would set and their values: the policy judges them as
        those of ``set_knob``. Any thread.
    offers : callable, optional
        Returns what there is to choose from now, by argument. Any thread, ten times a second.
    about : callable, optional
        Returns what it would be done to now, for the end of the description; None for nothing.
        Any thread, ten times a second.
    """

    name: str
    handler: Handler
    description: str = ""
    args: type[BaseModel] | None = None
    keys: tuple[str, ...] | None = None
    dangerous: bool = False
    unavailable: Callable[[], str | None] | None = None
    optional: tuple[str, ...] = ()
    knobs: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    offers: Callable[[], dict[str, list[Offer]]] | None = None
    about: Callable[[], str | None] | None = None

    def validate(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Check a payload against the arguments and fill in defaults. Any thread.

        Raises
        ------
        Rejected
            With what was wrong, for people.
        """
        if self.args is not None:
            return _validated(self.args, _by_own_names(self, payload))
        missing = [key for key in self.keys or () if key not in payload]
        if missing:
            raise Rejected(f"{self.name} needs {', '.join(missing)} in its payload")
        return dict(payload)

    def telling(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that say something: those which are not at their default."""
        fields = {} if self.args is None else self.args.model_fields
        return {
            name: value
            for name, value in payload.items()
            if name not in fields
            or type(value) is not type(fields[name].default)
            or value != fields[name].default
        }

    def reason_unavailable(self) -> str | None:
        """Why it can't be done now; None when it can."""
        return None if self.unavailable is None else self.unavailable()

    def schema(self) -> ActionSchema:
        """Describe the action for onlookers. Any thread."""
        reason: str | None = None
        with guard(f"availability of {self.name}") as fault:
            reason = self.reason_unavailable()
        if fault:
            reason = fault.error
        also = ALSO.get(self.name, {}) if self.args is not None else {}
        offers: dict[str, list[Offer]] = {}
        with guard(f"offers of {self.name}"):
            offers = {} if self.offers is None else self.offers()
        about: str | None = None
        with guard(f"description of {self.name}"):
            about = None if self.about is None else self.about()
        if self.args is not None:
            args = schema_of(self.args)
            also = {name: own for name, own in also.items() if name not in self.args.model_fields}
            args = _with_further_names(args, also)
        else:
            keys = self.keys or ()
            args = {"type": "object", "properties": {k: {} for k in (*keys, *self.optional)}}
            if keys:
                args["required"] = list(keys)
        return ActionSchema(
            name=self.name,
            description=f"{self.description}: {about}" if about else self.description,
            args=args,
            also=also,
            offers=offers,
            dangerous=self.dangerous,
            enabled=reason is None,
            reason=reason,
        )


@functools.lru_cache(maxsize=1_000)
def schema_of(args: type[BaseModel]) -> dict[str, Any]:
    """Once a model: a state is asked for ten times a second."""
    return args.model_json_schema()


def _with_further_names(args: dict[str, Any], also: Mapping[str, str]) -> dict[str, Any]:
    """Tell of the further names of arguments, each behind the one that it stands for."""
    properties: dict[str, Any] = {}
    for name, each in args.get("properties", {}).items():
        properties[name] = each
        for further, own in also.items():
            if own == name:
                said = f"the same as {own}; give one of them"
                properties[further] = {**each, "title": further.capitalize(), "description": said}
    told = {**args, "properties": properties}
    # Neither is needed where the other one is given.
    required = [name for name in args.get("required", ()) if name not in also.values()]
    if required != args.get("required", []):
        told["required"] = required
    return told


class ActionRegistry(Mapping[str, ActionSpec]):
    """The actions of a session by name. Reading and registering are safe on any thread."""

    def __init__(self) -> None:
        self._specs: dict[str, ActionSpec] = {}

    def register(self, spec: ActionSpec, *, replace: bool = False) -> ActionSpec:
        """Add an action.

        Raises
        ------
        ActionError
            If the name is taken and `replace` is false.
        """
        if not replace and spec.name in self._specs:
            raise ActionError(
                f"there is an action {spec.name!r} already; pick another name, "
                f"or pass replace=True to put this one in its place"
            )
        self._specs = {**self._specs, spec.name: spec}
        return spec

    def kept(self) -> dict[str, ActionSpec]:
        """Return what there is, for `put_back`. Any thread."""
        return self._specs

    def put_back(self, kept: dict[str, ActionSpec]) -> None:
        """Have what there was. Any thread."""
        self._specs = kept

    def unregister(self, name: str) -> None:
        """Take an action away; an unknown name is left alone."""
        self._specs = {key: spec for key, spec in self._specs.items() if key != name}

    def __getitem__(self, name: str) -> ActionSpec:
        spec = self._specs.get(name)
        if spec is None:
            if name in OF_A_MODEL:
                raise UnknownAction(
                    f"there is no {name} before the session knows what it trains: "
                    f"session.bind(model, optimizers=[optimizer])"
                )
            raise UnknownAction(f"no action is named {name!r:.80}{near(str(name), self._specs)}")
        return spec

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)

    def schemas(self) -> list[ActionSchema]:
        """Describe all actions. Any thread."""
        return [spec.schema() for spec in self._specs.values()]


def spec_from(
    function: Callable[..., Any],
    name: str,
    description: str = "",
    payload_keys: Sequence[str] | None = None,
    *,
    dangerous: bool = False,
    unavailable: Callable[[], str | None] | None = None,
) -> ActionSpec:
    """Make an action from a function.

    Parameters
    ----------
    function : callable
        ``handler(payload, session)``, the paper's form, when `payload_keys` is given or the
        first parameter is called ``payload``. Else a typed signature, whose annotations (int,
        float, bool, str, Literal, Enum, Optional, lists) become the arguments; a parameter
        called ``session`` gets the session.
    name, description : str
        The description defaults to the first line of the docstring.

    Raises
    ------
    ActionError
        If the function can't be a handler: it is async, takes ``*args`` or positional-only
        parameters, or an annotation is no type.
    """
    if inspect.iscoroutinefunction(function):
        raise ActionError(
            f"the handler of {name!r} is async; handlers run between two optimizer steps on "
            f"the training thread: make it a plain function"
        )
    if not name or len(name) > 200:
        raise ActionError(f"an action needs a name of 1 to 200 characters, not {name!r}")
    description = description or (inspect.getdoc(function) or "").partition("\n")[0]
    parameters = list(inspect.signature(function).parameters.values())
    if payload_keys is not None or (parameters and parameters[0].name == "payload"):
        keys = None if payload_keys is None else tuple(payload_keys)
        return ActionSpec(
            name,
            _paper_handler(function, len(parameters)),
            description,
            keys=keys,
            dangerous=dangerous,
            unavailable=unavailable,
        )
    args = _model_of(function, name, parameters)
    wants_session = any(each.name == "session" for each in parameters)

    def handler(payload: dict[str, Any], session: Session) -> Any:
        if wants_session:
            return function(**payload, session=session)
        return function(**payload)

    return ActionSpec(
        name, handler, description, args=args, dangerous=dangerous, unavailable=unavailable
    )


def _paper_handler(function: Callable[..., Any], arity: int) -> Handler:
    if arity >= 2:
        return function

    def handler(payload: dict[str, Any], session: Session) -> Any:
        return function(payload)

    return handler


def _model_of(
    function: Callable[..., Any], name: str, parameters: list[inspect.Parameter]
) -> type[BaseModel]:
    """Build the arguments' model from a signature."""
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError, SyntaxError) as err:
        raise ActionError(f"an annotation of the handler of {name!r} is no type: {err}") from err
    fields: dict[str, Any] = {}
    for each in parameters:
        if each.name == "session":
            continue
        if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
            raise ActionError(
                f"the handler of {name!r} takes {each}; give each argument a name of its own"
            )
        default = ... if each.default is each.empty else each.default
        fields[each.name] = (hints.get(each.name, Any), default)
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False, strict=True)
    try:
        return create_model(f"{name}_args", __config__=config, **fields)
    except (PydanticUserError, TypeError, ValueError) as err:
        raise ActionError(f"the signature of the handler of {name!r} can't be used: {err}") from err


def _by_own_names(spec: ActionSpec, payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write arguments that were given under a further name under their own."""
    assert spec.args is not None
    for name, own in ALSO.get(spec.name, {}).items():
        if name not in payload or name in spec.args.model_fields:
            continue
        value, given = payload[name], payload.get(own)
        if value is not None and given is not None and given != value:
            raise Rejected(
                f"{own}={given!r:.80} and {name}={value!r:.80} differ: give one of them; {own} "
                f"takes a {name} too"
            )
        payload = {key: each for key, each in payload.items() if key != name}
        if value is not None:
            payload[own] = value
    return payload


def _validated(args: type[BaseModel], payload: Mapping[str, Any]) -> dict[str, Any]:
    # Through JSON: strict and yet "fast" becomes Speed.FAST, a list becomes a tuple.
    try:
        text = orjson.dumps(dict(payload), default=_from_numpy)
    except TypeError as err:
        raise Rejected(f"the arguments are not JSON: {err}") from err
    try:
        model = args.model_validate_json(text)
    except ValidationError as err:
        raise Rejected(explain(err)) from err
    return {field: getattr(model, field) for field in args.model_fields}


def _from_numpy(value: Any) -> Any:
    # Not left to orjson, whose versions 3.12 and 3.13 write beyond their buffer for arrays.
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} has no JSON form")


#: In place of pydantic's own words.
_SAID = {"missing": "is missing", "extra_forbidden": "is no argument of it"}


def explain(err: ValidationError) -> str:
    """Write a pydantic error as one line for people: ``n: not a valid integer; ...``."""
    parts = []
    for each in err.errors(include_url=False, include_context=False)[:5]:
        where = ".".join(map(str, each["loc"]))
        if where and each["type"] in _SAID:
            parts.append(f"{where} {_SAID[each['type']]}")
            continue
        said = each["msg"][0].lower() + each["msg"][1:]
        given = "<unprintable>"
        with guard("repr of a value"):
            given = repr(each.get("input"))
        given = given if len(given) <= 40 else given[:37] + "..."
        parts.append(f"{where}: {said}, not {given}" if where else said)
    return "; ".join(parts)
