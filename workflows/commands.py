"""The commands of Replan as messages name them: those of the checkout, or those that the wheel installs."""

STARTER, WORKER = (
    ("replan", "replan worker") if __name__.startswith("replan.") else ("python starter.py", "python worker.py")
)
