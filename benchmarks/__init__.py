"""Speed and growth, measured from outside: `python -m benchmarks.steps`, `python -m benchmarks.growth`."""
