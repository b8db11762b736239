from __future__ import annotations

import pytest

from it2nb.server.hosts import Hosts, hub_prefix, origin_host, split_host


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("127.0.0.1:8765", "127.0.0.1"),
        ("LocalHost", "localhost"),
        ("localhost.:80", "localhost"),
        ("[::1]:9000", "::1"),
        ("[::1]", "::1"),
        ("evil.example:1", "evil.example"),
        ("", None),
        (":80", None),
        ("a b", None),
        ("host:port", None),
        ("host:99999", None),
        ("[::1", None),
        ("[]:80", None),
        ("[::1]x", None),
        ("user@host", None),
        ("host/path", None),
    ],
)
def test_host_header_is_split(header: str, name: str | None) -> None:
    assert split_host(header) == name


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        ("http://localhost:8765", "localhost"),
        ("https://hub.example", "hub.example"),
        ("null", None),
        ("file://", None),
        ("http://", None),
        ("http://a@evil.example", None),
        ("http://127.0.0.1:8765/x", None),
        ("", None),
    ],
)
def test_origin_is_read(origin: str, name: str | None) -> None:
    assert origin_host(origin) == name


@pytest.mark.parametrize(
    "host", ["127.0.0.1:1", "localhost:1", "[::1]:1", "192.168.0.7:80", "10.0.0.1"]
)
def test_loopback_names_and_addresses_are_known(host: str) -> None:
    # A page can make its own name point here, but an address is no name of its own.
    assert Hosts("127.0.0.1").refuse_host(host) is None


@pytest.mark.parametrize(
    "host", [None, "", "evil.example", "localhost.evil.example", "127.0.0.1.nip.io"]
)
def test_other_names_are_refused_with_the_remedy(host: str | None) -> None:
    said = Hosts("127.0.0.1").refuse_host(host)
    assert said is not None
    assert "allowed_hosts" in said or "Host header" in said


def test_a_named_host_is_known_and_its_pages_too() -> None:
    hosts = Hosts("127.0.0.1", ["Train.example"])
    assert hosts.refuse_host("train.example:80") is None
    assert hosts.refuse_origin({"host": "127.0.0.1", "origin": "https://train.example"}) is None


def test_behind_a_hub_its_name_is_taken_but_foreign_pages_are_not() -> None:
    hosts = Hosts("127.0.0.1", behind_proxy=True)
    assert hosts.refuse_host("hub.example") is None
    assert hosts.refuse_origin({"host": "hub.example", "origin": "https://hub.example"}) is None
    assert hosts.refuse_origin({"host": "hub.example", "origin": "https://evil.example"})


@pytest.mark.parametrize(
    ("headers", "fine"),
    [
        ({"host": "127.0.0.1:8765"}, True),  # no browser
        ({"host": "127.0.0.1:8765", "origin": "http://127.0.0.1:8765"}, True),
        ({"host": "127.0.0.1:8765", "origin": "http://127.0.0.1:9000"}, True),  # a proxy's port
        ({"host": "127.0.0.1:8765", "origin": "http://localhost:8765"}, False),
        ({"host": "127.0.0.1:8765", "origin": "http://evil.example"}, False),
        ({"host": "127.0.0.1:8765", "origin": "null"}, False),
        ({"host": "127.0.0.1:8765", "origin": ""}, False),
        (
            {
                "host": "10.1.2.3",
                "x-forwarded-host": "hub.example",
                "origin": "https://hub.example",
            },
            True,
        ),
    ],
)
def test_pages_of_the_same_host_alone_may_talk(headers: dict[str, str], fine: bool) -> None:
    assert (Hosts("127.0.0.1").refuse_origin(headers) is None) is fine


@pytest.mark.parametrize(
    ("value", "prefix"),
    [("/user/x/", "/user/x/"), ("/user/x", "/user/x/"), ("", None), ("user", None)],
)
def test_hub_prefix_comes_from_the_environment(value: str, prefix: str | None) -> None:
    assert hub_prefix({"JUPYTERHUB_SERVICE_PREFIX": value}) == prefix
    assert hub_prefix({}) is None
