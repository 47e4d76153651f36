"""Adds the nonce of the driver that holds a study: a restored backup gives out the number of an attempt again.

Only adds a column: a Driftline of the previous revision still works with these tables.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("drivers", sa.Column("nonce", sa.String(64), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("drivers", "nonce")
