"""A service of its own that uses Replan over HTTP: it starts a task, shows what happens, and passes an approval on.

`REPLAN_API=http://127.0.0.1:8300 uvicorn examples.approvals:app`, with REPLAN_TOKEN where `replan serve` has a token.
"""

import os
from collections.abc import AsyncIterator

import httpx2
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

app = FastAPI()
token = os.environ.get("REPLAN_TOKEN")
replan = httpx2.AsyncClient(
    base_url=os.environ.get("REPLAN_API", "http://127.0.0.1:8300"),
    headers={"Authorization": f"Bearer {token}"} if token else {},
    timeout=httpx2.Timeout(30, read=None),
)


@app.post("/orders/{number}")
async def order(number: str, request: Request) -> Response:
    """Start the task of an order; an order that is sent twice is one task."""
    task = {"text": (await request.body()).decode(), "on_escalation": "wait", "approve": "effects"}
    started = await replan.post("/tasks", json=task, headers={"Idempotency-Key": f"order {number}"})
    return Response(started.content, started.status_code, media_type="application/json")


@app.get("/tasks/{id}/events")
async def events(id: str, request: Request) -> StreamingResponse:
    """Pass on what happens to a task; a browser's EventSource resumes with Last-Event-ID."""
    headers = {"Last-Event-ID": request.headers.get("last-event-id", "")}

    async def stream() -> AsyncIterator[bytes]:
        async with replan.stream("GET", f"/tasks/{id}/events", headers=headers) as reply:
            async for part in reply.aiter_bytes():
                yield part

    return StreamingResponse(stream(), media_type="text/event-stream")


@app.post("/tasks/{id}/approve")
async def approve(id: str) -> Response:
    """Approve the calls that wait, in the name of the service."""
    for request in (await replan.get(f"/tasks/{id}")).json()["requests"]:
        if request.get("call") and not request["answer"]:
            answer = {"choice": "approve", "request": request["id"], "call": request["call"]["code"], "by": "the shop"}
            await replan.post(f"/tasks/{id}/answers", json=answer)
    return Response(status_code=204)
