"""Create the tables of what models say while they are asked, and of who listens."""

from alembic.operations import Operations
from sqlalchemy import Column, Float, Integer, String, Text

revision = "0008"
down_revision = "0007"


def upgrade(op: Operations) -> None:
    op.create_table(
        "replan_words",
        Column("worker", String(32), primary_key=True),
        Column("run", String(200), primary_key=True),
        Column("activity", String(1000), primary_key=True),
        Column("attempt", Integer, primary_key=True),
        Column("reply", String(32), nullable=False),
        Column("length", Integer, nullable=False),
        Column("text", Text, nullable=False),
        Column("at", Float, nullable=False),
    )
    op.create_table(
        "replan_listeners",
        Column("worker", String(32), primary_key=True),
        Column("run", String(200), primary_key=True),
        Column("until", Float, nullable=False),
    )
