"""What a task may spend where its command line does not say it: by profile, from the settings file."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from console.options import Common
from console.problem import Problem
from runtime.settings_file import BadSettings, Profile, SettingsFile


def limits(path: Path | None, profile: Profile, given: Mapping[str, Any]) -> dict[str, Any]:
    """The limits of a task; `given` is what its command line says, None for what it does not.

    Raises:
        Problem: the settings file cannot be used.
    """
    try:
        return SettingsFile.read(path).limits(profile, given)
    except BadSettings as wrong:
        raise Problem("bad_settings", wrong.reason, wrong.remedy) from wrong


def profile(common: Common, *, detach: bool, jsonl: bool) -> Profile:
    """`interactive` where somebody sits at a terminal and waits for the task."""
    waits = not (common.json or jsonl or detach)
    at_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    return "interactive" if waits and at_terminal else "background"
