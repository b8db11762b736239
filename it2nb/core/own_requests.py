"""The loop's own requests in a replay: which recorded one is made again by the same code."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from it2nb.core.recording import Recorded
from it2nb.core.redaction import redacted
from it2nb.core.strict import strict

if TYPE_CHECKING:
    from it2nb.core.queue import ActionHandle
    from it2nb.core.wire import Action


class OwnRequests:
    """Knows the recorded requests of the loop's own code, and which of them came again.

    Parameters
    ----------
    recorded : sequence of Recorded
        Those that were carried out, in their order.
    harmless : collection of str
        Types that change nothing which is compared: whether they come again is all the same.
    """

    def __init__(self, recorded: Sequence[Recorded], harmless: Collection[str]) -> None:
        self._harmless = harmless
        self._left = [each for each in recorded if each.own]
        self._made: dict[str, tuple[Recorded, ActionHandle | None]] = {}

    def recognise(self, action: Action) -> Action:
        """Give a request of the loop the id that it had in the recording. Training thread.

        What follows from an id (the new weights of a module) is the same again then. One that
        the loop named itself keeps its name.
        """
        wanted = strict(redacted(action.payload))
        named = "id" in action.model_fields_set
        for at, each in enumerate(self._left):
            same = each.id == action.id if named else strict(each.payload) == wanted
            if same and each.type == action.type:
                del self._left[at]
                self._made[each.id] = each, None
                return action if named else action.model_copy(update={"id": each.id})
        return action

    def came(self, handle: ActionHandle) -> None:
        """Keep the handle of a request of the loop. Training thread."""
        if handle.id in self._made:
            self._made[handle.id] = self._made[handle.id][0], handle

    def pairs(self) -> list[tuple[Recorded, ActionHandle]]:
        """Return those that came again, each with its handle here."""
        return [(item, handle) for item, handle in self._made.values() if handle is not None]

    def differences(self, here: Sequence[Recorded], *, is_over: bool) -> list[str]:
        """Say which the loop left out, and which it made that the recorded one did not.

        Parameters
        ----------
        here : sequence of Recorded
            All requests that were carried out in the replay.
        """
        said: list[str] = []
        for each in self._left if is_over else ():
            if each.type not in self._harmless:
                said.append(f"{each.what} at {each.place} was the recorded loop's, not this one's")
        for each in here:
            if each.own and each.id not in self._made and each.type not in self._harmless:
                said.append(f"{each.what} at {each.place} is this loop's, not the recorded one's")
        served: dict[str, Any] = {each.id: each.place for each in here}
        for item, _ in self.pairs():
            now = served.get(item.id)
            if now is not None and (now.round, now.step) != (item.place.round, item.place.step):
                said.append(f"{item.what} of the loop was at {item.place} and is at {now}")
        return said
