"""`explain` of a task on a real server that met everything, from a retry to an escalation."""

import json
from pathlib import Path

import pytest
from temporalio.client import Client

from client.explain import explanation, page
from client.explain.explanation import Explanation
from client.history import fetch
from client.tasks import Handle
from runtime.dev_server import DevServer
from tests.console import histories
from tests.harness import Proposals, outcome, plan, staged, step
from tests.processes import Processes
from tests.record import tools

EVERYTHING: Proposals = [
    plan(step("a", "pick", word="taken"), step("b", "flaky", word="hello"), step("c", "say", "a", word="later")),
    plan(step("a-2", "prick", word="free")),
    plan(step("a-2", "pick", word="free"), step("d", "down", word="wide"), because="free is free"),
    plan(step("e", "broken", "d", word="x")),
]
"""A replan and a retry; a rejected proposal; a fallback; an escalation."""


async def told(client: Client, handle: Handle) -> Explanation:
    """What is said of a task now."""
    return explanation.explain_task(await fetch.fetch_history(client, handle, journal=True))


def said(explained: Explanation) -> list[str]:
    """The same in whole lines."""
    return page.page_lines(explained, None)


@pytest.fixture(scope="module")
async def everything(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Handle:
    """A task that met all five, which has ended; its worker is gone."""
    folder = tmp_path_factory.mktemp("everything")
    async with staged(client, folder, tools(), EVERYTHING) as stage:
        handle = await stage.start("say everything")
        await outcome(handle)
    return handle


async def test_a_run_with_all_five_names_them_in_order_with_their_costs(client: Client, everything: Handle) -> None:
    """A retry, a replan, a rejected proposal, a fallback and an escalation, without any worker."""
    explained = await told(client, everything)
    seconds = {"waited", "lost", "held", "unattended"}
    costs = [(item.decision, item.cost.model_dump(exclude=seconds)) for item in explained.items]

    assert costs == [
        ("replan", {"failed_attempts": 1, "observations": 1, "planning_calls": 1}),
        ("retry", {"failed_attempts": 2, "observations": 0, "planning_calls": 0}),
        ("send_back", {"failed_attempts": 0, "observations": 0, "planning_calls": 1}),
        ("fallback", {"failed_attempts": 4, "observations": 0, "planning_calls": 0}),
        ("escalate", {"failed_attempts": 1, "observations": 0, "planning_calls": 0}),
    ]
    assert [item.cost.waited > 0 for item in explained.items] == [False, True, False, True, False]


CITED = {
    "replan": {"ACTIVITY_TASK_FAILED"},
    "retry": {"ACTIVITY_TASK_STARTED", "ACTIVITY_TASK_COMPLETED"},
    "send_back": {"ACTIVITY_TASK_SCHEDULED", "ACTIVITY_TASK_STARTED", "ACTIVITY_TASK_COMPLETED"},
    "fallback": {"ACTIVITY_TASK_FAILED"},
    "escalate": {"ACTIVITY_TASK_FAILED"},
}


async def test_each_cites_events_of_the_right_type(client: Client, everything: Handle) -> None:
    """What happened is where the web UI shows it."""
    types = {event.event_id: histories.event_type(event) for event in (await everything.fetch_history()).events}
    explained = await told(client, everything)

    assert {item.decision: {types[event.id] for event in item.what.events} for item in explained.items} == CITED
    assert types[explained.items[-1].then[-1].events[0].id] == "WORKFLOW_EXECUTION_FAILED"


async def test_the_decisions_are_those_of_the_outcome(client: Client, everything: Handle) -> None:
    """The text and the task itself never disagree."""
    ended = await outcome(everything)
    explained = await told(client, everything)
    recorded = {(fault.step_id, fault.decision) for fault in ended.faults}
    items = [item for item in explained.items if item.decision != "send_back"]
    explains = {(step, item.decision) for item in items for step in item.steps}

    assert explains == recorded - {("d", "retry")}


async def test_the_text_tells_causes_and_results(client: Client, everything: Handle) -> None:
    """Somebody who sees only this can retell the run."""
    text = "\n".join(said(await told(client, everything)))

    for words in (
        "3 plans, 3 of 6 steps finished",
        "a (pick) was rejected (conflict): This word is taken. Observed: free: free.",
        "plan 2 has a-2 in its place (word: taken -> free).",
        "b (flaky) was told to wait twice (busy): The line is busy.",
        "Proposal 2 of the planner was rejected: step 'a-2': there is no kind 'prick'",
        "proposal 3 was accepted as plan 2.",
        "d (down) failed at all 4 attempts (unreachable): The line is cut.",
        "The fallback say did the step instead and returned: said: wide.",
        "e (broken) failed (bug): The tool raised KeyError",
        "Kept from plan 1: b.",
        "Changed in the world: a-2 (pick).",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("words", "code", "found"),
    [
        ([], 0, "escalated after"),
        (["--step", "d"], 0, "d (down, then say) of "),
        (["--step", "dd"], 2, "has no step 'dd': did you mean d? It has a, b, c, a-2, d and e."),
    ],
    ids=["whole", "one step", "unknown step"],
)
async def test_the_command_answers_with_its_exit_code(
    server: DevServer, tmp_path: Path, everything: Handle, words: list[str], code: int, found: str
) -> None:
    """0 when explained, whatever became of the task; 2 for what is not there."""
    done = Processes(server.address, tmp_path).starter("explain", everything.id, *words)

    assert done.returncode == code
    assert found in done.stdout + done.stderr and "Traceback" not in done.stderr


async def test_the_command_writes_one_document(server: DevServer, tmp_path: Path, everything: Handle) -> None:
    """With --json: the items, the differences of the plans, what was kept and changed, what it cost."""
    done = Processes(server.address, tmp_path).starter("explain", everything.id, "--json")
    document = json.loads(done.stdout)

    assert (document["schema"], document["task_id"], document["status"]) == (1, everything.id, "escalated")
    assert {"what", "why", "decision", "cost", "events"} <= document["items"][0].keys()
    assert (document["kept"], [one["step_id"] for one in document["changed"]]) == ({"1": ["b"]}, ["a-2"])
