"""Create the tables of the processes that own effects without a task, and of their sessions."""

from alembic.operations import Operations
from sqlalchemy import BigInteger, Column, DateTime, Float, Integer, String

revision = "0011"
down_revision = "0010"


def upgrade(op: Operations) -> None:
    op.create_table("replan_sessions", Column("id", String(1000), primary_key=True))
    op.create_table(
        "replan_owners",
        Column("id", String(32), primary_key=True),
        Column("host", String(300), nullable=False),
        Column("boot", String(64), nullable=False),
        Column("pid", Integer, nullable=False),
        Column("pid_namespace", BigInteger, nullable=False),
        Column("started", BigInteger, nullable=False),
        Column("lock_file", String(1000), nullable=False),
        Column("device", BigInteger, nullable=False),
        Column("inode", BigInteger, nullable=False),
        Column("lease", Float),
        Column("ended_at", DateTime),
        Column("died_at", DateTime),
    )
