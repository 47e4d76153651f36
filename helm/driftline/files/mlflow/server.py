"""Runs `mlflow server` as one process, with accounts that read and with the artifacts of one folder.

MLflow starts its web server from a process that then only waits, with 200 MiB of imported modules. Here the web server
replaces that process, and Driftline's app around MLflow's takes the place of MLflow's own: there, every account may
create an experiment whose artifacts are the files of this server. `_exec_cmd` is private to MLflow, so its absence ends
the start.
"""

import os
import sys

import mlflow.server
from mlflow.cli import cli

ACCOUNTS = "mlflow.server.auth:create_app"
GUARDED = "service.recorder.mlflow_pages:accounts_app"


def become(command, *, extra_env, **_):
    """Replaces this process by the web server's."""
    if command[-1] != ACCOUNTS:
        sys.exit(f"MLflow's app must be {ACCOUNTS}, got {command[-1]}: this version of MLflow is not supported")
    os.execvpe(command[0], [*command[:-1], GUARDED], os.environ | extra_env)


if not hasattr(mlflow.server, "_exec_cmd"):
    sys.exit("MLflow must start its web server with _exec_cmd: this version of MLflow is not supported")
mlflow.server._exec_cmd = become
cli(["server", *sys.argv[1:]])
sys.exit("MLflow must not run without Driftline's app around it")
