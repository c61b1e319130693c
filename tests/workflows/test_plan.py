"""Plans as data: references, paths, readiness, the checks of a proposal's shape."""

import json
from collections.abc import Sequence

import pytest
from pydantic import JsonValue, TypeAdapter, ValidationError

from tests.harness import step
from workflows.json_values import canonical, depth, digest
from workflows.plans.graph import check_graph, ready_steps
from workflows.plans.proposal import (
    Answer,
    GiveUp,
    NewSteps,
    Proposal,
    Question,
    Step,
    StepReturn,
)
from workflows.plans.references import (
    PRUNED,
    Unresolved,
    pick,
    pruned,
    references,
    resolve,
)
from workflows.text import nearest

RESULTS: dict[str, JsonValue] = {"a": {"free": [{"at": "nine"}, {"at": "ten"}], "none": None}, "b": 7}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"$from": "b"}, 7),
        ({"$from": "a", "path": "free.1.at"}, "ten"),
        ({"$from": "a", "path": "none"}, None),
        ({"$from": "a", "path": ""}, RESULTS["a"]),
        ([{"$from": "b"}, {"deep": [{"$from": "b", "path": ""}]}], [7, {"deep": [7]}]),
        ({"$from": "b", "more": 1}, {"$from": "b", "more": 1}),
        ({"path": "b"}, {"path": "b"}),
        ("$from", "$from"),
    ],
)
def test_a_reference_stands_for_the_result_that_it_names(value: JsonValue, expected: JsonValue) -> None:
    """`{"$from", "path"}` is replaced wherever it stands; anything that merely looks like it is left alone."""
    assert resolve(value, RESULTS) == expected


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"$from": "c"}, "step 'c' has no result"),
        ({"$from": "b", "path": "x"}, "the result of 'b' has nothing at 'x': it is a int"),
        ({"$from": "a", "path": "free.2"}, "nothing at 'free.2': 'free' is a list"),
        ({"$from": "a", "path": "free.-1"}, "nothing at 'free.-1': 'free' is a list"),
        ({"$from": "a", "path": "fee.0"}, "nothing at 'fee.0': it has ['free', 'none']"),
        ({"$from": "a", "path": "none.x"}, "nothing at 'none.x': 'none' is a NoneType"),
    ],
)
def test_a_reference_to_nothing_says_what_is_there_instead(value: JsonValue, says: str) -> None:
    """A planner that reads the message can mend the path."""
    with pytest.raises(Unresolved) as raised:
        resolve(value, RESULTS)

    assert says in str(raised.value)


GONE: JsonValue = {PRUNED: "It was deleted."}


def test_any_part_of_a_pruned_result_is_its_sentence() -> None:
    """A replay after `prune` has to take the ways that the task took when the result was there."""
    made = resolve({"words": {"$from": "make", "path": "a.0.b"}}, {"make": GONE})
    picked = pick({"args": {}, "result": GONE}, "result.id", "the call")

    assert (made, picked) == ({"words": GONE}, GONE)


def test_what_was_pruned_is_found_wherever_it_stands() -> None:
    """So that no tool is called with it; what only looks like it is no such thing."""
    values: list[JsonValue] = [GONE, {"a": [1, {"b": GONE}]}, {PRUNED: "x", "more": 1}, ["$pruned"], None]

    assert [pruned(value) for value in values] == ["It was deleted.", "It was deleted.", None, None, None]


def test_what_is_there_instead_is_said_in_a_bounded_number_of_words() -> None:
    """A result with a thousand keys does not become a message with a thousand keys: faults stay small."""
    with pytest.raises(Unresolved) as raised:
        pick({f"key-{number}": number for number in range(1000)}, "x", "the result")

    assert len(str(raised.value)) < 1000


def test_resolving_leaves_the_plan_as_it_was() -> None:
    """The same step may be resolved again after a replay, so its arguments are not changed in place."""
    args: dict[str, JsonValue] = {"list": [{"$from": "b"}], "dict": {"x": {"$from": "b"}}}
    before = json.dumps(args)
    resolve(args, RESULTS)

    assert json.dumps(args) == before


def test_a_step_needs_what_it_names_and_what_it_refers_to() -> None:
    """References make needs, at any depth; a step that is named twice is needed once."""
    one = Step(id="x", kind="k", needs=("a", "b"), args={"list": [{"$from": "b"}, {"deep": {"$from": "c"}}]})

    assert one.dependencies == {"a", "b", "c"}
    assert sorted(references(one.args)) == ["b", "c"]


@pytest.mark.parametrize(("completed", "expected"), [((), ["a"]), (("a",), ["a", "b"]), (("a", "b"), ["a", "b", "c"])])
def test_steps_are_ready_in_their_order_once_all_they_need_is_done(
    completed: Sequence[str], expected: list[str]
) -> None:
    """A step is ready when everything that it needs is completed, and not before."""
    steps = [step("a", "k"), step("b", "k", "a"), step("c", "k", "a", "b")]

    assert [one.id for one in ready_steps(steps, completed)] == expected


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([step("a", "k"), step("b", "k"), step("a", "k")], "step id 'a' is used twice"),
        ([step("old", "k")], "step id 'old' belongs to an earlier step of this task: choose another, e.g. 'old-2'"),
        ([step("fine", "k")], "step id 'fine' belongs to an earlier step"),
        ([step("a", "k", "fin")], "step 'a' needs 'fin', which does not exist: did you mean fine?"),
        ([step("a", "k", x={"$from": "zzz"})], "step 'a' needs 'zzz', which does not exist"),
        ([step("a", "k", "old")], "step 'a' needs 'old', which failed, or whose result is not kept any more"),
        ([step("a", "k", "b"), step("b", "k", "a")], "steps need each other in a circle: "),
        ([step("a", "k", "a")], "steps need each other in a circle: a -> a"),
    ],
)
def test_a_proposal_of_the_wrong_shape_is_told_why(steps: list[Step], says: str) -> None:
    """Ids are new and unique, needs exist, nothing needs itself; each reason names the step and the remedy."""
    reasons = check_graph(steps, finished=["fine"], taken=["fine", "old"])

    assert len(reasons) == 1
    assert says in reasons[0].text


def test_all_mistakes_of_a_proposal_are_told_at_once() -> None:
    """A planner gets every reason in one answer: it has two tries only."""
    steps = [step("a", "k"), step("a", "k"), step("b", "k", "nowhere"), step("old", "k")]

    assert len(check_graph(steps, finished=[], taken=["old"])) == 3


def test_a_proposal_may_build_on_finished_steps() -> None:
    """Finished steps are kept, so a new plan may need them."""
    steps = [step("b", "k", "fine", x={"$from": "fine"}), step("c", "k", "b")]

    assert check_graph(steps, finished=["fine"], taken=["fine"]) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("calulate", ": did you mean calculate?"),
        ("qqq", ""),
        ("serch", ": did you mean search?"),
        ("search_all", ": did you mean search?"),
    ],
)
def test_the_nearest_name_is_offered(name: str, expected: str) -> None:
    """A near miss is named; where nothing is near, nothing is."""
    assert nearest(name, ["search", "reserve", "calculate"]) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(1, 0), ("x", 0), ([], 1), ({}, 1), ([[1]], 2), ({"a": [1], "b": {"c": [{}]}}, 4)]
)
def test_depth_counts_the_levels_of_nesting(value: JsonValue, expected: int) -> None:
    """The deepest branch decides; a plain value has no depth."""
    assert depth(value) == expected


@pytest.mark.parametrize(("one", "other"), [(["a", "b"], ["ab"]), ([["a"]], ["a"]), ([None], ["null"]), ([1], ["1"])])
def test_different_values_have_different_digests(one: list[JsonValue], other: list[JsonValue]) -> None:
    """No two calls may be taken for one because their texts run together."""
    assert digest(*one) != digest(*other)


def test_text_outside_ascii_stays_readable_in_the_canonical_form() -> None:
    """The canonical form is shown to people too."""
    assert canonical({"b": "é", "a": [1, None]}) == '{"a":[1,null],"b":"é"}'


@pytest.mark.parametrize(
    ("one", "label"),
    [
        (Step(id="a", kind="k", title="Reserve a slot", args={"x": 1}), "Reserve a slot"),
        (step("a", "k", x="Ada", y=2), "Ada, y 2"),
        (step("a", "k", room="attic", seats=40, with_food=True, music=False), "attic, seats 40, with food, no music"),
        (step("a", "k", x={"$from": "b", "path": "p"}), "<b.p>"),
        (step("a", "k", x="w" * 200), "w" * 79 + "…"),
        (step("a", "k"), ""),
    ],
)
def test_a_step_without_a_title_is_labelled_by_its_arguments(one: Step, label: str) -> None:
    """The web UI always has a few words for a step."""
    assert one.label == label


@pytest.mark.parametrize(
    "proposal",
    [
        NewSteps(steps=(step("a", "k"),), because="so"),
        Answer(result=None),
        Question(text="which?"),
        GiveUp(reason="no"),
    ],
)
def test_a_proposal_crosses_the_border_as_what_it_is(proposal: Proposal) -> None:
    """The union is told apart by `type`, so nothing is guessed from the fields."""
    adapter = TypeAdapter[Proposal](Proposal)

    assert adapter.validate_json(adapter.dump_json(proposal)) == proposal


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "steps", "steps": [], "extra": 1},
        {"type": "steps", "steps": [{"id": "a", "kind": "k", "arguments": {}}]},
        {"type": "later", "text": "?"},
        {"steps": []},
    ],
)
def test_a_proposal_with_fields_that_nobody_reads_is_refused(wrong: JsonValue) -> None:
    """A misspelt field would otherwise be ignored in silence."""
    with pytest.raises(ValidationError):
        TypeAdapter[Proposal](Proposal).validate_python(wrong)


def test_a_return_from_an_older_worker_needs_the_result_only() -> None:
    """Models that cross the border only gain optional fields."""
    assert StepReturn.model_validate({"result": None}) == StepReturn(result=None, attempt=1)


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), ({"a": [2.0]}, {"a": [2]})])
def test_equal_numbers_have_equal_digests(one: JsonValue, other: JsonValue) -> None:
    """A planner that writes 1.0 for 1 makes the same call."""
    assert digest(one) == digest(other)
