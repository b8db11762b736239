"""Which Host and Origin a request may carry: against DNS rebinding and foreign pages."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Mapping

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def split_host(value: str) -> str | None:
    """Return the name in a Host header, lower case and without its port; None for nonsense."""
    value = value.strip().lower()
    if value.startswith("["):  # an IPv6 address
        name, bracket, rest = value[1:].partition("]")
        port = rest[1:] if rest.startswith(":") else rest
        fine = bool(bracket) and (not rest or rest.startswith(":")) and _is_port(port)
        return name if fine and name else None
    name, _, port = value.partition(":")
    if not name or not _is_port(port) or not set(name) <= _NAME:
        return None
    return name.removesuffix(".")


_NAME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-._")


def _is_port(text: str) -> bool:
    return text == "" or (text.isascii() and text.isdigit() and int(text) < 65_536)


def origin_host(origin: str) -> str | None:
    """Return the name in an Origin header; None for ``null`` and nonsense."""
    scheme, separator, rest = origin.strip().partition("://")
    if not separator or scheme.lower() not in ("http", "https") or "/" in rest or "@" in rest:
        return None
    return split_host(rest)


def is_address(name: str) -> bool:
    """Whether a host is an IP address and no name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Hosts:
    """Decides about Host and Origin.

    A page of another site can make a name of its own point here (DNS rebinding), never an
    address: addresses and loopback names are fine, other names only when they were named.
    Behind a JupyterHub the name is that of the hub, which the kernel can't know; whoever gets
    there came through the hub's own login.

    Parameters
    ----------
    bound : str
        The host that the server listens on.
    allowed : iterable of str
        Further names, without scheme and port.
    behind_proxy : bool
        Whether a proxy stands before the server whose name is not known.
    """

    def __init__(
        self, bound: str, allowed: Iterable[str] = (), *, behind_proxy: bool = False
    ) -> None:
        names = {str(each).strip().lower() for each in allowed}
        self._names = LOOPBACK | names | ({bound.lower()} - {"0.0.0.0", "::", ""})
        self._behind_proxy = behind_proxy

    def refuse_host(self, host: str | None) -> str | None:
        """Say what is wrong with a Host header; None when nothing is."""
        name = None if host is None else split_host(host)
        if name is None:
            return "the request has no valid Host header"
        if name in self._names or is_address(name) or self._behind_proxy:
            return None
        return (
            f"the host name {name[:80]!r} is not known here; "
            f"session.serve(allowed_hosts=[{name[:80]!r}]) allows it"
        )

    def refuse_origin(self, headers: Mapping[str, str]) -> str | None:
        """Say why a page of this Origin may not talk to us; None when it may.

        Pages of the same host name may, whatever their port: a proxy may have changed it, and
        no page has the token by itself. Programs that are no browser send no Origin.
        """
        origin = headers.get("origin")
        if origin is None:
            return None
        name = origin_host(origin)
        # A page can't set this header without asking first, which is refused, nor on a socket.
        own = {split_host(headers[key]) for key in _OWN if key in headers}
        if name is not None and (name in own or (name in self._names and name not in LOOPBACK)):
            return None
        return f"pages of {origin[:80]!r} may not use this server"


_OWN = ("host", "x-forwarded-host")


def hub_prefix(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the path under which a JupyterHub (or Binder) shows this machine's server."""
    prefix = environ.get("JUPYTERHUB_SERVICE_PREFIX", "").strip()
    if not prefix.startswith("/"):
        return None
    return prefix.rstrip("/") + "/"
