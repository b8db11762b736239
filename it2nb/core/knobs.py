"""Knobs: typed settings of a run, and the one way in which a value gets into them."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from it2nb.core.errors import KnobError, KnobRangeError, Rejected
from it2nb.core.faults import Fault, guard
from it2nb.core.members import moved
from it2nb.core.values import bare, close, equal, number, plain_value, shown
from it2nb.core.wire import ActionResult, DType, KnobView, LastRequest, Member, Scale, Status

_DTYPES: dict[Any, DType] = {float: "float", int: "int", bool: "bool", str: "str"}
#: Longest text that a `str` knob takes, characters.
MAX_TEXT = 4_000


class Coerced(NamedTuple):
    """A value that fits its knob.

    Attributes
    ----------
    value : float, int, bool or str
    clamped : bool
        Whether it was moved to a bound.
    reason : str or None
        Which bound.
    """

    value: Any
    clamped: bool = False
    reason: str | None = None


class Outcome(NamedTuple):
    """What became of one value on its way into a knob."""

    status: Status
    before: Any = None
    after: Any = None
    reason: str | None = None
    error: str | None = None
    #: For a result: what became of the groups behind the knob.
    data: Any = None


class Knob:
    """A typed setting with get and set.

    Parameters
    ----------
    name : str
        As it is asked for: ``"lr"``, ``"opt_g.lr[0]"``.
    get : callable
        Returns the value that the next optimizer step uses. Any thread; cheap.
    set : callable
        Takes a value that fits the knob. Called on the training thread at a control point and
        nowhere else. May raise `Rejected` before it touched anything.
    dtype : {"float", "int", "bool", "choice", "str"} or the Python type
    min, max : float or int, optional
        Bounds, both allowed values themselves. Numbers only.
    step : float or int, optional
        Tick of the slider. Values off the grid are taken exactly.
    scale : {"linear", "log"}
        Of the slider.
    choices : sequence, optional
        For ``dtype="choice"``.
    unit, group, description : str
    out_of_bounds : {"clamp", "reject"}
    aliases : sequence of str
        Further names.
    members : callable, optional
        Returns ``{group name: value}`` when the knob stands for several parameter groups.
    modes : sequence of str
        For a knob that something else drives too: ``("rescale", "hold", "release")``.
    get_mode, set_mode : callable, optional
        Read and pick the mode.
    driven : callable, optional
        Returns whether something else drives the value now; the view has no mode where nothing
        does. By default it has one.
    unavailable : callable, optional
        Returns why the knob can't be set now, or None.
    effect : callable, optional
        Called after a change; what it returns is part of the result's reason: from which batch
        on a setting of the data holds, for example.

    Raises
    ------
    KnobError, KnobRangeError
        If the declaration contradicts itself.
    """

    def __init__(
        self,
        name: str,
        get: Callable[[], Any],
        set: Callable[[Any], Any],
        *,
        dtype: DType | type = "float",
        min: float | int | None = None,
        max: float | int | None = None,
        step: float | int | None = None,
        scale: Scale = "linear",
        choices: Sequence[Any] | None = None,
        unit: str = "",
        group: str = "",
        description: str = "",
        out_of_bounds: Literal["clamp", "reject"] = "clamp",
        aliases: Sequence[str] = (),
        members: Callable[[], Mapping[str, Any]] | None = None,
        modes: Sequence[str] = (),
        get_mode: Callable[[], str | None] | None = None,
        set_mode: Callable[[str], Any] | None = None,
        driven: Callable[[], bool] | None = None,
        unavailable: Callable[[], str | None] | None = None,
        effect: Callable[[], str | None] | None = None,
    ) -> None:
        if choices is not None and dtype in ("float", float):
            dtype = "choice"
        self.name = name
        self.get = get
        self.set = set
        self.dtype: DType = _DTYPES.get(dtype, dtype)  # type: ignore[arg-type]
        self.min = min
        self.max = max
        self.step = step
        self.scale: Scale = scale
        self.choices = None if choices is None else list(choices)
        self.unit = unit
        self.group = group
        self.description = description
        self.out_of_bounds = out_of_bounds
        self.aliases = tuple(aliases)
        self.members = members
        self.modes = tuple(modes)
        self.get_mode = get_mode
        self.set_mode = set_mode
        self.driven = driven
        self.unavailable = unavailable
        self.effect = effect
        self.last: ActionResult | None = None
        self._check()

    def _check(self) -> None:
        get: object = self.get
        set: object = self.set
        if not _is_text(self.name) or not 0 < len(self.name) <= 200:
            raise KnobError(f"a knob needs a name of 1 to 200 characters, not {self.name!r}")
        told = (self.unit, self.group, self.description, *self.aliases, *self.modes)
        if not all(_is_text(each) for each in told):
            raise KnobError(
                f"{self.name}: unit, group, description, aliases and modes have to be text, not "
                f"{next(each for each in told if not _is_text(each))!r}"
            )
        if not callable(get) or not callable(set):
            raise KnobError(
                f"{self.name}: get and set have to be callables, not "
                f"{type(get).__name__} and {type(set).__name__}; "
                f"for a variable: get=lambda: cfg['x'], set=lambda v: cfg.__setitem__('x', v)"
            )
        if self.dtype not in get_args(DType):
            raise KnobError(
                f"{self.name}: dtype={self.dtype!r} is none of {', '.join(get_args(DType))}"
            )
        if (self.dtype == "choice") != (self.choices is not None) or self.choices == []:
            raise KnobError(
                f"{self.name}: dtype='choice' and a non-empty choices=[...] go together, "
                f"not dtype={self.dtype!r} with choices={self.choices!r}"
            )
        if self.scale not in ("linear", "log") or self.out_of_bounds not in ("clamp", "reject"):
            raise KnobError(
                f"{self.name}: scale={self.scale!r} has to be 'linear' or 'log', and "
                f"out_of_bounds={self.out_of_bounds!r} 'clamp' or 'reject'"
            )
        self._check_bounds()

    def _check_bounds(self) -> None:
        numeric = self.dtype in ("float", "int")
        bounds: tuple[tuple[str, Any], ...] = (
            ("min", self.min),
            ("max", self.max),
            ("step", self.step),
        )
        for what, bound in bounds:
            if bound is None:
                continue
            if not numeric:
                raise KnobRangeError(
                    f"{self.name}: {what}={bound!r} makes no sense for a {self.dtype}; leave it out"
                )
            if isinstance(bound, bool) or not isinstance(bound, numbers.Real):
                raise KnobRangeError(f"{self.name}: {what}={bound!r} is not a number")
            if not math.isfinite(bound):
                raise KnobRangeError(
                    f"{self.name}: {what}={bound!r} is not finite; leave it out for no bound"
                )
            # NumPy's numbers and fractions can't travel.
            setattr(self, what, _plain_bound(bound))
        if self.min is not None and self.max is not None and self.min > self.max:
            raise KnobRangeError(f"{self.name}: min={self.min!r} is above max={self.max!r}")
        if self.step is not None and self.step <= 0:
            raise KnobRangeError(f"{self.name}: step={self.step!r} has to be above 0")
        if self.scale == "log" and numeric and self.min is not None and self.min < 0:
            raise KnobRangeError(f"{self.name}: a log scale needs min >= 0, not {self.min!r}")

    def __repr__(self) -> str:
        return f"<Knob {self.name}={self.value!r} {self.dtype} [{self.min}, {self.max}]>"

    @property
    def value(self) -> Any:
        """What the next optimizer step uses, as a plain Python value. Any thread."""
        return plain_value(self.get(), self.dtype)

    def misfit(self) -> str | None:
        """Say why the present value could not be asked for; None when it could. Any thread.

        A value that is not there yet, or can't be read, is none to speak of.
        """
        value: Any = None
        with guard(f"get of {self.name}"):
            value = self.value
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return None
        try:
            fitted = self.coerce(value)
        except Rejected as err:
            return f"{self.name} is {shown(value)} now, and can't be set to that: {err.reason}"
        if not fitted.clamped:
            return None
        return f"{self.name} is {shown(value)} now, outside of its bounds: {fitted.reason}"

    def reason_unavailable(self) -> str | None:
        """Why it can't be set now; None when it can."""
        return None if self.unavailable is None else self.unavailable()

    def coerce(self, value: Any) -> Coerced:
        """Fit an asked value to this knob without touching anything. Any thread.

        Raises
        ------
        Rejected
            With what was wrong, for people.
        """
        value = bare(value)
        if self.dtype == "bool":
            if isinstance(value, bool):
                return Coerced(value)
            raise Rejected(f"{shown(value)} is not true or false")
        if self.dtype == "str":
            if not isinstance(value, str):
                raise Rejected(f"{shown(value)} is not text")
            if len(value) > MAX_TEXT:
                raise Rejected(f"the text has {len(value)} characters; at most {MAX_TEXT}")
            return Coerced(value)
        if self.dtype == "choice":
            return Coerced(self._choose(value))
        return self._bound(number(value, self.dtype))

    def _choose(self, value: Any) -> Any:
        assert self.choices is not None
        for choice in self.choices:
            # True == 1 and 1 == 1.0 in Python; a bool is no number here.
            if isinstance(choice, bool) is isinstance(value, bool) and equal(choice, value):
                return choice
        listed = ", ".join(map(repr, self.choices[:20]))
        raise Rejected(f"{shown(value)} is none of {listed}")

    def _bound(self, number: float | int) -> Coerced:
        low, high = self.min, self.max
        if (low is None or number >= low) and (high is None or number <= high):
            return Coerced(number)
        if self.out_of_bounds == "reject":
            shown_low = "-inf" if low is None else f"{low:g}"
            shown_high = "inf" if high is None else f"{high:g}"
            unit = f" {self.unit}" if self.unit else ""
            raise Rejected(f"{number!r} is outside [{shown_low}, {shown_high}]{unit}")
        if low is not None and number < low:
            held = float(low) if self.dtype == "float" else math.ceil(low)
            return Coerced(held, clamped=True, reason=f"min is {held!r}")
        assert high is not None
        held = float(high) if self.dtype == "float" else math.floor(high)
        return Coerced(held, clamped=True, reason=f"max is {held!r}")

    def apply(self, coerced: Coerced, mode: str | None = None) -> Outcome:
        """Put a coerced value in, and read it back. Training thread, control point only.

        Returns
        -------
        Outcome
            `failed` when the setter raised or changed nothing; then what it had changed is
            put back where that is possible, and the reason says whether.
        """
        before: Any = None
        after: Any = None
        previous_mode: str | None = None
        was_read = False
        members = self._read_members()
        # One boundary for all three calls: a request pays for each that it passes.
        with guard(f"get and set of {self.name}") as fault:
            before = self.value
            was_read = True
            if mode is not None:
                previous_mode = self.get_mode() if self.get_mode else None
                self._pick_mode(mode)
            self.set(coerced.value)
            after = self.value
        if not fault:
            outcome = self._judge(coerced, before, after)
            return outcome._replace(data=moved(members, self._read_members()))
        if was_read:
            return self._take_back(fault, before, previous_mode)
        return Outcome(
            "failed",
            error=fault.error,
            reason=f"could not read {self.name} before: {fault.error}",
        )

    def _read_members(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = {}
        if self.members is not None:
            with guard(f"members of {self.name}"):
                found = dict(self.members())
        return found

    def _judge(self, coerced: Coerced, before: Any, after: Any) -> Outcome:
        if close(after, coerced.value):
            status: Status = "clamped" if coerced.clamped else "applied"
            reason = coerced.reason
            if reason is None and self.modes and equal(before, coerced.value):
                # What a scheduler does next still happens: say that nothing was asked of it.
                reason = "it read that already; nothing was changed"
            if self.effect is not None:
                with guard(f"effect of {self.name}"):
                    told = self.effect()
                    reason = "; ".join(each for each in (reason, told) if each) or None
            return Outcome(status, before, after, reason)
        if equal(after, before):
            return Outcome(
                "failed", before, after, f"the setter ran, but {self.name} still reads {after!r}"
            )
        return Outcome(
            "clamped",
            before,
            after,
            f"asked {coerced.value!r}, but {self.name} reads {after!r} afterwards",
        )

    def _pick_mode(self, mode: str) -> None:
        if mode not in self.modes or self.set_mode is None:
            known = ", ".join(self.modes) or "none: nothing else drives it"
            raise Rejected(f"{self.name} has no mode {mode!r}; modes: {known}")
        self.set_mode(mode)

    def _take_back(self, fault: Fault, before: Any, mode: str | None) -> Outcome:
        """After a setter that raised: restore what it changed, say whether that worked."""
        if fault.kind == "Rejected":
            if mode is not None and self.set_mode is not None:
                with guard(f"mode of {self.name}"):
                    self.set_mode(mode)
            return Outcome("rejected", before, before, fault.error.removeprefix("Rejected: "))
        now: Any = None
        with guard(f"restore of {self.name}") as second:
            now = self.value
            if not equal(now, before):
                self.set(before)
                now = self.value
            if mode is not None and self.set_mode is not None:
                self.set_mode(mode)
        with guard(f"get of {self.name}"):
            now = self.value
        if second:
            reason = f"the setter raised {fault.error}; putting it back failed: {second.error}"
        elif equal(now, before):
            reason = f"the setter raised {fault.error}; {self.name} is {before!r} as before"
        else:
            reason = f"the setter raised {fault.error}; it now reads {now!r}, not {before!r}"
        return Outcome("failed", before, now, reason, fault.error)

    def view(self) -> KnobView:
        """Describe the knob for onlookers. Any thread; a getter that raises is told, not raised."""
        value: Any = None
        mode: str | None = None
        reason: str | None = None
        members: list[Member] = []
        with guard(f"get of {self.name}") as fault:
            value = self.value
            reason = self.reason_unavailable()
            if self.get_mode is not None and (self.driven is None or self.driven()):
                mode = self.get_mode()
            if self.members is not None:
                members = [Member(name=n, value=v) for n, v in self.members().items()]
        if fault:
            reason = f"could not be read: {fault.error}"
        return KnobView(
            name=self.name,
            dtype=self.dtype,
            value=value,
            min=self.min,
            max=self.max,
            step=self.step,
            scale=self.scale,
            unit=self.unit,
            group=self.group,
            description=self.description,
            choices=self.choices,
            mode=mode,
            modes=list(self.modes),
            members=members,
            enabled=reason is None,
            reason=reason,
            out_of_bounds=self.out_of_bounds,
            aliases=list(self.aliases),
            last=None if self.last is None else _last(self.last),
        )


def _is_text(value: object) -> bool:
    """Whether it is a text that can be written as UTF-8: no lone half of a surrogate pair."""
    return isinstance(value, str) and not any("\ud800" <= each <= "\udfff" for each in value)


def _plain_bound(bound: numbers.Real) -> float | int:
    return int(bound) if isinstance(bound, numbers.Integral) else float(bound)


def _last(result: ActionResult) -> LastRequest:
    return LastRequest(
        id=result.id,
        status=result.status,
        requested=result.requested,
        applied=result.after,
        step=result.step,
        reason=result.reason,
        source=result.source,
    )
