"""Plain trees: state reduced to tensors, numbers, text and containers, and back.

A plain tree can be kept while training goes on (its tensors are copies) and written to a file
that ``torch.load(weights_only=True)`` reads: nothing in it is code.
"""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from it2nb.core.errors import Rejected

#: Marks a dict that stands for something that ``weights_only`` would not load.
TAG = "__it2nb__"
#: Stands for a function or module inside somebody's state: the live object's own one is kept.
KEPT = "kept"

_FACTORIES: dict[str, Callable[[], Any]] = {
    each.__name__: each for each in (list, dict, set, int, float)
}
_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_SCALARS: tuple[Any, ...] = (bool, int, float, complex, str, bytes)
_ATOMS = (type(None), *_SCALARS, torch.dtype, torch.device, torch.Size)


class Reducer:
    """Reduces the trees of one moment's state; what it copied once stays shared.

    Parameters
    ----------
    portable : bool
        For a file: what is not plain raises `Rejected`. Otherwise the tree stays in this
        process: what is not plain is deep-copied.
    clone : bool
        Copy each tensor. Without it the tree holds the live storage and must be used up before
        training goes on.
    device : str, optional
        Where copies live; the tensor's own device by default.
    share : callable, optional
        ``share(where, tensor) -> Tensor | None``: an older copy with the same bits, used again.

    Attributes
    ----------
    places : dict of str to Tensor
        The copies by where they were found.
    """

    def __init__(
        self,
        *,
        portable: bool,
        clone: bool,
        device: str | None = None,
        share: Callable[[str, torch.Tensor], torch.Tensor | None] | None = None,
    ) -> None:
        self._portable = portable
        self._clone = clone
        self._device = device
        self._share = share
        self.places: dict[str, torch.Tensor] = {}
        # With the source: while it lives, nothing else can come to lie at its address.
        self._copies: dict[tuple[Any, ...], tuple[torch.Tensor, torch.Tensor]] = {}
        self._path: set[int] = set()

    def __call__(self, tree: Any, where: str) -> Any:
        """Reduce `tree`; `where` names it in errors, ``"optimizer 'opt'"``.

        Raises
        ------
        Rejected
            If it holds what is not plain (`portable`) or contains itself.
        """
        kind = type(tree)
        if kind in _ATOMS:
            return tree
        if isinstance(tree, torch.Tensor):
            return self._tensor(tree, where)
        if isinstance(tree, np.generic):
            return self(tree.item(), where)
        if isinstance(tree, np.ndarray):
            return self._array(tree, where)
        for base in _SCALARS:
            if isinstance(tree, base):  # enums of text, floats that count, ...
                return base(tree)
        if isinstance(tree, (Mapping, list, tuple, set, frozenset, deque)):
            if id(tree) in self._path:
                raise Rejected(f"{where} contains itself; a checkpoint can't hold a circle")
            self._path.add(id(tree))
            try:
                return self._container(tree, where)
            finally:
                self._path.discard(id(tree))
        return self._foreign(tree, where)

    def _container(self, tree: Any, where: str) -> Any:
        if isinstance(tree, Mapping):
            pairs = {self._key(k, where): self(v, f"{where}[{k!r}]") for k, v in tree.items()}
            return self._mapping(tree, pairs, where)
        items = [self(each, f"{where}[{index}]") for index, each in enumerate(tree)]
        if type(tree) in (list, tuple, set):
            return type(tree)(items)
        if type(tree) is frozenset:
            return {TAG: "frozenset", "items": items}
        if type(tree) is deque:
            return {TAG: "deque", "items": items, "maxlen": tree.maxlen}
        if isinstance(tree, tuple):  # a named tuple has no class in the file
            return tuple(items) if self._portable else copy.deepcopy(tree)
        return items

    def _mapping(self, tree: Mapping[Any, Any], pairs: dict[Any, Any], where: str) -> Any:
        if type(tree) is Counter:
            return Counter(pairs)
        if isinstance(tree, OrderedDict):
            ordered = OrderedDict(pairs)
            # A module's state_dict carries the versions of its modules here; load_state_dict
            # converts the state of older ones by it.
            metadata = getattr(tree, "_metadata", None)
            if metadata is not None:
                ordered._metadata = self(metadata, f"{where}._metadata")  # type: ignore[attr-defined]
            return ordered
        if isinstance(tree, defaultdict) and tree.default_factory is not None:
            factory = getattr(tree.default_factory, "__name__", "")
            if _FACTORIES.get(factory) is tree.default_factory:
                return {TAG: "defaultdict", "factory": factory, "items": pairs}
        if pairs.get(TAG) is not None:
            raise Rejected(f"{where} holds the key {TAG!r}, which checkpoints use themselves")
        return pairs

    def _key(self, key: Any, where: str) -> Any:
        if isinstance(key, np.generic):
            return key.item()
        if type(key) in _ATOMS or (
            type(key) is tuple and all(type(part) in _ATOMS for part in key)
        ):
            return key
        if isinstance(key, str):
            return str(key)
        raise Rejected(
            f"{where} has a {type(key).__name__} for a key; only text and numbers can be keys in "
            f"a checkpoint"
        )

    def _tensor(self, tensor: torch.Tensor, where: str) -> torch.Tensor:
        if type(tensor) not in _TENSORS:
            if not self._portable:
                return tensor.detach().clone()
            if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
                # Shards, exotic quantisations: what it holds is not in its own storage.
                raise Rejected(
                    f"{where} is a {type(tensor).__name__}, which a checkpoint file can't hold "
                    f"as plain data; save it in a function given to session.on_save"
                )
            tensor = tensor.detach().as_subclass(torch.Tensor)
        if tensor.is_meta:
            raise Rejected(f"{where} is on the meta device: there is nothing to save")
        plain = tensor.detach()
        if not self._clone and (plain.layout is not torch.strided or _is_whole(plain)):
            return plain
        if plain.layout is not torch.strided:
            return plain.clone()
        # Tied weights come as two tensors over one storage: one copy for both.
        place = (
            plain.device,
            plain.data_ptr(),
            plain.dtype,
            tuple(plain.shape),
            plain.stride(),
            plain.is_conj(),
            plain.is_neg(),
        )
        known = self._copies.get(place)
        if known is not None and plain.numel():
            return known[1]
        done = self._share(where, plain) if self._share is not None else None
        if done is None:
            device = self._device or plain.device
            # copy=True also where the device is the same; it packs a view of a bigger storage.
            done = plain.to(device=device, copy=True)
            if not _is_whole(done):
                done = done.clone()
        self._copies[place] = (plain, done)
        self.places[where] = done
        return done

    def _array(self, array: np.ndarray[Any, Any], where: str) -> Any:
        native = array.astype(array.dtype.newbyteorder("="))
        try:
            return {TAG: "ndarray", "data": torch.from_numpy(native)}
        except TypeError as err:
            if not self._portable:
                return copy.deepcopy(array)
            raise Rejected(
                f"{where} is an array of {array.dtype}, which a checkpoint can't hold; make it "
                f"numbers or a list of text"
            ) from err

    def _foreign(self, value: Any, where: str) -> Any:
        if callable(value) or isinstance(value, type(torch)):
            return {TAG: KEPT, "what": f"{type(value).__name__} {getattr(value, '__name__', '')}"}
        if not self._portable:
            return copy.deepcopy(value)
        raise Rejected(
            f"{where} is a {type(value).__module__}.{type(value).__qualname__}; a checkpoint holds "
            f"tensors, arrays, numbers, text, lists and dicts only, so that loading it never runs "
            f"code. Reduce it to these in its state_dict()"
        )


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whether the tensor is its whole storage: a view would drag the rest into the file."""
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def expand(tree: Any, live: Any = None, *, where: str, clone: bool) -> Any:
    """Undo `Reducer`: a fresh tree with the types it had.

    Parameters
    ----------
    tree : plain tree
    live : any
        The same state as the live object has it now: gives what the tree only says was kept.
    where : str
        Names the tree in errors.
    clone : bool
        Copy the tensors: for a tree that is used again. What is handed to an optimizer becomes
        its own state and is written over by the next step.

    Raises
    ------
    Rejected
        If something that was not saved is not there in the live object either.
    """
    if isinstance(tree, torch.Tensor):
        return tree.clone() if clone else tree
    if isinstance(tree, dict):
        if TAG in tree:
            return _untagged(tree, live, where, clone)
        mapping = type(tree)()
        for key, value in tree.items():
            at = f"{where}[{key!r}]"
            mapping[key] = expand(value, _child(live, key), where=at, clone=clone)
        metadata = getattr(tree, "_metadata", None)
        if metadata is not None:
            mapping._metadata = copy.deepcopy(metadata)  # type: ignore[attr-defined]
        return mapping
    if type(tree) in (list, tuple):
        items = [
            expand(value, _child(live, index), where=f"{where}[{index}]", clone=clone)
            for index, value in enumerate(tree)
        ]
        return items if type(tree) is list else tuple(items)
    return tree if type(tree) in _ATOMS else copy.deepcopy(tree)


def _untagged(tree: dict[Any, Any], live: Any, where: str, clone: bool) -> Any:
    tag = tree[TAG]
    if tag == KEPT:
        if live is None:
            raise Rejected(
                f"{where} was a {tree.get('what')} and is not in the checkpoint, and the live "
                f"object has none in its place"
            )
        return live
    if tag == "ndarray":
        return tree["data"].detach().cpu().numpy().copy()
    items = expand(tree["items"], live, where=where, clone=clone)
    if tag == "frozenset":
        return frozenset(items)
    if tag == "deque":
        return deque(items, tree["maxlen"])
    if tag == "defaultdict" and tree["factory"] in _FACTORIES:
        return defaultdict(_FACTORIES[tree["factory"]], items)
    raise Rejected(f"{where} was written by a newer it2nb: {tag!r} is unknown here")


def _child(live: Any, key: Any) -> Any:
    """Return the part of `live` at `key`; None where it has none."""
    if isinstance(live, Mapping):
        return live.get(key)
    if isinstance(live, (list, tuple, deque)) and isinstance(key, int) and key < len(live):
        return live[key]
    return None


def tensors(tree: Any) -> list[torch.Tensor]:
    """List the distinct tensors of a plain tree, in order."""
    found: dict[int, torch.Tensor] = {}

    def visit(node: Any) -> None:
        if isinstance(node, torch.Tensor):
            found.setdefault(id(node), node)
        elif isinstance(node, Mapping):
            for value in node.values():
                visit(value)
        elif isinstance(node, (list, tuple, set)):
            for value in node:
                visit(value)

    visit(tree)
    return list(found.values())
