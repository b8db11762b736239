"""What stands between a sampler and the loop: batches that are drawn and not trained on yet.

A knob of the data takes effect where the data is made. Workers, and loaders that look one batch
ahead, have drawn some batches by then; they are trained on as they are. `Pipeline` finds out how
many, so that a result can say from which batch on a new value holds.
"""

from __future__ import annotations

import sys
import weakref
from types import FrameType
from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

#: Iterators around a loader that hold a batch back, by the qualified name of their code.
LOOK_AHEAD = {"DataLoaderShard.__iter__": 1, "DataLoaderDispatcher.__iter__": 1}
#: Frames between the code that makes an item or an index and the loop.
_DEPTH = 16


class Pipeline:
    """The loader that a sampler or a data set feeds, as far as it can be seen from inside.

    Main process. Learns of the loader when it is asked for an index or an item.
    """

    def __init__(self) -> None:
        self._iterator: weakref.ref[Any] | None = None
        self._ahead = 0

    def look(self, frame: FrameType | None = None) -> None:
        """Find the loader that asks: it is among the callers of whoever calls this."""
        frame = sys._getframe(1) if frame is None else frame
        found, ahead = None, 0
        for _ in range(_DEPTH):
            if frame is None:
                break
            code = frame.f_code
            asker = frame.f_locals.get("self") if code.co_name in _ASKERS else None
            if found is None and isinstance(asker, _BaseDataLoaderIter):
                found = asker
            ahead += LOOK_AHEAD.get(code.co_qualname, 0)
            frame = frame.f_back
        if found is not None:
            self._iterator, self._ahead = weakref.ref(found), ahead

    def forget(self) -> None:
        """Another pass begins, perhaps by another loader."""
        self._iterator, self._ahead = None, 0

    @property
    def is_known(self) -> bool:
        """Whether a loader was seen that is still at work."""
        return self._iterator is not None and self._iterator() is not None

    @property
    def workers(self) -> int:
        """Worker processes of the loader; 0 without any, or when it is not known."""
        iterator = None if self._iterator is None else self._iterator()
        return int(getattr(iterator, "_num_workers", 0))

    @property
    def keeps_workers(self) -> bool:
        """Whether its workers live on from pass to pass, with their copies of the data set."""
        iterator = None if self._iterator is None else self._iterator()
        return bool(getattr(iterator, "_persistent_workers", False))

    @property
    def batch_size(self) -> int:
        """Samples in a batch; 1 when it is not known."""
        iterator = None if self._iterator is None else self._iterator()
        size = getattr(getattr(iterator, "_index_sampler", None), "batch_size", None)
        return int(size) if size else 1

    @property
    def drawn(self) -> int:
        """Batches of this pass that were drawn so far: the number of the next one, from 0."""
        iterator = None if self._iterator is None else self._iterator()
        yielded = getattr(iterator, "_num_yielded", 0)
        return int(getattr(iterator, "_send_idx", yielded))

    @property
    def prefetched(self) -> int:
        """Batches that are drawn and not handed to the loop yet."""
        iterator = None if self._iterator is None else self._iterator()
        if iterator is None:
            return 0
        sent = getattr(iterator, "_send_idx", 0)
        return max(0, int(sent) - int(getattr(iterator, "_rcvd_idx", 0))) + self._ahead


_ASKERS = frozenset({"_next_index", "_next_data"})


def said(batch: int, prefetched: int) -> str:
    """Say from which batch of a pass on something holds; batches count from 0."""
    where = f"in force from batch {batch} of this pass on"
    if not prefetched:
        return where
    were = "1 batch before it was" if prefetched == 1 else f"{prefetched} batches before it were"
    return f"{where}; {were} already prefetched"
