"""An MCP server over stdio whose tools have the schemas of a file; each call answers with the arguments that it got.

FILE has a list of tools as JSON; with LOG, each call appends its arguments there. It needs only the standard library.
"""

import json
import sys
from pathlib import Path
from typing import Any

TOOLS: list[dict[str, Any]] = json.loads(Path(sys.argv[1]).read_text())
LOG = Path(sys.argv[2]) if len(sys.argv) > 2 else None


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of a request."""
    match method:
        case "initialize":
            info = {"name": "schemas", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            args = params.get("arguments", {})
            if LOG:
                with LOG.open("a") as file:
                    file.write(json.dumps([params["name"], args]) + "\n")
            structured = any(tool["name"] == params["name"] and "outputSchema" in tool for tool in TOOLS)
            text = [{"type": "text", "text": json.dumps(args)}]
            return {"content": text, "structuredContent": args} if structured else {"content": text}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    found = answer(message["method"], message.get("params", {}))
    if message["method"] == "server/discover":
        reply: dict[str, Any] = {"error": {"code": -32601, "message": "Method not found"}}
    else:
        reply = {"result": found}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}) + "\n")
    sys.stdout.flush()
