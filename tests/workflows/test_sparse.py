"""What history keeps of each turn is written without what goes without saying, and read as before."""

import json

from pydantic import BaseModel
from pydantic_core import to_json

from workflows.calls.header import CallHeader, Undoes
from workflows.plans.catalogue import Catalogue, CompanionSpec, Effect, ToolSpec
from workflows.plans.proposal import (
    Answer,
    GiveUp,
    NewSteps,
    PassedOver,
    Proposed,
    Question,
    Step,
    StepReturn,
)

STEP = Step(id="a", kind="echo")
FULL = Step(id="b", kind="echo", args={"x": None}, provider_call="c")
WRITTEN: list[tuple[BaseModel, object]] = [
    (StepReturn(result=None), {"result": None}),
    (StepReturn(result={"a": 1}, attempt=2, tokens=3), {"result": {"a": 1}, "attempt": 2, "tokens": 3}),
    (CallHeader(key="run/a"), {"key": "run/a"}),
    (
        CallHeader(key="run/a", undoes=Undoes(key="k", step="b", kind="c"), is_reset=True),
        {"key": "run/a", "undoes": {"key": "k", "step": "b", "kind": "c"}, "is_reset": True},
    ),
    (
        Proposed(proposal=NewSteps(steps=(STEP, FULL), because="")),
        {"proposal": {"type": "steps", "steps": [{"id": "a", "kind": "echo"}, FULL.model_dump(exclude_unset=True)]}},
    ),
    (Proposed(proposal=Answer(result=None)), {"proposal": {"type": "answer", "result": None}}),
    (Proposed(proposal=Question(text="?"), branch=1), {"proposal": {"type": "question", "text": "?"}, "branch": 1}),
    (
        Proposed(proposal=GiveUp(reason="."), passed_over=(PassedOver(planner="p", code="c", reason="r"),)),
        {
            "proposal": {"type": "give_up", "reason": "."},
            "passed_over": [{"planner": "p", "code": "c", "reason": "r"}],
        },
    ),
    (
        Catalogue(
            specs={
                "pay": ToolSpec(kind="pay", effect=Effect.UNKEYED, undo=CompanionSpec(kind="refund"), tokens_overhead=0)
            },
            planner="p",
            patience=60,
        ),
        {
            "specs": {"pay": {"kind": "pay", "effect": "unkeyed", "undo": {"kind": "refund"}, "tokens_overhead": 0}},
            "planner": "p",
            "patience": 60,
        },
    ),
]


def test_only_what_is_said_is_written_and_read_as_it_was() -> None:
    """Alone and inside of something else, as the SDK's converter writes it; and nothing is lost."""
    for model, written in WRITTEN:
        assert json.loads(to_json(model)) == written
        assert json.loads(to_json([model])) == [written]
        assert type(model).model_validate_json(model.model_dump_json()) == model


def test_what_older_workers_wrote_is_read_too() -> None:
    """Every field was written then."""
    old = {"result": 1, "attempt": 1, "replayed": False, "earlier": []}

    assert StepReturn.model_validate(old) == StepReturn(result=1)
