"""Does what the life of a call yields: in a thread that waits, or in a task of an event loop."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from activities.effects.database import settled
from activities.effects.effect_store import EffectStore
from activities.effects.flow import Action, Flow, Invoke, Running, Transact, WaitFor

T = TypeVar("T")


def run(store: EffectStore, flow: Flow, client: Running) -> Any:
    """Carry a call out in the current thread, and return its result."""
    send: Callable[[], Action] = functools.partial(next, flow)
    with store.nested(client):
        while True:
            try:
                action = send()
            except StopIteration as end:
                return end.value
            try:
                value = _do(store, action)
            except BaseException as error:  # the flow decides what becomes of it
                send = functools.partial(flow.throw, error)
            else:
                send = functools.partial(flow.send, value)


async def drive(store: EffectStore, flow: Flow, client: Running) -> Any:
    """Carry a call out in the current task, and return its result; transactions run in threads."""
    send: Callable[[], Action] = functools.partial(next, flow)
    is_cancelled = False
    with store.nested(client):
        while True:
            try:
                action = send()
            except StopIteration as end:
                return end.value
            except Exception as error:
                if is_cancelled:  # nobody waits; asyncio would print another exception of a cancelled task
                    raise asyncio.CancelledError from error
                raise
            try:
                if is_cancelled and not isinstance(action, Transact):
                    raise asyncio.CancelledError
                if isinstance(action, Transact):
                    done = store.database.submit(functools.partial(_do, store, action))
                    value, was_cancelled = await settled(done)
                    is_cancelled = is_cancelled or was_cancelled
                else:
                    value = await _do_async(action)
            except BaseException as error:  # the flow decides what becomes of it
                send = functools.partial(flow.throw, error)
            else:
                send = functools.partial(flow.send, value)


async def in_task(store: EffectStore, work: Coroutine[Any, Any, T], client: Running, name: str) -> T:
    """Await a call in a task of its own, which goes on when the current task is cancelled."""
    task = asyncio.create_task(work, name=name)
    store.tasks.add(task)
    task.add_done_callback(store.forget_task)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            client.has_given_up = True
            store.abandoned(client)
        raise


def _do(store: EffectStore, action: Action) -> Any:
    match action:
        case Transact(work, is_read):
            return store.database.look(work) if is_read else store.database.write(work)
        case Invoke(function):
            return function()
        case WaitFor(seconds, future):
            store.wait(seconds, future)
            return None


async def _do_async(action: Invoke | WaitFor) -> Any:
    match action:
        case Invoke(function, seconds):
            async with asyncio.timeout(seconds):
                value = function()
                return await value if inspect.isawaitable(value) else value
        case WaitFor(seconds, future):
            waiting = [asyncio.wrap_future(future)] if future else [asyncio.ensure_future(asyncio.sleep(seconds))]
            try:
                await asyncio.wait(waiting, timeout=seconds)
            finally:
                if future is None:
                    waiting[0].cancel()
