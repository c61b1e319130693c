"""`python -m tests.provocations.run LIBRARY`: each situation of a library as one line of JSON, in this environment."""

import asyncio
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from pydantic import BaseModel
from temporalio.exceptions import ApplicationError

from replan import Tool, tool
from tests.activities.bench import Bench, bench
from tests.provocations.service import serving
from tests.provocations.situations import CLIENTS, SITUATIONS, Provocation, prepare
from workflows.faults.fault import Fault


class Nothing(BaseModel):
    """No argument, and no result."""


def calling(call: Callable[[str], object], url: str, raised: list[BaseException]) -> Tool[..., Nothing]:
    """A tool that makes the call, for a service that honours no key."""

    @tool.unkeyed(timeout=20)
    def change(args: Nothing) -> Nothing:
        """Change something."""
        try:
            call(url)
        except BaseException as error:
            raised.append(error)
            raise
        return Nothing()

    return change


async def provocations(library: str, calls: Bench) -> None:
    """Print what becomes of the library's error in each situation."""
    with serving() as service:
        for situation in SITUATIONS:
            raised = list[BaseException]()
            found = Provocation(library, situation, "", "", "", "", False, 0, "")
            try:
                await calls.call(calling(CLIENTS[library], prepare(service, situation), raised))
            except ApplicationError as failed:
                fault = failed.details[0]
                assert isinstance(fault, Fault)
                error = type(raised[0])
                found = Provocation(
                    library,
                    situation,
                    error=f"{error.__module__}.{error.__qualname__}",
                    code=fault.code.value,
                    guessed=fault.guessed,
                    applied=fault.applied.value,
                    retried=not failed.non_retryable,
                    effects=service.applied,
                    text=fault.model_dump_json(),
                )
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
