"""The shapes of the server's answers, for its OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from it2nb.core.wire import ActionResult, Event, Status

#: The actor of assistants behind an MCP server: the run's rules for agents hold for them too.
MCP = "mcp"


class Accepted(BaseModel):
    """A request that the session has, and its result as far as it is there."""

    v: Literal[2] = 2
    id: str
    status: Status
    result: ActionResult | None = None


class Cancelled(BaseModel):
    """Whether a request was taken back before it was served."""

    v: Literal[2] = 2
    id: str
    cancelled: bool


class Approval(BaseModel):
    """A person's answer to a request that waits for one."""

    approve: bool
    by: str = Field(default="human", max_length=200)


class Answered(BaseModel):
    """Whether there was a request that waited for the answer."""

    v: Literal[2] = 2
    id: str
    answered: bool


class GapView(BaseModel):
    """Events that are gone: the session keeps only the newest, or has no file."""

    model_config = {"populate_by_name": True}

    first: int = Field(alias="from")
    last: int = Field(alias="to")


class EventsPage(BaseModel):
    """Events in order, and the seq to go on with."""

    v: Literal[2] = 2
    run_id: str
    events: list[Event]
    next: int
    gap: GapView | None = None


class Problem(BaseModel):
    """Why a request was refused."""

    v: Literal[2] = 2
    detail: str


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the refusals that a route may answer with; those of the door are in all."""
    told = {
        400: "The body is no JSON",
        401: "No valid token",
        403: "Host or Origin are not allowed",
        404: "There is no such thing",
        413: "The body is too long",
        415: "The body has to be application/json",
        422: "The request makes no sense; the detail says why",
        429: "Too many requests",
    }
    return {
        status: {"model": Problem, "description": told[status]}
        for status in sorted({401, 403, 429, *statuses})
    }
