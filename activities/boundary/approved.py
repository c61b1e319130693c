"""Whether a call may be made that people must approve: the worker decides it by its own declaration of the tool.

Read before the tool is called. Who reaches the Temporal server can write any header and any state of a workflow; what
they cannot write is the signature of a door, so only signed statements count where a tool says who must approve.
"""

from collections.abc import Collection
from typing import Protocol

from pydantic import BaseModel, JsonValue
from temporalio import activity

from activities.boundary.attempt import CallAttempt, FaultRaised
from activities.toolbox.declare import conditions
from activities.toolbox.declare.arguments import added_arguments
from activities.toolbox.declare.condition_clauses import applies
from activities.toolbox.declare.kind import Kind
from workflows.calls.header import CallHeader
from workflows.faults.fault import Code, Fault
from workflows.json_values import digest
from workflows.people.approval import approval_code, undo_code
from workflows.people.approvers import Approvers
from workflows.people.requests import Choice, shown_args
from workflows.people.statement import START, UNDO, Statement, given_digest
from workflows.plans.catalogue import EVERY_CALL, WHY_OF_TASK


class Verifier(Protocol):
    """Knows people and the keys of doors."""

    def verified(self, statement: Statement, *, is_past: bool = False) -> Statement:
        """The statement with the roles that its person has here. Raises ValueError with a clause if it is false.

        With `is_past`, it must have been true when it was made.
        """
        ...

    def approvers(self) -> Collection[str]:
        """Whom a rule may name so that somebody is meant: `role:finance`, `person:ann`."""
        ...


class Nobody:
    """The verifier of a worker without a people file."""

    def verified(self, statement: Statement, *, is_past: bool = False) -> Statement:
        raise ValueError("this worker has no --people, so it knows nobody")

    def approvers(self) -> Collection[str]:
        return ()


class Approvals:
    """Checks the approvals of the calls of one worker."""

    def __init__(self, verifier: Verifier | None = None) -> None:
        self._verifier = verifier or Nobody()

    def check(self, kind: Kind, value: JsonValue, args: BaseModel, attempt: CallAttempt) -> None:
        """Raise FaultRaised for a call that people must approve, unless this very call was approved in this run.

        The same holds for an undo: the approval of an effect does not approve the call that undoes the effect. A result
        that a person provides stands for a call: it needs those whom the tool names, whatever its arguments are.
        """
        call, rule, run = attempt.call, kind.spec.approvers, activity.info().workflow_run_id or ""
        is_provided = call.provided is not None
        needs = (rule and EVERY_CALL) if is_provided else _needs_approval(kind, args, call)
        if needs is None:
            return
        if rule and call.approval and not (call.approval.code or is_provided):
            self._check_editors(rule, attempt)
        shown = digest(kind.spec.kind, value)
        defaults = shown_args(added_arguments(kind, args, value))
        void = ""
        if is_provided or (call.approval and call.approval.allows(run, call.key, shown, defaults)):
            if rule is None or not (void := self._lacks(rule, attempt, shown)):
                return
        elif call.approval:
            void = "What was approved is another call, or one with other defaults, or one before a reset."
        reason = f"{kind.spec.kind} needs approval: {needs}.{f' {void}' if void else ''}"
        raise FaultRaised(Fault.of(Code.NEEDS_APPROVAL, reason, defaults=defaults), is_certain=True)

    def _lacks(self, rule: Approvers, attempt: CallAttempt, shown: str) -> str:
        """Why the people who approved a call are not those whom the rule asks for, in sentences; empty if they are.

        `shown` is the digest of the call.
        """
        call, why, counted, starter = attempt.call, list[str](), list[Statement](), self._starter(attempt.call)
        for statement in call.approval.statements if call.approval else ():
            try:
                true = self._verifier.verified(statement)
                _check_bound(true, attempt, shown)
            except ValueError as error:
                why.append(f"What was signed for {statement.person} does not count: {error}.")
            else:
                counted.append(true)
        why += filter(None, (rule.refuses(statement, starter) for statement in counted))
        if rule.are_enough(counted, starter):
            return ""
        approved = rule.people(counted, starter)
        left = f"{rule.needed(starter) - len(approved)}{' more' if approved else ''}"
        return " ".join([*why, f"So far {' and '.join(approved) or 'nobody'} approved it; {left} must."])

    def _check_editors(self, rule: Approvers, attempt: CallAttempt) -> None:
        """Raise FaultRaised unless those who edited a call may approve it: it is only asked for again."""
        call, info = attempt.call, activity.info()
        here = (info.workflow_namespace, info.workflow_id, info.workflow_run_id, Choice.EDIT)
        for stated in call.approval.statements if call.approval else ():
            try:
                true = self._verifier.verified(stated)
                if (true.namespace, true.task, true.run, true.choice) != here:
                    raise ValueError("it is about another task or answer, or about a run before a reset")
                why = rule.refuses(true, self._starter(call))
            except ValueError as error:
                why = f"What was signed for {stated.person} does not count: {error}."
            if why:
                raise FaultRaised(Fault.of(Code.INVALID_INPUT, why), is_certain=True)

    def _starter(self, call: CallHeader) -> str | None:
        """Who started the task; None if no door has signed it."""
        stated, info = call.starter, activity.info()
        # Of a task that others have started, only a rollback may tell.
        task = (START, info.workflow_namespace, (call.task if call.undoes else None) or info.workflow_id)
        if stated is None or (stated.choice, stated.namespace, stated.task) != task:
            return None
        try:
            return self._verifier.verified(stated, is_past=True).person
        except ValueError:
            return None


def _check_bound(statement: Statement, attempt: CallAttempt, shown: str) -> None:
    """Raise ValueError with a clause unless a statement is about this call, in this run of this task."""
    info, call = activity.info(), attempt.call
    if call.undoes is not None:
        task = (statement.namespace, statement.task) == (info.workflow_namespace, call.task or info.workflow_id)
        if not task or statement.choice != UNDO or undo_code(call.key, shown) not in statement.calls:
            raise ValueError("it is about another undo")
        return
    here = (info.workflow_namespace, info.workflow_id, info.workflow_run_id)
    if (statement.namespace, statement.task, statement.run) != here:
        raise ValueError("it is about another task, or about a run before a reset")
    if call.provided is not None:
        given, is_of_step = given_digest({"result": call.provided.result}), call.key.endswith(f"/{statement.step}")
        if (statement.choice, statement.given) != (Choice.PROVIDE, given) or not is_of_step:
            raise ValueError("it is about another result")
    elif (
        statement.choice not in (Choice.APPROVE, Choice.APPROVE_ALL)
        or approval_code(info.workflow_run_id or "", call.key, shown) not in statement.calls
    ):
        raise ValueError("it is about another call")


def _needs_approval(kind: Kind, args: BaseModel, call: CallHeader) -> str | None:
    """Why a person must approve a call, as a clause; None if it needs no approval."""
    if isinstance(kind.approve, str):
        return EVERY_CALL
    if kind.approve and (needs := applies(kind.approve, conditions.condition_value(args.model_dump))):
        return needs
    return WHY_OF_TASK[call.approve] if kind.spec.needs_approval(call.approve) else None
