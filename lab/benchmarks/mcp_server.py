"""The MCP server of `benchmarks.mcp`, which returns its argument: `python -m benchmarks.mcp_server [PORT]`.

Without a port it speaks through its pipes; with one it prints `ready` when it serves http://127.0.0.1:PORT/mcp.
"""

import asyncio
import sys
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

ECHO = Tool(
    name="echo",
    description="Return the argument.",
    input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    annotations=ToolAnnotations(read_only_hint=True),
)


async def list_tools(_context: Any, _params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[ECHO])


async def call_tool(_context: Any, params: CallToolRequestParams) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=str((params.arguments or {})["text"]))])


async def serve_pipes(server: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def serve_http(server: Server[Any], port: int) -> None:
    config = uvicorn.Config(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="warning")
    serving = asyncio.create_task((http := uvicorn.Server(config)).serve())
    while not http.started:  # noqa: ASYNC110  # uvicorn has no event for it
        await asyncio.sleep(0.05)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await serving


if __name__ == "__main__":
    made = Server("echo", on_list_tools=list_tools, on_call_tool=call_tool)
    asyncio.run(serve_http(made, int(sys.argv[1])) if sys.argv[1:] else serve_pipes(made))
