"""Lines of code are counted without what explains them."""

import pytest

from maintenance.lines import lines_of


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
