"""Workflows with something wrong in them, for controllers to find and to mend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

from it2nb.core.errors import It2nbError, near
from it2nb.core.session import Session
from it2nb.core.wire import Action
from it2nb.workflows.base import Workflow
from it2nb.workflows.digits import Digits
from it2nb.workflows.training import Training

#: ``lr_spike``: at 30 % of the steps somebody multiplies lr by 30. ``overfitting``: 80 images to
#: learn from and no dropout. ``imbalance``: one in twenty of five of the ten classes.
FaultName = Literal["lr_spike", "overfitting", "imbalance"]
FAULTS: tuple[str, ...] = get_args(FaultName)


class FaultyDigits(Digits):
    """The digits with a fault.

    Parameters
    ----------
    fault : {"lr_spike", "overfitting", "imbalance"}
    *arguments, **options
        Of `Workflow`.
    """

    def __init__(self, fault: FaultName, *arguments: Any, **options: Any) -> None:
        if fault not in FAULTS:
            raise It2nbError(f"fault={fault!r:.60} is none of ours{near(str(fault), FAULTS)}")
        super().__init__(*arguments, **options)
        self.fault = fault

    def __repr__(self) -> str:
        return super().__repr__()[:-1] + f", {self.fault}>"

    def data(self) -> dict[str, Any]:
        """See `Digits.data`: with the fault in it, the held-out images as they are."""
        import torch

        data = super().data()
        train, labels = data["train"], data["labels"]
        if self.fault == "overfitting":
            data["train"] = train[:80]
        elif self.fault == "imbalance":
            rare = (labels[train] >= 5).nonzero().flatten()
            common = (labels[train] < 5).nonzero().flatten()
            data["train"] = train[torch.cat([common, rare[::20]])]
        return data

    def prepare(self, session: Session, seed: int) -> Training:
        """See `Workflow.prepare`."""
        training = super().prepare(session, seed)
        if self.fault == "overfitting":
            training.values["dropout"] = 0.0
        elif self.fault == "lr_spike":
            session.every(1, _spike(max(1, int(0.3 * self.steps))), name="lr spike")
        return training


def faulty(fault: FaultName | None, *arguments: Any, **options: Any) -> Workflow:
    """Make the digits with a fault, or healthy."""
    if fault is None:
        return Digits(*arguments, **options)
    return FaultyDigits(fault, *arguments, **options)


def _spike(at: int) -> Callable[[Session], None]:
    done = False

    def spike(session: Session) -> None:
        nonlocal done
        if done or session.step_count < at:
            return
        done = True
        value = session.knobs["lr"].value * 30
        payload = {"name": "lr", "value": value}
        session.submit(Action(type="set_knob", payload=payload, actor="fault"))

    return spike
