"""`mcp --prepare`: fetches, builds and starts what an agent's first connection would wait for."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

from extras.gateway.bridge import IDLE_SECONDS, Bridge, HolderPlace, name_of
from extras.gateway.wire import Hello

OWN = "replan_"
"""What the names of the gateway's own tools begin with."""


def prepare(state: Path, hello: Hello, idle: float | None, say: Callable[[str], None]) -> int:
    """Make everything ready, and say which tools there are; returns the exit code 0.

    Raises:
        CannotServe: no holder serves these tools.
    """
    say("starting the tools ...")
    of_agent, to_bridge = os.pipe()
    of_bridge, to_agent = os.pipe()
    data, found = hello.model_dump(mode="json"), list[str]()
    asking = threading.Thread(target=_ask, args=(to_bridge, of_bridge, found), daemon=True)
    asking.start()
    place = HolderPlace(str(state), name_of(data, dict(os.environ)))
    Bridge(place, data, idle or IDLE_SECONDS, of_agent, to_agent).run()
    asking.join()
    say(f"ready  {len(found)} tools: {', '.join(found)}")
    return 0


def _ask(to_bridge: int, of_bridge: int, found: list[str]) -> None:
    """Be an agent that lists the tools until there are some, and leaves; their names are added to `found`."""
    client = {"name": "prepare", "version": "1"}
    with open(of_bridge, "rb") as answers, open(to_bridge, "wb", buffering=0) as requests:

        def send(method: str, params: dict[str, object], number: int | None = None) -> None:
            id = {} if number is None else {"id": number}
            requests.write(json.dumps({"jsonrpc": "2.0", **id, "method": method, "params": params}).encode() + b"\n")

        def answer(number: int) -> dict[str, object]:
            for line in answers:
                if (message := json.loads(line)).get("id") == number:
                    return message  # type: ignore[no-any-return]
            return {}

        send("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}, 0)
        number = 0
        while said := answer(number):
            if number == 0:
                send("notifications/initialized", {})
            result = said.get("result")
            tools = result.get("tools", []) if isinstance(result, dict) else []
            found += [name for tool in tools if not (name := tool["name"]).startswith(OWN)]
            if found:
                return
            number += 1
            send("tools/list", {}, number)
