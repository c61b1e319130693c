"""Makes a new plan after a rejection, by rules that work for every kind.

A rejected call is made again with an alternative for one argument: `at: "14:30"` if 14:00 is taken and 14:30 is free.
Steps that had not started are planned again, with their needs and references pointing to the new ids. The same call is
repeated only if the observed state has changed so that it allows the call now. If the task waits for people, the user
is asked which of several equally good alternatives to use for an effect, and which name was meant by an unknown name.
The planner keeps nothing between two requests. A reply belongs to the question whose text it names, so the same
situation always leads to the same question, and then to the same plan.
"""

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import NamedTuple, NoReturn, TypeVar

from pydantic import JsonValue

from activities.offline.alternatives import (
    Alternative,
    are_equally_near,
    fields_changed_meanwhile,
    find_alternatives,
    find_later_items,
    limit_kept_now,
    shape_of,
)
from activities.offline.grammar import format_time, parse_day, parse_time
from activities.toolbox.declare.kind import Kind
from workflows.account.records import FaultRecord, Observation, StepRecord, StepStatus
from workflows.faults.fault import Code
from workflows.json_values import canonical
from workflows.planning.situation import Situation
from workflows.plans.catalogue import Effect
from workflows.plans.proposal import MAX_OPTION, MAX_OPTIONS, GiveUp, Mistake, NewSteps, Question, Step

MAX_CHANGED = 1  # how many arguments of a call a rule changes after a rejection
MAX_LISTED = 5
MAX_REASON = 1_000  # how many characters of a fault's reason a question repeats
MAX_REPEATED = 80  # how many characters of an unusable reply the next question repeats
NOUNS = {"time": "time", "date": "day", "moment": "time"}  # by shape, what a question calls the values of an argument

T = TypeVar("T")


class UnclearEffect(Exception):
    """It is not certain whether an earlier run of the task already did a step; the message names the earlier step."""


class NoRepair(Exception):
    """The rules find no new plan; the message says why."""


class Unanswered(Exception):
    """The user must answer `question` before there can be a plan."""

    def __init__(self, question: Question) -> None:
        super().__init__(question.text)
        self.question = question


def unfinished_steps(situation: Situation) -> list[StepRecord]:
    """The steps of the newest plan that failed or never started, in the order of the plan."""
    latest = max((record.revision for record in situation.records), default=0)
    waiting = (StepStatus.PENDING, StepStatus.SKIPPED)
    return [
        record
        for record in situation.records
        if record.revision == latest
        and (record.status is StepStatus.FAILED or (record.status in waiting and record.started is None))
    ]


def repair(situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | Question | GiveUp:
    """Propose a new plan, a question that the user must answer first, or a GiveUp that says why there is no plan.

    Raises:
        UnclearEffect: it is not certain whether an earlier run of the task already did a step.
    """
    try:
        first = _Repair(situation, kinds, rejected=frozenset())
        plan = first.plan()
        if not situation.rejected:
            return plan
        # The last reply was this same plan: plan again, but change the calls for which it was rejected.
        named = first.calls.keys() & {mistake.step for mistake in situation.rejected}
        changed = _Repair(situation, kinds, rejected=frozenset(first.calls[id] for id in named)).plan()
        return changed if changed != plan else GiveUp(reason=rejection_reason(situation.rejected))
    except Unanswered as unanswered:
        return unanswered.question
    except NoRepair as stuck:
        return GiveUp(reason=rejection_reason(situation.rejected) if situation.rejected else str(stuck))


def rejection_reason(mistakes: Sequence[Mistake]) -> str:
    """The reason of a GiveUp after a plan was rejected for these mistakes and no rule can change it."""
    return f"The plan may not be run, and no rule changes it: {'; '.join(map(str, mistakes))[:2000]}."


class _CallKey(NamedTuple):
    kind: str
    args: str  # as canonical JSON


class _Repair:
    """Makes one new plan without failed calls, and without `rejected`: calls for which the last plan was rejected."""

    def __init__(self, situation: Situation, kinds: Mapping[str, Kind], rejected: frozenset[_CallKey]) -> None:
        self._situation = situation
        self._kinds = kinds
        self._unfinished = unfinished_steps(situation)
        failed = [record for record in situation.records if record.status is StepStatus.FAILED]
        self._failed = {_call_of(record): record for record in failed if not self._is_only_id(record)}
        self._rejected = rejected
        self._excluded = rejected | self._failed.keys()
        self._planned = {_call_of(record) for record in self._unfinished if self._has_effect(record)}
        steps = [record.step.model_copy(update={"args": _args_of(record)}) for record in self._unfinished]
        self._done = effects_already_applied(steps, situation.earlier, kinds)
        self._new_ids = _ids_of_retries(self._unfinished, {record.step.id for record in situation.records})
        self._new_ids |= {id: done.step.id for id, done in self._done.items()}
        self._because: list[str] = []
        self.calls: dict[str, _CallKey] = {}  # the call of each new step, by its id

    def plan(self) -> NewSteps:
        """Plan the unfinished steps again, without those whose effects an earlier run has already applied.

        Raises NoRepair if a step cannot be planned again, Unanswered if the user must answer a question first.
        """
        steps = tuple([self._retry(record) for record in self._unfinished if record.step.id not in self._done])
        return NewSteps(steps=steps, because="; ".join(self._because) or "what had not started goes on")

    def _retry(self, record: StepRecord) -> Step:
        """Plan the step again; change its call or its kind if the old call would fail again."""
        step, call = record.step, _call_of(record)
        kind, args, title, change = step.kind, step.args, step.title, None
        if self._is_only_id(record):
            self._because.append(f"only the id {step.id} is used up")
        if not self._is_usable(kind):
            kind, call = self._fallback(record) or self._give_up(record)
        elif call in self._excluded:
            change = self._alternative(record) or self._later_item(record)
            if change is None and not self._may_repeat(record):
                fallback = self._fallback(record)
                change = None if fallback else self._meant(record)
                kind, call = (kind, call) if change else fallback or self._give_up(record)
        if change is not None:
            call, name = self._call_with(record, change), change.argument
            args = {**args, name: change.reference or change.value}
            title = _new_title(record, _args_of(record)[name], change)
        id = self._new_ids.get(step.id, step.id)
        self.calls[id] = call
        new_args = {name: _with_new_ids(value, self._new_ids) for name, value in args.items()}
        needs = tuple(self._new_ids.get(need, need) for need in step.needs)
        return Step(id=id, kind=kind, args=new_args, needs=needs, title=title)

    def _alternative(self, record: StepRecord) -> Alternative | None:
        """The first alternative to the step's call that may be planned, or the user's choice; None if there is none.

        The call with the alternative has not failed, and the last plan was not rejected for it. If the call has an
        effect, no other step plans the same call. Raises as `plan`.
        """
        failed, unusable = self._failed_record(record), self._excluded | self._planned
        found = find_alternatives(_args_of(record), self._last_observed_state(failed))
        usable = [offered for offered in found if self._call_with(record, offered) not in unusable]
        if not usable:
            return None
        alternative = self._chosen(record, [offered for offered in usable if offered.argument == usable[0].argument])
        self._check_overwriting(record, alternative, failed)
        if self._has_effect(record):
            self._planned.add(self._call_with(record, alternative))
        self._because.append(f"{self._describe_rejection(failed)}; {alternative.why}")
        return alternative

    def _chosen(self, record: StepRecord, usable: Sequence[Alternative]) -> Alternative:
        """The first of the `usable` alternatives, or the one that the user chooses.

        The user is asked only if the task may ask, the step has an effect, and the second alternative is as near.
        """
        first, old = usable[0], _args_of(record)[usable[0].argument]
        options = {name: alternative for alternative in usable if (name := _option(alternative.value))}
        is_open = len(options) > 1 and are_equally_near(old, first.value, usable[1].value)
        if not (is_open and self._situation.may_ask and self._has_effect(record)):
            return first

        def read(reply: str) -> Alternative | None:
            return options.get(_named_option(reply, options, self._situation.now.date()) or "")

        noun = NOUNS.get(shape_of(old) or "", first.argument)
        chosen = _ask_user(self._situation, self._question(record, f"Which {noun} instead of {old}?"), [*options], read)
        return chosen._replace(why=f"the user chose {str(chosen.value)[:80]}")

    def _meant(self, record: StepRecord) -> Alternative | None:
        """Ask the user which name was meant, if the name in the call does not exist and similar names were observed.

        None if no similar name was observed, if the call does not have exactly one text argument, or if the task may
        not ask. Only the user's answer replaces a name.
        """
        failed, args = self._failed_record(record), _args_of(record)
        names = self._similar_names(failed)
        misnamed = [argument for argument, value in args.items() if shape_of(value) == "text"]
        if not (names and len(misnamed) == 1 and self._situation.may_ask):
            return None
        options = {_option(_with_description(name, described)): name for name, described in names.items()}
        by_description = {_option(described): name for name, described in names.items()}
        spelt = by_description | {_option(name): name for name in names} | options

        def read(reply: str) -> Alternative | None:
            chosen = _named_option(reply, spelt, self._situation.now.date())
            name = spelt[chosen] if chosen else reply
            meant = Alternative(misnamed[0], name, f"the user meant {name[:80]!r}")
            return None if self._call_with(record, meant) in self._excluded else meant

        text = self._question(record, f"Which {misnamed[0]} did you mean instead of {str(args[misnamed[0]])[:80]!r}?")
        meant = _ask_user(self._situation, text, [*options], read)
        self._because.append(f"{self._describe_rejection(failed)}; {meant.why}")
        return meant

    def _question(self, record: StepRecord, question: str) -> str:
        """The text of a question about a rejected step. It begins with the step's id, so each step has its own text."""
        fault = self._fault(self._failed_record(record))
        reason = f"{fault.reason[:MAX_REASON]} " if fault else ""
        return f"{record.step.id}: {reason}{question}"

    def _call_with(self, record: StepRecord, change: Alternative) -> _CallKey:
        return _CallKey(record.step.kind, canonical({**_args_of(record), change.argument: change.value}))

    def _later_item(self, record: StepRecord) -> Alternative | None:
        """The next item of the list from which the failed call took an item; None if there is no such item.

        A call with an effect gets no other item.
        """
        if self._has_effect(record):
            return None
        done = [earlier for earlier in self._situation.records if earlier.status is StepStatus.COMPLETED]
        results = {earlier.step.id: earlier.result for earlier in done if not earlier.left_out}
        for item in find_later_items(record.step.args, results):
            if self._call_with(record, item) not in self._excluded:
                self._because.append(f"{self._describe_rejection(self._failed_record(record))}; {item.why}")
                return item
        return None

    def _may_repeat(self, record: StepRecord) -> bool:
        """Whether a failed call may be made again, because the number that broke a limit is within the limit now.

        Always False if the last plan was rejected for this call. With True, the plan's reason gets a phrase about it.
        """
        failed = self._failed_record(record)
        fault = self._fault(failed)
        reason = limit_kept_now(_args_of(record), fault.observed, self._last_observed_state(failed)) if fault else None
        if reason is None or _call_of(record) in self._rejected:
            return False
        self._because.append(f"{self._describe_rejection(failed)}; {reason}")
        return True

    def _check_overwriting(self, record: StepRecord, alternative: Alternative, failed: StepRecord) -> None:
        """Raise NoRepair if the new call would overwrite a change that somebody else has made meanwhile."""
        before = [earlier.result for earlier in self._situation.records if earlier.status is StepStatus.COMPLETED]
        fields = fields_changed_meanwhile(_args_of(record), alternative, self._last_observed_state(failed), before)
        if fields and self._has_effect(record):
            reason = f"Somebody else has changed {', '.join(fields)} meanwhile: look, and ask again if still wanted."
            raise NoRepair(f"{record.step.id} cannot be done{self._fault_text(failed)} {reason}")

    def _fallback(self, record: StepRecord) -> tuple[str, _CallKey] | None:
        """Return the declared fallback of the step's kind, and its call; None if no fallback is usable.

        Only a read may get a fallback here.
        """
        step, failed = record.step, self._failed_record(record)
        kind = self._kinds[step.kind].spec.fallback if step.kind in self._kinds else None
        call = _CallKey(kind or "", canonical(_args_of(record)))
        if not kind or not self._is_usable(kind) or call in self._excluded or self._has_effect(record):
            return None
        self._because.append(f"{self._describe_rejection(failed)}; {kind} is the declared fallback of {step.kind}")
        return kind, call

    def _give_up(self, record: StepRecord) -> NoReturn:
        step, failed = record.step, self._failed_record(record)
        if not self._is_usable(step.kind):
            raise NoRepair(f"{step.id} needs {step.kind}, which cannot be used any more{self._fault_text(record)}")
        alike = ", ".join(_with_description(name, described) for name, described in self._similar_names(failed).items())
        reason = f"Nothing that was seen offers an alternative.{f' Spelt alike: {alike}.' if alike else ''}"
        unread = [observation.unread for observation in self._observations(failed) if observation.unread]
        reason += f" The state could not be read again: {unread[-1]}" if unread else ""
        raise NoRepair(f"{step.id} cannot be done{self._fault_text(failed)} {reason}")

    def _similar_names(self, record: StepRecord) -> dict[str, str]:
        """The observed names that are spelt like the unknown name in the call, each with its description or ""."""
        fault = self._fault(record)
        return _near(self._last_observed_state(record)) or (_near(fault.observed) if fault else {})

    def _is_usable(self, kind: str) -> bool:
        return kind in self._kinds and kind not in self._situation.down

    def _failed_record(self, record: StepRecord) -> StepRecord:
        """The record of the step that failed with the same call; `record` itself if the call has not failed."""
        return self._failed.get(_call_of(record), record)

    def _describe_rejection(self, record: StepRecord) -> str:
        fault = self._fault(record)
        if fault is None and record.status is not StepStatus.FAILED:
            return f"{record.step.id} cannot use {record.step.kind}"
        by = "by a person" if fault and fault.code is Code.REJECTED else f"({fault.code if fault else 'unknown'})"
        return f"{record.step.id} was rejected {by}"

    def _is_only_id(self, record: StepRecord) -> bool:
        """Whether the ledger rejected only the step's id, so that the same call may be made under another id."""
        fault = self._fault(record)
        return record.status is StepStatus.FAILED and fault is not None and fault.by_id

    def _has_effect(self, record: StepRecord) -> bool:
        kind = self._kinds.get(record.step.kind)
        return kind is not None and kind.spec.effect is not Effect.READ

    def _last_observed_state(self, record: StepRecord) -> JsonValue:
        observed, fault = self._observations(record), self._fault(record)
        return observed[-1].value if observed else fault.observed if fault else None

    def _observations(self, record: StepRecord) -> list[Observation]:
        return [found for found in self._situation.observations if found.step_id == record.step.id]

    def _fault_text(self, record: StepRecord) -> str:
        fault = self._fault(record)
        code = f" ({fault.code})" if fault and fault.code is not Code.REJECTED else ""
        return f"{code}: {fault.reason}" if fault else "."

    def _fault(self, record: StepRecord) -> FaultRecord | None:
        faults = self._situation.faults
        return next((fault for fault in reversed(faults) if fault.step_id == record.step.id), None)


def effects_already_applied(
    steps: Sequence[Step], earlier: Sequence[StepRecord], kinds: Mapping[str, Kind]
) -> dict[str, StepRecord]:
    """Find the steps whose effect an earlier run has already applied; returns the earlier record by the step's id.

    A record belongs to a step if it has the same kind and the same id. It also belongs if it has the same kind, if the
    ids differ only by a number at their end (`book-2` for `book`), and if the arguments are the same; one time, date or
    number may differ, because a repair may have changed it.

    Raises:
        UnclearEffect: it is not certain that the earlier effect was applied, or that it is the same effect.
    """
    # Each record is used for one step only, and first for the step with the same id.
    free = [record for record in earlier if record.status is not StepStatus.UNDONE]
    found = dict[str, StepRecord]()
    effects = [step for step in steps if step.kind in kinds and kinds[step.kind].spec.effect is not Effect.READ]
    for step in sorted(effects, key=lambda step: step.id not in {record.step.id for record in free}):
        fitting = [record for record in free if _is_same_effect(step, record)]
        if fitting:
            found[step.id] = min(fitting, key=lambda record: (record.step.id != step.id, len(_changed(step, record))))
            free.remove(found[step.id])
    for record in found.values():
        if record.status is not StepStatus.COMPLETED:
            raise UnclearEffect(f"Nobody knows whether {record.step.id} of an earlier run was applied: find out first.")
    for step in effects:
        alike = [] if step.id in found else [record.step.id for record in free if _has_kind_and_base_id(step, record)]
        if alike:
            raise UnclearEffect(f"No rule says whether {alike[0]} of an earlier run did what {step.id} is to do.")
    return found


def remaining_steps(
    steps: Sequence[Step], earlier: Sequence[StepRecord], kinds: Mapping[str, Kind]
) -> tuple[Step, ...]:
    """The steps of a first plan whose effects are not in `earlier`; a step gets a new id if `earlier` uses its id.

    Raises:
        UnclearEffect: as for `effects_already_applied`.
    """
    done = effects_already_applied(steps, earlier, kinds)
    used = {record.step.id for record in earlier}
    ids, taken = dict[str, str](), used | {step.id for step in steps}
    for step in steps:
        id = done[step.id].step.id if step.id in done else step.id
        is_taken = step.id not in done and step.id in used
        ids[step.id] = _numbered(id, {*taken, *ids.values()}) if is_taken else id
    return tuple(
        step.model_copy(
            update={
                "id": ids[step.id],
                "args": {name: _with_new_ids(value, ids) for name, value in step.args.items()},
                "needs": tuple(ids[need] for need in step.needs),
            }
        )
        for step in steps
        if step.id not in done
    )


def _is_same_effect(step: Step, record: StepRecord) -> bool:
    if not _has_kind_and_base_id(step, record):
        return False
    changed = _changed(step, record)
    is_alike = len(changed) <= MAX_CHANGED and all(shape_of(step.args[name]) not in ("text", None) for name in changed)
    return record.step.id == step.id or is_alike


def _has_kind_and_base_id(step: Step, record: StepRecord) -> bool:
    return record.kind == step.kind and _without_number(record.step.id) == _without_number(step.id)


def _changed(step: Step, record: StepRecord) -> list[str]:
    """The names of the arguments whose planned values differ from the values in `record`.

    A reference counts as equal, because its value is not known yet.
    """
    made, planned = _args_of(record), step.args.items()
    known = {name: value for name, value in planned if not (isinstance(value, dict) and "$from" in value)}
    return [name for name, value in known.items() if made.get(name) != value]


def _args_of(record: StepRecord) -> dict[str, JsonValue]:
    """The arguments that the step was called with; its planned arguments if it was never called."""
    return record.step.args if record.args is None else record.args


def _call_of(record: StepRecord) -> _CallKey:
    return _CallKey(record.step.kind, canonical(_args_of(record)))


def _ids_of_retries(records: list[StepRecord], taken: set[str]) -> dict[str, str]:
    """A new id for each step that was started, by the old id: `book-2` for `book`."""
    ids = dict[str, str]()
    for record in records:
        if record.started or record.status is StepStatus.FAILED:  # in a conversation, records have no start time
            ids[record.step.id] = _numbered(record.step.id, {*taken, *ids.values()})
    return ids


def _numbered(id: str, taken: Collection[str]) -> str:
    """The first of `book-2`, `book-3` and so on, for the id `book`, that is not in `taken`."""
    numbered = (f"{_without_number(id)}-{number}" for number in itertools.count(2))
    return next(candidate for candidate in numbered if candidate not in taken)


def _without_number(id: str) -> str:
    return re.sub(r"-[0-9]+$", "", id)[:56].replace(".", "_")


def _with_new_ids(value: JsonValue, ids: Mapping[str, str]) -> JsonValue:
    if isinstance(value, list):
        return [_with_new_ids(item, ids) for item in value]
    if not isinstance(value, dict):
        return value
    source = value.get("$from")
    if isinstance(source, str) and set(value) <= {"$from", "path"}:
        return {**value, "$from": ids.get(source, source)}
    return {key: _with_new_ids(item, ids) for key, item in value.items()}


def _new_title(record: StepRecord, old: JsonValue, new: Alternative) -> str:
    title, before, after = record.step.label, str(old), str(new.value)
    return (title.replace(before, after) if before and before in title else f"{title} ({new.argument} {after})")[:120]


def _near(observed: JsonValue) -> dict[str, str]:
    """The first names in the field `near` or `nearest` of an observed state, each with its description or ""."""
    near = (observed.get("near") or observed.get("nearest")) if isinstance(observed, dict) else None
    if isinstance(near, dict):
        return {name: str(described or "") for name, described in [*near.items()][:MAX_LISTED]}
    return {str(name): "" for name in near[:MAX_LISTED]} if isinstance(near, list) else {}


def _with_description(name: str, description: str) -> str:
    return (f"{name} ({description})" if description and description != name else name)[:80]


def _ask_user(situation: Situation, text: str, options: Sequence[str], read: Callable[[str], T | None]) -> T:
    """Return the value that `read` finds in the user's newest reply to the question `text`.

    `options` are the answers that the question offers. Raises Unanswered without a reply that `read` can read.
    """
    replies = [word.text for word in situation.words if word.question.endswith(text)]
    if replies and (found := read(replies[-1])) is not None:
        return found
    again = f"{replies[-1][:MAX_REPEATED]!r} cannot be taken. " if replies else ""
    raise Unanswered(Question(text=f"{again}{text}", options=tuple(options[:MAX_OPTIONS])))


def _option(value: object) -> str:
    """Write a value as an option of a question: on one line, with at most MAX_OPTION characters."""
    return " ".join(str(value).split())[:MAX_OPTION].strip()


def _named_option(reply: str, options: Iterable[str], today: date) -> str | None:
    """Return the option that a reply names, in capital or small letters; None if the reply names no option.

    The reply may write a time or a day as in a task, e.g. `3 pm`.
    """
    at, day = parse_time(reply), parse_day(reply, today)
    spellings = {_option(reply).casefold(), *([format_time(at)] if at else []), *([day.isoformat()] if day else [])}
    return next((name for name in options if name.casefold() in spellings), None)
