"""The manifest of the saved histories says what each of them shows."""

import json

from tests.manifest import MANIFEST, covered, manifest, written
from tests.record import FOLDER


async def test_the_manifest_is_that_of_the_saved_histories() -> None:
    assert MANIFEST.read_text() == written(await manifest(FOLDER))


def test_each_history_shows_more_than_that_it_exists() -> None:
    for name, lines in json.loads(MANIFEST.read_text()).items():
        assert any(line.startswith("event: ") for line in lines), name
        assert any(line.startswith("end: ") for line in lines), name


def test_what_is_shown_no_more_is_named() -> None:
    before = {"a": ["x", "y"], "gone": ["x", "z"]}

    assert dict(covered(before, {"a": ["x"], "b": ["y"]})) == {"a: y": True, "gone: z": False}
    assert not dict(covered(before, {"a": ["x", "y", "more"], "b": ["z"]}))
