"""Anything to a plain tree, and back with its types."""

from __future__ import annotations

import enum
import io
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from it2nb.core.errors import Rejected
from it2nb.pytorch.plain import Reducer, expand

from .small import same


def through_a_file(tree: Any) -> Any:
    """Reduce, save, load with weights_only, expand."""
    buffer = io.BytesIO()
    torch.save(Reducer(portable=True, clone=False)(tree, "tree"), buffer)
    buffer.seek(0)
    return expand(torch.load(buffer, weights_only=True), where="tree", clone=False)


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    "tree",
    [
        None,
        True,
        2**200,
        -0.0,
        float("inf"),
        1j,
        "text",
        b"bytes",
        [1, (2, {3, 4}), {"a": None, 5: [], (1, "k"): 0.5}],
        OrderedDict(b=1, a=2),
        Counter({3: 1, 7: 2}),
        defaultdict(list, {"a": [1]}),
        deque([1, 2], maxlen=5),
        frozenset({"x"}),
        {"dtype": torch.float16, "device": torch.device("cpu"), "size": torch.Size([2, 3])},
        [torch.tensor([1, 2]), torch.tensor(3.0, dtype=torch.bfloat16), torch.zeros(0, 3)],
    ],
    ids=repr,
)
def test_comes_back_equal_and_of_its_type(tree: Any) -> None:
    back = through_a_file(tree)
    assert same(back, tree)
    assert same(expand(Reducer(portable=False, clone=True)(tree, "t"), where="t", clone=True), tree)


def test_a_deque_keeps_its_bound_and_a_defaultdict_its_factory() -> None:
    assert through_a_file(deque([1], maxlen=3)).maxlen == 3
    assert through_a_file(defaultdict(list))["new"] == []


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "uint32", "bool", ">f4"])
def test_arrays_come_back_as_arrays(dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    back = through_a_file({"a": array})["a"]
    assert isinstance(back, np.ndarray)
    assert back.dtype == np.dtype(dtype).newbyteorder("=")
    assert np.array_equal(back, array)


def test_numbers_and_text_of_other_types_become_plain() -> None:
    back = through_a_file([np.float64(0.5), np.int32(3), np.bool_(True), Colour.RED, np.str_("s")])
    assert [type(each) for each in back] == [float, int, bool, str, str]
    assert back == [0.5, 3, True, "red", "s"]


class Point(NamedTuple):
    x: int
    y: torch.Tensor


class Thing:
    def __init__(self) -> None:
        self.value = [1]


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"a": [Thing()]}, r"tree\['a'\]\[0\] is a .*Thing; a checkpoint holds tensors"),
        ({Thing: 1}, "for a key"),
        (np.array(["text"], dtype=object), "array of object"),
        (torch.zeros(2, device="meta"), "meta device"),
        ({"__it2nb__": "kept"}, "use themselves"),
    ],
)
def test_what_is_not_plain_is_refused_by_name(tree: Any, said: str) -> None:
    with pytest.raises(Rejected, match=said):
        Reducer(portable=True, clone=False)(tree, "tree")


def test_a_circle_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(Rejected, match=r"tree\[0\] contains itself"):
        Reducer(portable=True, clone=False)(circle, "tree")


def test_in_memory_other_objects_are_copied() -> None:
    thing = Thing()
    kept = Reducer(portable=False, clone=True)({"thing": thing, "p": Point(1, torch.ones(1))}, "t")
    thing.value.append(2)
    assert kept["thing"].value == [1]
    assert isinstance(kept["p"], Point)


def test_a_function_is_kept_from_the_live_object() -> None:
    saved = Reducer(portable=True, clone=False)({"f": len, "n": [1]}, "tree")
    assert expand(saved, {"f": max, "n": [2]}, where="tree", clone=False) == {"f": max, "n": [1]}
    with pytest.raises(Rejected, match=r"tree\['f'\] was a builtin_function_or_method len"):
        expand(saved, where="tree", clone=False)


def test_a_view_does_not_drag_its_storage_into_the_file() -> None:
    big = torch.zeros(100_000)
    for clone in (True, False):
        small = Reducer(portable=True, clone=clone)(big[:10], "tree")
        assert small.untyped_storage().nbytes() == 40


class Marked(torch.Tensor):
    """Adds methods to a tensor, as several libraries do."""


class Shard(torch.Tensor):
    """Stands for values that are elsewhere."""

    @staticmethod
    def __new__(cls) -> Shard:
        return torch.Tensor._make_wrapper_subclass(cls, (2,))

    @classmethod
    def __torch_dispatch__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls()


def test_a_subclass_is_saved_by_its_values_and_a_stand_in_is_refused() -> None:
    marked = torch.tensor([1.0, 2.0]).as_subclass(Marked)
    back = through_a_file({"a": marked})["a"]
    assert type(back) is torch.Tensor
    assert back.tolist() == [1.0, 2.0]
    kept = Reducer(portable=False, clone=True)(marked, "tree")
    assert type(kept) is Marked
    assert kept.data_ptr() != marked.data_ptr()
    with pytest.raises(Rejected, match="is a Shard, which a checkpoint file can't hold"):
        Reducer(portable=True, clone=False)(Shard(), "tree")


def test_an_older_copy_is_shared_where_the_reducer_is_given_one() -> None:
    live, older = torch.ones(3), torch.ones(3)
    asked: list[str] = []

    def share(where: str, tensor: torch.Tensor) -> torch.Tensor | None:
        asked.append(where)
        return older if torch.equal(older, tensor) else None

    reduce = Reducer(portable=False, clone=True, share=share)
    kept = reduce({"same": live, "other": torch.zeros(3)}, "tree")
    assert kept["same"] is older
    assert kept["other"] is not older
    assert asked == ["tree['same']", "tree['other']"]
