"""The server: tools and pages of documentation as the protocol has them."""

from __future__ import annotations

import asyncio
from typing import Any

import click
import mcp_types as types
from mcp import MCPError
from mcp.server import Server
from mcp.server.stdio import stdio_server

from carbontui import __version__, paths
from carbontui.extensions.mcp import tools

PAGES = {
    "concepts": ("docs/concepts.md", "What is planned, measured and counted, and how."),
    "verbs": ("docs/reference/verbs.md", "The commands that a person has."),
    "faq": ("docs/faq.md", "Questions and answers."),
}
INSTRUCTIONS = (
    "carbontui runs trainings inside a time budget with the least CO2. Read status first. An order needs an end,"
    " is shown to people as by agent, and never overrules a person."
)


def server(root: click.Command, allow_write: bool) -> Any:
    """The server with its handlers; `root` is the command group that answers."""
    offered = [tool for tool in tools.TOOLS if allow_write or not tool.writes]

    async def list_tools(_context: Any, _params: Any) -> Any:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    description=tool.about,
                    input_schema=tool.schema(),
                    annotations=types.ToolAnnotations(read_only_hint=not tool.writes, destructive_hint=False),
                )
                for tool in offered
            ]
        )

    async def call_tool(_context: Any, params: Any) -> Any:
        text, done = await asyncio.to_thread(tools.call, root, params.name, params.arguments, allow_write=allow_write)
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=not done)

    async def list_resources(_context: Any, _params: Any) -> Any:
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=f"carbontui://docs/{name}", name=name, description=about, mime_type="text/markdown")
                for name, (_, about) in PAGES.items()
            ]
        )

    async def read_resource(_context: Any, params: Any) -> Any:
        file, _ = PAGES.get(str(params.uri).removeprefix("carbontui://docs/"), ("", ""))
        if not file:
            raise MCPError(types.INVALID_PARAMS, f"no page {str(params.uri)[:80]!r}; there are {', '.join(PAGES)}")
        text = paths.shipped(file).read_text(encoding="utf-8")
        found = types.TextResourceContents(uri=params.uri, text=text, mime_type="text/markdown")
        return types.ReadResourceResult(contents=[found])

    return Server(
        "carbontui",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


def run(root: click.Command, allow_write: bool) -> None:
    """Serve until stdin ends."""

    async def serve() -> None:
        serving = server(root, allow_write)
        async with stdio_server() as (read, write):
            await serving.run(read, write, serving.create_initialization_options())

    asyncio.run(serve())
