"""Whom a worker may ask, and what models cost: published prices with their dates, and nothing where none is known."""

import re
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from genai_prices.data import providers
from genai_prices.types import ModelPrice, Tier, TieredPrices

from activities.planning.fallback import FallbackPlanner
from activities.planning.selection import PlannerSelection
from activities.providers import anthropic, openai, prices
from activities.providers.adapter import AdapterOptions
from activities.providers.messages import Usage
from activities.providers.prices import PriceList, published_model
from activities.providers.registry import PROVIDERS, UnknownPlanner
from workflows.plans.catalogue import Price

SONNET = "anthropic:claude-sonnet-5-5"
OWN = Price(input=1, output=2, cache_read=0.5, cache_write=3)
KEYS = {"ANTHROPIC_API_KEY": "x", "OPENAI_API_KEY": "x"}
NO_TEXT = re.compile("audio|ft:|embedding|image|live|moderation|realtime|transcribe|tts|whisper")
"""Matches the names of models that are no models for text alone, or only the beginning of a name."""


def stepped(base: int, *above: int) -> TieredPrices:
    """A price with a step for each later one."""
    tiers = [Tier(1000 * i, Decimal(one)) for i, one in enumerate(above, start=1)]
    return TieredPrices(base=Decimal(base), tiers=tiers)


@pytest.mark.full
def test_a_worker_without_a_model_does_not_import_the_package() -> None:
    """It takes up to half a second, and the offline planner and a server of one's own have no use for it."""
    code = (
        "import sys; from activities.planning.selection import PlannerSelection;"
        "PlannerSelection('offline', {}); PlannerSelection('openai:qwen3', {'OPENAI_BASE_URL': 'http://localhost:1/v1'});"
        "print('genai_prices' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "False"


LISTED = [f"{one.id}:{model.id}" for one in providers if one.id in PROVIDERS for model in one.models]
"""The models of our providers in the package."""


def test_our_table_has_only_what_the_package_lacks_with_a_source_and_a_date_that_has_been() -> None:
    """One place for a price: delete the row as soon as the package has the model."""
    assert [name for name in LISTED if name in prices.own_models()] == []
    for row in prices.own_models().values():
        assert row.source.startswith("https://")
        assert row.read <= datetime.now(UTC).date()


@pytest.mark.parametrize("name", [SONNET, "anthropic:claude-haiku-5-5", "openai:gpt-6-sol", *prices.own_models()])
def test_no_price_is_out_of_proportion(name: str) -> None:
    """A digit too many, or two columns that changed places, would show here."""
    row = published_model(name)

    assert row is not None and row.window is not None
    assert row.cache_read < row.input <= row.cache_write <= 2 * row.input < row.output <= 10 * row.input
    assert 100_000 <= row.window <= 2_000_000


PACKAGED: list[tuple[str, dict[str, Any]]] = [
    ("anthropic:claude-opus-4-5", {"input": 5, "output": 25, "cache_read": 0.5, "cache_write": 6.25}),
    ("openai:gpt-5.4-mini", {"input": 0.75, "output": 4.5, "cache_read": 0.075, "cache_write": 0.75}),
    ("openai:o1-pro", {"input": 150, "output": 600, "cache_read": 150, "cache_write": 150}),
    (
        "openai:gpt-6-sol",
        {"input": 2, "output": 10, "cache_read": 0.2, "cache_write": 2.5}
        | {"long_from": 272_000, "long_input": 2, "long_output": 1.5},
    ),
]


@pytest.mark.parametrize(("name", "rates"), PACKAGED)
def test_the_package_has_the_prices_of_the_providers_models(name: str, rates: dict[str, Any]) -> None:
    """Also of long requests; what has no price for the cache is paid as other input."""
    assert PriceList().price_of(name) == Price(**rates)


def test_every_text_model_of_the_package_has_a_price() -> None:
    """A price in a form that ours cannot express, such as two steps for long requests, would be unknown."""
    reads_text = [name for name in LISTED if not NO_TEXT.search(name)]
    unknown = [name for name in reads_text if PriceList().price_of(name) is None]

    assert unknown == [name for name in reads_text if prices.PAID_BY_SEARCH.search(name)]


@pytest.mark.parametrize(
    "price",
    [
        ModelPrice(input_mtok=stepped(1, 2), output_mtok=stepped(5, 6), cache_read_mtok=Decimal("0.1")),
        ModelPrice(input_mtok=stepped(1, 2, 3), output_mtok=stepped(5, 6, 7)),
        ModelPrice(input_mtok=stepped(0, 2), output_mtok=stepped(5, 6)),
        ModelPrice(input_mtok=Decimal(1)),
    ],
)
def test_a_price_of_a_form_that_ours_cannot_express_is_unknown(price: ModelPrice) -> None:
    """Two steps, and a step for a part of the input only: a wrong price is worse than none."""
    assert prices.rates_of(price) is None


def test_a_window_is_what_a_request_may_have() -> None:
    """OpenAI publishes windows that include the reply; the models that are taken by default have one, and a price."""
    windows = {"openai:gpt-6-sol": 922_000, "openai:gpt-5.4-mini": 272_000, "openai:gpt-4o": 128_000, SONNET: 1_000_000}

    assert {name: PriceList().window_of(name) for name in windows} == windows
    for name in (f"anthropic:{anthropic.DEFAULT_MODEL}", f"openai:{openai.DEFAULT_MODEL}"):
        assert None not in (PriceList().price_of(name), PriceList().window_of(name))


def test_a_published_price_has_a_date_and_one_of_the_settings_file_has_none() -> None:
    """Who sets a price knows how old it is."""
    today, row = datetime.now(UTC).date(), prices.own_models()["openai:gpt-6.2-sol"]

    assert PriceList().date_of("openai:gpt-6.2-sol") == row.read
    assert prices.PACKAGE_DATE <= (PriceList().date_of(SONNET) or today) <= today
    assert PriceList({SONNET: OWN}).date_of(SONNET) is PriceList().date_of("openai:unheard-of") is None


NOBODY_SAID = [
    *("openai:qwen3", "offline", "openai:", "anthropic:claude-sonnet-5-5x", "openai:gpt-4o-search-preview"),
    *(f"{SONNET}@localhost:8080", "openai:gpt-6.2-sol@localhost:8080"),
    "anthropic:claude-haiku-4-5@localhost:8080",  # the package knows names of Google's cloud that go on with an @
]


@pytest.mark.parametrize("name", NOBODY_SAID)
def test_what_nobody_said_is_unknown_and_not_zero(name: str) -> None:
    """A model of one's own, and one behind another server, cost what their operator says."""
    assert (PriceList().price_of(name), PriceList().window_of(name)) == (None, None)


@pytest.mark.parametrize(
    ("model", "day"),
    [(SONNET, "20260928"), ("openai:gpt-5.4-mini", "2026-03-17"), ("openai:gpt-6.2-sol", "2026-11-20")],
)
def test_a_snapshot_of_a_model_costs_what_the_model_costs(model: str, day: str) -> None:
    """Providers name a state of a model by its day."""
    assert PriceList().price_of(f"{model}-{day}") == PriceList().price_of(model) is not None


@pytest.mark.parametrize("named", [SONNET, f"{SONNET}@localhost:8080"])
def test_what_the_settings_file_says_goes_before_our_rows(named: str) -> None:
    """A contract has prices of its own; the host may be left out."""
    rates = PriceList({SONNET: OWN}, {SONNET: 9_000})

    assert (rates.price_of(named), rates.window_of(named)) == (OWN, 9_000)


LONG: dict[str, Any] = {"long_from": 100, "long_input": 2.0, "long_output": 1.5}
COSTS = {
    "each class at its own price": (
        Usage(input=1_000, output=2_000, cache_read=10_000, cache_write=4_000),
        OWN,
        1_000 * 1 + 2_000 * 2 + 10_000 * 0.5 + 4_000 * 3,
    ),
    "below the threshold": (
        Usage(input=60, cache_read=20, cache_write=20, output=900),
        OWN.model_copy(update=LONG),
        60 + 10 + 60 + 1_800,
    ),
    "above it": (
        Usage(input=61, cache_read=20, cache_write=20, output=900),
        OWN.model_copy(update=LONG),
        2 * (61 + 10 + 60) + 1.5 * 1_800,
    ),
    "free": (Usage(input=5), Price(input=0, output=0, cache_read=0, cache_write=0), 0.0),
}


@pytest.mark.parametrize(("used", "price", "usd"), COSTS.values(), ids=COSTS)
def test_each_class_of_tokens_is_counted_at_its_own_price(used: Usage, price: Price, usd: float) -> None:
    """Nothing is paid twice; a long request costs more as a whole; what nobody knows is None, and 0.0 is free."""
    assert prices.cost_in_usd(used, price) == pytest.approx(usd / 1_000_000)
    assert prices.cost_in_usd(used, None) is None


@pytest.mark.parametrize(
    ("each", "highest"),
    [
        ([OWN, OWN.model_copy(update={"input": 7.0, "output": 1.0})], OWN.model_copy(update={"input": 7.0})),
        ([OWN.model_copy(update=LONG), OWN], OWN.model_copy(update=LONG)),
        ([OWN, None], None),
        ([], None),
    ],
)
def test_several_planners_cost_the_highest_of_each_rate(each: list[Price | None], highest: Price | None) -> None:
    """Whoever may be asked any of them must reserve for the highest_price, and cannot where one is unknown."""
    assert prices.highest_price(each) == highest


def test_a_list_of_planners_has_a_price_where_each_of_its_models_has() -> None:
    """Rules that ask no model cost nothing and do not count."""
    both = Price(input=2, output=10, cache_read=0.1, cache_write=2.5)
    for second, highest in (("openai:gpt-5.4-mini", both), ("offline", both), ("openai:unheard-of", None)):
        planner = PlannerSelection(f"{SONNET},{second}", KEYS).planner
        assert isinstance(planner, FallbackPlanner)
        assert prices.highest_price(planner.prices.values()) == highest


# Whom a worker may ask: by its own options, and by what a task names.

HERE = {"OPENAI_BASE_URL": "http://localhost:11434/v1"}


def test_a_task_may_name_another_planner_than_the_worker_s() -> None:
    """With the keys of the worker, whose address is that of its own server: it holds for what speaks as OpenAI does."""
    selection, own = PlannerSelection("anthropic:a", KEYS), PlannerSelection("openai:qwen3", KEYS | HERE)

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
    ("names", "address", "described"),
    [
        ("openai:gpt-6-sol,anthropic:a", {}, "openai:gpt-6-sol (Responses), anthropic:a"),
        ("openai:gpt-audio-mini", {}, "openai:gpt-audio-mini (Chat Completions)"),
        ("openai:unheard-of", {}, "openai:unheard-of (Responses or Chat Completions)"),
        ("openai:a,offline", HERE, "openai:a@localhost:11434 (Chat Completions), offline"),
        ("anthropic:a", {}, "anthropic:a"),
        ("offline", {}, "offline"),
    ],
)
def test_the_api_of_a_model_of_openai_is_named(names: str, address: dict[str, str], described: str) -> None:
    """Who sets up a gateway sees which one it is asked with; two where one is tried first."""
    assert PlannerSelection(names, KEYS | address).described == described


def test_the_api_is_that_of_the_settings_and_of_what_the_model_took() -> None:
    """A model that OpenAI rejected in Responses is asked with Chat Completions only."""
    at_gateway = AdapterOptions(wires={"openai:a": "responses"})
    rejected = AdapterOptions(without_responses={"openai:unheard-of"})

    assert PlannerSelection("openai:a", KEYS | HERE, options=at_gateway).described.endswith(" (Responses)")
    assert PlannerSelection("openai:unheard-of", KEYS, options=rejected).described.endswith(" (Chat Completions)")


def test_the_age_of_the_prices_is_that_of_the_oldest_published_one() -> None:
    """A price of the settings file has no age, and a model of the user's own server no published price."""
    sol, row = "openai:gpt-6.2-sol", prices.own_models()["openai:gpt-6.2-sol"]
    free = PriceList({f"anthropic:{anthropic.DEFAULT_MODEL}": Price(input=0, output=0, cache_read=0, cache_write=0)})
    published = PlannerSelection(f"{sol},anthropic", KEYS)

    assert published.price_date == min(
        row.read, PriceList().date_of(f"anthropic:{anthropic.DEFAULT_MODEL}") or row.read
    )
    assert PlannerSelection(f"{sol},anthropic", KEYS, prices=free).price_date == row.read
    assert PlannerSelection("openai:qwen3", HERE).price_date is None
