"""`audit`: what it prints, a page that is one file and safe to open, and what it refuses."""

import json
import re
import zipfile
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from extras.audit import rendering
from extras.audit.findings import FINDINGS
from extras.audit.report import Audit
from extras.audit.tests.integrations import SAVED
from extras.audit.tests.made import WITH_LIBRARIES, Made, audited
from tests.console.made import Tags
from tests.documentation import sections
from tests.made_histories import failure, timeout
from tests.processes import ROOT, Processes

CONFLICT = failure("HTTPStatusError", "Client error '409 Conflict' for url 'http://shop/<script>alert(1)</script>'")
SILENT = timeout("START_TO_CLOSE")


@activity.defn(name="charge")
async def charge(account: str) -> None:
    raise ApplicationError("the shop returned 409", type="ShopError")


@workflow.defn(name="Foreign")
class Foreign:
    """A workflow that is none of Replan's."""

    @workflow.run
    async def run(self) -> None:
        policy = RetryPolicy(maximum_attempts=3, initial_interval=timedelta(milliseconds=10))
        most = timedelta(seconds=20)
        await workflow.execute_activity(
            charge, "ann", retry_policy=policy, start_to_close_timeout=most, schedule_to_close_timeout=most
        )


async def test_any_workflow_of_a_server_is_audited(client: Client, commands: Processes) -> None:
    """By a list filter; no worker of Replan is needed."""
    foreign = {"workflows": [Foreign], "activities": [charge], "workflow_runner": UnsandboxedWorkflowRunner()}
    async with Worker(client, task_queue="foreign", **foreign):  # type: ignore[arg-type]  # of several types
        handle = await client.start_workflow(Foreign.run, id="foreign-1", task_queue="foreign")
        with pytest.raises(Exception, match="Workflow execution failed"):
            await handle.result()
    done = commands.starter("audit", "--query", "WorkflowId = 'foreign-1'", "--json")
    report = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert (report["histories"], report["retries"], report["could_not"]) == (1, 2, 2)
    assert [finding["name"] for finding in report["findings"]] == ["retried_for_nothing"]
    assert report["findings"][0]["examples"][0]["history"] == "foreign-1"
    assert (report["spared"], report["left"], report["line"]) == (0, 2, "")  # its own ApplicationError


@WITH_LIBRARIES
def test_files_are_audited_without_a_server(tmp_path: Path) -> None:
    """As text: the sums, Replan's rules, and each finding with its events and what to change."""
    done = Processes("localhost:1", tmp_path).starter("audit", str(SAVED))
    text = " ".join(done.stdout.split())

    assert (done.returncode, done.stderr) == (0, "")
    assert text.startswith("29 histories with ")
    assert "conflict" in text and "no retry: a new plan" in text
    found = r"-likely:\S+:home_made-conflict\.json,events23,24,25:charge:3retriesafterconflict:"
    assert re.search(found, "".join(text.split())), "wherever its lines are broken"
    assert 'arguments {"account":"ann","amount":840}' in text
    assert "Of 50 retries, the line below would have spared 31 and left 19" in text
    assert "plugins=[replan.FaultsPlugin(effects={" in text and "'charge': 'unkeyed'," in text
    assert max(map(len, done.stdout.splitlines())) <= 80


MISTAKES = {
    (): "audit takes either files or --query",
    ("a.json", "--query", "x"): "audit takes either files or --query",
    ("a.json", "--limit", "3"): "--limit is for --query",
    ("nothing.json",): "There is no file 'nothing.json'",
    ("README.txt",): "The file 'README.txt' holds no history",
    ("broken.json",): "The file 'broken.json' is cut off in the middle of a text",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_what_cannot_be_audited_ends_in_a_sentence(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "README.txt").write_text("No history.")
    (tmp_path / "broken.json").write_text('{"events": [{"eventId": "1')
    names = [str(tmp_path / word) if word.endswith((".json", ".txt")) else word for word in words]
    done = Processes("localhost:1", tmp_path).starter("audit", *names)

    assert (done.returncode, done.stdout) == (2, "")
    assert MISTAKES[words] in done.stderr.replace(f"{tmp_path}/", "") and done.stderr.count("\n") == 1


def test_what_is_broken_is_named_beside_what_was_read(tmp_path: Path) -> None:
    """It does not stop the others."""
    archive = tmp_path / "mixed.zip"
    with zipfile.ZipFile(archive, "w") as writing:
        writing.writestr("a.bin", Made().call("find", attempt=2, last=SILENT).end().binary)
        writing.writestr("b.json", "{")
    done = Processes("localhost:1", tmp_path).starter("audit", str(archive))
    text = " ".join(done.stdout.split())

    assert done.returncode == 0
    assert text.startswith("1 history with 5 events.")
    assert "b.json is cut off: its last event is not complete." in text
    assert "1 retry in 1 call: 1 helped. 0% could not have helped." in text


def test_the_page_runs_nothing_and_shows_what_the_world_named_as_text() -> None:
    """A reader who reads one sentence, the worst, and copies one line, code as code, has what counts."""
    report = audited([Made().call("charge", "<b>", failed=CONFLICT, attempt=3, last=CONFLICT).end("FAILED")])
    page = rendering.page(report)
    read, nothing = Tags(page), audited([Made().end()])

    assert not read.tags & {"script", "link", "img", "iframe", "form", "object", "embed", "b>"}
    assert "<script>alert(1)</script>" in read.text and "<svg" in page
    assert "Activities were retried after an error that cannot pass." in read.text
    assert '<p class="lead">2 of 2 retries could not have helped.</p>' in page
    assert "<pre><code>Worker(..., plugins=[replan.FaultsPlugin()])\n</code></pre>" in page
    assert "<code>non_retryable_error_types</code>" in page and "`" not in page
    assert '<p class="lead">No call was retried. Nothing was found.</p>' in rendering.page(nothing)
    assert rendering.printed(nothing, 80).endswith("Nothing was found.")
    assert rendering.printed(Audit().report(), 80).endswith("There is no history to audit.")


def test_a_finding_with_many_places_names_its_activities_and_unfolds_on_the_page() -> None:
    """The first five places are shown, the others are behind one line; encrypted payloads are said."""
    made = Made()
    for name in ["charge"] * 4 + ["book"] * 3:
        made.call(name, 1, failed=CONFLICT, attempt=3, last=CONFLICT)
    report = audited([made.end()])
    page = Tags(rendering.page(report))
    blind = audited([Made().call("charge", "ann", attempt=2, last=SILENT, encoding="binary/encrypted").end()])
    text, hidden = (" ".join(rendering.printed(one, 80).split()) for one in (report, blind))

    assert "Activities: charge (4), book (3)." in text
    assert {"details", "summary", "li"} <= page.tags and "2 more" in page.text
    assert "2 of 2 payloads are encrypted" in hidden
    assert "Calls that write ran again although nobody knows what the attempt before did." in hidden


def test_docs_have_each_finding_in_the_order_of_the_table() -> None:
    """How it is decided, and when it is wrong."""
    page = sections((ROOT / "docs" / "audit.md").read_text(encoding="utf-8"))

    assert [name.strip("`") for name in page if name.startswith("`")] == [finding.name for finding in FINDINGS]
    for finding in FINDINGS:
        text = page[f"`{finding.name}`"]
        for words in ("**Decided by**", "**Wrong when**", f"**{finding.confidence}**"):
            assert words in text, finding.name
