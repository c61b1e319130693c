"""`python lab/maintenance/packages.py [EXTRA]`: installs the packages of a checkout, and shows how far that is.

It runs in a new virtual environment, so it uses Python's own library only.
"""

import re
import subprocess
import sys
from importlib.metadata import version

OLDEST_PIP = (23, 3)
"""An older pip warns of extras with an underscore, as in `lxml[html_clean]`, which a package of ours asks for."""
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--progress-bar=off")
WIDTH = 72


def main(extra: str = "dev") -> int:
    """Install, and return pip's exit code; pip itself says on stderr what is wrong."""
    print("      into .venv: about 140 packages, a minute or two, once", flush=True)
    if tuple(map(int, version("pip").split(".")[:2])) < OLDEST_PIP:
        subprocess.run([*PIP, "--quiet", "--upgrade", "pip"], check=False)  # noqa: S603  # without it, pip only warns
    process = subprocess.Popen([*PIP, "--editable", f".[{extra}]"], stdout=subprocess.PIPE, encoding="utf-8")  # noqa: S603
    assert process.stdout is not None  # noqa: S101  # for the type checker: stdout=PIPE
    found = 0
    for line in process.stdout:
        words = line.split()
        if words[:1] == ["Collecting"]:
            found += 1
            _show(f"{found} found: {re.split('[^A-Za-z0-9._-]', words[1])[0]}")
        elif words[:2] == ["Installing", "collected"]:
            _show(f"{found} are being installed")
    _show("")
    return process.wait()


def _show(text: str) -> None:
    if sys.stdout.isatty():
        print(f"\r\x1b[K      {text}"[:WIDTH] if text else "\r\x1b[K", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
