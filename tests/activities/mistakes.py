"""Mistakes that authors of tools make, each with the sentence that a worker says."""

from activities.toolbox.injection import INJECTABLE

HEADER = '''
import httpx2
from pydantic import BaseModel

from replan import Transaction, tool


class Slot(BaseModel):
    day: str


class Free(BaseModel):
    free: list[str]


async def helper(args: Slot) -> Free:
    """Be no tool."""


@tool.read
async def look(args: Slot) -> Free:
    """See what is free."""


@tool.idempotent
async def write(args: Slot) -> Free:
    """Change something."""

'''


def tool(
    name: str, decorator: str, rest: str = "(args: Slot) -> Free", doc: str = "Book.", how: str = "async def"
) -> str:
    """The source of one tool."""
    return f'\n{decorator}\n{how} {name}{rest}:\n    """{doc}"""\n'


PLANTED = {
    tool("bare", "@tool"): "bare: a bare @tool does not say what a call changes: "
    "use one of tool.pure, tool.read, tool.idempotent, tool.keyed, tool.transactional, tool.unkeyed.",
    tool("reading", "@tool.reed(timeout=5)"): "reading: there is no decorator @tool.reed: did you mean read or keyed?: "
    "use one of tool.pure, tool.read, tool.idempotent, tool.keyed, tool.transactional, tool.unkeyed.",
    tool("silent", "@tool.read", doc=" "): "silent: there is no docstring: "
    "say in one sentence what the tool does, for the planner.",
    tool("loose", "@tool.read", "(day: str) -> Free"): "loose: the first parameter must be one pydantic model: "
    "def loose(args: MyArguments, ...).",
    tool("typo", "@tool.read", "(args: 'Slott') -> Free"): "typo: an annotation cannot be resolved "
    "(name 'Slott' is not defined): import what it names.",
    tool("mute", "@tool.read", "(args: Slot)"): "mute: the result has no type: "
    "annotate it, e.g. -> Price (a pydantic model).",
    tool("extra", "@tool.read", "(args: Slot, limit: int) -> Free"): "extra: parameter 'limit': unsupported type; "
    f"use one of {', '.join(INJECTABLE.values())}.",
    tool("dry", "@tool.transactional"): "dry: a @tool.transactional must take a Transaction: "
    "add a parameter tx: Transaction.",
    tool(
        "threaded", "@tool.read", "(args: Slot, http: httpx2.AsyncClient) -> Free", how="def"
    ): "threaded: a plain def runs in a thread and cannot use 'http': write async def.",
    tool("often", "@tool.read(retry='often')"): "often: retry='often' must be one of standard, patient, once.",
    tool("twice", "@tool.idempotent(requests=2)"): "twice: requests=2 must be 1, or left out.",
    tool("hasty", "@tool.read(limit='10/day')"): "hasty: limit='10/day' must be e.g. '10/s', '300/min' or '1000/h', at "
    "most 1000 calls.",
    tool(
        "secret", "@tool.read(credential='Bearer x')"
    ): "secret: credential='Bearer x' must be a name of up to 80 letters, digits, and . _ -.",
    tool(
        "endless", "@tool.read(breaker=None, limit='10/s')"
    ): "endless: limit= has a meaning only with a breaker: leave it out, or breaker=None.",
    tool("asking", "@tool.read(requests=1)"): "asking: requests= is for tools whose effect leaves by a request: "
    "leave it out.",
    tool("looker", "@tool.read(observe=write)"): "looker: observe=write must be a @tool.read: "
    "observing must change nothing.",
    tool("falling", "@tool.read(fallback=helper)"): "falling: fallback=helper is no tool: "
    "decorate it, e.g. with @tool.read.",
    tool("optional", "@tool.read(retries=3)"): "optional: there is no option 'retries': did you mean retry or "
    "raises?: use one of observe, reconcile, settle, undo, fallback, ensure, approve, raises, requests, retry, "
    "timeout, datasource, untrusted, authority, content, tokens, tokens_overhead, enforces_timeout, "
    "breaker, service, credential, limit.",
    tool("risky", "@tool.read(fallback=write)"): "risky: fallback=write changes something, "
    "and a @tool.read must not: name another @tool.read.",
    tool("counted", "@tool.read(ensure='result.free.count() > 0')"): "counted: ensure='result.free.count() > 0' "
    "is no condition: there is no method 'count': use comparisons, in, and abs, len, max, min, round, sqrt.",
    tool("guessing", "@tool.idempotent(reconcile=write)"): "guessing: reconcile=write must be a @tool.read: "
    "observing must change nothing.",
    tool(
        "elsewhere", "@tool.transactional(datasource='sqlite:///bank.db')", "(args: Slot, tx: Transaction) -> Free"
    ): "elsewhere: datasource= is of type str, not an AsyncEngine: use create_async_engine(URL).",
    tool("amiss", "@tool.read(ensure='len(result.fre) > 0')"): "amiss: ensure reads 'result.fre': "
    "did you mean free?: Free has ['free'].",
    tool("approved", "@tool.read(approve='args.dey > 5')"): "approved: approve reads 'args.dey': did you mean day?: "
    "Slot has ['day'].",
    tool("sometimes", "@tool.read(approve='sometimes')"): "sometimes: approve reads 'sometimes': write args.sometimes.",
    tool("constant", "@tool.read(approve='1 > 0')"): "constant: approve='1 > 0' does not use the arguments: write "
    "'always', 'never', or compare something of args.",
    tool("approving", "@tool.read(approve=True)"): "approving: approve=True must be 'never', 'always' or a condition, "
    "e.g. 'args.amount > 500'.",
    tool("greedy", "@tool.read(raises={Exception: 'refused'})"): "greedy: raises= names Exception, which is every "
    "error, also of a bug: name the classes of the library.",
    tool("paid", "@tool.read(raises={4002: 'conflict'})"): "paid: raises= has the key 4002, which is no HTTP status of "
    "an error: did you mean 402 or 400?: write a number from 400 to 599.",
    tool("spelt", "@tool.read(raises={OSError: 'conflit'})"): "spelt: raises= OSError: there is no code 'conflit' for "
    "a tool: did you mean conflict?: use one of bug, busy, conflict, forbidden, gone, invalid_input, "
    "malformed_schema, needs_person, no_results, not_found, overloaded, precondition_failed, quota_exhausted, "
    "rate_limited, refused, server_error, timeout, too_large, unauthorized, unexpected_result, unreachable.",
    tool(
        "unstopped", "@tool.unkeyed(reconcile=look, timeout=20)", how="def"
    ): "unstopped: a plain def runs on after its "
    "timeout, so reconcile= may look too early: write async def, or give its client a timeout below 20 s and say "
    "enforces_timeout=True.",
    tool("stopped", "@tool.unkeyed(enforces_timeout=True)"): "stopped: enforces_timeout= is for a plain def; "
    "an async def is stopped at its timeout: leave it out.",
    tool(
        "unsure", "@tool.idempotent(enforces_timeout='yes')", how="def"
    ): "unsure: enforces_timeout='yes' must be True or False.",
    tool("fused", "@tool.read(breaker=5)"): "fused: breaker=5 must be None for no circuit breaker, or "
    "CircuitBreaker(failures=3, calls=2, recovery=5, trials=2): whole numbers of 1 or more, and seconds above 0, "
    "at most a day.",
}
"""Source and sentence, in the order of the file."""
