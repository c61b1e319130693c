"""What an error means, in any program: `from replan.faults import classify, is_transient`.

    fault = classify(error)
    fault.quadrant, fault.code, fault.applied, fault.retry_after, fault.reason

The tables know the exceptions of common HTTP clients, database drivers, cloud libraries and model SDKs by name, and
import none of them. Nothing here needs a server, a store or a worker; `FaultsPlugin`, for a worker of Temporal, is
imported when it is used. docs/faults.md has a recipe for each place where a program retries.
"""

from typing import TYPE_CHECKING

from activities.borders.declared import fault as fault
from activities.borders.meaning import (
    Fault as Fault,
    classify as classify,
    is_transient as is_transient,
    retry_after as retry_after,
)
from workflows.faults.fault import Applied as Applied, Code as Code, Quadrant as Quadrant

if TYPE_CHECKING:
    from replan.faults_plugin import FaultsPlugin as FaultsPlugin

__all__ = ["Applied", "Code", "Fault", "FaultsPlugin", "Quadrant", "classify", "fault", "is_transient", "retry_after"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import the plugin, and with it Temporal's SDK, on first use."""
        if name != "FaultsPlugin":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from replan.faults_plugin import FaultsPlugin

        return FaultsPlugin
