"""A class name stands for one thing in the whole product."""

from pathlib import Path

from maintenance.names import product, shared_names

MOST = 8
"""The most class names that modules may share."""


def test_only_public_classes_of_modules_count(tmp_path: Path) -> None:
    """A class within another one, and a private one, may have any name."""
    (tmp_path / "a.py").write_text("class Row: ...\n\n\nclass _Key: ...\n")
    (tmp_path / "b.py").write_text("class Row:\n    class Key: ...\n\n\nclass _Key: ...\n")

    assert shared_names([tmp_path]) == {"Row": [f"{tmp_path}/a.py:1", f"{tmp_path}/b.py:1"]}


def test_hardly_any_name_stands_for_two_things() -> None:
    assert len(shared_names(product())) <= MOST
