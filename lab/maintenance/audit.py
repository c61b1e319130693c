"""`make audit`: asks osv.dev for security advisories on the packages in requirements/*.txt.

Exit code 1: a locked package has an advisory. 0: none has, or osv.dev cannot be reached. 2: pip-audit failed.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

LOCKS = sorted(Path(__file__).parents[2].joinpath("requirements").glob("*.txt"))
PIP_AUDIT = (sys.executable, "-m", "pip_audit", "--vulnerability-service=osv", "--disable-pip", "--require-hashes")
TIMEOUT_SECONDS = 300
NOT_REACHED = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "ServiceError")
"""The exceptions with which pip-audit ends if osv.dev does not answer."""


def main() -> int:
    command = [*PIP_AUDIT, "--format=json", "--progress-spinner=off", *(f"--requirement={lock}" for lock in LOCKS)]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=TIMEOUT_SECONDS)  # noqa: S603
    except subprocess.TimeoutExpired:
        return _report_skipped(f"no answer within {TIMEOUT_SECONDS} s")
    if not done.stdout:
        return _report_failure(done.stderr)
    dependencies = json.loads(done.stdout)["dependencies"]
    known = sorted(set(_advisory_lines(dependencies)))
    print("\n".join(known) or f"No advisory on the {len(dependencies)} locked packages.")
    return 1 if known else 0


def _advisory_lines(dependencies: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for dependency in dependencies:
        for advisory in dependency.get("vulns", ()):
            fixed = ", ".join(advisory["fix_versions"]) or "no version yet"
            yield f"{dependency['name']} {dependency['version']}: {advisory['id']}, fixed in {fixed}"


def _report_failure(errors: str) -> int:
    last = (errors.strip().splitlines() or ["it printed nothing"])[-1]
    if any(name in last for name in NOT_REACHED):
        return _report_skipped("osv.dev does not answer")
    print(f"pip-audit failed ({last}): correct that, or run `make lock` if it is about requirements/.")
    return 2


def _report_skipped(why: str) -> int:
    print(f"The advisories were not read ({why}): run `make audit` where osv.dev can be reached.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
