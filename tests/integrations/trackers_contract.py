"""What holds for every tracker; each one's tests subclass it and read its files back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import it2nb


def steered(session: it2nb.TrainingSession) -> None:
    """A run with a change, a refusal, a note, and a second branch."""
    values = {"lr": 0.1}
    session.register_knob("lr", lambda: values["lr"], lambda v: values.update(lr=v), max=1.0)
    with session.run():
        for step in range(1, 31):
            if step == 10:
                session.set("lr", 0.05)
            if step == 12:
                session.set("no_such_knob", 1.0)
            if step == 15:
                session.do("note", text="looks fine")
            session.step({"loss": 1.0 / step, "odd": float("nan") if step == 3 else 0.0})
        for step in range(21, 26):  # the loop gives a step again: another branch
            session.step({"loss": 2.0 / step}, step=step)


class TrackerContract:
    """Subclass it, say `name`, and read back what the tracker has written."""

    name: str

    def read(self, folder: Path, session: it2nb.TrainingSession) -> dict[str, Any]:
        """Return ``{"loss": {step: value}, "branch": ..., "lr": ..., "marks", "status"}``."""
        raise NotImplementedError

    def test_metrics_and_interventions_are_copied(self, tmp_path):
        session = it2nb.TrainingSession(
            "loss", directory=tmp_path / "runs", title="tracked", seed=3
        )
        tracking = session.track(self.name, end_wait_s=100.0, dir=tmp_path / "store")
        assert tracking is not None
        steered(session)
        assert tracking.error is None, repr(tracking.error)
        assert tracking.is_over
        found = self.read(tmp_path / "store", session)
        assert found["loss"].keys() == set(range(1, 31))
        assert abs(found["loss"][10] - 0.1) < 1e-6
        assert found["branch"].keys() == set(range(21, 26))
        assert {step: round(value, 6) for step, value in found["lr"].items()} == {10: 0.05}
        assert "set_knob lr: 0.1 → 0.05 (python)" in "\n".join(found["marks"])
        assert found["status"] in ("finished", "FINISHED")
