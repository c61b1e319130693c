"""Add the owners of payloads and turns, and when and by whom a payload was pruned."""

from alembic.operations import Operations
from sqlalchemy import Column, DateTime, String

revision = "0003"
down_revision = "0002"


def upgrade(op: Operations) -> None:
    # Existing rows keep NULL: they have no owner, and `prune` counts them but leaves them.
    op.add_column("replan_payloads", Column("namespace", String(200)))
    op.add_column("replan_payloads", Column("pruned", DateTime))
    op.add_column("replan_payloads", Column("pruned_by", String(200)))
    op.add_column("replan_turns", Column("namespace", String(200)))
    op.add_column("replan_turns", Column("workflow", String(1000)))
    op.create_index("replan_payloads_owner", "replan_payloads", ["namespace", "task", "stored"])
    op.create_index("replan_turns_owner", "replan_turns", ["namespace", "workflow", "at"])
