"""Let the ledger have effects of programs that use it without tasks, as `activities/effects` writes them."""

from alembic.operations import Operations
from sqlalchemy import BigInteger, Column, Float, Integer, String, Text

revision = "0002"
down_revision = "0001"


def upgrade(op: Operations) -> None:
    # All may be empty: workers of the version before write rows without them.
    for column in (
        Column("session", String(1000)),
        Column("effect", String(20)),
        Column("state", String(20)),
        Column("arguments", Text),
        Column("caller_key", String(1000)),
        Column("run", String(1000)),
        Column("call", String(1000)),
        Column("family", String(1000)),
        Column("owner", String(32)),
        Column("asker", String(100)),
        Column("reader", String(100)),
        Column("seq", BigInteger),
        Column("read_seq", BigInteger),
        Column("expires", Float),
        Column("missed_at", Float),
        Column("is_unproven", Integer),
        Column("is_abandoned", Integer),
        Column("joined", Integer),
        Column("about", String(1200)),
        Column("why", Text),
    ):
        op.add_column("replan_ledger", column)
    op.create_index("replan_ledger_session", "replan_ledger", ["session", "kind", "state"])
    op.create_index("replan_ledger_seq", "replan_ledger", ["seq"])
    op.create_index("replan_ledger_asker", "replan_ledger", ["asker", "session", "seq"])
    op.create_index("replan_ledger_reader", "replan_ledger", ["reader"])
