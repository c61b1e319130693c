"""Speed and growth, measured from outside: `python -m benchmarks.steps`, `benchmarks.growth`, `benchmarks.turns`."""
