"""One error of a library: what it became, and whether an effect could be repeated."""

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel
from temporalio.exceptions import ApplicationError

from replan import Tool, tool
from tests.activities.bench import Bench
from workflows.faults.fault import Code, Fault


class Nothing(BaseModel):
    """No argument, and no result."""


@dataclass(frozen=True)
class Provocation:
    """What one library raised in one situation, and what became of it."""

    library: str
    situation: str
    expected: tuple[str, ...]
    """The codes that a user expects; any of them is right."""
    error: str = ""
    """The qualified name of the class; empty if nothing was raised."""
    code: str = ""
    guessed: str = ""
    applied: str = ""
    retried: bool = False
    """Whether Replan would make the call again by itself, without finding out whether it took effect."""
    effects: int = 0
    """How often the call took effect at the service."""
    text: str = ""
    """The fault as JSON."""

    @property
    def is_right(self) -> bool:
        return self.code in self.expected

    @property
    def may_repeat(self) -> bool:
        """Whether an effect that took place would be repeated."""
        return self.effects > 0 and (self.retried or self.applied == "none")


def line(found: list[Provocation]) -> str:
    """A library, how many of its errors became what a user expects, and what the others became."""
    wrong = [f"{one.situation} -> {one.code or 'nothing'}" for one in found if not one.is_right]
    right = len(found) - len(wrong)
    return f"{found[0].library:16} {right} of {len(found)} right  {', '.join(wrong)}".rstrip()


async def provoke(
    calls: Bench,
    library: str,
    situation: str,
    expected: tuple[Code, ...],
    call: Callable[[], object],
    effects: Callable[[], int],
) -> Provocation:
    """What becomes of the exception of a call, made by a tool for a service that honours no key."""
    raised = list[BaseException]()
    codes = tuple(code.value for code in expected)
    before = effects()
    try:
        await calls.call(_calling(call, raised))
    except ApplicationError as failed:
        fault = failed.details[0]
        assert isinstance(fault, Fault)
        error = type(raised[0])
        return Provocation(
            library,
            situation,
            codes,
            error=f"{error.__module__}.{error.__qualname__}",
            code=fault.code.value,
            guessed=fault.guessed,
            applied=fault.applied.value,
            retried=not failed.non_retryable,
            effects=effects() - before,
            text=fault.model_dump_json(),
        )
    return Provocation(library, situation, codes, effects=effects() - before)


def _calling(call: Callable[[], object], raised: list[BaseException]) -> Tool[..., Nothing]:
    @tool.unkeyed(timeout=30)
    def change(args: Nothing) -> Nothing:
        """Change something."""
        try:
            call()
        except BaseException as error:
            raised.append(error)
            raise
        return Nothing()

    return change
