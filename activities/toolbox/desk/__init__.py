"""The front desk: a little world in the store, which the demo runs in and which shows how tools are written.

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

All refusals are `Refused`, and all carry what was seen. Two rules keep them safe:

- An effect is one guarded `UPDATE ... WHERE`; looking comes after it and only says why nothing was changed. What is
  read first and written later is overwritten in between.
- Only what is as good as the thing asked for is offered in its place: another slot, not another article, customer,
  document, or order. What merely resembles it stands under `near`, for a reader to judge.
"""

from typing import Any

from activities.toolbox.declare.tool import Tool
from activities.toolbox.desk.bookings import book_slot, cancel_booking, list_bookings, list_slots
from activities.toolbox.desk.customers import find_customer, update_customer
from activities.toolbox.desk.papers import delete_document, list_documents, read_document
from activities.toolbox.desk.shop import get_price, list_orders, purchase, refund

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
"""The kinds of the front desk, in the order in which people see them."""
