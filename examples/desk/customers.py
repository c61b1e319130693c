"""The customers: `find_customer`, and `update_customer`, which never overwrites a change made by somebody else."""

import re
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints
from sqlalchemy import Column, ColumnElement, Integer, String, Table, and_, case, exists, func, or_, select, update

from examples.desk.near import near
from replan import Refused, Transaction, metadata, tool

CUSTOMERS = Table(
    "customers",
    metadata,
    Column("id", String(20), primary_key=True),
    Column("name", String(80), nullable=False),
    Column("email", String(254), nullable=False),
    Column("phone", String(40), nullable=False),
    Column("version", Integer, nullable=False, server_default="1"),
)
"""The customers; `version` counts the changes of a customer."""

MAX_FOUND = 10


class Query(BaseModel):
    """Whom to look for."""

    query: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120)] = Field(
        description="Words of the name or e-mail address, or the id, e.g. Ada Lovelace"
    )


class Customer(BaseModel, from_attributes=True):
    """A customer as stored now."""

    id: str
    name: str
    email: str
    phone: str
    version: int
    """A number that grows with each change of the customer."""


class Customers(BaseModel):
    """The best matches first."""

    customers: list[Customer]
    more: bool = False
    """Whether more customers match than are returned."""


class Changes(BaseModel, extra="forbid"):
    """The new values; fields that are left out stay as they are."""

    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=80)] | None = None
    email: str | None = Field(default=None, max_length=254)
    phone: str | None = Field(default=None, max_length=40)


class Update(BaseModel):
    """Which customer, as last seen, and what to change."""

    customer: str = Field(description="The id of the customer, e.g. C-0001", max_length=20)
    version: int = Field(
        description="The version that the change is meant for, as find_customer showed it", ge=1, lt=2**31
    )
    changes: Changes


@tool.read
async def find_customer(args: Query, tx: Transaction) -> Customers:
    """Find customers by name, e-mail address or id; returns each with the version that update_customer needs."""
    query = select(CUSTOMERS).where(_fits(args.query)).order_by(_rank(args.query), CUSTOMERS.c.name, CUSTOMERS.c.id)
    found = [Customer.model_validate(row) for row in await tx.execute(query.limit(MAX_FOUND + 1))]
    if not found:
        reason = "No customer has all these words in name or e-mail address: use fewer, or another spelling."
        raise Refused(reason, code="no_results", observed={"near": await _near(args.query, tx)})
    return Customers(customers=found[:MAX_FOUND], more=len(found) > MAX_FOUND)


@tool.transactional(observe=find_customer.using(query="args.customer"))
async def update_customer(args: Update, tx: Transaction) -> Customer:
    """Change name, e-mail address or phone number of a customer, unless somebody changed the customer since."""
    changes = _checked(args.changes)
    is_unchanged = (CUSTOMERS.c.id == args.customer) & (CUSTOMERS.c.version == args.version)
    change = update(CUSTOMERS).where(is_unchanged).values(**changes, version=CUSTOMERS.c.version + 1)
    row = (await tx.execute(change.returning(CUSTOMERS))).one_or_none()
    if row is None:
        raise await _changed_since(args, tx)
    return Customer.model_validate(row)


async def require(id: str | None, tx: Transaction) -> None:
    """Raise Refused if there is no customer `id`; an id of None is allowed."""
    # Customers are never deleted, so the answer stays true until the transaction commits.
    if id is not None and not await tx.scalar(select(exists().where(CUSTOMERS.c.id == id))):
        raise await _unknown(id, tx)


def _fits(query: str) -> ColumnElement[bool]:
    words = [
        or_(CUSTOMERS.c.name.icontains(word, autoescape=True), CUSTOMERS.c.email.icontains(word, autoescape=True))
        for word in query.split()
    ]
    return or_(CUSTOMERS.c.id == query, and_(*words))


def _rank(query: str) -> ColumnElement[int]:
    name, email = func.lower(CUSTOMERS.c.name), func.lower(CUSTOMERS.c.email)
    is_exact = or_(CUSTOMERS.c.id == query, name == func.lower(query), email == func.lower(query))
    return case((is_exact, 0), (CUSTOMERS.c.name.istartswith(query, autoescape=True), 1), else_=2)


_RULES = {
    "email": (re.compile(r"[^@\s]+@[^@\s.]+(?:\.[^@\s.]+)+"), "an address such as ada@mail.example"),
    "phone": (re.compile(r"\+?[0-9][0-9 ()/-]*"), "digits, with + before the country, e.g. +49 30 1234567"),
}
"""For each field with a rule stricter than its schema: the pattern, and its description for messages."""


def _checked(changes: Changes) -> dict[str, str]:
    fields: dict[str, str] = changes.model_dump(exclude_none=True)
    for field, (pattern, expected) in _RULES.items():
        if field in fields and not pattern.fullmatch(fields[field]):
            raise _unusable(field, expected)
    if not fields:
        raise _unusable("changes", f"at least one of {', '.join(Changes.model_fields)}")
    return fields


def _unusable(field: str, expected: str) -> Refused:
    observed = {"field": field, "expected": expected}
    return Refused(f"{field!r} cannot be stored: it must be {expected}.", code="invalid_input", observed=observed)


async def _changed_since(args: Update, tx: Transaction) -> Refused:
    row = (await tx.execute(select(CUSTOMERS).where(CUSTOMERS.c.id == args.customer))).one_or_none()
    if row is None:
        return await _unknown(args.customer, tx)
    now = Customer.model_validate(row)
    reason = f"{now.id} has version {now.version}, not {args.version}: look at what it says now before changing it."
    return Refused(reason, code="precondition_failed", observed=Customers(customers=[now]))


async def _unknown(id: str, tx: Transaction) -> Refused:
    reason = "There is no customer of this id: look for one with find_customer."
    return Refused(reason, code="not_found", observed={"field": "customer", "near": await _near(id, tx)})


async def _near(text: str, tx: Transaction) -> dict[str, str]:
    return await near(text, select(CUSTOMERS.c.id, CUSTOMERS.c.name).order_by(CUSTOMERS.c.id), tx)
