"""Agents of other frameworks in front of the gateway, killed and resumed: `python -m evals.frameworks`."""
