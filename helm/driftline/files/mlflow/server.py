"""Runs `mlflow server` as one process.

MLflow starts its web server from a process that then only waits, with 200 MiB of imported modules. Here the web server
replaces that process. `_exec_cmd` is private to MLflow: under a version without it, both processes run as usual.
"""

import os
import sys

import mlflow.server
from mlflow.cli import cli


def become(command, *, extra_env, **_):
    """Replaces this process by the web server's."""
    os.execvpe(command[0], command, os.environ | extra_env)


mlflow.server._exec_cmd = become
cli(["server", *sys.argv[1:]])
