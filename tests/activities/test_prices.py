"""What models cost: rows with a date and a source, four classes of tokens, and nothing where nobody said a price."""

from datetime import UTC, datetime
from typing import Any

import pytest

from activities.planning.fallback import FallbackPlanner
from activities.planning.selection import planner_named
from activities.providers import anthropic, openai, prices
from activities.providers.messages import Usage
from activities.providers.prices import PriceList, PublishedModel
from workflows.catalogue import Price

SONNET = "anthropic:claude-sonnet-5-5"
OWN = Price(input=1, output=2, cache_read=0.5, cache_write=3)
KEYS = {"ANTHROPIC_API_KEY": "x", "OPENAI_API_KEY": "x"}


@pytest.mark.parametrize(("name", "row"), prices.published_models().items())
def test_every_price_has_a_source_and_a_date_that_has_been(name: str, row: PublishedModel) -> None:
    """A price without a source cannot be checked; a date in the future is a mistake."""
    assert row.source.startswith("https://")
    assert row.read <= datetime.now(UTC).date()


@pytest.mark.parametrize(("name", "row"), prices.published_models().items())
def test_no_price_is_out_of_proportion(name: str, row: PublishedModel) -> None:
    """A digit too many, or two columns that changed places, would show here."""
    assert row.cache_read < row.input <= row.cache_write <= 2 * row.input < row.output <= 10 * row.input
    assert 100_000 <= row.window <= 2_000_000


@pytest.mark.parametrize("name", [f"anthropic:{anthropic.DEFAULT_MODEL}", f"openai:{openai.DEFAULT_MODEL}"])
def test_the_models_that_are_taken_by_default_have_a_price_and_a_window(name: str) -> None:
    """Whoever only sets a key can set a limit of money, too."""
    assert PriceList().price_of(name) is not None
    assert PriceList().window_of(name) is not None


@pytest.mark.parametrize(
    "name", ["openai:qwen3", f"{SONNET}@localhost:8080", "anthropic:claude-sonnet-5-5x", "offline"]
)
def test_what_nobody_said_is_unknown_and_not_zero(name: str) -> None:
    """A model of one's own, and one behind another server, cost what their operator says."""
    assert (PriceList().price_of(name), PriceList().window_of(name)) == (None, None)


@pytest.mark.parametrize("name", [f"{SONNET}-20260928", f"{SONNET}-2026-09-28"])
def test_a_snapshot_of_a_model_costs_what_the_model_costs(name: str) -> None:
    """Providers name a state of a model by its day."""
    assert PriceList().price_of(name) == PriceList().price_of(SONNET)


@pytest.mark.parametrize("named", [SONNET, f"{SONNET}@localhost:8080"])
def test_what_the_settings_file_says_goes_before_our_rows(named: str) -> None:
    """A contract has prices of its own; the host may be left out."""
    rates = PriceList({SONNET: OWN}, {SONNET: 9_000})

    assert (rates.price_of(named), rates.window_of(named)) == (OWN, 9_000)


def test_each_class_of_tokens_is_counted_at_its_own_price() -> None:
    """The four classes are disjoint: nothing is paid twice."""
    used = Usage(input=1_000, output=2_000, cache_read=10_000, cache_write=4_000)

    assert prices.cost_in_usd(used, OWN) == pytest.approx(
        (1_000 * 1 + 2_000 * 2 + 10_000 * 0.5 + 4_000 * 3) / 1_000_000
    )


@pytest.mark.parametrize(
    ("used", "usd"),
    [
        (Usage(input=60, cache_read=20, cache_write=20, output=900), 60 + 10 + 60 + 1_800),
        (Usage(input=61, cache_read=20, cache_write=20, output=900), 2 * (61 + 10 + 60) + 1.5 * 1_800),
    ],
)
def test_a_request_above_the_threshold_costs_more_as_a_whole(used: Usage, usd: float) -> None:
    """The threshold counts what was asked, from the cache or not, and never what was said."""
    dear = OWN.model_copy(update={"long_from": 100, "long_input": 2.0, "long_output": 1.5})

    assert prices.cost_in_usd(used, dear) == pytest.approx(usd / 1_000_000)


def test_a_reply_of_unknown_price_has_no_cost_rather_than_none() -> None:
    """None says that nobody knows; 0.0 would say that it was free."""
    assert prices.cost_in_usd(Usage(input=5), None) is None
    assert prices.cost_in_usd(Usage(input=5), Price(input=0, output=0, cache_read=0, cache_write=0)) == 0.0


LONG: dict[str, Any] = {"long_from": 100, "long_input": 2.0, "long_output": 5.0}


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


@pytest.mark.parametrize(
    ("names", "highest"),
    [
        (f"{SONNET},openai:gpt-5.4-mini", Price(input=2, output=10, cache_read=0.2, cache_write=2.5)),
        (f"{SONNET},offline", Price(input=2, output=10, cache_read=0.2, cache_write=2.5)),
        (f"{SONNET},openai:unheard-of", None),
    ],
)
def test_a_list_of_planners_has_a_price_where_each_of_its_models_has(names: str, highest: Price | None) -> None:
    """Rules that ask no model cost nothing and do not count."""
    planner = planner_named(names, KEYS)

    assert isinstance(planner, FallbackPlanner)
    assert prices.highest_price(planner.prices.values()) == highest
