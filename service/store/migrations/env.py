"""Run by alembic: migrates over the connection that the store hands in, inside the store's transaction."""

from alembic import context

from service.store.schema import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    compare_type=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
