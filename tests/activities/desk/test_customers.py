"""The customers: found by what one remembers of them, changed only as they were seen."""

import pytest
from pydantic import ValidationError

from examples.desk.customers import Changes, Customer, Query, Update, find_customer, update_customer
from tests.activities.desk.front import Desk


async def find(desk: Desk, query: str) -> list[Customer]:
    """Who fits."""
    return (await desk.do(find_customer, Query(query=query))).customers


async def change(desk: Desk, version: int, **changes: str) -> Customer:
    """Change Grace."""
    return await desk.do(update_customer, Update(customer="C-0002", version=version, changes=Changes(**changes)))


@pytest.mark.parametrize(
    "query",
    [
        "C-0002",
        "Grace Marsh",
        "grace marsh",
        "marsh grace",
        " Grace   Marsh ",
        "grace.marsh@mail.example",
        "GRACE.MARSH@mail.example",
        "race.mar",
    ],
)
async def test_a_customer_is_found_by_id_name_or_address(desk: Desk, query: str) -> None:
    """All words must stand somewhere in the name or the address, in any order and case."""
    assert [customer.id for customer in await find(desk, query)] == ["C-0002"]


async def test_the_best_fit_comes_first(desk: Desk) -> None:
    """The whole name before its beginning, and that before a part of it."""
    await change(desk, 2, name="Ada")
    await desk.do(update_customer, Update(customer="C-0003", version=3, changes=Changes(name="Radames Ada")))
    names = [customer.name for customer in await find(desk, "ada")]

    assert names[:2] == ["Ada", "Ada Adler"]
    assert "Radames Ada" not in names


async def test_more_than_fit_on_a_page_are_not_hidden(desk: Desk) -> None:
    """Ten are named, and it is said that there are more."""
    found = await desk.do(find_customer, Query(query="mail.example"))

    assert (len(found.customers), found.more) == (10, True)


@pytest.mark.parametrize(
    ("query", "name"),
    [("Zöe Peña", "Zoë Peña"), ("Marhs", "Grace Marsh"), ("C_0002", "Grace Marsh")],
)
async def test_who_is_spelt_otherwise_is_named_as_near(desk: Desk, query: str, name: str) -> None:
    """Accents and typing errors do not hide a customer, but a person or a model has to choose."""
    fault = await desk.refuses(find_customer, Query(query=query))

    assert isinstance(fault.observed, dict)
    assert name in str(fault.observed["near"])


async def test_who_resembles_nobody_has_nobody_near(desk: Desk) -> None:
    """An empty answer is better than a wrong one."""
    assert (await desk.refuses(find_customer, Query(query="Xqqx"))).observed == {"near": {}}


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "Grace Hopper"), ("email", "g.h@navy.mail.example"), ("phone", "+1 (212) 555-0100")],
)
async def test_one_field_is_changed_and_the_others_stay(desk: Desk, field: str, value: str) -> None:
    """What is left out is not emptied."""
    [before] = await find(desk, "C-0002")

    assert await change(desk, 2, **{field: value}) == before.model_copy(update={field: value, "version": 3})


async def test_a_change_made_for_an_older_version_is_refused(desk: Desk) -> None:
    """What somebody else wrote in between is seen before it is overwritten."""
    newer = await change(desk, 2, phone="1")
    call = Update(customer="C-0002", version=2, changes=Changes(email="grace@mail.example"))

    assert (await desk.refuses(update_customer, call)).observed == {
        "customers": [newer.model_dump(mode="json")],
        "more": False,
    }


async def test_a_change_goes_through_with_the_version_that_the_refusal_named(desk: Desk) -> None:
    """The refusal carries all that the next plan needs."""
    await change(desk, 2, phone="1")

    assert (await change(desk, 3, email="grace@mail.example")).version == 4


@pytest.mark.parametrize(
    "email", ["grace", "grace@", "@mail.example", "g@h", "g h@mail.example", "g@h@mail.example", "g@mail..example", ""]
)
async def test_what_is_no_address_is_refused_by_its_field(desk: Desk, email: str) -> None:
    """The schema takes any text; the desk does not, and names the field."""
    call = Update(customer="C-0002", version=2, changes=Changes(email=email))
    fault = await desk.refuses(update_customer, call)

    assert (fault.code, fault.observed) == (
        "invalid_input",
        {"field": "email", "expected": "an address such as ada@mail.example"},
    )


@pytest.mark.parametrize(
    "changes", [{"name": ""}, {"name": "  "}, {"name": "x" * 81}, {"e_mail": "g@mail.example"}, {"version": 9}]
)
def test_changes_that_mean_nothing_are_refused_by_the_schema(changes: dict[str, str]) -> None:
    """A misspelt field is not dropped in silence."""
    with pytest.raises(ValidationError):
        Update.model_validate({"customer": "C-0002", "version": 2, "changes": changes})
