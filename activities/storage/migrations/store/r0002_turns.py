"""Create the table for the turns of conversations between tasks and their planners."""

from alembic.operations import Operations
from sqlalchemy import Column, DateTime, Integer, String, Text

revision = "0002"
down_revision = "0001"


def upgrade(op: Operations) -> None:
    op.create_table(
        "replan_turns",
        Column("task", String(200), primary_key=True),
        Column("branch", Integer, primary_key=True),
        Column("turn", Integer, primary_key=True),
        Column("before", Integer, nullable=False),
        Column("digest", String(64), nullable=False),
        Column("at", DateTime, nullable=False),
        Column("situation", Text, nullable=False),
        Column("proposed", Text, nullable=False),
        Column("exchange", Text),
        Column("upto", Integer, nullable=False, server_default="0"),
    )
