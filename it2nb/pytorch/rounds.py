"""Between rounds: what one training hung on PyTorch is taken off before the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from it2nb.pytorch import modules, rewind
from it2nb.pytorch.optimizers import steering_of
from it2nb.pytorch.switchboard import switchboard

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from it2nb.core.session import Session


class Between:
    """Remembers what is there before the first round. Training thread.

    Parameters
    ----------
    session : Session
    snapshots, autosave_s
        As `rewind.install` takes them: the actions that go back are there in every round.
    """

    def __init__(
        self,
        session: Session,
        snapshots: Mapping[str, Any] | bool,
        autosave_s: float | Literal["auto"] | None,
    ) -> None:
        self._session = session
        self._rewind = rewind.install(session, snapshots=snapshots, autosave_s=autosave_s)
        modules.install(session)
        self._attachments = list(switchboard().attachments.values())
        self._steered = list(steering_of(session).optimizers)

    def __call__(self) -> None:
        """Let go of hooks, steered optimizers and snapshots of the round that is over."""
        for each in list(switchboard().attachments.values()):
            if each.session is self._session and each not in self._attachments:
                each.detach()
        steering_of(self._session).keep(self._steered)
        # Its weights are not those of the round that begins.
        self._rewind.past.clear("no snapshot was taken in this round yet")
