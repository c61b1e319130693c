"""Create the table of the keys that have encrypted something in the store."""

from alembic.operations import Operations
from sqlalchemy import Column, String, Text

revision = "0009"
down_revision = "0008"


def upgrade(op: Operations) -> None:
    op.create_table("replan_keys", Column("id", String(64), primary_key=True), Column("check", Text, nullable=False))
