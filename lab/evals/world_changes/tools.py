"""The tools of a family as Replan declares them; each sends one request to the world."""

from collections.abc import Mapping
from typing import Any

import httpx2
from pydantic import BaseModel, create_model
from temporalio import activity

from evals.retry_waste.tools import PATIENCE, SETTLE
from evals.world_changes.families import FAMILIES, FamilyTool
from evals.world_changes.scenario import SECOND, Deploy
from replan import Key, Tool, tool


def family_tools(family: str, url: str, deploy: Deploy | None = None) -> list[Tool[..., Any]]:
    """The tools of a family, without those that a deploy takes away, and with the arguments that it adds."""
    changed = deploy or Deploy()
    made = dict[str, Tool[..., Any]]()
    for declared in FAMILIES[family]:
        if declared.name not in changed.without:
            made[declared.name] = _tool(declared, url, made, changed.added.get(declared.name))
    return [*made.values()]


def _tool(declared: FamilyTool, url: str, made: Mapping[str, Tool[..., Any]], added: str | None) -> Tool[..., Any]:
    args_type = _model(f"{declared.name}_args", {**declared.args, **({added: str} if added else {})})
    result_type = _model(f"{declared.name}_result", declared.result)

    async def send(http: httpx2.AsyncClient, args: BaseModel, key: str | None = None) -> BaseModel:
        info = activity.info()
        task = (info.workflow_id or "").removesuffix(SECOND)
        headers = {"x-step": info.activity_id, **({"idempotency-key": key} if key else {})}
        sent = {"task": task, "args": args.model_dump()}
        reply = await http.post(f"{url}/{declared.name}", json=sent, headers=headers)
        return result_type.model_validate(reply.raise_for_status().json())

    async def call(args: BaseModel, http: httpx2.AsyncClient) -> BaseModel:
        return await send(http, args)

    async def call_with_key(args: BaseModel, key: Key, http: httpx2.AsyncClient) -> BaseModel:
        return await send(http, args, key)

    function: Any = call_with_key if declared.effect == "keyed" else call
    function.__name__ = function.__qualname__ = declared.name
    function.__doc__ = declared.says
    function.__annotations__ |= {"args": args_type, "return": result_type}
    options: dict[str, Any] = {"timeout": PATIENCE}
    if declared.observe:
        options["observe"] = made[declared.observe].using(**declared.paths)
    if declared.reconcile:
        by_key = {"key": "key"} if declared.effect == "keyed" else {}
        options |= {"reconcile": made[declared.reconcile].using(**by_key), "settle": SETTLE}
    built: Tool[..., Any] = getattr(tool, declared.effect)(**options)(function)
    return built


def _model(name: str, types: Mapping[str, Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {field: (type, ...) for field, type in types.items()}
    made: type[BaseModel] = create_model(name, **fields)
    return made
