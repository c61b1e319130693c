"""A program starts tasks, follows, answers and ends them over HTTP alone, and decides by codes when it cannot."""

import asyncio
import inspect
import re
import uuid
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from pydantic import JsonValue

from client.client import Client
from extras.web.api import NewTask
from extras.web.tests.serving import PATIENCE, approval_of, asked, path_of, paying, standing, started
from workflows.account.task import Task
from workflows.limits.budget import MAX_TASK_TEXT

NOBODY = "/tasks/nobody"


IDS = ("orders/2026/7", "an order", "50% off?", "größer #1")


async def test_a_task_is_started_runs_to_its_end_and_is_told(program: httpx2.AsyncClient) -> None:
    """Whatever characters its id has: it is written into a path by the rules of URLs.

    `revisions` are as in a plan file: here the answer, which refers to a result. Explained is what the history has,
    and the effects are those of the ledger, with the key of the call.
    """
    revisions = [{"type": "answer", "result": {"receipt": {"$from": "p1", "path": "id"}}}]
    begun = [await program.post("/tasks", json={**paying(40), "revisions": revisions, "id": id}) for id in IDS]
    document, *others = [await standing(program, id, "completed") for id in IDS]
    explained, effects = [(await program.get(path_of(IDS[0], what))).json() for what in ("explain", "effects")]
    step = (await program.get(path_of(IDS[0], "explain"), params={"step": "p1"})).json()

    assert [(one.status_code, one.headers["location"]) for one in begun] == [(201, path_of(id)) for id in IDS]
    assert [one["task_id"] for one in (document, *others, explained, step)] == [*IDS, IDS[0], IDS[0]]
    assert [one["result"] for one in document["steps"]] == [{"id": 40}] and document["result"] == {"receipt": 40}
    assert explained["status"] == "completed"
    assert [(one["step"], one["kind"], bool(one["key"])) for one in effects["effects"]] == [("p1", "charge", True)]


def test_a_program_can_say_over_http_what_it_can_say_in_python() -> None:
    """The fields of a task, and how `Client.start` takes it; `key` is a header, and a client sets the others itself."""
    options = set(inspect.signature(Client.start).parameters) - {"self", "task", "key", "options"}

    assert set(NewTask.model_fields) == (set(Task.model_fields) | options) - {"remains", "started"}


async def listed(program: httpx2.AsyncClient, **filters: str | int) -> list[str]:
    """The ids of the list with these filters."""
    response = await program.get("/tasks", params=filters)
    assert response.status_code == 200, response.text
    return [str(one["task_id"]) for one in response.json()["tasks"]]


async def test_an_open_task_is_listed_by_its_status_and_ends_when_it_is_cancelled(program: httpx2.AsyncClient) -> None:
    """Nothing continues it or undoes it before. The response to the cancel does not wait for the end and the undo."""
    id = await started(program, 44, 908)
    await asked(program, id)
    async with asyncio.timeout(20):
        while id not in await listed(program, status="waiting"):  # the server's list has it a moment later
            await asyncio.sleep(0.1)
    completed, first = await listed(program, status="completed"), await listed(program, limit=1)
    continued = await program.post("/tasks", json={"text": "and then?", "continues": id})
    undone = await program.post(path_of(id, "undo"))
    response = await program.post(path_of(id, "cancel"), json={"undo": True})
    document = await standing(program, id, "cancelled")
    again = await program.post(path_of(id, "cancel"))

    assert (id in completed, len(first)) == (False, 1)
    assert (continued.status_code, continued.json()["code"]) == (409, "still_running")
    assert (undone.status_code, undone.headers["content-type"]) == (409, "application/problem+json")
    assert (response.status_code, response.json()["cancelling"]) == (202, True)
    assert [(one["step_id"], one["done"]) for one in document["undo"]] == [("p1", True)]
    assert (again.status_code, again.json()["code"]) == (409, "closed")


async def test_an_approval_is_of_the_call_that_was_seen(program: httpx2.AsyncClient) -> None:
    """With another code, or with arguments, which are an edit, nothing is called; nor after the end."""
    id = await started(program, 901)
    approval = approval_of(await asked(program, id), by="ann")
    other_call, edit, response = [
        await program.post(path_of(id, "answers"), json={**approval, **more})
        for more in ({"call": "0000"}, {"args": {"amount": 1}}, {})
    ]
    document = await standing(program, id, "completed")
    late = await program.post(path_of(id, "answers"), json={"choice": "skip"})

    assert [(one.status_code, one.json()["code"]) for one in (other_call, late)] == [
        (409, "not_accepted"),
        (409, "closed"),
    ]
    assert (edit.status_code, edit.json()["detail"]) == (422, "args does not go with approve")
    assert (response.status_code, response.json()["by"]) == (200, "ann")
    assert document["steps"][0]["result"] == {"id": 901} and document["requests"][0]["answer"]["by"] == "ann"


async def test_an_edit_changes_the_arguments_of_the_call(program: httpx2.AsyncClient) -> None:
    id = await started(program, 902)
    answer = {**approval_of(await asked(program, id)), "choice": "edit", "args": {"amount": 400}}
    response = await program.post(path_of(id, "answers"), json=answer)

    assert response.status_code == 200, response.text
    assert (await standing(program, id, "completed"))["steps"][0]["result"] == {"id": 400}


async def test_the_same_answer_twice_counts_once(program: httpx2.AsyncClient) -> None:
    """A program that did not hear the response sends its answer again, even after the task has ended."""
    id = await started(program, 903)
    answer = {"choice": "abort", "request": (await asked(program, id))["id"], "reason": "Too dear.", "by": "ann"}
    both = await asyncio.gather(*(program.post(path_of(id, "answers"), json=answer) for _ in range(2)))
    document = await standing(program, id, "failed")
    late = await program.post(path_of(id, "answers"), json=answer)
    other = await program.post(path_of(id, "answers"), json={**answer, "reason": "Another one."})

    assert {one.status_code for one in (*both, late)} == {200}, [one.text for one in (*both, late)]
    assert {one.json()["said"] for one in (*both, late)} == {both[0].json()["said"]}
    assert (other.status_code, other.json()["code"]) == (409, "closed")
    assert [one["answer"]["choice"] for one in document["requests"]] == ["abort"]


@pytest.mark.full
async def test_another_answer_to_an_answered_request_is_409(program: httpx2.AsyncClient) -> None:
    """The first one counts; two steps wait, so that the task goes on waiting."""
    plan: list[JsonValue] = [{"id": name, "kind": "charge", "args": {"amount": 904}} for name in ("one", "two")]
    id = await started(program, plan=plan)
    async with asyncio.timeout(20):
        while len(requests := (await standing(program, id, "waiting"))["requests"]) < 2:
            await asyncio.sleep(0.05)
    first = await program.post(path_of(id, "answers"), json=approval_of(requests[0]))
    other = {"choice": "reject", "request": requests[0]["id"], "reason": "Too dear."}
    second = await program.post(path_of(id, "answers"), json=other)
    await program.post(path_of(id, "cancel"))

    assert first.status_code == 200, first.text
    assert (second.status_code, second.json()["code"]) == (409, "not_accepted")


async def test_an_extension_with_a_key_counts_once(program: httpx2.AsyncClient) -> None:
    """With another key it adds again; and `null` took a limit away, which is not the same as leaving it out."""
    id = await started(program, 906, limits={"tool_calls": 20, "tokens": None})
    await asked(program, id)
    said = [
        (await program.post(path_of(id, "extend"), json={"tool_calls": 5}, headers={"idempotency-key": key})).json()
        for key in ("a", "a", "b")
    ]
    unlimited = await program.post(path_of(id, "extend"), json={"tokens": 5})
    await program.post(path_of(id, "cancel"))

    assert [one["said"] for one in said] == ["tool_calls 25", "tool_calls 25", "tool_calls 30"]
    assert (unlimited.status_code, unlimited.json()["code"]) == (409, "not_accepted")


async def test_the_effects_of_an_ended_task_are_undone_once(program: httpx2.AsyncClient) -> None:
    id = await started(program, 45)
    await standing(program, id, "completed")
    first, second = [await program.post(path_of(id, "undo")) for _ in range(2)]

    assert (first.status_code, first.json()["status"]) == (200, "complete")
    assert [(one["step_id"], one["done"]) for one in first.json()["undo"]] == [("p1", True)]
    assert (second.status_code, second.json()["status"]) == (200, "complete"), second.text


async def test_an_undo_that_needs_an_approval_is_shown_with_its_code(program: httpx2.AsyncClient) -> None:
    """It is made when the code of what was shown is sent, and with another code nothing is."""
    id = await started(program, plan=[{"id": "p1", "kind": "reserve", "args": {"amount": 946}}])
    await standing(program, id, "completed")
    held = (await program.post(path_of(id, "undo"))).json()
    wrong = await program.post(path_of(id, "undo"), json={"confirm": "0" * 12})
    done = (await program.post(path_of(id, "undo"), json={"confirm": held["confirm"]})).json()

    assert held["status"] == "incomplete" and "wire needs approval" in held["undo"][0]["reason"]
    assert [(one["kind"], one["args"], one["approve"]) for one in held["held"]] == [
        ("wire", {"amount": 946}, "the amount is above 500")
    ]
    assert (wrong.status_code, wrong.json()["code"]) == (409, "not_confirmed")
    assert (done["status"], done["held"], done["confirm"]) == ("complete", [], None)


async def test_an_incident_is_listed_and_its_resolution_told(program: httpx2.AsyncClient) -> None:
    """One task tries first; here it fails again, so no other is told, and the status says so."""
    id = await started(program, plan=[{"id": "shut", "kind": "shut"}])
    await asked(program, id)
    async with asyncio.timeout(20):
        while "shut/unauthorized" not in {
            one["cause"] for one in (await program.get("/incidents")).json()["incidents"]
        }:
            await asyncio.sleep(0.1)
    response = await program.post("/incidents/shut%2Funauthorized/resolve", json={"note": "a new key", "by": "ann"})
    await program.post(path_of(id, "cancel"))

    told = response.json()
    assert (response.status_code, told["fate"], told["canary"], told["by"]) == (409, "failed_again", id, "ann")


async def test_a_key_starts_one_task_also_after_its_end(program: httpx2.AsyncClient) -> None:
    """A program that did not hear the response sends its request again, today or tomorrow; with no other body."""
    headers, body = {"idempotency-key": uuid.uuid4().hex}, paying(46)
    both = await asyncio.gather(*(program.post("/tasks", json=body, headers=headers) for _ in range(2)))
    ids = [one.json()["task_id"] for one in both]
    await standing(program, ids[0], "completed")
    later = await program.post("/tasks", json=body, headers=headers)
    other = await program.post("/tasks", json=paying(48), headers=headers)
    long = await program.post("/tasks", json=paying(1), headers={"idempotency-key": "k" * 201})

    assert [one.status_code for one in (*both, later)] == [201] * 3
    assert {*ids, later.json()["task_id"]} == {ids[0]}
    assert [(one.status_code, one.json()["code"]) for one in (other, long)] == [(409, "other_task"), (422, "usage")]


async def test_a_page_of_a_mistyped_task_links_to_the_ids_like_it(program: httpx2.AsyncClient) -> None:
    """An id that was cut, and one with a wrong letter; nothing is guessed that is unlike all ids.

    For a program there is no such task: what a person may abbreviate in a terminal, it writes out.
    """
    id = await started(program, 49, id=f"lease-{uuid.uuid4().hex}")
    async with asyncio.timeout(PATIENCE):
        while id not in (await program.get("/tasks")).text:  # the server lists a task a moment later
            await asyncio.sleep(0.1)
    mistyped = [id[:-4], id[:9] + "x" + id[10:], "qqqqqqqq"]
    pages = [(await program.get(f"/ui/tasks/{one}", headers={"accept": "text/html"})).text for one in mistyped]
    cut = await program.get(path_of(id[:-1]))
    guess = f'Did you mean <a href="/ui/tasks/{id}"><bdi>{id}</bdi></a>'

    assert [guess in page for page in pages] == [True, True, False]
    assert (cut.status_code, cut.json()["code"]) == (404, "unknown_id")


@pytest.mark.parametrize("path", ["/ui/nowhere", "/ui/tasks/nobody", "/ui/" + "x" * 3_000, "/ui/<i>"])
async def test_a_page_that_is_not_there_says_what_is_missing_why_and_where_to_go(
    program: httpx2.AsyncClient, path: str
) -> None:
    response = await program.get(path, headers={"accept": "text/html"})
    page = response.text

    assert response.status_code == 404 and re.search("<h1>No such (page|task)</h1>", page)
    assert ("There is no task" in page and "may be mistyped" in page) or "There is no page at" in page
    assert 'href="/ui/tasks"' in page and 'href="/ui/inbox"' in page
    assert "openapi" not in page and "Not Found" not in page and "<i>" not in page and len(page) < 9_000


async def test_an_address_that_is_not_there_is_named_with_what_it_takes(program: httpx2.AsyncClient) -> None:
    missing, wrong = await program.get("/nowhere"), await program.delete("/tasks")

    assert missing.json()["detail"] == "There is no /nowhere here" and "/openapi.json" in missing.json()["remedy"]
    assert wrong.json()["detail"].startswith("/tasks takes no DELETE, but ")


NO_IDS = ("%00", "a%00b", "%01", "%0a", "%1b%5b2J", "%ff", "%ed%a0%80", "%e2%80%ae", "x" * 10_000, "%2e%2e%2e")
"""Ids in a path that no task has."""
UNUSABLE_IDS = (".", "..", "%2e", ".%2E", "a/../b", "./a", "a\0", "a\x1b[2J", "a\u202e", "a\u200b", "-a", "", "é" * 201)
"""Ids that no address, no command and no person could name."""
STRANGE = {
    b"NaN": 422,
    b"-Infinity": 422,
    b"1e999": 422,
    b"9" * 5000: 422,
    b'"\\ud800"': 422,
    b'{"\\udc00": 1}': 422,
    b'"\xff"': 400,
    b"[" * 300 + b"]" * 300: 400,
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000: 400,
}
"""What Python reads as a JSON value and others do not, and the status of a body that has it somewhere."""
STRANGE_BODIES = (
    ("/tasks", b'{"text": "x", "plan": [{"id": "a", "kind": "calculate", "args": {"x": @}}]}'),
    ("/tasks", b'{"text": "x", "result_schema": {"const": @}}'),
    (f"{NOBODY}/answers", b'{"choice": "provide", "result": @}'),
    (f"{NOBODY}/extend", b'{"usd": @}'),
    ("/incidents/nothing/resolve", b'{"note": @}'),
    ("/tasks", b"@"),
)
BAD: Sequence[tuple[str, str, Any, int, str]] = (
    *(
        ("POST", path, body.replace(b"@", value), status, "usage" if status == 422 else "http")
        for path, body in STRANGE_BODIES
        for value, status in STRANGE.items()
    ),
    ("GET", NOBODY, None, 404, "unknown_id"),
    ("GET", f"{NOBODY}/explain", None, 404, "unknown_id"),
    ("GET", f"{NOBODY}/effects", None, 404, "unknown_id"),
    ("GET", f"{NOBODY}/events", None, 404, "unknown_id"),
    ("POST", f"{NOBODY}/answers", {"choice": "skip"}, 404, "unknown_id"),
    ("POST", f"{NOBODY}/extend", {"tool_calls": 1}, 404, "unknown_id"),
    ("POST", f"{NOBODY}/cancel", None, 404, "unknown_id"),
    ("POST", f"{NOBODY}/undo", None, 404, "unknown_id"),
    ("POST", "/incidents/nothing%2Funauthorized/resolve", None, 404, "unknown_cause"),
    ("GET", "/nowhere", None, 404, "http"),
    ("DELETE", "/tasks", None, 405, "http"),
    ("GET", "/tasks?status=ended", None, 422, "unknown_status"),
    ("GET", "/tasks?query=nonsense%20nonsense", None, 422, "bad_query"),
    ("GET", "/tasks?limit=0", None, 422, "usage"),
    ("POST", "/tasks", b"{not JSON", 422, "usage"),
    ("POST", "/tasks", b'{"text": "\xff"}', 400, "http"),
    ("POST", "/tasks", b"[" * 100_000, 400, "http"),
    ("POST", "/tasks", None, 422, "usage"),
    ("POST", "/tasks", {"text": ""}, 422, "usage"),
    ("POST", "/tasks", {"text": "   "}, 422, "no_task"),
    ("POST", "/tasks", {"text": "x" * (MAX_TASK_TEXT + 1)}, 422, "usage"),
    ("POST", "/tasks", {"text": "x", "wish": 1}, 422, "usage"),
    ("POST", "/tasks", {"text": "x", "id": " "}, 422, "usage"),
    ("POST", "/tasks", {"text": "x", "id": "y" * 2000}, 422, "usage"),
    ("POST", "/tasks", {"text": "x", "limits": {"tool_calls": -1}}, 422, "usage"),
    ("POST", "/tasks", {"text": "x", "limits": {"beer": 1}}, 422, "usage"),
    ("POST", "/tasks", {"text": "x", "answer_within": 0}, 422, "usage"),
    ("POST", "/tasks", {"text": "x", "answer_within": 4e9}, 422, "usage"),
    ("POST", "/tasks", {"text": "x", "answer_within": 1e300}, 422, "usage"),
    ("POST", "/tasks", {"text": "x", "on_escalation": "shout"}, 422, "usage"),
    ("POST", f"{NOBODY}/answers", {"choice": "perhaps"}, 422, "usage"),
    ("POST", f"{NOBODY}/extend", {"tool_calls": -1}, 422, "usage"),
    ("POST", f"{NOBODY}/extend", b'{"usd": Infinity}', 422, "usage"),
    *(("GET", f"/tasks/{id}", None, 404, "unknown_id") for id in NO_IDS),
    ("GET", "/tasks/%00/events", None, 404, "unknown_id"),
    ("POST", "/tasks/%00/answers", {"choice": "skip"}, 404, "unknown_id"),
    ("POST", "/incidents/%00/resolve", None, 404, "unknown_cause"),
    ("POST", "/incidents/it%27s/resolve", {"queue": "a' OR 'b"}, 404, "unknown_cause"),
    *(("POST", "/tasks", {"text": "x", "id": id}, 422, "usage") for id in UNUSABLE_IDS),
    ("POST", "/tasks", b'{"text": "x", "id": "\\ud800"}', 422, "usage"),
    ("POST", "/tasks", b'{"text": "\\ud800"}', 422, "usage"),
    ("POST", f"{NOBODY}/answers", b'{"choice": "replan", "hint": "\\ud800"}', 422, "usage"),
    ("GET", "/tasks?query=WorkflowId%20=%20'a')%20OR%20(WorkflowType%20!=%20'b'", None, 422, "bad_query"),
    ("GET", "/tasks?query=WorkflowId%20=%20'%00'", None, 422, "bad_query"),
)
"""Requests that cannot be served: method, path, body, and the status and code of the response."""


async def test_every_error_is_a_problem_with_a_code_and_a_remedy(program: httpx2.AsyncClient) -> None:
    wrong = list[str]()
    for method, path, body, status, code in BAD:
        sent = {"content": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
        response = await program.request(method, path, **sent, headers={"content-type": "application/json"})
        if problem := difference(response, status, code):
            wrong.append(f"{method} {path} {str(body)[:60]}: {problem}")

    assert not wrong, "\n".join(wrong)


def difference(response: httpx2.Response, status: int, code: str) -> str:
    """What is wrong with a problem; empty if nothing is."""
    if response.headers["content-type"] != "application/problem+json":
        return f"{response.status_code} {response.headers['content-type']} {response.text[:300]}"
    found = response.json()
    is_whole = found["status"] == response.status_code and found["title"] and found["detail"] and found["remedy"]
    is_whole = is_whole and found["type"] == f"urn:replan:problem:{found['code']}"
    return "" if is_whole and (response.status_code, found["code"]) == (status, code) else response.text[:300]


ROUTES = {
    *(("/tasks", method) for method in ("get", "post")),
    *(("/tasks/{id}", "get"), ("/incidents", "get"), ("/incidents/{cause}/resolve", "post")),
    *((f"/tasks/{{id}}/{what}", "get") for what in ("explain", "effects", "events")),
    *((f"/tasks/{{id}}/{what}", "post") for what in ("answers", "extend", "cancel", "undo")),
}


async def test_openapi_has_each_route_with_an_example_for_its_body_and_the_form_of_its_problems(
    program: httpx2.AsyncClient,
) -> None:
    """And none of the pages for people. A reader copies an example and changes it."""
    document = (await program.get("/openapi.json")).json()
    routes = {(path, method): route for path, methods in document["paths"].items() for method, route in methods.items()}
    bodies = {
        reference.rpartition("/")[2]
        for route in routes.values()
        for reference in references(route.get("requestBody", {}))
    }
    wrong = [
        f"{method} {path} {status}: {list(response['content'])}"
        for (path, method), route in routes.items()
        for status, response in route["responses"].items()
        if int(status) >= 400 and list(response["content"]) != ["application/problem+json"]
    ]

    assert {*routes} == ROUTES
    assert bodies == {"NewTask", "NewAnswer", "Extension", "Cancellation", "Undoing", "Repair"}
    assert [name for name in sorted(bodies) if not document["components"]["schemas"][name].get("examples")] == []
    assert not wrong, "\n".join(wrong)


def references(part: Any) -> list[str]:
    """All references to schemas in a part of the document."""
    if isinstance(part, dict):
        own = [part["$ref"]] if "$ref" in part else []
        return own + [one for value in part.values() for one in references(value)]
    return [one for value in part for one in references(value)] if isinstance(part, list) else []
