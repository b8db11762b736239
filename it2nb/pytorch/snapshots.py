"""Snapshots: the state of a run kept in memory, within a stated bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from it2nb.pytorch.knob_state import KnobValues
from it2nb.pytorch.plain import Reducer, tensors
from it2nb.pytorch.state import Live, capture

#: Copying a smaller tensor than this (bytes) is quicker than comparing it with an older copy.
MIN_SHARED_BYTES = 1 << 14

_SAME_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(eq=False)
class Snapshot:
    """The whole state of one moment. Nobody writes into it while it lives.

    Attributes
    ----------
    step, branch_id, round : int
        Where it was taken.
    tree : plain tree
        From `capture`; its tensors are copies.
    knobs : KnobValues
    extra : list
        What the user's ``on_save`` hooks gave.
    why : str
        ``"every 50 steps"``, ``"before set_knob lr"``.
    t : float
        Seconds since the session was made.
    is_change : bool
        Taken because somebody was about to change the run.
    place : list of int or None
        `Session.place` then, so that a replay finds the same state.
    """

    step: int
    branch_id: int
    round: int
    tree: Mapping[str, Any]
    knobs: KnobValues = field(default_factory=dict)
    extra: list[Any] = field(default_factory=list)
    why: str = ""
    t: float = 0.0
    is_change: bool = False
    place: list[int] | None = None

    def is_finite(self) -> bool:
        """Whether no weight and no optimizer state is NaN or infinite."""
        kept = [self.tree.get(part) for part in ("models", "optimizers")]
        return all(
            bool(each.isfinite().all())
            for each in tensors(kept)
            # 8-bit floats have no isfinite; they are weights of inference, not of training.
            if (each.is_floating_point() or each.is_complex()) and each.element_size() > 1
        )


class Ring:
    """Keeps snapshots within a bound; thins out what lies long ago.

    Parameters
    ----------
    max_bytes : int
        Bound for the tensors of all snapshots together; while one is taken it is there
        besides. A tensor that several share counts once.
    max_count : int
        And never more than that many.
    device : str or None
        Where the copies live; ``"cpu"`` takes no accelerator memory, None keeps each where it
        is.

    Notes
    -----
    When a new snapshot does not fit, the one goes whose loss opens the smallest gap for its
    age, so that the near past stays dense and the far past thin. One taken before a change
    counts for eight, since `undo` wants exactly it. The oldest stays as long as two others
    fit beside it, the newest always.
    """

    def __init__(
        self, max_bytes: int = 1 << 30, *, max_count: int = 200, device: str | None = "cpu"
    ) -> None:
        self.max_bytes = max_bytes
        self.max_count = max_count
        self.device = device
        self.size_bytes = 0
        self._kept: list[Snapshot] = []
        self._uses: Counter[int] = Counter()
        self._places: dict[str, torch.Tensor] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(list(self._kept))

    def __contains__(self, snapshot: object) -> bool:
        return any(each is snapshot for each in self._kept)

    @property
    def newest(self) -> Snapshot | None:
        """The one taken last."""
        return self._kept[-1] if self._kept else None

    def clear(self) -> None:
        """Let go of everything."""
        self._kept.clear()
        self._uses.clear()
        self._places.clear()
        self.size_bytes = 0

    def take(self, live: Live) -> dict[str, Any]:
        """Copy the state of `live`. Training thread, at a control point.

        What did not change since the last one (frozen weights, everything during a pause) is
        shared with it.
        """
        reduce = Reducer(portable=False, clone=True, device=self.device, share=self._shared)
        tree = capture(live, reduce)
        self._places = reduce.places
        return tree

    def add(self, snapshot: Snapshot) -> list[Snapshot]:
        """Keep a snapshot; returns those that had to go for it."""
        self._kept.append(snapshot)
        self._count(snapshot, 1)
        gone: list[Snapshot] = []
        while len(self._kept) > 1 and (
            self.size_bytes > self.max_bytes or len(self._kept) > self.max_count
        ):
            gone.append(self._kept.pop(self._least_missed()))
            self._count(gone[-1], -1)
        return gone

    def _shared(self, where: str, tensor: torch.Tensor) -> torch.Tensor | None:
        older = self._places.get(where)
        return older if older is not None and _same_bits(older, tensor) else None

    def _count(self, snapshot: Snapshot, by: int) -> None:
        for each in tensors(snapshot.tree):
            uses = self._uses[id(each)] + by
            if uses == 0:
                del self._uses[id(each)]
            else:
                self._uses[id(each)] = uses
            if uses == (1 if by > 0 else 0):
                self.size_bytes += by * size_of(each)

    def _least_missed(self) -> int:
        if len(self._kept) == 2:
            return 0
        now = self._kept[-1].t

        def loss(index: int) -> float:
            gap = self._kept[index + 1].t - self._kept[index - 1].t
            weight = 8.0 if self._kept[index].is_change else 1.0
            return weight * gap / (1e-9 + now - self._kept[index].t)

        return min(range(1, len(self._kept) - 1), key=loss)


def size_of(tensor: torch.Tensor) -> int:
    """Bytes that a tensor's values take."""
    if tensor.layout is torch.strided:
        return tensor.nbytes
    return int(tensor._nnz() * (tensor.element_size() + 8 * tensor.ndim))


def size_of_live(live: Live) -> int:
    """Bytes that one snapshot would take, without taking it; close, and cheap."""
    total = 0
    for model in live.models.values():
        held = {id(each): each for each in (*model.parameters(), *model.buffers())}
        total += sum(size_of(each) for each in held.values())
    for optimizer in live.optimizers.values():
        for entry in getattr(optimizer, "state", {}).values():
            total += sum(size_of(each) for each in tensors(entry))
    return total


def _same_bits(older: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether a tensor on the same device still has the bits of an older copy."""
    if (
        older.device != tensor.device
        or older.dtype != tensor.dtype
        or older.shape != tensor.shape
        or tensor.layout is not torch.strided
        or tensor.nbytes < MIN_SHARED_BYTES
        or tensor.is_conj()
        or tensor.is_neg()
        or tensor.element_size() not in _SAME_SIZE
    ):
        return False
    # Integers compare by bits: NaN equals itself, 0.0 and -0.0 differ.
    as_bits = _SAME_SIZE[tensor.element_size()]
    left, right = older.view(as_bits), tensor.view(as_bits)
    if left.is_contiguous() and right.is_contiguous():
        # Weights that learn differ nearly everywhere: 16 of them tell.
        pace = max(1, left.numel() // 16)
        if not torch.equal(left.view(-1)[::pace], right.view(-1)[::pace]):
            return False
    return torch.equal(left, right)
