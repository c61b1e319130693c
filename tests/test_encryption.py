"""A user's own data converter, whole: a codec that encrypts, failures with encoded attributes, external storage."""

import asyncio
import dataclasses
import hashlib
import hmac
import json
import secrets
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client as TemporalClient, WorkflowHistory
from temporalio.converter import (
    ActivitySerializationContext,
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    DefaultPayloadConverter,
    EncodingPayloadConverter,
    ExternalStorage,
    PayloadCodec,
    SerializationContext,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker

from client.events import Ended
from client.reset import reference_of
from client.upgrade import open_tasks
from client.workers import ask
from replan import Client, NeedsPerson, Problem, Refused, Replan, TaskCancelled, TaskFailed, TaskHandle, tool
from runtime.dev_server import DevServer
from runtime.keys import add_key
from tests.processes import Processes
from workflows.account.outcome import Outcome
from workflows.inquiries import PayloadInquiry
from workflows.people.requests import HumanRequest
from workflows.plans.proposal import Step

OfWorkflow = ActivitySerializationContext | WorkflowSerializationContext
COLOUR = "vermilion"
"""A word that only the holders of the key may see."""
KEY = b"of the tests alone, 32 bytes long"[:32]
ENCRYPTED = {"encoding": b"binary/sealed"}


class Sealing(PayloadCodec, WithSerializationContext):
    def __init__(self, key: bytes = KEY) -> None:
        self._key = key

    def with_context(self, context: SerializationContext) -> "Sealing":
        id = context.workflow_id if isinstance(context, OfWorkflow) else None
        return Sealing(hmac.digest(KEY, (id or "").encode(), "sha256"))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload(metadata=ENCRYPTED, data=self._sealed(one.SerializeToString())) for one in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        if any(dict(one.metadata) != ENCRYPTED for one in payloads):
            raise ValueError(f"This was not sealed: {[dict(one.metadata) for one in payloads]}.")
        return [Payload.FromString(self._opened(one.data)) for one in payloads]

    def _sealed(self, data: bytes) -> bytes:
        nonce = secrets.token_bytes(16)
        hidden = nonce + self._mixed(nonce, data)
        return hmac.digest(self._key, hidden, "sha256") + hidden

    def _opened(self, data: bytes) -> bytes:
        tag, hidden = data[:32], data[32:]
        if not hmac.compare_digest(tag, hmac.digest(self._key, hidden, "sha256")):
            raise ValueError("This was changed.")
        return self._mixed(hidden[:16], hidden[16:])

    def _mixed(self, nonce: bytes, data: bytes) -> bytes:
        stream = hashlib.shake_256(self._key + nonce).digest(len(data))
        return (int.from_bytes(data) ^ int.from_bytes(stream)).to_bytes(len(data))


CONVERTER = DataConverter(payload_codec=Sealing(), failure_converter_class=DefaultFailureConverterWithEncodedAttributes)


class Amount(BaseModel):
    times: int


class Words(BaseModel):
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


REPAIRED = set[str]()
"""What `mix` can mix."""


@tool.read
async def mix(args: Words) -> Words:
    """Wait for a person until there is a key for such a colour."""
    if args.words not in REPAIRED:
        raise NeedsPerson("The key was revoked.", code="unauthorized")
    return args


LARGE = Step(id="large", kind="words", args={"times": 20_000})
MUCH = {"words": COLOUR * 20_000}
"""Its result, of 180 kB: too much for a history, and all of it is in the Outcome."""
ASKING = {"on_escalation": "wait"}


def result(outcome: Outcome, step: int) -> JsonValue:
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
    theirs: TemporalClient
    replan: Client
    plugin: Replan
    queue: str
    state: Path

    async def run(self, *plan: Step, **options: object) -> TaskHandle:
        return await self.replan.start(f"paint in {COLOUR}", plan=plan, plan_only=True, **options)  # type: ignore[arg-type]

    async def events(self, id: str) -> list[HistoryEvent]:
        return [event async for event in self.theirs.get_workflow_handle(id).fetch_history_events()]


@asynccontextmanager
async def served(server: DevServer, state: Path, converter: DataConverter) -> AsyncIterator[Site]:
    theirs = await TemporalClient.connect(server.address, data_converter=converter)
    queue = f"sealed-{secrets.token_hex(4)}"
    plugin = Replan([words, refuse, broken, mix], planner="offline", queue=queue, state=state)
    own = Worker(
        theirs,
        task_queue=f"{queue}-own",
        workflows=[Painting],
        plugins=[plugin],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with own:
        yield Site(theirs, Client(theirs, queue=queue), plugin, queue, state)


@pytest.fixture(scope="module")
async def site(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with served(server, tmp_path_factory.mktemp("state"), CONVERTER) as running:
        yield running


async def test_a_large_outcome_is_read_by_result_by_follow_and_by_a_workflow(site: Site) -> None:
    """What is in the Outcome stays in the history, whatever the codec makes of it, and needs no store."""
    task = await site.run(LARGE)
    seen = [event async for event in task.follow()]
    outcome = await task.result()
    id = f"painting-{secrets.token_hex(4)}"
    done = await site.theirs.execute_workflow(Painting.run, site.queue, id=id, task_queue=f"{site.queue}-own")

    assert isinstance(seen[-1], Ended)
    assert [result(one, 0) for one in (seen[-1].outcome, outcome)] == [MUCH] * 2
    assert done == "completed 180000"


async def asked(task: TaskHandle) -> HumanRequest:
    while not (found := await task.requests()):
        await asyncio.sleep(0.1)
    return found[0]


async def test_the_server_sees_no_plaintext(site: Site) -> None:
    failed = await site.run(LARGE, Step(id="no", kind="refuse", args={"words": COLOUR}, needs=("large",)))
    with pytest.raises(TaskFailed, match=COLOUR) as ended:
        await failed.result()
    asking = await site.run(Step(id="ask", kind="broken", args={"words": COLOUR}), **ASKING)
    await asked(asking)
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
    return [event for event in events if event.event_type == EventType.Value(f"EVENT_TYPE_{type}")]


async def test_what_lies_in_the_store_is_read_there_by_a_worker_with_the_key(site: Site) -> None:
    """A large result, of which a history only has a reference, and the account of a task, which a replay tells.

    Temporal's cancelled workflows have no result, so the outcome of one is in the memo.
    """
    task = await site.run(LARGE, Step(id="wait", kind="broken", args={"words": COLOUR}, needs=("large",)), **ASKING)
    await asked(task)
    explained = await task.explain()
    completed = of(await site.events(task.id), "ACTIVITY_TASK_COMPLETED")
    returned = [one for event in completed for one in event.activity_task_completed_event_attributes.result.payloads]
    [reference] = filter(None, map(reference_of, returned))
    inquiry = PayloadInquiry(driver=reference.driver_name, claim=dict(reference.claim_data))
    found = (await ask(site.replan.temporal, site.queue, inquiry)).payload
    await task.cancel()
    with pytest.raises(TaskCancelled) as ended:
        await task.result()

    assert isinstance(found, dict) and found["result"] == MUCH
    assert COLOUR in str(explained.step("wait").document())
    assert COLOUR.encode() not in b"".join(file.read_bytes() for file in site.state.rglob("*") if file.is_file())
    assert result(ended.value.outcome, 0) == MUCH


async def test_a_key_for_each_workflow_and_a_signal_to_all_tasks_do_not_go_together(site: Site) -> None:
    """The other tasks would fail for ever on a Signal that they cannot decode: a person answers each of them."""
    tasks = [await site.run(Step(id="mix", kind="mix", args={"words": COLOUR}), **ASKING) for _ in range(2)]
    causes = {(await asked(task)).cause for task in tasks}
    while len(await site.replan.incidents()) != 1:
        await asyncio.sleep(0.1)
    REPAIRED.add(COLOUR)
    with pytest.raises(Problem, match="has a key for each workflow: answer each of them"):
        await site.replan.resolve(causes.pop())
    open_ones = [task for task in tasks if await task.requests()]
    for task in open_ones:
        await task.answer("retry")
    outcomes = [await task.result() for task in tasks]

    assert len(open_ones) == 1
    assert [outcome.status for outcome in outcomes] == ["completed"] * 2


class Folder(StorageDriver):
    def __init__(self, path: Path) -> None:
        self._path = path

    def name(self) -> str:
        return "theirs"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        names = [secrets.token_hex(8) for _ in payloads]
        for name, payload in zip(names, payloads, strict=True):
            (self._path / name).write_bytes(payload.SerializeToString())
        return [StorageDriverClaim({"name": name}) for name in names]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        return [Payload.FromString((self._path / claim.claim_data["name"]).read_bytes()) for claim in claims]


class Zipped(EncodingPayloadConverter):
    @property
    def encoding(self) -> str:
        return "json/zipped"

    def to_payload(self, value: Any) -> Payload | None:
        if not isinstance(value, dict):
            return None
        return Payload(metadata={"encoding": b"json/zipped"}, data=zlib.compress(json.dumps(value).encode()))

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        return json.loads(zlib.decompress(payload.data))


class Zipping(CompositePayloadConverter):
    def __init__(self) -> None:
        super().__init__(Zipped(), *DefaultPayloadConverter.default_encoding_payload_converters)


async def test_payloads_in_a_storage_and_an_encoding_of_the_user_are_read(server: DevServer, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    storage = ExternalStorage(drivers=[Folder(tmp_path / "files")], payload_size_threshold=100)
    own = dataclasses.replace(CONVERTER, payload_converter_class=Zipping, external_storage=storage)
    async with served(server, tmp_path / "state", own) as site:
        id = f"painting-{secrets.token_hex(4)}"
        done = await site.theirs.execute_workflow(Painting.run, site.queue, id=id, task_queue=f"{site.queue}-own")
        task = await site.replan.start(f"{COLOUR} " * 100, plan=(LARGE,), plan_only=True)
        outcome = await task.result()
        explained = await task.explain()
        histories = [await site.theirs.get_workflow_handle(one).fetch_history() for one in (id, f"{id}-child", task.id)]
        events = await site.events(f"{id}-child")

    async def each() -> AsyncIterator[WorkflowHistory]:
        for history in histories:
            yield history

    replayer = Replayer(
        workflows=[Painting], plugins=[site.plugin], data_converter=own, workflow_runner=UnsandboxedWorkflowRunner()
    )
    replayed = await replayer.replay_workflows(each(), raise_on_replay_failure=False)
    started = events[0].workflow_execution_started_event_attributes.input.payloads[0]
    kept = reference_of(started)

    assert (done, result(outcome, 0)) == ("completed 180000", MUCH)
    assert kept is not None and kept.driver_name == "theirs"
    assert explained.document()["task"] == outcome.task
    assert replayed.replay_failures == {}


async def test_open_tasks_are_replayed_with_the_key_of_each_workflow(server: DevServer, tmp_path: Path) -> None:
    async with served(server, tmp_path, CONVERTER) as gone:
        task = await gone.run(Step(id="mix", kind="mix", args={"words": f"{COLOUR} alone"}), **ASKING)
        await asked(task)

    found = await open_tasks(gone.theirs, gone.queue)

    assert found.untold == []
    assert [call.args for call in found.calls] == [{"words": f"{COLOUR} alone"}]
    await gone.theirs.get_workflow_handle(task.id).terminate()


async def test_a_console_without_the_key_is_told_why_no_worker_answers(site: Site, tmp_path: Path) -> None:
    console = Processes(site.theirs.service_client.config.target_host, tmp_path)
    commands = ("tools", "breakers", "doctor")
    asked = [await asyncio.to_thread(console.starter, one, "--queue", site.queue) for one in commands]

    assert [one.returncode for one in asked] == [1, 1, 1]
    assert [one.args for one in asked if "cannot read what is sent from here" not in one.stdout + one.stderr] == []
    assert [one.args for one in asked if "--keys" not in one.stdout + one.stderr or "Traceback" in one.stderr] == []


async def test_the_keys_of_a_plugin_encrypt_the_connection(server: DevServer, tmp_path: Path) -> None:
    add_key(tmp_path / "replan.keys")
    queue = f"keyed-{secrets.token_hex(4)}"
    plugin = Replan(
        [words, refuse], planner="offline", queue=queue, state=tmp_path / "state", keys=tmp_path / "replan.keys"
    )
    theirs = await TemporalClient.connect(server.address, plugins=[plugin])
    id = f"painting-{secrets.token_hex(4)}"
    async with Worker(
        theirs, task_queue=f"{queue}-own", workflows=[Painting], workflow_runner=UnsandboxedWorkflowRunner()
    ):
        done = await theirs.execute_workflow(Painting.run, queue, id=id, task_queue=f"{queue}-own")
        failed = await Client(theirs, queue=queue).start(
            "paint", plan=[Step(id="no", kind="refuse", args={"words": COLOUR})], plan_only=True
        )
        with pytest.raises(TaskFailed, match=COLOUR):
            await failed.result()
    events = [
        event
        for workflow_id in (id, f"{id}-child", failed.id)
        async for event in theirs.get_workflow_handle(workflow_id).fetch_history_events()
    ]

    assert done == "completed 180000"
    assert COLOUR.encode() not in b"".join(event.SerializeToString() for event in events)
    assert [path for path in (tmp_path / "state").rglob("*.db*") if COLOUR.encode() in path.read_bytes()] == []


async def test_the_keys_of_a_plugin_leave_a_codec_of_the_user_alone(server: DevServer, tmp_path: Path) -> None:
    """And without a codec, a worker whose connection has no plugin encrypts what its tasks do all the same."""
    add_key(tmp_path / "replan.keys")
    for converter in (CONVERTER, DataConverter.default):
        queue = f"keyed-{secrets.token_hex(4)}"
        plugin = Replan([words], planner="offline", queue=queue, state=tmp_path / queue, keys=tmp_path / "replan.keys")
        theirs = await TemporalClient.connect(server.address, data_converter=converter)
        reader = await Client.connect(server.address, keys=tmp_path / "replan.keys", queue=queue)
        own = Worker(
            theirs,
            task_queue=f"{queue}-own",
            workflows=[Painting],
            plugins=[plugin],
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
        async with own:
            program = Client(theirs, queue=queue) if converter is CONVERTER else reader
            task = await program.start("paint", plan=[Step(id="w", kind="words", args={"times": 3})], plan_only=True)
            await task.result()
            outcome = await task.outcome()
        events = [event async for event in theirs.get_workflow_handle(task.id).fetch_history_events()]
        written = b"".join(event.SerializeToString() for event in events)

        assert result(outcome, 0) == {"words": COLOUR * 3}
        assert COLOUR.encode() not in written
        assert (b"binary/sealed" in written, b"replan-encrypted" in written) == (
            (True, False) if converter is CONVERTER else (False, True)
        )
