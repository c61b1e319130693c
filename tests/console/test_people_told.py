"""`explain` and `export --redact` of tasks that people answered, from their histories alone."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory, WorkflowUpdateFailedError

from client.explain import explanation, page
from client.history.story import Story
from client.redaction import Redaction, Values
from tests.activities.situations import NOW
from tests.console.desk import desk
from tests.console.histories import history
from tests.console.replaying import replay
from tests.harness import outcome, plan, step
from tests.workflows.history import Handle, until
from workflows.account.records import StepRecord
from workflows.account.task import Task
from workflows.limits.budget import Limits
from workflows.people.requests import Change, Choice, HumanAnswer
from workflows.plans.catalogue import Effect
from workflows.plans.proposal import Question, Step

SIGN = plan(step("signed", "sign", word="dunlin"))
QUESTION = Question(text="kestrel?", options=("wren", "lark"))
TAKEN = plan(step("written", "write", word="taken"))


async def answered(handle: Handle, number: int, choice: str, **given: Any) -> None:
    """Answer the request with this number as soon as it is open."""
    await until(handle, lambda now: len(now.requests) >= number)
    await handle.execute_update(choice, {**given, "request": f"r{number}"}, result_type=str)


@pytest.fixture(scope="module")
async def much(client: Client, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[list[HistoryEvent]]:
    """A task that asked four times: a question, a fault whose first result is refused, and a budget."""
    async with desk(client, tmp_path_factory.mktemp("much"), QUESTION, SIGN, TAKEN) as busy:
        handle = await busy.begin(Task(text="magpie", on_escalation="wait", limits=Limits(replans=0)))
        await answered(handle, 1, "reply", text="wren", by="ann")
        with pytest.raises(WorkflowUpdateFailedError):
            await answered(handle, 2, "provide", result={"word": 7}, by="bob")
        await answered(handle, 3, "retry", by="cleo")
        await answered(handle, 4, "extend", replans=1)
        await handle.result()
        yield list((await handle.fetch_history()).events)


async def told(events: list[HistoryEvent]) -> str:
    """What `explain` says."""
    return "\n".join(page.page_lines(explanation.explain_task(await history(events)), None))


async def test_who_answered_what_and_after_how_long(much: list[HistoryEvent]) -> None:
    """With the events that prove it, whether the task has ended or not; what was asked twice is one item."""
    whole, running = await told(much), await told(much[:-1])
    items = explanation.explain_task(await history(much)).items

    assert [item.decision for item in items] == ["ask"] * 2 + ["replan", "ask"]
    for said in (
        "The planner asked: kestrel?",
        "A person was asked (r1), and ann answered reply after ",
        ': "wren".',
        "A person was asked (r2), and bob answered provide after ",
        "A person was asked (r3), and cleo answered retry after ",
        "The same call was made again, and succeeded.",
        "A person was asked for more of a budget (replans).",
        "A person was asked (r4), and somebody answered extend after ",
        ": 1 replans more.",
    ):
        assert said in whole and said in running, said
    assert "The result was not accepted: " in whole


async def test_a_task_that_waits_says_for_what(much: list[HistoryEvent]) -> None:
    """Cut where the first request was opened; the command that answers is named."""
    opened = next(event for event in much if event.HasField("timer_started_event_attributes"))
    said = await told([event for event in much if event.event_id <= opened.event_id])

    assert "A person was asked (r1), and has not answered yet." in said
    assert "Now  The task waits for a person (r1: question) since " in said
    assert ": `python starter.py answer the-task` shows the answers." in said


async def test_an_extension_that_nobody_asked_for_is_told(client: Client, tmp_path: Path) -> None:
    """It is an event of the task, and answers no request."""
    async with desk(client, tmp_path, SIGN) as busy:
        handle = await busy.begin(Task(text="a task", on_escalation="wait"))
        await until(handle, lambda now: bool(now.requests))
        await handle.execute_update("extend", {"replans": 2, "by": "ann"}, result_type=str)
        await answered(handle, 1, "abort", reason="enough", by="bob")
        await outcome(handle)
        said = await told(list((await handle.fetch_history()).events))

    assert "ann extended the budget: 2 replans more." in said
    assert ", and bob answered abort after " in said and ': "enough".' in said


async def test_redacted_it_replays_without_words_and_names(much: list[HistoryEvent], tmp_path: Path) -> None:
    """What decides stays: the requests and the answers."""
    events = Redaction().events(much)
    file = tmp_path / "redacted.json"
    file.write_text(json.dumps(WorkflowHistory("x", events).to_json_dict()))
    said = "".join(str(event) for event in events)
    story = Story(await history(events))

    assert replay(file).returncode == 0, replay(file).stdout
    assert [word for word in ("kestrel", "wren", "lark", "ann", "bob", "cleo", "dunlin") if f'"{word}' in said] == []
    assert [one.choice.value for one in story.history.answers] == ["reply", "provide", "retry", "extend"]
    assert story.history.outcome is not None
    assert [one.id for one in story.history.outcome.requests] == ["r1", "r2", "r3", "r4"]


def test_redacted_an_edit_has_none_of_its_values() -> None:
    """Neither numbers nor texts, as it is answered and as the step keeps it; the names are those of its arguments."""
    edit: dict[str, Any] = {"amount": 450, "note": "kestrel", "to": {"city": "wren", "zip": 1234}}
    changed = {name: Change(was=8_765, now=value) for name, value in edit.items()}
    answer = HumanAnswer(choice=Choice.EDIT, at=NOW, edited=changed)
    record = StepRecord(step=Step(id="a", kind="k"), revision=1, effect=Effect.KEYED, kind="k", edited=edit)
    values = Values()
    told = [
        values.of(answer.model_dump(mode="json"), (HumanAnswer,)),
        values.of(record.model_dump(mode="json"), (StepRecord,)),
    ]

    assert [word for word in ("450", "8765", "1234", "kestrel", "wren") if word in json.dumps(told)] == []
    assert HumanAnswer.model_validate(told[0]).edited.keys() == StepRecord.model_validate(told[1]).edited.keys()
