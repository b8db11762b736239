"""CASES C58: any web page can open a local control socket, unless it is shown the door."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from it2nb.core.errors import ServerError
from it2nb.server.auth import Keys, new_token
from it2nb.server.limits import Limits
from tests.core.driving import LIMIT_S, until

from .conftest import Served

ROUTES = [
    ("GET", "/"),
    ("GET", "/static/page.mjs"),
    ("GET", "/state"),
    ("GET", "/events"),
    ("POST", "/actions"),
    ("GET", "/actions/x"),
    ("DELETE", "/actions/x"),
    ("POST", "/actions/x/approval"),
    ("GET", "/openapi.json"),
    ("GET", "/api/get_info/"),
    ("POST", "/api/command/"),
    ("GET", "/nothing/here"),
    ("OPTIONS", "/actions"),
]
SOCKETS = ["/events", "/panel", "/ws/message/"]


@pytest.fixture
def stranger(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.server.url, timeout=LIMIT_S, trust_env=False) as client:
        yield client


def secrets_of(served: Served) -> list[str]:
    return [served.session.run_id, "lr", "served"]


def refused_socket(served: Served, path: str, headers: dict[str, str]) -> tuple[int, str]:
    """Return status and body of a handshake that must be refused."""
    with pytest.raises(InvalidStatus) as caught:
        connect(
            f"ws://127.0.0.1:{served.server.port}{path}", additional_headers=headers, proxy=None
        )
    response = caught.value.response
    return response.status_code, bytes(response.body or b"").decode()


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_needs_the_token(
    served: Served, stranger: httpx.Client, method: str, path: str
) -> None:
    right = served.server.token
    for header in (None, "Bearer", "Bearer wrong", f"Basic {right}", f"Bearer {right}x", right):
        headers = {} if header is None else {"authorization": header}
        answer = stranger.request(method, path, headers=headers)
        assert answer.status_code == 401, (header, answer.text)
        assert "token" in answer.json()["detail"]
        assert not any(each in answer.text for each in secrets_of(served))
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("path", SOCKETS)
def test_every_socket_needs_the_token_before_it_is_accepted(served: Served, path: str) -> None:
    for query, headers in (
        ("", {}),
        ("?token=", {}),
        ("?token=wrong", {}),
        ("", {"Authorization": "Bearer wrong"}),
    ):
        status, body = refused_socket(served, path + query, headers)
        assert status == 401
        assert "token" in json.loads(body)["detail"]


def test_the_token_is_taken_from_a_header_and_in_a_query_for_page_and_sockets_alone(
    served: Served, stranger: httpx.Client
) -> None:
    token = served.server.token
    assert stranger.get("/state", headers={"authorization": f"bearer {token}"}).status_code == 200
    assert stranger.get("/", params={"token": token}).status_code == 200
    assert stranger.get("/state", params={"token": token}).status_code == 401
    assert stranger.post("/actions", params={"token": token}, json={}).status_code == 401
    with connect(f"ws://127.0.0.1:{served.server.port}/events?token={token}", proxy=None) as opened:
        assert json.loads(opened.recv(timeout=LIMIT_S))["seq"] == 0


@pytest.mark.parametrize("query", ["", "?token=wrong", "?ticket=used"])
def test_a_browser_without_the_token_reads_where_the_link_is(
    served: Served, stranger: httpx.Client, query: str
) -> None:
    accept = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    told = stranger.get(f"/{query}", headers=accept)
    assert told.status_code == 401
    assert told.headers["content-type"].startswith("text/html")
    assert "print(server.page)" in told.text
    assert not any(each in told.text for each in secrets_of(served))
    for path, headers in (("/state", accept), ("/", {"accept": "*/*"})):
        plain = stranger.get(path, headers=headers)
        assert (plain.status_code, plain.headers["content-type"]) == (401, "application/json")


def test_clients_that_can_send_no_header_have_it_in_the_path(
    stranger: httpx.Client, served: Served
) -> None:
    base = served.server.plain_url
    assert stranger.get(f"{base}/state").status_code == 200
    told = stranger.post(f"{base}/actions", json={"type": "note", "payload": {"text": "x"}})
    assert told.status_code == 200
    assert stranger.get(f"{served.server.url}/~wrong/state").status_code == 401
    assert stranger.get(f"{served.server.url}/~/state").status_code == 401


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:80", "", "a b"])
def test_a_rebound_host_name_is_refused_even_with_the_token(served: Served, host: str) -> None:
    for target, more in (("/state", "Connection: close\r\n"), ("/events", UPGRADE)):
        said = raw(
            served,
            f"GET {target}?token={served.server.token} HTTP/1.1\r\nHost: {host}\r\n"
            f"Authorization: Bearer {served.server.token}\r\n{more}\r\n",
        )
        # What is no host at all is refused by the HTTP parser itself.
        assert said.split()[1] in ("403", "400"), said
        assert not any(each in said for each in secrets_of(served))


UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


def raw(served: Served, request: str) -> str:
    """Send a request as it stands; return what comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", served.server.port), LIMIT_S) as sock:
        sock.sendall(request.encode())
        found = b""
        while part := sock.recv(65_536):
            found += part
    return found.decode("latin-1")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost.evil.example"])
def test_pages_of_other_origins_are_refused_even_with_the_token(
    served: Served, origin: str
) -> None:
    for method, path in (("GET", "/state"), ("POST", "/actions"), ("GET", "/"), ("GET", "/events")):
        answer = served.http.request(method, path, headers={"origin": origin})
        assert answer.status_code == 403, (method, path)
        assert not any(each in answer.text for each in secrets_of(served))
    for path in SOCKETS:
        status, _ = refused_socket(
            served, f"{path}?token={served.server.token}", {"Origin": origin}
        )
        assert status == 403
    assert served.session.result("never") is None


def test_a_foreign_post_changes_nothing(served: Served) -> None:
    body = json.dumps({"type": "stop", "payload": {}, "id": "foreign"})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = served.http.post("/actions", content=body, headers={"content-type": kind})
        assert answer.status_code == 415, kind
        assert "application/json" in answer.json()["detail"]
    assert served.session.result("foreign") is None
    assert not served.session.stop_requested


def test_what_a_browser_calls_cross_site_is_refused_but_for_a_link_to_the_page(
    served: Served,
) -> None:
    cross = {"sec-fetch-site": "cross-site"}
    assert served.http.get("/state", headers=cross).status_code == 403
    assert served.http.get("/", headers={**cross, "sec-fetch-mode": "no-cors"}).status_code == 403
    followed = served.http.get("/", headers={**cross, "sec-fetch-mode": "navigate"})
    assert followed.status_code == 200
    same = {"sec-fetch-site": "same-origin", "origin": served.server.url}
    assert served.http.get("/state", headers=same).status_code == 200


def test_a_preflight_gets_no_permission(served: Served, stranger: httpx.Client) -> None:
    asking = {
        "origin": "http://evil.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    for client in (served.http, stranger):
        answer = client.options("/actions", headers=asking)
        assert answer.status_code >= 400
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_default_address_is_reached_from_this_machine_alone(served: Served) -> None:
    assert served.server.host == "127.0.0.1"
    assert served.server.url.startswith("http://127.0.0.1:")


def test_the_token_shows_nowhere(
    served: Served,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    token = served.server.token
    with caplog.at_level(logging.DEBUG):
        served.http.get("/", params={"token": token})
        served.http.get(f"{served.server.plain_url}/state")
        served.http.get("/state", params={"token": "wrong"})
        with served.socket(f"/events?token={token}") as opened:
            opened.recv(timeout=LIMIT_S)
        served.post("note", {"text": "a note"})
        served.loop.advance()
        served.loop.finish()
        ours = [
            r
            for r in caplog.records
            if not r.name.startswith(("httpx", "httpcore", "websockets.client"))
        ]
        assert token not in "".join(record.getMessage() for record in ours)
    shown = repr(served.server) + str(served.server._repr_html_()) + repr(vars(served.server))
    assert token not in shown
    assert token not in served.session.state().model_dump_json()
    out = capfd.readouterr()
    assert token not in out.out + out.err
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert token.encode() not in file.read_bytes()
    assert token not in served.session.journal.frame().to_csv()


def test_a_shown_server_links_once_and_holds_no_secret(
    served: Served, stranger: httpx.Client
) -> None:
    link = served.server.page
    assert served.server.token not in link
    first = stranger.get(link)
    assert first.status_code == 200
    assert "<!doctype html>" in first.text
    assert stranger.get(link).status_code == 401
    ticket = link.partition("ticket=")[2]
    fresh = served.server.page.partition("ticket=")[2]
    for path in ("/state", "/events", "/openapi.json"):
        assert stranger.get(path, params={"ticket": fresh}).status_code == 401
    assert fresh != ticket


def test_a_ticket_is_good_for_ten_minutes() -> None:
    now = 0.0
    keys = Keys("t" * 20, lambda: now)
    ticket, late = keys.issue(), keys.issue()
    assert keys.redeem(ticket)
    assert not keys.redeem(ticket)
    now = 601.0
    assert not keys.redeem(late)
    assert not keys.redeem("unknown")


def test_given_tokens_have_to_be_long_and_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for bad in ("short", "with space and more", "ü" * 20, "a/b" * 10, "x" * 201):
        with pytest.raises(ServerError) as caught:
            new_token(bad)
        assert bad not in str(caught.value)
    assert new_token("fine-token_1234~") == "fine-token_1234~"
    monkeypatch.setenv("IT2NB_TOKEN", "from-the-environment")
    assert new_token() == "from-the-environment"
    monkeypatch.delenv("IT2NB_TOKEN")
    assert len({new_token() for _ in range(20)}) == 20
    assert all(len(new_token()) >= 43 for _ in range(5))


def test_strange_tokens_are_compared_without_error() -> None:
    keys = Keys("right-token-of-length")
    assert keys.fits("right-token-of-length")
    for wrong in (None, "", "ü", "\udcff", "right-token-of-lengtH", "x" * 100_000):
        assert not keys.fits(wrong)
    assert "right" not in repr(keys)


def test_a_body_of_fifty_megabytes_is_refused_before_it_is_read(served: Served) -> None:
    answer = served.http.post(
        "/actions", content=b"x" * 50_000_000, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 413
    assert "1,000,000" in answer.json()["detail"]
    assert served.http.get("/state").status_code == 200


def test_a_body_of_unknown_length_is_refused_where_it_becomes_too_long(served: Served) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(800):
            sent += 65_536
            yield b"x" * 65_536

    answer = served.http.post(
        "/actions", content=chunks(), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 413
    assert sent < 40_000_000, "it was read to the end"


def test_too_many_requests_are_told_when_to_come_again(tmp_path: Path) -> None:
    made = Served(tmp_path, limits=Limits(requests_per_s=1.0, burst=3.0))
    try:
        answers = [made.http.get("/state") for _ in range(6)]
        refused = [each for each in answers if each.status_code == 429]
        assert refused
        assert [each.status_code for each in answers[:3]] == [200, 200, 200]
        assert float(refused[0].headers["x-it2nb-retry-s"]) > 0
        assert int(refused[0].headers["retry-after"]) >= 1
    finally:
        made.close()


def connects(served: Served) -> bool:
    try:
        with served.socket("/events"):
            return True
    except InvalidStatus:
        return False


def test_more_sockets_than_allowed_are_refused_and_one_that_leaves_makes_room(
    tmp_path: Path,
) -> None:
    made = Served(tmp_path, limits=Limits(sockets=2))
    try:
        with ExitStack() as both:
            for _ in range(2):
                both.enter_context(made.socket("/events"))
            status, body = refused_socket(made, f"/events?token={made.server.token}", {})
            assert status == 503
            assert "2 sockets" in body
        until(lambda: connects(made))
    finally:
        made.close()
