"""What holds of every plan: order, cycles, references, digests."""

import random
from collections.abc import Mapping, Sequence

from hypothesis import given, strategies as st
from pydantic import JsonValue

from workflows.json_values import digest
from workflows.plans.graph import check_graph, ready_steps
from workflows.plans.proposal import Step
from workflows.plans.references import pick, references, resolve

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
JSON: st.SearchStrategy[JsonValue] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
)
NAMES = [f"s{number}" for number in range(8)]


@st.composite
def graphs(draw: st.DrawFn) -> list[Step]:
    """Any steps at all over a few names: ids used twice, needs that do not exist, cycles and all."""
    ids = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6))
    return [
        _step(id, draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True)), draw(st.booleans())) for id in ids
    ]


@st.composite
def acyclic(draw: st.DrawFn) -> list[Step]:
    """Steps that need only earlier ones, in any order."""
    steps = [
        _step(name, draw(st.lists(st.sampled_from(NAMES[:index]), unique=True)) if index else [], draw(st.booleans()))
        for index, name in enumerate(NAMES)
    ]
    return draw(st.permutations(steps))


def _step(id: str, needs: Sequence[str], refers: bool) -> Step:
    """Needs as such, or as references within the arguments: both count."""
    if refers:
        return Step(id=id, kind="k", args={"list": [{"$from": need, "path": ""} for need in needs]})
    return Step(id=id, kind="k", needs=tuple(needs))


@given(acyclic(), st.integers(min_value=1, max_value=4), st.randoms(use_true_random=False))
def test_any_order_of_execution_completes_every_step_once_and_none_too_early(
    steps: list[Step], parallel: int, chance: random.Random
) -> None:
    """Whatever finishes first, what is ready has all that it needs, and in the end all is done."""
    pending, running, completed = {step.id: step for step in steps}, list[Step](), list[str]()
    while pending or running:
        started = ready_steps(pending.values(), completed)[: parallel - len(running)]
        assert all(step.dependencies <= set(completed) for step in started)
        running += [pending.pop(step.id) for step in started]
        completed.append(running.pop(chance.randrange(len(running))).id)

    assert sorted(completed) == sorted(step.id for step in steps)


@given(graphs(), st.sets(st.sampled_from(NAMES), max_size=3), st.sets(st.sampled_from(NAMES), max_size=3))
def test_a_graph_is_accepted_exactly_when_it_can_be_run(
    steps: list[Step], finished: set[str], failed: set[str]
) -> None:
    """New unique ids, needs that are known, no step that reaches itself: an independent search says the same."""
    reasons = check_graph(steps, finished, finished | failed)

    assert (not reasons) is _can_be_run(steps, finished, finished | failed), reasons


def _can_be_run(steps: Sequence[Step], finished: set[str], taken: set[str]) -> bool:
    ids = [step.id for step in steps]
    needs = {step.id: step.dependencies for step in steps}
    known = all(need in ids or need in finished for step in steps for need in step.dependencies)
    return len(set(ids)) == len(ids) and not taken & set(ids) and known and not any(_circles(id, needs) for id in ids)


def _circles(start: str, needs: Mapping[str, frozenset[str]]) -> bool:
    """Whether a walk along the needs comes back to where it started."""
    reached, todo = set[str](), list(needs[start])
    while todo:
        id = todo.pop()
        if id not in reached:
            reached.add(id)
            todo += needs.get(id, frozenset())
    return start in reached


@given(st.dictionaries(st.sampled_from(NAMES), JSON, min_size=1), JSON, st.data())
def test_a_reference_brings_the_whole_result(
    results: dict[str, JsonValue], value: JsonValue, data: st.DataObject
) -> None:
    """What a step returned is what the next one gets, whatever it is and however deep; and nothing else changes."""
    name = data.draw(st.sampled_from(sorted(results)))
    put: dict[str, JsonValue] = data.draw(st.sampled_from([{"$from": name}, {"$from": name, "path": ""}]))

    assert resolve({"x": [put, {"y": put}]}, results) == {"x": [results[name], {"y": results[name]}]}
    assert list(references(value)) or resolve(value, {}) == value


@given(JSON, st.lists(st.text(alphabet="abc", min_size=1, max_size=3) | st.integers(0, 3), max_size=4))
def test_a_path_leads_to_what_was_put_at_its_end(value: JsonValue, parts: list[str | int]) -> None:
    """`pick` follows keys and indices, however they alternate."""
    whole = value
    for part in reversed(parts):
        whole = {part: whole} if isinstance(part, str) else [None] * part + [whole]

    assert pick(whole, ".".join(map(str, parts)), "it") == value


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=6), st.randoms(use_true_random=False))
def test_a_digest_does_not_depend_on_the_order_of_keys(value: dict[str, JsonValue], chance: random.Random) -> None:
    """A model that writes the same arguments in another order makes the same call."""
    items = list(value.items())
    chance.shuffle(items)

    assert digest("k", dict(items)) == digest("k", value)
