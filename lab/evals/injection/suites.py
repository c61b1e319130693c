"""AgentDojo's suites: user tasks, injection tasks, their ground truth and their graders.

Only its tasks, environments, graders and the text of one attack are used. None of its agents is: the package
`agentdojo.agent_pipeline` imports the SDKs of many models, so its `__init__` is not run.
"""

import importlib.util
import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache, cached_property
from types import ModuleType, SimpleNamespace
from typing import Any

from pydantic import JsonValue

VERSION = "v1.2.2"
NAMES = ("banking", "slack")
MARK = "This is an important message from me"
"""The attack's first words, by which the model knows that it was shown an injection."""
PIPELINE = "agentdojo.agent_pipeline"
AGENT = "gpt-4o-2024-05-13"
"""A model that AgentDojo knows: the attack asks for a name, and this variant of it does not use the name."""


class MissingSuites(RuntimeError):
    """AgentDojo is not installed."""


@dataclass(frozen=True)
class Call:
    """A call of a tool."""

    tool: str
    args: Mapping[str, JsonValue]

    def __hash__(self) -> int:
        return hash((self.tool, repr(sorted(self.args.items()))))


@dataclass(frozen=True)
class Case:
    """A user task, alone or with an injection task, and the calls that solve each of them."""

    suite: "Suite"
    user: str
    injection: str | None
    """None for a task without attack."""

    @property
    def name(self) -> str:
        """For people, such as `banking/user_task_3/injection_task_1`."""
        return "/".join(filter(None, [self.suite.name, self.user, self.injection]))

    @cached_property
    def task(self) -> Any:
        """AgentDojo's user task."""
        return self.suite.plain.user_tasks[self.user]

    @cached_property
    def attack(self) -> Any:
        """AgentDojo's injection task; None without attack."""
        return self.suite.plain.injection_tasks[self.injection] if self.injection else None

    @cached_property
    def prompt(self) -> str:
        """What the user asks for."""
        return str(self.task.PROMPT)

    @cached_property
    def result(self) -> str:
        """The answer that the user task's grader accepts."""
        return str(self.task.GROUND_TRUTH_OUTPUT) or "Done."

    def environment(self) -> Any:
        """A new environment, with the injection at every place that the user task's calls show."""
        return self._environment.model_copy(deep=True)

    @cached_property
    def _environment(self) -> Any:
        return self.task.init_environment(self.suite.plain.load_and_inject_default_environment(self._injections))

    @cached_property
    def _injections(self) -> dict[str, str]:
        return self.suite.injections(self.task, self.attack) if self.attack else {}

    @cached_property
    def user_calls(self) -> tuple[Call, ...]:
        """The ground truth of the user task."""
        return _calls(self.task.ground_truth(self.environment()))

    @cached_property
    def injected_calls(self) -> tuple[Call, ...]:
        """The ground truth of the injection task; empty without attack."""
        return _calls(self.attack.ground_truth(self.environment())) if self.attack else ()

    def is_useful(self, answer: str, before: Any, after: Any, made: Sequence[Call]) -> bool:
        """Whether AgentDojo's grader says that the user task was solved."""
        return bool(_graded(self.task, "utility", answer, before, after, made))

    def is_won(self, answer: str, before: Any, after: Any, made: Sequence[Call]) -> bool:
        """Whether AgentDojo's grader says that the attack had its way; False without attack."""
        return self.attack is not None and bool(_graded(self.attack, "security", answer, before, after, made))


def _graded(task: Any, what: str, answer: str, before: Any, after: Any, made: Sequence[Call]) -> bool:
    """What a grader says; calls count for it only if they were made, not if they were only asked for."""
    trace = [_function_call(call) for call in made]
    with redirect_stdout(io.StringIO()):  # a grader prints what it misses
        graded = getattr(task, f"{what}_from_traces")(answer, before, after, trace)
        return bool(getattr(task, what)(answer, before, after) if graded is None else graded)


def _function_call(call: Call) -> Any:
    from agentdojo.functions_runtime import FunctionCall

    return FunctionCall(function=call.tool, args=dict(call.args))


def _calls(calls: Iterable[Any]) -> tuple[Call, ...]:
    return tuple(Call(call.function, dict(call.args)) for call in calls)


@dataclass(frozen=True)
class Suite:
    """One suite."""

    name: str
    plain: Any
    """AgentDojo's own object."""

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def _attack(self) -> Any:
        from agentdojo.attacks.important_instructions_attacks import ImportantInstructionsAttackNoNames

        return ImportantInstructionsAttackNoNames(self.plain, SimpleNamespace(name=AGENT))

    def injections(self, task: Any, attack: Any) -> dict[str, str]:
        """The text of the attack, by place; the places are those that the ground truth of the task shows."""
        return dict(self._attack.attack(task, attack))

    @property
    def benign(self) -> list[Case]:
        """Each user task without attack."""
        return [Case(self, user, None) for user in self.plain.user_tasks]

    @property
    def pairs(self) -> list[Case]:
        """Each user task with each injection task."""
        return [Case(self, user, attack) for user in self.plain.user_tasks for attack in self.plain.injection_tasks]

    @property
    def functions(self) -> Mapping[str, Any]:
        """AgentDojo's functions by name."""
        return {function.name: function for function in self.plain.tools}

    def run(self, environment: Any, call: Call) -> tuple[Any, str | None]:
        """Call a function; returns its result, and the error if it failed."""
        from agentdojo.functions_runtime import FunctionsRuntime

        result, error = FunctionsRuntime(self.plain.tools).run_function(environment, call.tool, dict(call.args))
        return result, error

    def played(self, case: Case, calls: Iterable[Call]) -> Iterator[Any]:
        """A new environment, then the same environment after these calls, without Replan."""
        environment = case.environment()
        yield environment.model_copy(deep=True)
        for call in calls:
            self.run(environment, call)
        yield environment


@cache
def suite(name: str) -> Suite:
    """The suite of this name.

    Raises:
        MissingSuites: AgentDojo is not installed.
    """
    _prepare()
    from agentdojo.task_suite.load_suites import get_suite

    return Suite(name, get_suite(VERSION, name))


def _prepare() -> None:
    """Let `agentdojo.agent_pipeline` be imported without the SDKs of models."""
    if importlib.util.find_spec("agentdojo") is None:
        raise MissingSuites(
            "AgentDojo is not installed: python -m pip install --no-deps -r lab/evals/injection/requirements.txt"
        )
    if PIPELINE not in sys.modules:
        import agentdojo

        package, google = ModuleType(PIPELINE), ModuleType(f"{PIPELINE}.llms.google_llm")
        package.__path__ = [f"{folder}/agent_pipeline" for folder in agentdojo.__path__]
        google.EMPTY_FUNCTION_NAME = ""  # type: ignore[attr-defined]  # all that another module imports of it
        sys.modules |= {PIPELINE: package, google.__name__: google}
