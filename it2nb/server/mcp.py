"""A run for assistants: its state as resources and its actions as tools of an MCP server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from it2nb._version import __version__
from it2nb.controllers.tools import Toolbox, with_reason
from it2nb.core.errors import It2nbError, require
from it2nb.server.desk import READING, RESOURCES, Desk, text_of
from it2nb.server.remote import RemoteSession
from it2nb.server.shapes import MCP

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.lowlevel import Server

SCHEME = "it2nb://"

INSTRUCTIONS = """\
One live training run. Read it2nb://state first. Each tool that is named after an action asks the \
run for it; the answer says what became of it: applied, clamped (to a bound), rejected (with the \
reason), failed. A request that waits for a person's approval can be looked up with read_request."""


def make_server(desk: Desk) -> Server[Any]:
    """Make an MCP server that answers from a desk.

    Raises
    ------
    MissingDependency
        Without ``pip install 'it2nb[mcp]'``.
    """
    require("mcp", extra="mcp", feature="python -m it2nb mcp")
    import anyio.to_thread
    import mcp_types as types
    from mcp.server.lowlevel import Server
    from mcp.shared.exceptions import MCPError

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        box = await anyio.to_thread.run_sync(desk.box)
        return types.ListToolsResult(tools=_tools(box))

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        answer, failed = await anyio.to_thread.run_sync(
            desk.call, params.name, dict(params.arguments or {})
        )
        content = types.TextContent(type="text", text=text_of(answer))
        return types.CallToolResult(content=[content], is_error=failed)

    async def list_resources(ctx: Any, params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=SCHEME + name, name=name, description=said, mime_type="application/json"
                )
                for name, said in RESOURCES.items()
            ]
        )

    async def list_templates(ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            uri_template=SCHEME + "metrics/{name}", name="metric",
            description="The curve of one metric", mime_type="application/json",
        )  # fmt: skip
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(
        ctx: Any, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        try:
            found = await anyio.to_thread.run_sync(desk.resource, uri.removeprefix(SCHEME))
        except It2nbError as err:
            raise MCPError(types.INVALID_PARAMS, str(err)) from err
        content = types.TextResourceContents(
            uri=uri, mime_type="application/json", text=text_of(found)
        )
        return types.ReadResourceResult(contents=[content])

    return Server(
        "it2nb",
        version=__version__,
        title="it2nb: one live training run",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )


def _tools(box: Toolbox) -> list[types.Tool]:
    import mcp_types as types

    reading = [
        types.Tool(
            name=name,
            description=said,
            input_schema={
                "type": "object",
                "properties": properties,
                "additionalProperties": False,
            },
            annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
        )
        for name, (said, properties) in READING.items()
    ]
    asking = [
        types.Tool(
            name=each.name,
            description=each.description,
            input_schema=with_reason(each.schema),
            annotations=types.ToolAnnotations(read_only_hint=False, open_world_hint=False),
        )
        for each in box.tools
        if each.name not in READING
    ]
    return [*reading, *asking]


def serve_stdio(
    url: str, token: str | None = None, *, wait_s: float = 30.0, timeout: float = 10.0
) -> None:
    """Serve a run over standard input and output until the client leaves.

    Parameters
    ----------
    url, token
        As for `it2nb.Client`.
    wait_s : float, seconds
        For the result of a request.
    timeout : float, seconds
        Until a call to the run's server is given up.

    Raises
    ------
    Unreachable, Refused
        If the run's server does not answer, or does not let us.
    """
    require("mcp", extra="mcp", feature="python -m it2nb mcp")
    import anyio
    from mcp.server.stdio import stdio_server

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    with RemoteSession(url, token, timeout=timeout, actor=MCP) as run:
        server = make_server(Desk(run, wait_s))
        anyio.run(serve)
