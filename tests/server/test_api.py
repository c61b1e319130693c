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
from server.api import NewTask
from tests.server.serving import PATIENCE, approval_of, asked, path_of, paying, standing, started
from workflows.account.task import Task
from workflows.limits.budget import MAX_TASK_TEXT

NOBODY = "/tasks/nobody"


async def test_a_task_is_started_and_runs_to_its_end(program: httpx2.AsyncClient) -> None:
    """The response names the task and where it is."""
    response = await program.post("/tasks", json=paying(40))
    document = await standing(program, response.json()["task_id"], "completed")

    assert (response.status_code, response.headers["location"]) == (201, path_of(response.json()["task_id"]))
    assert [one["result"] for one in document["steps"]] == [{"id": 40}]


async def test_a_task_is_started_with_what_comes_after_its_plan(program: httpx2.AsyncClient) -> None:
    revisions = [{"type": "answer", "result": {"receipt": {"$from": "p1", "path": "id"}}}]
    response = await program.post("/tasks", json={**paying(40), "revisions": revisions})
    document = await standing(program, response.json()["task_id"], "completed")

    assert document["result"] == {"receipt": 40}


def test_a_program_can_say_over_http_what_it_can_say_in_python() -> None:
    options = set(inspect.signature(Client.start).parameters) - {"self", "task", "key", "options"}

    assert set(NewTask.model_fields) == (set(Task.model_fields) | options) - {"remains"}


async def test_only_an_ended_task_is_continued(program: httpx2.AsyncClient) -> None:
    id = await started(program, 900)
    refused = await program.post("/tasks", json={"text": "and then?", "continues": id})
    await program.post(path_of(id, "cancel"))

    assert (refused.status_code, refused.json()["code"]) == (409, "still_running")


@pytest.mark.parametrize(
    "id",
    ["orders/2026/7", *(pytest.param(one, marks=pytest.mark.full) for one in ("an order", "50% off?", "größer #1"))],
)
async def test_an_id_may_have_any_characters(program: httpx2.AsyncClient, id: str) -> None:
    response = await program.post("/tasks", json={**paying(41), "id": id})
    document = await standing(program, id, "completed")
    explained = await program.get(path_of(id, "explain"))

    assert document["task_id"] == id
    assert (await program.get(response.headers["location"])).json()["task_id"] == id
    assert explained.json()["task_id"] == id


async def test_tasks_are_listed_by_status(program: httpx2.AsyncClient) -> None:
    id = await started(program, 900)
    await asked(program, id)
    async with asyncio.timeout(20):
        while id not in [one["task_id"] for one in await listed(program, status="waiting")]:
            await asyncio.sleep(0.1)
    completed = await listed(program, status="completed")
    first = await listed(program, limit=1)
    await program.post(path_of(id, "cancel"))

    assert id not in [one["task_id"] for one in completed]
    assert len(first) == 1


async def listed(program: httpx2.AsyncClient, **filters: str | int) -> list[dict[str, Any]]:
    response = await program.get("/tasks", params=filters)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["tasks"]
    return found


async def test_explain_and_effects_tell_what_was_done(program: httpx2.AsyncClient) -> None:
    id = await started(program, 42)
    await standing(program, id, "completed")
    explained = (await program.get(path_of(id, "explain"))).json()
    step = (await program.get(path_of(id, "explain"), params={"step": "p1"})).json()
    effects = (await program.get(path_of(id, "effects"))).json()

    assert explained["status"] == "completed"
    assert step["task_id"] == id
    assert [(one["step"], one["kind"], bool(one["key"])) for one in effects["effects"]] == [("p1", "charge", True)]


async def test_an_approval_lets_the_call_be_made(program: httpx2.AsyncClient) -> None:
    id = await started(program, 901)
    response = await program.post(path_of(id, "answers"), json=approval_of(await asked(program, id), by="ann"))
    document = await standing(program, id, "completed")

    assert (response.status_code, response.json()["by"]) == (200, "ann")
    assert document["steps"][0]["result"] == {"id": 901}
    assert document["requests"][0]["answer"]["by"] == "ann"


async def test_an_edit_changes_the_arguments_of_the_call(program: httpx2.AsyncClient) -> None:
    """Only those that it names."""
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


async def test_an_answer_to_a_task_that_has_ended_is_409(program: httpx2.AsyncClient) -> None:
    id = await started(program, 43)
    await standing(program, id, "completed")
    response = await program.post(path_of(id, "answers"), json={"choice": "skip"})

    assert (response.status_code, response.json()["code"]) == (409, "closed")


async def test_a_wrong_call_code_is_not_approved(program: httpx2.AsyncClient) -> None:
    id = await started(program, 905)
    answer = {**approval_of(await asked(program, id)), "call": "0000"}
    response = await program.post(path_of(id, "answers"), json=answer)
    await program.post(path_of(id, "cancel"))

    assert (response.status_code, response.json()["code"]) == (409, "not_accepted")


async def test_an_extension_with_a_key_counts_once(program: httpx2.AsyncClient) -> None:
    id = await started(program, 906, limits={"tool_calls": 20})
    await asked(program, id)
    keys = ("a", "a", "b")  # the last one adds again
    said = [
        (await program.post(path_of(id, "extend"), json={"tool_calls": 5}, headers={"idempotency-key": key})).json()
        for key in keys
    ]
    await program.post(path_of(id, "cancel"))

    assert [one["said"] for one in said] == ["tool_calls 25", "tool_calls 25", "tool_calls 30"]


async def test_a_cancelled_task_ends(program: httpx2.AsyncClient) -> None:
    id = await started(program, 907)
    await asked(program, id)
    response = await program.post(path_of(id, "cancel"))
    await standing(program, id, "cancelled")
    again = await program.post(path_of(id, "cancel"))

    assert (response.status_code, response.json()["cancelling"]) == (202, True)
    assert (again.status_code, again.json()["code"]) == (409, "closed")


async def test_a_cancel_may_undo_what_was_done(program: httpx2.AsyncClient) -> None:
    id = await started(program, 44, 908)
    await asked(program, id)
    await program.post(path_of(id, "cancel"), json={"undo": True})
    document = await standing(program, id, "cancelled")

    assert [(one["step_id"], one["done"]) for one in document["undo"]] == [("p1", True)]


async def test_the_effects_of_an_ended_task_are_undone_once(program: httpx2.AsyncClient) -> None:
    id = await started(program, 45)
    await standing(program, id, "completed")
    first, second = [await program.post(path_of(id, "undo")) for _ in range(2)]

    assert (first.status_code, first.json()["status"]) == (200, "complete")
    assert [(one["step_id"], one["done"]) for one in first.json()["undo"]] == [("p1", True)]
    assert (second.status_code, second.json()["status"]) == (200, "complete"), second.text


async def test_an_undo_that_needs_an_approval_is_shown_with_its_code(program: httpx2.AsyncClient) -> None:
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


@pytest.mark.full
async def test_a_running_task_is_not_undone(program: httpx2.AsyncClient) -> None:
    id = await started(program, 909)
    await asked(program, id)
    response = await program.post(path_of(id, "undo"))
    await program.post(path_of(id, "cancel"))

    assert (response.status_code, response.headers["content-type"]) == (409, "application/problem+json")


async def test_an_incident_is_listed_and_its_resolution_told(program: httpx2.AsyncClient) -> None:
    id = await started(program, plan=[{"id": "shut", "kind": "shut"}])
    await asked(program, id)
    async with asyncio.timeout(20):
        while "shut/unauthorized" not in await causes(program):
            await asyncio.sleep(0.1)
    response = await program.post("/incidents/shut%2Funauthorized/resolve", json={"note": "a new key", "by": "ann"})
    await program.post(path_of(id, "cancel"))

    told = response.json()
    assert (response.status_code, told["fate"], told["canary"], told["by"]) == (409, "failed_again", id, "ann")


async def causes(program: httpx2.AsyncClient) -> set[str]:
    return {one["cause"] for one in (await program.get("/incidents")).json()["incidents"]}


async def test_a_key_starts_one_task_also_after_its_end(program: httpx2.AsyncClient) -> None:
    headers, body = {"idempotency-key": uuid.uuid4().hex}, paying(46)
    both = await asyncio.gather(*(program.post("/tasks", json=body, headers=headers) for _ in range(2)))
    ids = [one.json()["task_id"] for one in both]
    await standing(program, ids[0], "completed")
    later = await program.post("/tasks", json=body, headers=headers)

    assert [one.status_code for one in (*both, later)] == [201] * 3
    assert {*ids, later.json()["task_id"]} == {ids[0]}


async def test_a_key_with_another_body_is_409(program: httpx2.AsyncClient) -> None:
    headers = {"idempotency-key": uuid.uuid4().hex}
    await program.post("/tasks", json=paying(47), headers=headers)
    response = await program.post("/tasks", json=paying(48), headers=headers)

    assert (response.status_code, response.json()["code"]) == (409, "other_task")


@pytest.mark.full
async def test_no_limit_is_a_wish(program: httpx2.AsyncClient) -> None:
    id = await started(program, 911, limits={"tokens": None})
    await asked(program, id)
    response = await program.post(path_of(id, "extend"), json={"tokens": 5})
    await program.post(path_of(id, "cancel"))

    assert (response.status_code, response.json()["code"]) == (409, "not_accepted")


async def test_an_id_is_not_found_by_its_beginning(program: httpx2.AsyncClient) -> None:
    """What a person may abbreviate in a terminal, a program writes out."""
    id = await started(program, 49, id=f"order-{uuid.uuid4().hex}")
    response = await program.get(path_of(id[:-1]))

    assert (response.status_code, response.json()["code"]) == (404, "unknown_id")


async def test_a_page_of_a_mistyped_task_links_to_the_ids_like_it(program: httpx2.AsyncClient) -> None:
    id = await started(program, 49, id=f"lease-{uuid.uuid4().hex}")
    async with asyncio.timeout(PATIENCE):
        while id not in (await program.get("/tasks")).text:  # the server lists a task a moment later
            await asyncio.sleep(0.1)
    mistyped = [id[:-4], id[:9] + "x" + id[10:], "qqqqqqqq"]
    pages = [(await program.get(f"/ui/tasks/{one}", headers={"accept": "text/html"})).text for one in mistyped]

    assert [f'Did you mean <a href="/ui/tasks/{id}"><bdi>{id}</bdi></a>' in page for page in pages] == [
        True,
        True,
        False,
    ]


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


@pytest.mark.full
async def test_a_field_that_does_not_go_with_an_answer_is_named(program: httpx2.AsyncClient) -> None:
    id = await started(program, 910)
    answer = {**approval_of(await asked(program, id)), "args": {"amount": 1}}
    response = await program.post(path_of(id, "answers"), json=answer)
    await program.post(path_of(id, "cancel"))

    assert (response.status_code, response.json()["detail"]) == (422, "args does not go with approve")


async def test_a_key_has_at_most_200_characters(program: httpx2.AsyncClient) -> None:
    response = await program.post("/tasks", json=paying(1), headers={"idempotency-key": "k" * 201})

    assert (response.status_code, response.json()["code"]) == (422, "usage")


ROUTES = {
    ("/tasks", "post"),
    ("/tasks", "get"),
    ("/tasks/{id}", "get"),
    ("/tasks/{id}/explain", "get"),
    ("/tasks/{id}/effects", "get"),
    ("/tasks/{id}/events", "get"),
    ("/tasks/{id}/answers", "post"),
    ("/tasks/{id}/extend", "post"),
    ("/tasks/{id}/cancel", "post"),
    ("/tasks/{id}/undo", "post"),
    ("/incidents", "get"),
    ("/incidents/{cause}/resolve", "post"),
}


async def test_openapi_has_each_route(program: httpx2.AsyncClient) -> None:
    paths = (await program.get("/openapi.json")).json()["paths"]

    assert {(path, method) for path, methods in paths.items() for method in methods} == ROUTES


async def test_openapi_has_an_example_for_each_body(program: httpx2.AsyncClient) -> None:
    document = (await program.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]
    bodies = {
        reference.rpartition("/")[2]
        for methods in document["paths"].values()
        for route in methods.values()
        if "requestBody" in route
        for reference in references(route["requestBody"])
    }

    assert bodies == {"NewTask", "NewAnswer", "Extension", "Cancellation", "Undoing", "Repair"}
    assert [name for name in sorted(bodies) if not schemas[name].get("examples")] == []


def references(part: Any) -> list[str]:
    if isinstance(part, dict):
        own = [part["$ref"]] if "$ref" in part else []
        return own + [one for value in part.values() for one in references(value)]
    return [one for value in part for one in references(value)] if isinstance(part, list) else []


async def test_openapi_documents_problems(program: httpx2.AsyncClient) -> None:
    document = (await program.get("/openapi.json")).json()
    wrong = [
        f"{method} {path} {status}: {list(response['content'])}"
        for path, methods in document["paths"].items()
        for method, route in methods.items()
        for status, response in route["responses"].items()
        if int(status) >= 400 and list(response["content"]) != ["application/problem+json"]
    ]

    assert not wrong, "\n".join(wrong)
