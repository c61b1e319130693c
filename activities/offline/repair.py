"""A new plan after a refusal, by rules that know nothing of the kinds.

What was refused is tried again with what the world offers in the place of one argument; what had not started follows
with its needs and references moved; the same call is made again only when what stood in its way is seen to be gone.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import JsonValue

from activities.offline.offers import Offer, fits_again, further, offers, overwritten, shape_of
from activities.toolbox.declare.kind import Kind
from workflows.catalogue import Effect
from workflows.plan import GiveUp, NewSteps, Step, canonical
from workflows.record import FaultRecord, StepRecord, StepStatus
from workflows.situation import Situation


def new_ids(records: list[StepRecord], taken: set[str]) -> dict[str, str]:
    """A new id for each step that started: `book-2` after `book`."""
    moved = dict[str, str]()
    for record in records:
        if record.started is None and record.status is not StepStatus.FAILED:  # a conversation tells no times
            continue
        number = 2
        while f"{stem(record.step.id)}-{number}" in taken:
            number += 1
        moved[record.step.id] = f"{stem(record.step.id)}-{number}"
        taken = {*taken, moved[record.step.id]}
    return moved


def stem(id: str) -> str:
    """An id without the number of its renewal: `book` of `book-2`."""
    return re.sub(r"-[0-9]+$", "", id)[:56].replace(".", "_")


def moved(value: JsonValue, ids: Mapping[str, str]) -> JsonValue:
    """Let references to a step that has a new id point there."""
    if isinstance(value, list):
        return [moved(item, ids) for item in value]
    if not isinstance(value, dict):
        return value
    source = value.get("$from")
    if isinstance(source, str) and set(value) <= {"$from", "path"}:
        return {**value, "$from": ids.get(source, source)}
    return {key: moved(item, ids) for key, item in value.items()}


def retitled(record: StepRecord, old: JsonValue, argument: str, new: JsonValue) -> str:
    """The step's title with the new value in it."""
    title, before, after = record.step.label, str(old), str(new)
    return (title.replace(before, after) if before and before in title else f"{title} ({argument} {after})")[:120]


_FOR_PEOPLE = ("title", "description", "examples")


def same_purpose(step: Step, kinds: Mapping[str, Kind], down: Collection[str]) -> Iterator[str]:
    """Yield the usable kinds that take the arguments of `step` and return the same fields, by name.

    Only what reads is ever replaced: two effects that look alike need not be the same effect.
    """
    old = kinds.get(step.kind)
    if old is None or old.spec.effect is not Effect.READ:
        return
    asks, brings = _fields(old.args_schema), _fields(_result(old))
    for name in sorted(set(kinds) - {step.kind, *down}):
        new = kinds[name]
        if new.spec.effect is not Effect.READ or not brings or _fields(_result(new)) != brings:
            continue
        takes = _fields(new.args_schema)
        accepts = all(field in asks and takes.get(field) == asks[field] for field in step.args)
        if accepts and set(new.args_schema.get("required", ())) <= set(step.args):
            yield name


def _result(kind: Kind) -> dict[str, Any]:
    return kind.result.json_schema(mode="serialization")


def _fields(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an object with their schemas, without what is written for people."""
    definitions = schema.get("$defs", {})
    return {name: _plain(field, definitions, ()) for name, field in _object(schema, definitions).items()}


def _object(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    target = definitions.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    properties: Mapping[str, Any] = target.get("properties", {})
    return properties


def _plain(value: Any, definitions: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    """A schema with its definitions in place, which may be named differently elsewhere; a circle ends at its name."""
    if isinstance(value, list):
        return [_plain(item, definitions, within) for item in value]
    if not isinstance(value, dict):
        return value
    name = str(value.get("$ref", "")).rpartition("/")[2]
    if name in definitions and name not in within:
        return _plain(definitions[name], definitions, (*within, name))
    fields = value.get("properties")
    plain = {
        key: _plain(item, definitions, within)
        for key, item in value.items()
        if key not in _FOR_PEOPLE and key != "properties"
    }
    if isinstance(fields, dict):  # whose names are data: one of them may be called title
        plain["properties"] = {key: _plain(item, definitions, within) for key, item in fields.items()}
    return plain


MAX_CHANGED = 1
"""Arguments that a rule changes after a refusal."""


class CannotTell(Exception):
    """No rule says whether an effect of an earlier run does what a step is to do; the message says which."""


def standing(steps: Sequence[Step], earlier: Sequence[StepRecord], kinds: Mapping[str, Kind]) -> dict[str, StepRecord]:
    """The effect of an earlier run that each of the steps would repeat, by the id of the step.

    It has the step's kind and id, or a renewed id (`book-2` for `book`) and the same arguments but for one time, date
    or number, which is what the rules change after a refusal.

    Raises:
        CannotTell: nobody knows whether one of them was applied, or one of a renewed id has other arguments.
    """
    free = [record for record in earlier if record.status is not StepStatus.UNDONE]
    found = dict[str, StepRecord]()
    effects = [step for step in steps if step.kind in kinds and kinds[step.kind].spec.effect is not Effect.READ]
    for step in sorted(effects, key=lambda step: step.id not in {record.step.id for record in free}):
        fitting = [record for record in free if _is_same_purpose(step, record)]
        if fitting:
            found[step.id] = min(fitting, key=lambda record: (record.step.id != step.id, len(_changed(step, record))))
            free.remove(found[step.id])
    for record in found.values():
        if record.status is not StepStatus.COMPLETED:
            raise CannotTell(f"Nobody knows whether {record.step.id} of an earlier run was applied: find out first.")
    for step in effects:
        alike = [record.step.id for record in free if _is_renewed(step, record)] if step.id not in found else []
        if alike:
            raise CannotTell(f"No rule says whether {alike[0]} of an earlier run did what {step.id} is to do.")
    return found


def left_to_do(steps: Sequence[Step], records: Sequence[StepRecord], kinds: Mapping[str, Kind]) -> tuple[Step, ...]:
    """The steps of a first plan without what `records` of earlier runs have done, under ids that these do not have.

    Raises:
        CannotTell: as above.
    """
    done, ids = standing(steps, records, kinds), dict[str, str]()
    taken = {record.step.id for record in records} | {step.id for step in steps}
    for step in steps:
        ids[step.id] = done[step.id].step.id if step.id in done else step.id
        if step.id not in done and step.id in {record.step.id for record in records}:
            ids[step.id] = next(id for number in range(2, 10_000) if (id := f"{stem(step.id)}-{number}") not in taken)
            taken.add(ids[step.id])
    return tuple(
        step.model_copy(
            update={
                "id": ids[step.id],
                "args": {name: moved(value, ids) for name, value in step.args.items()},
                "needs": tuple(ids[need] for need in step.needs),
            }
        )
        for step in steps
        if step.id not in done
    )


def _is_same_purpose(step: Step, record: StepRecord) -> bool:
    if not _is_renewed(step, record):
        return False
    changed = _changed(step, record)
    is_alike = len(changed) <= MAX_CHANGED and all(shape_of(step.args[name]) not in ("text", None) for name in changed)
    return record.step.id == step.id or is_alike


def _is_renewed(step: Step, record: StepRecord) -> bool:
    return record.kind == step.kind and stem(record.step.id) == stem(step.id)


def _changed(step: Step, record: StepRecord) -> list[str]:
    """The arguments that differ; a reference to a result that is not known yet may be any value."""
    made = _args(record)
    return [name for name, value in step.args.items() if not _is_reference(value) and made.get(name) != value]


def _args(record: StepRecord) -> dict[str, JsonValue]:
    return record.step.args if record.args is None else record.args


def _is_reference(value: JsonValue) -> bool:
    return isinstance(value, dict) and "$from" in value


MAX_ALIKE = 5


class NoWay(Exception):
    """No rule leads on; the message says why."""


class _Call(NamedTuple):
    kind: str
    args: str
    """As canonical JSON."""


class _Change(NamedTuple):
    argument: str
    planned: JsonValue
    """What stands in the new plan: the value, or a reference to it."""
    value: JsonValue


def unfinished(situation: Situation) -> list[StepRecord]:
    """The steps of the plan in force that were refused or never started, in its order."""
    latest = max((record.revision for record in situation.records), default=0)
    waiting = (StepStatus.PENDING, StepStatus.SKIPPED)
    return [
        record
        for record in situation.records
        if record.revision == latest
        and (record.status is StepStatus.FAILED or (record.status in waiting and record.started is None))
    ]


def repair(situation: Situation, kinds: Mapping[str, Kind]) -> NewSteps | GiveUp:
    """Propose what leads on, or say why nothing does; a rejected proposal is changed where its reasons name a step."""
    try:
        first = _Repair(situation, kinds, refused=frozenset())
        plan = first.plan()
        if not situation.rejected:
            return plan
        named = {id for id in first.calls if any(repr(id) in reason for reason in situation.rejected)}
        changed = _Repair(situation, kinds, refused=frozenset(first.calls[id] for id in named)).plan()
        return changed if changed != plan else GiveUp(reason=rejection(situation.rejected))
    except NoWay as stuck:
        return GiveUp(reason=rejection(situation.rejected) if situation.rejected else str(stuck))


def rejection(reasons: tuple[str, ...]) -> str:
    """Why the planner gives up after a rejected proposal."""
    return f"The plan may not be run, and no rule changes it: {'; '.join(reasons)[:2000]}."


class _Repair:
    def __init__(self, situation: Situation, kinds: Mapping[str, Kind], refused: frozenset[_Call]) -> None:
        self._situation = situation
        self._kinds = kinds
        self._open = unfinished(situation)
        self._failed = {_made(one): one for one in situation.records if one.status is StepStatus.FAILED}
        self._rejected = refused
        self._refused = refused | self._failed.keys()
        self._planned = {_made(one) for one in self._open if self._has_effect(one)}
        steps = [one.step.model_copy(update={"args": _args_of(one)}) for one in self._open]
        self._done = standing(steps, situation.earlier, kinds)
        self._moved = new_ids(self._open, {one.step.id for one in situation.records})
        self._moved |= {id: done.step.id for id, done in self._done.items()}
        self._because: list[str] = []
        self.calls: dict[str, _Call] = {}
        """What each new step will call, by its id."""

    def plan(self) -> NewSteps:
        steps = tuple([self._again(record) for record in self._open if record.step.id not in self._done])
        return NewSteps(steps=steps, because="; ".join(self._because) or "what had not started goes on")

    def _again(self, record: StepRecord) -> Step:
        step, call = record.step, _made(record)
        kind, args, title = step.kind, step.args, step.title
        if kind not in self._kinds or kind in self._situation.down:
            kind, call = self._other(record)
        elif call in self._refused:
            if change := self._offer(record) or self._further(record):
                made, name = _args_of(record), change.argument
                call = _Call(kind, canonical({**made, name: change.value}))
                args, title = {**args, name: change.planned}, retitled(record, made[name], name, change.value)
            elif not self._is_possible_again(record):
                kind, call = self._other(record)
        id = self._moved.get(step.id, step.id)
        self.calls[id] = call
        new = {name: moved(value, self._moved) for name, value in args.items()}
        needs = tuple(self._moved.get(need, need) for need in step.needs)
        return Step(id=id, kind=kind, args=new, needs=needs, title=title)

    def _offer(self, record: StepRecord) -> _Change | None:
        """The first offer whose call has not failed and would not change what another step of this plan changes."""
        twin, args = self._twin(record), _args_of(record)
        for offer in offers(args, self._seen(twin)):
            call = _Call(record.step.kind, canonical({**args, offer.argument: offer.value}))
            if call in self._refused or call in self._planned:
                continue
            self._spare(record, offer, twin)
            if self._has_effect(record):
                self._planned.add(call)
            self._because.append(f"{self._refusal(twin)}; {offer.words}")
            return _Change(offer.argument, offer.value, offer.value)
        return None

    def _further(self, record: StepRecord) -> _Change | None:
        """What else was found where a call that reads was given the first of several."""
        if self._has_effect(record):
            return None
        done = (one for one in self._situation.records if one.status is StepStatus.COMPLETED and not one.left_out)
        results = {one.step.id: one.result for one in done}
        twin, args = self._twin(record), _args_of(record)
        for found in further(record.step.args, results):
            if _Call(record.step.kind, canonical({**args, found.argument: found.value})) not in self._refused:
                self._because.append(f"{self._refusal(twin)}; {found.source} found {str(found.value)[:80]!r} as well")
                return _Change(found.argument, found.reference, found.value)
        return None

    def _is_possible_again(self, record: StepRecord) -> bool:
        """Whether what stood in the way of the same call is gone, and the workflow does not refuse it."""
        twin = self._twin(record)
        fault = self._fault(twin)
        words = fits_again(_args_of(record), fault.observed, self._seen(twin)) if fault else None
        if words is None or _made(record) in self._rejected:
            return False
        self._because.append(f"{self._refusal(twin)}; {words}")
        return True

    def _spare(self, record: StepRecord, offer: Offer, twin: StepRecord) -> None:
        """Make sure that nothing is overwritten which somebody else wrote."""
        before = [one.result for one in self._situation.records if one.status is StepStatus.COMPLETED]
        fields = overwritten(_args_of(record), offer, self._seen(twin), before)
        if fields and self._has_effect(record):
            reason = (
                f"Somebody else has changed {', '.join(fields)} meanwhile: look, and ask again if it is still wanted."
            )
            raise NoWay(f"{record.step.id} cannot be done{self._why(twin)} {reason}")

    def _other(self, record: StepRecord) -> tuple[str, _Call]:
        """Another kind that answers the same question."""
        step, twin = record.step, self._twin(record)
        for kind in same_purpose(step, self._kinds, self._situation.down):
            call = _Call(kind, canonical(_args_of(record)))
            if call not in self._refused:
                self._because.append(f"{self._refusal(twin)}; {kind} serves the same purpose")
                return kind, call
        if step.kind not in self._kinds or step.kind in self._situation.down:
            raise NoWay(f"{step.id} needs {step.kind}, which cannot be used any more{self._why(record)}")
        alike = _alike(self._seen(twin))
        raise NoWay(f"{step.id} cannot be done{self._why(twin)} Nothing that was seen offers an alternative.{alike}")

    def _twin(self, record: StepRecord) -> StepRecord:
        """The step that failed with the same call."""
        return self._failed.get(_made(record), record)

    def _refusal(self, record: StepRecord) -> str:
        fault = self._fault(record)
        if fault is None and record.status is not StepStatus.FAILED:
            return f"{record.step.id} cannot use {record.step.kind}"
        return f"{record.step.id} was refused ({fault.code if fault else 'unknown'})"

    def _has_effect(self, record: StepRecord) -> bool:
        kind = self._kinds.get(record.step.kind)
        return kind is not None and kind.spec.effect is not Effect.READ

    def _seen(self, record: StepRecord) -> JsonValue:
        """The world as it was seen last after the refusal of this step."""
        for observation in reversed(self._situation.observations):
            if observation.step_id == record.step.id:
                return observation.value
        fault = self._fault(record)
        return fault.observed if fault else None

    def _why(self, record: StepRecord) -> str:
        fault = self._fault(record)
        return f" ({fault.code}): {fault.reason}" if fault else "."

    def _fault(self, record: StepRecord) -> FaultRecord | None:
        faults = self._situation.faults
        return next((fault for fault in reversed(faults) if fault.step_id == record.step.id), None)


def _args_of(record: StepRecord) -> dict[str, JsonValue]:
    """The arguments as they were called, or as they are planned."""
    return record.step.args if record.args is None else record.args


def _made(record: StepRecord) -> _Call:
    return _Call(record.step.kind, canonical(_args_of(record)))


def _alike(seen: JsonValue) -> str:
    """What is spelt alike, for a person to judge."""
    near = (seen.get("near") or seen.get("nearest")) if isinstance(seen, dict) else None
    if isinstance(near, dict):
        names = [f"{key} ({words})" if words and words != key else key for key, words in near.items()]
    else:
        names = [str(name) for name in near] if isinstance(near, list) else []
    return f" Spelt alike: {', '.join(name[:80] for name in names[:MAX_ALIKE])}." if names else ""
