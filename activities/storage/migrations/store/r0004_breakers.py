"""Create the table for the circuit breakers of tools."""

from alembic.operations import Operations
from sqlalchemy import Column, Integer, String, Text

revision = "0004"
down_revision = "0003"


def upgrade(op: Operations) -> None:
    op.create_table(
        "replan_breakers",
        Column("kind", String(200), primary_key=True),
        Column("version", Integer, nullable=False),
        Column("state", Text, nullable=False),
    )
