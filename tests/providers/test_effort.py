"""How much a model reasons and how long its replies may be, as a task asks for it: `--effort` and `--reply-tokens`."""

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from activities.planning.checks import why_task_is_refused
from activities.planning.selection import PlannerSelection
from activities.providers.registry import takes_effort
from evals.fakes.script import ModelReply, finishes
from tests.harness import staged
from tests.providers.desk import TOOLS
from tests.providers.planning import CUT_OFF, LIMIT, planning
from workflows.account.task import Task, TaskStatus

KEYS = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "b"}
SENT: dict[str, dict[str, Any]] = {
    "anthropic": {"output_config": {"effort": "low"}},
    "openai": {"reasoning_effort": "low"},
    "responses": {"reasoning": {"effort": "low"}},
}
"""How each API is told."""


async def ran(client: Client, folder: Path, provider: str, *script: Any, **more: Any) -> tuple[Any, Any]:
    """A task with these fields, and the server that its planner asked."""
    async with planning(provider, *script) as (api, planner), staged(client, folder, TOOLS, planner) as stage:
        api.fields |= {"reasoning_effort"}
        return await stage.run(Task(text="what does A-17 cost?", **more)), api


async def test_a_task_says_how_much_its_model_reasons(client: Client, tmp_path: Path, provider: str) -> None:
    """Each API has its own parameter; without the option none is sent."""
    ended, api = await ran(client, tmp_path, provider, finishes("24.50"), effort="low", reply_tokens=40_000)
    _, usual = await ran(client, tmp_path, provider, finishes("24.50"))
    [body], [without] = api.bodies, usual.bodies

    assert (ended.status, api.violations, usual.violations) == (TaskStatus.COMPLETED, [], [])
    assert {name: body.get(name) for name in SENT[provider]} == SENT[provider]
    assert not without.keys() & {"output_config", "reasoning_effort", "reasoning"}
    assert (body[LIMIT[provider]], without[LIMIT[provider]]) == (40_000, 16_000)


async def test_a_reply_that_is_all_reasoning_names_both_options(client: Client, tmp_path: Path, provider: str) -> None:
    """To propose less would not help: nothing was proposed."""
    silent = ModelReply(stop=CUT_OFF[provider], thinking="" if provider == "openai" else "Hm. " * 40)
    ended, _ = await ran(client, tmp_path, provider, silent)

    assert (ended.status, ended.code) == (TaskStatus.ESCALATED, "proposals_rejected")
    assert "--reply-tokens" in ended.reason and "--effort low" in ended.reason
    assert "fewer steps" not in ended.reason


HAVE = ["claude-opus-4-5", "claude-sonnet-4-6", "claude-opus-4-8", "claude-sonnet-5-5", "claude-haiku-5-5"]
LACK = ["claude-3-7-sonnet-20250219", "claude-sonnet-4-20250514", "claude-sonnet-4-5-20250929", "claude-haiku-4-5"]
NAMES = [
    *((f"anthropic:{name}", True) for name in HAVE),
    *((f"anthropic:{name}", False) for name in LACK),
    *((f"openai:{name}", True) for name in ("gpt-5.4-mini", "o3", "gpt-7")),
    *((f"openai:{name}", False) for name in ("gpt-4.1", "gpt-4o-mini")),
    ("openai:qwen3@localhost:11434", True),
]


@pytest.mark.parametrize(("name", "takes"), NAMES)
def test_which_models_have_efforts(name: str, takes: bool) -> None:
    """By the pages of their providers; a model that is not known may, and then its provider decides."""
    assert takes_effort(name) is takes


@pytest.mark.parametrize("planner", ["openai:gpt-4.1", "anthropic:claude-haiku-4-5", "openai:o3, openai:gpt-4o"])
def test_an_effort_that_a_model_lacks_is_refused(planner: str) -> None:
    """Before anything is asked, with the model's name and what to do."""
    chosen = PlannerSelection(planner, KEYS).planner
    why = why_task_is_refused({"effort": "low"}, chosen, {}, {}, None, None)

    assert why is not None and planner.split(", ")[-1] in why
    assert "leave it out, or name a model that reasons (--planner)" in why
    assert why_task_is_refused({}, chosen, {}, {}, None, None) is None


def test_the_offline_planner_has_no_effort() -> None:
    """It is no model."""
    why = why_task_is_refused({"effort": "low"}, PlannerSelection("offline", {}).planner, {}, {}, None, None)

    assert why is not None and why.startswith("--effort is for models, and offline plans here")
