"""Stripe, Slack and Redis: the verdict on each exception."""

import re
from collections.abc import Mapping
from dataclasses import replace
from types import FrameType
from typing import Any

from activities.borders import http, service_api as api
from activities.borders.service_api import answered, behind, code_in, field, refused, statuses, unknown, unsent
from activities.borders.table import (
    Cases,
    Proof,
    Row,
    Table,
    Verdict,
    as_words,
    class_names,
    frames,
    named,
    of_module,
    qualified,
)
from activities.borders.waits import wait_of
from workflows.faults.fault import Code

_NOT_ENABLED = refused(Code.FORBIDDEN, "The account may not do this: enable the feature at Stripe.")
_DECLINED = refused(Code.REFUSED, "The payment was declined: use another way to pay, or ask for less.")

STRIPE: Mapping[str, Row] = named(
    (refused(Code.BUSY, "Another request has the object locked."), "lock_timeout"),
    # The request of an earlier attempt still runs, and may take effect.
    (unknown(Code.BUSY, "Another request with this idempotency key is still running."), "idempotency_key_in_use"),
    (api.THROTTLED, "rate_limit"),
    (api.MISSING, "resource_missing not_found"),
    (
        api.CONFLICT,
        "resource_already_exists charge_already_captured charge_already_refunded"
        " charge_disputed bank_account_exists payment_intent_unexpected_state"
        " setup_intent_unexpected_state payment_method_unexpected_state",
    ),
    (api.CREDENTIALS, "api_key_expired platform_api_key_expired secret_key_required publishable_key_not_allowed"),
    (api.FORBIDDEN, "account_invalid livemode_mismatch testmode_charges_only account_closed"),
    (_DECLINED, "balance_insufficient insufficient_funds card_declined expired_card incorrect_cvc"),
)
"""Rows by Stripe's error code (https://docs.stripe.com/error-codes); for any other code the class decides."""

_STRIPE_CLASSES: tuple[tuple[Row, str], ...] = (
    (api.THROTTLED, "RateLimitError"),
    (_DECLINED, "CardError InsufficientFundsError"),
    (
        api.INVALID,
        "InvalidRequestError InvalidPaymentMethodError InvalidPayoutMethodError InvalidVaultedCredentialError",
    ),
    (api.CREDENTIALS, "AuthenticationError"),
    (api.FORBIDDEN, "PermissionError"),
    # This request did nothing: its key belongs to an earlier one, which had other arguments.
    (refused(Code.CONFLICT, "The idempotency key was used before with other arguments."), "IdempotencyError"),
    (
        api.CONFLICT,
        "AlreadyCanceledError NotCancelableError ControlledByAlternateResourceError FinancialAccountNotOpenError",
    ),
    (
        api.REJECTED,
        "BlockedByStripeError CannotProceedError RecipientNotNotifiableError VerificationAttemptFailedError",
    ),
    (_NOT_ENABLED, "CapabilityNotEnabledError FeatureNotEnabledError"),
    (api.STALE, "FxQuoteNeedsRefreshError VerificationNotInitiatedError"),
    (refused(Code.GONE, "It has expired: begin it anew."), "TemporarySessionExpiredError VerificationExpiredError"),
    (api.QUOTA, "QuotaExceededError"),
)
_STRIPE_OAUTH: tuple[tuple[Row, str], ...] = (
    (api.CREDENTIALS, "OAuthError InvalidClientError"),
    (api.INVALID, "InvalidGrantError InvalidRequestError InvalidScopeError"),
    (api.UNSUPPORTED, "UnsupportedGrantTypeError UnsupportedResponseTypeError"),
)


def _stripe(otherwise: Row, *, by_status: bool = False) -> Cases:
    """The entry for a class of Stripe's errors: by code, else (with `by_status`) by HTTP status, else `otherwise`."""

    def decide(error: Any) -> Verdict | None:
        body = field(error.json_body, "error")
        code = code_in(error.code) or code_in(field(body, "code"))  # the client leaves the code of some classes out
        row, status = STRIPE.get(code, otherwise), error.http_status
        if row is otherwise and by_status and isinstance(status, int):
            row = api.UNREADABLE if status < 300 else http.by_status(status)
        if status == 404 and row is api.INVALID:
            row = api.MISSING
        codes = {
            "code": code,
            "decline_code": code_in(field(body, "decline_code")),
            "reason": code_in(field(error, "reason")),
        }
        observed = {name: value for name, value in codes.items() if value} or None
        called = code or type(error).__name__
        verdict = answered("Stripe answered with", called, row, observed, wait_of(error.headers))
        return replace(verdict, words=as_words(field(body, "message") or field(error, "user_message")))

    return Cases("its code", {**STRIPE, **(statuses(http.by_status) if by_status else {})}, decide, otherwise)


_STRIPE_TABLE: Table = {
    **of_module(
        "stripe._error",
        # Its retries keep the idempotency key, but the final one tells nothing about those before it.
        (unknown(Code.UNREACHABLE, "Stripe cannot be reached, or the connection broke."), "APIConnectionError"),
        *((_stripe(row), names) for row, names in _STRIPE_CLASSES),
        # For 409 and 5xx, and for what is no answer of Stripe; 5xx leaves the effect open.
        (_stripe(api.FAILED, by_status=True), "APIError"),
        (_stripe(api.NO_CODE, by_status=True), "StripeError StripeErrorWithParamCode"),
        (
            unsent(Code.UNAUTHORIZED, "The signature of the webhook does not fit: check its secret."),
            "SignatureVerificationError",
        ),
    ),
    **of_module("stripe.oauth_error", *((_stripe(row), names) for row, names in _STRIPE_OAUTH)),
}


SLACK: Mapping[str, Row] = named(
    (api.THROTTLED, "ratelimited rate_limited message_limit_exceeded"),
    # https://api.slack.com/methods: "some aspect of the operation may have succeeded before the error".
    (unknown(Code.SERVER_ERROR, "Slack failed, and may have done a part of it."), "internal_error fatal_error"),
    (unknown(Code.SERVER_ERROR, "Slack is not available at the moment."), "service_unavailable"),
    (unknown(Code.TIMEOUT, "The request did not arrive at Slack in time."), "request_timeout"),
    (refused(Code.BUSY, "Slack changes the team or the conversation at the moment."), "team_added_to_org"),
    (
        api.CREDENTIALS,
        "invalid_auth not_authed account_inactive token_revoked token_expired invalid_refresh_token"
        " two_factor_setup_required",
    ),
    (
        api.FORBIDDEN,
        "missing_scope no_permission not_allowed_token_type access_denied ekm_access_denied restricted_action"
        " restricted_action_read_only_channel restricted_action_thread_only_channel team_access_not_granted"
        " org_login_required not_authorized cannot_dm_bot user_is_restricted user_is_ultra_restricted",
    ),
    (
        api.MISSING,
        "channel_not_found user_not_found users_not_found message_not_found file_not_found thread_not_found"
        " team_not_found no_reaction not_pinned usergroup_not_found bot_not_found file_comment_not_found",
    ),
    (
        api.CONFLICT,
        "not_in_channel is_archived already_archived not_archived already_in_channel cant_invite_self name_taken"
        " already_reacted already_pinned edit_window_closed cant_update_message cant_delete_message"
        " method_not_supported_for_channel_type duplicate_message_not_found duplicate_channel_not_found"
        " last_member cant_leave_general",
    ),
    (
        refused(Code.INVALID_INPUT, "Slack does not accept these values: change the arguments."),
        "msg_too_long no_text too_many_attachments invalid_arguments invalid_arg_name invalid_blocks"
        " invalid_blocks_format invalid_attachments invalid_name invalid_name_required invalid_name_specials"
        " invalid_name_maxlength invalid_name_punctuation invalid_time time_in_past time_too_far invalid_cursor"
        " invalid_limit invalid_ts_latest invalid_ts_oldest invalid_users too_many_users bad_timestamp",
    ),
    (
        api.UNSUPPORTED,
        "invalid_array_arg invalid_charset invalid_form_data invalid_post_type invalid_json json_not_object"
        " missing_post_type unknown_method method_deprecated deprecated_endpoint missing_charset",
    ),
    (api.QUOTA, "over_pagination_limit storage_limit_reached too_many_members"),
)
"""Rows by Slack's error code (https://api.slack.com/methods), which Slack sends in an answer with status 200."""


def _by_slack_code(error: Any) -> Verdict:
    response = error.response
    code = code_in(field(response, "data", "error")) or code_in(field(response, "error"))
    status = field(response, "status_code")
    row = SLACK.get(code)
    if row is None:
        is_failure = isinstance(status, int) and status >= 400
        row = api.by_status(status) if is_failure else _SLACK_REJECTED
    known = {"error": code} if code else None
    said = code or f"status {status if isinstance(status, int) else 'unknown'}"
    return answered("Slack answered with", said, row, known, wait_of(field(response, "headers")))


# It may be of a method that does several things.
_SLACK_REJECTED = replace(api.REJECTED, proves=Proof.UNKNOWN)
_SLACK_TABLE: Table = of_module(
    "slack_sdk.errors",
    (Cases("its error code", {**SLACK, **statuses()}, _by_slack_code, _SLACK_REJECTED), "SlackApiError"),
    (
        unsent(Code.UNAUTHORIZED, "The token of Slack could not be renewed: install the app again."),
        "SlackTokenRotationError",
    ),
    (unsent(Code.UNREACHABLE, "The connection to Slack is closed; nothing was sent."), "SlackClientNotConnectedError"),
    (
        api.CLIENT_BUG_UNSENT,
        "BotUserAccessError SlackRequestError SlackObjectFormationError SlackClientConfigurationError",
    ),
    (api.CLIENT_BUG, "SlackClientError"),
)


REDIS: Mapping[str, Row] = {
    "BUSY": refused(Code.BUSY, "Redis runs a script at the moment."),
    "LOADING": refused(Code.BUSY, "Redis loads its data at the moment."),
    "INPROG": api.BUSY,
    "TRYAGAIN": refused(Code.BUSY, "The cluster moves these keys at the moment."),
    "WRONGTYPE": refused(Code.CONFLICT, "The key holds another type of value: choose another key."),
    "BUSYKEY": refused(Code.CONFLICT, "The key exists already: choose another one."),
    "BUSYGROUP": refused(Code.CONFLICT, "The consumer group exists already."),
    "NOGROUP": refused(Code.NOT_FOUND, "There is no such consumer group or stream: create it first."),
    "NOREPLICAS": refused(Code.UNREACHABLE, "Redis has too few replicas to accept a write."),
    "MISCONF": refused(Code.NEEDS_PERSON, "Redis cannot save its data, so it accepts no write: check its disk."),
    "DENIED": refused(Code.FORBIDDEN, "Redis accepts only connections from its own machine: configure it."),
    "NOPERM": api.FORBIDDEN,
    "NOAUTH": api.CREDENTIALS,
    "UNBLOCKED": unknown(Code.UNREACHABLE, "The instance changed its role during the call."),
    "IOERR": unknown(Code.TIMEOUT, "The other instance did not answer Redis in time."),
}
"""Rows by the error code with which an answer of Redis begins."""

_OF_SEVERAL = "in a pipeline or a script, or after a retry"
_SCRIPTS = frozenset({"EVAL", "EVALSHA", "FCALL", "EXEC"})
"""Commands of several steps: when a step fails, Redis does not roll back the steps before."""


def _redis(row: Row, codes: Mapping[str, Row] = {}) -> Cases:
    """The entry for an answer of Redis: by its code if that is in `codes`, else `row`."""

    def decide(error: Any) -> Verdict | None:
        first = str(error.args[0]).partition(" ")[0] if error.args else ""
        code = first if first in codes else code_in(field(error, "status_code"))
        verdict = codes.get(code, row).verdict()
        # redis-py puts the command of a pipeline there; others of them may have been done
        return verdict if first != "Command" and _is_alone(error) else replace(verdict, proves=Proof.UNKNOWN)

    return Cases("its error code", {**codes, _OF_SEVERAL: replace(row, proves=Proof.UNKNOWN)}, decide, row)


def _is_alone(error: Any) -> bool:
    """Whether Redis answered a single command of one step, which the client sent once.

    Only the functions through which the exception came show this: an exception that a tool takes out of the results of
    a pipeline or a script, or that another process has sent, proves nothing.
    """
    passed = [frame for _, frame in frames(error, "redis")]
    is_raised = any(frame.f_code.co_name.endswith("execute_command") for frame in passed)
    return is_raised and not any(_is_script(frame) or _is_retry(frame, error) for frame in passed)


def _is_script(frame: FrameType) -> bool:
    command = frame.f_locals.get("command_name") or frame.f_locals.get("command")
    name = command.decode(errors="replace") if isinstance(command, bytes) else command
    return isinstance(name, str) and name.upper() in _SCRIPTS


def _is_retry(frame: FrameType, error: Any) -> bool:
    """Whether the function of `frame` repeats a command after a lost connection, and had sent the command before."""
    failures = frame.f_locals.get("failures") if frame.f_code.co_name == "call_with_retry" else None
    is_one_itself = "redis.exceptions.ConnectionError" in class_names(type(error))
    return isinstance(failures, int) and failures > is_one_itself


def _redis_connection(row: Row) -> Cases:
    """The entry for a lost connection: no command was sent if the client was still waiting for a connection."""
    unsent = replace(row, proves=Proof.NOT_SENT, reason="No connection to Redis could be made; nothing was sent.")

    def decide(error: Any) -> Verdict | None:
        if type(error).__name__ == "ConnectionError" and field(error, "status_code") == "ERR":
            return _REDIS_FULL.verdict()
        names = _modules_and_functions(error)
        # A retry connects anew without the pool; the client of a cluster or of several databases may ask a second one.
        if "get_connection" not in names or any(re.search("cluster|multidb", name) for name in names):
            return row.verdict()
        waited = row.code is Code.UNREACHABLE and any(map(_is_waited, behind(error)))
        return (_REDIS_NO_CONNECTION if waited else unsent).verdict()

    rows = {"no connection": unsent, "no free connection": _REDIS_NO_CONNECTION, "too many clients": _REDIS_FULL}
    return Cases("whether there was a connection", rows, decide, row)


def _is_waited(error: BaseException) -> bool:
    """Whether an exception reports that no connection of a pool became free; a timeout of the network has an errno."""
    return qualified(type(error)) == "_queue.Empty" or (isinstance(error, TimeoutError) and error.errno is None)


def _modules_and_functions(error: BaseException) -> set[str]:
    return {name for module, frame in frames(error, "redis") for name in (module, frame.f_code.co_name)}


def _redis_lock(error: Any) -> Verdict | None:
    """The verdict on a LockError: the lock was not free if `with` raised the error; None if anything else did."""
    return _LOCKED.verdict() if {"__enter__", "__aenter__"} & _modules_and_functions(error) else None


def _redis_cluster(error: Any) -> Verdict | None:
    """The verdict on an error of a cluster to which a connection failed; None for any other error."""
    down = any(
        qualified(type(exception)).startswith(("redis.exceptions.ConnectionError", "redis.exceptions.TimeoutError"))
        or isinstance(exception, OSError)
        for exception in behind(error)
    )
    return _CLUSTER_DOWN.verdict() if down else None


def _by_redis_http_status(error: Any) -> Verdict | None:
    status = error.status
    return answered("Redis Enterprise answered with", f"HTTP {status}", api.by_status(status)) if status else None


_REDIS_FULL = refused(Code.BUSY, "Redis has as many clients as it accepts.")
_REDIS_NO_CONNECTION = unsent(Code.BUSY, "All connections of the pool are in use; nothing was sent.")
_LOCKED = unsent(Code.BUSY, "The lock was not free in time; nothing was done.")
_CLUSTER_DOWN = unknown(Code.UNREACHABLE, "The Redis cluster cannot be reached, or lacks a node.")
_OUT_OF_DATE = refused(Code.UNREACHABLE, "The instance lost its primary, or became a replica.")

_REDIS_LOST = _redis_connection(unknown(Code.UNREACHABLE, "The connection to Redis broke."))

_REDIS_TABLE: Table = {
    **of_module(
        "redis.exceptions",
        (_REDIS_LOST, "ConnectionError"),
        (_redis_connection(unknown(Code.TIMEOUT, "Redis did not answer in time.")), "TimeoutError"),
        (_REDIS_NO_CONNECTION, "MaxConnectionsError"),
        (_redis(unknown(Code.BUG, "Redis rejected the command: fix the tool."), REDIS), "ResponseError"),
        (_redis(REDIS["LOADING"]), "BusyLoadingError"),
        # A replica after a failover: the next connection finds the primary.
        (_redis(_OUT_OF_DATE), "ReadOnlyError ClusterDownError MasterDownError"),
        (_redis(api.CREDENTIALS), "AuthenticationError AuthenticationWrongNumberOfArgsError"),
        (_redis(api.FORBIDDEN), "AuthorizationError NoPermissionError"),
        (
            _redis(refused(Code.UNREACHABLE, "The service by which Redis checks credentials is down.")),
            "ExternalAuthProviderError",
        ),
        (
            _redis(refused(Code.QUOTA_EXHAUSTED, "The memory of Redis is full: free some, or raise the limit.")),
            "OutOfMemoryError",
        ),
        (_redis(refused(Code.BUG, "Redis does not know the script: let the tool load it.")), "NoScriptError"),
        # Nothing of the transaction was done.
        (refused(Code.BUSY, "A watched key was changed by another call at the same time."), "WatchError"),
        (refused(Code.BUG, "A command of the transaction is wrong: fix the tool."), "ExecAbortError"),
        (_redis(REDIS["TRYAGAIN"]), "TryAgainError AskError NoSuchFieldsetError"),
        (_redis(refused(Code.BUG, "This is a cluster: use the cluster client.")), "MovedError"),
        (_redis(refused(Code.BUG, "The keys are in several slots: give them one hash tag.")), "ClusterCrossSlotError"),
        (_redis(refused(Code.BUG, "The module of Redis rejected the command: fix the tool.")), "ModuleError"),
        (Cases("where it was raised", {"with lock": _LOCKED}, _redis_lock, api.CLIENT_BUG), "LockError"),
        # The lock ended before the work under it did.
        (unknown(Code.BUSY, "The lock expired too early: give it a longer timeout."), "LockNotOwnedError"),
        (api.UNREADABLE, "InvalidResponse InvalidPipelineStack"),
        (api.CLIENT_BUG_UNSENT, "DataError ChildDeadlockedError CrossSlotTransactionError IncorrectPolicyType"),
        (api.CLIENT_BUG, "RedisError PubSubError"),
        (
            Cases("whether a connection failed", {"it failed": _CLUSTER_DOWN}, _redis_cluster, api.CLIENT_BUG),
            "RedisClusterException",
        ),
        (_CLUSTER_DOWN, "ClusterError SlotNotCoveredError"),
    ),
    **of_module(
        "redis.auth.err",
        (
            unsent(Code.UNAUTHORIZED, "No token for Redis could be had: check the credentials."),
            "RequestTokenErr InvalidTokenSchemaErr TokenRenewalErr",
        ),
    ),
    **of_module("redis.sentinel", (_REDIS_LOST, "MasterNotFoundError SlaveNotFoundError")),
    **of_module("redis.asyncio.sentinel", (_REDIS_LOST, "MasterNotFoundError SlaveNotFoundError")),
    "redis.event.EventException": unknown(Code.UNAUTHORIZED, "The token for Redis could not be renewed."),
    "redis.http.http_client.HttpError": Cases("its HTTP status", statuses(), _by_redis_http_status, api.FAILED),
    **of_module(
        "redis.multidb.exception",
        (
            _CLUSTER_DOWN,
            "NoValidDatabaseException UnhealthyDatabaseException TemporaryUnavailableException"
            " InitialHealthCheckFailedError",
        ),
    ),
}


TABLE: Table = {**_STRIPE_TABLE, **_SLACK_TABLE, **_REDIS_TABLE}
