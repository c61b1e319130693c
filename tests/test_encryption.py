"""A user's own data converter, whole: a codec that encrypts, failures with encoded attributes, external storage."""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import BaseModel, JsonValue
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes, PayloadCodec
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from client.events import Ended
from replan import Client, NeedsPerson, Refused, Replan, TaskCancelled, TaskFailed, TaskHandle, tool
from runtime.dev_server import DevServer
from workflows.account.outcome import Outcome
from workflows.plans.proposal import Step

COLOUR = "vermilion"
"""A word that only the holders of the key may see."""
KEY = secrets.token_bytes(32)
ENCRYPTED = {"encoding": b"binary/sealed"}


class Sealing(PayloadCodec):
    """Encrypts with a key, authenticates, and reads nothing that it did not write exactly so."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt whole payloads, with their metadata."""
        return [Payload(metadata=ENCRYPTED, data=self._sealed(one.SerializeToString())) for one in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt; raise for what another program wrote or changed."""
        if any(dict(one.metadata) != ENCRYPTED for one in payloads):
            raise ValueError(f"This was not sealed: {[dict(one.metadata) for one in payloads]}.")
        return [Payload.FromString(self._opened(one.data)) for one in payloads]

    def _sealed(self, data: bytes) -> bytes:
        nonce = secrets.token_bytes(16)
        hidden = nonce + self._mixed(nonce, data)
        return hmac.digest(KEY, hidden, "sha256") + hidden

    def _opened(self, data: bytes) -> bytes:
        tag, hidden = data[:32], data[32:]
        if not hmac.compare_digest(tag, hmac.digest(KEY, hidden, "sha256")):
            raise ValueError("This was changed.")
        return self._mixed(hidden[:16], hidden[16:])

    def _mixed(self, nonce: bytes, data: bytes) -> bytes:
        stream = hashlib.shake_256(KEY + nonce).digest(len(data))
        return (int.from_bytes(data) ^ int.from_bytes(stream)).to_bytes(len(data))


CONVERTER = DataConverter(payload_codec=Sealing(), failure_converter_class=DefaultFailureConverterWithEncodedAttributes)


class Amount(BaseModel):
    """How many times."""

    times: int


class Words(BaseModel):
    """A text."""

    words: str


@tool.read
async def words(args: Amount) -> Words:
    """The colour, many times over."""
    return Words(words=COLOUR * args.times)


@tool.read
async def refuse(args: Words) -> Words:
    """Say no, and why."""
    raise Refused(f"The colour is {args.words}.", observed={"colour": args.words})


@tool.read
async def broken(args: Words) -> Words:
    """Wait for a person."""
    raise NeedsPerson(f"Nobody mixes {args.words}.")


LARGE = Step(id="large", kind="words", args={"times": 20_000})
MUCH = {"words": COLOUR * 20_000}
"""Its result, of 180 kB: too much for a history, and all of it is in the Outcome."""
ASKING = {"on_escalation": "wait"}


def result(outcome: Outcome, step: int) -> JsonValue:
    """The result of a step."""
    return outcome.steps[step].result


@workflow.defn
class Painting:
    """A workflow of the user's, which has Replan do a part of its work."""

    @workflow.run
    async def run(self, queue: str) -> str:
        """The status of the task, and how long its large result is."""
        task = {"text": f"paint in {COLOUR}", "plan": [LARGE.model_dump(mode="json")], "plan_only": True}
        outcome = await workflow.execute_child_workflow(
            "AgentWorkflow", task, id=f"{workflow.info().workflow_id}-child", task_queue=queue, result_type=dict
        )
        return f"{outcome['status']} {len(outcome['steps'][0]['result']['words'])}"


@dataclass
class Site:
    """A user's worker with Replan's plugin, and the user's connection."""

    theirs: TemporalClient
    replan: Client
    plugin: Replan
    queue: str
    state: Path

    async def run(self, *plan: Step, **options: object) -> TaskHandle:
        """Start a task with this plan."""
        return await self.replan.start(f"paint in {COLOUR}", plan=plan, plan_only=True, **options)  # type: ignore[arg-type]

    async def events(self, id: str) -> list[HistoryEvent]:
        """What the server keeps of a workflow."""
        return [event async for event in self.theirs.get_workflow_handle(id).fetch_history_events()]


@pytest.fixture(scope="module")
async def site(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """One worker for all tests of this module."""
    theirs = await TemporalClient.connect(server.address, data_converter=CONVERTER)
    queue, state = f"sealed-{secrets.token_hex(4)}", tmp_path_factory.mktemp("state")
    plugin = Replan([words, refuse, broken], planner="offline", queue=queue, state=state)
    own = Worker(
        theirs,
        task_queue=f"{queue}-own",
        workflows=[Painting],
        plugins=[plugin],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with own:
        yield Site(theirs, Client(theirs, queue=queue), plugin, queue, state)


async def test_a_large_outcome_is_read_by_result_and_follow(site: Site) -> None:
    """What is in the Outcome stays in the history, whatever the codec makes of it."""
    task = await site.run(LARGE)
    seen = [event async for event in task.follow()]
    outcome = await task.result()

    assert isinstance(seen[-1], Ended)
    assert [result(one, 0) for one in (seen[-1].outcome, outcome)] == [MUCH] * 2


async def test_a_workflow_of_the_user_awaits_a_large_outcome(site: Site) -> None:
    """With the user's data converter, and without a store."""
    id = f"painting-{secrets.token_hex(4)}"
    done = await site.theirs.execute_workflow(Painting.run, site.queue, id=id, task_queue=f"{site.queue}-own")

    assert done == "completed 180000"


async def test_a_cancelled_task_tells_its_large_outcome_from_its_memo(site: Site) -> None:
    """Temporal's cancelled workflows have no result, so it is in the memo."""
    task = await site.run(LARGE, Step(id="wait", kind="broken", args={"words": COLOUR}, needs=("large",)), **ASKING)
    await opened(task)
    await task.cancel()
    with pytest.raises(TaskCancelled) as ended:
        await task.result()

    assert result(ended.value.outcome, 0) == MUCH


async def opened(task: TaskHandle) -> str:
    """The id of what the task asks, once it asks."""
    while not (found := await task.requests()):
        await asyncio.sleep(0.1)
    return found[0].id


async def test_the_server_sees_no_plaintext(site: Site) -> None:
    """Neither in payloads, headers and memos nor in the messages of failures, which are encoded attributes."""
    failed = await site.run(LARGE, Step(id="no", kind="refuse", args={"words": COLOUR}, needs=("large",)), id=fresh())
    with pytest.raises(TaskFailed, match=COLOUR) as ended:
        await failed.result()
    asking = await site.run(Step(id="ask", kind="broken", args={"words": COLOUR}), id=fresh(), **ASKING)
    await opened(asking)
    await asking.answer("provide", result={"words": f"{COLOUR}, mixed by hand"}, by="ada")
    done = await asking.result()
    events = [event for task in (failed, asking) for event in await site.events(task.id)]
    failures = [
        *(event.activity_task_failed_event_attributes.failure for event in of(events, "ACTIVITY_TASK_FAILED")),
        *(
            event.workflow_execution_failed_event_attributes.failure
            for event in of(events, "WORKFLOW_EXECUTION_FAILED")
        ),
    ]
    told = [(await site.theirs.get_workflow_handle(task.id).describe()).raw_description for task in (failed, asking)]

    assert (result(ended.value.outcome, 0), result(done, 0)) == (MUCH, {"words": f"{COLOUR}, mixed by hand"})
    assert {event.event_type for event in events if COLOUR.encode() in event.SerializeToString()} == set()
    assert not any(COLOUR.encode() in one.SerializeToString() for one in told)
    assert len(failures) == 3
    assert {(one.message, one.stack_trace, dict(one.encoded_attributes.metadata)["encoding"]) for one in failures} == {
        ("Encoded failure", "", ENCRYPTED["encoding"])
    }


def of(events: Sequence[HistoryEvent], type: str) -> list[HistoryEvent]:
    """The events of this type."""
    return [event for event in events if event.event_type == EventType.Value(f"EVENT_TYPE_{type}")]


def fresh() -> str:
    """The id of a task, without a word of it."""
    return f"task-{secrets.token_hex(4)}"
