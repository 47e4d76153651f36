"""`driftline serve` and `driftline migrate`: a service on this machine, or one replica of it."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from driftline.errors import InvalidSpec, Unavailable
from service.cli.terminal import echo
from service.confined import hide_process
from service.log_file import log_to_stderr
from service.server import compose
from service.server.compose import Part, Service, answered
from service.server.home import ADMIN_TOKEN, prepare
from service.settings import ServiceSettings, read_service
from service.store.database import migrate as bring_up
from service.store.database import take_back

PORTS: dict[Part | None, int] = {None: 8080, "api": 8080, "scheduler": 8081}
_OWN = ("127.0.0.1", "localhost", "::1")
_LOOK_S = 1.0
"""Longest wait in seconds: a signal that arrives as a wait begins is handled only when this wait is over."""


def serve(
    host: str, port: int | None, only: str | None, mlflow_port: int | None, per_project: int | None = None
) -> None:
    """Runs a service until SIGTERM or Ctrl-C, and then ends within half a minute.

    Args:
        host: Address to listen on.
        port: Port; 8080 by default, 8081 for a scheduler alone.
        only: "api" or "scheduler"; None runs everything in this process.
        mlflow_port: Also show the service's MLflow database on this port of this machine, for reading with a token.
        per_project: Maximum number of studies of a project that run at once; None is no limit.

    Raises:
        InvalidSpec: A setting is invalid.
        Unavailable: The database does not answer, or the port is taken.
    """
    part: Part | None = None
    if only is not None:
        if only not in ("api", "scheduler"):
            raise InvalidSpec("--only", f"must be api or scheduler, got {only!r}")
        part = "api" if only == "api" else "scheduler"
    log_to_stderr(logging.INFO)
    for noisy in ("httpx", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    settings = read_service(os.environ)
    hide_process()
    if part == "api" or compose.launcher_kind(settings.launcher).ON_THIS_MACHINE:
        os.umask(0o077)  # only the owner may read database, logs and checkpoints on this machine
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    with _mlflow(settings, mlflow_port) as public:
        listen_port = PORTS[part] if port is None else port
        try:
            service = Service(
                settings,
                host=host,
                port=listen_port,
                only=part,
                per_project=per_project,
                mlflow_public=public,
                stop=stop,
            )
        except Unavailable:
            if not stop.is_set():
                raise
            echo("Ended before it was ready.", err=True)
            return
        gc.collect()
        gc.freeze()  # full collections then skip the loaded objects: they took a sixth of the time of a large read
        try:
            say(service, settings, host, part)
            while not stop.wait(_LOOK_S):
                pass
            echo("Ending: drivers on this machine write their checkpoints ...", err=True)
        finally:
            service.close()
    echo("Ended.", err=True)


def migrate(database: str | None, to: str | None = None) -> None:
    """Upgrades a database to the newest revision; safe to repeat, also by several processes at once.

    Args:
        database: URL of the database; from the environment by default.
        to: An earlier revision to go back to instead.

    Raises:
        InvalidSpec: `database` is not a URL.
        Unavailable: The database does not answer.
        Conflict: The database was written by a newer Driftline, or cannot go back to that revision.
    """
    if database is not None and "://" not in database:
        raise InvalidSpec("--database", f"must be a URL such as sqlite:///FILE, got {database!r}")
    url = database or read_service(os.environ).database
    if to is not None:
        take_back(url, to)
        echo(f"The database is at revision {to}. Run the Driftline of that revision.", err=True)
        return
    before, now = answered(url, bring_up)
    echo(f"The database is at the newest revision, {now} ({_came_from(before, now)}).", err=True)


def _came_from(before: str | None, now: str) -> str:
    if before is None:
        return "it was empty"
    return "nothing to do" if before == now else f"it was at {before}"


def say(service: Service, settings: ServiceSettings, host: str, only: Part | None) -> None:
    """Prints on stderr how to use the service."""
    lines = [f"Driftline's {only or 'service'} is ready at {service.url}"]
    if only != "scheduler":
        if host not in _OWN:
            lines.append(
                f"It listens on {host}: clients need a token, but the traffic is not encrypted. "
                "Put a proxy with TLS in front of it unless you trust the network."
            )
        url = service.url.replace("0.0.0.0", "127.0.0.1")
        if settings.admin_token is None:
            verb = "was made and is kept" if service.first else "is kept"
            file = settings.home / ADMIN_TOKEN
            lines += [
                f"The admin token {verb} in {file}. In another terminal:",
                f"    export DRIFTLINE_URL={url} DRIFTLINE_TOKEN=$(cat {file})",
                "    driftline submit STUDY.yaml --wait",
            ]
    echo("\n".join(lines), err=True)


@contextmanager
def _mlflow(settings: ServiceSettings, port: int | None) -> Iterator[str]:
    """Runs MLflow's server on the service's own MLflow database during the block; yields its URL."""
    if port is None:
        yield ""
        return
    from service.cli.ui import end_server, link_with, require_free, start_server

    if settings.mlflow_url is None or settings.mlflow_artifacts is None:
        raise InvalidSpec(
            "--mlflow-port", "needs the service's own MLflow database; DRIFTLINE_MLFLOW_URL names another"
        )
    require_free(port, "--mlflow-port")
    from service.recorder.tracking import connect

    prepare(settings.home)
    connect(settings.mlflow_url).search_experiments(max_results=1)  # creates the tables before two processes try to
    token = secrets.token_urlsafe(32)
    server: subprocess.Popen[bytes] = start_server(settings.mlflow_url, [settings.mlflow_artifacts], port, token)
    url = f"http://127.0.0.1:{port}"
    try:
        link = link_with(token, url)
        echo(f"MLflow is starting; this link opens it until the service ends:\n    {link}", err=True)
        yield url
    finally:
        end_server(server)
