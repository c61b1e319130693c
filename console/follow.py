"""Following a task: a line for each thing that happens, until it ends."""

import asyncio
import time
from collections.abc import Callable

from temporalio.service import RPCError, RPCStatusCode

from console import tree
from console.options import Common
from console.outcome import Handle, ended, progress
from workflows.task import Outcome

POLL_SECONDS = 0.25
PATIENCE_SECONDS = 3.0
"""How long nobody may answer before the follower says so."""

GONE = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.UNKNOWN, RPCStatusCode.CANCELLED)


class Follower:
    """Says what is new about one task, once."""

    def __init__(self, handle: Handle, common: Common, ui_url: str | None, say: Callable[[str], None]) -> None:
        """Follow `handle`, saying each line through `say`."""
        self._handle = handle
        self._common = common
        self._ui_url = ui_url
        self._say = say
        self._plans = 0
        self._steps = set[tuple[str, int]]()
        self._began = False
        self._heard = time.monotonic()
        self._complained = False

    async def to_the_end(self) -> Outcome:
        """Follow over restarts of worker and server until the task ends."""
        end = asyncio.create_task(self._end())
        try:
            while not (await asyncio.wait([end], timeout=POLL_SECONDS))[0]:
                self._hear(await progress(self._handle))
            outcome = end.result()
        finally:
            end.cancel()
        self._tell(outcome)
        for line in tree.closing(outcome):
            self._say(line)
        return outcome

    async def _end(self) -> Outcome:
        while True:
            try:
                return await ended(self._handle)
            except RPCError as error:
                if error.status not in GONE:
                    raise
                await asyncio.sleep(POLL_SECONDS)

    def _hear(self, outcome: Outcome | None) -> None:
        if outcome is not None:
            if self._complained:
                self._say("  a worker answers again")
            self._heard, self._complained = time.monotonic(), False
            self._tell(outcome)
        elif not self._complained and time.monotonic() - self._heard > PATIENCE_SECONDS:
            self._complained = True
            queue, start = self._common.queue, f"python worker.py{self._common.at_queue}"
            self._say(f"  no worker answers on queue {queue}: {start}  (still waiting)")

    def _tell(self, outcome: Outcome) -> None:
        if not outcome.planner and not outcome.ended_at:
            return
        if not self._began:
            self._began = True
            self._say(tree.heading(outcome, self._ui_url))
        for revision in outcome.revisions[self._plans :]:
            self._tell_steps(outcome, before=revision.number)
            for line in tree.plan_lines(revision):
                self._say(line)
            self._plans = revision.number
        self._tell_steps(outcome, before=self._plans + 1)

    def _tell_steps(self, outcome: Outcome, before: int) -> None:
        for step in outcome.steps:
            told = (step.id, step.revision)
            if tree.has_ended(step) and step.revision < before and told not in self._steps:
                self._steps.add(told)
                for line in tree.step_lines(outcome, step):
                    self._say(line)
