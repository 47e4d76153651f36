"""How often a trial's workers have died, so that a new driver goes on counting where the last one stopped.

Only adds: a Driftline of the revision before works on with these tables.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("deaths", sa.Integer, nullable=False, server_default="0"))
    op.add_column("trials", sa.Column("death_round", sa.Integer))


def downgrade() -> None:
    op.drop_column("trials", "death_round")
    op.drop_column("trials", "deaths")
