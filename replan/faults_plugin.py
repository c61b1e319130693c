"""`FaultsPlugin`: one line in a worker of Temporal, after which its retries are those that can help."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import FunctionType
from typing import Any, get_args

from temporalio import activity, client, worker
from temporalio.api.failure.v1 import Failure
from temporalio.client import Client, ClientConfig
from temporalio.common import MetricMeter
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception
from temporalio.runtime import Runtime
from temporalio.service import ConnectConfig, RPCError, ServiceClient
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    ReplayerConfig,
    Worker,
    WorkerConfig,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from activities import sends
from activities.borders import declared, judge
from activities.borders.meaning import Effect, Fault, Next, entries_of, fault_of, follows
from activities.borders.proof import proves_no_effect
from activities.libraries import is_foreign, libraries_of
from workflows.faults.fault import Applied, Code, Quadrant
from workflows.text import nearest

EFFECTS: tuple[Effect, ...] = get_args(Effect)
SKIPPED = "RETRY_SKIPPED"
"""The event of the log for a retry that is not made."""
UNKNOWN_OUTCOME = "UnknownOutcome"
"""The type of the failure of an attempt that was not made, because an attempt before it ended without a report."""
_OURS = {name.partition(".")[0] for name in (__name__, Fault.__module__, Code.__module__)}
"""Packages that a workflow's sandbox need not import again for each workflow."""
ASK_AGAIN = 1.0
"""Seconds until the server is asked again how the attempt before ended."""

log = logging.getLogger("replan.faults")


class FaultsPlugin(client.Plugin, worker.Plugin):
    """Lets the retries of a worker's activities be those that can help, by what the exception of an attempt means.

    `Worker(..., plugins=[FaultsPlugin()])`. An exception that the tables know as persistent is not retried; a
    transient one is retried by the policy of the activity, after the Retry-After of the service if it named one. The
    type, message and cause of the failure stay as they are, and its detail is the Fault. An ApplicationError, a cancel,
    and an exception that no table knows pass untouched. No history changes: open workflows go on with the line and
    without it.
    """

    def __init__(
        self,
        *,
        strict: bool = False,
        dry_run: bool = False,
        only: Iterable[str] | None = None,
        raises: declared.Raises | None = None,
        effects: Mapping[str, Effect] | None = None,
    ) -> None:
        """Make the plugin of one worker.

        Args:
            strict: Exceptions that no table knows are not retried either.
            dry_run: Change nothing, and log and count what would have been skipped.
            only: The names of the activities that the plugin is for; None for all.
            raises: What your exceptions and HTTP statuses mean, before the tables: `{ShopError: "conflict"}`.
            effects: By the name of an activity, what it changes: `read`, `idempotent`, `keyed` or `unkeyed`. After an
                attempt of an `unkeyed` activity that may have had its effect, no further attempt is made.

        Raises:
            ValueError: `raises` or `effects` has a mistake.
        """
        self._entries = entries_of(raises)
        self._strict, self._is_dry_run = strict, dry_run
        self._only = frozenset([only] if isinstance(only, str) else only) if only is not None else None
        self._effects = dict(effects or {})
        self._libraries = dict[str, frozenset[str] | None]()
        for name, effect in self._effects.items():
            if effect not in EFFECTS:
                near = nearest(str(effect), EFFECTS)
                raise ValueError(f"effects= says {effect!r} of {name!r}{near}: use one of {', '.join(EFFECTS)}.")

    def name(self) -> str:
        return "replan.FaultsPlugin"

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Put the plugin before the interceptors of the worker, so that these see exceptions as they were raised.

        Raises ValueError if `only` or `effects` names an activity that the worker does not have.
        """
        self._check_names(config.get("activities") or ())
        ours = _Interceptor(self, config.get("client"))
        config["interceptors"] = [ours, *(config.get("interceptors") or [])]
        _pass_through(config)
        return config

    def configure_client(self, config: ClientConfig) -> ClientConfig:
        return config

    async def connect_service_client(
        self, config: ConnectConfig, next: Callable[[ConnectConfig], Awaitable[ServiceClient]]
    ) -> ServiceClient:
        return await next(config)

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        if "unkeyed" in self._effects.values():
            sends.start()
        await next(worker)

    def configure_replayer(self, config: ReplayerConfig) -> ReplayerConfig:
        _pass_through(config)
        return config

    def run_replayer(self, replayer: Any, histories: Any, next: Any) -> Any:
        return next(replayer, histories)

    def _check_names(self, activities: Iterable[Callable[..., Any]]) -> None:
        known = [_activity_name(one) for one in activities]
        if None in known:  # a dynamic activity takes any name
            return
        names = {name for name in known if name is not None}
        for option, chosen in (("only=", self._only or ()), ("effects=", self._effects)):
            if missing := sorted(set(chosen) - names):
                near = nearest(missing[0], sorted(names))
                raise ValueError(
                    f"{option} names {missing[0]!r}, which this worker has no activity for{near}: "
                    "give each worker a plugin with the names of its own activities, after plugins that add some."
                )

    def _effect_of(self, name: str) -> Effect | None:
        """The declared effect of an activity; None without one."""
        return self._effects.get(name)

    def _is_for(self, name: str) -> bool:
        """Whether the plugin is for the activity with this name."""
        return self._only is None or name in self._only

    def _fault_of(self, error: Exception, name: str, function: Callable[..., Any], sent: sends.Sends | None) -> Fault:
        """What the exception of an attempt means; `sent` is what the attempt sent, if that was counted."""
        verdict = judge(error, self._entries)
        fault = fault_of(verdict)
        if self._effect_of(name) == "read":
            return replace(fault, applied=Applied.NONE)
        if sent is None:
            return fault
        is_proven = proves_no_effect(verdict, error, sent, lambda: self._libraries_of(name, function))
        return replace(fault, applied=Applied.NONE if is_proven else Applied.UNKNOWN)

    def _libraries_of(self, name: str, function: Callable[..., Any]) -> frozenset[str] | None:
        """The packages that an activity can use; the search takes milliseconds, and is made once."""
        if name not in self._libraries:
            self._libraries[name] = _libraries_of(function)
        return self._libraries[name]

    def _translated(self, error: Exception, fault: Fault, meter: MetricMeter) -> ApplicationError | None:
        """The same failure with the Fault as its detail; None if the exception is to pass as it is."""
        info = activity.info()
        after = follows(fault, self._effect_of(info.activity_type), is_strict=self._strict)
        if after is Next.UNTOUCHED:
            return None
        try:
            text = str(error)  # as the SDK does; where it raises, the SDK says so itself
        except Exception:
            return None
        is_skipped = after is not Next.RETRY
        if is_skipped:
            _tell(info, fault, meter, is_dry_run=self._is_dry_run)
        if self._is_dry_run:
            return None
        return ApplicationError(
            text,
            *_details(fault),
            type=type(error).__name__,
            non_retryable=is_skipped,
            next_retry_delay=None if is_skipped else _delay(info, fault.retry_after),
        )

    def _made_final(
        self, error: FailureError, function: Callable[..., Any], meter: MetricMeter
    ) -> ApplicationError | None:
        """The same failure without a retry, if a framework raised it for an unkeyed activity; None if it may pass.

        A program that raises an ApplicationError has decided on its retries. A framework does not know what its tools
        change, and may raise one for a lost answer, too.
        """
        info = activity.info()
        if not isinstance(error, ApplicationError) or error.non_retryable:
            return None
        if not _is_of_framework(function):
            return None
        reason = f"{info.activity_type} failed with {error.type}, which does not say whether it had its effect."
        fault = Fault(Quadrant.TRANSIENT_INFRASTRUCTURAL, Code.UNREACHABLE, reason, Applied.UNKNOWN)
        _tell(info, fault, meter, is_dry_run=self._is_dry_run)
        if self._is_dry_run:
            return None
        details = error.details or _details(fault)
        return ApplicationError(error.message, *details, type=error.type, non_retryable=True, category=error.category)


class _Interceptor(Interceptor):
    def __init__(self, plugin: FaultsPlugin, client: Client | None) -> None:
        self._plugin, self._client = plugin, client

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Inbound(next, self._plugin, self._client)


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, plugin: FaultsPlugin, client: Client | None) -> None:
        super().__init__(next)
        self._plugin, self._client = plugin, client

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        if not self._plugin._is_for(info.activity_type):
            return await self.next.execute_activity(input)
        is_unkeyed = self._plugin._effect_of(info.activity_type) == "unkeyed"
        sent = sends.Sends() if is_unkeyed else None
        try:
            if sent is None:
                return await self.next.execute_activity(input)
            await self._refuse_a_repeat(info)
            # What another process sends, nobody counts.
            sent.is_uncounted = not isinstance(input.executor, ThreadPoolExecutor | None)
            with sends.counted(sent):
                return await self.next.execute_activity(input)
        except Exception as error:
            # After a broken pool the SDK ends the worker, if it sees the exception itself.
            if isinstance(error, BrokenExecutor) or is_cancelled_exception(error):
                raise
            if isinstance(error, FailureError):
                made = self._plugin._made_final(error, input.fn, _meter(info, self._client)) if is_unkeyed else None
            else:
                fault = self._plugin._fault_of(error, info.activity_type, input.fn, sent)
                made = self._plugin._translated(error, fault, _meter(info, self._client))
            if made is None:
                raise
            # This `raise` adds the frame that is left out here, so that the stack has each frame once.
            stack = error.__traceback__.tb_next if error.__traceback__ else None
            raise made.with_traceback(stack) from error.__cause__

    async def _refuse_a_repeat(self, info: activity.Info) -> None:
        """Raise an ApplicationError if the attempt before this one may have had its effect: it ended without a report.

        The server knows how it ended. A local activity is repeated by its worker itself, which had the report.
        """
        if info.attempt == 1 or info.is_local:
            return
        before = await self._failure_before(info)
        if (how := _ended_without_report(before)) is None:
            return
        reason = (
            f"An earlier attempt of {info.activity_type} ended without a report ({how}), so it may have had its effect:"
            " find out whether it had, and call it again only if not."
        )
        fault = Fault(Quadrant.TRANSIENT_INFRASTRUCTURAL, Code.WORKER_LOST, reason, Applied.UNKNOWN)
        _tell(info, fault, _meter(info, self._client), is_dry_run=self._plugin._is_dry_run)
        if not self._plugin._is_dry_run:
            raise ApplicationError(reason, *_details(fault), type=UNKNOWN_OUTCOME, non_retryable=True)

    async def _failure_before(self, info: activity.Info) -> Failure:
        """The failure of the attempt before this one; an empty one if the server does not have it."""
        if self._client is None:
            return Failure()
        while True:  # until the attempt's own timeout: the next one is then refused for it
            try:
                if info.workflow_id is None:
                    alone = self._client.get_activity_handle(info.activity_id, run_id=info.activity_run_id)
                    return (await alone.describe()).raw_info.last_failure
                handle = self._client.get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id)
                running = (await handle.describe()).raw_description.pending_activities
                ours = (one.last_failure for one in running if one.activity_id == info.activity_id)
                return next(ours, Failure())
            except RPCError as error:
                log.warning("cannot ask how the attempt before of %s ended: %s", info.activity_type, error)
                await asyncio.sleep(ASK_AGAIN)


_CUT_OFF = frozenset(
    {"CancelledError", "ActivityPause", "ActivityReset", "WorkerShutdown", "RPCError"}
    | {"BrokenExecutor", "BrokenProcessPool", "BrokenThreadPool"}
)
"""Types of failures with which the SDK itself, or Python, ends an attempt in the middle."""


def _ended_without_report(failure: Failure) -> str | None:
    """How an attempt ended whose outcome is unknown, in words; None if the attempt itself said how it failed.

    An unkeyed attempt that reports an unknown effect is not repeated; so one that was repeated reported none.
    """
    match failure.WhichOneof("failure_info"):
        case "application_failure_info":
            kind = failure.application_failure_info.type
            return f"it was cut off: {kind}" if kind in _CUT_OFF else None
        case "timeout_failure_info":
            return "its timeout passed: its worker was lost, or is still at it"
        case None:
            return "the server does not say how"
        case other:
            return str(other).removesuffix("_failure_info").replace("_", " ")


def _activity_name(function: Callable[..., Any]) -> str | None:
    """The name of an activity; None for a dynamic one, which takes any name."""
    return activity._Definition.must_from_callable(function).name


def _pass_through(config: WorkerConfig | ReplayerConfig) -> None:
    """Let a workflow's sandbox take Replan's modules as they are: a program imports them where its workflows stand."""
    runner = config.get("workflow_runner")
    if isinstance(runner, SandboxedWorkflowRunner):
        passed = runner.restrictions.with_passthrough_modules(*_OURS)
        config["workflow_runner"] = replace(runner, restrictions=passed)


def _is_of_framework(function: Callable[..., Any]) -> bool:
    """Whether an installed package defines an activity, and not the program itself."""
    named = getattr(function, "__func__", function)
    return is_foreign(named if isinstance(named, FunctionType) else type(named))


def _libraries_of(function: Callable[..., Any]) -> frozenset[str] | None:
    """The packages that an activity can use; None for an activity of a framework, which calls what nobody can see."""
    try:
        return None if _is_of_framework(function) else libraries_of(function)
    except Exception:  # of an object on the way, which may be anything
        return None


def _meter(info: activity.Info, of: Client | None) -> MetricMeter:
    """The meter of an activity; the SDK has none for one that runs in another process."""
    try:
        return activity.metric_meter()
    except RuntimeError:
        runtime = (of.service_client.config.runtime if of else None) or Runtime.default()
        names = {
            "namespace": info.namespace,
            "task_queue": info.task_queue,
            "activity_type": info.activity_type,
        }
        return runtime.metric_meter.with_additional_attributes(names)


def _details(fault: Fault) -> list[Any]:
    """The Fault as the detail of a failure; nothing if the program's payload converter takes no such value."""
    detail = fault.as_dict()
    try:
        activity.payload_converter().to_payloads([detail])
    except Exception:  # a converter is anybody's
        return []
    return [detail]


def _delay(info: activity.Info, wait: float | None) -> timedelta | None:
    """The next delay that a service asked for; None for that of the policy.

    A delay beyond the deadline of the call would end its retries at once.
    """
    if not wait or info.schedule_to_close_timeout is None:
        return timedelta(seconds=wait) if wait else None
    left = info.scheduled_time + info.schedule_to_close_timeout - datetime.now(UTC)
    return timedelta(seconds=wait) if timedelta(seconds=wait) < left else None


def _saved(info: activity.Info) -> tuple[int | None, float]:
    """How many further attempts the policy allows (None: without a limit), and the seconds that it would wait for them.

    Without a limit, the seconds are those that are left of the call's deadline. None and 0 also for the first attempt
    of an activity that the server handed over with its workflow task: the SDK does not know its policy.
    """
    policy, deadline = info.retry_policy, info.schedule_to_close_timeout
    left = (info.scheduled_time + deadline - datetime.now(UTC)).total_seconds() if deadline else None
    if policy is None or not policy.maximum_attempts:
        return None, max(0.0, left or 0.0)
    wait = policy.initial_interval.total_seconds()
    longest = policy.maximum_interval.total_seconds() if policy.maximum_interval else 100 * wait
    waits = 0.0
    for number in range(1, min(policy.maximum_attempts, 1000)):
        waits += wait if number >= info.attempt else 0.0
        wait = min(longest, wait * policy.backoff_coefficient)
    return max(0, policy.maximum_attempts - info.attempt), waits if left is None else min(waits, max(0.0, left))


def _tell(info: activity.Info, fault: Fault, meter: MetricMeter, *, is_dry_run: bool) -> None:
    """Log and count a retry that is skipped; nothing if the policy would have made none."""
    attempts, seconds = _saved(info)
    if attempts == 0:
        return
    is_doubtful = fault.is_transient and fault.applied is Applied.UNKNOWN
    why = "it may have had its effect, and must not have it twice" if is_doubtful else "a retry cannot help"
    values = {
        "tool": info.activity_type,
        "code": fault.code.value,
        "quadrant": fault.quadrant.value,
        "applied": fault.applied.value,
        "attempt": info.attempt,
        "saved_attempts": attempts,
        "saved_seconds": round(seconds, 3),
        "workflow_id": info.workflow_id,
        "run_id": info.workflow_run_id,
        "activity_id": info.activity_id,
        "dry_run": is_dry_run,
    }
    text = " ".join(f"{name}={value}" for name, value in values.items() if value is not None)
    log.warning("%s %s (%s)", SKIPPED, text, why, extra={"event": SKIPPED, **values})
    meter = meter.with_additional_attributes(
        {"tool": info.activity_type, "code": fault.code.value, "dry_run": is_dry_run}
    )
    meter.create_counter("replan_retries_skipped", "Failures that were not retried, since a retry could not help").add(
        1
    )
    if attempts:
        saved = meter.create_counter(
            "replan_attempts_saved", "Attempts that the policies of such failures still allowed"
        )
        saved.add(attempts)
