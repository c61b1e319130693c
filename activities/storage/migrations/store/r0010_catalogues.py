"""Create the table of the catalogues that workers of a queue have published."""

from alembic.operations import Operations
from sqlalchemy import Column, Float, String, Text

revision = "0010"
down_revision = "0009"


def upgrade(op: Operations) -> None:
    op.create_table(
        "replan_catalogues",
        Column("namespace", String(200), primary_key=True),
        Column("queue", String(1000), primary_key=True),
        Column("digest", String(64), primary_key=True),
        Column("kinds", Text, nullable=False),
        Column("until", Float, nullable=False),
    )
