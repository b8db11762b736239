"""What a panel is told: a snapshot for a new page, afterwards the differences."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from it2nb.core.wire import Branch, Event, State
from it2nb.core.wire_panel import Batch, Head, Mark, Row, Snapshot, WindowAsk, WindowView
from it2nb.panel.agents import agent_views
from it2nb.panel.curves import CurveFeed, Packer
from it2nb.panel.output import OutputFeed
from it2nb.panel.rows import MARKING, ROW_TYPES, mark_of, row_of
from it2nb.panel.terminal import Terminal

#: Rows of each kind in a snapshot.
ROWS = 80
MARKS = 500
#: Metrics that a panel shows when nobody chose.
SHOWN = 4
#: Rows in one batch; more would pass the 20 kB of an update, so the rest waits for the next.
ROWS_A_BATCH = 40

Sent = tuple[Any, list[bytes]]


class Feed:
    """The state of a session as its pages know it. Sender thread only.

    Parameters
    ----------
    session : Session or the like
        With ``state()``, ``metrics`` and ``journal``.
    variable : str
        Python expression for the session.
    heartbeat_s : float or None
        Told to the pages.
    """

    def __init__(self, session: Any, variable: str, heartbeat_s: float | None) -> None:
        self.n = 0
        self.subshell = False
        self._told_subshell = False
        self._session = session
        self._variable = variable
        self._heartbeat_s = heartbeat_s
        self._curves = CurveFeed(session.metrics)
        self._output = OutputFeed()
        self._state: State | None = None
        self._head: Head | None = None
        self._rows: deque[Row] = deque()
        self._fresh_marks: deque[Mark] = deque()
        self._marks: deque[Mark] = deque(maxlen=MARKS)
        self._faults: list[str] = []
        self._new_faults: list[str] = []
        #: Requests of pages that have no result yet; a value tells whether the pages know.
        self._received: dict[str, bool] = {}
        self._unrecorded: list[Row] = []
        self._missed = False
        self._begin()

    def _begin(self) -> None:
        """Find the marks of what happened before this panel was made."""
        for event in self._session.journal.tail(MARKS, types=MARKING):
            mark = mark_of(event)
            if mark is not None:
                self._marks.append(mark)

    # ------------------------------------------------------------------------------- taking in

    def take(self, events: Iterable[Event]) -> None:
        """Take in what the journal's subscription brought."""
        for event in events:
            if event.type == "action_result":
                self._received.pop(str(event.payload.get("id", event.action_id)), None)
            if event.type not in ROW_TYPES:
                continue
            self._rows.append(row_of(event))
            mark = mark_of(event)
            if mark is not None:
                self._marks.append(mark)
                self._fresh_marks.append(mark)

    def missed(self) -> None:
        """Take note that rows were dropped on the way: pages get a snapshot."""
        self._missed = True

    def received(self, action_id: str) -> None:
        """Take note of a request that the session has, and whose result is to come."""
        self._received.setdefault(action_id, False)

    def unrecorded(self, row: Row) -> None:
        """Take note of a result that has no row in the journal, which is closed."""
        self._unrecorded.append(row)

    def fault(self, text: str) -> None:
        """Take note of a fault of the panel itself, to be shown in it."""
        if text not in self._faults[-5:]:
            self._faults = [*self._faults[-9:], text]
            self._new_faults.append(text)

    # ---------------------------------------------------------------------------- giving out

    @property
    def is_urgent(self) -> bool:
        """Whether somebody waits for what is to be told: a result, a fault."""
        return bool(
            self._rows
            or self._unrecorded
            or self._new_faults
            or not all(self._received.values())
            or self._missed
        )

    @property
    def status(self) -> str:
        """The run's status as the pages know it."""
        return "created" if self._state is None else self._state.status

    @property
    def _terminal(self) -> Terminal | None:
        # A run elsewhere has none here, and a loop in a plain cell prints under its own.
        return getattr(self._session, "output", None)

    def default_watch(self) -> list[str]:
        """Return the metrics that are shown when nobody chose."""
        state: State = self._session.state()
        if state.watch:
            return list(state.watch)[:SHOWN]
        return list(state.metrics)[:SHOWN]

    def follow(self, names: Iterable[str]) -> None:
        """Send the curves of these metrics with each batch."""
        self._curves.follow(names)

    def snapshot(self, to: str, watch: Sequence[str]) -> Sent:
        """Tell one page everything. It does not count as a batch."""
        # Rows that wait for the next batch are in the tail as well; a page takes each once.
        state: State = self._session.state()
        packer = Packer()
        self._curves.whole(watch, packer)
        journal = self._session.journal
        events = {e.seq: e for e in journal.tail(ROWS, types=["action_result"])}
        others = [each for each in ROW_TYPES if each != "action_result"]
        events.update({e.seq: e for e in journal.tail(ROWS, types=others)})
        message = Snapshot(
            n=self.n,
            to=to,
            state=_slim(state),
            rows=[row_of(events[seq]) for seq in sorted(events)],
            marks=list(self._marks),
            curves=packer.curves,
            watch=list(watch),
            agents=agent_views(state.agent),
            received=list(self._received),
            faults=self._faults[-5:],
            output=self._output.whole(self._terminal),
            subshell=self.subshell,
            variable=self._variable,
            heartbeat_s=self._heartbeat_s,
        )
        return message, packer.buffers

    def batch(self) -> Sent | None:
        """Tell all pages what is new; None when nothing is."""
        if self._missed:
            # A number that is left out makes every page ask for a snapshot.
            self._missed = False
            self.n += 1
        state: State = self._session.state()
        before, self._state = self._state, state
        head = _head(state)
        packer = Packer()
        self._curves.fresh(packer)
        fields: dict[str, Any] = {"curves": packer.curves}
        if self._head is None or _weighty(head) != _weighty(self._head):
            fields["head"] = self._head = head
        fields.update(_changes(before, state))
        output = self._output.fresh(self._terminal)
        if output is not None:
            fields["output"] = output
        if self._rows:
            fields["rows"] = [
                self._rows.popleft() for _ in range(min(ROWS_A_BATCH, len(self._rows)))
            ]
        if self._fresh_marks:
            fields["marks"] = list(self._fresh_marks)
            self._fresh_marks.clear()
        if self._unrecorded:
            fields["unrecorded"], self._unrecorded = self._unrecorded, []
        if self._new_faults:
            fields["faults"], self._new_faults = self._new_faults[-5:], []
        if self.subshell and not self._told_subshell:
            # A front end may begin with the main shell, before it has a subshell.
            fields["subshell"] = self._told_subshell = True
        fresh = [key for key, told in self._received.items() if not told]
        if fresh:
            fields["received"] = fresh
            self._received.update(dict.fromkeys(fresh, True))
        if len(fields) == 1 and not packer.curves:
            return None
        self.n += 1
        return Batch(n=self.n, **fields), packer.buffers

    def window(self, ask: WindowAsk) -> Sent:
        """Answer a page that zooms."""
        packer = Packer()
        self._curves.window(ask.names, ask.axis, (ask.lo, ask.hi), ask.points, packer)
        return (
            WindowView(n=self.n, to=ask.client, ask=ask.ask, curves=packer.curves),
            packer.buffers,
        )


def _head(state: State) -> Head:
    return Head.model_validate({name: getattr(state, name) for name in Head.model_fields})


def _weighty(head: Head) -> Head:
    """A head without what changes even when nothing happens."""
    return head.model_copy(update={"elapsed_s": 0.0, "steps_per_s": None})


def _slim(state: State) -> State:
    """A state without what a panel does not show."""
    return state.model_copy(
        update={
            "model_tree": None,
            "agent": None,
            "checkpoints": state.checkpoints[-20:],
            "policy": {"said": state.policy.get("said", [])},
        }
    )


def _changes(before: State | None, state: State) -> dict[str, Any]:
    """The fields of a batch that differ between two states."""
    fields: dict[str, Any] = {}
    old = {} if before is None else {knob.name: knob for knob in before.knobs}
    knobs = [knob for knob in state.knobs if old.get(knob.name) != knob]
    if knobs:
        fields["knobs"] = knobs
    names = [knob.name for knob in state.knobs]
    if before is None or names != [knob.name for knob in before.knobs]:
        fields["knob_names"] = names
    if before is None or before.actions != state.actions:
        fields["actions"] = state.actions
    branches: list[Branch] = state.branches
    if before is None or before.branches != branches:
        fields["branches"] = branches
    if before is None or before.waiting != state.waiting:
        fields["waiting"] = state.waiting
    said = state.policy.get("said", [])
    if before is None or before.policy.get("said", []) != said:
        fields["policy"] = said
    # The same dictionary until a controller says something new.
    if before is None or before.agent is not state.agent:
        agents = agent_views(state.agent)
        if before is None or agents != agent_views(before.agent):
            fields["agents"] = agents
    if before is None or before.context != state.context:
        fields["context"] = state.context
    return fields
