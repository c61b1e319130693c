"""Runs a recipe of docs/faults.md: `recipe.py MODULE URL SCENARIO...`; prints how each call ended, as JSON.

A scenario is `get_price/404` or `make_charge/429-200`: a function of the recipe, and the answers of the service.
"""

import importlib
import json
import os
import sys


def main(name: str, url: str, *scenarios: str) -> None:
    """Make the call of each scenario."""
    recipe, found = importlib.import_module(name), {}
    for scenario in scenarios:
        try:
            found[scenario] = getattr(recipe, scenario.partition("/")[0])(f"{url}/{scenario}")
        except Exception as error:
            found[scenario] = type(error).__name__
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # a framework's threads would go on
