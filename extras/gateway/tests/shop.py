"""A server over pipes that writes each payment into a book, when it may: `shop.py BOOK [GATE]`.

With GATE, a payment is made, and answered only when that file exists.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

BOOK, GATE = Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None
SCHEMA = {"type": "object", "properties": {"who": {"type": "string"}, "words": {"type": "string"}}, "required": ["who"]}
TOOLS = [
    {"name": "pay", "description": "Pay somebody.", "inputSchema": SCHEMA},
    {
        "name": "book",
        "description": "Who was paid.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    },
    {"name": "draw", "description": "Draw what was paid.", "inputSchema": {"type": "object"}},
    {"name": "refuse", "description": "Know no order.", "inputSchema": {"type": "object"}},
]


DRAWN: list[dict[str, Any]] = [
    {"type": "text", "text": "Look:\n"},
    {"type": "image", "data": "AAAA", "mimeType": "image/png", "annotations": {"audience": ["user"], "priority": 0.5}},
    {"type": "text", "text": ""},
    {"type": "resource", "resource": {"uri": "shop://bill", "mimeType": "text/plain", "text": "1\n2"}},
    {"type": "resource_link", "uri": "shop://rules", "name": "rules", "title": "The rules", "size": 8},
    {"type": "resource", "resource": {"uri": "shop://scan", "blob": "AAAA"}},
    {"type": "text", "text": "naïve 🙂", "annotations": {"audience": ["assistant"]}},
    {"type": "text", "text": "end"},
]
"""Contents of all sorts, in an order of their own."""


def _text(text: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}, {"type": "text", "text": "so it is"}], "isError": is_error}


def _called(name: str, args: dict[str, Any]) -> dict[str, Any]:
    if name == "book":
        return _text(BOOK.read_text() if BOOK.exists() else "")
    if name == "draw":
        return {"content": DRAWN}
    if name == "refuse":
        with BOOK.open("a") as book:
            book.write("refused\n")
        return _text("no such order", is_error=True)
    with BOOK.open("a") as book:
        book.write(f"{args['who']}\n")
    while GATE is not None and not GATE.exists():
        time.sleep(0.02)
    return _text(f"paid {args['who']}")


def _answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            about = {"name": "the shop", "version": "7"}
            able: dict[str, Any] = {"tools": {}, "resources": {}}
            return {"protocolVersion": "2025-06-18", "capabilities": able, "serverInfo": about, "instructions": "Pay."}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return _called(params["name"], params.get("arguments") or {})
        case "resources/list":
            return {"resources": [{"uri": "shop://rules", "name": "rules"}]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": "Be fair."}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        answer = {
            "jsonrpc": "2.0",
            "id": message["id"],
            "result": _answer(message["method"], message.get("params") or {}),
        }
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
