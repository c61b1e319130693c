"""Create the tables that only the store has, and its id."""

import uuid

from alembic.operations import Operations
from sqlalchemy import BigInteger, Column, DateTime, Float, Integer, LargeBinary, String, Text

revision = "0100"
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
        Column("namespace", String(200)),
        Column("pruned", DateTime),
        Column("pruned_by", String(200)),
    )
    op.create_index("replan_payloads_owner", "replan_payloads", ["namespace", "task", "stored"])
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
        Column("namespace", String(200)),
        Column("workflow", String(1000)),
    )
    op.create_index("replan_turns_owner", "replan_turns", ["namespace", "workflow", "at"])
    op.create_table(
        "replan_breakers",
        Column("kind", String(200), primary_key=True),
        Column("version", Integer, nullable=False),
        Column("state", Text, nullable=False),
    )
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
    op.create_table(
        "replan_checked",
        Column("namespace", String(200), primary_key=True),
        Column("queue", String(1000), primary_key=True),
        Column("version", String(100), primary_key=True),
    )
    op.create_table(
        "replan_ahead",
        Column("key", String(1200), primary_key=True),
        Column("at", DateTime, nullable=False, index=True),
        Column("before", Text, nullable=False),
    )
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
    op.create_table("replan_keys", Column("id", String(64), primary_key=True), Column("check", Text, nullable=False))
    op.create_table(
        "replan_catalogues",
        Column("namespace", String(200), primary_key=True),
        Column("queue", String(1000), primary_key=True),
        Column("digest", String(64), primary_key=True),
        Column("kinds", Text, nullable=False),
        Column("until", Float, nullable=False),
    )
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
