"""Create the ledger, with one row for each effect."""

from alembic.operations import Operations
from sqlalchemy import Column, DateTime, Integer, String, Text

revision = "0001"
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
    )
