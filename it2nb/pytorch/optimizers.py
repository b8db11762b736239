"""The optimizers of a session: knobs for every hyper-parameter of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from it2nb.core.errors import SessionEnded
from it2nb.core.faults import guard
from it2nb.core.knobs import Knob
from it2nb.pytorch.leaving import leave
from it2nb.pytorch.schedulers import unwrapped
from it2nb.pytorch.steered import SteeredOptimizer
from it2nb.pytorch.switchboard import switchboard

if TYPE_CHECKING:
    from it2nb.core.session import Session


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

    def add(
        self, optimizer: Any, name: str | None, only: Collection[str] | None = None
    ) -> SteeredOptimizer:
        """Steer one more optimizer: knobs, and edits worked out before each of its steps."""
        session = self._session
        name = name or session.bound.names.get(id(optimizer)) or self._unused(optimizer)
        steered = SteeredOptimizer(session, optimizer, name, only)
        gone = [each for each in self.optimizers if each.optimizer() is None or each.name == name]
        prefix = self._prefix(name, gone)
        for each in gone:
            self._drop(each)
        self.optimizers.append(steered)
        steered.register(prefix)
        switchboard().steer(steered)
        steered.listen()
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

    def keep(self, kept: Collection[SteeredOptimizer]) -> None:
        """Let go of all but these; their knobs go with them."""
        for each in list(self.optimizers):
            if each not in kept:
                self._drop(each)

    def close(self) -> None:
        """Let go of all of them; their knobs stay and show the last value.

        What is in force stays in the groups where no scheduler drives it; see `leaving`.
        """
        for each in self.optimizers:
            each.close()
            with guard(f"what stays in {each.name}", self._session.report):
                leave(each)
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
    session: Session,
    optimizer: Any,
    *,
    name: str | None = None,
    only: Collection[str] | None = None,
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
    only : collection of str, optional
        Hyper-parameters that become knobs, ``("lr",)`` for example; all by default.

    Returns
    -------
    list of Knob

    Raises
    ------
    SessionEnded
    """
    optimizer = unwrapped(optimizer, "optimizer")
    if session.is_ended:
        raise SessionEnded(f"{session.run_id} has ended: it takes no further knobs")
    steering = steering_of(session)
    steered = steering.find(optimizer) or steering.add(optimizer, name, only)
    if session.rounds is not None:
        session.rounds.knobs_came()
    return list(steered.knobs)


def steering_of(session: Session) -> Steering:
    """Return the steered optimizers of a session."""
    board = switchboard()
    found = board.sessions.get(session)
    if found is None:
        found = board.sessions[session] = Steering(session)
        session.on_end(lambda: switchboard().forget(session))
    return found


def _also_called(session: Session, steered: SteeredOptimizer, prefix: str) -> None:
    """Let the knobs of an optimizer be asked for under its name too."""
    for knob in steered.knobs:
        knob.aliases = (*knob.aliases, prefix + knob.name)
        session.knobs.register(knob, replace=True)
