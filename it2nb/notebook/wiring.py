"""What a run is connected to: knobs, hooks, watched values, evaluation, what a save holds."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from it2nb.core.control import StopTraining
from it2nb.core.errors import It2nbError, KnobError, KnobRangeError
from it2nb.core.faults import guard
from it2nb.core.session import Session
from it2nb.notebook.callers import locals_of, user_frames
from it2nb.notebook.discover import Found, find, is_there, of_optimizer, root_of, variable_knob
from it2nb.notebook.imports import ImportWatch
from it2nb.notebook.loops import Level, Loops
from it2nb.notebook.names import Names, reach
from it2nb.notebook.options import KnobSpec
from it2nb.notebook.plan import Plan
from it2nb.notebook.watch import Watcher

if TYPE_CHECKING:
    from it2nb.pytorch.hooks import Attachment


class Evaluator:
    """The function of ``--evaluate``, looked up each time: a redefinition counts.

    Has the attributes of a ``partial``, so that the models and loaders that the function uses
    are found through it.
    """

    args: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}  # noqa: RUF012 - as a partial has it

    def __init__(self, expression: str, namespace: dict[str, Any], session: Session):
        self._expression = expression
        self._code = compile(expression, f"<--evaluate {expression}>", "eval")
        self._namespace = namespace
        self._session = session

    @property
    def func(self) -> Callable[..., Any]:
        """The function by now."""
        found = eval(self._code, self._namespace)
        if not callable(found):
            raise It2nbError(
                f"--evaluate {self._expression} is a {type(found).__name__}, not a function"
            )
        return found  # type: ignore[no-any-return]

    def __call__(self) -> Any:
        """Call it, with the model where it asks for one."""
        function = self.func
        models = self._session.bound.models
        return function(models[0]) if models and _takes_one(function) else function()


def _takes_one(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [p for p in parameters if p.default is p.empty and p.kind in (0, 1)]
    return len(needed) == 1


_LIGHTNING = "give it callbacks=[it2nb.LightningCallback(it2nb.current())]"
#: Modules with a training loop of their own, and how their runs are recorded.
_TRAINERS = {
    "transformers.trainer": "make it with it2nb.make_interactive(Trainer)(...)",
    "lightning.pytorch": _LIGHTNING,
    "pytorch_lightning": _LIGHTNING,
}


class Wiring:
    """Connects one session to the loop of one cell, and takes it apart again.

    Parameters
    ----------
    session : Session
    plan : Plan
    namespace : dict
        The user's globals.
    """

    def __init__(self, session: Session, plan: Plan, namespace: dict[str, Any]) -> None:
        self.at = plan.at
        self._session = session
        self._options = plan.options
        self._namespace = namespace
        self._own = plan.names
        self._late_knobs: list[KnobSpec] = []
        #: What the variables of schedulers held when they were looked at.
        self._schedulers: dict[str, Any] = {}
        self._looked = False
        self._stepped = 0
        self._attachment: Attachment | None = None
        self._import_watch: ImportWatch | None = None
        names = self.names()
        self._watcher = Watcher(
            plan.options.watch, namespace, session, plan.locals | names.all, names.binds
        )
        self.loops = Loops(
            lambda: session.step_count,
            self._after_turn,
            self._tell_total,
            one_step_a_turn=self.at == "loop",
            given=self._options.steps,
        )
        session.total_falls = True

    def names(self) -> Names:
        """Return the names that the cell and the functions that it calls use, as of now."""
        return reach(self._own, self._namespace)

    def bound_names(self) -> Names:
        """Return the same with the knobs' variables among those that the run rebinds itself."""
        knobs = frozenset(root_of(spec.name) for spec in self._options.knobs)
        return self.names() | Names(binds=knobs)

    def connect(self) -> None:
        """Register knobs, evaluation and what a save holds. Main thread, before the start."""
        session = self._session
        if self._options.evaluate is not None:
            session.on_evaluate(Evaluator(self._options.evaluate, self._namespace, session))
        self._add_variable_knobs(self._options.knobs, own=self._own.binds)
        if self.at != "session":
            session.honours_control = False
        if self.at == "loop":
            session.stepper = "turns of the loop"
        if "torch" in sys.modules:
            self._connect_torch()

    def enter(self) -> None:
        """Begin, on the training thread: seed, and step hooks."""
        seed = self._seed()
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)
        if "torch" in sys.modules:
            self._attach_hooks()
        else:
            # The loop may import it itself, however deep inside.
            self._import_watch = ImportWatch("torch", self._torch_came)

    def _seed(self) -> int | None:
        """What to seed with: as asked, or as the run was that is done again."""
        replaying = self._session.replaying
        if self._options.seed is None and replaying is not None:
            return replaying.recording.seed
        return self._options.seed

    def leave(self) -> None:
        """Take the hooks away, and record what is late. Training thread."""
        session = self._session
        with guard("taking the hooks away", session.report):
            if self._import_watch is not None:
                self._import_watch.close()
            if self._attachment is not None:
                self._attachment.detach()
        with guard("watched values", session.report):
            self._watcher.finish()
        if self._options.steps_of is not None and session.step_count == 0:
            session.warn(
                f"--steps-of {self._options.steps_of}: no optimizer of this name made a step, so "
                f"there were no steps"
            )
        elif self.at == "optimizer" and self._options.watch and session.step_count == 0:
            session.warn(
                "no optimizer made a step, so nothing was recorded; with --at loop each turn of "
                "the outermost loop is a step"
            )

    def release(self) -> None:
        """The run is over: let go of what it trained, keep what it was set to."""
        if "torch" in sys.modules:
            from it2nb.pytorch import fingerprints

            fingerprints.end(self._session)
        # First: an optimizer that a function made lives only by what is bound.
        for knob in self._session.knobs.values():
            with guard(f"get of {knob.name}"):
                _freeze(knob)
        bound = self._session.bound
        for kept in (bound.models, bound.optimizers, bound.schedulers):
            kept.clear()
        bound.scaler = None
        bound.names.clear()
        self._schedulers.clear()

    # --- control points ---------------------------------------------------------------------

    def _after_turn(self, level: Level) -> None:
        """The outermost loop has done a turn. Training thread."""
        session = self._session
        if self.at == "session":
            return
        if self.at == "loop" and session.step_count != self._stepped:
            # The code of the loop steps the session itself: a turn is not one more.
            self.at = "optimizer"
            session.stepper = None
        if self.at == "loop":
            control = session.step(self._values())
            self._stepped = session.step_count
        elif session.step_count == level.steps_before:
            # No optimizer has made a step in this loop so far: let requests in all the same.
            control = session.pump()
        else:
            if session.noted:  # after the optimizer's step
                session.record(session.with_noted())
            return
        if self._late_knobs:
            self._add_variable_knobs(self._late_knobs)
        if control.stop:
            raise StopTraining

    def _values(self) -> Mapping[str, float]:
        """Read the watched values at a control point. Training thread."""
        if self._late_knobs:
            self._add_variable_knobs(self._late_knobs)
        if not self._looked and self._session.step_count:
            # At the second step: one that is steered has recorded its first by then.
            self._looked = True
            self._look_for_trainer()
        if any(self._namespace.get(name) is not each for name, each in self._schedulers.items()):
            self._take_schedulers()
        return self._watcher()

    def _look_for_trainer(self) -> None:
        """Say how a trainer's own loop is recorded, where nothing of it is. Training thread."""
        if self._session.metrics.names():
            return
        frame: Any = sys._getframe(1)
        while frame is not None:
            home = str(frame.f_globals.get("__name__"))
            for package, remedy in _TRAINERS.items():
                if home.startswith(package):
                    self._session.warn(
                        f"the loop is that of {package}, which keeps its loss to itself, so that "
                        f"no metric is recorded: {remedy} (docs/trainers.md)"
                    )
                    return
            frame = frame.f_back

    def _tell_total(self, total: int) -> None:
        self._session.total_steps = total

    # --- knobs ------------------------------------------------------------------------------

    def _add_variable_knobs(
        self, specs: tuple[KnobSpec, ...] | list[KnobSpec], own: frozenset[str] = frozenset()
    ) -> None:
        """Register the variables that are there; the others when the cell has made them.

        A value out of bounds, of a variable among `own`, is of an earlier cell.
        """
        waiting = []
        for spec in specs:
            if not is_there(spec, self._namespace):
                waiting.append(spec)
                continue
            try:
                self._session.add_knob(variable_knob(spec, self._namespace))
            except KnobRangeError as err:
                if root_of(spec.name) in own:
                    waiting.append(spec)
                else:
                    self._session.warn(str(err))
            except KnobError as err:
                self._session.warn(str(err))
        self._late_knobs = waiting

    # --- PyTorch ----------------------------------------------------------------------------

    def _torch_came(self) -> None:
        with guard("connecting to PyTorch", self._session.report):
            self._connect_torch()
            self._attach_hooks()

    def _connect_torch(self) -> None:
        from it2nb.pytorch import rewind

        # A session of the user's own says itself how often it wants to be saved.
        autosave_s = getattr(self._session, "_autosave_s", None)
        rewind.install(self._session, snapshots=self._options.snapshots, autosave_s=autosave_s)
        self._adopt(find(self._namespace, self.names().all))

    def _attach_hooks(self) -> None:
        from it2nb.pytorch import fingerprints

        torch: Any = sys.modules["torch"]
        seed = self._seed()
        if seed is not None:
            torch.manual_seed(seed)
        fingerprints.begin(self._session)
        if self.at == "optimizer":
            from it2nb.pytorch.hooks import attach

            self._attachment = attach(
                self._session,
                metrics_fn=self._values,
                on_new_optimizer=self._new_optimizer,
                steps_of=self._options.steps_of,
            )

    def _new_optimizer(self, optimizer: Any) -> None:
        """An optimizer makes its first step: find what belongs to it. Training thread.

        Of one that was there before, the cell may have made the scheduler.
        """
        is_known = any(each is optimizer for each in self._session.bound.optimizers)
        frames = user_frames(sys._getframe(1), self._namespace)
        scopes: list[Mapping[str, Any]] = []
        for frame in frames:
            with locals_of(frame) as local:
                scopes.append({k: v for k, v in local.items() if not k.startswith("_")})
        frames.clear()
        found = of_optimizer(optimizer, scopes)
        self._adopt(self._unbound(found) if is_known else found)

    def _take_schedulers(self) -> None:
        """A variable holds another scheduler now, of a second phase say. Training thread."""
        self._schedulers = {name: self._namespace.get(name) for name in self._schedulers}
        with guard("schedulers of a next phase", self._session.report):
            self._adopt(self._unbound(find(self._namespace, self.names().all)))

    def _unbound(self, found: Found) -> Found:
        """Keep what is new, of optimizers that are known."""
        bound = self._session.bound
        known = set(map(id, (*bound.models, *bound.optimizers, *bound.schedulers)))
        return Found(
            {k: v for k, v in found.models.items() if id(v) not in known},
            {},
            {
                k: v
                for k, v in found.schedulers.items()
                if id(v) not in known and id(v.optimizer) in known
            },
            found.scalers,
        )

    def _adopt(self, found: Found) -> None:
        """Make knobs of what was found, and bind it for saves."""
        from it2nb.pytorch.optimizers import add_optimizer_knobs

        session = self._session
        session.bound.names.update(found.names())
        scaler = next(iter(found.scalers.values()), None)
        for model in found.models.values():
            session.bind(model)
        session.bind(
            optimizers=list(found.optimizers.values()),
            schedulers=list(found.schedulers.values()),
            scaler=scaler,
        )
        self._schedulers.update(
            {k: v for k, v in found.schedulers.items() if self._namespace.get(k) is v}
        )
        if self._options.modules:
            with guard("knobs of layers", session.report):
                self._add_layer_knobs(found)
        for name, optimizer in found.optimizers.items():
            with guard(f"knobs of {name}", session.report):
                add_optimizer_knobs(session, optimizer, name=name)
        with guard("letting go of what was before", session.report):
            self._let_go(found)

    def _let_go(self, found: Found) -> None:
        """Leave schedulers that lost their variable to new ones, and such models, untrained now."""
        bound = self._session.bound
        for each in list(bound.schedulers):
            name = bound.names.get(id(each), "")
            new: Any = found.schedulers.get(name, each)
            if new is not self._namespace.get(name, each) or new is each:
                continue
            if new.optimizer is each.optimizer:
                bound.schedulers.remove(each)
                bound.names.pop(id(each), None)
        trained = {
            id(parameter)
            for optimizer in bound.optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        gone = [
            each
            for each in bound.models
            if found.models.get(bound.names.get(id(each), ""), each) is not each
            and not any(id(parameter) in trained for parameter in each.parameters())
        ]
        if gone:
            from it2nb.pytorch.modules import show_tree

            left = set(map(id, gone))
            bound.models[:] = [each for each in bound.models if id(each) not in left]
            for each in gone:
                bound.names.pop(id(each), None)
            show_tree(self._session)

    def _add_layer_knobs(self, found: Found) -> None:
        from it2nb.pytorch.layer_settings import module_knobs
        from it2nb.pytorch.modules import show_tree

        for model in found.models.values():
            for knob in module_knobs(model):
                if knob.name not in self._session.knobs:
                    self._session.add_knob(knob)
        show_tree(self._session)


def _freeze(knob: Any) -> None:
    """Let a knob show its last value without holding the optimizer that it came from."""
    value = knob.value
    members = None if knob.members is None else dict(knob.members())
    mode = knob.get_mode() if knob.get_mode is not None else None
    knob.get = lambda: value
    knob.set = _over
    knob.members = None if members is None else lambda: members
    knob.get_mode = None if knob.get_mode is None else lambda: mode
    driven = knob.driven is None or knob.driven()
    knob.driven = lambda: driven
    knob.set_mode = None if knob.set_mode is None else _over
    knob.unavailable = lambda: "the run is over"


def _over(value: Any) -> None:
    raise It2nbError("the run is over")
