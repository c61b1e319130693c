"""Create the ledger, with one row for each effect."""

from alembic.operations import Operations
from sqlalchemy import BigInteger, Column, DateTime, Float, Integer, String, Text

revision = "0100"
down_revision = None


def upgrade(op: Operations) -> None:
    op.create_table(
        "replan_ledger",
        Column("key", String(1200), primary_key=True),
        Column("task", String(1000), nullable=False, index=True),
        Column("step", String(200), nullable=False),
        Column("kind", String(200), nullable=False),
        Column("digest", String(64), nullable=False),
        Column("result", Text),
        Column("at", DateTime, nullable=False),
        Column("claim", Integer, nullable=False, server_default="0"),
        Column("undone_at", DateTime),
        Column("undone_by", String(1200)),
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
    )
    op.create_index("replan_ledger_session", "replan_ledger", ["session", "kind", "state"])
    op.create_index("replan_ledger_seq", "replan_ledger", ["seq"])
    op.create_index("replan_ledger_asker", "replan_ledger", ["asker", "session", "seq"])
    op.create_index("replan_ledger_reader", "replan_ledger", ["reader"])
