"""Migrations of the store's schema.

    env       what alembic runs
    versions  the migrations, one module each, numbered

`service.store.database` runs them.
"""
