"""OpenAI's SDK (`openai`): the Fault of each exception, by `code` and `type` before class and status.

The SDK raises RateLimitError for a used-up quota, too, and BadRequestError for a conversation that is too long: the
class alone does not say whether waiting helps.
"""

import re
from collections.abc import Mapping
from typing import Any

from activities.borders import model_api
from activities.borders.model_api import ModelRow
from activities.borders.table import Entry, Table, Verdict

PROVIDER = "OpenAI's API"

BY_CODE: Mapping[str, ModelRow] = {
    "insufficient_quota": model_api.QUOTA,
    "billing_not_active": model_api.QUOTA,
    "billing_hard_limit_reached": model_api.SPENT,
    "invalid_api_key": model_api.KEY,
    "invalid_organization": model_api.KEY,
    "mismatched_organization": model_api.KEY,
    "account_deactivated": model_api.HOLD,
    "access_terminated": model_api.HOLD,
    "unsupported_country_region_territory": model_api.FORBIDDEN,
    "model_not_found": model_api.NO_MODEL,
    "context_length_exceeded": model_api.TOO_LONG,
    "string_above_max_length": model_api.TOO_LONG,
    "rate_limit_exceeded": model_api.SLOW_DOWN,
    "content_filter": model_api.FILTERED,
    "content_policy_violation": model_api.FILTERED,
    "server_error": model_api.BROKEN,
    "invalid_encrypted_content": model_api.ENCRYPTED,
    "data_residency_mismatch": model_api.RESIDENCY,
    "budget_exceeded": model_api.SPENT,  # LiteLLM
    "exceed_context_size_error": model_api.TOO_LONG,  # llama.cpp
    "vector_store_timeout": model_api.LATE,
    **dict.fromkeys(
        ("invalid_prompt", "bio_policy", "misalignment_policy_violation", "image_content_policy_violation"),
        model_api.FILTERED,
    ),
    **dict.fromkeys(
        (
            "empty_image_file",
            "failed_to_download_image",
            "image_file_not_found",
            "image_file_too_large",
            "image_parse_error",
            "image_too_large",
            "image_too_small",
            "invalid_base64_image",
            "invalid_image",
            "invalid_image_format",
            "invalid_image_mode",
            "invalid_image_url",
            "unsupported_image_media_type",
        ),
        model_api.OURS,  # Replan sends no images
    ),
}
"""Rows (code and reason of a Fault) by the `code` of an error, in a response with an error's status, or in a response
that reports `failed`; for any other code, BY_WORDS decides, then the error's `type`."""

BY_WORDS: Mapping[str, ModelRow] = {
    "use /v1/responses": model_api.OTHER_WIRE,
    "only supported in v1/responses": model_api.OTHER_WIRE,
    "'reasoning.effort'": model_api.NO_EFFORT,
    "'reasoning_effort'": model_api.NO_EFFORT,
}
"""Rows (code and reason of a Fault) by a part of the message, for a response with status 400 to 499, or an error in a
stream, whose `error.code` is not in BY_CODE."""
HTTP_ERROR = re.compile("[45][0-9]{2}")
INVALID_REQUEST = "invalid_request_error"
"""The type of an error for which an answer has the status 400."""


def _judge(error: Any) -> Verdict:
    code, type = (str(value) if isinstance(value, str | int) else "" for value in (error.code, error.type))
    # An event of a stream that began with 200 has no status, but gateways and vLLM send it as the code.
    status = getattr(error, "status_code", None) or (int(code) if HTTP_ERROR.fullmatch(code) else 0)
    status = status or (400 if type == INVALID_REQUEST else 0)
    row = BY_CODE.get(code) or model_api.by_words(BY_WORDS, error.message, status) or BY_CODE.get(type)
    if not status:
        return model_api.verdict(PROVIDER, row or model_api.BROKEN, error)
    return model_api.by_status(PROVIDER, row, error, status)


def _always(row: ModelRow) -> Entry:
    return model_api.always(PROVIDER, row)


TABLE: Table = {
    "openai.OpenAIError": _always(model_api.MISUSED),
    "openai.APIError": model_api.by(
        "its code, then its type", PROVIDER, [*BY_CODE.values(), *model_api.STATUS.values()], _judge
    ),
    "openai.APIStatusError": model_api.by(
        "its code, its type, then its HTTP status", PROVIDER, [*BY_CODE.values(), *model_api.STATUS.values()], _judge
    ),
    "openai.OAuthError": _always(model_api.KEY),
    "openai.APIConnectionError": _always(model_api.CUT),
    "openai.APITimeoutError": _always(model_api.SILENT),
    "openai.APIResponseValidationError": _always(model_api.GARBLED),
    "openai.LengthFinishReasonError": _always(model_api.MISUSED),
    "openai.ContentFilterFinishReasonError": _always(model_api.MISUSED),
    "openai.InvalidWebhookSignatureError": _always(model_api.MISUSED),
    "openai.WebSocketConnectionClosedError": _always(model_api.CUT),
    "openai.WebSocketQueueFullError": _always(model_api.MISUSED),
    "openai._exceptions.SubjectTokenProviderError": _always(model_api.KEY),
    "openai._response.MissingStreamClassError": _always(model_api.MISUSED),
    "openai._legacy_response.MissingStreamClassError": _always(model_api.MISUSED),
}
"""Entries by class of exception; every class with an HTTP status is a subclass of APIStatusError."""
