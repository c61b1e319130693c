"""An MCP server over pipes with one tool, `pay`, which writes into a book: `shop.py BOOK GATE`.

A payment is in the book at once, and is answered only when GATE exists.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

BOOK, GATE = Path(sys.argv[1]), Path(sys.argv[2])
PAY = {
    "name": "pay",
    "description": "Pay somebody.",
    "inputSchema": {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]},
}


def _pay(who: str) -> str:
    with BOOK.open("a") as book:
        book.write(f"{who}\n")
    while not GATE.exists():
        time.sleep(0.02)
    return f"paid {who}, receipt {len(BOOK.read_text().split())}"


def _answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            about = {"name": "shop", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": [PAY]}
        case "tools/call":
            return {"content": [{"type": "text", "text": _pay(params["arguments"]["who"])}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = _answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
