"""Taking up a run whose process was killed: requests get their results, steps stay apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from it2nb.core.history import REQUEST_TYPES
from it2nb.core.step_number import whole_number
from it2nb.core.wire import Branch

if TYPE_CHECKING:
    from it2nb.core.session import Session

_REASON = "the process that had it ended"


class TakenUp:
    """What another process left of a run, for the session that goes on with it.

    Parameters
    ----------
    session : Session
        Of which the journal is read already. Requests without a result get one here.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        journal = session.journal
        #: Where it ended: step, branch and round.
        step, self._branch_id, self._round = journal.place_of_newest()
        newest = journal.metrics.latest(self._round).values()
        self._step = max([step, *(each for each, _ in newest)])
        for row in journal._rows_of(("branch_forked",)):
            session._branches.append(Branch.model_validate(row["payload"]))
        self._expire()

    def _expire(self) -> None:
        """Give each request that has no result its one result."""
        open_requests: dict[str, dict[str, Any]] = {}
        journal = self._session.journal
        for row in journal._rows_of(REQUEST_TYPES):
            if row["type"] == "action_submitted":
                open_requests[str(row["action_id"])] = row
            elif row["type"] == "action_result":
                open_requests.pop(str(row["action_id"]), None)
        for id, row in open_requests.items():
            asked = row["payload"]
            arguments = asked.get("payload") or {}
            journal.append(
                "action_result",
                {
                    "id": id, "type": asked.get("type"), "ok": False, "status": "expired",
                    "data": None, "error": _REASON, "source": row["source"],
                    "actor": asked.get("actor"), "name": arguments.get("name"),
                    "requested": arguments.get("value"), "before": None, "after": None,
                    "reason": _REASON,
                },
                step=self._step, branch_id=self._branch_id, round=self._round,
                source=row["source"], action_id=id,
            )  # fmt: skip

    def go_on(self, given: Any) -> None:
        """Go on where the other process was, or in a branch of its own if steps would collide.

        Training thread, at the first control point.

        Parameters
        ----------
        given : int or None
            The number of the first step, where the loop gives it; 1 by default.
        """
        session = self._session
        first = (None if given is None else whole_number(given)) or 1
        if self._step == 0 or (first > self._step and session.round == self._round):
            session._branch_id = self._branch_id
            session.live_line.enter()
            return
        reason = f"the run was taken up; another process had left it after step {self._step}"
        branch = session.fork_branch(max(first - 1, 0), reason, self._branch_id)
        session._trunk = branch.id
