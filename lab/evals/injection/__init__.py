"""Prompt injection with AgentDojo's tasks, environments and graders: `python -m evals.injection`."""
