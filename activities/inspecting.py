"""The activity behind InspectWorkflow: what this worker says of itself."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Any

from pydantic import JsonValue
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio import activity
from temporalio.converter import StorageDriver, StorageDriverClaim, StorageDriverRetrieveContext

from activities.attempt import attempt
from activities.borders import classify
from activities.host import Host
from activities.ledger import effects
from activities.store import DATABASE_ERRORS, begun, reading, spoken
from activities.toolbox.errors import NeedsPerson
from activities.toolbox.kind import Kind
from activities.transcript import Transcript
from activities.vault import PayloadLost, Vault
from workflows import routing
from workflows.catalogue import Price
from workflows.inspect import Findings, Inquiry, Place, Pruned, ToolCard, TurnCard

MAX_PAGE = 1024 * 1024
"""Bytes of the turns in one answer; a server takes no answer of 2 MB."""


class Inspecting:
    """Answers inquiries."""

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        planner: str,
        host: Host,
        vault: Vault,
        ledgers: Iterable[AsyncEngine],
        elsewhere: Sequence[StorageDriver] = (),
        *,
        transcript: Transcript | None = None,
        left_out: Iterable[str] = (),
        converses: bool = False,
        price: Price | None = None,
    ) -> None:
        """Speak for a worker with these kinds and this planner, on `host`.

        Its payloads are in `vault` and `elsewhere`, what its tools have done in `ledgers`, what its planner was told
        and said in `transcript`. `left_out` are kinds that it would have with a model; `converses` says whether the
        planner is one, and `price` what that costs.
        """
        self._kinds = kinds
        self._planner = planner
        self._host = host
        self._vault = vault
        self._ledgers = tuple(ledgers)
        self._transcript = transcript
        self._left_out = tuple(left_out)
        self._asks = {"converses": converses, "price": price}
        self._drivers = {driver.name(): driver for driver in (vault, *elsewhere)}

    def activities(self) -> list[Callable[..., Any]]:
        """What the worker registers."""
        return [self.inspect]

    @activity.defn(name=routing.INSPECT.kind)
    async def inspect(self, inquiry: Inquiry) -> Findings:
        """The tools, or the one that was asked for; and the worker itself where the inquiry is about it."""
        async with attempt(routing.INSPECT):
            if inquiry.claim is not None:
                return self._findings(payload=await self._payload(inquiry.driver, inquiry.claim))
            if inquiry.task_id is not None:
                return await self._effects(inquiry.task_id)
            if inquiry.run is not None:
                return await self._turns(inquiry.run, inquiry.skip)
            if inquiry.before is not None:
                return self._findings(pruned=await self._pruned(inquiry.before))
            wanted = [kind for name, kind in self._kinds.items() if inquiry.kind in (None, name)]
            worker = await self._host.card() if inquiry.about == "worker" else None
            cards = tuple(_card(kind) for kind in wanted)
            asks = self._asks if worker else {}
            return self._findings(tools=cards, left_out=self._left_out, worker=worker, **asks)

    async def _pruned(self, before: datetime) -> Pruned:
        """What was deleted of payloads and conversations."""
        payloads = await self._vault.prune(before)
        turns = await self._transcript.prune(before) if self._transcript else 0
        return payloads.model_copy(update={"turns": turns})

    def _findings(self, **found: Any) -> Findings:
        return Findings.model_validate({"planner": self._planner, "tools": (), **found})

    async def _effects(self, task: str) -> Findings:
        """What the ledgers know; one that cannot be read is named, and the others are read."""
        found, unread = list[Mapping[str, Any]](), list[Place]()
        for engine in self._ledgers:
            try:
                async with begun(reading(engine)) as tx:
                    found += await effects(tx, task)
            except DATABASE_ERRORS as error:
                problem = classify(error).reason.rstrip(".")
                unread.append(Place(name="ledger", where=spoken(engine.url), problem=problem))
        return self._findings(effects=sorted(found, key=lambda effect: effect["at"]), unread=unread)

    async def _turns(self, run: str, skip: int) -> Findings:
        """The transcript from its turn `skip` on, as much as one answer takes."""
        cards = (await self._transcript.cards(run))[skip:] if self._transcript else ()
        page = _page(cards)
        return self._findings(transcript=page, more=len(page) < len(cards))

    async def _payload(self, driver: str, claim: dict[str, str]) -> JsonValue:
        """What a step returned, from where the history says that it lies.

        Raises:
            NeedsPerson: it is not there.
        """
        if driver not in self._drivers:
            raise NeedsPerson(f"This worker has no storage {driver!r}: ask one that was started with it.")
        try:
            [payload] = await self._drivers[driver].retrieve(
                StorageDriverRetrieveContext(), [StorageDriverClaim(claim)]
            )
        except (PayloadLost, RuntimeError, ValueError) as lost:  # the last two are what the SDK's S3 driver raises
            raise NeedsPerson(str(lost)) from lost
        value: JsonValue = activity.payload_converter().from_payload(payload)
        return value


def _page(cards: Sequence[TurnCard]) -> Sequence[TurnCard]:
    """The first of the cards, at least one, that fit in an answer."""
    sizes = accumulate(len(card.model_dump_json().encode()) for card in cards)
    return cards[: max(1, sum(size <= MAX_PAGE for size in sizes))]


def _card(kind: Kind) -> ToolCard:
    return ToolCard(
        spec=kind.spec,
        description=kind.description,
        args_schema=kind.args_schema,
        result_schema=kind.result.json_schema(),
    )
