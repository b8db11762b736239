from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from it2nb.notebook.modes import InferenceMode, capture, entered


def in_thread(work: Callable[[], Any]) -> Any:
    """Run it in a new thread in the modes of this one."""
    found = capture()
    result: list[Any] = []

    def body() -> None:
        with entered(found):
            result.append(work())

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return result[0]


def modes() -> dict[str, Any]:
    return {
        "grad": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "dtype": torch.get_autocast_dtype("cpu"),
        "cache": torch.is_autocast_cache_enabled(),
        "device": str(torch.get_default_device()),
        "made on": str(torch.empty(1).device),
        "multithreading": torch.autograd.is_multithreading_enabled(),
        "matmul": str((torch.zeros(2, 2, device="cpu") @ torch.zeros(2, 2, device="cpu")).dtype),
    }


@pytest.fixture
def meta_by_default() -> Iterator[None]:
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def test_plain_modes_c55() -> None:
    assert in_thread(modes) == modes()


def test_no_grad_autocast_and_its_cache_are_carried_c55() -> None:
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        here = modes()
        assert in_thread(modes) == here
    assert (here["grad"], here["autocast"], here["cache"]) == (False, True, False)
    assert here["matmul"] == "torch.bfloat16"


def test_default_device_is_carried_c55(meta_by_default: None) -> None:
    assert in_thread(modes) == modes()
    assert modes()["made on"] == "meta"


def test_default_device_of_a_block_is_carried_c55() -> None:
    with torch.device("meta"):
        here = modes()
        assert in_thread(modes) == here
        # And the block is still what it was here.
        assert modes() == here
    assert modes()["made on"] == "cpu"


def test_autograd_multithreading_is_carried_c55() -> None:
    with torch.autograd.set_multithreading_enabled(False):
        assert in_thread(modes)["multithreading"] is False


def test_function_modes_are_carried_c55() -> None:
    class Counting(TorchFunctionMode):
        calls = 0

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            Counting.calls += 1
            return func(*args, **(kwargs or {}))

    with Counting():
        before = Counting.calls
        in_thread(lambda: torch.add(torch.zeros(1), 1))
        assert Counting.calls >= before + 2
    calls = Counting.calls
    in_thread(lambda: torch.add(torch.zeros(1), 1))
    assert Counting.calls == calls


def test_the_dtype_of_an_autocast_to_come_is_carried_c55() -> None:
    def of_product() -> str:
        with torch.autocast("cpu"):
            return str((torch.zeros(2, 2) @ torch.zeros(2, 2)).dtype)

    before = torch.get_autocast_dtype("cpu")
    torch.set_autocast_dtype("cpu", torch.float16)
    try:
        assert in_thread(of_product) == of_product() == "torch.float16"
    finally:
        torch.set_autocast_dtype("cpu", before)
    assert in_thread(of_product) == of_product()


def test_how_tensors_are_saved_for_backward_is_carried_c55() -> None:
    packed: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor)
        return tensor

    def train() -> None:
        torch.ones(2, requires_grad=True).square().sum().backward()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
        train()
        here = len(packed)
        in_thread(train)
    assert len(packed) == 2 * here > 0
    in_thread(train)
    assert len(packed) == 2 * here


def test_modes_that_see_each_operation_are_carried_c55() -> None:
    class Counting(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            Counting.calls += 1
            return func(*args, **(kwargs or {}))

    def work() -> torch.Tensor:
        return torch.ones(2) + 1

    with Counting():
        work()
        here = Counting.calls
        in_thread(work)
        assert Counting.calls == 2 * here > 0
        work()
    assert Counting.calls == 3 * here
    in_thread(work)
    assert Counting.calls == 3 * here


def test_inference_mode_is_refused_with_the_remedy() -> None:
    with torch.inference_mode(), pytest.raises(InferenceMode, match="leave the mode first"):
        capture()


def test_cuda_is_not_initialised() -> None:
    in_thread(modes)
    assert not torch.cuda.is_initialized()
