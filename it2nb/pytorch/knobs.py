"""Knobs of the settings of one optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from it2nb.core.knobs import Knob

if TYPE_CHECKING:
    from it2nb.pytorch.setting import Setting
    from it2nb.pytorch.steered import SteeredOptimizer

#: With more parameter groups than this, only these have knobs of each group.
MANY_GROUPS = 16
OF_EACH_GROUP = frozenset({"lr", "weight_decay"})


def knobs_of(steered: SteeredOptimizer, setting: Setting, names: Sequence[str]) -> Iterator[Knob]:
    """Make the knobs of one hyper-parameter: of all groups together, and of each.

    Parameters
    ----------
    steered : SteeredOptimizer
    setting : Setting
    names : sequence of str
        Of the parameter groups.
    """
    name = steered.prefix + setting.cell.name
    several = len(names) > 1
    one = [] if several else [f"{name}[{label}]" for label in {"0", *names}]
    if steered.prefix + setting.cell.name == "lr":
        one.append("learning_rate")
    elif setting.cell.name == "lr":
        one.append(steered.prefix + "learning_rate")
    yield _knob(
        steered,
        setting,
        name,
        None,
        one,
        (lambda: _named(names, setting.values())) if several else None,
    )
    few = len(names) <= MANY_GROUPS or setting.cell.name in OF_EACH_GROUP
    if not several or not few:
        return
    for at, label in enumerate(names):
        also = [] if label == str(at) else [f"{name}[{at}]"]
        yield _knob(steered, setting, f"{name}[{label}]", at, also, None)


def _knob(
    steered: SteeredOptimizer,
    setting: Setting,
    name: str,
    at: int | None,
    aliases: list[str],
    members: Callable[[], Mapping[str, Any]] | None,
) -> Knob:
    rule = setting.rule
    whole = steered.kind if not steered.prefix else f"{steered.name} ({steered.kind})"
    which = () if at is None else (at,)

    def here() -> int:
        return setting.reference() if at is None else at

    def read() -> Any:
        return setting.value(here()) if setting.groups() else None

    def write(value: Any) -> None:
        setting.assign_all(value) if at is None else setting.assign(at, value)

    return Knob(
        name,
        read,
        write,
        dtype=rule.dtype,
        min=rule.min,
        max=rule.max,
        scale=rule.scale,
        choices=rule.choices,
        description=rule.description + _of_groups(rule.dtype, members),
        group=whole if at is None else f"{whole}, one group",
        out_of_bounds="reject",
        aliases=aliases,
        members=members,
        modes=rule.modes,
        get_mode=(lambda: setting.mode(here())) if rule.modes else None,
        driven=lambda: _has_driver(setting, here()),
        set_mode=(lambda mode: setting.pick(mode, which or None)) if rule.modes else None,
        unavailable=lambda: _unavailable(steered, setting),
    )


def _of_groups(dtype: str, members: Callable[[], Mapping[str, Any]] | None) -> str:
    """Say what a knob of several groups does to them."""
    if members is None:
        return ""
    kept = ", whose ratios are kept" if dtype == "float" else ""
    return f"; of all {len(members())} groups{kept}"


def _unavailable(steered: SteeredOptimizer, setting: Setting) -> str | None:
    if setting.rule.disabled is not None:
        return setting.rule.disabled
    optimizer = steered.optimizer()
    if optimizer is None:
        return f"the optimizer {steered.name} is gone"
    if setting.is_captured and not hasattr(setting.cell.raw(optimizer.param_groups[0]), "fill_"):
        return (
            f"the step is in a captured graph, and {setting.cell.name} is baked into it; "
            f"make the optimizer with {setting.cell.name}=torch.tensor(...) and capturable=True"
        )
    return None


def _has_driver(setting: Setting, at: int) -> bool:
    """Whether something else is known to drive the value, or a mode was picked against it."""
    slot = setting.slots.get(at)
    if slot is not None and (slot.mode != "rescale" or slot.loop or slot.factor != 1.0):
        return True
    return bool(setting.drivers.driving(setting.cell))


def _named(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(names, values, strict=False))
