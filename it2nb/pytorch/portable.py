"""A plain tree as JSON, to the bit: what a journal row can hold of the random streams."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import torch

from it2nb.core.errors import JournalError

#: Marks a packed tensor; a plain tree of random streams has no such key.
_TENSOR = "tensor"
#: Largest tensor that is unpacked, bytes: a state is a few kB.
MAX_BYTES = 1 << 20


def pack(tree: Any) -> Any:
    """Write a plain tree of numbers, text and small tensors as JSON."""
    if isinstance(tree, torch.Tensor):
        flat = tree.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
        data = base64.b64encode(zlib.compress(flat.numpy().tobytes(), 6)).decode()
        name = str(tree.dtype).removeprefix("torch.")
        return {_TENSOR: name, "shape": list(tree.shape), "data": data}
    if isinstance(tree, Mapping):
        return {str(key): pack(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [pack(value) for value in tree]
    if isinstance(tree, int) and not -(2**53) < tree < 2**53:
        return {"int": str(tree)}  # the state of a NumPy generator has 128 bits
    return tree


def unpack(packed: Any) -> Any:
    """Undo `pack`.

    Raises
    ------
    JournalError
        If it is not what `pack` made.
    """
    if isinstance(packed, Mapping):
        if _TENSOR in packed:
            return _tensor(packed)
        if packed.keys() == {"int"}:
            return int(packed["int"])
        return {key: unpack(value) for key, value in packed.items()}
    if isinstance(packed, list):
        return [unpack(value) for value in packed]
    return packed


def _tensor(packed: Mapping[str, Any]) -> torch.Tensor:
    dtype = getattr(torch, str(packed[_TENSOR]), None)
    try:
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"{packed[_TENSOR]!r} is no dtype")
        inflate = zlib.decompressobj()
        data = inflate.decompress(base64.b64decode(packed["data"], validate=True), MAX_BYTES)
        flat = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        return flat.view(dtype).reshape(packed["shape"]).clone()
    except (ValueError, KeyError, TypeError, RuntimeError, zlib.error) as err:
        raise JournalError(
            f"the random streams in this journal can't be read ({type(err).__name__}: {err}); "
            f"replay with --seed instead"
        ) from err
