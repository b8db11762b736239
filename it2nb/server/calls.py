"""What a client asks a server, without the network: the same for both clients.

A call is a generator: it yields `Call` and `Pause`, is sent each answer, and returns what the
caller wants. `Client` and `AsyncClient` only carry the answers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

import orjson

from it2nb.core.errors import Refused, ServerError, Unreachable
from it2nb.core.strict import restore, strict
from it2nb.core.wire import Action, ActionResult

#: Where a client finds a token that was not given.
TOKEN_VARIABLE = "IT2NB_TOKEN"
#: The server holds a request that long at most.
LONGEST_WAIT_S = 60.0
#: Between two tries of a call that found nobody.
RETRY_S = 0.1
#: For a server that is asked too much at once.
PATIENCE_S = 30.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    body: bytes | None = None
    #: Seconds that the server may take over it, beside the network's own.
    wait_s: float = 0.0
    #: Whether it may be sent again when the answer was lost.
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait that long, seconds."""

    wait_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Asked = Generator[Call | Pause, Any, T]


class Address:
    """Where a server is, and the token for it; the token shows in no repr.

    Parameters
    ----------
    url : str
        ``http://127.0.0.1:8765``, with a path behind a proxy; a link that holds the token will
        do.
    token : str, optional
        From the link, or from ``IT2NB_TOKEN``.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ServerError(f"url={_bare(url)!r} is no address such as http://127.0.0.1:8765")
        inside = parse_qs(parts.query).get("token", [None])[0]
        self.token = token or inside or os.environ.get(TOKEN_VARIABLE) or ""
        self.url = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
        self.is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        return {"authorization": f"Bearer {self.token}"} if self.token else {}

    def socket(self, path: str) -> str:
        """Return the address of a WebSocket."""
        return "ws" + self.url.removeprefix("http") + path

    def __repr__(self) -> str:
        return _bare(self.url)


def _bare(url: str) -> str:
    """Return an address without what may be secret in it."""
    head, tilde, rest = url.partition("/~")
    if tilde:
        return f"{head}/~...{rest[rest.find('/') :] if '/' in rest else ''}"
    return url.partition("?")[0]


# --------------------------------------------------------------------------------------- calls


def state(patient: bool = True) -> Asked[dict[str, Any]]:
    """Fetch the state, as the server sends it; `patient` tries again when nobody answers."""
    found = yield from json_of(Call("GET", "/state", repeatable=patient), 0.0)
    if not isinstance(found, dict):
        raise ServerError(
            f"/state is {type(found).__name__}, not an object: is it an it2nb server?"
        )
    return found


def submit(action: Action, wait_s: float) -> Asked[dict[str, Any]]:
    """Send a request; returns what the server says of it.

    Sending it again is safe: a used id is not run twice.
    """
    body = action.model_dump(exclude_none=True)
    call = Call("POST", "/actions", _wait(wait_s), orjson.dumps(body, default=_plain))
    told: dict[str, Any] = yield from json_of(call, wait_s)
    return told


def look(action_id: str, wait_s: float) -> Asked[dict[str, Any]]:
    """Ask what became of a request."""
    call = Call("GET", f"/actions/{_quoted(action_id)}", _wait(wait_s))
    told: dict[str, Any] = yield from json_of(call, wait_s)
    return told


def cancel(action_id: str) -> Asked[bool]:
    """Take a request back."""
    found = yield from json_of(Call("DELETE", f"/actions/{_quoted(action_id)}"), 0.0)
    return bool(found.get("cancelled"))


def approve(action_id: str, approve: bool, by: str) -> Asked[bool]:
    """Answer a request that waits for a person."""
    body = orjson.dumps({"approve": approve, "by": by})
    path = f"/actions/{_quoted(action_id)}/approval"
    found = yield from json_of(Call("POST", path, body=body), 0.0)
    return bool(found.get("answered"))


def events(params: Mapping[str, Any], wait_s: float) -> Asked[dict[str, Any]]:
    """Fetch a page of events."""
    call = Call("GET", "/events", {**params, **_wait(wait_s)})
    found: dict[str, Any] = yield from json_of(call, wait_s)
    return found


def json_of(call: Call, wait_s: float) -> Asked[Any]:
    """Return the JSON of an answer; raises what a refusal means, after trying again if told so."""
    if wait_s:
        call = Call(call.method, call.path, call.params, call.body, wait_s, call.repeatable)
    patience = Deadline(PATIENCE_S)
    while True:
        answer: Answer = yield call
        if answer.status != 429 or patience.left <= 0:
            return parsed(answer)
        yield Pause(_number(answer.headers.get("x-it2nb-retry-s"), 1.0))


def parsed(answer: Answer) -> Any:
    """Read an answer; raises Refused for one that is an error."""
    try:
        found = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        found = None
    if answer.status >= 400:
        raise Refused(answer.status, reason_of(answer.body))
    if found is None:
        raise ServerError(f"the answer is no JSON: {answer.body[:80]!r}; is it an it2nb server?")
    return found


def reason_of(body: bytes) -> str:
    """Return the reason that a refusal gives."""
    try:
        found = orjson.loads(body)
        return str(found["detail"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace").strip() or "no reason given"


def is_ours(body: bytes) -> bool:
    """Whether a refusal comes from a server of this kind, and not from a proxy before it."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return isinstance(found, dict) and "detail" in found


def result_of(told: Mapping[str, Any]) -> ActionResult | None:
    """Return the result in what a server said of a request; None while there is none."""
    found = told.get("result")
    if not isinstance(found, dict):
        return None
    return ActionResult.model_validate(restore(found, found.get("nonfinite")))


def action_of(
    action: Action | Mapping[str, Any] | str,
    payload: Mapping[str, Any] | None,
    actor: str | None,
    more: Mapping[str, Any],
) -> Action:
    """Make the request that a caller means."""
    if isinstance(action, Action):
        made = action
    elif isinstance(action, str):
        made = Action(type=action, payload=dict(payload or {}), **more)
    else:
        made = Action.model_validate(dict(action))
    if actor is not None and made.actor is None and made.source is None:
        made = made.model_copy(update={"actor": actor})
    return made


class Deadline:
    """How much time is left.

    Parameters
    ----------
    timeout : float or None
        Seconds; None for no end.
    """

    def __init__(self, timeout: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._timeout = timeout
        self.restart()

    def restart(self) -> None:
        """Count anew from now."""
        self._end = None if self._timeout is None else self._clock() + self._timeout

    @property
    def left(self) -> float:
        """Seconds; infinite without an end."""
        return float("inf") if self._end is None else max(0.0, self._end - self._clock())

    def wait_s(self) -> float:
        """Seconds to ask the server to wait."""
        return min(self.left, LONGEST_WAIT_S / 2)


def lost(address: Address, err: Exception | str) -> Unreachable:
    """Make the error for a server that does not answer."""
    said = err if isinstance(err, str) else f"{type(err).__name__}: {err}".rstrip(": ")
    return Unreachable(f"no answer from {address!r} ({said}); is the run's server still up?")


def _wait(wait_s: float) -> dict[str, Any]:
    return {"wait": f"{min(wait_s, LONGEST_WAIT_S):.3f}"} if wait_s > 0 else {}


def _quoted(action_id: str) -> str:
    return quote(action_id, safe="")


def _number(text: str | None, default: float) -> float:
    try:
        return min(10.0, max(0.01, float(text or "")))
    except ValueError:
        return default


def _plain(value: Any) -> Any:
    return strict(value)[0]
