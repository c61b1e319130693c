"""`make audit`: exit code 1 when something is known against a locked package, with the version that mends it.

It asks osv.dev, with the names and versions of requirements/*.txt. Where that cannot be reached it says so and ends
with 0, since then nothing is known, for or against; with 2 where the question itself went wrong.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

LOCKS = sorted(Path(__file__).parents[1].joinpath("requirements").glob("*.txt"))
PIP_AUDIT = (sys.executable, "-m", "pip_audit", "--vulnerability-service=osv", "--disable-pip", "--require-hashes")
TIMEOUT_SECONDS = 300
NOT_REACHED = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "ServiceError")
"""What pip-audit dies of where the service does not answer."""


def main() -> int:
    """Look at every lock, and print what is known."""
    command = [*PIP_AUDIT, "--format=json", "--progress-spinner=off", *(f"--requirement={lock}" for lock in LOCKS)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)  # noqa: S603
    except subprocess.TimeoutExpired:
        return _not_looked_at(f"no answer within {TIMEOUT_SECONDS} s")
    if not done.stdout:
        return _explained(done.stderr)
    dependencies = json.loads(done.stdout)["dependencies"]
    known = sorted(set(_known(dependencies)))
    _say("\n".join(known) or f"Nothing is known against the {len(dependencies)} locked packages.")
    return 1 if known else 0


def _known(dependencies: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in dependencies:
        for advisory in one.get("vulns", ()):
            mended = ", ".join(advisory["fix_versions"]) or "no version yet"
            yield f"{one['name']} {one['version']}: {advisory['id']}, mended in {mended}"


def _explained(errors: str) -> int:
    last = (errors.strip().splitlines() or ["it printed nothing"])[-1]
    if any(name in last for name in NOT_REACHED):
        return _not_looked_at("osv.dev does not answer")
    _say(f"pip-audit failed ({last}): correct that, or run `make lock` if it is about requirements/.")
    return 2


def _not_looked_at(why: str) -> int:
    _say(f"The advisories were not looked at ({why}): run `make audit` where osv.dev can be reached.")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
