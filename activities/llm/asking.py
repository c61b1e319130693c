"""One question to a model: answered within a time of its own, and one line in the log, without a word of either."""

import asyncio
import re
from dataclasses import asdict
from typing import Literal

import structlog
from temporalio import activity

from activities.llm.language_model import LanguageModel, Request
from activities.llm.reply import Reply
from activities.toolbox.errors import Unreachable

log = structlog.get_logger("replan.model")

Role = Literal["planner", "compaction", "step"]
"""What the answer is for."""
NAME = re.compile(r"[A-Za-z0-9_]{1,60}")


async def ask(model: LanguageModel, request: Request, patience: float | None, role: Role) -> Reply:
    """Ask once, and wait for the answer at most `patience` seconds; without, as long as the SDK's client does.

    Raises:
        Unreachable: there was none in time.
        Exception: what the provider's SDK raises, for the tables of `activities.borders`.
    """
    about = {**_where(), "role": role, "model": model.name}
    try:
        async with asyncio.timeout(patience):  # the SDKs' own timeouts begin anew with each byte
            reply = await model.reply(request)
    except Exception as error:
        log.warning("model_failed", **about, error=type(error).__name__, **_named(error))
        if isinstance(error, TimeoutError):
            within = "" if patience is None else f" within {round(patience, 1):g} s"
            raise Unreachable(f"{model.name} gave no answer{within}.", code="timeout") from None
        raise
    log.info("model", **about, stop=reply.stop.value, **asdict(reply.usage))
    return reply


def _where() -> dict[str, str]:
    """For whom the model is asked."""
    if not activity.in_activity():
        return {}
    info = activity.info()
    return {"task": info.workflow_id or "", "step": info.activity_id}


def _named(error: Exception) -> dict[str, str]:
    """What a provider's support asks for; its words may quote keys and prompts, so only what is a name is kept."""
    found = {
        name: str(getattr(error, name, None) or "")
        for name in ("status_code", "type", "code", "error_code", "request_id")
    }
    return {name: value for name, value in found.items() if NAME.fullmatch(value)}
