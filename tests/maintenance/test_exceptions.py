"""The list of exceptions in docs/errors.md is that of the tables."""

from maintenance.exceptions import PAGE, page


def test_the_page_lists_what_the_tables_say() -> None:
    assert PAGE.read_text() == page()
