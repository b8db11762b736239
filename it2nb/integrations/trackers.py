"""The trackers by name, and putting one beside a run."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from it2nb.core.errors import It2nbError, SessionEnded, near
from it2nb.integrations.tracker import Tracker, check_installed
from it2nb.integrations.tracking import Tracking

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Name: module of ours, class, package, what people call it.
_KNOWN = {
    "tensorboard": ("tensorboard_tracker", "TensorBoard", "tensorboard"),
    "wandb": ("wandb_tracker", "WandB", "wandb"),
    "mlflow": ("mlflow_tracker", "MLflow", "mlflow"),
    "trackio": ("trackio_tracker", "Trackio", "trackio"),
    "aim": ("aim_tracker", "Aim", "aim"),
}
NAMES: tuple[str, ...] = tuple(_KNOWN)


def track(
    session: Session, tracker: str | Tracker, *, end_wait_s: float = 30.0, **options: Any
) -> Tracking:
    """Copy a run into a tracker while it goes on; see `TrainingSession.track`. Any thread."""
    if session.is_ended:
        raise SessionEnded(f"{session.run_id} has ended: track a run before it ends")
    if isinstance(tracker, str):
        tracker = made(tracker, **options)
    elif isinstance(tracker, type) or not all(
        callable(getattr(tracker, each, None)) for each in ("open", "points", "mark", "close")
    ):
        raise It2nbError(
            f"{tracker!r:.60} is no tracker: give one of {', '.join(NAMES)}, or an object with "
            f"open, points, mark and close"
        )
    elif options:
        raise It2nbError(
            f"{', '.join(sorted(options))}: a tracker that is made already takes no options here"
        )
    return Tracking(session, tracker, end_wait_s)


def made(name: str, **options: Any) -> Tracker:
    """Make one of the trackers that are known by name; raises as `check_tracker` does."""
    check_tracker(name)
    module, kind, _ = _KNOWN[name]
    found = getattr(importlib.import_module(f"it2nb.integrations.{module}"), kind)
    return found(**options)  # type: ignore[no-any-return]


def check_tracker(name: str) -> None:
    """Tell whether a tracker can be used, without importing it.

    Raises
    ------
    It2nbError
        If there is none of this name.
    MissingDependency
        Without its extra.
    """
    if name not in _KNOWN:
        raise It2nbError(f"no tracker is named {name!r:.60}{near(name, NAMES)}")
    _, kind, package = _KNOWN[name]
    check_installed(package, extra=name, feature=f"tracking with {kind}")
