"""The pages there are, by name: `errors` is docs/errors.md."""

from collections.abc import Callable, Mapping

from console.reference import console_page, errors_page

PAGES: Mapping[str, Callable[[], str]] = {"errors": errors_page.page, "console": console_page.page}
