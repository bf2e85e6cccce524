"""An agent's window on the jobs: the Model Context Protocol over stdio."""

from carbontui.hooks import Extension, ExtensionCommand

HERE = "carbontui.extensions.mcp"
EXTENSION = Extension(
    "mcp", commands=(ExtensionCommand("mcp", "Show the jobs to an agent; stdio, MCP.", f"{HERE}.commands:mcp"),)
)
