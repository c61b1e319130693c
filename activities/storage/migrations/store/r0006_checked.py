"""Create the table of the versions that were checked against the unfinished tasks of a queue."""

from alembic.operations import Operations
from sqlalchemy import Column, String

revision = "0006"
down_revision = "0005"


def upgrade(op: Operations) -> None:
    op.create_table(
        "replan_checked",
        Column("namespace", String(200), primary_key=True),
        Column("queue", String(1000), primary_key=True),
        Column("version", String(100), primary_key=True),
    )
