"""A run that moves only when a test says so, and its real server on 127.0.0.1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

from it2nb.core.session import Session
from it2nb.server.server import Server, serve
from tests.core.driving import LIMIT_S, Loop


class Served:
    """A session with one knob, its loop, its server, and a plain HTTP client."""

    def __init__(self, folder: Path | None, *, retain: int | None = None, **options: Any) -> None:
        self.values = {"lr": 0.1, "wd": 0.0}
        self.session = Session(directory=folder, title="served", retain=retain)
        for name, low, high in (("lr", 1e-6, 1.0), ("wd", 0.0, 0.5)):
            self.session.register_knob(
                name,
                lambda name=name: self.values[name],  # type: ignore[misc]
                lambda value, name=name: self.values.__setitem__(name, value),  # type: ignore[misc]
                min=low,
                max=high,
                out_of_bounds="reject",
            )
        self.loop = Loop(self.session, lambda: self.values["lr"])
        self.server: Server = serve(self.session, **options)
        self.http = self.client()

    def client(self, **headers: str) -> httpx.Client:
        """Make a client that knows the token; the caller closes it."""
        return httpx.Client(
            base_url=self.server.url,
            headers={"authorization": f"Bearer {self.server.token}", **headers},
            timeout=LIMIT_S,
            trust_env=False,
        )

    def socket(self, path: str, **options: Any) -> ClientConnection:
        """Open a WebSocket that knows the token."""
        headers = {"authorization": f"Bearer {self.server.token}", **options.pop("headers", {})}
        return connect(
            f"ws://127.0.0.1:{self.server.port}{path}",
            additional_headers=headers,
            open_timeout=LIMIT_S,
            ping_interval=None,
            compression=None,
            max_size=None,
            proxy=None,
            **options,
        )

    def post(self, type: str, payload: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Ask for something and return what the server says."""
        answer = self.http.post("/actions", json={"type": type, "payload": payload, **more})
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def close(self) -> None:
        """End all of it."""
        self.http.close()
        if not self.session.is_ended:
            self.loop.finish()
        self.server.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Serve a run that keeps its journal in a file."""
    made = Served(tmp_path / "runs")
    yield made
    made.close()
