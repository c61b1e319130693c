"""What counts as a broken promise, whatever the surface is."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests import promises
from tests.promises import Surface

START: dict[str, dict[str, Any]] = {
    "task": {"takes": ["str"], "place": 1},
    "id": {"takes": ["str", "None"], "default": "None"},
    "how": {"takes": ["'wait'", "'end'"], "default": "'end'", "limits": {"maximum": 5}},
    "->": {"gives": ["Handle", "'a'"]},
    "kind": {"is": "counter"},
}
SAVED: Surface = {"start": START, "gone": {"x": {}}, "Enum": {"one": {}, "two": {}}}
BROKEN = {
    "`gone` was removed": ("gone", None, None),
    "`id` of `start` was removed": ("start", "id", None),
    "`two` of `Enum` was removed": ("Enum", "two", None),
    "`id` of `start` no longer takes None": ("start", "id", {"takes": ["str"], "default": "None"}),
    "`how` of `start` no longer takes 'end'": ("start", "how", {**START["how"], "takes": ["'wait'"]}),
    "`id` of `start` is required, and could be left out": ("start", "id", {"takes": ["str", "None"]}),
    "`more` of `start` is new and required: give it a default": ("start", "more", {"takes": ["str"]}),
    "`task` of `start` is no longer parameter number 1": ("start", "task", {"takes": ["str"]}),
    "`->` of `start` may be None, which it never was": ("start", "->", {"gives": ["Handle", "'a'", "None"]}),
    "`->` of `start` is never 'a' any more": ("start", "->", {"gives": ["Handle"]}),
    "`->` of `start` no longer gives anything": ("start", "->", {}),
    "`kind` of `start` is gauge, and was counter": ("start", "kind", {"is": "gauge"}),
    "`how` of `start` has maximum 4, and had 5": ("start", "how", {**START["how"], "limits": {"maximum": 4}}),
    "`how` of `start` has pattern ^a, and had none": (
        *("start", "how"),
        {**START["how"], "limits": {"maximum": 5, "pattern": "^a"}},
    ),
}
"""By the sentence that names it, a change of the saved surface."""


def changed(owner: str, member: str | None, promise: object) -> Surface:
    now = json.loads(json.dumps(SAVED))
    if member is None:
        del now[owner]
    elif promise is None:
        del now[owner][member]
    else:
        now[owner][member] = promise
    found: Surface = now
    return found


@pytest.mark.parametrize("sentence", BROKEN)
def test_a_broken_promise_is_named(sentence: str) -> None:
    """In one sentence that says what, and of what; nothing else is reported."""
    assert list(promises.broken(SAVED, changed(*BROKEN[sentence]))) == [sentence]


KEPT = {
    "nothing changes": ("start", "task", START["task"]),
    "a parameter with a default is new": ("start", "more", {"takes": ["str"], "default": "''"}),
    "a type is taken, too": ("start", "id", {"takes": ["str", "None", "Task"], "default": "None"}),
    "a wider type is taken": ("start", "task", {"takes": ["Any"], "place": 1}),
    "any text is taken": ("start", "how", {"takes": ["str"], "default": "'end'", "limits": {"maximum": 5}}),
    "a default is new": ("start", "task", {"takes": ["str"], "place": 1, "default": "''"}),
    "a result has a value more": ("start", "->", {"gives": ["Handle", "'a'", "'b'"]}),
    "a limit is raised": ("start", "how", {**START["how"], "limits": {"maximum": 6}}),
    "a limit goes away": ("start", "how", {"takes": ["'wait'", "'end'"], "default": "'end'"}),
    "a value is new": ("Enum", "three", {}),
}


@pytest.mark.parametrize(("owner", "member", "promise"), KEPT.values(), ids=KEPT)
def test_what_breaks_nothing_is_not_reported(owner: str, member: str, promise: object) -> None:
    """Programs that were written before go on."""
    assert list(promises.broken(SAVED, changed(owner, member, promise))) == []


def test_a_new_function_may_require_what_it_likes() -> None:
    """Nobody calls it yet; it is an addition."""
    now = {**SAVED, "stop": {"why": {"takes": ["str"]}}}

    assert list(promises.broken(SAVED, now)) == []
    assert promises.added(SAVED, now) == ["`stop`"]
    assert promises.added(SAVED, changed("Enum", "three", {})) == ["`three` of `Enum`"]


def test_a_surface_is_saved_in_lines(tmp_path: Path) -> None:
    """One for each member, so that a diff shows what changed; and it is read as it was."""
    (file := tmp_path / "surface.json").write_text(promises.text(SAVED))

    assert promises.read(file) == SAVED
    assert '  "id": {"takes": ["str", "None"], "default": "None"},' in file.read_text().splitlines()
    assert promises.read(tmp_path / "none.json") == {}


def test_a_broken_promise_is_not_written_over(tmp_path: Path) -> None:
    """Only if that is asked for; an addition is written at once."""
    file, more, less = tmp_path / "made" / "x.json", changed("Enum", "three", {}), changed("Enum", "two", None)
    said = [promises.save(file, one) for one in (SAVED, more, less)]

    assert said == [[], [], ["`two` of `Enum` was removed", "`three` of `Enum` was removed"]]
    assert promises.read(file) == more
    assert promises.save(file, less, breaking=True) == said[-1]
    assert promises.read(file) == less
