"""Effects that happen once although everything between an agent and its tools is killed: `python -m evals.gateway`."""
