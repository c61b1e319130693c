"""Whom a worker may ask: by its own options, and by what a task names."""

import pytest

from activities.planning.selection import PlannerSelection
from activities.providers.adapter import AdapterOptions
from activities.providers.anthropic import DEFAULT_MODEL
from activities.providers.prices import PriceList, own_models
from activities.providers.registry import UnknownPlanner
from workflows.plans.catalogue import Price

KEYS = {"ANTHROPIC_API_KEY": "x", "OPENAI_API_KEY": "y"}
HERE = "http://localhost:11434/v1"


def test_a_task_may_name_another_planner_than_the_worker_s() -> None:
    """With the keys of the worker, whose address is that of its own server: it holds for what speaks as OpenAI does."""
    selection, own = PlannerSelection("anthropic:a", KEYS), PlannerSelection("openai:qwen3", KEYS, HERE)

    assert (selection.for_task("openai:b,offline").name, selection.planner.name) == ("openai:b, offline", "anthropic:a")
    assert own.for_task("openai:other").name == "openai:other@localhost:11434"
    assert own.for_task("anthropic:a").name == "anthropic:a"


def test_a_task_reads_no_file_of_the_worker_and_uses_no_key_that_is_not_there() -> None:
    """Neither the content of a file nor whether it is there can be found out; it is told which variable is lacking."""
    for name in ("scripted:/etc/passwd", "offline, scripted:x", "scripted"):
        with pytest.raises(UnknownPlanner, match="A task cannot name a script"):
            PlannerSelection(None, {}).for_task(name)
    with pytest.raises(UnknownPlanner, match="needs OPENAI_API_KEY"):
        PlannerSelection("offline", {"ANTHROPIC_API_KEY": "x"}).for_task("openai")


@pytest.mark.parametrize(
    ("names", "url", "described"),
    [
        ("openai:gpt-6-sol,anthropic:a", None, "openai:gpt-6-sol (Responses), anthropic:a"),
        ("openai:gpt-audio-mini", None, "openai:gpt-audio-mini (Chat Completions)"),
        ("openai:unheard-of", None, "openai:unheard-of (Responses or Chat Completions)"),
        ("openai:a,offline", HERE, "openai:a@localhost:11434 (Chat Completions), offline"),
        ("anthropic:a", None, "anthropic:a"),
        ("offline", None, "offline"),
    ],
)
def test_the_api_of_a_model_of_openai_is_named(names: str, url: str | None, described: str) -> None:
    """Who sets up a gateway sees which one it is asked with; two where one is tried first."""
    assert PlannerSelection(names, KEYS, url).described == described


def test_the_api_is_that_of_the_settings_and_of_what_the_model_took() -> None:
    """A model that OpenAI rejected in Responses is asked with Chat Completions only."""
    at_gateway = AdapterOptions(wires={"openai:a": "responses"})
    rejected = AdapterOptions(without_responses={"openai:unheard-of"})

    assert PlannerSelection("openai:a", KEYS, HERE, options=at_gateway).described.endswith(" (Responses)")
    assert PlannerSelection("openai:unheard-of", KEYS, options=rejected).described.endswith(" (Chat Completions)")


def test_the_age_of_the_prices_is_that_of_the_oldest_published_one() -> None:
    """A price of the settings file has no age, and a model of the user's own server no published price."""
    sol, row = "openai:gpt-6.2-sol", own_models()["openai:gpt-6.2-sol"]
    free = PriceList({f"anthropic:{DEFAULT_MODEL}": Price(input=0, output=0, cache_read=0, cache_write=0)})
    published = PlannerSelection(f"{sol},anthropic", KEYS)

    assert published.price_date == min(row.read, PriceList().date_of(f"anthropic:{DEFAULT_MODEL}") or row.read)
    assert PlannerSelection(f"{sol},anthropic", KEYS, prices=free).price_date == row.read
    assert PlannerSelection("openai:qwen3", {}, HERE).price_date is None
