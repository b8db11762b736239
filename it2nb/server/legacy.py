"""The routes of the first Interactive Training release, over the same requests.

Its commands arrive as ``{command, args: "<JSON in a string>", time, uuid, status}``; each becomes
one request of ours, whose result goes back as a message of the same form. What that release
acknowledged whatever became of it is told here as it is: ``failed`` with the reason.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.websockets import WebSocket

from it2nb.server import legacy_commands, legacy_views
from it2nb.server.answers import Refusal, answer
from it2nb.server.legacy_messages import Messages
from it2nb.server.serving import Serving
from it2nb.server.shapes import problems


class Command(BaseModel):
    """A command of the first release."""

    command: str = Field(min_length=1, max_length=200)
    args: str | None = Field(default=None, max_length=200_000)
    time: float = 0.0
    uuid: str = Field(default="", max_length=128)
    status: str = Field(default="requested", max_length=40)


class Reply(BaseModel):
    """Whether a command was taken; what became of it is a message on the socket."""

    status: str
    message: str | None = None


def add_routes(app: FastAPI, serving: Serving) -> None:
    """Add ``/api/...`` and ``/ws/message/``."""
    from it2nb.server.app import body_of

    messages = Messages(serving)
    views = {
        "get_info": legacy_views.info,
        "get_optimizer_info": legacy_views.optimizer,
        "get_model_info": legacy_views.model,
        "get_dataset_info": legacy_views.dataset,
        "get_checkpoints": legacy_views.checkpoints,
        "get_logs": legacy_views.logs,
    }
    for name, view in views.items():
        _add_view(app, serving, name, view)

    body = {"schema": {"$ref": "#/components/schemas/Command"}}
    takes = {"requestBody": {"required": True, "content": {"application/json": body}}}

    @app.post("/api/command/", response_model=Reply, responses=problems(400, 413, 415, 422),
              openapi_extra=takes, tags=["first release"])  # fmt: skip
    async def command(request: Request) -> Response:
        """Take a command of the first release."""
        try:
            asked = await body_of(request, Command)
            action = legacy_commands.action_of(asked, serving.session)
        except Refusal as err:
            told = {"status": "error", "message": err.detail, "detail": err.detail}
            return answer(told, err.status)
        messages.remember(action.id, asked)
        serving.session.submit(action, source="http")
        return answer({"status": "success"})

    @app.websocket("/ws/message/")
    async def message_socket(websocket: WebSocket) -> None:
        # Before it is accepted: what the other end does once it is connected is told.
        position = serving.feed.next_seq
        await websocket.accept()
        await serving.converse(
            websocket, lambda: messages.write(websocket, position), lambda _: None, 20.0
        )


def _add_view(app: FastAPI, serving: Serving, name: str, view: Any) -> None:
    @app.get(f"/api/{name}/", responses=problems(), tags=["first release"], name=name,
             operation_id=name)  # fmt: skip
    async def show() -> Response:
        """What the first release shows at this address."""
        return answer(await run_in_threadpool(view, serving.session))
