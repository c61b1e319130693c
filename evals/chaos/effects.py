"""The effects that really happened, by the bank's and the payment service's own journals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import create_async_engine

from evals.chaos import accounts
from evals.chaos.accounts import OPENING, RECEIPTS, SIZE, TRANSFERS, back_of
from evals.chaos.book import Book

CHARGES = ("pay", "pay_strictly", "pay_once", "pay_blindly", "pay_patiently", "pay_frozen", "pay_late", "pay_too_late")


@dataclass(frozen=True)
class Effects:
    """What the world looks like when all is over."""

    transfers: Mapping[str, int]
    """How many there are, by reference."""
    receipts: Mapping[str, int]
    charges: Mapping[str, int]
    limits: Mapping[str, int]
    """Amount by reference."""
    total: int
    """Cents in all accounts."""
    unbalanced: Sequence[int]
    """Accounts whose balance is not what the transfers made of it."""

    @property
    def is_conserved(self) -> bool:
        """Whether no cent came or went."""
        return self.total == OPENING * SIZE and not self.unbalanced

    def count(self, kind: str, reference: str) -> int | None:
        """How often an effect happened; None for a kind that has none."""
        if kind in CHARGES:
            return self.charges.get(reference, 0)
        match kind:
            case "refund":
                return self.charges.get(back_of(reference), 0)
            case "move_back":
                return self.transfers.get(back_of(reference), 0)
            case "transfer":
                return self.transfers.get(reference, 0)
            case "write_receipt":
                return self.receipts.get(reference, 0)
            case "set_limit":
                return int(reference in self.limits)
        return None

    @property
    def all(self) -> Mapping[str, int]:
        """How often each sort of effect happened."""
        return {
            "transfers": sum(self.transfers.values()),
            "receipts": sum(self.receipts.values()),
            "charges": sum(self.charges.values()),
            "limits": len(self.limits),
        }


async def read(bank: str, book: Book) -> Effects:
    """Read both journals."""
    engine = create_async_engine(bank)
    try:
        return Effects(
            transfers=await accounts.counts(engine, TRANSFERS),
            receipts=await accounts.counts(engine, RECEIPTS),
            charges=book.charges(),
            limits=book.limits(),
            total=await accounts.total(engine),
            unbalanced=await accounts.unbalanced(engine),
        )
    finally:
        await engine.dispose()
