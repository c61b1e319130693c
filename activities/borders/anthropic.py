"""Anthropic's SDK (`anthropic`): the Fault of each exception, by what the server answered before its class.

The SDK raises RateLimitError for a spent limit, too, and BadRequestError for a suspended organisation: the class alone
does not say whether waiting helps.
"""

import functools

from activities.borders import model_api
from activities.borders.model_errors import Meaning
from activities.borders.table import Table

PROVIDER = "Anthropic's API"

_always = functools.partial(model_api.always, PROVIDER)

TABLE: Table = {
    "anthropic.AnthropicError": _always(Meaning.MISUSED),
    "anthropic.APIError": _always(Meaning.BROKEN),
    "anthropic.APIStatusError": model_api.by_answer(PROVIDER),
    "anthropic.APIConnectionError": _always(Meaning.CUT),
    "anthropic.APITimeoutError": _always(Meaning.SILENT),
    "anthropic.APIResponseValidationError": _always(Meaning.GARBLED),
    "anthropic.APIWebhookValidationError": _always(Meaning.MISUSED),
    "anthropic.RetryableError": _always(Meaning.CUT),
    "anthropic.CredentialsError": _always(Meaning.KEY),
    "anthropic.lib.credentials._workload.WorkloadIdentityError": _always(Meaning.KEY),
    "anthropic._response.MissingStreamClassError": _always(Meaning.MISUSED),
}
"""Entries by class of exception; every class with an HTTP status is a subclass of APIStatusError."""
