"""The model of all arms: it makes the calls that solve the task, and after an error does what its text suggests, once.

It knows nothing but the conversation that an arm sends: what is not in it, it plans again.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from activities.planning.strategies import FINISH
from activities.toolbox.find_tools import NAME as FIND_TOOLS
from evals.fakes.model_api import Json
from evals.fakes.openai_api import OpenAIApi
from evals.fakes.script import ModelCall, ModelReply, Response, calls

DONE, SKIPPED = "Done.", "Not done: "
AGAIN = re.compile(
    r"try again|again later|retry|timed? ?out|not available|unavailable|connection|reset|ReadError|RemoteProtocolError",
    re.IGNORECASE,
)
"""What suggests to make the same call once more."""
LOOK = re.compile(r"read it again|look .*first", re.IGNORECASE)
"""What suggests to read first."""
BARRED = re.compile(r"do not (call|make) it again|a person", re.IGNORECASE)
"""What says that somebody else takes care of it."""


@dataclass
class Conversation:
    """Where a conversation stands."""

    solution: Sequence[ModelCall]
    reads: Sequence[int]
    """Which of its calls are of tools that change nothing."""
    next: int = 0
    """The number of the call of the solution that comes next."""
    is_repeated: bool = False
    skipped: list[str] = field(default_factory=list)
    handed: int = 0
    """How many calls somebody else takes care of."""
    look: ModelCall | None = None
    """A read that is made before the next call."""

    def see(self, name: str, args: Mapping[str, Any], result: str) -> None:
        """Take in a call and its result."""
        if self.look and (name, dict(args)) == (self.look.name, _args(self.look)):
            self.look = None
            return
        if self.next >= len(self.solution) or name != self.solution[self.next].name:
            return
        if re.search(r'\\?"ok\\?": ?true', result):
            self._go_on()
        elif self.is_repeated or BARRED.search(result) or not (AGAIN.search(result) or LOOK.search(result)):
            self.handed += bool(BARRED.search(result))
            self.skipped.append(name)
            self._go_on()
        else:
            self.is_repeated = True
            reads = [number for number in self.reads if number < self.next]
            self.look = self.solution[reads[-1]] if reads and LOOK.search(result) else None

    def _go_on(self) -> None:
        self.next, self.is_repeated, self.look = self.next + 1, False, None

    @property
    def wanted(self) -> ModelCall | None:
        """The call that the model makes now; None at the end."""
        return self.look or (self.solution[self.next] if self.next < len(self.solution) else None)


def _offered(tool: str, offered: Sequence[str]) -> str:
    """The name under which an arm offers a tool; some put the name of the server before it."""
    return next((name for name in offered if name == tool or re.search(rf"[^a-zA-Z]{re.escape(tool)}$", name)), tool)


def _args(call: ModelCall) -> dict[str, Any]:
    return dict(json.loads(call.written))


@dataclass
class TruthModel(OpenAIApi):
    """Plays each task by the name of the model in the request."""

    solutions: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """By the name of a model, what its world tells: `calls` and `reads`."""
    asked: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By the name of a model: its turns, the characters that it was sent, and the calls that were handed to others."""

    def answer(self, path: str, headers: Mapping[str, str], body: Json) -> Response:
        told = self.solutions[body["model"]]
        del self.bodies[:-1], self.times[:-1]  # a night of them is more than the machine has
        count = self.asked[body["model"]]
        count.update(turns=1, characters=len(json.dumps([body["messages"], body.get("tools")])))
        offered = [tool["function"]["name"] for tool in body.get("tools", ())]
        solution = [ModelCall(_offered(call["tool"], offered), call["args"]) for call in told["calls"]]
        talk, made = Conversation(solution, told["reads"]), dict[str, tuple[str, Mapping[str, Any]]]()
        for message in body["messages"]:
            for call in message.get("tool_calls") or ():
                made[call["id"]] = call["function"]["name"], json.loads(call["function"]["arguments"] or "{}")
            if message["role"] == "tool" and message["tool_call_id"] in made:
                talk.see(*made[message["tool_call_id"]], str(message["content"]))
        count["handed"] = max(count["handed"], talk.handed)
        if (wanted := talk.wanted) is not None:
            if wanted.name not in offered and FIND_TOOLS in offered:
                wanted = ModelCall(FIND_TOOLS, {"query": wanted.name.replace("_", " ")})
            return calls(wanted)
        said = f"{SKIPPED}{', '.join(talk.skipped)}" if talk.skipped else DONE
        return calls(ModelCall(FINISH, {"result": said})) if FINISH in offered else ModelReply(text=said)
