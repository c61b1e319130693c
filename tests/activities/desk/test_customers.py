"""The customers: found by what one remembers of them, changed only as they were seen."""

from examples.desk.customers import Changes, Customer, Query, Update, find_customer, update_customer
from tests.activities.desk.front import Desk


async def find(desk: Desk, query: str) -> list[Customer]:
    return (await desk.do(find_customer, Query(query=query))).customers


async def change(desk: Desk, version: int, **changes: str) -> Customer:
    return await desk.do(update_customer, Update(customer="C-0002", version=version, changes=Changes(**changes)))


QUERIES = [
    "C-0002",
    "Grace Marsh",
    "grace marsh",
    "marsh grace",
    " Grace   Marsh ",
    "grace.marsh@mail.example",
    "GRACE.MARSH@mail.example",
    "race.mar",
]
NEAR = {"Zöe Peña": "Zoë Peña", "Marhs": "Grace Marsh", "C_0002": "Grace Marsh"}


async def test_a_customer_is_found_by_id_name_or_address(desk: Desk) -> None:
    """All words must stand somewhere in the name or the address, in any order and case; ten fit on a page.

    Accents and typing errors do not hide a customer, but a person or a model has to choose; a wrong one is none.
    """
    found = {query: [customer.id for customer in await find(desk, query)] for query in QUERIES}
    many = await desk.do(find_customer, Query(query="mail.example"))
    near = {query: str((await desk.refuses(find_customer, Query(query=query))).observed) for query in NEAR}

    assert found == {query: ["C-0002"] for query in QUERIES}
    assert (len(many.customers), many.more) == (10, True)
    assert {query: name for query, name in NEAR.items() if f"'{name}'" not in near[query]} == {}
    assert (await desk.refuses(find_customer, Query(query="Xqqx"))).observed == {"near": {}}


async def test_the_best_fit_comes_first(desk: Desk) -> None:
    """The whole name before its beginning, and that before a part of it."""
    await change(desk, 2, name="Ada")
    await desk.do(update_customer, Update(customer="C-0003", version=3, changes=Changes(name="Radames Ada")))
    names = [customer.name for customer in await find(desk, "ada")]

    assert names[:2] == ["Ada", "Ada Adler"]
    assert "Radames Ada" not in names


CHANGES = [("name", "Grace Hopper"), ("email", "g.h@navy.mail.example"), ("phone", "+1 (212) 555-0100")]


async def test_one_field_is_changed_and_the_others_stay(desk: Desk) -> None:
    """What is left out is not emptied; the schema takes any text as an address, and the desk does not."""
    [now] = await find(desk, "C-0002")
    for version, (field, value) in enumerate(CHANGES, start=3):
        before, now = now, await change(desk, version - 1, **{field: value})
        assert now == before.model_copy(update={field: value, "version": version})
    late = Update(customer="C-0002", version=2, changes=Changes(email="grace@mail.example"))
    fault = await desk.refuses(update_customer, late)

    assert fault.observed == {"customers": [now.model_dump(mode="json")], "more": False}
    assert (await change(desk, 5, email="grace@mail.example")).version == 6

    calls = [Update(customer="C-0002", version=2, changes=Changes(email=email)) for email in ADDRESSES]
    faults = [await desk.refuses(update_customer, call) for call in calls]

    expected = ("invalid_input", {"field": "email", "expected": "an address such as ada@mail.example"})
    assert [(fault.code, fault.observed) for fault in faults] == [expected] * len(ADDRESSES)


ADDRESSES = ["grace", "grace@", "@mail.example", "g@h", "g h@mail.example", "g@h@mail.example", "g@mail..example", ""]
