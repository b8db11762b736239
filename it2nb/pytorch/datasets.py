"""``make_interactive_dataset``: attributes of a data set are knobs, and it can be reloaded.

As in the first Interactive Training release, with one difference: what is set reaches the worker
processes of a loader too, and the result says from which batch on it holds.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset, IterableDataset, get_worker_info

from it2nb.core.actions import ActionSpec
from it2nb.core.errors import KnobError
from it2nb.core.knobs import Knob
from it2nb.core.wire import DType
from it2nb.pytorch.board import Board
from it2nb.pytorch.live import home_or_wait
from it2nb.pytorch.pipeline import Pipeline, said
from it2nb.pytorch.reloading import asked_of, base_of, reload
from it2nb.pytorch.sampling import DATASET

if TYPE_CHECKING:
    from it2nb.core.session import Session

_DTYPES: dict[type, DType] = {bool: "bool", int: "int", float: "float", str: "str"}
_OWN = "_it2nb"


class Steered:
    """What an interactive data set knows beside its own attributes.

    Parameters
    ----------
    dataset : Dataset
    names : sequence of str
        Attributes that are knobs.
    arguments : tuple, optional
        Of its constructor, positional and by name: a reload makes it anew with them.
    """

    def __init__(
        self,
        dataset: Any,
        names: Sequence[str],
        arguments: tuple[tuple[Any, ...], dict[str, Any]] | None,
    ) -> None:
        self.names = tuple(names)
        self.arguments = arguments
        self.board = Board()
        self.seen = 0
        self.pipeline = Pipeline()
        self._dataset: Any = weakref.ref(dataset)
        self._session: Any = None

    @property
    def name(self) -> str:
        """How it is called among the things that wait for a run."""
        return "data set " + type(self._dataset()).__name__

    @property
    def has_session(self) -> bool:
        """Whether its attributes are knobs of a run that has not ended."""
        session = None if self._session is None else self._session()
        return session is not None and not session.is_ended

    def register(self, session: Session) -> None:
        """Make the attributes knobs of `session`, and ``reload_dataset`` an action. Any thread."""
        dataset = self._dataset()
        for name in self.names:
            for knob in knobs_of(dataset, name):
                session.add_knob(knob, replace=True)
        self._session = weakref.ref(session)
        for action in ("reload_dataset", "update_dataset"):
            session.actions.register(
                ActionSpec(
                    action, lambda payload, session: reload(dataset, payload, session),
                    "Make the data set anew, with other arguments where some are given",
                    keys=(), dangerous=True, knobs=functools.partial(asked_of, dataset),
                ),
                replace=True,
            )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        # A worker needs the values alone.
        kept = {"names": self.names, "board": self.board, "seen": self.seen}
        return {**kept, "pipeline": Pipeline(), "arguments": None, "_session": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> Steered:
        return self


def steering_of(dataset: Any) -> Steered | None:
    """Return what makes a data set interactive; None for any other."""
    return vars(dataset).get(_OWN) if isinstance(dataset, InteractiveDataset) else None


class InteractiveDataset:
    """Marks the classes that `make_interactive_dataset` makes."""

    __slots__ = ()  # so that an instance can become one


def make_interactive_dataset(
    dataset: Any,
    interactive_parameter_names: Sequence[str] = (),
    *,
    session: Session | None = None,
) -> Any:
    """Make attributes of a data set knobs of the run, and ``reload_dataset`` an action of it.

    ::

        Steerable = it2nb.make_interactive_dataset(MyDataset)
        data = Steerable(path, interactive_parameter_names=["noise", "probabilities"])

    or, for one that is there, ``make_interactive_dataset(data, ["noise"])``.

    Attributes that are numbers, bool or text become knobs of that name; lists and mappings of
    these become one knob for each element, ``probabilities[0]``. A change reaches worker
    processes before they make their next item. ``reload_dataset`` makes the data set anew with
    the arguments that it was made with, and those that the request gives; it is another length
    only between two passes.

    Parameters
    ----------
    dataset : class or instance of torch.utils.data.Dataset
        Map-style or iterable.
    interactive_parameter_names : sequence of str
        With a class, for all of its instances; each may name its own when it is made.
    session : Session, optional
        By default the run that lives, or else the one that starts next.

    Returns
    -------
    class or instance
        A subclass; the same instance, of the subclass.

    Raises
    ------
    TypeError
        If it is no data set.
    KnobError
        If an attribute is not there, or is no plain value.
    """
    if isinstance(dataset, type):
        if not issubclass(dataset, Dataset):
            raise TypeError(f"{dataset.__name__} is no torch.utils.data.Dataset")
        return _subclass(dataset, tuple(interactive_parameter_names), session)
    if not isinstance(dataset, Dataset):
        raise TypeError(f"a {type(dataset).__name__} is no torch.utils.data.Dataset")
    if not isinstance(dataset, InteractiveDataset):
        dataset.__class__ = _subclass(type(dataset), (), None)
    _steer(dataset, interactive_parameter_names, None, session)
    return dataset


def _subclass(base: type, names: tuple[str, ...], home: Session | None) -> type:
    if issubclass(base, InteractiveDataset):
        return base

    def __init__(
        self: Any,
        *args: Any,
        interactive_parameter_names: Sequence[str] | None = None,
        session: Session | None = None,
        **kwargs: Any,
    ) -> None:
        base.__init__(self, *args, **kwargs)
        wanted = names if interactive_parameter_names is None else interactive_parameter_names
        _steer(self, wanted, (args, kwargs), session or home)

    space: dict[str, Any] = {"__init__": functools.wraps(base.__init__)(__init__)}
    space |= {"__doc__": base.__doc__, "__module__": base.__module__, "__reduce__": _reduce}
    for method in ("__getitem__", "__getitems__", "__len__"):
        if callable(getattr(base, method, None)) and _is_own(base, method):
            space[method] = _refreshed(base, method)
    if issubclass(base, IterableDataset):
        space["__iter__"] = _refreshed_iteration(base)
    return type(f"Interactive{base.__name__}", (base, InteractiveDataset), space)


def _is_own(base: type, method: str) -> bool:
    """Whether the class itself has the method, and not only the bare Dataset above it."""
    return any(method in vars(each) for each in base.__mro__ if each not in (Dataset, object))


def _reduce(self: Any) -> tuple[Any, ...]:
    return _rebuilt, (base_of(self),), self.__dict__


def _rebuilt(base: type) -> Any:
    """Make an empty interactive data set in a process that does not know its class."""
    made: Any = _subclass(base, (), None)
    return made.__new__(made)


def _refreshed(base: type, method: str) -> Any:
    inner = getattr(base, method)

    @functools.wraps(inner)
    def call(self: Any, *args: Any) -> Any:
        own = self.__dict__.get(_OWN)
        if own is not None:
            _take(self, own)
            if not own.pipeline.is_known and get_worker_info() is None:
                own.pipeline.look()
        return inner(self, *args)

    return call


def _refreshed_iteration(base: type) -> Any:
    inner = base.__iter__  # type: ignore[attr-defined]

    @functools.wraps(inner)
    def iterate(self: Any) -> Iterator[Any]:
        own = self.__dict__.get(_OWN)
        items = iter(inner(self))
        while True:
            if own is not None:
                _take(self, own)
            try:
                item = next(items)
            except StopIteration:
                return
            yield item

    return iterate


def _take(dataset: Any, own: Steered) -> None:
    """In a worker: take the values that were set meanwhile."""
    if own.board.version == own.seen:
        return
    own.seen, values = own.board.read()
    if get_worker_info() is not None:
        for name, value in values.items():
            setattr(dataset, name, value)


def _steer(
    dataset: Any,
    names: Sequence[str],
    arguments: tuple[tuple[Any, ...], dict[str, Any]] | None,
    session: Session | None,
) -> None:
    if isinstance(names, str):
        raise KnobError("interactive_parameter_names is a list of attribute names")
    for name in names:
        if name not in vars(dataset) and not hasattr(dataset, name):
            raise KnobError(
                f"{type(dataset).__name__} has no attribute {name!r} after it was made, so it "
                f"can't be a knob"
            )
    dataset._it2nb = own = Steered(dataset, names, arguments)
    for name in names:
        list(knobs_of(dataset, name))  # says now what can't be one
    home_or_wait(own, session)


def knobs_of(dataset: Any, name: str) -> Iterator[Knob]:
    """Make the knobs of one attribute: one, or one for each element of a list or mapping.

    Raises
    ------
    KnobError
        If it is no plain value.
    """
    value = getattr(dataset, name)
    if isinstance(value, Mapping):
        keys: Sequence[Any] = list(value)
    elif isinstance(value, (list, tuple)):
        keys = range(len(value))
    else:
        yield _knob(dataset, name, None, value)
        return
    for key in keys:
        yield _knob(dataset, name, key, value[key])


def _knob(dataset: Any, name: str, key: Any, value: Any) -> Knob:
    label = name if key is None else f"{name}[{key}]"
    dtype = _DTYPES.get(type(value))
    if dtype is None:
        raise KnobError(
            f"{label} is a {type(value).__name__}; knobs are float, int, bool or str, or lists "
            f"and mappings of these"
        )

    def read() -> Any:
        whole = getattr(dataset, name)
        return whole if key is None else whole[key]

    def write(new: Any) -> None:
        whole = getattr(dataset, name)
        if key is not None:
            if isinstance(whole, Mapping):
                new = {**whole, key: new}
            else:
                new = type(whole)(new if at == key else each for at, each in enumerate(whole))
        own = dataset._it2nb
        own.board.write({**own.board.read()[1], name: new})
        setattr(dataset, name, new)

    return Knob(label, read, write, dtype=dtype, group=DATASET,
                description=f"{name} of the data set", effect=lambda: _effect(dataset))  # fmt: skip


def _effect(dataset: Any) -> str | None:
    pipeline: Pipeline = dataset._it2nb.pipeline
    if not pipeline.is_known:
        return "in force for every item that is made from now on"
    return said(pipeline.drawn, pipeline.prefetched)
