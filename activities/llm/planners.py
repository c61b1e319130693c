"""Who proposes: the planners, chosen by name."""

from pathlib import Path

from pydantic import ValidationError

from activities.llm.offline import OfflinePlanner
from activities.llm.scripted import ScriptedPlanner
from activities.planning import Planner


class UnknownPlanner(ValueError):
    """No planner has this name; the message says which there are."""


def planner_named(name: str) -> Planner:
    """The planner that `--planner` means: `offline`, or `scripted:FILE`.

    Raises:
        UnknownPlanner: there is no such planner, or its file cannot be used.
    """
    which, _, rest = name.partition(":")
    if which == "offline" and not rest:
        return OfflinePlanner()
    if which != "scripted" or not rest:
        raise UnknownPlanner(f"There is no planner {name!r}: use offline, or scripted:FILE.")
    try:
        return ScriptedPlanner.read(Path(rest))
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no JSON list of proposals"
        raise UnknownPlanner(f"The script {rest!r} cannot be used ({reason}): give a file of proposals.") from error
