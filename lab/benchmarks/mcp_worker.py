"""The worker of the bare side of `benchmarks.mcp`: `python -m benchmarks.mcp_worker QUEUE URL`.

Its activities call the server through clients of the official SDK that are open already, as a good engineer would.
"""

import asyncio
import sys
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp_types import TextContent
from temporalio import activity

from benchmarks.bare import BareWorkflow
from benchmarks.bare_worker import echo, serve
from benchmarks.work import Words

ROOT = Path(__file__).parents[2]
COMMAND = ("-m", "benchmarks.mcp_server")
"""The server that speaks through its pipes, run in ROOT, without Python."""
PIPES, HTTP = "pipes", "http"
"""How a server is reached; also the names of the servers in the tools file of Replan's side."""


def client_of(transport: str, url: str) -> Client:
    """A client of the SDK with its defaults, not open yet."""
    if transport == HTTP:
        return Client(url)
    return Client(StdioServerParameters(command=sys.executable, args=[*COMMAND], cwd=ROOT))


async def called(client: Client, words: Words) -> Words:
    """Call the tool of the server."""
    result = await client.call_tool("echo", words.model_dump())
    [content] = result.content
    if result.is_error or not isinstance(content, TextContent):
        raise RuntimeError(f"The server answered {result}.")
    return Words(text=content.text)


async def main(queue: str, url: str) -> None:
    """Serve until the process is ended."""
    async with client_of(PIPES, url) as pipes, client_of(HTTP, url) as http:

        @activity.defn
        async def over_pipes(words: Words) -> Words:
            return await called(pipes, words)

        @activity.defn
        async def over_http(words: Words) -> Words:
            return await called(http, words)

        await serve(queue, BareWorkflow, echo, over_pipes, over_http)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
