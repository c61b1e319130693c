"""Create the table of what is noted ahead of the calls of foreign tools."""

from alembic.operations import Operations
from sqlalchemy import Column, DateTime, String, Text

revision = "0007"
down_revision = "0006"


def upgrade(op: Operations) -> None:
    op.create_table(
        "replan_ahead",
        Column("key", String(1200), primary_key=True),
        Column("at", DateTime, nullable=False),
        Column("before", Text, nullable=False),
    )
    op.create_index("ix_replan_ahead_at", "replan_ahead", ["at"])
