"""Create the table for the calls that wait for their turn at a service."""

from alembic.operations import Operations
from sqlalchemy import Column, Float, Integer, String

revision = "0005"
down_revision = "0004"


def upgrade(op: Operations) -> None:
    op.create_table(
        "replan_tickets",
        Column("service", String(200), primary_key=True),
        Column("key", String(1200), primary_key=True),
        Column("namespace", String(200), nullable=False),
        Column("workflow", String(1000), nullable=False),
        Column("started", Float, nullable=False),
        Column("since", Float, nullable=False),
        Column("called", Float, nullable=False),
        Column("calls", Integer, nullable=False),
        Column("trials", Integer, nullable=False),
    )
