"""Connects to a Temporal server; the message of each error is one sentence with a remedy.

NotConnected
├── NoServer        no server answers, or it rejects the client
│   └── NoNamespace a server answers, and has no such namespace
└── Misconfigured   an address, the environment, a profile or a config file cannot be used
"""

import asyncio
import copy
import dataclasses
import os
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import IndexedValueType, WorkflowExecutionStatus as Status
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    ListWorkflowExecutionsRequest,
    ListWorkflowExecutionsResponse,
    QueryWorkflowRequest,
    QueryWorkflowResponse,
)
from temporalio.client import (
    Client,
    CreateScheduleInput,
    Interceptor,
    OutboundInterceptor,
    ScheduleHandle,
    SignalWorkflowInput,
    StartWorkflowInput,
    StartWorkflowUpdateInput,
    UpdateScheduleInput,
    WorkflowHandle,
    WorkflowUpdateHandle,
)
from temporalio.common import HeaderCodecBehavior
from temporalio.converter import PayloadCodec
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode, WorkflowService

from runtime.keys import BadKeys, codec_of, encrypting, keyring_of, sent_for, with_keys
from runtime.payloads import DATA_CONVERTER, adapted
from runtime.settings import WithRemedy
from runtime.state_folder import server_address
from workflows.commands import WORKER
from workflows.seal import SCHEDULE, SIGNAL, START, UPDATE

DEFAULT_ADDRESS = "localhost:7233"
DEFAULT_NAMESPACE = "default"
CONNECT_SECONDS = 4.0
RPC_TIMEOUT = timedelta(seconds=4)

START_ONE = f"start one with `{WORKER} --dev`, or set TEMPORAL_ADDRESS"
CORRECT_ADDRESS = "correct the address, in TEMPORAL_ADDRESS, --address of the console, or the profile"
HOST_PORT = "write host:port, as in localhost:7233"
CHECK_CREDENTIALS = "check TEMPORAL_API_KEY, the TLS client certificate and the namespace"

VALUE_TYPES = {
    "Text": IndexedValueType.INDEXED_VALUE_TYPE_TEXT,
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
    "Double": IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE,
    "Bool": IndexedValueType.INDEXED_VALUE_TYPE_BOOL,
    "Datetime": IndexedValueType.INDEXED_VALUE_TYPE_DATETIME,
    "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
}
"""The types of search attributes, by the name that `temporal operator search-attribute create --type` takes."""

REFUSALS = frozenset(
    {
        RPCStatusCode.INVALID_ARGUMENT,  # a reserved name, or no more columns of this type
        RPCStatusCode.PERMISSION_DENIED,
        RPCStatusCode.UNAUTHENTICATED,
        RPCStatusCode.UNIMPLEMENTED,
    }
)


class NotConnected(WithRemedy, RuntimeError):
    """No connection could be made."""


class NoServer(NotConnected):
    """No Temporal server answers at the address, or it rejects the client."""


class NoNamespace(NoServer):
    """The server answers, and does not know the namespace."""


class Misconfigured(NotConnected):
    """An address, a profile or a config file cannot be used."""


async def connect(
    *,
    address: str | None = None,
    namespace: str | None = None,
    profile: str | None = None,
    plain: bool = False,
    state: Path | None = None,
    interceptors: Sequence[Interceptor] = (),
    runtime: Runtime | None = None,
    keys: Path | str | None = None,
    codec: str | None = None,
    tells_use: bool = False,
) -> Client:
    """Connect a client, and check that its namespace exists.

    Settings come from the arguments, else from the variables TEMPORAL_*, else from the Temporal config file. If none of
    these has an address, the development server that uses the folder `state` is chosen, else localhost:7233. With
    `plain`, variables and file are ignored. `keys`, `codec` and `tells_use` are as `runtime.keys.codec_of` takes them.

    Raises:
        NoServer: no connection within CONNECT_SECONDS, no answer within RPC_TIMEOUT after it, or a rejection.
        Misconfigured: a setting cannot be used.
    """
    # `plain` is for a server that `--dev` started, which has neither TLS nor keys.
    settings = ClientConnectConfig() if plain else _settings(profile)
    address = address or settings.get("target_host")
    if not address and state is not None and profile is None and (own_address := server_address(state)) is not None:
        address, settings = own_address, ClientConnectConfig()
    settings["target_host"] = address or DEFAULT_ADDRESS
    settings["namespace"] = namespace or settings.get("namespace") or DEFAULT_NAMESPACE
    try:
        payload_codec = codec_of(keys, codec, settings["namespace"], tells_use=tells_use)
    except BadKeys as error:
        raise Misconfigured(error.reason, error.remedy) from error
    client = await _dial(settings, interceptors, runtime, payload_codec)
    try:
        await namespace_id(client)
    except RPCError as error:
        raise _refused(error.status, client.namespace, settings["target_host"]) from error
    return client


async def namespace_id(client: Client) -> str:
    """The id of a client's namespace, unique among all servers; raises RPCError, e.g. if it does not exist."""
    request = DescribeNamespaceRequest(namespace=client.namespace)
    return (await client.workflow_service.describe_namespace(request, timeout=RPC_TIMEOUT)).namespace_info.id


async def answers(address: str) -> bool:
    """Whether a Temporal server without TLS answers at `address`, a `host:port`."""
    try:
        await _dial(ClientConnectConfig(target_host=address))
    except NotConnected:
        return False
    return True


def _settings(profile: str | None) -> ClientConnectConfig:
    file = os.environ.get("TEMPORAL_CONFIG_FILE")
    if file and not Path(file).exists():  # the SDK would ignore this silently
        raise Misconfigured(f"TEMPORAL_CONFIG_FILE names {file!r}, which does not exist", "correct or unset it")
    try:
        return ClientConfig.load_client_connect_config(profile)
    except OSError as error:
        reason = f"The Temporal profile names the file {error.filename!r}, which cannot be read ({error.strerror})"
        raise Misconfigured(reason, "correct its path or its permissions") from error
    except RuntimeError as error:  # the bridge's ConfigError, which the SDK does not export
        reason = f"The Temporal client configuration cannot be used ({str(error).splitlines()[0]})"
        remedy = "correct the config file, or the profile chosen with --profile or TEMPORAL_PROFILE"
        raise Misconfigured(reason, remedy) from error


async def _dial(
    settings: ClientConnectConfig,
    interceptors: Sequence[Interceptor] = (),
    runtime: Runtime | None = None,
    codec: PayloadCodec | None = None,
) -> Client:
    address = settings["target_host"]
    encoded: dict[str, Any] = {"data_converter": DATA_CONVERTER}
    if codec is not None:
        encoded = {"data_converter": encrypting(codec), "header_codec_behavior": HeaderCodecBehavior.CODEC}
        interceptors = [*interceptors, UseInterceptor()]
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            client = await Client.connect(**settings, **encoded, interceptors=interceptors, runtime=runtime)
        client.service_client.workflow_service = PausedAsRunning(client.service_client)
        return client
    except ValueError as error:
        raise Misconfigured(f"{address!r} is no address ({error})", HOST_PORT) from error
    except (TimeoutError, RuntimeError) as error:  # the SDK raises its Rust core's text as a bare RuntimeError
        raise _translated(str(error), address) from error


class UseInterceptor(Interceptor):
    """A client interceptor that says for which use the client's keyring encrypts; `workflows.seal` reads it again."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _UseOutbound(next)


class _UseOutbound(OutboundInterceptor):
    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        with sent_for(START, input.id):
            return await super().start_workflow(input)

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:
        with sent_for(SIGNAL, input.signal, input.id):
            await super().signal_workflow(input)

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:
        # The server takes an id once in a run: so nobody can send what was encrypted for it once more.
        input.update_id = input.update_id or str(uuid.uuid4())
        with sent_for(UPDATE, input.update, input.update_id, input.id):
            return await super().start_workflow_update(input)

    async def create_schedule(self, input: CreateScheduleInput) -> ScheduleHandle:
        with sent_for(SCHEDULE, input.id):
            return await super().create_schedule(input)

    async def update_schedule(self, input: UpdateScheduleInput) -> None:
        with sent_for(SCHEDULE, input.id):
            await super().update_schedule(input)


def with_use_interceptor(interceptors: Sequence[Interceptor]) -> list[Interceptor]:
    """These client interceptors, and a UseInterceptor if there is none among them."""
    has_one = any(isinstance(interceptor, UseInterceptor) for interceptor in interceptors)
    return [*interceptors, *([] if has_one else [UseInterceptor()])]


def as_replan(client: Client, keys: Path | str | None = None, *, tells_use: bool = False) -> Client:
    """A new client on the connection of a user's `client`, with the user's data converter adapted to Replan.

    `client` itself is not changed. With `keys`, the file of a keyring, the new client encrypts with that keyring,
    unless the user's data converter has a payload codec. `tells_use` is that of a Keyring.

    Raises:
        BadKeys: the keyring cannot be used.
    """
    # With what plugins of the client have changed, such as the data converter.
    config, service = client.config(active_config=True), copy.copy(client.service_client)
    service.workflow_service = PausedAsRunning(service)
    config["plugins"], config["service_client"] = [], service
    if keys and config["data_converter"].payload_codec is None:
        config["data_converter"] = with_keys(config["data_converter"], keys, client.namespace)
        config["header_codec_behavior"] = HeaderCodecBehavior.CODEC
    if ring := keyring_of(config["data_converter"]):
        ring = ring.telling_use() if tells_use else ring
        config["data_converter"] = dataclasses.replace(config["data_converter"], payload_codec=ring)
        config["interceptors"] = with_use_interceptor(config["interceptors"])
    config["data_converter"] = adapted(config["data_converter"])
    return Client(**config)


class PausedAsRunning(WorkflowService):
    """Reports a paused workflow as running: the SDK has no name for the status "paused" and would raise ValueError.

    The description of a paused workflow has `workflow_extended_info.pause_info`. A query to it raises RPCError.
    """

    async def describe_workflow_execution(
        self, req: DescribeWorkflowExecutionRequest, *args: Any, **options: Any
    ) -> DescribeWorkflowExecutionResponse:
        response = await super().describe_workflow_execution(req, *args, **options)
        if unpause(response.workflow_execution_info):
            response.workflow_extended_info.pause_info.SetInParent()  # a server may not say who, when and why
        return response

    async def query_workflow(self, req: QueryWorkflowRequest, *args: Any, **options: Any) -> QueryWorkflowResponse:
        answer = await super().query_workflow(req, *args, **options)
        if answer.query_rejected.status == Status.WORKFLOW_EXECUTION_STATUS_PAUSED:
            raise RPCError("The workflow is paused.", RPCStatusCode.FAILED_PRECONDITION, b"")
        return answer

    async def list_workflow_executions(
        self, req: ListWorkflowExecutionsRequest, *args: Any, **options: Any
    ) -> ListWorkflowExecutionsResponse:
        listed = await super().list_workflow_executions(req, *args, **options)
        for row in listed.executions:
            unpause(row)
        return listed


def unpause(info: WorkflowExecutionInfo) -> bool:
    """Change the status "paused" in `info`, the server's answer, to "running"; returns whether it was "paused"."""
    if info.status != Status.WORKFLOW_EXECUTION_STATUS_PAUSED:
        return False
    info.status = Status.WORKFLOW_EXECUTION_STATUS_RUNNING
    return True


def _translated(text: str, address: str) -> NotConnected:
    """The error for `text`, a message of the SDK's core; the first known phrase in `text` decides."""
    refused = NoServer(f"The server at {address} refuses these credentials", CHECK_CREDENTIALS)
    failures = {
        "Connection refused": _nothing_there(address),
        "dns error": NoServer(f"The host name in {address} is not known", CORRECT_ADDRESS),
        "ParseError": Misconfigured("The TLS certificate or key is not PEM text", "check the profile's TLS settings"),
        "InvalidContentType": NoServer(f"{address} answers, but without TLS", "set TEMPORAL_TLS=false"),
        "InvalidCertificate": NoServer(
            f"The certificate of {address} is not trusted", "set TEMPORAL_TLS_SERVER_CA_CERT_PATH"
        ),
        "PermissionDenied": refused,
        "Unauthenticated": refused,
        "Unavailable": NoServer(f"The server at {address} is not ready", "try again in a moment"),
        "after connection": NoServer(
            f"What answers at {address} is no Temporal server, or wants TLS", "check the port, or set TEMPORAL_TLS=true"
        ),
    }
    silent = NoServer(f"No Temporal server answers at {address} within {CONNECT_SECONDS:.0f} s", START_ONE)
    return next((failure for mark, failure in failures.items() if mark in text), silent)


def _nothing_there(address: str) -> NotConnected:
    if not address.rpartition(":")[2].isdecimal():
        return NoServer(f"No Temporal server answers at {address}, which has no port", HOST_PORT)
    return NoServer(f"No Temporal server answers at {address} (nothing listens there)", START_ONE)


def _refused(status: RPCStatusCode, namespace: str, address: str) -> NoServer:
    if status is RPCStatusCode.NOT_FOUND:
        remedy = f"create it with `temporal operator namespace create -n {namespace}`, or set TEMPORAL_NAMESPACE"
        return NoNamespace(f"The server at {address} has no namespace {namespace!r}", remedy)
    if status in REFUSALS:
        return NoServer(f"The server at {address} rejects this client in namespace {namespace!r}", CHECK_CREDENTIALS)
    return NoServer(f"The server at {address} does not answer for namespace {namespace!r}", "try again in a moment")


async def register_search_attributes(client: Client, attributes: Mapping[str, str]) -> bool:
    """Add missing search attributes, given as name to type (`{"ReplanStatus": "Keyword"}`); returns whether all exist.

    Returns False if the server, such as Temporal Cloud, does not permit to add them; any other RPCError is raised.
    """
    required = {name: VALUE_TYPES[kind] for name, kind in attributes.items()}
    try:
        present = await _attributes(client)
        if missing := {name: kind for name, kind in required.items() if name not in present}:
            request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=missing)
            await client.operator_service.add_search_attributes(request, timeout=RPC_TIMEOUT)
            present = await _attributes(client)
    except RPCError as error:
        if error.status not in REFUSALS:
            raise
        return False
    return required.items() <= present.items()


async def _attributes(client: Client) -> dict[str, IndexedValueType.ValueType]:
    request = ListSearchAttributesRequest(namespace=client.namespace)
    return dict((await client.operator_service.list_search_attributes(request, timeout=RPC_TIMEOUT)).custom_attributes)
