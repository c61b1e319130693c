"""What is counted and looked up in the source: lines of code, names of classes, and exceptions of libraries."""

from pathlib import Path

import pytest

from maintenance.exceptions import PAGE, page
from maintenance.lines import lines_of
from maintenance.names import product, shared_names


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ('"""A module."""\n\n\nx = 1  # a comment\n# another\n', 1),
        ('def f() -> None:\n    """Do it.\n\n    Well.\n    """\n    return\n', 2),
        ('class A:\n    x = 1\n    """A field."""\n', 2),
        ('x = """\n\ntext\n"""\n', 4),
        ("x = [\n    1,\n\n    2,\n]\n", 4),
    ],
)
def test_only_lines_with_code_count(source: str, number: int) -> None:
    assert lines_of(source) == number


MOST = 8
"""The most class names that modules may share."""


def test_only_public_classes_of_modules_count(tmp_path: Path) -> None:
    """A class within another one, and a private one, may have any name."""
    (tmp_path / "a.py").write_text("class Row: ...\n\n\nclass _Key: ...\n")
    (tmp_path / "b.py").write_text("class Row:\n    class Key: ...\n\n\nclass _Key: ...\n")

    assert shared_names([tmp_path]) == {"Row": [f"{tmp_path}/a.py:1", f"{tmp_path}/b.py:1"]}


def test_hardly_any_name_stands_for_two_things() -> None:
    assert len(shared_names(product())) <= MOST


def test_the_page_lists_what_the_tables_say() -> None:
    assert PAGE.read_text() == page()
