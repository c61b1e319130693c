"""Two hundred tasks with every quadrant of faults: metrics, histories, report, receipts and bill agree."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient

from client.explain.waste import Receipt, receipt_of
from client.history.fetch import fetch_history
from client.history.story import Story
from evals.fakes.script import ModelError, ReceivedRequest, Response, finishes, proposes, step
from replan import Client, TaskHandle, TaskNotCompleted
from runtime.dev_server import DevServer, free_port
from tests.processes import Processes
from tests.providers.test_worker import environment, prepared
from tests.scraping import Scraped, scrape
from workflows.account import metrics
from workflows.account.outcome import Outcome
from workflows.account.task import Task
from workflows.faults.fault import QUADRANT, Code, Quadrant
from workflows.limits.budget import Limits

Plan = Callable[[str], Response]


def plan_of(*kinds: str) -> Plan:
    """A plan of parallel steps, written as `kind` or `kind:case`."""

    def made(name: str) -> Response:
        words = [kind.partition(":") for kind in kinds]
        steps = [
            step(f"s{at}", kind, name=f"{name}-{at}", **({"case": case} if case else {}))
            for at, (kind, _, case) in enumerate(words)
        ]
        return proposes(*steps)

    return made


PLANS: Mapping[str, Plan] = {
    "good": plan_of("look", "book"),
    "down": plan_of("look:down", "elsewhere"),
    "busy": plan_of("look:busy"),
    "gone": plan_of("look:gone", "elsewhere"),
    "gone twice": plan_of("look:gone", "look:gone"),
    "shut": plan_of("look:shut"),
    "stays down": plan_of("look:stays_down"),
    "nearby": plan_of("nearby"),
    "shaky": plan_of("shaky"),
    "paid": plan_of("pay"),
    "asks": plan_of("ask_first"),
    "nonsense": plan_of("no_such_tool"),
    "dear": plan_of("look", "look"),
    "overloaded": plan_of("look"),
}
"""By the first words of a task, what its model proposes first."""
TASKS = 200
TASKS_CLOSED = "WorkflowType = 'AgentWorkflow' AND ExecutionStatus != 'Running'"
PRICE = """
[models.prices."anthropic:{model}@{host}"]
input = 3
output = 15
"""
OVERLOADED = ModelError(529, "overloaded_error", "later")


def model() -> Callable[[ReceivedRequest], Response]:
    """A model that plans by the text of the task, corrects a rejected plan, and finishes after a completed one."""
    asked = Counter[str]()

    def reply(request: ReceivedRequest) -> Response:
        found = re.search(r"CASE ([a-z ]+) (\d+)", request.all_text)
        assert found
        case, name = found[1], f"{found[1].replace(' ', '_')}{found[2]}"
        asked[name] += 1
        if case == "overloaded" and asked[name] < 3:
            return OVERLOADED
        if not request.turn:
            return PLANS[case](name)
        if request.turn == 1 and case in ("gone", "gone twice", "stays down", "nonsense", "paid"):
            return proposes(step("other", "elsewhere", name=name))
        return finishes()

    return reply


async def run(client: Client, case: str, number: int) -> TaskHandle:
    """Run one task to its end; a person answers what waits for one."""
    waits = case == "asks" or (case == "shut" and number % 2 == 0)
    task = Task(
        text=f"CASE {case} {number}",
        on_escalation="wait" if waits else "end",
        limits=Limits(tool_calls=1) if case == "dear" else Limits(),
    )
    handle = await client.start(task)
    while waits and not (requests := [one for one in await handle.requests() if one.call or "skip" in one.choices]):
        await asyncio.sleep(0.2)
    if waits:
        choices = ("approve", "reject", "abort") if requests[0].call else ("skip", "abort")
        await handle.answer(choices[number % len(choices)], request=requests[0])
    with suppress(TaskNotCompleted):
        await handle.result()
    return handle


def by_label(found: Scraped) -> Counter[tuple[str, tuple[str, ...]]]:
    """The counters of workflows, with their labels in the order of their metrics."""
    counted = Counter[tuple[str, tuple[str, ...]]]()
    for metric in metrics.COUNTED:
        order = [sorted(metric.labels).index(label) for label in metric.labels]
        for (name, labels), value in found.items():
            if name == f"{metric.name}_total" and value:
                counted[metric.name, tuple(labels[at] for at in order)] += round(value)
    return counted


@pytest.mark.full
@pytest.mark.timeout(600)
async def test_metrics_histories_and_outcomes_agree(client: TemporalClient, server: DevServer, tmp_path: Path) -> None:
    """Exactly, as long as no worker dies; the counter of wasted attempts exists, and is zero."""
    port, queue, cases = str(free_port()), "counted", list(PLANS)
    tools = str(Path(__file__).with_name("counted_tools.py"))
    async with prepared("anthropic", model()) as api:
        settings = tmp_path / "replan.toml"
        settings.write_text(PRICE.format(model=api.model, host=api.url.removeprefix("http://")))
        processes = Processes(server.address, tmp_path, environment("anthropic", api))
        processes.environment["REPLAN_SETTINGS"] = str(settings)
        options = ("--queue", queue, "--tools", tools, "--metrics", port, "--break", "book=lost:3", "--log", "json")
        with processes.worker("--dev", *options):
            mine = Client(client, queue=queue)
            gate = asyncio.Semaphore(20)

            async def one(number: int) -> TaskHandle:
                async with gate:
                    return await run(mine, cases[number % len(cases)], number)

            handles = await asyncio.gather(*(one(number) for number in range(TASKS)))
            found = scrape(f"127.0.0.1:{port}")
    histories = [await fetch_history(client, client.get_workflow_handle(handle.id), journal=True) for handle in handles]
    outcomes = [history.outcome for history in histories if history.outcome]
    exported, summed = by_label(found), Counter[tuple[str, tuple[str, ...]]]()
    for history in histories:
        for metric in metrics.COUNTED:
            for labels, value in metrics.counted(history.account.counts or {}, metric).items():
                summed[metric.name, labels] += value

    query = f"TaskQueue = '{queue}'"
    async with asyncio.timeout(20):  # the list of the server lags behind
        while (await client.count_workflows(f"{TASKS_CLOSED} AND {query}")).count < TASKS:
            await asyncio.sleep(0.1)
    report = await mine.report(since=None, query=query, cached=False)
    reported = {(one.name, tuple(one.labels.values())): one.value for one in report.counters}
    receipts = [receipt_of(Story(history)) for history in histories]

    assert len(outcomes) == TASKS and api.violations == []
    assert exported == summed == reported
    assert totals(receipts) == {
        "retries": total(exported, metrics.RETRIES),
        "wasted": 0,
        "replayed": total(exported, metrics.REPLAYED_RESULTS),
        "not made": total(exported, metrics.CIRCUIT_OPEN),
        "tokens": total(exported, metrics.TOKENS),
    }
    # On a slow machine no call may meet the open breaker, since those that wait are told of their turn.
    moved = {metric.name for metric in metrics.COUNTED} - {"replan_wasted_attempts", "replan_circuit_open"}
    assert moved <= {name for name, _ in exported}
    assert found["replan_wasted_attempts_total", ()] == 0
    assert total(exported, metrics.TOOL_CALLS) == sum(one.spent.tool_calls for one in outcomes)
    assert total(exported, metrics.REPLANS) == sum(one.replans for one in outcomes)
    assert total(exported, metrics.TOKENS) == sum(one.spent.tokens for one in outcomes)
    assert total(exported, metrics.RETRIES) == sum(retries(one) for one in outcomes)
    assert quadrants(outcomes) == set(Quadrant)
    billed = sum(value for (name, labels), value in found.items() if name == "replan_model_tokens_total")
    assert api.billed == billed == total(exported, metrics.TOKENS)


def total(counted: Counter[tuple[str, tuple[str, ...]]], metric: metrics.Metric) -> int:
    """The sum over all labels."""
    return sum(value for (name, _), value in counted.items() if name == metric.name)


def totals(receipts: Sequence[Receipt]) -> dict[str, int]:
    """What the waste receipts add up to."""
    return {
        "retries": sum(one.helped.number + one.not_helped.number for one in receipts),
        "wasted": sum(one.wasted.number for one in receipts),
        "replayed": sum(one.replayed.number + one.reconciled.number for one in receipts),
        "not made": sum(one.not_made.number for one in receipts),
        "tokens": sum(paid.tokens for one in receipts for paid in one.paid.values()),
    }


def retries(outcome: Outcome) -> int:
    """The retries of the steps, from their attempts: the first of each kind that was called is none."""
    kinds = Counter(fault.step_id for fault in outcome.faults if fault.decision == "fallback")
    return sum(max(0, one.attempts - 1 - kinds[one.id]) for one in outcome.steps)


def quadrants(outcomes: list[Outcome]) -> set[Quadrant]:
    """The quadrants of all faults."""
    return {QUADRANT[Code(fault.code)] for outcome in outcomes for fault in outcome.faults}
