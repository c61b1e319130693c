"""Arguments with which a client that is not ours may start a workflow, as payloads on the wire."""

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import Payload, Payloads, WorkflowType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import StartWorkflowExecutionRequest
from temporalio.client import Client


def payload(data: bytes | str, encoding: str | bytes | None = "json/plain", **more: str) -> Payload:
    """A payload of this encoding; None for one that does not say its encoding."""
    metadata = {name: value.encode() for name, value in more.items()}
    if encoding is not None:
        metadata["encoding"] = encoding if isinstance(encoding, bytes) else encoding.encode()
    return Payload(metadata=metadata, data=data if isinstance(data, bytes) else data.encode())


def as_json(value: Any) -> Payload:
    return payload(json.dumps(value))


FORMS: Mapping[str, Sequence[Payload]] = {
    "no argument": [],
    "two arguments": [as_json({"text": "a"}), as_json({"text": "b"})],
    "two arguments of which none can be read": [payload("{", "json/plain"), payload(b"\x00", "binary/encrypted")],
    "a number": [as_json(7)],
    "a text": [as_json("a task")],
    "a list": [as_json(["a task"])],
    "true": [as_json(True)],
    "null in JSON": [as_json(None)],
    "null": [payload(b"", "binary/null")],
    "null with data": [payload(b"x", "binary/null")],
    "bytes": [payload(b"\x00\xff", "binary/plain")],
    "no bytes": [payload(b"", "binary/plain")],
    "half of a JSON text": [payload('{"text": "a ta')],
    "an empty JSON text": [payload("")],
    "JSON in Latin-1": [payload('{"text": "é"}'.encode("latin-1"))],
    "half a character": [payload('{"text": "\\ud800"}')],
    "JSON of great depth": [payload('{"text": "a", "result_schema": {"x": ' + "[" * 3000 + "]" * 3000 + "}}")],
    "a protobuf message of another program": [payload("{}", "json/protobuf", messageType="shop.Order")],
    "a protobuf message without its type": [payload("{}", "json/protobuf")],
    "a well-known protobuf message": [payload('"1s"', "json/protobuf", messageType="google.protobuf.Duration")],
    "a binary protobuf message": [payload(b"\x08", "binary/protobuf", messageType="google.protobuf.Duration")],
    "an unknown encoding": [payload(b"\x00", "binary/encrypted")],
    "an encoding that is no text": [payload(b"{}", b"\xff\xfe")],
    "no encoding": [payload('{"text": "a task"}', None)],
}
"""What none of the workflows takes."""

TASKS: Mapping[str, Sequence[Payload]] = {
    name: [as_json(value)]
    for name, value in {
        "an empty object": {},
        "an empty text": {"text": ""},
        "a text that is none": {"text": 7},
        "a long text": {"text": "x" * 16_001},
        "no tool call": {"text": "a task", "limits": {"tool_calls": 0}},
        "half a tool call": {"text": "a task", "limits": {"tool_calls": 0.5}},
        "fewer than no replans": {"text": "a task", "limits": {"replans": -1}},
        "no money": {"text": "a task", "limits": {"usd": 0}},
        "money without an end": {"text": "a task", "limits": {"usd": float("inf")}},
        "a deadline that is no number": {"text": "a task", "limits": {"deadline": float("nan")}},
        "a deadline after the end of time": {"text": "a task", "limits": {"deadline": 1e300}},
        "an answer after the end of time": {"text": "a task", "answer_within": 1e12},
        "an answer without an end": {"text": "a task", "answer_within": float("inf")},
        "an unknown strategy": {"text": "a task", "strategy": "guess"},
        "a plan that is none": {"text": "a task", "plan": "do it"},
        "a step without a kind": {"text": "a task", "plan": [{"id": "a"}]},
        "an unknown end": {"text": "a task", "on_escalation": "\x1b[2Jhide"},
        "remains that are none": {"text": "a task", "remains": {"records": [{}]}},
    }.items()
}
"""What no task is."""

ROLLBACKS: Mapping[str, Sequence[Payload]] = {
    "an empty object": [as_json({})],
    "a task": [as_json({"text": "a task"})],
    "a progress that is none": [as_json({"progress": 7})],
    "a progress without a task": [as_json({"progress": {"task_id": "x", "started_at": "2026-01-01T00:00:00Z"}})],
    "a progress of a task with an answer without an end": [
        as_json(
            {
                "progress": {
                    "task": {"text": "a", "answer_within": 1e300},
                    "task_id": "x",
                    "started_at": "2026-01-01T00:00:00Z",
                }
            }
        )
    ],
    "a progress that began at no time": [
        as_json({"progress": {"task": {"text": "a"}, "task_id": "x", "started_at": "x"}})
    ],
    "a progress that began in no time zone": [
        as_json({"progress": {"task": {"text": "a"}, "task_id": "x", "started_at": "2026-01-01T00:00:00"}})
    ],
}
"""What no rollback is."""


async def start(client: Client, type: str, arguments: Sequence[Payload], queue: str, **more: Any) -> str:
    """Start a workflow as any program may, past the SDK; return its id."""
    id = more.pop("id", None) or f"foreign-{uuid.uuid4().hex[:12]}"
    request = StartWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_id=id,
        workflow_type=WorkflowType(name=type),
        task_queue=TaskQueue(name=queue),
        input=Payloads(payloads=arguments),
        request_id=uuid.uuid4().hex,
        **more,
    )
    request.workflow_task_timeout.FromTimedelta(timedelta(seconds=5))
    await client.workflow_service.start_workflow_execution(request)
    return str(id)
