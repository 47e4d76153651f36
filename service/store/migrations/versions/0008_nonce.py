"""Which driver holds a study, beyond the number of its attempt, which a restored backup gives out again.

Only adds: a Driftline of the revision before works on with these tables.
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
