"""Makes MLflow's database where it is missing, and brings the tables of an older MLflow to this one's revision."""

import os
import sys
import time

import sqlalchemy
from mlflow.db import commands
from sqlalchemy.exc import OperationalError, ProgrammingError

url = sqlalchemy.make_url(os.environ["MLFLOW_DATABASE"])
if url.drivername in ("postgresql", "postgresql+psycopg2"):  # the image has psycopg 3
    url = url.set(drivername="postgresql+psycopg")
deadline = time.monotonic() + 120


def exists():
    """Whether the database is there; waits for its server."""
    while True:
        try:
            with sqlalchemy.create_engine(url).connect() as connection:
                return sqlalchemy.inspect(connection).has_table("alembic_version")
        except OperationalError as error:
            if "does not exist" in str(error):
                return None
            if time.monotonic() > deadline:
                sys.exit(f"MLflow's database must answer within 120 s: {error}")
            time.sleep(2)


found = exists()
if found is None:
    server = url.set(database="postgres")
    with sqlalchemy.create_engine(server, isolation_level="AUTOCOMMIT").connect() as connection:
        try:
            connection.execute(sqlalchemy.text(f'CREATE DATABASE "{url.database}"'))
            print(f"database {url.database} made")
        except ProgrammingError as error:
            if "already exists" not in str(error):
                raise
elif found:
    # In this process: the arguments of another one, with the password in the URL, are shown to the whole node.
    commands(["upgrade", url.render_as_string(hide_password=False)])
