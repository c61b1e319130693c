"""The front desk: the tools and tables of the demo, which show how tools are written.

`worker.py --dev` and `--desk` load these tools as `--tools` loads files, and `seed` fills their tables. By module:

    bookings    list_slots  book_slot        conflict              the free slots
                list_bookings                                      (an empty list is an answer)
                cancel_booking               not_found  gone       the bookings; when it was cancelled
    shop        get_price                    not_found             the nearest articles
                purchase                     precondition_failed   the price that moved
                                             conflict              the stock
                list_orders                                        (an empty list is an answer)
                refund                       not_found  gone       the orders; when it was refunded
    customers   find_customer                no_results            the nearest customers
                update_customer              precondition_failed   the newer version, with its fields
                                             invalid_input         the field, and what it takes
    papers      list_documents                                     (an empty list is an answer)
                read_document                not_found  gone       the nearest documents; when it was deleted
                delete_document              not_found  gone       the nearest documents; when it was deleted

The columns are: the module, its reads, its effects, the codes of their rejections, and what a rejection has in
`observed`. Every rejection is a `Refused`. Two rules keep the effects safe:

- An effect is one guarded `UPDATE ... WHERE`. The tool reads only afterwards, if no row was changed, to say why. If it
  read first, another call could change the row between the read and the write.
- `observed` offers an alternative only if it serves the same purpose: another slot, but not another article, customer,
  document or order. Names that are only spelled similarly are in `near`, and the planner decides.
"""

from typing import Any

from examples.desk.bookings import book_slot, cancel_booking, list_bookings, list_slots
from examples.desk.customers import find_customer, update_customer
from examples.desk.papers import delete_document, list_documents, read_document
from examples.desk.shop import get_price, list_orders, purchase, refund
from examples.desk.world import seed
from replan import Tool

__all__ = ["TOOLS", "seed"]

TOOLS: tuple[Tool[..., Any], ...] = (
    list_slots,
    book_slot,
    list_bookings,
    cancel_booking,
    get_price,
    purchase,
    list_orders,
    refund,
    find_customer,
    update_customer,
    list_documents,
    read_document,
    delete_document,
)
"""The tools of the front desk, in the order in which `--check` lists them."""
