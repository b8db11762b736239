"""What the loop and the parts of a session tell: done work, rows, warnings, faults."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any

from it2nb.core.errors import JournalError, WrongThread
from it2nb.core.faults import Fault, guard
from it2nb.core.standing import Standing
from it2nb.core.utf8 import whole

if TYPE_CHECKING:
    from it2nb.core.gate import Gate
    from it2nb.core.metrics import MetricStore
    from it2nb.core.step_number import StepNumbers

#: Rows that a fault may write about itself, so that a fault in a loop can't fill the disk.
MAX_FAULT_ROWS = 200
#: Lines of warning that the panel may have to show.
MAX_WARNINGS = 50


class Telling(Standing):
    """The part of a session that writes down what others tell it."""

    gate: Gate
    metrics: MetricStore
    step_numbers: StepNumbers
    checkpoints: list[dict[str, Any]]
    warnings: list[str]
    noted: dict[str, Any]
    _fault_rows: int

    def log(self, values: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Note metrics for the step under way: its control point records them. Training thread.

        What is noted after the last step is recorded for that one when the run ends.
        """
        self.noted.update(values or {})
        self.noted.update(more)

    def with_noted(self, metrics: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Return what was noted together with `metrics`, and begin anew. Training thread."""
        noted, self.noted = self.noted, {}
        if metrics is None:
            return noted
        with guard("metrics", self.report):
            return {**noted, **metrics}
        self.record(noted)
        return metrics

    def record(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Record metrics of a step that is over, without a control point. Training thread."""
        self._assert_training_thread("record")
        self.metrics.record(
            self.step_numbers.beside(step),
            metrics,
            self.clock.monotonic() - self._t0,
            self._branch_id,
            self._round,
        )

    def report_eval(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Tell that ``control.evaluate`` was done, and what came out. Training thread."""
        self.record(metrics, step)
        self.gate.paid("evaluate", dict(metrics))

    def checkpoint_saved(self, path: Any, step: int | None = None, tag: str | None = None) -> None:
        """Tell that a checkpoint file is complete. Training thread."""
        entry = {
            "path": str(path),
            "step": self.step_numbers.beside(step),
            "tag": tag,
            "branch_id": self._branch_id,
            "round": self._round,
        }
        self.checkpoints.append(entry)
        self.emit("checkpoint_saved", entry)
        self.gate.paid("save", entry)

    def checkpoint_loaded(self, path: Any, step: int | None = None) -> None:
        """Tell that ``control.load`` was done. Training thread."""
        entry = {"path": str(path), "step": self.step_numbers.beside(step)}
        self.emit("checkpoint_loaded", entry)
        self.gate.paid("load", entry)

    def module_reset(self, name: str) -> None:
        """Tell that a module of ``control.reset`` was initialised anew. Training thread."""
        self.emit("module_reset", {"name": name})
        self.gate.paid("reset", {"name": name})

    def subscribe(self, **options: Any) -> Any:
        """Follow the journal; see `Journal.subscribe`. Any thread."""
        return self.journal.subscribe(**options)

    def emit(
        self,
        type: str,
        payload: Mapping[str, Any],
        *,
        source: str | None = None,
        action_id: str | None = None,
    ) -> None:
        """Write a row of our own into the journal. Any thread; lost after the end."""
        self.write_rows([(type, dict(payload))], source=source, action_id=action_id)

    def warn(self, text: str) -> None:
        """Tell people something, once: a row, and a line in the panel. Any thread."""
        text = whole(text)
        if text not in self.warnings:
            self.alert(text)
            self.emit("note", {"text": text, "level": "warning"})

    def warn_of_value(self, name: str, why: str) -> None:
        """Tell that a metric's value was left out. Training thread."""
        if name:
            self.warn(
                f"the metric {name!r} was left out: {why}; a metric is a number or a "
                f"zero-dimensional tensor (.item(), .mean())"
            )
        else:
            self.warn(
                f"metrics were left out: {why}; they are a mapping of names to numbers or "
                f"zero-dimensional tensors, such as {{'loss': 0.5}}"
            )

    def alert(self, text: str) -> None:
        """Show a line in the panel; whoever alerts has written a row of its own. Any thread."""
        text = whole(text)
        if text not in self.warnings:
            self.warnings.append(text)
            del self.warnings[:-MAX_WARNINGS]

    def report(self, fault: Fault) -> None:
        """Record a fault in steering; the training goes on. Any thread."""
        self._fault_rows += 1
        if self._fault_rows <= MAX_FAULT_ROWS:
            self.emit(
                "note",
                {
                    "text": f"{fault.where}: {fault.error}",
                    "level": "error",
                    "traceback": fault.traceback[-2000:],
                },
            )
        self.alert(f"{fault.where}: {fault.error}")

    def write_rows(
        self,
        rows: Sequence[tuple[str, dict[str, Any]]],
        *,
        source: str | None = None,
        action_id: str | None = None,
    ) -> bool:
        """Write rows at the present step; False when the disk refused them. Any thread."""
        if self._ended.is_set():
            return False
        try:
            return self.journal.append_many(
                rows,
                step=self._step,
                branch_id=self._branch_id,
                round=self._round,
                source=source,
                action_id=action_id,
            )
        except JournalError:
            if self.journal.is_closed:  # another thread ended the run in between
                return False
            raise

    def _owner_lives(self) -> bool:
        return self._owner_thread is not None and self._owner_thread.is_alive()

    def _assert_training_thread(self, what: str) -> None:
        if self._owner is not None and self._owner != get_ident() and self._owner_lives():
            raise WrongThread(
                f"session.{what} was called on {threading.current_thread().name!r}; only the "
                f"training thread may"
            )
