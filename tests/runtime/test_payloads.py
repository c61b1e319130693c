"""Payloads: what the converter costs, and what lies in S3."""

import http.server
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ActivitySerializationContext,
    StorageDriver,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
    WorkflowSerializationContext,
)

from runtime.payloads import PayloadConverter, s3
from runtime.settings import BadSetting

WORKFLOW = WorkflowSerializationContext("default", "a-task")
ACTIVITY = ActivitySerializationContext("default", "a", "echo", "replan", "a-task", "AgentWorkflow", False)


def test_converters_share_the_types_that_one_has_read_and_one_is_enough_for_all_activities() -> None:
    """Another object would let the SDK copy the whole data converter; to make the reader of a type takes long, too."""
    one, other = PayloadConverter(), PayloadConverter()

    assert one.with_context(ACTIVITY) is one
    assert one.converters == other.converters == one.with_context(WORKFLOW).converters


class Bucket(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]

    def do_PUT(self) -> None:
        self.objects[self.path.split("?")[0]] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200)

    def do_HEAD(self) -> None:
        self._answer(200 if self.path in self.objects else 404)

    def do_GET(self) -> None:
        self._answer(200 if self.path in self.objects else 404, self.objects.get(self.path, b""))

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    kept = dict[str, bytes]()
    handler = type("OneBucket", (Bucket,), {"objects": kept})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = {
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{server.server_port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        yield kept
        server.shutdown()


@asynccontextmanager
async def driver(url: str = "s3://payloads") -> AsyncIterator[StorageDriver]:
    async with s3(url) as opened:
        yield opened


async def test_a_payload_comes_back_from_the_bucket(objects: dict[str, bytes]) -> None:
    sent = Payload(metadata={"encoding": b"json/plain"}, data=b"x" * 100_000)
    task = StorageDriverWorkflowInfo(namespace="default", id="task-1", type="AgentWorkflow")
    async with driver() as bucket:
        claims = await bucket.store(StorageDriverStoreContext(target=task), [sent])
        back = await bucket.retrieve(StorageDriverRetrieveContext(), claims)

    assert back == [sent]
    assert [path.startswith("/payloads/v0/ns/default/wt/AgentWorkflow/wi/task-1/") for path in objects] == [True]


async def test_what_was_changed_in_the_bucket_is_not_believed(objects: dict[str, bytes]) -> None:
    async with driver() as bucket:
        claims = await bucket.store(StorageDriverStoreContext(), [Payload(data=b"100.00")])
        objects.update(dict.fromkeys(objects, b"900.00"))

        with pytest.raises(ValueError, match="integrity check failed"):
            await bucket.retrieve(StorageDriverRetrieveContext(), claims)


@pytest.mark.parametrize("url", ["payloads", "https://payloads", "s3://", "s3://payloads/below"])
async def test_a_setting_that_names_no_bucket_is_a_sentence(url: str) -> None:
    """What it must look like."""
    with pytest.raises(BadSetting, match="names no bucket: write s3://BUCKET"):
        async with driver(url):
            pass
