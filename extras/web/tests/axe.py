"""axe-core, which finds what people with a screen reader, a keyboard or weak eyes cannot use on a page."""

import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # of an extra
    from playwright.async_api import Page

VERSION = "4.14.1"
MISSING = f"axe-core is not here: `npm pack axe-core@{VERSION}` fetches it."
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
FETCH_SECONDS = 60


def source(folder: Path) -> str:
    """The script, from `folder` or else from the registry that npm uses; without both, the test is skipped."""
    script = folder / f"axe-{VERSION}.js"
    if not script.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip(MISSING)
        command = [npm, "pack", f"axe-core@{VERSION}", "--pack-destination", str(folder), "--silent"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=FETCH_SECONDS)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            pytest.skip(MISSING)
        with tarfile.open(folder / f"axe-core-{VERSION}.tgz") as package:
            member = package.extractfile("package/axe.min.js")
            assert member is not None
            script.write_bytes(member.read())
    return script.read_text()


async def violations(page: "Page", script: str) -> list[str]:
    """What axe finds on a page as it is now, each with the first elements."""
    await page.evaluate(script)
    found: list[Any] = await page.evaluate("tags => axe.run({runOnly: tags}).then((all) => all.violations)", TAGS)
    return [f"{one['id']}: {[node['html'][:120] for node in one['nodes'][:3]]}" for one in found]
