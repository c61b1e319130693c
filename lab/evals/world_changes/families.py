"""The six families of services: what their tools do with the records of one task, and how Replan declares them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, JsonValue

from evals.tape.world import SUCCESS, Reply

Record = dict[str, Any]


class Made(BaseModel, frozen=True):
    """An effect that was applied."""

    tool: str
    args: dict[str, JsonValue]


class Scene(BaseModel):
    """What there is about one task."""

    records: dict[str, Record]
    made: list[Made] = []
    """The effects, the first one first."""
    gone: list[str] = []
    """The tools that the service does not have any more."""
    wants: dict[str, str] = {}
    """By tool, an argument that the service wants since its schema has changed."""


Run = Callable[[Scene, Mapping[str, Any]], Reply]


@dataclass(frozen=True)
class FamilyTool:
    """A tool of a service."""

    name: str
    says: str
    """What planners read."""
    args: Mapping[str, type]
    result: Mapping[str, Any]
    run: Run
    effect: Literal["read", "keyed", "unkeyed"] = "read"
    about: str = ""
    """Of a tool with an effect, the argument that says whom or what the effect is about."""
    observe: str = ""
    """The read that shows the state after a rejection."""
    reconcile: str = ""
    """The read that finds the result of a call; its arguments have the names of those of this tool, or are the key."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """Where the arguments of `observe` come from that have another name."""


def of_records(records: Mapping[str, Record], *fields: str) -> Iterator[tuple[str, Record]]:
    """The records that have these fields and are not deleted."""
    return (
        (name, record) for name, record in records.items() if {*fields} <= record.keys() and not record.get("deleted")
    )


def _found(scene: Scene, name: object) -> Record | Reply:
    record = scene.records.get(str(name))
    if record is None:
        return Reply(404, {"detail": f"{name} does not exist"})
    if record.get("deleted"):
        return Reply(410, {"detail": f"{name} was deleted"})
    return record


def _made(scene: Scene, tool: str, args: Mapping[str, Any], **result: JsonValue) -> Reply:
    scene.made.append(Made(tool=tool, args=dict(args)))
    return Reply(SUCCESS, {"number": len(scene.made), **result})


def _lookup(tool: str, field: str) -> Run:
    """Finds the effect of a tool by one of its arguments."""

    def run(scene: Scene, args: Mapping[str, Any]) -> Reply:
        for number, made in enumerate(scene.made, 1):
            if made.tool == tool and made.args[field] == args[field]:
                return Reply(SUCCESS, {"number": number})
        return Reply(404, {"detail": "there is no such call"})

    return run


def _by_key(scene: Scene, args: Mapping[str, Any]) -> Reply:
    return Reply(404, {"detail": "there is no such call"})  # the world answers with the first result of the key


FIND = FamilyTool("find_result", "Find what a call did, by its key.", {"key": str}, {"number": int}, _by_key)
MADE = {"number": int}


def list_slots(scene: Scene, args: Mapping[str, Any]) -> Reply:
    return Reply(200, {"free": [at for at, slot in of_records(scene.records, "holder") if not slot["holder"]]})


def get_fee(scene: Scene, args: Mapping[str, Any]) -> Reply:
    found = _found(scene, args["service"])
    return found if isinstance(found, Reply) else Reply(200, {"fee": found["fee"]})


def book_slot(scene: Scene, args: Mapping[str, Any]) -> Reply:
    found = _found(scene, args["at"])
    if isinstance(found, Reply):
        return found
    if found["holder"]:
        return Reply(409, {"detail": "the slot is taken", **list_slots(scene, {}).body})
    found["holder"] = str(args["name"])
    return _made(scene, "book_slot", args)


def list_documents(scene: Scene, args: Mapping[str, Any]) -> Reply:
    there = [{"name": name, "version": document["version"]} for name, document in of_records(scene.records, "version")]
    return Reply(200, {"documents": there})


def open_document(scene: Scene, args: Mapping[str, Any]) -> Reply:
    found = _found(scene, args["name"])
    if isinstance(found, Reply):
        return found
    return Reply(200, {"name": args["name"], "version": found["version"], "text": found["text"]})


def replace_document(scene: Scene, args: Mapping[str, Any]) -> Reply:
    found = _found(scene, args["name"])
    if isinstance(found, Reply):
        return found
    if found["version"] != args["version"]:
        return Reply(412, {"detail": "it has another version", **open_document(scene, args).body})
    found |= {"text": args["text"], "version": args["version"] + 1}
    return _made(scene, "replace_document", args)


def list_accounts(scene: Scene, args: Mapping[str, Any]) -> Reply:
    there = [{"id": id, "balance": account["balance"]} for id, account in of_records(scene.records, "balance")]
    return Reply(200, {"accounts": there})


def get_account(scene: Scene, args: Mapping[str, Any]) -> Reply:
    found = _found(scene, args["id"])
    return found if isinstance(found, Reply) else Reply(200, {"id": args["id"], "balance": found["balance"]})


def transfer(scene: Scene, args: Mapping[str, Any]) -> Reply:
    source, target = _found(scene, args["source"]), _found(scene, args["target"])
    if isinstance(source, Reply):
        return source
    if isinstance(target, Reply):
        return target
    if source["balance"] < args["amount"]:
        return Reply(409, {"detail": "the balance is too low", "id": args["source"], "balance": source["balance"]})
    source["balance"], target["balance"] = source["balance"] - args["amount"], target["balance"] + args["amount"]
    return _made(scene, "transfer", args)


def list_addresses(scene: Scene, args: Mapping[str, Any]) -> Reply:
    there = [name for name, _ in of_records(scene.records, "person")]
    return Reply(200, {"addresses": there})


def send_mail(scene: Scene, args: Mapping[str, Any]) -> Reply:
    found = _found(scene, args["to"])
    if isinstance(found, Reply):
        return Reply(found.status, {**found.body, **list_addresses(scene, {}).body})
    return _made(scene, "send_mail", args)


def list_agents(scene: Scene, args: Mapping[str, Any]) -> Reply:
    return Reply(200, {"agents": [name for name, agent in of_records(scene.records, "away") if not agent["away"]]})


def get_ticket(scene: Scene, args: Mapping[str, Any]) -> Reply:
    found = _found(scene, args["ticket"])
    if isinstance(found, Reply):
        return found
    return Reply(200, {"ticket": args["ticket"], "state": found["state"], "agent": found["agent"]})


def assign_ticket(scene: Scene, args: Mapping[str, Any]) -> Reply:
    ticket, agent = _found(scene, args["ticket"]), _found(scene, args["agent"])
    if isinstance(ticket, Reply):
        return ticket
    if isinstance(agent, Reply):
        return agent
    if ticket["state"] != "open":
        return Reply(410, {"detail": f"the ticket is {ticket['state']}"})
    if agent["away"]:
        return Reply(409, {"detail": "the agent is away", **list_agents(scene, {}).body})
    ticket["agent"] = args["agent"]
    return _made(scene, "assign_ticket", args)


def get_item(scene: Scene, args: Mapping[str, Any]) -> Reply:
    found = _found(scene, args["sku"])
    if isinstance(found, Reply):
        return found
    return Reply(200, {"sku": args["sku"], "price": found["price"], "left": found["left"]})


def list_items(scene: Scene, args: Mapping[str, Any]) -> Reply:
    there = [get_item(scene, {"sku": sku}).body for sku, _ in of_records(scene.records, "left")]
    return Reply(200, {"items": there})


def order_item(scene: Scene, args: Mapping[str, Any]) -> Reply:
    found = _found(scene, args["sku"])
    if isinstance(found, Reply):
        return found
    if found["left"] < args["quantity"]:
        return Reply(409, {"detail": "too few are left", **get_item(scene, args).body})
    if found["price"] > args["at_most"]:
        return Reply(409, {"detail": "the price is higher", **get_item(scene, args).body})
    found["left"] -= args["quantity"]
    return _made(scene, "order_item", args)


FAMILIES: Mapping[str, tuple[FamilyTool, ...]] = {
    "front_desk": (
        FIND,
        FamilyTool(
            "list_slots",
            "List the free hours of the day.",
            {},
            {"free": list[str]},
            list_slots,
        ),
        FamilyTool(
            "get_fee",
            "Look up what a service costs.",
            {"service": str},
            {"fee": float},
            get_fee,
        ),
        FamilyTool(
            "book_slot",
            "Book a free hour for somebody.",
            {"at": str, "name": str},
            MADE,
            book_slot,
            "keyed",
            "at",
            observe="list_slots",
            reconcile="find_result",
        ),
    ),
    "files": (
        FIND,
        FamilyTool(
            "list_documents",
            "List the documents with their versions.",
            {},
            {"documents": list[dict[str, JsonValue]]},
            list_documents,
        ),
        FamilyTool(
            "open_document",
            "Read a document.",
            {"name": str},
            {"name": str, "version": int, "text": str},
            open_document,
        ),
        FamilyTool(
            "replace_document",
            "Replace the text of a document that has this version.",
            {"name": str, "version": int, "text": str},
            MADE,
            replace_document,
            "keyed",
            "version",
            observe="open_document",
            reconcile="find_result",
        ),
    ),
    "accounts": (
        FamilyTool(
            "find_transfer",
            "Find a transfer by its reference.",
            {"reference": str},
            MADE,
            _lookup("transfer", "reference"),
        ),
        FamilyTool(
            "list_accounts",
            "List the accounts with their balances.",
            {},
            {"accounts": list[dict[str, JsonValue]]},
            list_accounts,
        ),
        FamilyTool(
            "get_account",
            "Read the balance of an account.",
            {"id": str},
            {"id": str, "balance": float},
            get_account,
        ),
        FamilyTool(
            "transfer",
            "Transfer an amount from one account to another; the reference names the invoice.",
            {"source": str, "target": str, "amount": float, "reference": str},
            MADE,
            transfer,
            "unkeyed",
            "source",
            observe="list_accounts",
            reconcile="find_transfer",
        ),
    ),
    "mail": (
        FamilyTool(
            "find_mail",
            "Find a mail by its reference.",
            {"reference": str},
            MADE,
            _lookup("send_mail", "reference"),
        ),
        FamilyTool(
            "list_addresses",
            "List the addresses that take mail.",
            {},
            {"addresses": list[str]},
            list_addresses,
        ),
        FamilyTool(
            "send_mail",
            "Send a mail; the reference names what it is about.",
            {"to": str, "text": str, "reference": str},
            MADE,
            send_mail,
            "unkeyed",
            "to",
            observe="list_addresses",
            reconcile="find_mail",
        ),
    ),
    "tickets": (
        FIND,
        FamilyTool(
            "list_agents",
            "List the agents who are there.",
            {},
            {"agents": list[str]},
            list_agents,
        ),
        FamilyTool(
            "get_ticket",
            "Read a ticket.",
            {"ticket": str},
            {"ticket": str, "state": str, "agent": str},
            get_ticket,
        ),
        FamilyTool(
            "assign_ticket",
            "Give a ticket to an agent who is there.",
            {"ticket": str, "agent": str},
            MADE,
            assign_ticket,
            "keyed",
            "agent",
            observe="list_agents",
            reconcile="find_result",
        ),
    ),
    "stock": (
        FIND,
        FamilyTool(
            "list_items",
            "List the items with price and number left.",
            {},
            {"items": list[dict[str, JsonValue]]},
            list_items,
        ),
        FamilyTool(
            "get_item",
            "Look up the price of an item and how many are left.",
            {"sku": str},
            {"sku": str, "price": float, "left": int},
            get_item,
        ),
        FamilyTool(
            "order_item",
            "Order an item, if a piece costs no more than `at_most`.",
            {"sku": str, "quantity": int, "at_most": float},
            MADE,
            order_item,
            "keyed",
            "sku",
            observe="get_item",
            reconcile="find_result",
        ),
    ),
}
"""By family, its tools; each after those that it names."""


def tool_of(family: str, name: str) -> FamilyTool | None:
    """A tool of a family; None if it has none of this name."""
    return next((tool for tool in FAMILIES[family] if tool.name == name), None)
