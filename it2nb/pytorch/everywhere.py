"""One request on one of several ranks: carrying it out, telling how it went, taking it back."""

from __future__ import annotations

import base64
import hashlib
import io
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from it2nb.core.actions import ActionSpec, Deferred, Owed
from it2nb.core.faults import guard
from it2nb.core.queue import ActionHandle
from it2nb.core.serving import Attempt, attempt
from it2nb.core.strict import plain
from it2nb.core.wire import EFFECTIVE
from it2nb.pytorch import rewind, rng
from it2nb.pytorch.knob_state import KnobValues, read_knobs, write_knobs

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Change nothing on any rank: rank 0 does them alone.
LOCAL = frozenset({"note", "set_context", "list_checkpoints"})
#: Ours; every other handler is the user's and gets random streams that are the same everywhere.
OURS = frozenset(
    {
        "set_knob", "set_mode", "batch", "pause", "resume", "stop", "evaluate", "save_checkpoint",
        "load_checkpoint", "reset_module", "freeze", "unfreeze", "undo", "goto",
    }
)  # fmt: skip
#: Leave no trace that could be taken back.
HARMLESS = frozenset({"pause", "resume", "stop", "evaluate", "save_checkpoint"})
#: They change nothing but knobs.
KNOBS = frozenset({"set_knob", "set_mode", "batch"})
#: They need the whole of a model in one process.
WHOLE = frozenset({"save_checkpoint", "load_checkpoint", "undo", "goto", "reset_module"})


class Streams:
    """The random streams of all ranks in one checkpoint; empty outside of a save."""

    def __init__(self) -> None:
        self.all: dict[str, Any] = {}
        self.loaded: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the streams by rank."""
        return {"streams": self.all}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Keep what a checkpoint holds; `give_back` puts it into force."""
        self.loaded = dict(state.get("streams", {}))

    def give_back(self, rank: int) -> list[str]:
        """Put the streams of one rank back, after the rest of a checkpoint was loaded."""
        loaded, self.loaded = self.loaded, {}
        if str(rank) in loaded:
            return rng.restore(loaded[str(rank)])
        return [f"the checkpoint has no random streams of rank {rank}: it has those of rank 0 now"]


@dataclass(slots=True)
class Try:
    """How a request went on this rank, and what was there before.

    Attributes
    ----------
    tried : Attempt or Owed
    knobs : KnobValues
        Before it.
    place : (int, int)
        Step and branch before it.
    """

    handle: ActionHandle
    name: str
    tried: Attempt | Owed
    knobs: KnobValues
    place: tuple[int, int]
    landed: tuple[int, int] = (0, 0)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def did(self) -> bool:
        """Whether it holds on this rank, or the loop will do it."""
        return isinstance(self.tried, Owed) or self.tried.status in EFFECTIVE

    @property
    def touched(self) -> bool:
        """Whether its handler may have changed something."""
        return self.did or (isinstance(self.tried, Attempt) and self.tried.status == "failed")

    def told(self) -> dict[str, Any]:
        """As a message."""
        tried = self.tried
        common = {"landed": list(self.landed), **self.extra}
        if isinstance(tried, Owed):
            return {"status": "owed", "after": [tried.kind, tried.value], "reason": None, **common}
        return {
            "status": tried.status,
            "reason": tried.reason,
            "after": plain(values_after(tried)),
            **common,
        }


def values_after(tried: Attempt) -> Any:
    """The values that knobs have after a request, to be compared between the ranks."""
    if tried.change is not None:
        return tried.change.outcome.after
    if isinstance(tried.data, list):  # a batch
        return [each.get("after") if isinstance(each, dict) else None for each in tried.data]
    return None


def carry_out_here(
    session: Session, rank: int, handle: ActionHandle, spec: ActionSpec, payload: dict[str, Any]
) -> Try:
    """Run a request's handler on this rank; nothing is written yet. Training thread."""
    reason = sharded(session) if spec.name in WHOLE else None
    done = Try(handle, spec.name, Attempt("rejected", reason), read_knobs(session), _place(session))
    if reason is None:
        streams = common_streams(handle.id) if spec.name not in OURS else nullcontext()
        with streams:
            tried = attempt(session, handle, spec, payload)
        if isinstance(tried, Deferred):
            tried = Attempt("failed", "it gives its result later, which several ranks can't do")
        done.tried = tried
    if done.did and spec.name in ("load_checkpoint", "goto") and _came_from_file(done.tried):
        kept = session.bound.stateful.get("ranks")
        if isinstance(kept, Streams):
            with guard("random streams of a rank", session.report):
                done.extra["notes"] = kept.give_back(rank)
    done.landed = _place(session)
    return done


def which_file(session: Session, spec: ActionSpec, payload: dict[str, Any]) -> dict[str, Any]:
    """Name the checkpoint file that every rank is to load. Rank 0.

    Raises
    ------
    Rejected
        If there is none.
    """
    known = rewind.of(session)
    if spec.name != "load_checkpoint" or known is None or not known.saving.is_ours:
        return payload
    found = known.saving.find(payload.get("path"))
    return {**payload, "path": str(found.resolve())}


def take_back(session: Session, done: Try) -> list[str]:
    """Put a request back that some rank could not do; says what could not be put back.

    Also where it was this rank that failed: its handler may have gone half the way.
    """
    if done.name in HARMLESS or isinstance(done.tried, Owed) or not done.touched:
        return []
    said: list[str] = []
    with guard("taking a request back", session.report) as fault:
        if done.name not in KNOBS:
            past = getattr(rewind.of(session), "past", None)
            if past is None or not past.put_back(done.handle):
                said.append(f"{done.name} can't be taken back: the ranks may differ now")
        if _place(session) != done.place:
            session.resume_branch(done.place[1], done.place[0])
        said += write_knobs(session, done.knobs)
    return [*said, fault.error] if fault else said


def sharded(session: Session) -> str | None:
    """Why a state can't be saved, loaded or reset: no rank has the whole of it."""
    for model in session.bound.models:
        for name, parameter in model.named_parameters():
            if type(parameter).__name__ == "DTensor" or type(parameter.data).__name__ == "DTensor":
                return (
                    f"{name} is sharded over the ranks, and no rank has the whole of it: save "
                    f"and load it with torch.distributed.checkpoint"
                )
    return None


@contextmanager
def common_streams(request_id: str) -> Iterator[None]:
    """Let every rank draw the same random numbers, and put the streams back afterwards."""
    seed = int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:4])
    with rng.preserved():
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        yield


def packed_streams() -> str:
    """Read this rank's random streams, as text."""
    buffer = io.BytesIO()
    torch.save(rng.capture(), buffer)
    return base64.b64encode(buffer.getvalue()).decode()


def unpacked_streams(text: str) -> Any:
    """Undo `packed_streams`; runs no code."""
    return torch.load(io.BytesIO(base64.b64decode(text)), weights_only=True)


def _came_from_file(tried: Attempt | Owed) -> bool:
    """Whether a state was loaded from a file; a snapshot is this rank's own, streams and all."""
    data = tried.data if isinstance(tried, Attempt) else None
    return isinstance(data, dict) and "path" in data


def _place(session: Session) -> tuple[int, int]:
    return session.step_count, session.branch_id
