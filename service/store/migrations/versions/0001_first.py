"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True)
STUDY = "studies.id"


def _name(length: int) -> sa.types.TypeEngine[str]:
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def upgrade() -> None:
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
        sa.Column("mlflow_url", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.Column("started_at", sa.Double),
        sa.Column("finished_at", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_studies"),
    )
    op.create_index("ix_studies_project_id", "studies", ["project", "id"])
    op.create_index("ix_studies_state", "studies", ["state"])
    op.create_table(
        "trials",
        sa.Column("id", sa.String(255), nullable=False),
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("label", _name(255), nullable=False),
        sa.Column("phase", _name(16), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("setting", sa.Integer),
        sa.Column("hyperparameters", JSON, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("rounds_done", sa.Integer, nullable=False),
        sa.Column("pack", sa.String(255)),
        sa.Column("plan", JSON),
        sa.Column("checkpoint", sa.Text),
        sa.Column("values", JSON),
        sa.Column("error", sa.Text),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_trials"),
        sa.ForeignKeyConstraint(["study_id"], [STUDY], name="fk_trials_study_id_studies", ondelete="CASCADE"),
        sa.UniqueConstraint("study_id", "label", "phase", "number", name="uq_trials_study_id_label_phase_number"),
    )
    op.create_index("ix_trials_study_id_state", "trials", ["study_id", "state"])
    op.create_table(
        "curve_segments",
        sa.Column("trial_id", sa.String(255), nullable=False),
        sa.Column("segment", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("rounds", sa.Integer, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("trial_id", "segment", name="pk_curve_segments"),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trials.id"], name="fk_curve_segments_trial_id_trials", ondelete="CASCADE"
        ),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), autoincrement=True, nullable=False),
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("data", JSON, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sa.ForeignKeyConstraint(["study_id"], [STUDY], name="fk_events_study_id_studies", ondelete="CASCADE"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_study_id_id", "events", ["study_id", "id"])
    op.create_table(
        "drivers",
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("acquired_at", sa.Double, nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.Column("released", sa.Boolean, nullable=False),
        sa.Column("deaths", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("study_id", name="pk_drivers"),
        sa.ForeignKeyConstraint(["study_id"], [STUDY], name="fk_drivers_study_id_studies", ondelete="CASCADE"),
    )
    op.create_table(
        "locks",
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_locks"),
    )
    op.create_table(
        "recorder_state",
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("run_id", sa.String(255), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("rounds", sa.Integer, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("study_id", "kind", "key", name="pk_recorder_state"),
        sa.ForeignKeyConstraint(["study_id"], [STUDY], name="fk_recorder_state_study_id_studies", ondelete="CASCADE"),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("request_hash", sa.String(64), nullable=False),
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("project", "key", name="pk_idempotency_keys"),
        sa.ForeignKeyConstraint(["study_id"], [STUDY], name="fk_idempotency_keys_study_id_studies", ondelete="CASCADE"),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_meta"),
    )


def downgrade() -> None:
    for table in ("meta", "idempotency_keys", "recorder_state", "locks", "drivers", "events", "curve_segments"):
        op.drop_table(table)
    op.drop_table("trials")
    op.drop_table("studies")
