"""Starts a task, from its text or from a plan written by hand.

Runs when a person or a program starts a task, or calls one tool with `call`, before the first plan.
"""

import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError, model_validator
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from client.problem import Problem, wrong_value
from client.remedy import Argument, Text
from client.tasks import BY_MEMO, MAX_ID, TASK_MEMO, Handle, memo_field
from client.vouching import Voucher
from runtime import tracing
from runtime.validation import first_mistake
from workflows.account.task import CONTINUES_MEMO, MAX_REPLY, MIN_REPLY, Effort, Task
from workflows.agent import AgentWorkflow
from workflows.commands import command
from workflows.faults import retries
from workflows.json_values import digest
from workflows.limits.budget import Limits
from workflows.plans.demonstration import MAX_DEMONSTRATIONS, Demonstration
from workflows.plans.proposal import Proposal, Step
from workflows.text import NOT_TEXT, decode_text
from workflows.web_ui import summary

MAX_PLAN = 256 * 1024
"""Bytes: the largest plan file. The server takes at most 2 MB as the input of a workflow."""
DIGEST_MEMO, KEY_MEMO = "task_digest", "start_key"
"""The keys of the memo fields with the digests of a task and of the key with which it was started."""


class Options(BaseModel):
    """The options of a task that a plan file may set."""

    model_config = ConfigDict(extra="forbid")

    strategy: Literal["plan", "react"] | None = None
    planner: str | None = None
    effort: Effort | None = None
    reply_tokens: int | None = Field(default=None, ge=MIN_REPLY, le=MAX_REPLY)
    calls: Literal["native", "text"] | None = None
    demonstrations: tuple[Demonstration, ...] = Field(default=(), max_length=MAX_DEMONSTRATIONS)
    result_schema: dict[str, JsonValue] | None = None


def _with_steps_type(value: object) -> object:
    return {"type": "steps", **value} if isinstance(value, dict) and "steps" in value else value


class PlanFile(BaseModel):
    """A plan written by hand, or printed by a dry run."""

    model_config = ConfigDict(extra="forbid")

    steps: tuple[Step, ...]
    revisions: tuple[Annotated[Proposal, BeforeValidator(_with_steps_type)], ...] = ()
    """What the user wrote for later turns; `Task.revisions` describes it."""
    task: str = ""
    """The text of the task; that of `build_task` takes precedence."""
    documents: str | None = None
    """The folder of documents; that of `build_task` takes precedence."""
    options: Options = Options()
    """Options of the task; those of `build_task` take precedence."""
    # The other fields of what a dry run prints: accepted, so that its output is a plan file, and not used.
    schema_: Literal[1] = Field(default=1, alias="schema")
    dry_run: bool = False
    planner: str = ""
    proposal: str | None = None
    because: str = ""
    reason: str = ""
    code: str | None = None
    question: str | None = None
    question_options: tuple[str, ...] = ()
    result: JsonValue = None
    effects: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: object) -> object:
        # A list, such as the script of `--planner scripted:FILE`, is the plan and its revisions.
        match value:
            case [{"steps": steps}, *revisions]:
                return {"steps": steps, "revisions": revisions}
        return value


def read_plan(path: Path) -> PlanFile:
    """Read a plan file: `steps`, a list of such objects, or what a dry run printed. Raises Problem for other files."""
    try:
        text = path.read_bytes()
        if len(text) > MAX_PLAN:
            reason = f"The plan {str(path)!r} has {len(text)} bytes"
            raise Problem("bad_plan", reason, f"make it smaller than {MAX_PLAN}")
        return PlanFile.model_validate_json(decode_text(text))
    except OSError as error:
        reason = f"The plan {str(path)!r} cannot be read ({error.strerror})"
        raise Problem("no_plan", reason, Text("give ", Argument("plan"), " a file that can be read")) from error
    except UnicodeDecodeError as error:
        raise Problem("bad_plan", f"The plan {str(path)!r} is not usable: {NOT_TEXT}", "save it as UTF-8") from error
    except ValidationError as error:
        reason = f"The plan {str(path)!r} is not usable: {first_mistake(error, 'the file')}"
        remedy = 'write {"steps": [{"id", "kind", "args", "needs"}], "revisions": []}, docs/tools.md#what-comes-next'
        raise Problem("bad_plan", reason, remedy) from error


def new_id(text: str) -> str:
    """A task id that reads like the task: its first words and six random characters."""
    slug = "-".join(re.findall(r"[a-z0-9]+", text.lower())[:4])[:70]
    return "-".join(filter(None, [slug, secrets.token_hex(3)]))


def check_id(id: str) -> None:
    """Raise Problem if `id` cannot be the id of a new task: it is too long, hard to type, or has a part `.` or `..`."""
    is_readable = 0 < len(id) <= MAX_ID and id.isprintable() and id == id.strip() and not id.startswith("-")
    # In an address, browsers and proxies take such a part for a folder, also where it is encoded.
    if not is_readable or {".", ".."} & set(unquote(id).split("/")):
        reason = f"{id[:MAX_ID]!r} cannot be an id"
        remedy = f"give 1 to {MAX_ID} printable characters without a dash in front and blanks at the ends"
        raise Problem("usage", reason, f"{remedy}, and neither . nor .. alone or between slashes")


def build_task(
    text: str | None = None, plan: Path | None = None, *, limits: Mapping[str, Any] | None = None, **options: Any
) -> Task:
    """The Task with this text or plan file; `options` are further fields of Task, each None if it was not given.

    Raises:
        Problem: there is neither a text nor a plan, the plan file cannot be used, or a value is not valid.
        TypeError: Task has no field of this name. Task itself would ignore the field, even a misspelt `approve`.
    """
    if unknown := options.keys() - Task.model_fields.keys():
        raise TypeError(f"Task has no field {', '.join(sorted(unknown))}.")
    written = read_plan(plan) if plan else PlanFile(steps=())
    name = f"the plan {plan.name}" if plan else ""
    text = (text or "").strip() or written.task.strip() or name
    if not text:
        remedy = Text("give ", Argument("task", '"..."'), " or ", Argument("plan", "FILE"))
        reason = Text.of("There is nothing to do, since neither {task} nor {plan} says what")
        raise Problem("no_task", reason, remedy)
    _check_answer_within(options.get("answer_within") or 0)
    fields = [("documents", written.documents), *written.options, *options.items()]  # the last one counts
    chosen: dict[str, Any] = {name: value for name, value in fields if value is not None}
    steps = written.steps if plan else None
    try:
        return Task(text=text, plan=steps, revisions=written.revisions, limits=Limits(**(limits or {})), **chosen)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][-1])
        raise wrong_value("task" if name == "text" else name, first) from error


def task_of_call(kind: str, args: dict[str, JsonValue]) -> Task:
    """The task that is one call of a tool: nothing is planned, and nothing is re-planned."""
    plan = (Step(id="call", kind=kind, args=args),)
    return Task(text=f"call {kind}", plan=plan, plan_only=True, limits=Limits(replans=0))


async def start(
    client: Client,
    task: Task,
    *,
    id: str | None,
    queue: str,
    again: bool,
    key: str | None = None,
    voucher: Voucher | None = None,
) -> Handle:
    """Start a task, or return the running task that has this id and the same content (except who starts it).

    With a `key`, a task with the same content that was started with this key is returned after its end, too. A
    `voucher` signs who starts it; then `by` is its person.

    Raises:
        Problem: the id belongs to a closed task (unless `again`), or to a running task with other content; `key` and
            `again` are both given; the environment asks for unexportable traces; or `answer_within` is too long.
    """
    _check_answer_within(task.answer_within)
    if key and again:
        reason = Text.of("With {key} a task is started once, and {again} starts another")
        raise Problem("usage", reason, "give one of them")
    reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE if again else WorkflowIDReusePolicy.REJECT_DUPLICATE
    # Kept in the memo: it tells later whether a running task with this id is the same task.
    content_digest = digest(task.model_dump(mode="json", exclude={"by", "started"}))
    carried = {CONTINUES_MEMO: task.continues} if task.continues else {}
    carried |= {KEY_MEMO: digest(key)} if key else {}
    # No codec hides an id: it has words of the task only if all that the task says is in clear, too.
    text = "task" if client.data_converter.payload_codec else task.text
    chosen = id or (f"task-{digest(key)[:20]}" if key else new_id(text))
    task = signed(task, voucher, client.namespace, chosen)
    carried |= {BY_MEMO: task.by} if task.by else {}
    try:
        return await _with_tracing(client).start_workflow(
            AgentWorkflow.run,
            task,
            id=chosen,
            task_queue=queue,
            id_reuse_policy=reuse,
            static_summary=summary(task.text),
            static_details=f"`{command('show', chosen)}` shows this task in a terminal.",
            memo={TASK_MEMO: task.text, DIGEST_MEMO: content_digest, **carried},
        )
    except WorkflowAlreadyStartedError:
        return await _join_existing(client, chosen, content_digest, digest(key) if key else None)


def signed(task: Task, voucher: Voucher | None, namespace: str, id: str) -> Task:
    """The task with what the `voucher` signs about who starts it under this id; as it is without one."""
    if voucher is None:
        return task
    return task.model_copy(update={"by": voucher.person, "started": voucher.of_start(namespace, id)})


def _check_answer_within(seconds: float) -> None:
    longest = retries.LONGEST_TIMER.total_seconds()
    if seconds > longest:
        reason = f"A request cannot be open for {seconds:g} s: the most are {longest:.0f} s, a hundred years"
        raise Problem("usage", reason, "give a shorter time for an answer")


def _with_tracing(client: Client) -> Client:
    try:
        return tracing.traced(client)
    except tracing.CannotTrace as wrong:
        raise Problem("misconfigured", wrong.reason, wrong.remedy) from wrong


async def _join_existing(client: Client, id: str, content_digest: str, key_digest: str | None) -> Handle:
    handle = client.get_workflow_handle_for(AgentWorkflow.run, id)
    description = await handle.describe()
    is_same = await memo_field(description, DIGEST_MEMO, str) == content_digest
    if key_digest is not None and await memo_field(description, KEY_MEMO, str) == key_digest:
        if not is_same:
            reason = f"Task {id!r} was started with the same key, and was asked something else"
            raise Problem("other_task", reason, "use a key only for repetitions of the same request")
        return handle
    if description.status is not WorkflowExecutionStatus.RUNNING:
        anew = Argument("again", True)
        remedy = Text.of("add {again} to run it anew under this id, or choose another {id}", again=anew)
        raise Problem("closed", f"Task {id!r} has ended already", remedy)
    if not is_same:
        remedy = Text.of("choose another {id}, or leave {id} out")
        raise Problem("other_task", f"Task {id!r} is running and was asked something else", remedy)
    return handle
