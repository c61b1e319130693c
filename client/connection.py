"""Connects to the Temporal server, and builds the URLs of its web UI.

Runs when a command or a program begins, before it calls the server; the URLs are built whenever a task is shown.
"""

import os
import urllib.parse
from pathlib import Path

from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.runtime import Runtime, TelemetryConfig

from client.problem import Problem, ProblemKind
from client.remedy import Remedy, Text
from runtime import state_folder
from runtime.client import DEFAULT_NAMESPACE, Misconfigured, NotConnected, connect
from runtime.keys import BadKeys, codec_of, encrypting
from runtime.payloads import DATA_CONVERTER

CODEC = "REPLAN_CODEC"
"""The variable with the MODULE:OBJECT of a payload codec of the user's."""
UI_PORT_OFFSET = 1000
"""A development server of the Temporal CLI serves its web UI at its own port plus this number."""


async def connected(
    address: str | None,
    namespace: str | None,
    profile: str | None,
    *,
    keys: str | Path | None = None,
    codec: str | None = None,
) -> Client:
    """Connect to a server; for an argument that is None, the environment or the Temporal profile decides.

    `keys` is the file of a keyring, `codec` the MODULE:OBJECT of a payload codec.

    Raises:
        Problem: no server answers, or the environment, the profile, the keys or the codec cannot be used.
    """
    try:
        quiet = Runtime(telemetry=TelemetryConfig(logging=None))  # the SDK's core would write across what is shown
        return await connect(
            address=address,
            namespace=namespace,
            profile=profile,
            state=state_folder.default(),
            runtime=quiet,
            keys=keys or os.environ.get("REPLAN_KEYS"),
            codec=codec or os.environ.get(CODEC),
        )
    except NotConnected as error:
        if isinstance(error, Misconfigured):
            raise Problem("misconfigured", error.reason, error.remedy) from error
        remedy = Text(f"{error.remedy}, or see ", Remedy("doctor"))
        raise Problem("unreachable", error.reason, remedy, ProblemKind.UNREACHABLE) from error


def data_converter(namespace: str | None, keys: str | Path | None) -> DataConverter:
    """The data converter for saved histories, without a connection. Raises Problem if keys or codec cannot be used."""
    try:
        codec = os.environ.get(CODEC)
        found = codec_of(keys, codec, namespace or os.environ.get("TEMPORAL_NAMESPACE") or DEFAULT_NAMESPACE)
    except BadKeys as error:
        raise Problem("misconfigured", error.reason, error.remedy) from error
    return encrypting(found) if found else DATA_CONVERTER


def ui_url_of(client: Client, id: str) -> str | None:
    """The URL of a workflow in the web UI; None if no web UI is known for the server."""
    return ui_url(client.service_client.config.target_host, client.namespace, id)


def ui_url(host: str, namespace: str, task_id: str) -> str | None:
    """The URL of a task's page in the web UI; None if `ui_base` knows no web UI for the server `host` (HOST:PORT)."""
    base = ui_base(host)
    return base and f"{base}/namespaces/{namespace}/workflows/{urllib.parse.quote(task_id, safe='')}"


def ui_base(host: str) -> str | None:
    """The URL of a server's web UI: the variable REPLAN_UI, else derived from `host` (HOST:PORT), else None."""
    base = os.environ.get("REPLAN_UI") or _derived_ui_base(host)
    return base.rstrip("/") if base else None


def _derived_ui_base(host: str) -> str | None:
    name, _, port = host.rpartition(":")
    if ".tmprl.cloud" in host or ".api.temporal.io" in host:
        return "https://cloud.temporal.io"  # one web UI for all namespaces of Temporal Cloud
    if name in ("localhost", "127.0.0.1") and port.isdecimal():
        return f"http://localhost:{int(port) + UI_PORT_OFFSET}"
    return None
