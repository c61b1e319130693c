"""Plans as data: references, paths, readiness, the checks of a proposal's shape."""

import json

import pytest
from pydantic import JsonValue, TypeAdapter, ValidationError

from tests.harness import step
from workflows.json_values import canonical, depth, digest
from workflows.plans.graph import check_graph
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


RESOLVED: list[tuple[JsonValue, JsonValue]] = [
    ({"$from": "b"}, 7),
    ({"$from": "a", "path": "free.1.at"}, "ten"),
    ({"$from": "a", "path": "none"}, None),
    ({"$from": "a", "path": ""}, RESULTS["a"]),
    ([{"$from": "b"}, {"deep": [{"$from": "b", "path": ""}]}], [7, {"deep": [7]}]),
    ({"$from": "b", "more": 1}, {"$from": "b", "more": 1}),
    ({"path": "b"}, {"path": "b"}),
    ("$from", "$from"),
]


def test_a_reference_stands_for_the_result_that_it_names() -> None:
    """It is replaced wherever it stands; what merely looks like it is left alone, and so is the plan itself."""
    before = json.dumps([value for value, _ in RESOLVED])

    assert [resolve(value, RESULTS) for value, _ in RESOLVED] == [expected for _, expected in RESOLVED]
    assert json.dumps([value for value, _ in RESOLVED]) == before


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"$from": "c"}, "step 'c' has no result"),
        ({"$from": "b", "path": "x"}, "the result of 'b' has nothing at 'x': it is a int"),
        ({"$from": "a", "path": "free.2"}, "nothing at 'free.2': 'free' is a list"),
        ({"$from": "a", "path": "free.-1"}, "nothing at 'free.-1': 'free' is a list"),
        ({"$from": "a", "path": "fee.0"}, "nothing at 'fee.0': it has ['free', 'none']"),
        ({"$from": "a", "path": "none.x"}, "nothing at 'none.x': 'none' is a NoneType"),
        ({"$from": "large", "path": "x"}, "nothing at 'x': it has ['key-0', "),
    ],
)
def test_a_reference_to_nothing_says_what_is_there_instead(value: JsonValue, says: str) -> None:
    """A planner that reads the message can mend the path; a thousand keys do not become a long message."""
    with pytest.raises(Unresolved) as raised:
        resolve(value, {**RESULTS, "large": {f"key-{number}": number for number in range(1000)}})

    assert says in str(raised.value) and len(str(raised.value)) < 1000


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


def test_a_step_needs_what_it_names_and_what_it_refers_to() -> None:
    """References make needs, at any depth; a step that is named twice is needed once."""
    one = Step(id="x", kind="k", needs=("a", "b"), args={"list": [{"$from": "b"}, {"deep": {"$from": "c"}}]})

    assert one.dependencies == {"a", "b", "c"}
    assert sorted(references(one.args)) == ["b", "c"]


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
    """A planner gets every reason in one answer: it has two tries only. To build on a finished step is none."""
    steps = [step("a", "k"), step("a", "k"), step("b", "k", "nowhere"), step("old", "k")]
    fine = [step("b", "k", "fine", x={"$from": "fine"}), step("c", "k", "b")]

    assert len(check_graph(steps, finished=[], taken=["old"])) == 3
    assert check_graph(fine, finished=["fine"], taken=["fine"]) == []


def test_the_nearest_name_is_offered() -> None:
    """A near miss is named; where nothing is near, nothing is."""
    offered = {name: nearest(name, ["search", "reserve", "calculate"]) for name in ("calulate", "qqq", "serch")}

    assert offered == {"calulate": ": did you mean calculate?", "qqq": "", "serch": ": did you mean search?"}
    # spelt quite differently, it has all words of the other
    assert nearest("search_all_of_the_pages", ["search", "reserve"]) == ": did you mean search?"


def test_depth_counts_the_levels_of_nesting() -> None:
    """The deepest branch decides; a plain value has no depth."""
    values: list[JsonValue] = [1, "x", [], {}, [[1]], {"a": [1], "b": {"c": [{}]}}]

    assert [depth(value) for value in values] == [0, 0, 1, 1, 2, 4]


def test_a_digest_tells_calls_apart() -> None:
    """No two are taken for one because their texts run together; equal numbers are one call. People read the form."""
    different: list[tuple[list[JsonValue], list[JsonValue]]] = [
        (["a", "b"], ["ab"]),
        ([["a"]], ["a"]),
        ([None], ["null"]),
        ([1], ["1"]),
    ]

    assert [pair for pair in different if digest(*pair[0]) == digest(*pair[1])] == []
    assert digest(1) == digest(1.0) and digest({"a": [2.0]}) == digest({"a": [2]})
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


def test_a_proposal_crosses_the_border_as_what_it_is() -> None:
    """The union is told apart by `type`, so nothing is guessed from the fields."""
    adapter = TypeAdapter[Proposal](Proposal)
    steps = NewSteps(steps=(step("a", "k"),), because="so")
    proposals: list[Proposal] = [steps, Answer(result=None), Question(text="which?"), GiveUp(reason="no")]

    assert [adapter.validate_json(adapter.dump_json(one)) for one in proposals] == proposals
    # models that cross the border only gain optional fields: a return from an older worker needs the result only
    assert StepReturn.model_validate({"result": None}) == StepReturn(result=None, attempt=1)


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
