"""What a control point tells the loop, and how a run ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from it2nb.core.wire import ActionResult

RunStatus = Literal["created", "running", "paused", "stopped", "finished", "failed"]

#: A session in one of these takes no further steps.
ENDED: frozenset[str] = frozenset({"stopped", "finished", "failed"})


class StopTraining(BaseException):
    """Ends a training loop after an accepted `stop`.

    A BaseException, so that neither ``except Exception`` nor, since it is raised again before
    every later step, a bare ``except:`` in the loop can swallow it. Catch it around a loop of
    your own to go on quietly after a stop; under ``%%it2`` that is done for you.
    """

    def __str__(self) -> str:
        return super().__str__() or (
            "the run was stopped, and no step may follow; leave the loop when "
            "session.step(...).stop says so, or catch it2nb.StopTraining around it"
        )


@dataclass(frozen=True)
class StepControl:
    """What the loop has to do itself after a control point.

    Attributes
    ----------
    stop : bool
        Leave the loop now: no further optimizer step may happen.
    evaluate : bool
        Evaluate, then call ``session.report_eval(metrics)``.
    save : bool
        Save a checkpoint, then call ``session.checkpoint_saved(path, tag=control.tag)``.
    tag : str or None
        The name that was asked for with `save`.
    load : str or None
        The checkpoint to load; then call ``session.checkpoint_loaded(path)``.
    reload_required : bool
        True when `load` is set.
    reset : tuple of str
        Names of modules to initialise anew; then call ``session.module_reset(name)``.
    applied : tuple of ActionResult
        The results of this control point, in the order in which they were applied.
    """

    stop: bool = False
    evaluate: bool = False
    save: bool = False
    tag: str | None = None
    load: str | None = None
    reset: tuple[str, ...] = ()
    applied: tuple[ActionResult, ...] = ()

    @classmethod
    def plain(cls, stop: bool, applied: tuple[ActionResult, ...]) -> StepControl:
        """Make one that asks for nothing but perhaps a stop, as nearly all do; the quick way."""
        control = cls.__new__(cls)
        # What is not set here is found at the class: the defaults above.
        control.__dict__.update(stop=stop, applied=applied)
        return control

    @property
    def reload_required(self) -> bool:
        """Whether a checkpoint has to be loaded."""
        return self.load is not None

    @property
    def reset_modules(self) -> tuple[str, ...]:
        """The same as `reset`."""
        return self.reset


#: Returned by every control point at which nothing was asked; one object, so that it costs nothing.
CONTINUE = StepControl()
STOP = StepControl(stop=True)
