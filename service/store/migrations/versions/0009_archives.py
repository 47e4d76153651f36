"""Adds the packed files of programs, and which studies use them.

Only adds tables: a Driftline of the previous revision still works with this database.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "archives",
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("used_at", sa.Double, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("project", "digest", name="pk_archives"),
    )
    op.create_table(
        "study_archives",
        sa.Column("study_id", sa.String(64), nullable=False),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("study_id", name="pk_study_archives"),
        sa.ForeignKeyConstraint(
            ["study_id"], ["studies.id"], name="fk_study_archives_study_id_studies", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_study_archives_project_digest", "study_archives", ["project", "digest"])


def downgrade() -> None:
    op.drop_table("study_archives")
    op.drop_table("archives")
