"""Steer a PyTorch training run from its notebook, and keep a record that can be checked.

Names load when they are first used, so that ``import it2nb`` stays quick and imports neither
torch nor IPython.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from it2nb._version import __version__

if TYPE_CHECKING:
    from it2nb.attached import attach as attach
    from it2nb.contest import arena as arena
    from it2nb.controllers.base import Controller as Controller
    from it2nb.controllers.llm import LLMAgent as LLMAgent
    from it2nb.controllers.observation import Observation as Observation
    from it2nb.controllers.optuna import OptunaController as OptunaController
    from it2nb.controllers.pbt import Population as Population
    from it2nb.controllers.rules import at as at
    from it2nb.controllers.rules import every as every
    from it2nb.controllers.rules import rule as rule
    from it2nb.controllers.rules import when as when
    from it2nb.controllers.scripted import ScriptedAgent as ScriptedAgent
    from it2nb.core.control import StepControl as StepControl
    from it2nb.core.control import StopTraining as StopTraining
    from it2nb.core.errors import It2nbError as It2nbError
    from it2nb.core.errors import Rejected as Rejected
    from it2nb.core.goals import Accuracy as Accuracy
    from it2nb.core.goals import AverageReward as AverageReward
    from it2nb.core.goals import Goal as Goal
    from it2nb.core.goals import ValidationLoss as ValidationLoss
    from it2nb.core.guards import Divergence as Divergence
    from it2nb.core.guards import NonFinite as NonFinite
    from it2nb.core.guards import NonFiniteWeights as NonFiniteWeights
    from it2nb.core.guards import Plateau as Plateau
    from it2nb.core.guards import Spike as Spike
    from it2nb.core.knobs import Knob as Knob
    from it2nb.core.lifetime import current as current
    from it2nb.core.lifetime import runs as runs
    from it2nb.core.policy import Policy as Policy
    from it2nb.core.replay import replay as replay
    from it2nb.core.rounds import Memory as Memory
    from it2nb.core.rounds import Plan as Plan
    from it2nb.core.rounds import RoundContext as RoundContext
    from it2nb.core.wire import Action as Action
    from it2nb.core.wire import ActionResult as ActionResult
    from it2nb.core.wire import Event as Event
    from it2nb.interactive import make_interactive as make_interactive
    from it2nb.lightning_callback import LightningCallback as LightningCallback
    from it2nb.notebook.panel import Panel as Panel
    from it2nb.pytorch.autopatch import autopatch as autopatch
    from it2nb.pytorch.autopatch import unpatch as unpatch
    from it2nb.pytorch.curriculum import CurriculumSampler as CurriculumSampler
    from it2nb.pytorch.datasets import make_interactive_dataset as make_interactive_dataset
    from it2nb.pytorch.live import live as live
    from it2nb.pytorch.sources import SourceSampler as SourceSampler
    from it2nb.recorded import open as open
    from it2nb.server.async_client import AsyncClient as AsyncClient
    from it2nb.server.client import Client as Client
    from it2nb.session import TrainingSession as TrainingSession
    from it2nb.workflows.base import Workflow as Workflow

#: Public name: the module that defines it.
_HOMES = {
    "Accuracy": "it2nb.core.goals",
    "Action": "it2nb.core.wire",
    "ActionResult": "it2nb.core.wire",
    "AsyncClient": "it2nb.server.async_client",
    "AverageReward": "it2nb.core.goals",
    "Client": "it2nb.server.client",
    "Controller": "it2nb.controllers.base",
    "CurriculumSampler": "it2nb.pytorch.curriculum",
    "Divergence": "it2nb.core.guards",
    "Event": "it2nb.core.wire",
    "Goal": "it2nb.core.goals",
    "It2nbError": "it2nb.core.errors",
    "Knob": "it2nb.core.knobs",
    "LLMAgent": "it2nb.controllers.llm",
    "Memory": "it2nb.core.rounds",
    "LightningCallback": "it2nb.lightning_callback",
    "NonFinite": "it2nb.core.guards",
    "NonFiniteWeights": "it2nb.core.guards",
    "OptunaController": "it2nb.controllers.optuna",
    "Observation": "it2nb.controllers.observation",
    "Panel": "it2nb.notebook.panel",
    "Plan": "it2nb.core.rounds",
    "Plateau": "it2nb.core.guards",
    "Population": "it2nb.controllers.pbt",
    "Policy": "it2nb.core.policy",
    "Rejected": "it2nb.core.errors",
    "RoundContext": "it2nb.core.rounds",
    "ScriptedAgent": "it2nb.controllers.scripted",
    "SourceSampler": "it2nb.pytorch.sources",
    "Spike": "it2nb.core.guards",
    "StepControl": "it2nb.core.control",
    "StopTraining": "it2nb.core.control",
    "TrainingSession": "it2nb.session",
    "ValidationLoss": "it2nb.core.goals",
    "arena": "it2nb.contest",
    "Workflow": "it2nb.workflows.base",
    "autopatch": "it2nb.pytorch.autopatch",
    "at": "it2nb.controllers.rules",
    "attach": "it2nb.attached",
    "current": "it2nb.core.lifetime",
    "every": "it2nb.controllers.rules",
    "live": "it2nb.pytorch.live",
    "make_interactive": "it2nb.interactive",
    "make_interactive_dataset": "it2nb.pytorch.datasets",
    "open": "it2nb.recorded",
    "replay": "it2nb.core.replay",
    "rule": "it2nb.controllers.rules",
    "runs": "it2nb.core.lifetime",
    "unpatch": "it2nb.pytorch.autopatch",
    "when": "it2nb.controllers.rules",
}

__all__ = [*_HOMES, "__version__", "load_ipython_extension", "unload_ipython_extension"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'it2nb' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Register the magics; ``%load_ext it2nb`` calls it."""
    from it2nb.notebook.magics import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take the magics away again; a live run goes on."""
    from it2nb.notebook.magics import unload

    unload(shell)
