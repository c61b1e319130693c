"""The build hook of pyproject.toml: Hatch puts into the wheel what `maintenance.wheel` makes of the checkout."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.append(str(Path(__file__).parent.parent))  # Hatch loads this file alone

from maintenance import wheel


class BuildHook(BuildHookInterface):
    """Adds the package `replan` to a wheel; an editable install keeps the rooms of the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._made = tempfile.TemporaryDirectory(prefix="replan-wheel-")
        package = Path(self._made.name) / "replan"
        wheel.copy(Path(self.root), self.config["rooms"], package)
        build_data["force_include"][str(package)] = "replan"
        sbom = Path(self.root) / wheel.SBOM
        if sbom.is_file():
            build_data["sbom_files"].append(str(sbom))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._made.cleanup()
