"""Every message that crosses a boundary: to the panel, over HTTP, into the journal.

The TypeScript types are generated from the JSON schema of these models. Numbers stay strict
JSON: a non-finite one travels as ``null`` with its kind beside it; see `it2nb.core.strict`.
"""

from __future__ import annotations

import functools
import os
from typing import Any, Literal, Self, get_args

import orjson
from pydantic import BaseModel, ConfigDict, Field, field_serializer

from it2nb.core.members import batch_lines, is_batch, members_text
from it2nb.core.readable import (
    changed_text,
    is_listing,
    listing_lines,
    notes_of,
    readable,
    told,
)
from it2nb.core.strict import NonFinite, kind_of, strict

VERSION: Literal[2] = 2

Source = Literal["panel", "magic", "python", "http", "rule", "agent", "guard", "plan", "replay"]
Status = Literal[
    "pending", "waiting", "applied", "clamped", "rejected", "failed", "expired", "cancelled"
]
DType = Literal["float", "int", "bool", "choice", "str"]
Scale = Literal["linear", "log"]

SOURCES: tuple[str, ...] = get_args(Source)
#: A request in one of these has its one result.
TERMINAL: frozenset[str] = frozenset(
    {"applied", "clamped", "rejected", "failed", "expired", "cancelled"}
)
#: Requests in one of these changed the run.
EFFECTIVE: frozenset[str] = frozenset({"applied", "clamped"})


def new_id() -> str:
    """Return a fresh id, 24 hex digits from the operating system (not from a global RNG)."""
    return os.urandom(12).hex()


class Message(BaseModel):
    """Base of the wire models: frozen, versioned, tolerant of fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="null")

    v: Literal[2] = VERSION

    @classmethod
    def trusted(cls, fields: dict[str, Any]) -> Self:
        """Build from complete, fitting fields: no validation, no copy. For the hot path.

        ``model_construct`` is slower by a factor of ten, and a request makes several messages.
        """
        message = cls.__new__(cls)
        put = object.__setattr__
        put(message, "__dict__", fields)
        # One set for all: it is only read, and a set of its own would be half the message.
        put(message, "__pydantic_fields_set__", _all_fields(cls))
        put(message, "__pydantic_extra__", None)
        put(message, "__pydantic_private__", None)
        return message

    def json_bytes(self) -> bytes:
        """Write it as strict JSON; half a character, which has no UTF-8 form, is replaced."""
        try:
            return self.model_dump_json().encode()
        except ValueError:
            return orjson.dumps(strict(self)[0])


@functools.cache
def _all_fields(model: type[Message]) -> set[str]:
    return set(model.model_fields)


class Action(Message):
    """One request: somebody asks the run to do something.

    Attributes
    ----------
    type : str
        The action's name, ``"set_knob"`` for example.
    payload : dict
        Its arguments.
    source : str, optional
        Who the sender says it is. It becomes the `actor`; the entry through which the request
        came decides the source that permissions look at.
    id : str
        A second request with a used id gets the first one's result and is not run again.
    actor : str, optional
        ``"human:anna"``, ``"llm"``. Wins over `source`.
    observed : dict, optional
        What the sender had seen: ``{"step": 980, "metrics": {"loss": 0.27}}``.
    valid_until_step : int, optional
        `expired` at a control point after this step.
    expect : dict, optional
        Compare-and-set: ``{"lr": 1e-3}``, and ``"step"``, ``"branch_id"``, ``"round"``. When
        one differs, the request is ``rejected: stale``.
    reason : str, optional
        Why, in the sender's words.
    """

    type: str = Field(min_length=1, max_length=200)
    payload: dict[str, Any] = Field(default_factory=dict)
    source: str | None = Field(default=None, max_length=200)
    id: str = Field(default_factory=new_id, min_length=1, max_length=128)
    actor: str | None = Field(default=None, max_length=200)
    observed: dict[str, Any] | None = None
    valid_until_step: int | None = None
    expect: dict[str, Any] | None = None
    reason: str | None = Field(default=None, max_length=4000)


class ActionResult(Message):
    """The one result of one request.

    Attributes
    ----------
    id, type : str
        Of the action.
    ok : bool
        True for `applied` and `clamped`.
    status : str
        See DESIGN section 2.
    data : any JSON
        What the handler returned: metrics of an evaluation, path and hash of a file. For a knob
        of several parameter groups ``groups``, ``ratios_kept`` and ``members``: what became of
        the first 16.
    error : str, optional
        What went wrong, when not ok.
    source, actor : str, optional
        The entry, and who the sender said it was.
    name : str, optional
        The knob, for requests that concern one.
    requested, before, after : any JSON
        For knobs: asked value, value before, value read back afterwards.
    step : int, optional
        Updates completed at the control point; what was applied holds from the next one.
    reason : str, optional
        For people: why it was clamped, rejected, failed; or what to know about it.
    durable : bool
        False when the disk refused the row: known in memory only.
    """

    id: str
    type: str
    ok: bool
    status: Status
    data: Any = None
    error: str | None = None
    source: str | None = None
    actor: str | None = None
    name: str | None = None
    requested: Any = None
    before: Any = None
    after: Any = None
    step: int | None = None
    reason: str | None = None
    durable: bool = True
    branch_id: int = 0
    round: int = 0

    def done(self) -> bool:
        """Whether the result is there: it is. As a handle's, so that neither has to be told."""
        return True

    def result(self, timeout: float | None = None) -> Self:
        """Itself, as the `result` of a handle whose request was served."""
        return self

    def __str__(self) -> str:
        what = f"{self.type} {self.name}" if self.name else self.type
        said = f"{what}: {self.status}"
        if self.name is not None and self.ok:
            said += f", asked {told(self.requested)}, was {told(self.before)}"
            said += f", is {told(self.after)}"
        if self.step is not None:
            said += f", after step {self.step}"
        listed: list[str] = []
        groups = members_text(self.name, self.data)
        if groups:
            said += f"; {groups}"
        elif self.ok and is_listing(self.data, self.type):
            listed = listing_lines(self.data)
        elif self.ok and is_batch(self.data, self.type):
            listed = batch_lines(self.data)
        elif self.ok and isinstance(self.data, dict):
            found = readable(self.type, self.data, self.step)
            said += "".join(f", {key} {_short(each)}" for key, each in _plainest(found))
            changed = changed_text(self.data)
            said += f", {changed}" if changed else ""
        elif self.ok and type(_single(self.data)) in (int, float):
            said += f", {_short(_single(self.data))}"
        said += f" ({self.reason})" if self.reason else ""
        said = "\n  ".join([said, *listed])
        return "\n  note: ".join([said, *notes_of(self.data)])


def _plainest(data: dict[str, Any]) -> list[tuple[str, Any]]:
    """The numbers and texts of a result's data, the first eight; the rest is in `data`."""
    singles = [(k, _single(v)) for k, v in data.items()]
    plain_ones = [(k, v) for k, v in singles if isinstance(v, (bool, int, float, str))]
    return [pair for pair in plain_ones if pair[0] not in ("status", "step", "notes")][:8]


def _single(value: Any) -> Any:
    """The one value of a list of lists with a single one, as a tensor of one element is written."""
    while type(value) is list and len(value) == 1:
        value = value[0]
    return value


def _short(value: bool | int | float | str) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class Event(Message):
    """One row of the journal.

    Attributes
    ----------
    seq : int
        From 0, without a gap.
    ts : float
        Unix time, seconds.
    t : float
        Seconds since the session was made, monotonic.
    step : int
        Updates completed.
    """

    seq: int
    type: str
    payload: dict[str, Any] = Field(default_factory=dict)
    ts: float
    t: float = 0.0
    step: int = 0
    branch_id: int = 0
    round: int = 0
    source: str | None = None
    action_id: str | None = None
    durable: bool = True


class Member(Message):
    """One parameter group behind a knob that covers several."""

    name: str
    value: Any = None


class LastRequest(Message):
    """What became of the last request for a knob; it is for reading."""

    id: str
    status: Status
    requested: Any = None
    applied: Any = None
    step: int | None = None
    reason: str | None = None
    source: str | None = None

    @field_serializer("requested", "applied", when_used="json")
    def _name_nonfinite(self, value: Any) -> Any:
        # "nan" says more than null, which is what nobody asked for.
        odd = kind_of(value) if isinstance(value, float) else None
        return value if odd is None else odd


class KnobView(Message):
    """A knob as others see it: type, bounds, value, and what became of the last request."""

    name: str
    dtype: DType
    value: Any = None
    min: float | int | None = None
    max: float | int | None = None
    step: float | int | None = None
    scale: Scale = "linear"
    unit: str = ""
    group: str = ""
    description: str = ""
    choices: list[Any] | None = None
    mode: str | None = None
    modes: list[str] = Field(default_factory=list)
    members: list[Member] = Field(default_factory=list)
    enabled: bool = True
    reason: str | None = None
    out_of_bounds: Literal["clamp", "reject"] = "clamp"
    aliases: list[str] = Field(default_factory=list)
    locked: bool = False
    hidden: bool = False
    confirm: bool = False
    last: LastRequest | None = None


class Offer(BaseModel):
    """A value that an argument may well take now, and what it is, for people."""

    model_config = ConfigDict(frozen=True)

    value: str
    label: str


class ActionSchema(Message):
    """An action as others see it: a name and a JSON schema of its arguments.

    Attributes
    ----------
    also : dict of str to str
        Further names of arguments, and the argument that each stands for.
    offers : dict of str to list of Offer
        By argument, what there is to choose from now, newest first; others are taken too.
    """

    name: str
    description: str = ""
    args: dict[str, Any] = Field(default_factory=dict)
    also: dict[str, str] = Field(default_factory=dict)
    offers: dict[str, list[Offer]] = Field(default_factory=dict)
    dangerous: bool = False
    enabled: bool = True
    reason: str | None = None

    def as_tool(self) -> dict[str, Any]:
        """Describe the action as a tool of a language model, in the chat-completions form."""
        parameters = {"type": "object", "properties": {}, **self.args}
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": parameters,
            },
        }


class Branch(Message):
    """One line of steps inside a round, forked by going back."""

    id: int
    parent: int | None = None
    step: int = 0
    round: int = 0
    reason: str = ""


class Latest(Message):
    """The newest value of one metric on the branch that is trained and those it came from.

    Without `value` and `nonfinite` there is none: it was recorded on a branch that was left.
    """

    step: int
    value: float | None = None
    nonfinite: NonFinite | None = None


class Waiting(Message):
    """A request that waits for a human's approval."""

    id: str
    type: str
    payload: dict[str, Any] = Field(default_factory=dict)
    source: str | None = None
    actor: str | None = None
    reason: str | None = None
    until: float | None = None


class State(Message):
    """Everything a new onlooker needs, at a cost that does not grow with the run."""

    run_id: str
    title: str = ""
    status: Literal["created", "running", "paused", "stopped", "finished", "failed"]
    step: int = 0
    total_steps: int | None = None
    steps_per_s: float | None = None
    elapsed_s: float = 0.0
    branch_id: int = 0
    round: int = 0
    max_rounds: int | None = None
    branches: list[Branch] = Field(default_factory=list)
    seq: int = 0
    knobs: list[KnobView] = Field(default_factory=list)
    actions: list[ActionSchema] = Field(default_factory=list)
    metrics: dict[str, Latest] = Field(default_factory=dict)
    watch: list[str] = Field(default_factory=list)
    pending: int = 0
    waiting: list[Waiting] = Field(default_factory=list)
    goal: dict[str, Any] | None = None
    context: str = ""
    agent: dict[str, Any] | None = None
    checkpoints: list[dict[str, Any]] = Field(default_factory=list)
    model_tree: dict[str, Any] | None = None
    stepper: str | None = None
    error: str | None = None
    error_line: int | None = None
    warnings: list[str] = Field(default_factory=list)
    policy: dict[str, Any] = Field(default_factory=dict)
    journal_path: str | None = None
    degraded: str | None = None
