"""`python -m tests.provocations.run LIBRARY`: each situation of a library as one line of JSON, in this environment."""

import asyncio
import functools
import json
import logging
import sys
import tempfile
import warnings
from dataclasses import asdict
from pathlib import Path

from tests.activities.bench import Bench, bench
from tests.provocations.provocation import provoke
from tests.provocations.service import serving
from tests.provocations.situations import CLIENTS, SITUATIONS, prepare


async def provocations(library: str, calls: Bench) -> None:
    """Print what becomes of the library's error in each situation."""
    with serving() as service:
        for situation, code in SITUATIONS.items():
            call = functools.partial(CLIENTS[library], prepare(service, situation))
            found = await provoke(calls, library, situation, (code,), call, lambda: service.applied)
            print(json.dumps(asdict(found)), flush=True)


async def main() -> None:
    """Provoke the libraries that the command line names."""
    with tempfile.TemporaryDirectory() as folder:
        async with bench(Path(folder)) as calls:
            for library in sys.argv[1:]:
                await provocations(library, calls)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable()
    asyncio.run(main())
