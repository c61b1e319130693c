"""`compose` without a model: the results one below the other, always the same, and nothing lost."""

import pytest
from hypothesis import given, strategies as st
from pydantic import JsonValue

from activities.errors import Refused
from activities.toolbox.reasoning.compose import Materials, compose
from workflows.faults.fault import Code


def text(results: JsonValue) -> str:
    return compose(Materials(what="A letter.", results=results)).text


WRITTEN: list[tuple[JsonValue, str]] = [
    ("One.", "One."),
    (24.5, "24.5"),
    (True, "true"),
    (["a", "b"], "- a\n- b"),
    ({"total": 24.5, "paid": None}, "total: 24.5\npaid: null"),
    ({"rows": [{"id": 1}, {"id": 2}]}, "rows:\n  -\n    id: 1\n  -\n    id: 2"),
    ({"text": "One.\nTwo."}, "text:\n  One.\n  Two."),
    (["", []], "-\n-"),
]


def test_results_are_written_as_a_list() -> None:
    """Names stand before what they name; of too much, the planner is told to refer to parts."""
    assert [(results, text(results)) for results, _ in WRITTEN] == WRITTEN

    empty: list[JsonValue] = [None, "", [], {}]
    for results in empty:
        with pytest.raises(Refused) as refused:
            text(results)
        assert refused.value.fault.code is Code.INVALID_INPUT
    with pytest.raises(Refused, match="refer to the parts that matter"):
        text(["x" * 100_000])


@given(st.lists(st.integers(10**6, 10**9), min_size=1), st.dictionaries(st.text("abc", min_size=1), st.integers()))
def test_no_value_is_lost(numbers: list[int], named: dict[str, int]) -> None:
    """Whatever the results are."""
    written = text([*numbers, {**named}])

    assert all(str(number) in written for number in [*numbers, *named.values()])
