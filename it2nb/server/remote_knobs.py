"""The knobs of a run elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from it2nb.core.knob_names import KnobViews
from it2nb.core.wire import KnobView

if TYPE_CHECKING:
    from it2nb.server.remote import RemoteSession


class RemoteKnobs(Mapping[str, Any]):
    """The knobs of a run elsewhere, as they are now."""

    def __init__(self, run: RemoteSession) -> None:
        self._run = run

    def __getitem__(self, name: str) -> KnobView:
        return KnobViews(self._run.state().knobs)[name]

    def __contains__(self, name: object) -> bool:
        return name in KnobViews(self._run.state().knobs)

    def __iter__(self) -> Iterator[str]:
        return iter([view.name for view in self._run.state().knobs])

    def __len__(self) -> int:
        return len(self._run.state().knobs)

    def __repr__(self) -> str:
        return f"<knobs {', '.join(f'{v.name}={v.value!r}' for v in self.values())}>"
