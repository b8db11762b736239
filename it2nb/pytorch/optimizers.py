"""Knobs for every hyper-parameter of an optimizer, of all groups together and of each."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from it2nb.core.faults import guard
from it2nb.core.knobs import Knob
from it2nb.pytorch import groups, rules
from it2nb.pytorch.live import Live
from it2nb.pytorch.schedulers import Schedulers, unwrapped
from it2nb.pytorch.setting import Clock, Setting
from it2nb.pytorch.switchboard import switchboard

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: With more parameter groups than this, only these have knobs of each group.
MANY_GROUPS = 16
OF_EACH_GROUP = frozenset({"lr", "weight_decay"})


class Following:
    """A live variable that was given to an optimizer: its setting follows the variable."""

    def __init__(self, variable: Live, setting: Setting, at: int) -> None:
        self._variable = variable
        self._setting = setting
        self._at = at
        self._seen = variable.changes

    def follow(self) -> None:
        """Take over a new value. Training thread, before a step."""
        if self._variable.changes != self._seen:
            self._seen = self._variable.changes
            self._setting.assign(self._at, self._variable.value)


class SteeredOptimizer:
    """One optimizer whose hyper-parameters are knobs of a session. Holds it weakly.

    Parameters
    ----------
    session : Session
    optimizer : torch.optim.Optimizer
        Or anything with ``param_groups`` and ``defaults``.
    name : str
        What people call it: the name of its variable.
    """

    def __init__(self, session: Session, optimizer: Optimizer, name: str) -> None:
        self.session = session
        self.name = name
        self.kind = type(optimizer).__name__
        self.optimizer = weakref.ref(optimizer)
        self.prefix = ""
        self.knobs: list[Knob] = []
        self.drivers = Schedulers(self.optimizer, lambda: session.bound.schedulers)
        self.clock = Clock()
        self.settings = {
            cell.name: Setting(self.optimizer, cell, rule, self.drivers, self, self.clock)
            for cell in rules.cells(optimizer)
            if (rule := rules.rule_for(optimizer, cell)) is not None
        }
        self._lr = self.settings.get("lr")
        self._following = [
            Following(made, setting, at)
            for setting in self.settings.values()
            for at, made in setting.take_live()
        ]
        self._count = len(optimizer.param_groups)
        self._handles: list[Any] = []
        if isinstance(optimizer, Optimizer):
            hook = optimizer.register_load_state_dict_post_hook(self._reloaded)
            self._handles.append(hook)

    def __repr__(self) -> str:
        return f"<SteeredOptimizer {self.name} ({self.kind})>"

    # --- around a step, training thread ----------------------------------------------------

    def glance(self) -> None:
        """Notice who else writes lr, before requests are let in."""
        if self._lr is not None and self._lr.groups():
            self._lr.glance()

    def before_step(self) -> None:
        """Bring edits into force for the step that begins."""
        if not self._is_ours():
            return
        optimizer = self.optimizer()
        if optimizer is not None and len(optimizer.param_groups) != self._count:
            self._count = len(optimizer.param_groups)
            self.register(self.prefix)
        for each in self._following:
            each.follow()
        for setting in self.settings.values():
            if setting.is_busy:
                setting.before_step()

    def after_step(self) -> None:
        """Put back what stood there for this step only."""
        self.clock.steps += 1
        for setting in self.settings.values():
            if setting.is_busy:
                setting.after_step()
        if self._lr is not None and self._lr.groups():
            self._lr.look()

    def captured(self) -> None:
        """A CUDA graph was captured around the step: replaying it calls no hook."""
        for setting in self.settings.values():
            setting.is_captured = True

    def _is_ours(self) -> bool:
        # Another cell that steps the same optimizer does not move the run (DESIGN section 3).
        session = self.session
        return session.on_training_thread or session.owner is None

    def _reloaded(self, optimizer: Any) -> None:
        quiet = self.session.serving is not None
        with guard(f"load_state_dict of {self.name}", self.session.report):
            for setting in self.settings.values():
                setting.reloaded(quiet=quiet)

    # --- knobs -----------------------------------------------------------------------------

    def register(self, prefix: str) -> None:
        """Put the knobs into the session, in the place of those that were there before."""
        optimizer = self.optimizer()
        if optimizer is None:
            return
        self.prefix = prefix
        old = {knob.name: knob for knob in self.knobs}
        names = groups.labels(optimizer.param_groups, self.session.bound.models)
        self.knobs = [
            knob for setting in self.settings.values() for knob in self._knobs_of(setting, names)
        ]
        session = self.session
        for knob in self.knobs:
            if knob.name in old:
                knob.last = old.pop(knob.name).last
            session.knobs.register(knob, replace=True)
        for name in old:
            session.knobs.unregister(name)
        if session.started:
            views = [knob.view().model_dump(exclude={"v"}) for knob in self.knobs]
            session.emit("knobs_registered", {"knobs": views})

    def unregister(self) -> None:
        """Take the knobs away."""
        for knob in self.knobs:
            if knob.name in self.session.knobs and self.session.knobs[knob.name] is knob:
                self.session.knobs.unregister(knob.name)
        self.knobs = []

    def close(self) -> None:
        """Let go of the optimizer: what was lent is put back, hooks are removed."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self.optimizer() is not None:
            for setting in self.settings.values():
                setting.after_step()

    def _knobs_of(self, setting: Setting, names: list[str]) -> Iterable[Knob]:
        name = self.prefix + setting.cell.name
        several = len(names) > 1
        one = [] if several else [f"{name}[{label}]" for label in {"0", *names}]
        if self.prefix + setting.cell.name == "lr":
            one.append("learning_rate")
        elif setting.cell.name == "lr":
            one.append(self.prefix + "learning_rate")
        yield self._knob(
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
            yield self._knob(setting, f"{name}[{label}]", at, also, None)

    def _knob(
        self,
        setting: Setting,
        name: str,
        at: int | None,
        aliases: list[str],
        members: Callable[[], Mapping[str, Any]] | None,
    ) -> Knob:
        rule = setting.rule
        whole = self.kind if not self.prefix else f"{self.name} ({self.kind})"
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
            description=rule.description,
            group=whole if at is None else f"{whole}, one group",
            out_of_bounds="reject",
            aliases=aliases,
            members=members,
            modes=rule.modes,
            get_mode=(lambda: setting.mode(here())) if rule.modes else None,
            set_mode=(lambda mode: setting.pick(mode, which or None)) if rule.modes else None,
            unavailable=lambda: self._unavailable(setting),
        )

    def _unavailable(self, setting: Setting) -> str | None:
        if setting.rule.disabled is not None:
            return setting.rule.disabled
        optimizer = self.optimizer()
        if optimizer is None:
            return f"the optimizer {self.name} is gone"
        if setting.is_captured and not hasattr(
            setting.cell.raw(optimizer.param_groups[0]), "fill_"
        ):
            return (
                f"the step is in a captured graph, and {setting.cell.name} is baked into it; "
                f"make the optimizer with {setting.cell.name}=torch.tensor(...) and capturable=True"
            )
        return None

    # --- reports ---------------------------------------------------------------------------

    def warn(self, text: str) -> None:
        """Tell people something, once."""
        self.session.warn(f"{self.name}: {text}" if self.prefix else text)

    def drift(
        self, name: str, at: int, expected: Any, found: Any, by: str, kept: bool, mode: str
    ) -> None:
        """Write a ``knob_drifted`` row."""
        self.session.emit(
            "knob_drifted",
            {
                "name": self.prefix + name,
                "group": at,
                "expected": expected,
                "found": found,
                "by": by,
                "kept": kept,
                "mode": mode,
                "optimizer": self.name,
            },
        )

    # --- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Modes, held values and factors that stand in no object of PyTorch."""
        return {
            name: {
                str(at): {key: getattr(slot, key) for key in _SAVED}
                for at, slot in setting.slots.items()
                if any(getattr(slot, key) != usual for key, usual in _SAVED.items())
            }
            for name, setting in self.settings.items()
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take that state back; after the optimizer and its schedulers have theirs."""
        for name, setting in self.settings.items():
            entry = saved.get(name, {})
            for at in range(len(setting.groups())):
                values = entry.get(str(at), _SAVED)
                for key, usual in _SAVED.items():
                    setattr(setting.slot(at), key, values.get(key, usual))
            setting.note_busy()


_SAVED: Mapping[str, Any] = {
    "mode": "rescale", "held": None, "factor": 1.0, "scaled": 1.0, "loop": False, "pending": None,
}  # fmt: skip


class Steering:
    """The steered optimizers of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.optimizers: list[SteeredOptimizer] = []

    def find(self, optimizer: Any) -> SteeredOptimizer | None:
        """Return the steered one; None when it is not ours."""
        for each in self.optimizers:
            if each.optimizer() is optimizer:
                return each
        return None

    def add(self, optimizer: Any, name: str | None) -> SteeredOptimizer:
        """Steer one more optimizer: knobs, and edits worked out before each of its steps."""
        session = self._session
        name = name or session.bound.names.get(id(optimizer)) or self._unused(optimizer)
        steered = SteeredOptimizer(session, optimizer, name)
        gone = [each for each in self.optimizers if each.optimizer() is None or each.name == name]
        prefix = self._prefix(name, gone)
        for each in gone:
            self._drop(each)
        self.optimizers.append(steered)
        steered.register(prefix)
        board = switchboard()
        board.steer(steered)
        if any(each is optimizer for each in session.bound.optimizers):
            session.bound.stateful["schedules"] = self
        return steered

    def _prefix(self, name: str, gone: list[SteeredOptimizer]) -> str:
        session = self._session
        staying = [each for each in self.optimizers if each not in gone]
        taken = {each.prefix for each in staying}
        for each in gone:
            # A new optimizer in the place of an old one goes by the same knob names.
            if each.prefix not in taken:
                return each.prefix
        bound = {id(unwrapped(each, "optimizer")) for each in session.bound.optimizers}
        if not staying and len(bound) <= 1:
            return ""
        for each in staying:
            if each.prefix:
                continue
            if session.started:
                _also_called(session, each, f"{each.name}.")
            else:
                each.register(f"{each.name}.")
        return f"{name}."

    def _unused(self, optimizer: Any) -> str:
        base = type(optimizer).__name__.lower()
        taken = {each.name for each in self.optimizers if each.optimizer() is not None}
        names = [base, *(f"{base}_{number}" for number in range(2, len(taken) + 3))]
        return next(each for each in names if each not in taken)

    def _drop(self, steered: SteeredOptimizer) -> None:
        old = steered.optimizer()
        steered.unregister()
        steered.close()
        switchboard().leave(steered)
        self.optimizers.remove(steered)
        if old is not None:
            bound = self._session.bound
            bound.optimizers[:] = [each for each in bound.optimizers if each is not old]
            bound.schedulers[:] = [
                each for each in bound.schedulers if getattr(each, "optimizer", None) is not old
            ]

    def close(self) -> None:
        """Let go of all of them; their knobs stay and show the last value."""
        for each in self.optimizers:
            each.close()
            switchboard().leave(each)
        self.optimizers.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return modes, held values and factors; see `SteeredOptimizer.state_dict`."""
        return {each.name: each.state_dict() for each in self.optimizers}

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Take them back."""
        for each in self.optimizers:
            if each.name in state_dict:
                each.load_state_dict(state_dict[each.name])


def add_optimizer_knobs(
    session: Session, optimizer: Any, *, name: str | None = None
) -> list[Knob]:
    """Make every hyper-parameter of an optimizer a knob of the session. Any thread.

    Parameters
    ----------
    session : Session
    optimizer : torch.optim.Optimizer
        Of `torch.optim` or not; held weakly. One that is steered already is left as it is.
    name : str, optional
        The user's variable. One optimizer has plain knob names (``lr``), several have them
        with the variable before (``opt_g.lr``). A new optimizer of a known name takes the
        place of the old one.

    Returns
    -------
    list of Knob
    """
    optimizer = unwrapped(optimizer, "optimizer")
    steering = steering_of(session)
    steered = steering.find(optimizer) or steering.add(optimizer, name)
    return list(steered.knobs)


def steering_of(session: Session) -> Steering:
    """Return the steered optimizers of a session."""
    board = switchboard()
    found = board.sessions.get(session)
    if found is None:
        found = board.sessions[session] = Steering(session)
        session.on_end(lambda: switchboard().forget(session))
    return found


def _named(names: list[str], values: list[Any]) -> dict[str, Any]:
    return dict(zip(names, values, strict=False))


def _also_called(session: Session, steered: SteeredOptimizer, prefix: str) -> None:
    """Let the knobs of an optimizer be asked for under its name too."""
    for knob in steered.knobs:
        knob.aliases = (*knob.aliases, prefix + knob.name)
        session.knobs.register(knob, replace=True)
