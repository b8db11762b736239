"""The messages between a panel in the browser and its session in the kernel.

Two channels. The stream (kernel to browser) carries `Snapshot`, then numbered `Batch` and
`Heartbeat`; a browser that misses a number asks for a snapshot. The control (browser to kernel)
carries one of `PanelRequest`. Curves travel as float64 in a binary buffer beside the message,
not as JSON: NaN and infinities stay what they are.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from it2nb.core.wire import (
    Action,
    ActionSchema,
    Branch,
    KnobView,
    Latest,
    Message,
    State,
    Status,
    Waiting,
)

#: Curves that a panel shows at once, at most.
MAX_CURVES = 12
#: Points of one curve that a browser may ask for.
MAX_POINTS = 10_000


class Part(BaseModel):
    """A piece of a panel message; it has no version of its own."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="null")


# ------------------------------------------------------------------------ browser to kernel


class FromPanel(Message):
    """Base of what a browser sends.

    Attributes
    ----------
    client : str
        The page's name for itself; one a page, however many views it shows.
    """

    client: str = Field(min_length=1, max_length=64)


class Hello(FromPanel):
    """A view was born, or a message was missed: send a `Snapshot`."""

    kind: Literal["hello"] = "hello"
    watch: list[str] | None = Field(default=None, max_length=MAX_CURVES)


class Bye(FromPanel):
    """The page's last view is gone."""

    kind: Literal["bye"] = "bye"


class Ack(FromPanel):
    """Everything up to batch `n` is on the screen. About once a second, never per message."""

    kind: Literal["ack"] = "ack"
    n: int


class Watch(FromPanel):
    """Show these metrics; answered with a `Snapshot`."""

    kind: Literal["watch"] = "watch"
    names: list[str] = Field(max_length=MAX_CURVES)


class WindowAsk(FromPanel):
    """Refine the curves between `lo` and `hi` of the axis; answered with a `WindowView`."""

    kind: Literal["window"] = "window"
    ask: int
    names: list[str] = Field(max_length=MAX_CURVES)
    axis: Literal["step", "time"] = "step"
    lo: float
    hi: float
    points: int = Field(default=2_000, ge=2, le=MAX_POINTS)


class Submit(FromPanel):
    """Ask the run for something. The result comes as a row of a `Batch`."""

    kind: Literal["submit"] = "submit"
    action: Action


class Answer(FromPanel):
    """A person's word on a request that waits for it."""

    kind: Literal["answer"] = "answer"
    id: str = Field(max_length=128)
    approve: bool


class PictureAsk(FromPanel):
    """The run as a picture, to be kept in the notebook; answered with a `Picture` if there is one.

    A page that was reloaded no longer knows which output a display of the kernel belongs to.
    """

    kind: Literal["picture"] = "picture"


class RowsAsk(FromPanel):
    """More rows of the journal, of these event types; answered with `Rows`."""

    kind: Literal["rows"] = "rows"
    ask: int
    types: list[str] = Field(default_factory=list, max_length=40)
    limit: int = Field(default=200, ge=1, le=1_000)


class AssetAsk(FromPanel):
    """The server has no such file: send it over this channel."""

    kind: Literal["asset"] = "asset"
    name: Literal["panel.mjs", "chart.mjs"]


PanelRequest = Annotated[
    Hello | Bye | Ack | Watch | WindowAsk | Submit | Answer | RowsAsk | PictureAsk | AssetAsk,
    Field(discriminator="kind"),
]

PANEL_REQUEST: TypeAdapter[
    Hello | Bye | Ack | Watch | WindowAsk | Submit | Answer | RowsAsk | PictureAsk | AssetAsk
] = TypeAdapter(PanelRequest)


# ------------------------------------------------------------------------ kernel to browser


class Curve(Part):
    """A stretch of one curve, its numbers in the message's buffer.

    Attributes
    ----------
    name : str
        The metric.
    branch_id, round : int
        The line of steps that it belongs to.
    at : int
        Index of its first number in the buffer, taken as float64.
    count : int
        Its points: `count` steps, then `count` times (seconds since the session was made),
        then `count` values.
    thinned : bool
        Whether points were left out; minima and maxima never are.
    """

    name: str
    branch_id: int = 0
    round: int = 0
    at: int
    count: int
    thinned: bool = False


class Row(Part):
    """A row of the journal as the panel shows it; long texts are cut.

    Attributes
    ----------
    type : str
        Of the event.
    action : str, optional
        For a request: which action.
    """

    seq: int
    ts: float
    t: float = 0.0
    step: int = 0
    branch_id: int = 0
    round: int = 0
    type: str
    source: str | None = None
    actor: str | None = None
    action_id: str | None = None
    action: str | None = None
    name: str | None = None
    requested: Any = None
    before: Any = None
    after: Any = None
    status: Status | None = None
    reason: str | None = None
    text: str = ""
    durable: bool = True


class Mark(Part):
    """A moment worth a line across the curves, and the journal row that tells of it."""

    seq: int
    step: int
    t: float = 0.0
    branch_id: int = 0
    round: int = 0
    kind: Literal["change", "restore", "round", "guard"] = "change"
    label: str


class OutputLine(Part):
    """A line of what the run printed, as a terminal shows it: a later one replaces it.

    Attributes
    ----------
    line : int
        Its number, counted from 0.
    look : str
        A letter for each character, empty where all are plain: `a` plain, `b` to `h` red,
        green, yellow, blue, magenta, cyan, white, `i` grey; a capital is bold.
    """

    line: int
    text: str
    look: str = ""


class Output(Part):
    """What the run printed: all of it in a snapshot, in a batch the lines that changed.

    Attributes
    ----------
    first : int
        Number of the oldest line that is kept; older ones are to be forgotten.
    lines : list of OutputLine
        By number. In a flood the newest come first, and older ones with later batches.
    """

    first: int = 0
    lines: list[OutputLine] = Field(default_factory=list)


class Head(Part):
    """What changes all the time: where the run is."""

    status: Literal["created", "running", "paused", "stopped", "finished", "failed"]
    step: int = 0
    total_steps: int | None = None
    steps_per_s: float | None = None
    elapsed_s: float = 0.0
    branch_id: int = 0
    round: int = 0
    max_rounds: int | None = None
    pending: int = 0
    stepper: str | None = None
    error: str | None = None
    error_line: int | None = None
    degraded: str | None = None
    warnings: list[str] = Field(default_factory=list)
    metrics: dict[str, Latest] = Field(default_factory=dict)


class AgentRequest(Part):
    """One request of a controller, as far as it is known; the row with its id tells the rest."""

    id: str
    type: str
    name: str | None = None
    requested: Any = None
    status: Status = "pending"
    reason: str = ""
    why: str = ""


class AgentDecision(Part):
    """What a controller said at one step, and what it asked for."""

    step: int
    round: int = 0
    said: str = ""
    requests: list[AgentRequest] = Field(default_factory=list)


class AgentView(Part):
    """A controller as the panel shows it; long texts are cut.

    Attributes
    ----------
    kind : str
        Its model, for a language model.
    every : int, optional
        Steps between two looks.
    calls, requests : int
    tokens, max_tokens, cost, max_cost : number, optional
        Used up, and the caps; None where nobody counts.
    decisions : list of AgentDecision
        The last ones, oldest first.
    """

    name: str
    source: str = "agent"
    kind: str = ""
    enabled: bool = True
    thinking: bool = False
    every: int | None = None
    calls: int = 0
    requests: int = 0
    tokens: int | None = None
    max_tokens: int | None = None
    cost: float | None = None
    max_cost: float | None = None
    plan: str = ""
    error: str | None = None
    reason: str | None = None
    decisions: list[AgentDecision] = Field(default_factory=list)


class ToPanel(Message):
    """Base of what the kernel sends.

    Attributes
    ----------
    n : int
        Number of the last batch whose content is known to the receiver after this message.
    """

    n: int


class Snapshot(ToPanel):
    """Everything a page needs. Answer to `Hello` and `Watch`.

    Attributes
    ----------
    to : str
        The page it is for.
    watch : list of str
        Metrics whose curves follow.
    received : list of str
        Ids of requests that the session has and that have no result yet.
    subshell : bool
        Whether the browser's messages were seen to arrive beside a busy cell.
    variable : str
        The Python expression by which the session can be reached.
    heartbeat_s : float, optional
        A longer silence means that the kernel is gone or stuck; None when there is no beat.
    """

    kind: Literal["snapshot"] = "snapshot"
    to: str
    state: State
    rows: list[Row] = Field(default_factory=list)
    marks: list[Mark] = Field(default_factory=list)
    curves: list[Curve] = Field(default_factory=list)
    watch: list[str] = Field(default_factory=list)
    agents: list[AgentView] = Field(default_factory=list)
    received: list[str] = Field(default_factory=list)
    faults: list[str] = Field(default_factory=list)
    output: Output | None = None
    subshell: bool = False
    variable: str = "it2nb.current()"
    heartbeat_s: float | None = None


class Batch(ToPanel):
    """What changed since batch ``n - 1``. A field that is None or empty did not change.

    Attributes
    ----------
    unrecorded : list of Row
        Results of requests that came after the journal was closed; `seq` is -1.
    """

    kind: Literal["batch"] = "batch"
    head: Head | None = None
    knobs: list[KnobView] = Field(default_factory=list)
    knob_names: list[str] | None = None
    actions: list[ActionSchema] | None = None
    branches: list[Branch] | None = None
    waiting: list[Waiting] | None = None
    policy: list[str] | None = None
    agents: list[AgentView] | None = None
    context: str | None = None
    rows: list[Row] = Field(default_factory=list)
    marks: list[Mark] = Field(default_factory=list)
    curves: list[Curve] = Field(default_factory=list)
    unrecorded: list[Row] = Field(default_factory=list)
    subshell: bool | None = None
    received: list[str] = Field(default_factory=list)
    faults: list[str] = Field(default_factory=list)
    output: Output | None = None


class Heartbeat(ToPanel):
    """Nothing changed; the kernel is alive and `n` was the last batch."""

    kind: Literal["heartbeat"] = "heartbeat"


class WindowView(ToPanel):
    """The curves between two ends, refined. Answer to `WindowAsk`."""

    kind: Literal["window"] = "window"
    to: str
    ask: int
    curves: list[Curve] = Field(default_factory=list)


class Rows(ToPanel):
    """Older rows. Answer to `RowsAsk`."""

    kind: Literal["rows"] = "rows"
    to: str
    ask: int
    rows: list[Row] = Field(default_factory=list)


class Picture(ToPanel):
    """The run as it stands beside the panel for those who have no kernel. Answer to `PictureAsk`.

    Attributes
    ----------
    bundle : dict
        By MIME type: text, and a PNG in base64.
    """

    kind: Literal["picture"] = "picture"
    to: str
    bundle: dict[str, str]


class Asset(ToPanel):
    """A script, gzipped, in the message's buffer. Answer to `AssetAsk`."""

    kind: Literal["asset"] = "asset"
    to: str
    name: str


PanelMessage = Annotated[
    Snapshot | Batch | Heartbeat | WindowView | Rows | Picture | Asset, Field(discriminator="kind")
]

PANEL_MESSAGE: TypeAdapter[Snapshot | Batch | Heartbeat | WindowView | Rows | Picture | Asset] = (
    TypeAdapter(PanelMessage)
)
