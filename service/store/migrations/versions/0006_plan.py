"""How a study's trials are asked for and packed.

Only adds: a Driftline of the revision before works on with these tables.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("studies", sa.Column("plan", sa.JSON(none_as_null=True)))


def downgrade() -> None:
    op.drop_column("studies", "plan")
