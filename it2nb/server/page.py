"""The page: the same panel as in the notebook, over a WebSocket."""

from __future__ import annotations

import html
from functools import cache
from importlib.resources import files

from fastapi import FastAPI
from starlette.responses import Response
from starlette.websockets import WebSocket

from it2nb.server.answers import SAFE_HEADERS, Refusal
from it2nb.server.pages import Pages
from it2nb.server.serving import Serving

SCRIPTS = ("page.mjs", "panel.mjs", "chart.mjs")
#: Messages a second that one page may send: a slider that is dragged sends 60.
PAGE_MESSAGES = 200.0

# Nothing from elsewhere, and nobody else's frame. Plotly writes styles.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' ws: wss:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)

# Every address is relative: the page may stand below any prefix. Token and prefix are told to
# the script by its own address.
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
body {{ margin: 0; padding: 12px; background: var(--jp-layout-color0, #fff); }}
body {{ font-family: system-ui, sans-serif; }}
[data-theme="dark"] {{
  color-scheme: dark;
  --jp-layout-color0: #111; --jp-layout-color1: #1a1c1e; --jp-layout-color2: #2b2e31;
  --jp-ui-font-color1: #e6e8ea; --jp-ui-font-color2: #a6adb4;
  --jp-border-color2: #3a3f44; --jp-border-color3: #2b2f33;
}}
</style>
</head>
<body>
<main id="panel" role="main"></main>
<script type="module" src="static/page.mjs?token={token}"></script>
</body>
</html>
"""


@cache
def script(name: str) -> bytes:
    """Return a script that was built from js/; FileNotFoundError when it was not built."""
    return files("it2nb.notebook").joinpath("static", name).read_bytes()


def add_routes(app: FastAPI, serving: Serving) -> None:
    """Add the page, its scripts and its socket."""
    pages = serving.pages = Pages(serving)

    @app.get("/", include_in_schema=False)
    async def show() -> Response:
        title = serving.session.title or serving.session.run_id
        text = _PAGE.format(title=html.escape(title), token=html.escape(serving.keys.token))
        headers = {**SAFE_HEADERS, "content-security-policy": _POLICY}
        return Response(text, headers=headers, media_type="text/html")

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> Response:
        if name not in SCRIPTS:
            raise Refusal(404, f"there is no script {name[:80]!r}")
        try:
            code = script(name)
        except FileNotFoundError:
            raise Refusal(404, f"{name} was not built: npm --prefix js run build") from None
        # A script's address holds its hash; the token before it keeps it from other users.
        headers = {**SAFE_HEADERS, "cache-control": "private, max-age=3600"}
        return Response(code, headers=headers, media_type="text/javascript")

    @app.websocket("/panel")
    async def panel(websocket: WebSocket) -> None:
        await websocket.accept()
        page = pages.enter()
        try:
            await serving.converse(
                websocket, lambda: page.write(websocket), page.hear, PAGE_MESSAGES
            )
        finally:
            pages.leave(page)
