"""Forms for the shop and its customers: prices, purchases, refunds; find and change a customer."""

import re
from datetime import date
from decimal import ROUND_DOWN, Decimal

from pydantic import JsonValue

from activities.llm.clause import unquoted
from activities.llm.forms.form import IT, THEM, It, Own, Value, Wanted, form, number_or_it
from activities.llm.forms.noun import CUSTOMER, CUSTOMER_ID, CUSTOMER_VERSION, ORDER

_CENT = Decimal("0.01")
_ORDER = r"(?:(?:the|my|our)\s+)?order\s+(?:no\.?\s*|#\s*)?[0-9]{1,9}"
_MONEY = r"(?:EUR\s*|\u20ac\s*)?(?P<most>[0-9]{1,9}(?:\.[0-9]{1,2})?)(?:\s*(?:EUR|euros?|\u20ac))?"
_FIELD = r"e-?mail(?:\s+address)?|phone(?:\s+number)?|name"
_CHANGE = re.compile(rf"(?P<field>{_FIELD})(?:\s+(?:to|is)\b|\s*[:=])?\s+(?P<value>.+)", re.IGNORECASE | re.DOTALL)


def _article(said: str) -> str:
    """A stock code as the shop writes it, or a name as it was written."""
    words = unquoted(said)
    return words.upper() if re.fullmatch(r"[A-Za-z]{1,3}-[0-9]+", words) else words


def _price(found: re.Match[str], _today: date) -> tuple[Wanted, ...]:
    sku = _article(found["sku"])
    return (Wanted("get_price", "price", {"sku": sku}, f"price of {sku}"),)


def _buy(found: re.Match[str], _today: date) -> tuple[Wanted, ...] | None:
    """The most that a piece may cost; what all together may cost is shared out, and never rounded up."""
    quantity = int(found["quantity"] or 1)
    if not quantity:
        return None
    most, sku = Decimal(found["most"]), _article(found["sku"])
    if found["all"]:
        most = (most / quantity).quantize(_CENT, ROUND_DOWN)
    args: dict[str, Value] = {"sku": sku, "quantity": quantity, "at_most": str(most)}
    return (Wanted("purchase", "buy", args, f"{quantity} of {sku} for at most {most} each"),)


def _refund(found: re.Match[str], _today: date) -> tuple[Wanted, ...]:
    order = number_or_it(found["order"], ORDER)
    title = f"refund order {order}" if isinstance(order, int) else "refund {it}"
    return (Wanted("refund", "refund", {"order": order}, title),)


def _list_orders(found: re.Match[str], _today: date) -> tuple[Wanted, ...]:
    sku = _article(found["sku"]) if found["sku"] else ""
    return (Wanted("list_orders", "orders", {"sku": sku} if sku else {}, f"orders of {sku}" if sku else "orders"),)


def _find(found: re.Match[str], _today: date) -> tuple[Wanted, ...] | None:
    query = unquoted(found["query"])
    query = query.upper() if re.fullmatch(CUSTOMER, query.upper()) else query
    return (Wanted("find_customer", "customer", {"query": query}, f"customer {query}"),) if query else None


def _change(found: re.Match[str], _today: date) -> tuple[Wanted, ...] | None:
    """Look first: a change is meant for the version that was seen."""
    changes = _changes(found["changes"])
    if changes is None:
        return None
    title = ", ".join(f"{field} {value}" for field, value in changes.items())
    if not found["id"]:
        which: dict[str, Value] = {"customer": It(CUSTOMER_ID), "version": It(CUSTOMER_VERSION), "changes": changes}
        return (Wanted("update_customer", "update", which, f"{{it}}: {title}"),)
    id = found["id"].upper()
    look = Wanted("find_customer", "customer", {"query": id}, f"customer {id}")
    args: dict[str, Value] = {"customer": id, "version": Own(0, CUSTOMER_VERSION), "changes": changes}
    return (look, Wanted("update_customer", "update", args, f"{id}: {title}"))


def _changes(said: str) -> dict[str, JsonValue] | None:
    """The fields to change; None when one of them cannot be read or stands there twice."""
    changes = dict[str, JsonValue]()
    for part in re.split(rf"(?:\s*,\s*(?:and\s+)?|\s+and\s+)(?:(?:his|her|its|their|the)\s+)?(?=(?:{_FIELD})\b)", said):
        one = _CHANGE.fullmatch(part.strip())
        if one is None:
            return None
        field = one["field"].split()[0].lower().replace("-", "")
        if field in changes or not unquoted(one["value"]):
            return None
        changes[field] = unquoted(one["value"])
    return changes


FORMS = (
    form(
        "get_price",
        "get the price of A-17",
        "get the price of A-17 and calculate 3 * it",
        r"(?:get|check|look\s+up|show(?:\s+me)?|what(?:['\u2019]s|\s+is))\s+(?:the\s+)?price\s+(?:of|for)\s+(?P<sku>.+)",
        _price,
    ),
    form(
        "purchase",
        "buy 2 of A-17 for at most 24.50 [each | in all]",
        "buy 2 of A-17 for at most 24.50 each",
        r"(?:buy|purchase|order)\s+(?:(?P<quantity>[0-9]{1,6})\s+(?:pieces?\s+)?(?:of\s+|x\s+)?)?(?P<sku>\S.*?)\s+"
        rf"(?:for|at)\s+(?:at\s+most|no\s+more\s+than|up\s+to)\s+{_MONEY}"
        r"(?:\s+(?:(?P<each>each|apiece|per\s+piece|a\s+piece)|(?P<all>in\s+all|in\s+total|all\s+together|together)))?",
        _buy,
    ),
    form(
        "refund",
        "refund order 12",
        "buy 1 of A-17 for at most 24.50 then refund it",
        rf"refund\s+(?P<order>{_ORDER}|{IT}|{THEM})",
        _refund,
    ),
    form(
        "list_orders",
        "list the orders [of A-17]",
        "list the orders of A-17",
        r"(?:list|show)(?:\s+(?:me|us))?(?:\s+(?:all|the|my|our|latest))*\s+orders(?:\s+(?:for|of)\s+(?P<sku>.+))?",
        _list_orders,
    ),
    form(
        "find_customer",
        "find customer NAME",
        "find customer Ada Brook",
        r"(?:find|look\s+up|look\s+for)\s+(?:the\s+)?customer\s+(?P<query>.+)",
        _find,
    ),
    form(
        "find_customer update_customer",
        "update customer C-0001: e-mail X [, phone X] [, name X]",
        "update customer C-0001: e-mail ada@mail.example, phone +49 30 1234567",
        rf"(?:update|change)\s+(?:(?:the\s+)?customer\s+(?P<id>{CUSTOMER})|{IT}|(?:the\s+|this\s+|that\s+)customer)"
        rf"(?:['\u2019]s)?(?:\s*[:,]\s*|\s+)(?P<changes>(?:{_FIELD})\b.+)",
        _change,
    ),
)
