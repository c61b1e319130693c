"""Compares the calls of a proposal with the contract of the task.

Runs when a task begins, for each proposal, when a read starts, and before a companion of a call is called.

A call with an effect is inside the contract if an effect of the contract allows its arguments. An argument counts if it
is *authority*: it says whom, where, which or how much. Every value has a source. A result of a tool that returns
untrusted content is untrusted, and so is a result of a call with an untrusted argument. A literal that the planner
wrote after the task had read untrusted content needs a trusted source, and a computation that the planner then chose is
none. The activity of the planner looks for this source (`activities/planning/origins/`), because text is compared by
tables that differ between versions of Python.

The call of a companion (`undo`, `reconcile`, `observe`) is in no proposal. `unsourced` compares its arguments, exactly.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from graphlib import TopologicalSorter

from pydantic import JsonValue

from workflows.account.progress import Progress
from workflows.account.records import StepRecord, StepStatus
from workflows.faults.fault import Applied
from workflows.json_values import canonical, digest, items
from workflows.people.requests import Choice
from workflows.plans.addresses import addresses_in, holds_address, is_address_name, path_of
from workflows.plans.catalogue import Catalogue, CompanionSpec, Effect, ToolSpec, is_always_authority
from workflows.plans.contract import MAX_EFFECTS, OF_TOOL, AllowedEffect, Contract, Origin, Term, description_text
from workflows.plans.proposal import NewSteps, Proposed, Step
from workflows.plans.references import Unresolved, is_reference, label, pick, references
from workflows.text import few

MAX_UNREAD = 3
"""How many descriptions that no person has read the reason of a request names."""
MAX_VALUE = 120
"""How many characters of a value a person is shown in the reason of a request."""
OUTSIDE = "do without it, or use what the task's text or a trusted result shows; the user can allow more at the start"
"""What a planner or a person can do about a call outside the contract."""


class Review:
    """The calls of a proposal, compared with the contract of the task."""

    def __init__(self, progress: Progress, catalogue: Catalogue, proposed: Proposed, *, by_user: bool) -> None:
        """`by_user` says whether the user wrote the proposal, not a planner."""
        self._progress = progress
        self._specs = catalogue.specs
        self._steps = proposed.proposal.steps if isinstance(proposed.proposal, NewSteps) else ()
        self._by_user = by_user
        self._is_late = progress.contract.is_tainted and not by_user
        """Whether the planner may have followed untrusted content."""
        self._origins = dict[str, list[Origin]]()
        for origin in proposed.origins or ():
            self._origins.setdefault(origin.step, []).append(origin)
        self._is_traced = proposed.origins is not None
        self._unread = catalogue.unread
        self._records = {record.step.id: record for record in progress.records}
        self._new = {step.id: step for step in self._steps}
        records = self._records.items()
        self._tainted = {id for id, record in records if record.is_tainted or not self._is_trusted(record.kind)}
        for id in self._ids_in_order_of_references():
            if self._is_tainted(self._new[id]):
                self._tainted.add(id)
        self.effects = [effect.model_copy(deep=True) for effect in progress.contract.effects]
        """The effects of the contract, as they are if the proposal is accepted."""
        if not self._is_late and isinstance(proposed.proposal, NewSteps):
            self.effects += _unused_copies(proposed.proposal.effects, by_user=by_user)
        self.outside = {step.id: why for step in self._steps if (why := self._objection(step))}
        """By step id, why a call of the proposal is outside the contract."""
        self.unchecked = {
            step.id: names for step in self._steps if step.id not in self.outside and (names := self._unknown(step))
        }
        """By the id of a read, the arguments that may turn out to be addresses of untrusted content."""

    def accepted(self) -> Contract:
        """The contract if the proposal is accepted: what it plans before untrusted content is read becomes a part."""
        origins = [
            origin
            for step in self._steps
            if step.id in self.outside or self._specs[step.kind].effect is not Effect.READ
            for origin in self._origins.get(step.id, ())
        ]
        changes = {"effects": self.effects[-MAX_EFFECTS:], "outside": self.outside, "origins": origins[:MAX_EFFECTS]}
        changes |= {"tainted": self.tainted, "unchecked": self.unchecked}
        return self._progress.contract.model_copy(update=changes)

    @property
    def free(self) -> list[AllowedEffect]:
        """The effects of the contract that further calls may have."""
        return [effect for effect in self.effects if self.is_free(effect)]

    @property
    def withheld(self) -> list[str]:
        """The kinds of tools that have an effect, and of which the contract allows no further call."""
        free = {kind for effect in self.free for kind in self._with_fallbacks(effect.kind)}
        return [kind for kind, spec in self._specs.items() if spec.effect is not Effect.READ and kind not in free]

    @property
    def tainted(self) -> list[str]:
        """The ids of the steps of the proposal whose results will be untrusted content."""
        return [step.id for step in self._steps if step.id in self._tainted]

    def _ids_in_order_of_references(self) -> Iterator[str]:
        # A plan with a circle is rejected by the check of its graph.
        needs = {step.id: [id for id in references(step.args) if id in self._new] for step in self._steps}
        try:
            yield from TopologicalSorter(needs).static_order()
        except ValueError:
            return

    def _is_tainted(self, step: Step) -> bool:
        if any(self._specs[kind].untrusted for kind in self._with_fallbacks(step.kind)):
            return True
        return bool(self._origins.get(step.id)) or any(id in self._tainted for id in references(step.args))

    def _objection(self, step: Step) -> str:
        """Why the call of a step is outside the contract, as a sentence; empty if it is inside.

        If an effect allows the call, the step is added to the effect's `used_by`.
        """
        spec = self._specs.get(step.kind)
        if spec is None:
            return ""
        if is_reference(step.args) and not self._by_user and step.args["$from"] in self._tainted:
            return _reason_outside(step.kind, [f"all arguments come from untrusted content ({step.args['$from']!r})"])
        names = spec.authority_of(step.args)
        if spec.effect is Effect.READ:
            found = [why for name in names if (why := self._unsourced(step, name, allows_references=self._by_user))]
            if found:
                return "" if self._is_allowed(step) else _reason_outside(step.kind, found)
            addresses = self._unsourced_addresses(step)
            is_inside = not addresses or self._is_allowed(step, addresses)
            return "" if is_inside else _reason_outside(step.kind, [*addresses.values()])
        if not self._is_late:
            return self._plan(step, names)
        misfits = list[list[str]]()
        for effect in (effect for effect in self.free if step.kind in self._with_fallbacks(effect.kind)):
            wrong = self._misfits(effect, step)
            if not wrong:
                effect.used_by.append(step.id)
                return ""
            misfits.append(wrong)
        if misfits:
            return _reason_outside(step.kind, min(misfits, key=len))
        found = [why for name in names if (why := self._unsourced(step, name))]
        planned = any(step.kind in self._with_fallbacks(effect.kind) for effect in self.effects)
        none = "each call of it that was planned has been made" if planned else "none was planned"
        return _reason_outside(step.kind, [f"{none} before untrusted content was read{self._what_is_unread()}", *found])

    def _what_is_unread(self) -> str:
        """The descriptions that the planner was shown and no person has read, as the end of a clause."""
        named = few(list(map(description_text, self._unread)), MAX_UNREAD)
        return f", such as {named}, which no person has read" if named else ""

    def _is_allowed(self, step: Step, names: Iterable[str] = ()) -> bool:
        """Whether an effect of the contract allows a read, also what it says of the further arguments `names`."""
        effects = (effect for effect in self.effects if effect.kind == step.kind)
        return any(not self._misfits(effect, step, names) for effect in effects)

    def _unsourced_addresses(self, step: Step) -> dict[str, str]:
        """By argument of a read, why an address in it has no trusted source, as a clause."""
        if not self._is_late or not self._specs[step.kind].can_carry_addresses:
            return {}
        found = dict[str, str]()
        for name, value in step.args.items():
            addresses = set(addresses_in(value, path_of("", name), is_named=is_address_name(name)))
            addresses |= {(path_of("", name), True)} if holds_address(name) else set()
            for origin in self._origins.get(step.id, ()) if addresses else ():
                if (origin.at, origin.is_key) in addresses:
                    found.setdefault(name, _described(origin, step))
            if addresses and not self._is_traced:
                found.setdefault(name, f"nobody looked where {name} comes from")
        return found

    def _unknown(self, step: Step) -> list[str]:
        """The arguments of a read that refer to untrusted results, and that no effect allows: they may be addresses."""
        spec = self._specs.get(step.kind)
        if spec is None or not spec.can_carry_addresses or self._by_user:
            return []
        names = [name for name, value in step.args.items() if any(id in self._tainted for id in references(value))]
        return [] if not names or self._is_allowed(step, names) else names

    def _plan(self, step: Step, names: Sequence[str]) -> str:
        """Add the call of a step, which is planned before untrusted content was read, to the contract.

        `names` are its arguments that are authority. Returns what `_objection` returns.
        """
        of_kind = (effect for effect in self.effects if effect.kind == step.kind and self.is_free(effect))
        effect = next((effect for effect in of_kind if not self._misfits(effect, step)), None)
        if effect is None:
            terms = {name: Term(values=(step.args[name],)) for name in names}
            effect = AllowedEffect(kind=step.kind, args=terms, by_user=self._by_user)
            self.effects.append(effect)
        effect.used_by.append(step.id)
        return _reason_outside(step.kind, self._misfits(effect, step))

    def _with_fallbacks(self, kind: str) -> list[str]:
        kinds = list[str]()
        while kind in self._specs and kind not in kinds:  # a history may hold fallbacks that lead back
            kinds.append(kind)
            kind = self._specs[kind].fallback or ""
        return kinds

    def is_free(self, effect: AllowedEffect) -> bool:
        """Whether a further call may have this effect."""
        return sum(map(self._counts, effect.used_by)) < effect.count

    def _counts(self, id: str) -> bool:
        """Whether a step counts as a call with its effect: the effect was, may have been, or can still be applied."""
        record = self._records.get(id)
        if id in self._new or record is None or record.status not in _WITHOUT_RESULT:
            return True
        if record.status is StepStatus.CANCELLED:
            return record.attempts > 0
        faults = [fault for fault in self._progress.faults if fault.step_id == id]
        return bool(faults) and faults[-1].applied is not Applied.NONE

    def _misfits(self, effect: AllowedEffect, step: Step, more: Iterable[str] = ()) -> list[str]:
        """Why the effect does not allow the call of a step, a clause for each argument; empty if it does.

        `more` are arguments that count as authority besides those of the tool.
        """
        names = dict.fromkeys([*self._specs[step.kind].authority_of(step.args), *more, *effect.args])
        return [why for name in names if (why := self._misfit(effect, step, name))]

    def _misfit(self, effect: AllowedEffect, step: Step, name: str) -> str:
        """Why the effect does not allow the argument `name` of a step, as a clause; empty if it does."""
        term = effect.args.get(name, Term())
        if name not in step.args:
            return f"{name} is left out, and {term} was planned" if term != Term() else ""
        value = step.args[name]
        if term.slot:
            return "" if self._fills(term.slot, value) else f"{name} is not {term}"
        if term.at_least is not None or term.at_most is not None:
            return "" if term.bounds(value) else f"{name} is {_shown(value)}, and {term} was planned"
        if not term.values:
            nothing = f"{name} is {_shown(value)}, and nothing was planned for it"
            if self._is_late and any(map(_is_untraceable, _leaves(value))):
                return nothing
            why = self._unsourced(step, name)
            return why or (nothing if self._is_late and _has_empty(value) else "")
        if digest(value) in map(digest, term.values):
            return self._unsourced(step, name, allows_references=effect.by_user, allows_literals=True)
        if self._was_shown_at_refusal(effect, value):
            return ""
        why = self._unsourced(step, name)
        return why or f"{name} is {_shown(value)}, and {term} was planned"

    def _unsourced(
        self, step: Step, name: str, *, allows_references: bool = False, allows_literals: bool = False
    ) -> str:
        """Why an argument has no trusted source, as a clause; empty if it has one.

        `allows_references`: a reference to an untrusted result is accepted. `allows_literals`: a literal is accepted.
        """
        untrusted = [id for id in references(step.args[name]) if id in self._tainted]
        found = [origin for origin in self._origins.get(step.id, ()) if _is_part(origin.at, name, step.args)]
        if untrusted and not allows_references:
            computed = [origin for origin in found if origin.computed and origin.source == untrusted[0]]
            shown = f"{name} comes from untrusted content (the result of {untrusted[0]!r})"
            return _described(computed[0], step) if computed else shown
        if not self._is_late or allows_literals:
            return ""
        if not self._is_traced and _has_literal(step.args[name]):
            return f"nobody looked where {name} comes from"
        return _described(found[0], step) if found else ""

    def _fills(self, slot: str, value: JsonValue) -> bool:
        """Whether a value is the part of a result that a slot names, or a reference to that part."""
        kind, _, path = slot.partition(".")
        if is_reference(value):
            id = str(value["$from"])
            source = self._new[id].kind if id in self._new else self._records[id].kind if id in self._records else ""
            return source == kind and str(value.get("path", "")) == path
        for record in self._records.values():
            if record.kind == kind and record.status is StepStatus.COMPLETED and not record.left_out:
                with suppress(Unresolved):
                    if digest(pick(record.result, path, "the result")) == digest(value):
                        return True
        return False

    def _was_shown_at_refusal(self, effect: AllowedEffect, value: JsonValue) -> bool:
        """Whether a trusted tool showed the value after a call with this effect was rejected."""
        ids = {id for id in effect.used_by if id in self._records and not self._records[id].is_tainted}
        observed = [
            observation.value
            for observation in self._progress.observations
            if observation.step_id in ids and self._is_trusted(observation.kind)
        ]
        faults = [
            fault.observed
            for fault in self._progress.faults
            if fault.step_id in ids and self._is_trusted(self._records[fault.step_id].kind)
        ]
        if isinstance(value, dict | list) or _is_untraceable(value):
            return False
        return any(digest(value) == digest(leaf) for state in [*observed, *faults] for leaf in _leaves(state))

    def _is_trusted(self, kind: str) -> bool:
        return kind in self._specs and not self._specs[kind].untrusted


_WITHOUT_RESULT = (StepStatus.PENDING, StepStatus.FAILED, StepStatus.SKIPPED, StepStatus.CANCELLED)


def _unused_copies(effects: Iterable[AllowedEffect], *, by_user: bool) -> list[AllowedEffect]:
    return [effect.model_copy(update={"by_user": by_user, "used_by": []}, deep=True) for effect in effects]


def _reason_outside(kind: str, reasons: Sequence[str]) -> str:
    return f"{kind} is outside the contract of this task: {'; '.join(reasons)}" if reasons else ""


def _is_part(path: str, name: str, names: Iterable[str]) -> bool:
    """Whether a path leads into the argument `name`, or into none of the arguments `names`: then it may be in each."""
    # A path shows an unusual name in another form.
    owners = [other for other in names if path == other or path.startswith(f"{other}.")]
    return name in owners or not owners


def _described(origin: Origin, step: Step) -> str:
    """What a person must know of a value without a trusted source, as a clause."""
    try:
        value = pick(step.args, origin.at, "it")
        shown = f"{origin.at} is {label(value) if is_reference(value) else _shown(value)}"
    except Unresolved:
        shown = origin.at
    unusual = f", which {origin.unusual}" if origin.unusual else ""
    if not origin.source:
        return f"{shown}{unusual}: neither the user nor a trusted result shows it"
    if origin.computed:
        return f"{shown}{unusual}: only a computation shows it ({origin.source}: {origin.computed})"
    line = f", line {origin.line}" if origin.line else ""
    quote = f": “{origin.quote}”" if origin.quote else ""
    is_tool = origin.source.startswith(OF_TOOL)
    source = description_text(origin.source.removeprefix(OF_TOOL)) if is_tool else origin.source
    return f"{shown}{unusual}: only untrusted content shows it ({source}{line}{quote})"


def _shown(value: JsonValue) -> str:
    text = canonical(value)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"


def _has_literal(value: JsonValue) -> bool:
    if is_reference(value):
        return False
    return any(map(_has_literal, items(value))) if isinstance(value, dict | list) else True


def _is_untraceable(value: JsonValue) -> bool:
    """Whether no text can show a value: it is null, true, false, or blank."""
    return value is None or isinstance(value, bool) or (isinstance(value, str) and not value.strip())


def _has_empty(value: JsonValue) -> bool:
    """Whether a list or an object is empty, or one in it: no text can show it either."""
    return isinstance(value, dict | list) and (not value or any(map(_has_empty, items(value))))


def address_of_content(progress: Progress, step: Step, args: dict[str, JsonValue]) -> str:
    """Why a read that starts is outside the contract, as a sentence; empty if it is inside.

    `args` are the arguments of `step` with results in place of references.
    """
    names = progress.contract.unchecked.get(step.id, ())
    found = [name for name in names if name in args and _becomes_address(step.args.get(name), args[name])]
    if not found:
        return ""
    return _reason_outside(step.kind, [f"{name} is {_shown(args[name])}, from untrusted content" for name in found])


def _becomes_address(planned: JsonValue, actual: JsonValue, *, is_named: bool = False) -> bool:
    """Whether a reference in `planned` has become an address in `actual`, the same value with results."""
    if is_reference(planned):
        return any(True for _ in addresses_in(actual, is_named=is_named))
    if isinstance(planned, dict) and isinstance(actual, dict):
        return any(
            _becomes_address(value, actual.get(key), is_named=is_named or is_address_name(key))
            for key, value in planned.items()
        )
    if isinstance(planned, list) and isinstance(actual, list):
        return any(_becomes_address(*pair, is_named=is_named) for pair in zip(planned, actual, strict=True))
    return False


def _leaves(value: JsonValue) -> Iterator[JsonValue]:
    if isinstance(value, dict | list):
        for item in items(value):
            yield from _leaves(item)
    else:
        yield value


def first_contract(progress: Progress, catalogue: Catalogue) -> Contract:
    """The contract of a task that begins: the effects that the user wrote, and whether the task is tainted."""
    effects = _unused_copies(progress.task.contract, by_user=True)
    return Contract(effects=effects, is_tainted=progress.task.is_tainted(catalogue.is_clean))


def taints(progress: Progress, *, is_unread: bool) -> bool:
    """Whether what the planner is told of the tools taints the task, since no person has read some of it."""
    return is_unread and not progress.contract.is_tainted


def review(progress: Progress, catalogue: Catalogue, proposed: Proposed, *, by_user: bool = False) -> Review | None:
    """The calls of a proposal, compared with the contract; None if the task has, and can read, no untrusted content."""
    is_needed = progress.contract.is_tainted or any(spec.untrusted for spec in catalogue.specs.values())
    return Review(progress, catalogue, proposed, by_user=by_user) if is_needed else None


def standing(progress: Progress, catalogue: Catalogue) -> Review | None:
    """A Review of an empty proposal, which tells what the contract allows; None if no untrusted content was read."""
    if not progress.contract.is_tainted:
        return None
    return review(progress, catalogue, Proposed(proposal=NewSteps(steps=())))


def unsourced(
    progress: Progress,
    specs: Mapping[str, ToolSpec],
    record: StepRecord,
    companion: CompanionSpec,
    args: Mapping[str, JsonValue],
) -> str:
    """Why a companion of the call of `record` needs a person before it is called with `args`, as a clause; else empty.

    Each argument that is authority, or an address that a read is told, needs a trusted source: an argument of the call
    that passed the contract, a trusted result, the id of an effect (see `_is_own_id`), or a value that a trusted source
    shows.
    """
    spec, owner = specs.get(companion.kind), specs.get(record.kind)
    if spec is None or owner is None:  # a worker of another version may not have it any more
        return ""
    names = {*spec.authority_of(args), *(_addressed(args) if spec.can_carry_addresses else ())}
    paths = {name: path for name, path in companion.args.items() if name in names and name in args}
    doubted = {name: path for name, path in paths.items() if _is_doubted(progress, specs, record, path)}
    shown = _Shown(progress, specs, record, owner) if doubted else None
    found = [
        f"{name} comes from untrusted content ({_where(path, record)})"
        for name, path in doubted.items()
        if shown and not (shown.has(args[name]) or _is_own_id(spec, name, path, args[name]))
    ]
    return "; ".join(found)


def _addressed(args: Mapping[str, JsonValue]) -> Iterator[str]:
    return (name for name, value in args.items() if any(addresses_in(value, is_named=is_address_name(name))))


def returns_untrusted(specs: Mapping[str, ToolSpec], record: StepRecord) -> bool:
    """Whether the result of a step may be untrusted content, also because of the read that found it."""
    owner = specs[record.kind]
    found_by = specs.get(owner.reconcile.kind) if owner.reconcile else None
    return record.is_tainted or owner.untrusted or bool(found_by and found_by.untrusted)


def _is_doubted(progress: Progress, specs: Mapping[str, ToolSpec], record: StepRecord, path: str) -> bool:
    """Whether the value at a path into the call of `record` may come from untrusted content."""
    root, _, rest = path.partition(".")
    if root == "args":
        names = [rest.partition(".")[0]] if rest else [*(record.args or record.step.args)]
        passed = {*specs[record.kind].authority_of(names), *record.edited}
        return record.is_tainted and not passed.issuperset(names)
    return root == "result" and returns_untrusted(specs, record) and not _is_provided(progress, record)


def _is_provided(progress: Progress, record: StepRecord) -> bool:
    """Whether a person provided the result of a step."""
    answers = [request.answer for request in progress.requests if request.step == record.step.id and request.answer]
    return bool(answers) and answers[-1].choice is Choice.PROVIDE


def _is_own_id(spec: ToolSpec, name: str, path: str, value: JsonValue) -> bool:
    """Whether a value is the id that the called service gave to the effect itself: `id` of the result.

    It is a number or one word without the signs of an address, and `spec` does not declare the argument as authority.
    """
    is_word = isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,100}", value) is not None
    is_id = is_word or (isinstance(value, int) and not isinstance(value, bool))
    return path == "result.id" and is_id and name not in (spec.authority or ()) and not is_always_authority(name)


def _where(path: str, record: StepRecord) -> str:
    root, _, rest = path.partition(".")
    what = "the result" if root == "result" else "the arguments"
    return f"{rest + ' in ' if rest else ''}{what} of {record.step.id!r}"


class _Shown:
    """The values that trusted sources of a task show, compared exactly, so that each replay finds the same."""

    def __init__(self, progress: Progress, specs: Mapping[str, ToolSpec], record: StepRecord, owner: ToolSpec) -> None:
        """`record` is the step whose companion is called, `owner` the spec of its kind."""
        args = record.args or {}
        trusted: list[JsonValue] = [args[name] for name in owner.authority_of(args)]
        trusted += [
            other.result
            for other in progress.records
            if other.status is StepStatus.COMPLETED and other.kind in specs and _is_source(specs, other)
        ]
        trusted += [value for effect in progress.contract.effects if effect.by_user for value in _values_of(effect)]
        trusted += [dict(step.args) for step in progress.task.plan or ()]
        trusted += [progress.task.text, *(word.text for word in progress.words if not word.is_option)]
        leaves = [leaf for value in trusted for leaf in _leaves(value)]
        self._digests = {digest(leaf) for leaf in leaves}
        self._texts = [_tokens_of(leaf) for leaf in leaves if isinstance(leaf, str)]

    def has(self, value: JsonValue) -> bool:
        """Whether a trusted source shows each part of a value, as a whole field or as whole words."""
        if isinstance(value, dict | list):
            keys: list[JsonValue] = [*value] if isinstance(value, dict) else []
            return all(map(self.has, [*keys, *items(value)]))
        if _is_untraceable(value):
            return False
        if digest(value) in self._digests:
            return True
        if isinstance(value, str):
            tokens = value.split()
            return any(tokens == text[at : at + len(tokens)] for text in self._texts for at in range(len(text)))
        return any(_is_number(word, value) for text in self._texts for word in text)


def _is_source(specs: Mapping[str, ToolSpec], record: StepRecord) -> bool:
    """Whether the result of a step is a trusted source: a computation that the planner chose late is none."""
    return not returns_untrusted(specs, record) and (record.is_planned_ahead or not specs[record.kind].pure)


def _values_of(effect: AllowedEffect) -> list[JsonValue]:
    return [value for term in effect.args.values() for value in term.values]


def _tokens_of(text: str) -> list[str]:
    return [word.strip(".,;:!?()[]{}<>\"'`*") for word in text.split()]


def _is_number(word: str, value: JsonValue) -> bool:
    is_number = re.fullmatch(r"-?[0-9]{1,30}(\.[0-9]{1,30})?", word) is not None
    return is_number and Decimal(word) == Decimal(canonical(value))
