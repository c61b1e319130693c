"""The packages of the optional extra `documents`; a worker also starts without them."""

from collections.abc import Mapping
from importlib.util import find_spec

from activities.errors import NeedsPerson

NEEDED_FOR: Mapping[str, str] = {
    "lxml": "read HTML (search, read_document, fetch_page)",
    "pypdf": "read PDF (search, read_document)",
    "sumy": "pick key sentences (summarise and key_sentences)",
}
"""For each package, what a worker without this package cannot do."""
INSTALL = "run `pip install 'replan[documents]'`, in a checkout `pip install --editable '.[documents]'`"


class MissingPackage(NeedsPerson):
    """A call needs a package of the extra `documents` that is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(f"This worker has no {package}, so it cannot {NEEDED_FOR[package]}: {INSTALL}.")


def missing() -> str | None:
    """Which packages are not installed, and what this worker cannot do without them; None if all are installed."""
    absent = [package for package in NEEDED_FOR if find_spec(package) is None]
    uses = ", ".join(NEEDED_FOR[package] for package in absent)
    return f"Not installed: {', '.join(absent)}. This worker cannot {uses}: {INSTALL}." if absent else None
