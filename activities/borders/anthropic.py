"""Anthropic's SDK (`anthropic`): the Fault of each exception, by `error_code` and `type` before class and status.

The SDK raises RateLimitError for a spent limit, too, and BadRequestError for a suspended organisation: the class alone
does not say whether waiting helps.
"""

import functools
from collections.abc import Mapping
from typing import Any

from activities.borders import model_api
from activities.borders.model_api import ModelRow
from activities.borders.table import Table, Verdict, named

PROVIDER = "Anthropic's API"

BY_CODE: Mapping[str, ModelRow] = named(
    (
        model_api.SPENT,
        "contract_spend_limit_reached enforced_spend_limit_reached linked_organization_spend_limit_reached",
    ),
    (model_api.QUOTA, "linked_organization_billing_unavailable storage_quota_exceeded"),
    (model_api.HOLD, "organization_on_hold"),
    (
        model_api.FORBIDDEN,
        "organization_type_not_supported organization_not_enrolled_in_beta parent_organization_required"
        " workspace_policy_violation cmek_key_disabled cmek_key_network_blocked",
    ),
    (model_api.LATE, "request_body_timeout"),
    (model_api.TOO_LONG, "request_body_too_large_after_decoding"),
)
"""Rows (code and reason of a Fault) by `error.details.error_code`; for any other code, BY_WORDS decides."""

BY_TYPE: Mapping[str, ModelRow] = {
    # Without "invalid_request_error": the HTTP status says more than that type.
    "authentication_error": model_api.KEY,
    "billing_error": model_api.QUOTA,
    "permission_error": model_api.FORBIDDEN,
    "not_found_error": model_api.NO_MODEL,
    "request_too_large": model_api.TOO_LONG,
    "rate_limit_error": model_api.SLOW_DOWN,
    "timeout_error": model_api.LATE,
    "api_error": model_api.BROKEN,
    "overloaded_error": model_api.OVERLOADED,
    "conflict_error": model_api.BUSY,
}
"""Rows (code and reason of a Fault) by `error.type`; for any other type, the HTTP status decides."""

BY_WORDS: Mapping[str, ModelRow] = {
    "exceed context limit": model_api.TOO_LONG,
    "does not support the effort parameter": model_api.NO_EFFORT,
    "output_config.effort": model_api.NO_EFFORT,
}
"""Rows (code and reason of a Fault) by a part of the message, for a response with status 400 to 499, or an error in a
stream, whose `error_code` is not in BY_CODE; for any other message, BY_TYPE decides."""


def _by_code_type_and_status(error: Any) -> Verdict:
    by_words = model_api.by_words(BY_WORDS, error.api_message, error.status_code)
    row = BY_CODE.get(error.error_code or "") or by_words or BY_TYPE.get(error.type or "")
    return model_api.by_status(PROVIDER, row, error, error.status_code)


_always = functools.partial(model_api.always, PROVIDER)

TABLE: Table = {
    "anthropic.AnthropicError": _always(model_api.MISUSED),
    "anthropic.APIError": _always(model_api.BROKEN),
    "anthropic.APIStatusError": model_api.by(
        "its code, its type, then its HTTP status",
        PROVIDER,
        [*BY_CODE.values(), *BY_TYPE.values(), *model_api.STATUS.values()],
        _by_code_type_and_status,
    ),
    "anthropic.APIConnectionError": _always(model_api.CUT),
    "anthropic.APITimeoutError": _always(model_api.SILENT),
    "anthropic.APIResponseValidationError": _always(model_api.GARBLED),
    "anthropic.APIWebhookValidationError": _always(model_api.MISUSED),
    "anthropic.RetryableError": _always(model_api.CUT),
    "anthropic.CredentialsError": _always(model_api.KEY),
    "anthropic.lib.credentials._workload.WorkloadIdentityError": _always(model_api.KEY),
    "anthropic._response.MissingStreamClassError": _always(model_api.MISUSED),
}
"""Entries by class of exception; every class with an HTTP status is a subclass of APIStatusError."""
