"""A server over pipes that starts within 20 ms, keeps a journal, and misbehaves as told: `till.py FOLDER`.

Each effect is a line of FOLDER/journal. Each call of an effect takes the first file of FOLDER/acts, whose name is its
number and, as JSON, what befalls the call: `before` and `after` are seconds around the effect, `do` is what goes wrong.
"""

import json
import os
import sys
import threading
import time
from typing import Any

FOLDER = sys.argv[1]
ARGS = {"who": {"type": "string"}, "amount": {"type": "number"}, "note": {"type": "string"}}
SCHEMA = {"type": "object", "properties": ARGS, "required": ["who", "amount", "note"]}
KEYED = {**SCHEMA, "properties": {**ARGS, "request_id": {"type": "string"}}}
SEARCH = {"type": "object", "properties": {"search": {"type": "string"}}}
TOOLS: list[dict[str, Any]] = [
    {"name": "pay", "description": "Pay.", "inputSchema": SCHEMA},
    {"name": "mail", "description": "Mail.", "inputSchema": SCHEMA},
    {"name": "charge", "description": "Charge, once for each request_id.", "inputSchema": KEYED},
    {"name": "find", "description": "Find.", "inputSchema": SEARCH, "annotations": {"readOnlyHint": True}},
]
JOURNAL = os.open(f"{FOLDER}/journal", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
WRITING = threading.Lock()


def answer(number: Any, *, text: str = "", is_error: bool = False, code: int = 0) -> None:
    """Answer a call with a text, or with an error of JSON-RPC."""
    result = {"content": [{"type": "text", "text": text}], "isError": is_error}
    send(number, {"error": {"code": code, "message": text}} if code else {"result": result})


def send(number: Any, content: dict[str, Any]) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": number, **content})
    with WRITING:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def journal() -> list[dict[str, Any]]:
    with open(f"{FOLDER}/journal") as lines:  # noqa: PTH123  # pathlib takes half of the time of a start
        return [json.loads(line) for line in lines]


def act() -> dict[str, Any]:
    """What befalls the next call."""
    for name in sorted(os.listdir(f"{FOLDER}/acts")):  # noqa: PTH208
        try:
            os.unlink(f"{FOLDER}/acts/{name}")  # noqa: PTH108
        except FileNotFoundError:
            continue
        found: dict[str, Any] = json.loads(name.partition(" ")[2])
        return found
    return {}


def effect(tool: str, args: dict[str, Any]) -> str:
    """Have the effect, and return its name; of an effect with a known key, that of the first one."""
    key = args.get("request_id")
    for one in journal() if key else ():
        if one["args"].get("request_id") == key:
            return str(one["id"])
    name = os.urandom(3).hex()
    line = json.dumps({"id": name, "tool": tool, "args": args, "at": time.time()})
    os.write(JOURNAL, f"{line}\n".encode())
    return name


def call(number: Any, tool: str, args: dict[str, Any]) -> None:
    """Make a call as its act wants it."""
    if tool == "find":
        found = [one for one in journal() if args.get("search", "") in one["args"]["note"]]
        answer(number, text="found:\n" + "\n".join(f"#{one['id']} {one['args']['note']}" for one in found))
        return None
    told = act()
    do = told.get("do", "")
    time.sleep(told.get("before", 0))
    match do:
        case "die before":
            os._exit(3)
        case "error before":
            return answer(number, text="no such account", is_error=True)
        case "conflict":
            return answer(number, text="409 the price moved", is_error=True)
        case "rpc before":
            return answer(number, text="bad arguments", code=-32602)
    name = effect(tool, args)
    time.sleep(told.get("after", 0))
    match do:
        case "die after":
            os._exit(3)
        case "error after":
            return answer(number, text="the printer broke", is_error=True)
        case "rpc after":
            return answer(number, text="insufficient funds", code=told.get("code", -32602))
        case "lost":
            return None
    answer(number, text=f"done #{name}")
    return None


def main() -> None:
    """Serve until stdin ends."""
    with open(f"{FOLDER}/pids", "a") as pids:  # noqa: PTH123
        pids.write(f"{os.getpid()}\n")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        number, params = message["id"], message.get("params") or {}
        match message["method"]:
            case "initialize":
                about = {"serverInfo": {"name": "shop", "version": "1"}, "capabilities": {"tools": {}}}
                send(number, {"result": {"protocolVersion": params.get("protocolVersion"), **about}})
            case "tools/list":
                send(number, {"result": {"tools": TOOLS}})
            case "tools/call":
                given = (number, params["name"], params.get("arguments") or {})
                threading.Thread(target=call, args=given, daemon=True).start()
            case _:
                send(number, {"error": {"code": -32601, "message": "no"}})


main()
