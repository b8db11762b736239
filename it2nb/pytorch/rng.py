"""Random streams: their state as plain data, put back to the bit.

The global streams of Python, NumPy, PyTorch and the accelerators, and generators that somebody
named. Reading and restoring draws from none of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from it2nb.core.errors import Rejected

#: A stream that is not global.
Generator = torch.Generator | np.random.Generator | np.random.RandomState | random.Random


def capture(generators: Mapping[str, Generator] | None = None) -> dict[str, Any]:
    """Read the state of all streams. Any thread; call it where nobody draws meanwhile.

    Parameters
    ----------
    generators : mapping of str to Generator, optional
        Further streams by name: a sampler's, an augmentation's.

    Returns
    -------
    dict
        A plain tree of copies. CUDA is left alone unless it was initialised already.
    """
    state: dict[str, Any] = {
        "python": _python_state(random.getstate()),
        "numpy": _tensors(np.random.get_state(legacy=False)),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_initialized():
        state["cuda"] = [each.clone() for each in torch.cuda.get_rng_state_all()]
    if torch.backends.mps.is_available():
        state["mps"] = torch.mps.get_rng_state()
    if generators:
        state["generators"] = {name: state_of(each) for name, each in generators.items()}
    return state


def restore(
    state: Mapping[str, Any], generators: Mapping[str, Generator] | None = None
) -> list[str]:
    """Put all streams back to where `capture` found them.

    Returns
    -------
    list of str
        What could not be put back, in words: a device that is not here, a generator that
        nobody has any more.
    """
    notes: list[str] = []
    random.setstate(_python_tuple(state["python"]))
    np.random.set_state(_arrays(state["numpy"]))
    torch.set_rng_state(state["torch"])
    saved = state.get("cuda", [])
    count = torch.cuda.device_count() if saved else 0
    for index, each in enumerate(saved[:count]):
        torch.cuda.set_rng_state(each, index)
    if len(saved) > count:
        notes.append(
            f"random state of {len(saved)} CUDA devices was saved and {count} are here: the "
            f"others were left out"
        )
    if "mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["mps"])
    for name, each in state.get("generators", {}).items():
        generator = (generators or {}).get(name)
        if generator is None:
            notes.append(f"the generator {name!r} was saved and is not here: left out")
        else:
            put_back(generator, each)
    return notes


@contextmanager
def preserved(*generators: Generator) -> Iterator[None]:
    """Leave all streams, and `generators`, as they were at the start of the block."""
    named = {str(index): each for index, each in enumerate(generators)}
    state = capture(named)
    try:
        yield
    finally:
        restore(state, named)


def state_of(generator: Generator) -> dict[str, Any]:
    """Read one stream's state as plain data."""
    if isinstance(generator, torch.Generator):
        return {"kind": "torch", "state": generator.get_state().clone()}
    if isinstance(generator, np.random.Generator):
        return {"kind": "numpy", "state": _tensors(generator.bit_generator.state)}
    if isinstance(generator, np.random.RandomState):
        return {"kind": "legacy", "state": _tensors(generator.get_state(legacy=False))}
    return {"kind": "python", "state": _python_state(generator.getstate())}


def put_back(generator: Generator, saved: Mapping[str, Any]) -> None:
    """Set one stream to a saved state.

    Raises
    ------
    Rejected
        If the state is another kind of stream's.
    """
    kind, state = saved["kind"], saved["state"]
    if kind == "torch" and isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif kind == "numpy" and isinstance(generator, np.random.Generator):
        generator.bit_generator.state = _arrays(state)
    elif kind == "legacy" and isinstance(generator, np.random.RandomState):
        generator.set_state(_arrays(state))
    elif kind == "python" and isinstance(generator, random.Random):
        generator.setstate(_python_tuple(state))
    else:
        raise Rejected(
            f"the saved random state is of kind {kind!r}, the live one is a "
            f"{type(generator).__name__}"
        )


def _tensors(state: Any) -> Any:
    """Turn the arrays of a NumPy state into tensors: copies, and plain."""
    if isinstance(state, Mapping):
        return {key: _tensors(value) for key, value in state.items()}
    return torch.from_numpy(state.copy()) if isinstance(state, np.ndarray) else state


def _arrays(state: Any) -> Any:
    if isinstance(state, Mapping):
        return {key: _arrays(value) for key, value in state.items()}
    return state.numpy().copy() if isinstance(state, torch.Tensor) else state


def _python_state(state: tuple[Any, ...]) -> dict[str, Any]:
    version, key, gauss = state
    return {"version": version, "key": torch.tensor(key, dtype=torch.int64), "gauss": gauss}


def _python_tuple(saved: Mapping[str, Any]) -> tuple[Any, ...]:
    return (saved["version"], tuple(saved["key"].tolist()), saved["gauss"])
