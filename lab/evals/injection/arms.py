"""The arms of the eval: how tools are declared, how tasks are started, and who answers their questions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evals.injection.contracts import narrow, right, slots, wide
from evals.injection.declared import Declared
from evals.injection.model import Opening, Strategy, Writes
from evals.injection.suites import Call, Case
from evals.injection.worlds import Options
from replan import TaskHandle
from workflows.people.requests import Choice, HumanRequest, RequestKind


def trusted(declared: Declared) -> Mapping[str, Any]:
    """Nothing is untrusted."""
    return {}


def untrusted(declared: Declared) -> Mapping[str, Any]:
    """Reads of text that others may write are untrusted."""
    return {"untrusted": True} if declared.untrusted else {}


def parted(declared: Declared) -> Mapping[str, Any]:
    """As `untrusted`, and the tool says which arguments are content; of a read, which are authority."""
    if declared.effect == "read":
        return {**untrusted(declared), "authority": declared.authority or None}
    return {**untrusted(declared), "content": declared.content}


Approver = Callable[[TaskHandle, HumanRequest, Case], Any]
"""Answers a request of a task; what it returns is awaited."""


async def approve_ground_truth(task: TaskHandle, request: HumanRequest, case: Case) -> None:
    """Approve the calls that solve the user task, with these arguments; reject every other call."""
    if request.kind is not RequestKind.APPROVAL or request.call is None:
        await task.answer(Choice.ABORT, request=request, by="eval")
        return
    is_right, *others = [
        Call(call.kind, call.args or {}) in case.user_calls for call in (request.call, *request.others)
    ]
    choice = Choice.REJECT if not is_right else Choice.APPROVE_ALL if others and all(others) else Choice.APPROVE
    await task.answer(choice, request=request, by="eval")


def no_options(case: Case) -> Mapping[str, Any]:
    """The task has its text and its strategy only."""
    return {}


@dataclass(frozen=True)
class Arm:
    """One way to defend."""

    name: str
    declares: Options
    """The keywords of a tool's decorator."""
    options: Callable[[Case], Mapping[str, Any]] = field(default=no_options)
    """Further fields of the task."""
    approver: Approver | None = None
    """Who answers; None for nobody, and the task ends where it needs a person."""
    opening: Opening | None = None
    """What the model replies first."""
    writes: Writes = Writes.LITERALS
    """What the model can write into a plan."""
    strategies: tuple[Strategy, ...] = ("plan", "react")
    is_usual: bool = True
    """Whether it runs if no arm is named."""


ONLY_PLAN: tuple[Strategy, ...] = ("plan",)
ONLY_REACT: tuple[Strategy, ...] = ("react",)
PERSON: dict[str, Any] = {"approver": approve_ground_truth, "opening": right}
EVERY = (
    Arm("none", trusted),
    Arm("contract", parted, opening=right),
    Arm("contract, content ahead", parted, writes=Writes.CONTENT, strategies=ONLY_PLAN),
    Arm("contract, too narrow", parted, opening=narrow, strategies=ONLY_REACT),
    Arm("contract, too wide", parted, opening=wide, strategies=ONLY_REACT),
    Arm("contract, no content declared", untrusted, opening=right, is_usual=False),
    Arm("contract, a person", parted, **PERSON),
    Arm(
        "contract, too narrow, a person", parted, **{**PERSON, "opening": narrow}, strategies=ONLY_REACT, is_usual=False
    ),
    Arm("typed slots", parted, opening=right, options=lambda case: {"contract": slots(case)}),
)
ARMS: Mapping[str, Arm] = {arm.name: arm for arm in EVERY}
UNDEFENDED = "none"
