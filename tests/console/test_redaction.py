"""Redaction: a history without its words still replays, and equal values stay equal."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel, JsonValue
from temporalio.api.common.v1 import Header, Memo
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory

from client.explain import explanation, page
from client.history.account import replayed_progress
from client.placeholders import LONG, Placeholders
from client.redaction import Redaction, Values
from replan import tool
from runtime.payloads import DATA_CONVERTER
from tests import malformed, marks
from tests.console.deeds import World, bank
from tests.console.histories import history
from tests.console.replaying import HISTORIES, replay, replay_changed
from tests.harness import DONE, outcome, plan, staged, step
from workflows.account.entries_of_steps import Attempted, Started
from workflows.account.journal import MovedOn, PlanInForce
from workflows.account.progress import Progress
from workflows.account.records import FaultRecord, Observation, Revision, StepRecord
from workflows.account.task import Task
from workflows.faults.fault import Code, Fault, ProgressReport
from workflows.json_values import canonical, digest
from workflows.people.requests import ProposedCall
from workflows.plans.addresses import addresses_in
from workflows.plans.catalogue import Catalogue, Effect, ToolSpec
from workflows.plans.contract import AllowedEffect, Contract, Origin, Term
from workflows.plans.proposal import NewSteps, Proposed


class Empty(BaseModel):
    """No argument."""


class Rooms(BaseModel):
    rooms: dict[str, dict[str, int]]


def redacted(file: Path) -> dict[str, Any]:
    saved = WorkflowHistory.from_json(file.stem, file.read_text())
    return WorkflowHistory(file.stem, Redaction().events(saved.events)).to_json_dict()


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for file in HISTORIES:
        (tmp_path / file.name).write_text(json.dumps(redacted(file)))
    return sorted(tmp_path.glob("*.json"))


def test_every_redacted_history_replays(files: list[Path]) -> None:
    """What decides is still there, whatever happened: kinds, ids of steps, codes and times are the original ones."""
    done = replay(*files)

    assert (done.returncode, done.stdout.count(": ok")) == (0, len(HISTORIES)), done.stdout + done.stderr
    for file, saved in zip(files, HISTORIES, strict=True):
        assert [*deciding(json.loads(file.read_text()))] == [*deciding(json.loads(saved.read_text()))]


@pytest.mark.full
def test_a_changed_workflow_fails_on_every_redacted_history(files: list[Path]) -> None:
    """A redacted history is as good a witness as the original."""
    done = replay_changed(*files)

    assert done.returncode == 1
    assert ": ok" not in done.stdout


def deciding(history: Any) -> Iterator[tuple[Any, ...]]:
    """What a history is about, without its words."""
    for event in history["events"]:
        given = event.get("activityTaskScheduledEventAttributes", {})
        failed = event.get("activityTaskFailedEventAttributes", {}).get("failure", {})
        yield (
            event["eventType"],
            event["eventTime"],
            given.get("activityId"),
            given.get("activityType"),
            failed.get("applicationFailureInfo", {}).get("type"),
        )


SAME: list[Any] = ["a", "", 1.5, [1, "a", None, True]]
OTHERS: list[tuple[Any, Any]] = [("a", "b"), ("<text-1>", "a"), (1, 2), (1.5, 2.5), (1, "1"), (2**60, 2**60 + 1)]
OTHERS += [({"a": {"b": "c"}}, {"a": {"b": "d"}}), ({"x@example.com": 1}, {"y@example.com": 1})]
PAIRS = [*((one, one, True) for one in SAME), (1, 1.0, True), *((*pair, False) for pair in OTHERS)]


@pytest.mark.parametrize(("one", "other", "same"), PAIRS)
def test_two_values_are_the_same_after_it_when_they_were_before(one: Any, other: Any, same: bool) -> None:
    """The repeat guard compares calls and observations, and must come to the same."""
    hide = Placeholders()

    assert (digest(hide.data(one)) == digest(hide.data(other))) is same


@pytest.mark.parametrize("value", ["x" * LONG, "ä" * 1000, 'quoted "' * 99, "line\n" * 500, "\U0001f600" * 300])
def test_a_long_value_keeps_its_size(value: str) -> None:
    """The workflow refuses calls that are too large, so size decides."""
    assert len(canonical(Placeholders().data(value)).encode()) == len(canonical(value).encode())


@pytest.mark.full
async def test_a_rollback_and_what_was_found_out_replay_redacted(client: Client, tmp_path: Path) -> None:
    """What was undone, what was found, and what stays can still be told; no word of it is left."""
    world = World(["lost", "paid"])
    steps = plan(step("a", "pay", amount=47110815), step("b", "tell", "a"), step("last", "person", "b"))
    async with bank(client, tmp_path, world, [steps, DONE]) as stage:
        handle = await stage.start(Task(text="kestrel", on_escalation="undo"))
        await outcome(handle)
        events = Redaction().events((await handle.fetch_history()).events)
    file = tmp_path / "redacted.json"
    file.write_text(json.dumps(WorkflowHistory(handle.id, events).to_json_dict()))
    told = "\n".join(page.page_lines(explanation.explain_task(await history(events)), None))

    assert replay(file).returncode == 0
    assert "It was applied: its result was found" in told and "Changed and undone: a (pay)." in told
    assert "Was to be undone and stays: b (" in told
    assert "47110815" not in told and "kestrel" not in file.read_text()


def test_references_between_steps_stay() -> None:
    """In a plan's arguments; the same shape in a tool's answer is a value."""
    reference: JsonValue = {"$from": "a", "path": "hits.0.x@y"}
    hide = Placeholders()
    hide.known_keys.add("hits")

    assert Placeholders().data({"q": reference}, references=True) != Placeholders().data({"q": reference})
    assert hide.data(reference, references=True) == {"$from": "a", "path": "hits.0.<text-1://>"}
    assert hide.data({"hits": [{"x@y": 1}]}) == {"hits": [{"<text-1://>": 1001}]}


def test_a_continued_task_still_refuses_to_repeat_a_call() -> None:
    """The repeat guard knows calls and observations by digests, which must be those of the placeholders."""
    args: dict[str, JsonValue] = {"day": "kestrel"}
    view: dict[str, JsonValue] = {"free": ["dunlin"]}
    record = StepRecord(step=step("a", "book", day="kestrel"), revision=1, effect=Effect.READ, kind="book", args=args)
    seen = Observation(step_id="a", kind="slots", args=args, value=view, at=datetime.now(UTC))
    before = Progress(task=Task(text="x"), task_id="x", started_at=seen.at, records=[record], observations=[seen])
    before.guard.remember("book", args, 0)
    before.guard.observed("book", args, "slots", dict(args), view)
    after = Progress.model_validate(Values().of(before.model_dump(mode="json"), (Task, Progress)))
    hidden = after.records[0].args or {}
    after.guard.observed("other", {}, "slots", after.observations[0].args, after.observations[0].value)

    assert hidden != args and after.guard.refuses("book", hidden, 0) and not after.guard.refuses("book", args, 0)
    assert "kestrel" not in after.model_dump_json() and "dunlin" not in after.model_dump_json()


def test_the_journal_of_a_continued_task_says_what_happened_and_no_more() -> None:
    """Kinds, ids, codes and numbers of its entries stay; titles, reasons and what a person must be told do not."""
    at = datetime.now(UTC)
    before = Progress(task=Task(text="x"), task_id="x", started_at=at)
    record = StepRecord(step=step("a", "book", day="kestrel"), revision=1, effect=Effect.READ, kind="book")
    record = record.model_copy(update={"step": record.step.model_copy(update={"title": "kestrel"})})
    revision = Revision(number=1, because="kestrel")
    before.apply(PlanInForce(number=1, at=at, proof="plan:1", revision=revision, records=(record,)))
    before.apply(Started(number=2, at=at, step="a", proof="a", outside="kestrel"))
    fault = Fault.of(Code.CONFLICT, "kestrel", source="book")
    about = "a", 1, "replan"
    before.apply(Attempted(number=3, at=at, step="a", proof="a", fault=FaultRecord.of_call(fault, *about, at=at)))
    before.apply(MovedOn(number=4, at=at, run="first"))
    after = Progress.model_validate(Values().of(before.model_dump(mode="json"), (Task, Progress)))

    assert "kestrel" not in after.model_dump_json()
    assert [(one.kind, one.number, one.step, one.proof) for one in after.journal] == [
        (one.kind, one.number, one.step, one.proof) for one in before.journal
    ]
    assert (after.faults[0].code, after.faults[0].decision, after.revision) == ("conflict", "replan", 1)


async def test_no_name_that_another_program_chose_is_left(client: Client, tmp_path: Path) -> None:
    """Keys of data outside the schemas, memo fields, Signals, metadata of payloads, and what is no JSON."""

    @tool.read
    async def guests(args: Empty) -> Rooms:
        """Say who sleeps where."""
        return Rooms(rooms={"kestrel": {"dunlin": 7}})

    async with staged(client, tmp_path, [guests], [plan(step("a", "guests")), DONE]) as stage:
        id = await malformed.start(
            client,
            "AgentWorkflow",
            [malformed.payload('{"text": "who?"}', kestrel="dunlin")],
            stage.queue,
            memo=Memo(fields={"kestrel": malformed.payload('{"dunlin')}),
            header=Header(fields={"kestrel": malformed.as_json({"dunlin": 1})}),
        )
        await client.get_workflow_handle(id).signal("kestrel", {"dunlin": 1})
        await client.get_workflow_handle(id).result()
        events = Redaction().events((await client.get_workflow_handle(id).fetch_history()).events)
    file = tmp_path / "redacted.json"
    file.write_text(json.dumps(WorkflowHistory(id, events).to_json_dict()))
    told = "".join(str(event) for event in events)

    assert [word for word in ("kestrel", "dunlin", "who?") if word in told] == []
    assert replay(file).returncode == 0


def test_what_a_codec_wrote_is_left_and_counted(tmp_path: Path) -> None:
    """Nobody here can read it, nor redact it."""
    saved = WorkflowHistory.from_json("x", HISTORIES[0].read_text())
    payload = saved.events[0].workflow_execution_started_event_attributes.input.payloads[0]
    payload.metadata["encoding"] = b"binary/encrypted"
    redaction = Redaction()
    after = redaction.events(saved.events)[0].workflow_execution_started_event_attributes.input.payloads[0]

    assert (after, redaction.opaque) == (payload, 1)


def test_what_a_server_said_of_its_progress_is_hidden() -> None:
    """The words of the last heartbeat of an attempt that timed out; how far it was stays, as all numbers of ours do."""
    saved, said = WorkflowHistory.from_json("x", HISTORIES[0].read_text()), "reading /home/ann/secret.txt"
    event = HistoryEvent(event_id=len(saved.events) + 1, event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT)
    failure = event.activity_task_timed_out_event_attributes.failure
    heartbeats = failure.cause.timeout_failure_info.last_heartbeat_details
    for told in (ProgressReport(done=2, total=3, words=said), ProgressReport(done=3, words=said)):
        heartbeats.payloads.add(metadata={"encoding": b"json/plain"}, data=told.model_dump_json().encode())
    hidden = Redaction().events([*saved.events, event])[-1]
    details = hidden.activity_task_timed_out_event_attributes.failure.cause.timeout_failure_info.last_heartbeat_details
    first, second = (ProgressReport.model_validate_json(payload.data) for payload in details.payloads)

    assert said not in str(hidden) and "ann" not in str(hidden)
    assert (first.done, first.total, second.done) == (2, 3, 3)
    assert first.words == second.words != said


def test_a_contract_stays_one() -> None:
    """The kinds in it decide; its values, the names of arguments and the paths into results are hidden."""
    terms = {
        "iban": Term(slot="read_invoice.payee.iban"),
        "whole": Term(slot="read_invoice"),
        "to": Term(values=("Ann Lee", {"$from": "a", "path": "payee"})),
        "amount": Term(at_least=1, at_most=50),
    }
    effect = AllowedEffect(kind="pay", args=terms, count=2, used_by=["a"])
    task = Task(text="Pay.", contract=(effect,), result_schema={"type": "object", "title": "Ann Lee"})
    hidden = Task.model_validate(Values().of(task.model_dump(mode="json"), [Task]))
    (shown,) = hidden.contract
    iban, whole, to, amount = shown.args.values()

    assert (shown.kind, shown.count, shown.used_by) == ("pay", 2, ["a"])
    assert iban.slot.startswith("read_invoice.") and whole.slot == "read_invoice"
    assert isinstance(to.values[1], dict) and to.values[1]["$from"] == "a"
    assert (amount.at_least, amount.at_most) == (1, 50)
    assert [*(hidden.result_schema or {})] == ["type", "title"]
    assert not any(word in hidden.model_dump_json() for word in ("iban", "payee", "Ann Lee", "amount"))


def test_specs_that_come_with_a_plan_are_specs_after_it() -> None:
    """A worker with other tools planned: the history replays, so the task uses what it was told. What a computation was
    made of is hidden: its arguments are data, as the sentence of an untrusted text is."""
    spec = ToolSpec(kind="pay", effect=Effect.KEYED, retry="patient", approve="args.iban == 'DE99'")
    proposed = Proposed(proposal=NewSteps(steps=()), planner="x", specs={"pay": spec.model_dump(mode="json")})
    origin = Origin(step="p", at="to", source="c", computed="join from parts Ann Lee", quote="Pay Ann Lee.")
    hidden, made = [Values().of(one.model_dump(mode="json"), (type(one),)) for one in (proposed, origin)]
    catalogue = Catalogue(specs={}, planner="x", patience=0)
    catalogue.take_over(Proposed.model_validate(hidden).specs)

    assert (catalogue.specs["pay"].effect, catalogue.specs["pay"].retry) == (Effect.KEYED, "patient")
    assert "DE99" not in json.dumps(hidden)
    assert "Ann" not in canonical(made) and '"c"' in canonical(made)


@pytest.mark.parametrize("value", ["https://evil.org/x", "ann@example.org", "10.0.0.1", "see //evil.org", "no address"])
def test_an_address_is_one_after_it(value: str) -> None:
    """Whether a read may be told a value depends on it, and so do the names that say it of a value."""
    hide, rows = Values(), cast(dict[str, JsonValue], {"x": [value], "page_url": 1})
    hidden: Any = hide.data(rows)
    contract: Any = hide.of({"unchecked": {"b": [*rows]}}, (Contract,))

    assert [is_key for _, is_key in addresses_in(hidden)] == [is_key for _, is_key in addresses_in(rows)]
    assert contract["unchecked"] == {"b": [*hidden]} and "evil" not in str(hidden)


def test_what_a_tool_adds_to_a_call_is_hidden_as_its_arguments_are() -> None:
    """In the failure that asks for the approval, and in the request; an equal value has one placeholder."""
    added: dict[str, JsonValue] = {"payee": "kestrel", "amount": 7}
    hide = Values()
    fault = Fault.of(Code.NEEDS_APPROVAL, "It needs one.", defaults=added)
    call = ProposedCall(kind="pay", effect="keyed", args={"to": "kestrel"}, code="1f0c", defaults=added)
    told: Any = [hide.of(one.model_dump(mode="json"), (type(one),)) for one in (fault, call)]

    assert "kestrel" not in str(told) and "payee" not in str(told)
    assert told[0]["defaults"] == told[1]["defaults"]
    assert [*told[1]["defaults"].values()] == [*told[1]["args"].values(), 1001]


@pytest.mark.full
@pytest.mark.timeout(900)
async def test_without_a_mark_a_redacted_history_tells_something_else() -> None:
    """Each mark is needed by a replay or by who reads what happened, if a saved history has a value of its field."""
    saved = [WorkflowHistory.from_json(file.stem, file.read_text()).events for file in HISTORIES]
    whole = [[*map(shape_of, Redaction().events(events))] for events in saved]
    stories = [await told(Redaction().events(events)) for events in saved]
    needless = list[str]()
    for marked in marks.marks():
        for metadata in marked.metadata:
            metadata.remove(marked.mark)
        is_needed = None
        for events, shape, story in zip(saved, whole, stories, strict=True):
            without = Redaction().events(events)
            if [*map(shape_of, without)] != shape and (is_needed := await told(without) != story):
                break
        for metadata in marked.metadata:
            metadata.append(marked.mark)
        needless += [marked.name] if is_needed is False else []

    assert needless == []


def shape_of(event: HistoryEvent) -> bytes:
    """An event without the numbers of placeholders, which depend on how many there are."""
    return re.sub(rb"text-\d+", b"text", event.SerializeToString(deterministic=True))


async def told(events: list[HistoryEvent]) -> str:
    """What a replay makes of the events, and the account that the task wrote; empty if they do not replay."""
    progress = await replayed_progress("redacted", events, DATA_CONVERTER)
    end = (await history(events)).end
    text = f"{progress.model_dump_json()} {end and end.outcome and end.outcome.model_dump_json()}" if progress else ""
    return re.sub(r"<?text-\d+[^>\"]*>?", "<text>", text)
