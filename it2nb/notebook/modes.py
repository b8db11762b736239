"""PyTorch's modes that belong to a thread: read in the cell, entered again by its thread.

A new thread starts with gradients on, autocast off and the CPU as its default device, whatever
the cell says (pytorch#20528, #82145, #115917). NumPy's error state, decimal's context and the
like travel with `contextvars` and need nothing here; the default dtype, the random streams and
the deterministic flags belong to the process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from it2nb.core.errors import It2nbError


class InferenceMode(It2nbError):
    """A run was started under ``torch.inference_mode()``, where nothing can be trained."""


@dataclass(frozen=True, slots=True)
class ThreadModes:
    """What `capture` found; empty while PyTorch is not loaded."""

    grad: bool = True
    autocast: tuple[tuple[str, Any, bool], ...] = ()
    autocast_cache: bool = True
    autocast_dtypes: tuple[tuple[str, Any], ...] = ()
    default_device: Any = None
    function_modes: tuple[Any, ...] = ()
    dispatch_modes: tuple[Any, ...] = ()
    saved_tensors: tuple[Any, Any] | None = None
    cuda_device: int | None = None
    multithreading: bool = True
    loaded: bool = field(default=False)


def capture() -> ThreadModes:
    """Read the modes of the calling thread. Never imports PyTorch nor initialises CUDA.

    Raises
    ------
    InferenceMode
        Tensors that are made under inference mode can't be trained.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_autocast_dtype"):  # absent, or half imported
        return ThreadModes()
    if torch.is_inference_mode_enabled():
        raise InferenceMode(
            "this cell runs under torch.inference_mode(), where nothing can be trained; leave "
            "the mode first (torch.no_grad() may stay: it is carried into the run)"
        )
    modes, device = _function_modes(torch)
    return ThreadModes(
        grad=torch.is_grad_enabled(),
        autocast=_autocast(torch),
        autocast_cache=torch.is_autocast_cache_enabled(),
        autocast_dtypes=_autocast_dtypes(torch),
        default_device=device,
        function_modes=modes,
        dispatch_modes=_dispatch_modes(),
        saved_tensors=_saved_tensors(torch),
        cuda_device=torch.cuda.current_device() if torch.cuda.is_initialized() else None,
        multithreading=torch.autograd.is_multithreading_enabled(),
        loaded=True,
    )


@contextmanager
def entered(modes: ThreadModes) -> Iterator[None]:
    """Run a block of the calling thread in these modes."""
    if not modes.loaded:
        yield
        return
    torch: Any = sys.modules["torch"]
    with ExitStack() as stack:
        if modes.cuda_device is not None:
            torch.cuda.set_device(modes.cuda_device)
        stack.enter_context(torch.set_grad_enabled(modes.grad))
        stack.enter_context(torch.autograd.set_multithreading_enabled(modes.multithreading))
        # What `torch.autocast(device)` takes where the loop enters it without a dtype.
        for device, dtype in modes.autocast_dtypes:
            torch.set_autocast_dtype(device, dtype)
        for device, dtype, cached in modes.autocast:
            stack.enter_context(
                torch.autocast(device, dtype=dtype, enabled=True, cache_enabled=cached)
            )
        torch.set_autocast_cache_enabled(modes.autocast_cache)
        if modes.default_device is not None:
            torch.set_default_device(modes.default_device)
            stack.callback(torch.set_default_device, None)
        for mode in modes.function_modes:
            stack.enter_context(_pushed(mode))
        if modes.saved_tensors is not None:
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(*modes.saved_tensors))
        for mode in modes.dispatch_modes:
            stack.enter_context(_dispatching(mode))
        yield


@contextmanager
def _pushed(mode: Any) -> Iterator[None]:
    # Not mode.__enter__: some modes keep what they found there, and the cell's own exit needs it.
    from torch.overrides import _pop_mode, _push_mode

    _push_mode(mode)
    try:
        yield
    finally:
        _pop_mode()


@contextmanager
def _dispatching(mode: Any) -> Iterator[None]:
    from torch.utils._python_dispatch import _pop_mode, _push_mode

    _push_mode(mode)
    try:
        yield
    finally:
        _pop_mode()


def _dispatch_modes() -> tuple[Any, ...]:
    """Return what sees each operation of this thread: counters of operations, debuggers."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    return tuple(_get_current_dispatch_mode_stack())


def _saved_tensors(torch: Any) -> tuple[Any, Any] | None:
    """Return how this thread keeps what backward needs, `save_on_cpu` say: the innermost pair."""
    # Private; where a version names it otherwise nothing is carried.
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    found = None if top is None else top(False)
    return None if found is None else (found[0], found[1])


#: Device types that PyTorch can autocast.
_DEVICES = ("cpu", "cuda", "xpu", "mps", "hpu", "xla", "ipu", "privateuseone", "mtia")


def _autocast(torch: Any) -> tuple[tuple[str, Any, bool], ...]:
    cached = torch.is_autocast_cache_enabled()
    found = []
    for device in _DEVICES:
        enabled: Callable[[str], bool] = torch.is_autocast_enabled
        try:
            if enabled(device):
                found.append((device, torch.get_autocast_dtype(device), cached))
        except RuntimeError:
            continue  # a device type that this build does not know
    return tuple(found)


def _autocast_dtypes(torch: Any) -> tuple[tuple[str, Any], ...]:
    found = []
    for device in _DEVICES:
        try:
            found.append((device, torch.get_autocast_dtype(device)))
        except RuntimeError:
            continue  # as above
    return tuple(found)


def _function_modes(torch: Any) -> tuple[tuple[Any, ...], Any]:
    """Return the function modes of this thread, and the default device that one of them holds."""
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext

    modes = []
    device = None
    for mode in _get_current_function_mode_stack():
        if isinstance(mode, DeviceContext):
            device = mode.device
        else:
            modes.append(mode)
    return tuple(modes), device
