"""The errors of popular clients of HTTP services, raised by the libraries themselves against a server on loopback.

Their environment is made by the first run, which takes minutes, and needs a package registry.
"""

import json
import subprocess
from collections.abc import Callable

import pytest

from tests.processes import ROOT
from tests.provocations import LINE
from tests.provocations.clients import SECRET
from tests.provocations.environment import MINUTES, REQUIREMENTS, Environment, prepared, wanted
from tests.provocations.provocation import Provocation, line
from tests.provocations.situations import CLIENTS, DISTRIBUTIONS, KNOWN_WRONG, POPULAR, SHARE, SITUATIONS

pytestmark = [pytest.mark.full, pytest.mark.timeout(60 * MINUTES * len(CLIENTS))]

FOUND = dict[str, list[Provocation]]()
"""By library, what its errors became; filled by the tests of the libraries."""


@pytest.fixture(scope="module")
def environment() -> Environment:
    """The Python that has the libraries."""
    return prepared(REQUIREMENTS)


def right(*libraries: str) -> int:
    return sum(one.is_right for library in libraries for one in FOUND.get(library, ()))


def asked(*libraries: str) -> int:
    return sum(len(FOUND.get(library, ())) for library in libraries)


@pytest.mark.parametrize("library", CLIENTS)
def test_the_errors_of_a_library(
    environment: Environment, library: str, record_property: Callable[[str, str], None]
) -> None:
    """Each is what a user expects, or a known miss; none repeats an effect that took place, or shows a secret."""
    reason = environment.missing.get(DISTRIBUTIONS.get(library, library).lower())
    if reason:
        pytest.skip(f"it cannot be installed: {reason}")
    command = [str(environment.python), "-W", "ignore", "-m", "tests.provocations.run", library]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60 * MINUTES)
    found = [Provocation(**json.loads(one)) for one in done.stdout.splitlines() if one.startswith("{")]
    FOUND[library] = found
    record_property(LINE, line(found))

    assert [one.situation for one in found] == [*SITUATIONS]
    assert {
        one.situation: one.code for one in found if not one.is_right and (library, one.situation) not in KNOWN_WRONG
    } == {}
    assert {one.situation for one in found if one.is_right and (library, one.situation) in KNOWN_WRONG} == set()
    assert [one for one in found if one.may_repeat] == []
    assert [one for one in found if one.guessed and one.applied == "none"] == []
    assert [one for one in found if SECRET in one.text] == []


def test_most_are_right(record_property: Callable[[str, str], None]) -> None:
    """Of the thirteen for which no table was made; without the last table 15 of 70 were."""
    if not all(library in FOUND for library in POPULAR):
        pytest.skip("not all of them could be installed")
    record_property(LINE, f"the thirteen  {right(*POPULAR)} of {asked(*POPULAR)} right")

    assert right(*POPULAR) >= SHARE * asked(*POPULAR)


def test_each_library_is_required() -> None:
    """One that is in no file is installed by nobody."""
    assert {DISTRIBUTIONS.get(library, library).lower() for library in CLIENTS} == {*wanted(REQUIREMENTS)}
