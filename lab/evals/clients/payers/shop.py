"""An MCP server over pipes with one tool, `pay`: `shop.py BOOK SECONDS`.

A payment is in the book at once, and is answered after some seconds.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

BOOK, SECONDS = Path(sys.argv[1]), float(sys.argv[2])
PAY = {
    "name": "pay",
    "description": "Pay somebody.",
    "inputSchema": {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]},
}
ABOUT = {"name": "shop", "version": "1"}


def _write(number: Any, result: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}), flush=True)


def _pay(number: Any, who: str) -> None:
    with BOOK.open("a") as book:
        book.write(f"{who}\n")
    time.sleep(SECONDS)
    _write(number, {"content": [{"type": "text", "text": f"paid {who}"}]})


for line in sys.stdin:
    message = json.loads(line)
    match message:
        case {"method": "initialize", "id": number, "params": params}:
            version = params["protocolVersion"]
            _write(number, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": ABOUT})
        case {"method": "tools/list", "id": number}:
            _write(number, {"tools": [PAY]})
        case {"method": "tools/call", "id": number, "params": params}:
            threading.Thread(target=_pay, args=(number, params["arguments"]["who"]), daemon=True).start()
        case {"method": "ping", "id": number}:
            _write(number, {})
        case {"id": number, "method": method}:
            error = {"code": -32601, "message": f"Method not found: {method}"}
            print(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}), flush=True)
