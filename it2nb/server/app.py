"""The routes: state, actions, events, as DESIGN section 5 writes them down."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import orjson
from fastapi import FastAPI, Path, Query, Request
from fastapi.dependencies import models
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.websockets import WebSocket

from it2nb._version import __version__
from it2nb.core.actions import explain
from it2nb.core.queue import ActionHandle
from it2nb.core.strict import strict
from it2nb.core.wire import VERSION, Action, State
from it2nb.server import legacy, page
from it2nb.server.answers import JSON_TYPE, Refusal, answer
from it2nb.server.serving import Serving
from it2nb.server.shapes import (
    MCP,
    Accepted,
    Answered,
    Approval,
    Cancelled,
    EventsPage,
    problems,
)
from it2nb.server.sockets import stream

#: Largest seq that a client may name: what a JSON number holds exactly.
MAX_SEQ = 2**53
#: Events of one answer to ``GET /events``, by default and at most.
PAGE, MAX_PAGE = 10_000, 100_000

WaitS = Annotated[
    float, Query(ge=0, le=60, description="seconds to wait for a result or for events")
]
ActionId = Annotated[str, Path(min_length=1, max_length=128)]
Since = Annotated[int | None, Query(ge=0, le=MAX_SEQ, description="the first seq that is wanted")]
After = Annotated[
    int | None, Query(ge=0, le=MAX_SEQ, description="begin after this seq; wins over since")
]
Types = Annotated[list[str] | None, Query(max_length=40, description="only events of these types")]


def make_app(serving: Serving, root_path: str) -> FastAPI:
    """Make the ASGI application of one session; `Shield` has to stand before it."""
    app = FastAPI(
        title="it2nb",
        version=__version__,
        summary="Steer one live training run, and read its record.",
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    _speak_json(app)
    _state_and_actions(app, serving)
    _events(app, serving)
    page.add_routes(app, serving)
    legacy.add_routes(app, serving)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return answer(orjson.dumps(document(app, root_path)))

    return app


Model = TypeVar("Model", bound=BaseModel)


async def body_of(request: Request, model: type[Model]) -> Model:
    """Read the JSON body of a request; raises the Refusal that a bad one deserves."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON_TYPE:
        # Also what keeps pages of other sites out: without asking first, which is refused,
        # they can send text/plain and forms only.
        raise Refusal(415, f"content-type is {kind[:80]!r}, it has to be {JSON_TYPE}")
    try:
        found = orjson.loads(await request.body())
    except orjson.JSONDecodeError as err:
        raise Refusal(400, f"the body is no JSON: {err}") from None
    try:
        return model.model_validate(found, strict=True)
    except ValidationError as err:
        raise Refusal(422, explain(err)) from None


def forget() -> None:
    """Let go of the routes of servers that are over, and with them of their runs. Any thread.

    FastAPI keeps the functions of the last thousands of routes in caches of its module, where
    nobody ever takes them out; ours know their session. Whoever still serves looks them up anew.
    """
    for each in list(vars(models).values()):
        clear = getattr(each, "cache_clear", None)
        if clear is not None:
            clear()


def _state_and_actions(app: FastAPI, serving: Serving) -> None:
    session = serving.session

    @app.get("/state", response_model=State, responses=problems(), tags=["run"])
    async def state() -> Response:
        """Where the run is: status, step, knobs, actions, newest metrics."""
        # The getters of knobs are foreign code; here they can't hold up everybody else.
        found: State = await run_in_threadpool(session.state)
        return answer(found.json_bytes())

    @app.post(
        "/actions", response_model=Accepted, responses=problems(400, 413, 415, 422),
        openapi_extra=_takes("Action"), tags=["run"],
    )  # fmt: skip
    async def submit(request: Request, wait: WaitS = 0.0) -> Response:
        """Ask the run to do something. The result is an event, and here when one waits."""
        action = await body_of(request, Action)
        behalf = "agent" if MCP in (action.actor, action.source) else None
        handle: ActionHandle = session.door.enter(action, "http", behalf=behalf)
        await serving.result(handle, wait)
        return answer(_told(handle))

    @app.get("/actions/{action_id:path}", response_model=Accepted, responses=problems(404, 422),
             tags=["run"])  # fmt: skip
    async def look(action_id: ActionId, wait: WaitS = 0.0) -> Response:
        """What became of a request."""
        handle = _known(serving, action_id)
        await serving.result(handle, wait)
        return answer(_told(handle))

    @app.delete("/actions/{action_id:path}", response_model=Cancelled, responses=problems(404, 422),
                tags=["run"])  # fmt: skip
    async def cancel(action_id: ActionId) -> Response:
        """Take a request back that was not served yet."""
        done = _known(serving, action_id).cancel()
        return answer({"v": VERSION, "id": action_id, "cancelled": done})

    @app.post(
        "/actions/{action_id:path}/approval", response_model=Answered,
        responses=problems(400, 404, 413, 415, 422), openapi_extra=_takes("Approval"),
        tags=["run"],
    )  # fmt: skip
    async def approve(action_id: ActionId, request: Request) -> Response:
        """Answer a request that waits for a person."""
        _known(serving, action_id)
        said = await body_of(request, Approval)
        call = session.approve if said.approve else session.refuse
        return answer({"v": VERSION, "id": action_id, "answered": call(action_id, by=said.by)})


def _events(app: FastAPI, serving: Serving) -> None:
    @app.get("/events", response_model=EventsPage, responses=problems(422), tags=["record"])
    async def events(
        since: Since = None,
        after: After = None,
        types: Types = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = PAGE,
        wait: WaitS = 0.0,
    ) -> Response:
        """Events in order; go on with the `next` of the answer."""
        seq = start(since, after)
        chunk = await serving.events(seq, frozenset(types or ()), limit, wait)
        head = {"v": VERSION, "run_id": serving.session.run_id, "next": chunk.next,
                "gap": None if chunk.gap is None else chunk.gap.as_dict()}  # fmt: skip
        # The events are JSON already.
        body = orjson.dumps(head)[:-1] + b',"events":[' + b",".join(chunk.lines) + b"]}"
        return answer(body, headers={"x-it2nb-run": _header(serving.session.run_id)})

    @app.websocket("/events")
    async def events_socket(
        websocket: WebSocket,
        since: Since = None,
        after: After = None,
        types: Types = None,
        batch: bool = False,
        packed: bool = False,
    ) -> None:
        await stream(
            serving, websocket, start(since, after), frozenset(types or ()),
            batch=batch or packed, packed=packed,
        )  # fmt: skip


def start(since: int | None, after: int | None) -> int:
    """Return the first seq that is asked for."""
    if after is not None:
        return after + 1
    return since or 0


def _known(serving: Serving, action_id: str) -> ActionHandle:
    handle: ActionHandle | None = serving.session.queue.known(action_id)
    if handle is None:
        raise Refusal(404, f"no request has the id {action_id[:128]!r}")
    return handle


def _told(handle: ActionHandle) -> dict[str, Any]:
    result = None
    if handle.done():
        result, odd = strict(handle.result(0).model_dump())
        if odd:
            result["nonfinite"] = odd
    return {"v": VERSION, "id": handle.id, "status": handle.status, "result": result}


def _header(text: str) -> str:
    return text.encode("ascii", "replace").decode()


# ------------------------------------------------------------------------------ the document


def _speak_json(app: FastAPI) -> None:
    """Make every error an answer of ours."""

    @app.exception_handler(Refusal)
    async def refused(_: Request, err: Refusal) -> Response:
        return err.response()

    @app.exception_handler(RequestValidationError)
    async def senseless(_: Request, err: RequestValidationError) -> Response:
        first = err.errors()[0]
        where = ".".join(str(each) for each in first["loc"])
        return Refusal(422, f"{where}: {first['msg']}").response()

    @app.exception_handler(HTTPException)
    async def failed(_: Request, err: HTTPException) -> Response:
        return Refusal(err.status_code, str(err.detail), err.headers or {}).response()

    @app.exception_handler(Exception)
    async def broken(_: Request, err: Exception) -> Response:
        return Refusal(500, f"the server failed on this request ({type(err).__name__}); "
                            "the run goes on").response()  # fmt: skip


def _takes(model: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{model}"}
    return {"requestBody": {"required": True, "content": {JSON_TYPE: {"schema": schema}}}}


def document(app: FastAPI, root_path: str) -> dict[str, Any]:
    """Return the OpenAPI document: what FastAPI finds, the bodies that we read, the token."""
    if app.openapi_schema is None:
        found = app.openapi()
        models: list[tuple[type[BaseModel], Any]] = [
            (model, "validation") for model in (Action, Approval, legacy.Command)
        ]
        _, extra = models_json_schema(models, ref_template="#/components/schemas/{model}")
        components = found.setdefault("components", {})
        components.setdefault("schemas", {}).update(extra.get("$defs", {}))
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
        found["servers"] = [{"url": root_path or "/"}]
        app.openapi_schema = found
    return app.openapi_schema
