"""`mcp`: serves an agent on stdin and stdout, tools and pages of documentation as the protocol has them."""

import asyncio
import os
from typing import Any

import click

from carbontui import __version__, link, paths
from carbontui.commands.support.command import refused
from carbontui.extensions.mcp import tools

MISSING = 'mcp needs the extra "mcp": pip install "carbontui[mcp]"; '
PAGES = {
    "concepts": ("docs/concepts.md", "What is planned, measured and counted, and how."),
    "verbs": ("docs/reference/verbs.md", "The commands that a person has."),
    "faq": ("docs/faq.md", "Questions and answers."),
}
INSTRUCTIONS = (
    "carbontui runs trainings inside a time budget with the least CO2. Read status first. An order needs an end,"
    " is shown to people as by agent, and never overrules a person."
)


@click.command()
@click.option("--allow-write", is_flag=True, help="Also pause, boost, cap, resume and budget, each with an end.")
def mcp(allow_write: bool) -> None:
    """Show the jobs to an agent: a server of the Model Context Protocol on stdin and stdout.

    It reads status, plan, account, forecast and what a budget would give. With --allow-write it gives orders that
    end by themselves and bear the author "agent"; it never overrules a person, and never stops, starts or removes a
    job.
    """
    with refused(MISSING, ImportError, code=1):
        served = server(click.get_current_context().find_root().command, allow_write)
    os.environ[link.AUTHOR] = tools.AGENT
    asyncio.run(serve(served))


def server(root: click.Command, allow_write: bool) -> Any:
    """The server with its handlers; `root` is the command group that answers. Raises ImportError without the SDK."""
    import mcp_types as types
    from mcp import MCPError
    from mcp.server import Server

    offered = [
        types.Tool(
            name=tool.name,
            description=tool.about,
            input_schema=tool.schema(),
            annotations=types.ToolAnnotations(read_only_hint=not tool.writes, destructive_hint=False),
        )
        for tool in tools.TOOLS
        if allow_write or not tool.writes
    ]
    pages = [
        types.Resource(uri=f"carbontui://docs/{name}", name=name, description=about, mime_type="text/markdown")
        for name, (_, about) in PAGES.items()
    ]

    async def list_tools(_context: Any, _params: Any) -> Any:
        return types.ListToolsResult(tools=offered)

    async def call_tool(_context: Any, params: Any) -> Any:
        text, done = await asyncio.to_thread(tools.call, root, params.name, params.arguments, allow_write=allow_write)
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=not done)

    async def list_resources(_context: Any, _params: Any) -> Any:
        return types.ListResourcesResult(resources=pages)

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


async def serve(served: Any) -> None:
    """Until stdin ends."""
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await served.run(read, write, served.create_initialization_options())
