"""What crosses a border does not change unseen."""

import pytest

from tests.golden import FOLDER, documents, saved


@pytest.mark.parametrize(("name", "text"), documents().items())
def test_what_crosses_a_border_is_as_it_was_saved(name: str, text: str) -> None:
    assert text == saved(name), f"{name} has changed: run `python -m tests.golden`, then look at the diff"


def test_nothing_is_saved_that_is_no_model() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == set(documents())
