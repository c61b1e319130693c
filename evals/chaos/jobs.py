"""What the tasks of a trial are to do, and what goes wrong at the payment service: all of it follows from the seed."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from evals.chaos.accounts import SIZE
from evals.chaos.book import Trouble
from workflows.budget import Limits
from workflows.plan import Step
from workflows.task import Task

REST = 0.45
"""The share of payments with which nothing goes wrong."""
TROUBLES = (
    [Trouble.DROP],
    [Trouble.DROP],
    [Trouble.KILL],
    [Trouble.KILL],
    [Trouble.RESET],
    [Trouble.DOWN],
    [Trouble.DOWN, Trouble.DROP],
    [Trouble.BUSY],
    [Trouble.BUSY, Trouble.BUSY],
    [Trouble.SLOW],
    [Trouble.LATE],
)
DENIED = 0.02
"""The share of payments that the service will not make."""


@dataclass
class Job:
    """One task: its steps, with a reference for each effect that nothing else in the trial has."""

    id: str
    dice: random.Random
    steps: list[Step] = field(default_factory=list)
    troubles: dict[str, list[str]] = field(default_factory=dict)
    """What goes wrong, by reference, call by call."""
    on_escalation: Literal["end", "undo"] = "end"

    @property
    def task(self) -> Task:
        """The task as it is given to the server."""
        return Task(
            text=self.id,
            plan=tuple(self.steps),
            plan_only=True,
            limits=Limits(replans=0),
            on_escalation=self.on_escalation,
        )

    def reference(self, step: str) -> str:
        """The reference of a step's effect."""
        return f"{self.id}.{step}"

    def add(self, kind: str, *needs: str, **args: JsonValue) -> str:
        """Add a step; its id."""
        id = f"s{len(self.steps) + 1}"
        self.steps.append(Step(id=id, kind=kind, args={"reference": self.reference(id), **args}, needs=needs))
        return id

    def pay(self, kind: str, *needs: str) -> str:
        """Add a call of the payment service, with the troubles that it meets."""
        amount: dict[str, JsonValue] = {} if kind == "get_rate" else {"amount": self.dice.randint(1, 500)}
        id = self.add(kind, *needs, **amount)
        draw = self.dice.random()
        if draw < DENIED:
            self.troubles[self.reference(id)] = [Trouble.DENIED]
        elif draw > REST:
            self.troubles[self.reference(id)] = [*self.dice.choice(TROUBLES)]
        return id

    def transfer(self, *needs: str) -> str:
        """Add a transfer between two accounts."""
        source, target = self.dice.sample(range(1, SIZE + 1), 2)
        return self.add("transfer", *needs, source=source, target=target, amount=self.dice.randint(1, 200))

    def receipt(self, of: str) -> str:
        """Add a receipt for the result of another step."""
        return self.add("write_receipt", of={"$from": of, "path": "id"})


def _move(job: Job, *needs: str) -> str:
    return job.receipt(job.transfer(*needs))


def _shop(job: Job, *needs: str) -> str:
    paid = job.pay("pay", job.pay("get_rate", *needs))
    job.transfer(paid)
    return job.receipt(paid)


def _strict(job: Job, *needs: str) -> str:
    return job.receipt(job.pay("pay_strictly", *needs))


def _once(job: Job, *needs: str) -> str:
    paid = job.pay("pay_once", *needs)
    if paid_late := job.troubles.get(job.reference(paid)):
        job.troubles[f"find {job.reference(paid)}"] = [Trouble.DOWN] * (Trouble.DROP in paid_late)
    return job.transfer(paid)


def _limits(job: Job, *needs: str) -> str:
    return job.transfer(job.pay("set_limit", *needs), job.pay("set_limit", *needs))


def _wide(job: Job, *needs: str) -> str:
    moved = [job.transfer(*needs) for _ in range(4)]
    return job.add("write_receipt", *moved, of={"$from": moved[0], "path": "id"})


def _blind(job: Job, *needs: str) -> str:
    return job.receipt(job.pay("pay_blindly", *needs))


def _refused(job: Job, *needs: str) -> str:
    return job.add("transfer", job.transfer(*needs), source=1, target=2, amount=10**9)


def _long(job: Job, *needs: str) -> str:
    """A transfer after a result that lies in the store, and a receipt that refers to it."""
    printed = job.add("print_statement", *needs, account=1)
    paid = job.pay("pay", printed)
    return job.add("write_receipt", job.transfer(paid), of={"$from": printed, "path": "account"})


MIDDLES: Sequence[Callable[..., str]] = (_move, _shop, _shop, _strict, _once, _once, _limits, _wide, _long)
ENDS: Sequence[Callable[..., str]] = (*MIDDLES, *MIDDLES, _blind, _blind, _refused)
"""What may end a task, since it may not go on after that."""


def jobs(count: int, seed: int, name: str = "chaos") -> list[Job]:
    """The tasks of a trial."""
    return [_job(f"{name}-{seed}-{number}", random.Random(f"{seed}/{number}")) for number in range(1, count + 1)]  # noqa: S311  # a trial, no secret


def _job(id: str, dice: random.Random) -> Job:
    job = Job(id, dice)
    last = dice.choice(MIDDLES)(job)
    dice.choice(ENDS)(job, last)
    job.on_escalation = dice.choice(["end", "undo"])
    return job


def single(id: str, kind: str) -> Job:
    """A task of one step that is to be hit, `s1`, and one that follows."""
    job = Job(id, random.Random(id))  # noqa: S311  # a trial, no secret
    if kind == "transfer":
        job.transfer()
    else:
        job.add(kind, **({} if kind == "get_rate" else {"amount": 100}))
    after = job.add("get_rate", "s1")
    job.troubles[job.reference(after)] = [Trouble.DOWN]
    return job
