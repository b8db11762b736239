"""A model's endpoint: a real HTTP server that answers from a script.

It speaks the chat-completions protocol and the messages protocol, whichever it is asked in.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Says:
    """Answer with a text, tool calls (name, arguments as a mapping or as raw text), or both."""

    text: str | None = None
    calls: Sequence[tuple[str, Mapping[str, Any] | str]] = ()
    tokens: tuple[int, int] | None = (100, 20)


@dataclass(frozen=True)
class Fails:
    """Answer with a status of HTTP."""

    status: int
    detail: str = "no"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hangs:
    """Answer only once `until` is set; the endpoint's end sets it too."""

    until: threading.Event
    then: Says = Says("late")


@dataclass(frozen=True)
class Raw:
    """Answer 200 with a body that is what it is."""

    body: str


@dataclass(frozen=True)
class Drops:
    """Close the connection without a word."""


Answer = Says | Fails | Hangs | Raw | Drops
#: What a script holds: an answer, or a function that makes one of the request's body.
Line = Answer | Callable[[dict[str, Any]], Answer]


@dataclass(frozen=True)
class Asked:
    """One request that came in."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def text(self) -> str:
        """All that the model was told, in one piece."""
        return json.dumps(self.body)

    @property
    def tools(self) -> list[str]:
        """Names of the tools that were offered."""
        told = [each.get("function", each) for each in self.body.get("tools", [])]
        return [each["name"] for each in told]


class Endpoint:
    """Answers each request with the next line of the script, and for ever with the last one."""

    def __init__(self, *script: Line) -> None:
        self.script: list[Line] = list(script) or [Says("nothing to do")]
        self.asked: list[Asked] = []
        #: Set at each request; for tests that wait for one.
        self.called = threading.Event()
        self._over = threading.Event()
        self._holding: list[threading.Event] = []
        self._lock = threading.Lock()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                body = json.loads(self.rfile.read(length) or b"{}")
                endpoint._answer(self, body)

            def log_message(self, *args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    @property
    def root(self) -> str:
        """Where the messages protocol is spoken."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """Where chat completions are spoken."""
        return f"{self.root}/v1"

    def __enter__(self) -> Endpoint:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        for each in self._holding:
            each.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def _answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        with self._lock:
            self.asked.append(Asked(handler.path, headers, body))
            line = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            self.called.set()
        answer = line(body) if callable(line) else line
        if isinstance(answer, Hangs):
            self._holding.append(answer.until)
            answer.until.wait(30)
            if self._over.is_set():
                return
            answer = answer.then
        if isinstance(answer, Drops):
            handler.close_connection = True
            return
        told: Mapping[str, str] = {}
        status = 200
        if isinstance(answer, Raw):
            text = answer.body
        elif isinstance(answer, Fails):
            status, told = answer.status, answer.headers
            text = json.dumps({"error": {"message": answer.detail, "type": "error"}})
        elif handler.path.endswith("/messages"):
            text = json.dumps(_message(answer))
        else:
            text = json.dumps(_completion(answer))
        data = text.encode()
        try:
            handler.send_response(status)
            for name, value in {"content-type": "application/json", **told}.items():
                handler.send_header(name, value)
            handler.send_header("content-length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            handler.close_connection = True  # whoever asked has given up


def _completion(says: Says) -> dict[str, Any]:
    """The answer in the chat-completions protocol."""
    message: dict[str, Any] = {"role": "assistant", "content": says.text}
    if says.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{index}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": given if isinstance(given, str) else json.dumps(given),
                },
            }
            for index, (name, given) in enumerate(says.calls)
        ]
    told: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": "tool_calls" if says.calls else "stop",
            }
        ],
    }
    if says.tokens is not None:
        given, made = says.tokens
        told["usage"] = {
            "prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made,
        }  # fmt: skip
    return told


def _message(says: Says) -> dict[str, Any]:
    """The answer in the messages protocol."""
    content: list[dict[str, Any]] = (
        [] if says.text is None else [{"type": "text", "text": says.text}]
    )
    for index, (name, given) in enumerate(says.calls):
        content.append({"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": given})
    given_tokens, made_tokens = says.tokens or (0, 0)
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "scripted",
        "content": content, "stop_reason": "tool_use" if says.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": given_tokens, "output_tokens": made_tokens},
    }  # fmt: skip
