"""One optimizer under steering: its settings, what happens around its steps, its state."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from it2nb.core.control import StopTraining
from it2nb.core.faults import guard
from it2nb.core.knobs import Knob
from it2nb.pytorch import drift, groups, layered, rules
from it2nb.pytorch.foreign import Foreign, Written
from it2nb.pytorch.knobs import knobs_of
from it2nb.pytorch.live import Live
from it2nb.pytorch.schedulers import Schedulers
from it2nb.pytorch.setting import Clock, Setting
from it2nb.pytorch.wrapping import wrap

if TYPE_CHECKING:
    from it2nb.core.session import Session


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
    only : collection of str, optional
        Hyper-parameters to steer; all by default.
    """

    def __init__(
        self,
        session: Session,
        optimizer: Optimizer,
        name: str,
        only: Collection[str] | None = None,
    ) -> None:
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
            if only is None or cell.name in only
            if (rule := rules.rule_for(optimizer, cell)) is not None
        }
        self._lr = self.settings.get("lr")
        if self._lr is not None:
            self._lr.rhythm.listen()
        self._following = [
            Following(made, setting, at)
            for setting in self.settings.values()
            for at, made in setting.take_live()
        ]
        self._count = len(optimizer.param_groups)
        self._look_at = 0
        self._foreign = Foreign()
        self._handles: list[Any] = []
        self.is_layered = layered.is_layered(optimizer)
        # One whose class left out ``super().__init__`` has nothing to hang a hook on.
        if hasattr(optimizer, "_optimizer_load_state_dict_post_hooks"):
            hook = optimizer.register_load_state_dict_post_hook(self._reloaded)
            self._handles.append(hook)

    def __repr__(self) -> str:
        return f"<SteeredOptimizer {self.name} ({self.kind})>"

    def listen(self) -> None:
        """Hear of its steps too where PyTorch has no hooks around them."""
        optimizer = self.optimizer()
        wrapped = None if optimizer is None else wrap(optimizer)
        if wrapped is not None:
            self._handles.append(wrapped)

    # --- around a step, training thread ----------------------------------------------------

    def heed_stop(self) -> None:
        """No step after a stop (rule 5), whatever the loop did with its `StepControl`.

        Raises
        ------
        StopTraining
        """
        session = self.session
        if session.gate.has_told_stop and session.on_training_thread:
            raise StopTraining

    def glance(self) -> None:
        """Notice who else writes lr, and now and then the others, before requests are let in."""
        changed = () if self._lr is None else self._lr.glance()
        steps = self.clock.steps
        if changed or steps >= self._look_at or steps >= self._foreign.due:
            with guard(f"drift watch of {self.name}", self.session.report):
                self._notice(changed)

    def _notice(self, changed: Sequence[int]) -> None:
        if not self._is_ours() or groups.is_capturing():
            return
        if changed and self._lr is not None:
            drift.notice(self._lr, changed)
        if self.clock.steps >= self._foreign.due:
            self._foreign.look(self)
        if self.clock.steps >= self._look_at:
            self._look_at = self.clock.steps + drift.LOOK_STEPS
            for setting in self.settings.values():
                if setting is not self._lr:
                    setting.standing_values.look(setting)

    def has_work(self, optimizer: Any) -> bool:
        """Whether `before_step` has anything to do: with most steps it has not."""
        return (
            bool(self.clock.busy or self._following) or len(optimizer.param_groups) != self._count
        )

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
        if self.clock.busy:
            for setting in self.settings.values():
                if setting.is_busy:
                    setting.after_step()
        if not self._look_at:
            self._notice(())
        self.clock.steps += 1
        if self._lr is not None:
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
        for at, given in groups.misleading_names(optimizer.param_groups).items():
            self.warn(
                f"parameter group {at} is called {given!r}, which reads like the index of a "
                f"group: it goes by {names[at]!r}; another name, such as 'head', would be used"
            )
        self.knobs = [
            knob for setting in self.settings.values() for knob in knobs_of(self, setting, names)
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

    # --- reports ---------------------------------------------------------------------------

    def warn(self, text: str) -> None:
        """Tell people something, once."""
        self.session.warn(self._own(text))

    def note(self, text: str) -> None:
        """Write down something worth knowing, which is no warning."""
        self.session.emit("note", {"text": self._own(text), "level": "info"})

    def _own(self, text: str) -> str:
        return f"{self.name}: {text}" if self.prefix else text

    def drift(
        self,
        name: str,
        at: int,
        expected: Any,
        found: Any,
        by: str,
        kept: bool | None,
        mode: str,
        since: int | None = None,
    ) -> None:
        """Write a ``knob_drifted`` row."""
        row: dict[str, Any] = {
            "name": self.prefix + name,
            "group": at,
            "before": expected,
            "expected": expected,
            "found": found,
            "by": by,
            "mode": mode,
            "optimizer": self.name,
        }
        if kept is not None:
            row["kept"] = kept
        if since is not None:
            # By the run's count: its steps and those of the optimizer may differ.
            row["after_step"] = max(0, self.session.step_count - (self.clock.steps - since))
        self.session.emit("knob_drifted", row)
        if kept is not True and by == "the loop":
            step = self.session.step_count
            self._foreign.note(Written(name, at, expected, found, by, step), self.clock.steps)

    # --- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Modes, held values and factors that stand in no object of PyTorch."""
        return {
            name: {
                str(at): saved
                for at, slot in setting.slots.items()
                if (saved := {key: _plain(getattr(slot, key)) for key in _SAVED}) != _SAVED
            }
            for name, setting in self.settings.items()
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take that state back; after the optimizer and its schedulers have theirs."""
        for name, setting in self.settings.items():
            entry = saved.get(name, {})
            for at in range(len(setting.groups())):
                values = entry.get(str(at), _SAVED)
                setting.slot(at).take(setting.groups()[at], {**_SAVED, **values})
            setting.standing_values.forget()
            setting.note_busy()


_SAVED: Mapping[str, Any] = {
    "mode": "rescale", "held": None, "factor": 1.0, "scaled": 1.0, "loop": False, "pending": None,
    "written": None, "origin": None,
}  # fmt: skip


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
