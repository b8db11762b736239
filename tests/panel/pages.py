"""A page that shows a panel, as far as the kernel can tell: it keeps what it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from it2nb.core.wire import new_id

#: A guard against deadlock, not a measure of speed.
PATIENCE_S = 60.0


class Page:
    """Hears all messages and follows their numbers, as js/src/store.ts does."""

    def __init__(self, name: str = "page") -> None:
        self.name = name
        self.messages: list[dict[str, Any]] = []
        self.curves: dict[str, dict[float, float]] = {}
        self.sizes: list[int] = []
        self.deaf = False
        self._news = threading.Condition()

    def send(self, content: dict[str, Any], buffers: list[bytes]) -> bool:
        """Be the `send` of a Bridge."""
        text = json.dumps(content, allow_nan=False)
        with self._news:
            if self.deaf:
                return True
            self.messages.append(json.loads(text))
            self.sizes.append(len(text) + sum(map(len, buffers)))
            data = np.frombuffer(buffers[0], "<f8") if buffers else np.empty(0)
            if content["kind"] in ("snapshot", "batch"):
                for curve in content["curves"]:
                    at, count = curve["at"], curve["count"]
                    steps = data[at : at + count].tolist()
                    values = data[at + 2 * count : at + 3 * count].tolist()
                    self.curves.setdefault(curve["name"], {}).update(
                        zip(steps, values, strict=True)
                    )
            self._news.notify_all()
        return True

    def wait(self, wanted: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Return the first message that is wanted, once it is there."""
        with self._news:
            found = self._news.wait_for(
                lambda: next((each for each in self.messages if wanted(each)), None), PATIENCE_S
            )
        assert found is not None, f"never came; there were {[m['kind'] for m in self.messages]}"
        return found

    def of(self, kind: str) -> list[dict[str, Any]]:
        with self._news:
            return [each for each in self.messages if each["kind"] == kind]

    def rows(self) -> list[dict[str, Any]]:
        with self._news:
            return [row for each in self.messages for row in each.get("rows", ())]

    def clear(self) -> None:
        with self._news:
            self.messages.clear()

    # ------------------------------------------------------------------------------ requests

    def hello(self, **more: Any) -> dict[str, Any]:
        return {"v": 2, "kind": "hello", "client": self.name, **more}

    def submit(self, type: str, **payload: Any) -> dict[str, Any]:
        action = {"v": 2, "type": type, "payload": payload, "id": new_id()}
        return {"v": 2, "kind": "submit", "client": self.name, "action": action}
