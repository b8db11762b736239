"""A run with a bounded lr, whose loop waits for a model at every tenth step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import it2nb
from it2nb.controllers.llm import LLMAgent
from tests.controllers.endpoint import Endpoint, Line, Says

KEY = "sk-secret-12345"

LIMIT_S = 30.0


class Run:
    """A session with a bounded lr, whose loop waits for an agent at every tenth step."""

    def __init__(self, *script: Line, **options: Any) -> None:
        given = {"lr": 0.1}
        self.values = given
        self.endpoint = Endpoint(*script)
        self.options: dict[str, Any] = {"every": 10, "retries": 0, "timeout_s": LIMIT_S, **options}
        self.session = it2nb.TrainingSession(
            goal="loss", directory=self.options.pop("directory", None), title="agents"
        )
        self.session.register_knob(
            "lr", lambda: given["lr"], lambda v: given.update(lr=v), min=1e-5, max=1.0
        )
        self.blocking = self.options.pop("blocking", True)
        self.agent: LLMAgent | None = None

    def train(self, steps: int = 10, before: Callable[[Any], Any] = lambda session: None) -> Run:
        """Train with the agent; the endpoint lives as long."""
        with self.endpoint as endpoint:
            self.agent = LLMAgent("tiny", base_url=endpoint.url, api_key=KEY, **self.options)
            self.attached = self.session.attach(self.agent, blocking=self.blocking)
            before(self.session)
            with self.session.run():
                for step in range(1, steps + 1):
                    if self.session.step({"loss": 1 / step}).stop:
                        break
        return self

    def requests(self) -> list[tuple[str, str, str]]:
        """Type, status and reason of each request of the agent."""
        frame = self.session.journal.requests()
        asked = frame[frame["source"] == "agent"]
        assert set(asked["actor"]) <= {"llm"}
        reasons = asked["reason"].where(asked["reason"].notna(), "")
        return list(zip(asked["type"], asked["status"], reasons, strict=True))

    def rows(self, type: str) -> list[dict[str, Any]]:
        """The rows of one type."""
        frame = self.session.journal.frame()
        return list(frame[frame["type"] == type]["payload"])


def set_lr(value: Any, reason: str = "flat") -> Says:
    return Says("lower", [("set_knob", {"name": "lr", "value": value, "reason": reason})])
