"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = None
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True)
COUNTER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
STUDY = "studies.id"
TABLES = (
    "audit",
    "deletions",
    "locks",
    "meta",
    "past_use",
    "quotas",
    "studies",
    "tokens",
    "drivers",
    "events",
    "idempotency_keys",
    "log_lines",
    "log_totals",
    "packs",
    "recorder_state",
    "trials",
    "curve_segments",
)
"""In the order of their creation."""


def _name(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def upgrade() -> None:
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
    op.create_index("ix_audit_action_at", "audit", ["action", "at"])
    op.create_index("ix_audit_project_id", "audit", ["project", "id"])
    op.create_table(
        "deletions",
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("deleted_at", sa.Double, nullable=False),
        sa.Column("files", sa.Boolean, nullable=False),
        sa.Column("mlflow", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("study_id", name="pk_deletions"),
    )
    op.create_table(
        "locks",
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_locks"),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_meta"),
    )
    op.create_table(
        "past_use",
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("gpu_seconds", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("project", name="pk_past_use"),
    )
    op.create_table(
        "quotas",
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("studies", sa.Integer),
        sa.Column("trials", sa.BigInteger),
        sa.Column("gpu_hours", sa.Double),
        sa.Column("retention_days", sa.Double),
        sa.Column("gpu_hours_pause", sa.Boolean, server_default=sa.false(), nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("project", name="pk_quotas"),
    )
    op.create_table(
        "studies",
        sa.Column("id", _name(64), nullable=False),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("spec", JSON, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("planned", sa.BigInteger, server_default="0", nullable=False),
        sa.Column("plan", JSON),
        sa.Column("mlflow_url", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("finished_at", sa.Double),
        sa.Column("curve_rows", sa.BigInteger, server_default="0", nullable=False),
        sa.Column("curve_bytes", sa.BigInteger, server_default="0", nullable=False),
        sa.Column("measured_version", sa.Integer, server_default="0", nullable=False),
        sa.Column("measured_at", sa.Double, server_default="0", nullable=False),
        sa.Column("deleted_at", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_studies"),
    )
    op.create_index("ix_studies_deleted_at", "studies", ["deleted_at"])
    op.create_index("ix_studies_finished_at", "studies", ["finished_at"])
    op.create_index("ix_studies_project_id", "studies", ["project", "id"])
    op.create_index("ix_studies_project_state", "studies", ["project", "state"])
    op.create_index("ix_studies_state", "studies", ["state"])
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
        "drivers",
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("acquired_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("released", sa.Boolean, nullable=False),
        sa.Column("deaths", sa.Integer, nullable=False),
        sa.Column("fingerprint", sa.String(64), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["study_id"], [STUDY], name="fk_drivers_study_id_studies", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("study_id", name="pk_drivers"),
    )
    op.create_table(
        "events",
        sa.Column("id", COUNTER, autoincrement=True, nullable=False),
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("data", JSON, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(["study_id"], [STUDY], name="fk_events_study_id_studies", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_study_id_id", "events", ["study_id", "id"])
    op.create_table(
        "idempotency_keys",
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("request_hash", sa.String(64), nullable=False),
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(["study_id"], [STUDY], name="fk_idempotency_keys_study_id_studies", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("project", "key", name="pk_idempotency_keys"),
    )
    op.create_table(
        "log_lines",
        sa.Column("id", COUNTER, autoincrement=True, nullable=False),
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("level", sa.String(16), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(["study_id"], [STUDY], name="fk_log_lines_study_id_studies", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_log_lines"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_log_lines_study_id_id", "log_lines", ["study_id", "id"])
    op.create_table(
        "log_totals",
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("lines", sa.Integer, nullable=False),
        sa.Column("dropped", sa.BigInteger, nullable=False),
        sa.Column("newest", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["study_id"], [STUDY], name="fk_log_totals_study_id_studies", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("study_id", name="pk_log_totals"),
    )
    op.create_table(
        "packs",
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("pack", sa.String(255), nullable=False),
        sa.Column("label", _name(255), nullable=False),
        sa.Column("trials", sa.Integer, nullable=False),
        sa.Column("cpus", sa.Double, nullable=False),
        sa.Column("gpus", sa.Double, nullable=False),
        sa.Column("rounds_before", sa.BigInteger, nullable=False),
        sa.Column("rounds", sa.BigInteger),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double),
        sa.ForeignKeyConstraint(["study_id"], [STUDY], name="fk_packs_study_id_studies", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("study_id", "pack", name="pk_packs"),
    )
    op.create_index("ix_packs_study_id_ended_at", "packs", ["study_id", "ended_at"])
    op.create_table(
        "recorder_state",
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("run_id", sa.String(255), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("rounds", sa.Integer, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(["study_id"], [STUDY], name="fk_recorder_state_study_id_studies", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("study_id", "kind", "key", name="pk_recorder_state"),
    )
    op.create_table(
        "trials",
        sa.Column("id", sa.String(255), nullable=False),
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("label", _name(255), nullable=False),
        sa.Column("phase", _name(16), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("configuration", sa.Integer),
        sa.Column("hyperparameters", JSON, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("rounds_done", sa.Integer, nullable=False),
        sa.Column("pack", sa.String(255)),
        sa.Column("plan", JSON),
        sa.Column("checkpoint", sa.Text),
        sa.Column("values", JSON),
        sa.Column("error", sa.Text),
        sa.Column("deaths", sa.Integer, server_default="0", nullable=False),
        sa.Column("death_round", sa.Integer),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(["study_id"], [STUDY], name="fk_trials_study_id_studies", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_trials"),
        sa.UniqueConstraint("study_id", "label", "phase", "number", name="uq_trials_study_id_label_phase_number"),
    )
    op.create_index("ix_trials_study_id_state", "trials", ["study_id", "state"])
    op.create_table(
        "curve_segments",
        sa.Column("trial_id", sa.String(255), nullable=False),
        sa.Column("segment", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("rounds", sa.Integer, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trials.id"], name="fk_curve_segments_trial_id_trials", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trial_id", "segment", name="pk_curve_segments"),
    )


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)
