"""Fingerprints: hashes of a run's state and of the random streams, written into its journal.

They tell whether two runs hold the same numbers, to the bit, without keeping the numbers:

- ``state_hash`` at the start and at the end: SHA-256 over every tensor and number in the bound
  models, optimizers and schedulers, of all together and of each.
- ``random_state`` at the start, with the streams themselves, so that a replay can begin with
  them; and a hash at each control point with a request, so that it shows where something else
  drew from the global streams.
"""

from __future__ import annotations

import hashlib
import struct
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from it2nb.core.faults import guard
from it2nb.pytorch import recall, rng
from it2nb.pytorch.inforce import InForce
from it2nb.pytorch.past import live_of
from it2nb.pytorch.plain import Reducer
from it2nb.pytorch.portable import pack, unpack
from it2nb.pytorch.snapshots import size_of_live
from it2nb.pytorch.state import Live, capture

if TYPE_CHECKING:
    from it2nb.core.queue import ActionHandle
    from it2nb.core.session import Session

#: A larger state is not hashed at the start, so that the first step does not wait for seconds.
MAX_START_BYTES = 1 << 29
#: Handlers that draw from no global stream.
_DRAWS_NOTHING = frozenset(
    {"set_knob", "set_mode", "batch", "pause", "resume", "note", "set_context", "save_checkpoint",
     "list_checkpoints"}
)  # fmt: skip

SHIFTED = (
    "something outside of the loop drew random numbers while the run stood at step {step}: "
    "the numbers that the loop draws from now on are others, and a replay will differ"
)
OTHERS = (
    "replay: at step {step} the random streams don't stand where they stood in the recording: "
    "something else drew from them, in one of the two runs"
)


class Fingerprints:
    """Writes the fingerprints of one session. Training thread.

    Parameters
    ----------
    session : Session
    """

    def __init__(self, session: Session) -> None:
        # Weakly: it is kept by its session, in a registry that must not keep the session.
        self._its_session = weakref.ref(session)
        self._place: tuple[int, ...] = ()
        self._last = ""
        self._before_type = ""
        self._is_over = False
        self._recorded = _recorded(session)
        self._is_told = False

    @property
    def _session(self) -> Session:
        session = self._its_session()
        assert session is not None, "it is the session that calls"
        return session

    def begin(self) -> None:
        """The loop is about to begin: the streams, and the state where something is bound."""
        session = self._session
        with guard("fingerprint of the start", session.report):
            was_put_back = self._put_streams()
            now = rng.capture(session.bound.generators)
            session.emit(
                "random_state",
                {
                    "when": "start",
                    "in_loop": session.began_in_loop,
                    "put_back": was_put_back,
                    "seed": session.seed,
                    **streams(now),
                    "state": pack(now),
                },
            )
            live = live_of(session)
            if live and size_of_live(live) <= MAX_START_BYTES:
                more = {"in_loop": True} if session.began_in_loop else {}
                session.emit("state_hash", {"when": "start", **more, **state_hash(live)})
        session.before_change(self._before)

    def end(self) -> None:
        """The loop is over, and what it trained is still bound. Once."""
        session = self._session
        if self._is_over or session.is_ended:
            return
        self._is_over = True
        # Weights that another thread is changing have no hash.
        owner = session.owner
        if owner is not None and owner.is_alive() and not session.on_training_thread:
            return
        with guard("fingerprint of the end", session.report):
            live = live_of(session)
            if live:
                session.emit("state_hash", {"when": "end", **state_hash(live)})

    def _put_streams(self) -> bool:
        """In a replay begin with the recorded streams; whether they were put back."""
        session = self._session
        if session.replaying is None:
            return False
        starts = self._recorded.get("start", [])
        if not starts or not starts[0].get("state"):
            return False
        start = starts[0]
        if bool(start.get("in_loop")) != session.began_in_loop:
            return False  # those of another moment would spoil what the loop has seeded itself
        if streams(rng.capture(session.bound.generators))["sha256"] == start["sha256"]:
            return False
        notes = rng.restore(unpack(start["state"]), session.bound.generators)
        session.replaying.notes.append(
            "the random streams stood differently at the start; the recorded ones were put back"
        )
        session.replaying.notes.extend(notes)
        return True

    def _before(self, handle: ActionHandle) -> None:
        """A request is about to be carried out: where do the streams stand?"""
        session = self._session
        place = tuple(session.place()[:4])
        now = streams(rng.capture(session.bound.generators))["sha256"]
        same_place, drawn = place == self._place, now != self._last
        quiet = self._before_type in _DRAWS_NOTHING
        self._before_type = handle.action.type
        if same_place and not drawn:
            return
        shifted = same_place and quiet
        self._place, self._last = place, now
        payload: dict[str, Any] = {"when": "request", "sha256": now}
        if shifted:
            payload["shifted"] = True
        session.emit("random_state", payload)
        if shifted:
            session.warn(SHIFTED.format(step=session.step_count))
        self._compare(now)

    def _compare(self, now: str) -> None:
        """In a replay: do the streams stand where they stood?"""
        session = self._session
        if session.replaying is None or self._is_told:
            return
        was = self._recorded.get((session.round, session.branch_id, session.step_count), [])
        if was and was.pop(0)["sha256"] != now:
            self._is_told = True
            session.warn(OTHERS.format(step=session.step_count))


def begin(session: Session) -> Fingerprints:
    """Write the fingerprints of a run that is about to begin. Training thread, idempotent."""
    known = _kept.get(session)
    if known is None:
        known = _kept[session] = Fingerprints(session)
        if session.replaying is not None:
            recall.install(session, session.replaying)
        known.begin()
        InForce(session)
    return known


def end(session: Session) -> None:
    """Write the hash of the final state, while what was trained is still bound. Idempotent."""
    known = _kept.get(session)
    if known is not None:
        known.end()


_kept: weakref.WeakKeyDictionary[Session, Fingerprints] = weakref.WeakKeyDictionary()


def state_hash(live: Live) -> dict[str, Any]:
    """Hash all tensors and numbers of what is trained.

    Returns
    -------
    dict
        ``sha256`` of all together, ``parts`` of each (``"model net"``), ``classes`` by the same
        names, ``drives`` (optimizer of each scheduler).
    """
    tree = capture(live, Reducer(portable=False, clone=False), with_rng=False)
    parts: dict[str, str] = {}
    classes: dict[str, str] = {}
    for kind, stem in _KINDS:
        objects = getattr(live, kind)
        for name, part in tree.get(kind, {}).items():
            parts[f"{stem} {name}"] = digest(part)
            classes[f"{stem} {name}"] = type(objects[name]).__name__
    if "scaler" in tree:
        parts["scaler"] = digest(tree["scaler"])
    whole = hashlib.sha256()
    for name in sorted(parts):
        whole.update(f"{name}={parts[name]};".encode())
    return {
        "sha256": whole.hexdigest(),
        "parts": parts,
        "classes": classes,
        "drives": _drives(live),
    }


_KINDS = (("models", "model"), ("optimizers", "optimizer"), ("schedulers", "scheduler"))


def _drives(live: Live) -> dict[str, str]:
    """Tell which optimizer each scheduler drives, by their names."""
    names = {id(each): name for name, each in live.optimizers.items()}
    found: dict[str, str] = {}
    for name, scheduler in live.schedulers.items():
        optimizer = names.get(id(getattr(scheduler, "optimizer", None)))
        if optimizer is not None:
            found[name] = optimizer
    return found


def digest(tree: Any) -> str:
    """Hash a plain tree bit by bit: types, keys, numbers and tensors."""
    found = hashlib.sha256()
    _feed(found, tree)
    return found.hexdigest()


def streams(state: Mapping[str, Any]) -> dict[str, Any]:
    """Hash captured random streams: ``sha256`` of all, ``parts`` of each."""
    parts = {name: digest(part)[:16] for name, part in sorted(state.items())}
    return {"sha256": digest(parts)[:32], "parts": parts}


def _feed(found: Any, node: Any) -> None:
    if isinstance(node, torch.Tensor):
        _feed_tensor(found, node)
    elif isinstance(node, Mapping):
        found.update(b"{")
        for key, value in node.items():
            found.update(repr(key).encode())
            _feed(found, value)
        found.update(b"}")
    elif isinstance(node, (list, tuple)):
        found.update(b"[")
        for value in node:
            _feed(found, value)
        found.update(b"]")
    elif isinstance(node, float):
        found.update(b"f" + struct.pack("<d", node))
    elif isinstance(node, (set, frozenset)):
        found.update(repr(sorted(map(repr, node))).encode())
    elif isinstance(node, np.ndarray):
        found.update(f"a{node.dtype}{node.shape}".encode())
        found.update(np.ascontiguousarray(node).tobytes())
    elif node is None or isinstance(node, (bool, int, str, bytes)):
        found.update(repr(node).encode())
    else:  # an object whose repr may hold an address
        found.update(type(node).__name__.encode())


def _feed_tensor(found: Any, tensor: torch.Tensor) -> None:
    found.update(f"t{tensor.dtype}{tuple(tensor.shape)}".encode())
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    flat = tensor.detach().resolve_conj().resolve_neg().to("cpu").contiguous().reshape(-1)
    found.update(flat.view(torch.uint8).numpy().data)


def _recorded(session: Session) -> dict[Any, list[dict[str, Any]]]:
    """Return the recorded rows of the streams, by control point; those of the start apart."""
    found: dict[Any, list[dict[str, Any]]] = {}
    live = session.replaying
    for event in live.recording.random if live is not None else ():
        at: Any = event.payload.get("when")
        if at != "start" and live is not None:
            at = (event.round, live.branch(event.branch_id), event.step)
        found.setdefault(at, []).append(event.payload)
    return found
