"""Live variables: numbers in the user's code that are knobs of the run.

    clip = it2nb.live(0.1, "clip", min=0.01, max=10.0)
    ...
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)

Needs no PyTorch.
"""

from __future__ import annotations

import copy
import math
import numbers
import operator
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from it2nb.core.errors import KnobError, KnobRangeError, Rejected
from it2nb.core.knobs import Knob
from it2nb.core.lifetime import runs
from it2nb.core.values import plain_value

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Live variables, and other things with knobs, that wait for a session.
_waiting: dict[str, weakref.ref[Homeless]] = {}
#: Sessions by the thread that trains in them, for variables made inside a loop.
_at_home: dict[int, weakref.ref[Session]] = {}
_lock = threading.Lock()
_PLAIN = (bool, int, float, str)


class Live:
    """A variable whose value is a knob. Make one with `live`.

    Attributes
    ----------
    name : str
    value : float, int, bool, str or a choice
        The value now.
    changes : int
        How often it was set.
    """

    def __init__(self, value: Any, name: str, options: dict[str, Any]) -> None:
        self.name = name
        self.changes = 0
        self._options = options
        self._value: Any = value
        self._session: Callable[[], Session | None] = lambda: None
        # Checks the declaration at once, where the user's line is.
        knob = self._knob()
        try:
            fitted = knob.coerce(value)
        except Rejected as err:
            raise KnobError(f"live variable {name!r}: {err.reason}") from err
        if fitted.clamped:
            raise KnobRangeError(
                f"live variable {name!r}: {value!r} is outside of its bounds: {fitted.reason}"
            )
        self._value = plain_value(fitted.value, knob.dtype)

    @property
    def value(self) -> Any:
        """The value now. Any thread."""
        return self._value

    def set_value(self, value: Any) -> None:
        """Take a new value. Training thread; everybody else asks the session."""
        self._value = value
        self.changes += 1

    def __call__(self) -> Any:
        """Return the value now."""
        return self._value

    def _knob(self) -> Knob:
        return Knob(self.name, lambda: self._value, self.set_value, **self._options)

    def register(self, session: Session) -> None:
        """Make it a knob of `session`; an earlier live variable of that name gives way.

        Raises
        ------
        KnobError
            If the name belongs to another kind of knob.
        """
        known = session.knobs.get(self.name)
        if known is not None and not _is_live(known):
            raise KnobError(
                f"live variable {self.name!r}: there is a knob of that name already; "
                f"pick another name"
            )
        session.add_knob(self._knob(), replace=True)
        self._session = weakref.ref(session)

    @property
    def has_session(self) -> bool:
        """Whether it is a knob of a run that has not ended."""
        session = self._session()
        return session is not None and not session.is_ended

    # A copied config, or loaded optimizer state, keeps following the knob.
    def __copy__(self) -> Live:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Live:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled, it is the plain value of that moment.
        return copy.copy if type(self._value) not in _PLAIN else type(self._value), (self._value,)

    def __repr__(self) -> str:
        return f"live({self._value!r}, {self.name!r})"

    def __str__(self) -> str:
        return str(self._value)

    def __format__(self, spec: str) -> str:
        return format(self._value, spec)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __hash__(self) -> int:
        return hash(self._value)

    def __eq__(self, other: object) -> Any:
        return self._value == _plain(other)

    def __ne__(self, other: object) -> Any:
        return self._value != _plain(other)


class LiveNumber(Live):
    """A live variable that behaves as a number. Results of arithmetic are plain numbers."""

    def __float__(self) -> float:
        return float(self._value)

    def __int__(self) -> int:
        return int(self._value)

    def __complex__(self) -> complex:
        return complex(self._value)

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._value, digits)

    def __trunc__(self) -> int:
        return math.trunc(self._value)  # type: ignore[no-any-return]

    def __floor__(self) -> int:
        return math.floor(self._value)  # type: ignore[no-any-return]

    def __ceil__(self) -> int:
        return math.ceil(self._value)  # type: ignore[no-any-return]


class LiveInt(LiveNumber):
    """A live whole number: it is an index and a range too."""

    def __index__(self) -> int:
        return operator.index(self._value)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Live) else value


def _unary(function: Callable[[Any], Any]) -> Any:
    def apply(self: Live) -> Any:
        return function(self._value)

    return apply


def _binary(function: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    def forward(self: Live, other: Any) -> Any:
        return function(self._value, _plain(other))

    def backward(self: Live, other: Any) -> Any:
        return function(_plain(other), self._value)

    return forward, backward


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "divmod"):
    _forward, _backward = _binary(getattr(operator, _name, divmod))
    setattr(LiveNumber, f"__{_name}__", _forward)
    setattr(LiveNumber, f"__r{_name}__", _backward)
for _name in ("lshift", "rshift", "and", "or", "xor"):
    _forward, _backward = _binary(getattr(operator, f"__{_name}__"))
    setattr(LiveInt, f"__{_name}__", _forward)
    setattr(LiveInt, f"__r{_name}__", _backward)
for _name in ("lt", "le", "gt", "ge"):
    setattr(LiveNumber, f"__{_name}__", _binary(getattr(operator, _name))[0])
for _name in ("neg", "pos", "abs"):
    setattr(LiveNumber, f"__{_name}__", _unary(getattr(operator, _name)))
numbers.Real.register(LiveNumber)
numbers.Integral.register(LiveInt)


def live(
    value: Any,
    name: str,
    *,
    session: Session | None = None,
    min: float | None = None,
    max: float | None = None,
    step: float | None = None,
    scale: str = "linear",
    choices: Sequence[Any] | None = None,
    description: str = "",
    unit: str = "",
    group: str = "",
) -> Any:
    """Make a variable that behaves as its value and is a knob of the run.

    Parameters
    ----------
    value : float, int, bool or str
        To begin with; its type is the knob's type.
    name : str
        Of the knob.
    session : Session, optional
        By default the one that lives, or else starts next.
    min, max, step, scale, choices, description, unit, group
        As for `Session.register_knob`.

    Returns
    -------
    Live
        A number can be used in arithmetic, comparisons, ``float()``, format strings, and as an
        argument of an optimizer, whose setting then follows it. Where only a real ``float``
        will do (a C function), write ``float(clip)`` or ``clip.value``.
    """
    value = _plain(value)
    options: dict[str, Any] = {
        "min": min, "max": max, "step": step, "scale": scale, "description": description,
        "unit": unit, "group": group or "variables",
    }  # fmt: skip
    if choices is not None:
        options |= {"dtype": "choice", "choices": choices}
    else:
        options["dtype"] = _dtype(value, name)
    kind = {"float": LiveNumber, "int": LiveInt}.get(options["dtype"], Live)
    made = kind(value, name, options)
    home_or_wait(made, session)
    return made


class Homeless(Protocol):
    """Something with knobs that waits for a session to register them with."""

    @property
    def name(self) -> str:
        """A newer one of the same name takes its place in the queue."""

    @property
    def has_session(self) -> bool:
        """Whether it found one that has not ended."""

    def register(self, session: Session) -> None:
        """Make the knobs."""


def home_or_wait(made: Homeless, session: Session | None = None) -> None:
    """Register with `session`, or the one that lives here, or else the one that starts next."""
    session = session or _here()
    if session is not None:
        made.register(session)
        return
    with _lock:
        _waiting[made.name] = weakref.ref(made)


def adopt(session: Session) -> None:
    """Make the live variables that wait knobs of `session`, which trains on this thread."""
    with _lock:
        _at_home[threading.get_ident()] = weakref.ref(session)
        found = [each for ref in _waiting.values() if (each := ref()) is not None]
        for name in [name for name, ref in _waiting.items() if ref() is None]:
            del _waiting[name]
    for each in found:
        if each.has_session:
            continue
        try:
            each.register(session)
        except KnobError as err:
            session.warn(str(err))


def _here() -> Session | None:
    """The session that trains on this thread, else the one that lives, if any."""
    found = _at_home.get(threading.get_ident(), lambda: None)()
    if found is not None and not found.is_ended:
        return found
    return next((s for s in reversed(runs()) if s.started and not s.is_ended), None)


def _is_live(knob: Knob) -> bool:
    return isinstance(getattr(knob.set, "__self__", None), Live)


def _dtype(value: Any, name: str) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, numbers.Integral):
        return "int"
    if isinstance(value, numbers.Real):
        return "float"
    if isinstance(value, str):
        return "str"
    raise KnobError(
        f"live variable {name!r}: {type(value).__name__} is no type of a knob; "
        f"float, int, bool and str are, or give choices=[...]"
    )
