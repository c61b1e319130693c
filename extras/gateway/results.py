"""The answer to a call of an agent: the tool's content as it is, or a fault with what to do."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from workflows.faults.fault import Applied, Code, Quadrant
from workflows.json_values import canonical
from workflows.text import capitalised

if TYPE_CHECKING:  # of tasks, which take a quarter of a second of a holder's start
    from workflows.account.outcome import Outcome

_FIELDS = {"text", "structured", "parts", "left_out", "parts_left_out", "structured_left_out", "layout", "meta"}
"""The fields of the result of a foreign tool without an output schema."""
_REST = "replan_content"
"""The field of any other result of a foreign tool with what the server sent beside it, in the same fields."""
WAIT_SECONDS = 30.0
"""Seconds that an agent should wait after a transient fault if the service named no time."""


class Do(StrEnum):
    """What an agent should do after a fault."""

    WAIT = "wait"
    CHANGE = "change_the_call"
    PERSON = "a_person_was_asked"
    DO_NOT_REPEAT = "do_not_repeat"


def success(result: JsonValue, *, is_structured: bool) -> dict[str, Any]:
    """The result of a tool as the content of MCP.

    A foreign tool without an output schema has its content in `text` and `parts`, as `extras.mcp.answers`
    writes it; every other result is a value.
    """
    if (
        not is_structured
        and isinstance(result, dict)
        and isinstance(result.get("text"), str)
        and result.keys() <= _FIELDS
    ):
        structured = {"structuredContent": found} if (found := result.get("structured")) is not None else {}
        return presentable({"content": _content(result), **structured, **_meta(result)})
    if not isinstance(result, dict):
        return {"content": [_text(result if isinstance(result, str) else canonical(result))]}
    value = {name: part for name, part in result.items() if name != _REST}
    rest = result.get(_REST)
    if not isinstance(rest, dict):
        return {"content": [_text(canonical(result))], "structuredContent": result}
    content = _content(rest) if rest.keys() - {"text", "layout", "meta"} or rest["text"] else []
    return {"content": [_text(canonical(value)), *content], "structuredContent": value, **_meta(rest)}


def presentable(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result that agents of each protocol take: structured content that is no object becomes a text."""
    structured = result.get("structuredContent")
    if structured is None or isinstance(structured, dict):
        return {**result}
    text, plain = canonical(structured), {name: part for name, part in result.items() if name != "structuredContent"}
    is_said = any(block.get("text") == text for block in result["content"])
    return {**plain, "content": [*result["content"], *([] if is_said else [_text(text)])]}


def _meta(result: Mapping[str, Any]) -> dict[str, Any]:
    return {"_meta": found} if (found := result.get("meta")) else {}


def _content(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    parts = [_part_block(part) for part in result.get("parts", ())]
    if result.get("layout") is not None:
        return _blocks_in_sent_order(result)
    texts = [_text(result["text"])] if result["text"] or not parts else []
    cut = {
        "left_out": "characters of text",
        "parts_left_out": "parts",
        "structured_left_out": "bytes of structured content",
    }
    notes = [_text(f"({count} {what} were left out.)") for name, what in cut.items() if (count := result.get(name))]
    return [*texts, *parts, *notes]


def _blocks_in_sent_order(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    blocks, text = list[dict[str, Any]](), result["text"]
    for part in result["layout"]:
        own = None
        if (length := part.get("text")) is not None:
            own, text = text[:length], text[length + 1 :]
        block = _part_block(result["parts"][part["part"]]) if "part" in part else _text(own or "")
        more = dict(part.get("more", {}))
        of_resource = {**more.pop("resource", {}), **({"text": own} if own is not None else {})}
        if "resource" in block:
            block["resource"] |= of_resource
        blocks.append({**block, **more})
    return blocks


def _part_block(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("left_out"):
        return _text(f"({part['type']} of {part['left_out']} characters, too large to be kept.)")
    kind, mime = part["type"], {"mimeType": part["mime_type"]} if part.get("mime_type") else {}
    if kind in ("image", "audio"):
        return {"type": kind, "data": part.get("data") or "", **mime}
    if kind == "resource_link":
        return {"type": kind, "uri": part.get("uri"), "name": part.get("name") or "", **mime}
    resource = {"uri": part.get("uri"), **mime, **({"blob": part["data"]} if part.get("data") else {"text": ""})}
    return {"type": "resource", "resource": resource}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def with_note(result: Mapping[str, Any], note: str) -> dict[str, Any]:
    """A copy of a result with one more text, since agents do not read `_meta`."""
    return {**result, "content": [*result["content"], _text(note)]}


def of_outcome(outcome: "Outcome", *, is_structured: bool) -> dict[str, Any]:
    """The answer to a call whose task has ended: the result of the tool, or a fault."""
    from workflows.account.records import StepStatus
    from workflows.account.task import TaskStatus

    step = outcome.steps[-1] if outcome.steps else None
    if outcome.status is TaskStatus.COMPLETED and step is not None and step.status is StepStatus.COMPLETED:
        if step.result_omitted:
            return {"content": [_text(f"Done. The result of {step.result_bytes} bytes is too large to be shown here.")]}
        return success(step.result, is_structured=is_structured)
    return fault(**fault_of(outcome), is_structured=is_structured)


def fault_of(outcome: "Outcome") -> dict[str, Any]:
    """The arguments of `fault` for a task that has ended without a result, with what the agent should do."""
    last = outcome.faults[-1] if outcome.faults else None
    if last is None:
        return {
            "do": Do.CHANGE.value if outcome.code == "plan_refused" else Do.DO_NOT_REPEAT.value,
            "code": outcome.code or outcome.status.value,
            "reason": outcome.reason,
            "task": outcome.task_id,
        }
    do, wait = Do.CHANGE, None
    is_rejected = any(request.answer and request.answer.choice == "reject" for request in outcome.requests)
    is_of_operator = last.quadrant is Quadrant.PERSISTENT_INFRASTRUCTURAL
    if last.applied is not Applied.NONE or last.code is Code.REJECTED or is_rejected or is_of_operator:
        do = Do.DO_NOT_REPEAT
    elif last.quadrant.is_transient:
        do, wait = Do.WAIT, last.retry_after or WAIT_SECONDS
    return {
        "do": do.value,
        "code": last.code.value,
        "quadrant": last.quadrant.value,
        "reason": last.reason,
        "observed": {"text": last.words} if last.observed is None and last.words else last.observed,
        "applied": last.applied.value,
        "wait": wait,
        "task": outcome.task_id,
    }


def pending(task_id: str, why: str, link: str, *, applied: Applied, is_structured: bool) -> dict[str, Any]:
    """The answer that a person is asked, and how the agent gets the result later."""
    return fault(
        Do.PERSON,
        code="waits_for_a_person",
        reason=f"A person is asked: {why}",
        applied=applied.value,
        more=f"It is answered at {link}. Later, replan_outcome with id {task_id!r} returns the result.",
        task=task_id,
        is_structured=is_structured,
    )


_INSTRUCTIONS: Mapping[Do, str] = {
    Do.CHANGE: "The same call would fail again: change it.",
    Do.DO_NOT_REPEAT: "Do not call it again.",
    Do.PERSON: "Do not call it again meanwhile: go on with other work, or stop and say that you wait.",
}


def fault(
    do: Do | str,
    *,
    code: str,
    reason: str,
    is_structured: bool,
    quadrant: str = "",
    observed: JsonValue = None,
    applied: str = "none",
    wait: float | None = None,
    task: str = "",
    more: str = "",
) -> dict[str, Any]:
    """A fault as an error of MCP: one sentence with what to do, and the same as data.

    `more` is a text before what to do, `wait` are seconds, and `observed` is what the rejected call learned.
    With an output schema (`is_structured`) the data is a text block: some clients check structured content of errors.
    """
    waiting = f"Wait {wait:g} s, then call again." if wait else "Call again if it should be done."
    do = Do(do)
    instruction = waiting if do is Do.WAIT else _INSTRUCTIONS[do]
    done = {"unknown": " It may have been done.", "applied": " It was done."}.get(applied, "")
    sentence = f"{capitalised(reason).rstrip('.')}.{done} {more}{' ' if more else ''}{instruction}"
    data: dict[str, JsonValue] = {
        "code": code,
        "quadrant": quadrant,
        "do": do.value,
        "wait_seconds": wait,
        "applied": applied,
        "task": task,
    }
    data = {name: value for name, value in data.items() if value not in (None, "")}
    content = [_text(sentence)]
    if isinstance(observed, dict) and observed.keys() == {"text"}:
        content.append(_text(str(observed["text"])))  # what the tool's own server said
    elif observed is not None:
        data["observed"] = observed
    if is_structured:
        return {"content": [*content, _text(canonical(data))], "isError": True}
    return {"content": content, "structuredContent": data, "isError": True}
