"""A steered run with the package alone: no PyTorch, no notebook, none of the extras.

    python scripts/bare.py

Steers a loop of plain Python from another thread, then reads the record back from its file.
"""

from __future__ import annotations

import sys
import tempfile
import threading

import it2nb


def main(folder: str) -> None:
    """Run, steer, and check the record."""
    settings = {"lr": 0.1}
    session = it2nb.TrainingSession(goal="loss", title="bare", directory=folder)
    session.register_knob(
        "lr",
        get=lambda: settings["lr"],
        set=lambda value: settings.update(lr=value),
        min=1e-4,
        max=1.0,
        scale="log",
    )

    def steer() -> None:
        for value in (0.01, 99.0, float("nan")):
            session.submit(
                {"type": "set_knob", "payload": {"name": "lr", "value": value}}, wait=True
            )
        session.stop()

    hand = threading.Thread(target=steer)
    hand.start()
    weight, step = 5.0, 0
    with session.run():
        while not session.step({"loss": (weight - 1) ** 2}, step=step).stop:
            weight -= settings["lr"] * 2 * (weight - 1)
            step += 1
    hand.join()

    assert session.path is not None
    record = it2nb.open(session.path)
    requests = record.requests()
    assert list(requests["status"]) == ["applied", "clamped", "rejected", "applied"], requests
    assert settings["lr"] == 1.0, settings
    heavy = {"torch", "IPython", "ipykernel", "anywidget"} & sys.modules.keys()
    assert not heavy, f"a script without a notebook loaded {sorted(heavy)}"
    print(f"{step} steps; " + "; ".join(f"{r.type} {r.status}" for r in requests.itertuples()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        main(where)
