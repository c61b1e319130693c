"""The document of a task: its Outcome, its waste receipt, and where the web UI shows it.

Made when a task is shown as JSON, and when a task that was followed has ended.
"""

from typing import Any

from temporalio.client import Client

from client.connection import ui_url_of
from client.explain.waste import Receipt, receipt_of
from client.history.fetch import fetch_story
from client.tasks import Handle
from workflows.account.outcome import Outcome


async def task_document(client: Client, handle: Handle, outcome: Outcome) -> dict[str, Any]:
    """The JSON document of a task that `show --json` prints; docs/console.md lists the fields."""
    receipt = receipt_of(await fetch_story(client, handle, journal=True))
    ui_url = ui_url_of(client, handle.id)
    return task_fields(outcome, receipt, (await handle.describe()).run_id, ui_url)


def task_fields(outcome: Outcome, receipt: Receipt, run_id: str | None, ui_url: str | None) -> dict[str, Any]:
    """The document of a task from its parts; `ui_url` is the URL of the task in the web UI."""
    fields = outcome.model_dump(mode="json")
    whole = {"task_id": fields.pop("task_id"), "run_id": run_id, **fields}
    return {**whole, "ui_url": ui_url, "receipt": receipt.document()}
