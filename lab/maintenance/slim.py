"""`python lab/maintenance/slim.py`: takes from the Python environment that runs it what Replan does not need there.

These are files that no module reads, and the byte code of modules that nothing of Replan imports. Byte code of all
others is written, since the image's own user cannot write it. Only the Dockerfile runs this.
"""

import shutil
import sysconfig
from importlib import import_module
from pathlib import Path

PACKAGES = Path(sysconfig.get_path("purelib"))
UNUSED = (
    "*/test",
    "*/tests",
    "*/*/tests",
    "pycountry/locales",  # translations of the names of languages
    "temporalio/bridge/sdk-core",  # the sources of what is compiled beside them
)
NOT_IMPORTED = ("__main__", "env", "pytest_plugin")
"""Modules that do something when they are imported, or need what the image has not."""


def main() -> None:
    for pattern in UNUSED:
        for path in PACKAGES.glob(pattern):
            shutil.rmtree(path)
    for file in sorted(PACKAGES.joinpath("replan").rglob("*.py")):
        module = file.parent if file.name == "__init__.py" else file.with_suffix("")
        if module.name not in NOT_IMPORTED:
            import_module(".".join(module.relative_to(PACKAGES).parts))


if __name__ == "__main__":
    main()
