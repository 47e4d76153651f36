"""Deleted studies, retention, sizes of curves, and quotas that pause studies.

Only adds columns and tables: a Driftline of the previous revision works with them.
"""

import sqlalchemy as sa
from alembic import op

from service.store.curve_segments import ZLIB, sealed

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("studies", sa.Column("deleted_at", sa.Double))
    op.create_index("ix_studies_deleted_at", "studies", ["deleted_at"])
    op.create_index("ix_studies_finished_at", "studies", ["finished_at"])
    op.add_column("studies", sa.Column("curve_rows", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("studies", sa.Column("curve_bytes", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("studies", sa.Column("measured_version", sa.Integer, nullable=False, server_default="0"))
    op.add_column("studies", sa.Column("measured_at", sa.Double, nullable=False, server_default="0"))
    op.add_column("quotas", sa.Column("retention_days", sa.Double))
    op.add_column("quotas", sa.Column("gpu_hours_pause", sa.Boolean, nullable=False, server_default=sa.false()))
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
        "past_use",
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("gpu_seconds", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("project", name="pk_past_use"),
    )


def downgrade() -> None:
    op.execute("DELETE FROM studies WHERE deleted_at IS NOT NULL")
    _seal_curves(op.get_bind())
    _forget_in_backup()
    op.drop_table("past_use")
    op.drop_table("deletions")
    op.drop_column("quotas", "gpu_hours_pause")
    op.drop_column("quotas", "retention_days")
    op.drop_index("ix_studies_finished_at", "studies")
    op.drop_index("ix_studies_deleted_at", "studies")
    for name in ("measured_at", "measured_version", "curve_bytes", "curve_rows", "deleted_at"):
        op.drop_column("studies", name)


def _forget_in_backup() -> None:
    """Delete from the backup of revision 0004 what refers to studies that were deleted since."""
    if not sa.inspect(op.get_bind()).has_table("backup_0003_studies"):
        return
    op.execute("DELETE FROM backup_0003_studies WHERE id NOT IN (SELECT id FROM studies)")
    for table in ("trials", "drivers", "events", "packs", "recorder_state"):
        op.execute(f"DELETE FROM backup_0003_{table} WHERE study_id NOT IN (SELECT id FROM studies)")
    op.execute("DELETE FROM backup_0003_curve_segments WHERE trial_id NOT IN (SELECT id FROM backup_0003_trials)")


def _seal_curves(connection: sa.Connection) -> None:
    """Write curves of running trials in the form that a Driftline of the previous revision can read."""
    segments = sa.table(
        "curve_segments", sa.column("trial_id"), sa.column("segment"), sa.column("payload", sa.LargeBinary)
    )
    for trial, segment, payload in connection.execute(
        sa.select(segments).where(sa.func.substr(segments.c.payload, 1, 1) != ZLIB)
    ).all():
        where = (segments.c.trial_id == trial, segments.c.segment == segment)
        connection.execute(sa.update(segments).where(*where).values(payload=sealed(payload)))
