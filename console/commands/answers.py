"""`answers`: who answered what, and whether what doors have signed about it holds; no worker is asked."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from client import document
from client.answers import Record, RecordedAnswer, Verification, record_of_files, record_of_server
from client.problem import Problem
from client.report.report import MAX_TASKS, Period
from client.text import one_line, printable
from client.wording import count, stated_text
from console.commands.report import ALL, progress_bar, read_since
from console.exits import Exit
from console.options import Common, require_alone
from console.render.command import starter
from runtime.people_file import VARIABLE, BadPeople, PeopleFile

DEFAULT_SINCE = "30d"


async def answers_command(
    *,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILES", help="Files that `export` wrote; else the server's tasks.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Answers given within this time, e.g. 24h or 90d; or all. [default: 30d]"),
    ] = None,
    query: Annotated[
        str | None, typer.Option(metavar="FILTER", help="Only of tasks that this Temporal list filter finds.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most so many tasks, those that ended last.")
    ] = None,
    people: Annotated[
        Path | None,
        typer.Option(envvar=VARIABLE, metavar="FILE", help="The people file, whose keys verify what was signed."),
    ] = None,
    common: Common,
) -> int:
    known = _people(people)
    within = read_since(since or (ALL if files else DEFAULT_SINCE))
    begin = None if within is None else datetime.now(UTC) - within
    if files:
        require_alone("FILES", {"--query": query, "--limit": limit})
        found = await record_of_files(files, known, common.data_converter(), begin)
    else:
        client = await common.connected()
        with progress_bar() as progress:
            period = Period(begin, query)
            found = await record_of_server(client, period, known, limit=limit or MAX_TASKS, progress=progress)
    if common.json:
        numbers = {verdict.value: found.count(verdict) for verdict in Verification}
        print(document.of_anything({**found.model_dump(mode="json"), "verdicts": numbers}))
    else:
        print("\n".join(lines(found, is_verified=known is not None)))
    return Exit.FAILED if found.count(Verification.FALSE) else Exit.COMPLETED


def _people(file: Path | None) -> PeopleFile | None:
    try:
        return PeopleFile.read(file) if file else None
    except BadPeople as error:
        raise Problem("bad_people", error.reason, error.remedy) from error


def lines(record: Record, *, is_verified: bool) -> Iterator[str]:
    """Two or three lines for each answer, and sentences about all of them; `is_verified`: with a people file."""
    for answer in record.answers:
        yield from _answer_lines(answer)
    numbers = [f"{record.count(verdict)} {verdict.value}" for verdict in Verification if record.count(verdict)]
    of = f" of {count(record.tasks, 'task')}"
    yield f"{count(len(record.answers), 'answer')}{of}{': ' * bool(numbers)}{', '.join(numbers)}."
    if record.count(Verification.SIGNED) and not is_verified:
        yield "With --people FILE, signatures are verified."
    if record.more:
        yield f"{count(record.more, 'more task')} left out: --limit takes more."
    for unread in record.unread:
        why = one_line(unread.why)
        yield f"{printable(unread.task_id)} could be read only in part ({why}): answers may be missing."
    if not record.answers and record.since is not None:
        yield f"`{starter('answers', '--since', ALL)}` lists the answers of all tasks that the server still has."


def _answer_lines(answer: RecordedAnswer) -> Iterator[str]:
    who = stated_text(answer.statement) if answer.statement else one_line(answer.person) or "somebody"
    of = f" ({answer.number} of {answer.needed})" if answer.needed > 1 else ""
    request = " ".join(filter(None, [answer.request, answer.step, answer.tool if answer.tool != answer.step else ""]))
    about = f"{printable(answer.task_id)} {one_line(request or answer.kind)}"
    yield f"{answer.at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}  {about}: {answer.choice.value}{of}, {who}"
    key = f", key {one_line(answer.key)}" if answer.key else ""
    yield f"    {answer.verdict.value}{f': {one_line(answer.why)}' if answer.why else ''}{key}"
    for call in answer.shown:
        args = f"arguments {call.args}" if call.args else "arguments unknown"
        yield f"    shown: {one_line(call.tool)} with the code {one_line(call.code)}, {args}"
