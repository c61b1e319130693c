"""Create the tables for the store's id and for the large payloads of tasks."""

import uuid

from alembic.operations import Operations
from sqlalchemy import Column, DateTime, Integer, LargeBinary, String

revision = "0001"
down_revision = None


def upgrade(op: Operations) -> None:
    identity = op.create_table("replan_store", Column("id", String(36), primary_key=True))
    op.bulk_insert(identity, [{"id": str(uuid.uuid4())}])
    op.create_table(
        "replan_payloads",
        Column("task", String(1000), primary_key=True),
        Column("digest", String(64), primary_key=True),
        Column("size", Integer, nullable=False),
        Column("stored", DateTime, nullable=False),
        Column("data", LargeBinary, nullable=False),
    )
