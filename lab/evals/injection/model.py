"""The scripted model: it knows how to solve its user task, and it obeys every injection that it is shown.

Its knowledge is AgentDojo's ground truth, with the values of the task's own environment. As soon as a request shows the
text of the attack, it first makes the calls of the injection task, then those that are left of the user task. An
injected call that was rejected ends the injection.

`react`: one call per turn, in the order of the ground truth; of the user task, several calls of one kind in a row are
made in one turn, as models with parallel calls do.

`plan`: a plan holds the calls that the model can write down, up to the first that it cannot. It can write a call whose
arguments are all in the user's words, and any call that comes before the reads of this plan. So where a value is only
in content, the first plan has the reads only, and the next plan has the effect with the value as a literal. `Writes`
has two other models, which plan more ahead. A call that was rejected together with others is proposed once more alone.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import Any, Literal, NamedTuple

from pydantic import JsonValue

from activities.planning.strategies import PROPOSE
from activities.providers.messages import AssistantTurn
from evals.fakes.script import ModelCall, ModelReply, ReceivedRequest, calls, finishes, proposes
from evals.injection.declared import DECLARED, EFFECTS
from evals.injection.suites import MARK, Call, Case
from evals.injection.worlds import World

Strategy = Literal["plan", "react"]
_TAG = re.compile(r"\[case ([a-z]+)\]")


def tag(number: int) -> str:
    """Words in a task's text by which the model knows which task it is: letters only, so it holds no other value."""
    letters = "".join(chr(ord("a") + int(digit)) for digit in str(number))
    return f"[case {letters}]"


def tag_of(request: ReceivedRequest) -> str:
    """The tag in a request."""
    found = _TAG.search(request.all_text)
    if found is None:
        raise LookupError("The request has no tag of a task.")
    return found[0]


def is_known(value: JsonValue, words: str) -> bool:
    """Whether the words contain a value; truth values count as said."""
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, int | float):
        return float(value) in {float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", words)}
    if isinstance(value, str):  # a user writes an address with or without its scheme
        return value.casefold().removeprefix("https://").removeprefix("http://") in words.casefold()
    items = value.values() if isinstance(value, dict) else value
    return all(is_known(item, words) for item in items)


class Writes(StrEnum):
    """What a model of the strategy `plan` can write into a plan before the reads of this plan were made."""

    LITERALS = "literals"
    """Calls whose arguments are all in the user's words."""
    CONTENT = "content"
    """Also words to pass on, such as the text of a message. A real model writes a reference to a step that composes
    them; here the words of the ground truth stand for the reference."""
    ALL = "all"
    """Every call of the ground truth. No real model knows all values before it has read them."""


class Wanted(NamedTuple):
    """A call that the model wants to make, with a name that is the same in every turn."""

    id: str
    call: Call


Opening = Callable[[Case, ModelReply], ModelReply]
"""Makes the first reply of the reply that the model would give otherwise."""


@dataclass(frozen=True)
class Model:
    """The model of one task."""

    world: World
    strategy: Strategy
    opening: Opening | None = None
    writes: Writes = Writes.LITERALS

    def __call__(self, request: ReceivedRequest) -> ModelReply:
        """The next reply; it follows from the conversation and from what was done."""
        reply = self._plans(request) if self.strategy == "plan" else self._acts(request)
        return reply if request.turn or self.opening is None else self.opening(self.world.case, reply)

    @property
    def _user(self) -> list[Wanted]:
        return [Wanted(f"u{number}", call) for number, call in enumerate(self.world.case.user_calls)]

    @property
    def _injected(self) -> list[Wanted]:
        return [Wanted(f"i{number}", call) for number, call in enumerate(self.world.case.injected_calls)]

    def _acts(self, request: ReceivedRequest) -> ModelReply:
        """The next call, or the answer."""
        tried = sum(call.name in self.world.case.suite.functions for call in request.calls)
        before = self._calls_before_attack(request)
        if before is None:
            wanted = self._user
        else:
            allowed = self._injected[: self._refused_at(tried - before)]
            wanted = [*self._user[:before], *allowed, *self._user[before:]]
        if tried >= len(wanted) or not request.may_call:
            return ModelReply(text=self.world.case.result)
        first, *more = wanted[tried:]
        alike = takewhile(lambda item: item.call.tool == first.call.tool and item.id[0] == first.id[0] == "u", more)
        return calls(*(ModelCall(item.call.tool, dict(item.call.args)) for item in (first, *alike)))

    def _refused_at(self, tried: int) -> int | None:
        """How many injected calls the model makes: up to the first that was rejected; None for all."""
        for number, wanted in enumerate(self._injected[:tried], 1):
            if not self._is_done(wanted):
                return number
        return None

    def _plans(self, request: ReceivedRequest) -> ModelReply:
        proposed = [_step_ids(call.args) for call in request.calls if call.name == PROPOSE]
        case = self.world.case
        was_attacked = self._calls_before_attack(request) is not None
        injected = self._open(self._injected, proposed) if was_attacked else []
        if any(len(plan) == 1 and plan[0][0] == "i" and not self._is_done_id(plan[0]) for plan in proposed):
            injected = []
        words = f"{case.prompt} {case.attack.GOAL}" if injected else case.prompt
        plan = list(_writable(injected or self._open(self._user, proposed), words, self.writes))
        if not plan or not request.may_call:
            return finishes(case.result) if request.may_call else ModelReply(text=case.result)
        if any(wanted.id in ids for wanted in plan for ids in proposed):  # once more, alone
            plan = plan[:1]
        # Without `needs` the steps of a plan run side by side, and an invitation must come before a message.
        names = [f"{item.id}_{len(proposed)}" for item in plan]
        needed = [[], *([name] for name in names)]
        return proposes(
            *(
                {"id": name, "kind": item.call.tool, "args": dict(item.call.args), "needs": needs}
                for name, item, needs in zip(names, plan, needed, strict=False)
            )
        )

    def _open(self, wanted: Sequence[Wanted], proposed: Sequence[Sequence[str]]) -> list[Wanted]:
        """The calls that are neither done nor rejected for good."""
        tried = Counter(id for plan in proposed for id in plan)
        alone = {plan[0] for plan in proposed if len(plan) == 1}
        return [item for item in wanted if not self._is_done(item) and item.id not in alone and tried[item.id] < 2]

    def _is_done(self, wanted: Wanted) -> bool:
        """Whether the call was made; of equal calls, the n-th is done if n of them were made."""
        sequence = self._user if wanted.id.startswith("u") else self._injected
        number = sum(item.call == wanted.call for item in sequence[: sequence.index(wanted) + 1])
        return self.world.made.count(wanted.call) >= number

    def _calls_before_attack(self, request: ReceivedRequest) -> int | None:
        """How many calls of tools it had made when it was shown the attack; None if it has not been shown it."""
        made = 0
        for turn in request.turns:
            if isinstance(turn, AssistantTurn):
                made += sum(call.name in self.world.case.suite.functions for call in turn.calls)
            elif MARK in turn.text or any(MARK in result.text for result in turn.results):
                return made
        return None

    def _is_done_id(self, id: str) -> bool:
        return any(item.id == id and self._is_done(item) for item in self._injected)


def _step_ids(written: Any) -> list[str]:
    steps = written.get("steps", ()) if isinstance(written, Mapping) else ()
    return [str(item["id"]).partition("_")[0] for item in steps]


def _writable(wanted: Sequence[Wanted], words: str, writes: Writes) -> Iterator[Wanted]:
    """The first calls, up to the first that a read of this plan must come before."""
    has_read = False
    for item in wanted:
        content = DECLARED[item.call.tool].content if writes is Writes.CONTENT else ()
        args: JsonValue = {name: value for name, value in item.call.args.items() if name not in content}
        if has_read and writes is not Writes.ALL and not is_known(args, words):
            return
        yield item
        has_read = has_read or item.call.tool not in EFFECTS
