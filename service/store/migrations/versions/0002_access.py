"""Tokens, quotas, the audit trail, logs, what packs used, and how many trials a study asks for.

Only adds: a Driftline of the revision before works on with these tables. Columns are added by ALTER TABLE, never by
making a table anew: on SQLite dropping the old one would take all that refers to it along.
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True)
COUNTER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
STUDY = "studies.id"


def upgrade() -> None:
    op.add_column("studies", sa.Column("planned", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("drivers", sa.Column("fingerprint", sa.String(64), nullable=False, server_default=""))
    op.create_index("ix_studies_project_state", "studies", ["project", "state"])
    _fill()
    op.create_table(
        "packs",
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("pack", sa.String(255), nullable=False),
        sa.Column("label", sa.String(255).with_variant(sa.String(255, collation="C"), "postgresql"), nullable=False),
        sa.Column("trials", sa.Integer, nullable=False),
        sa.Column("cpus", sa.Double, nullable=False),
        sa.Column("gpus", sa.Double, nullable=False),
        sa.Column("rounds_before", sa.BigInteger, nullable=False),
        sa.Column("rounds", sa.BigInteger),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
        sa.PrimaryKeyConstraint("study_id", "pack", name="pk_packs"),
        sa.ForeignKeyConstraint(["study_id"], [STUDY], name="fk_packs_study_id_studies", ondelete="CASCADE"),
    )
    op.create_index("ix_packs_study_id_ended_at", "packs", ["study_id", "ended_at"])
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("scopes", JSON, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("created_by", sa.String(255), nullable=False),
        sa.Column("expires_at", sa.Double),
        sa.Column("last_used_at", sa.Double),
        sa.Column("revoked_at", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("digest", name="uq_tokens_digest"),
    )
    op.create_table(
        "quotas",
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("studies", sa.Integer),
        sa.Column("trials", sa.BigInteger),
        sa.Column("gpu_hours", sa.Double),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("project", name="pk_quotas"),
    )
    op.create_table(
        "audit",
        sa.Column("id", COUNTER, autoincrement=True, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("actor", sa.String(255), nullable=False),
        sa.Column("actor_name", sa.String(255), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("target", sa.String(255), nullable=False),
        sa.Column("details", JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_project_id", "audit", ["project", "id"])
    op.create_index("ix_audit_action_at", "audit", ["action", "at"])
    op.create_table(
        "log_lines",
        sa.Column("id", COUNTER, autoincrement=True, nullable=False),
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("level", sa.String(16), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_log_lines"),
        sa.ForeignKeyConstraint(["study_id"], [STUDY], name="fk_log_lines_study_id_studies", ondelete="CASCADE"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_log_lines_study_id_id", "log_lines", ["study_id", "id"])
    op.create_table(
        "log_totals",
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("lines", sa.Integer, nullable=False),
        sa.Column("dropped", sa.BigInteger, nullable=False),
        sa.Column("newest", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("study_id", name="pk_log_totals"),
        sa.ForeignKeyConstraint(["study_id"], [STUDY], name="fk_log_totals_study_id_studies", ondelete="CASCADE"),
    )


def downgrade() -> None:
    for table in ("log_totals", "log_lines", "audit", "quotas", "tokens", "packs"):
        op.drop_table(table)
    op.drop_index("ix_studies_project_state", "studies")
    op.drop_column("drivers", "fingerprint")
    op.drop_column("studies", "planned")


def _fill() -> None:
    """What the studies that are there ask for, and what their drivers know of them."""
    studies = sa.table("studies", sa.column("id"), sa.column("spec"), sa.column("fingerprint"), sa.column("planned"))
    drivers = sa.table("drivers", sa.column("study_id"), sa.column("fingerprint"))
    connection = op.get_bind()
    for study_id, spec, fingerprint in connection.execute(sa.select(*studies.c["id", "spec", "fingerprint"])).all():
        planned = _planned(json.loads(spec) if isinstance(spec, str) else spec)
        connection.execute(sa.update(studies).where(studies.c.id == study_id).values(planned=planned))
        connection.execute(sa.update(drivers).where(drivers.c.study_id == study_id).values(fingerprint=fingerprint))


def _planned(spec: dict) -> int:  # type: ignore[type-arg]
    budget = spec.get("budget", {})
    settings = int(budget.get("trials_per_method", 0))
    repeats = min(int(budget.get("front", 0)), settings) * int(budget.get("seeds", 0))
    return len(spec.get("methods", ())) * (settings + repeats)
