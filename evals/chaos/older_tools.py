"""An older worker's tools, before a deploy that brings the rest: `worker.py --tools evals/chaos/older_tools.py`."""

from evals.chaos.tools import balance, get_rate

__all__ = ["balance", "get_rate"]
