"""`driftline open` and `ui`: the page of an output folder, and MLflow. `driftline models`: models for MLflow."""

from __future__ import annotations

import contextlib
import html
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote
from urllib.request import ProxyHandler, Request, build_opener

import typer

from driftline.errors import InvalidSpec, NotFound
from service.child_environment import child_environment
from service.cli.terminal import echo
from service.embedded.folder_results import StoredLink, log_stored_models, mlflow_uri, stored_link
from service.recorder.mlflow_pages import TOKEN

START_S = 90.0
"""Seconds that MLflow's server may take to answer."""

STOP_S = 5.0


def open_ui(folders: Sequence[Path], port: int, *, browser: bool, as_json: bool = False) -> None:
    """Serves the MLflow database of a folder, or a copy of several, until Ctrl-C, and opens the study's page.

    Args:
        folders: Output folders.
        port: Port on 127.0.0.1.
        browser: Open the page once the server answers.
        as_json: Whether to print a line of JSON in place of the text.

    Raises:
        NotFound: A folder holds no study, or nothing of the study is in MLflow yet.
        InvalidSpec: The port is taken, or a folder was given twice.
    """
    with contextlib.ExitStack() as stack:
        if len(folders) == 1:
            link = stored_link(folders[0], port)
        else:
            from service.embedded.joined_folders import joined_link

            temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="driftline-"))
            link = joined_link(folders, Path(temporary), port)
        require_free(port, "--port")
        token = secrets.token_urlsafe(32)
        url = link_with(token, link.url)
        what = "the study's page" if len(folders) == 1 else "the studies' page, of copies that last until then"
        text = f"MLflow is starting (10-20 s); {what}, for whoever has this link:\n\n    {url}\n\nCtrl-C ends it."
        echo(json.dumps({"url": url, "tracking_uri": link.tracking_uri}) if as_json else text)
        sys.stdout.flush()
        raise typer.Exit(_serve(link, port, token, browser=browser))


def open_page(folder: Path) -> None:
    """Opens frontier.html of a folder in a browser, and prints its address.

    Raises:
        NotFound: The folder has no page yet.
    """
    page = folder / "frontier.html"
    if not page.is_file():
        raise NotFound(f"no frontier.html in {folder}: run a study into it first, or resume it")
    address = page.resolve().as_uri()
    echo(address)
    webbrowser.open(address)


def link_with(token: str, url: str) -> str:
    """A page of MLflow, as a link that also sets the browser's cookie.

    Examples:
        >>> link_with("abc", "http://127.0.0.1:5000/#/experiments/1")
        'http://127.0.0.1:5000/?token=abc#/experiments/1'
    """
    address, hash_, page = url.partition("#")
    return f"{address.rstrip('/')}/?token={token}{hash_}{page}"


def log_models(folder: Path, label: str | None, *, as_json: bool) -> None:
    """Logs the models of a folder's study to its MLflow database, and prints how to load them."""
    uris = log_stored_models(folder, label, lambda text: echo(text, err=as_json))
    if as_json:
        echo(json.dumps({"tracking_uri": mlflow_uri(folder), "models": uris}, indent=2))
        return
    path = str(folder.resolve())
    copied = ', dst_path="."' if unquote(path) != path else ""  # MLflow 3.17 reads no model under a name with %2F
    echo(
        f"Load one in Python:\n  mlflow.set_tracking_uri({mlflow_uri(folder)!r})\n"
        f"  module = mlflow.pytorch.load_model({uris[0]!r}{copied})"
        if uris
        else "Nothing is recommended, so there is no model."
    )


def _serve(link: StoredLink, port: int, token: str, *, browser: bool) -> int:
    """Runs MLflow's server until Ctrl-C; returns its exit code."""
    server = start_server(link.tracking_uri, link.artifact_roots, port, token)
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with tempfile.TemporaryDirectory(prefix="driftline-") as temporary:
            if browser:
                page = Path(temporary) / "open.html"
                threading.Thread(target=_open_when_up, args=(page, link.url, port, token), daemon=True).start()
            return server.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        end_server(server)


def start_server(tracking_uri: str, artifact_roots: Sequence[str], port: int, token: str) -> subprocess.Popen[bytes]:
    """Starts MLflow's server for reading a database, on this computer only; it answers some seconds later.

    Args:
        tracking_uri: The database.
        artifact_roots: Addresses of the folders of its artifacts; no other file is served.
        port: Port on 127.0.0.1.
        token: Token that every request must carry.
    """
    command = [sys.executable, "-P", "-W", "ignore", "-m", "service.recorder.mlflow_pages", tracking_uri, str(port)]
    return subprocess.Popen(
        [*command, *artifact_roots],
        env={
            **child_environment(os.environ),
            TOKEN: token,
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # saves a dozen processes
        },
        start_new_session=True,  # Ctrl-C reaches only this process; `end_server` ends the group
    )


def end_server(server: subprocess.Popen[bytes]) -> None:
    """Ends the server with all its workers."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(STOP_S)


def require_free(port: int, option: str) -> None:
    """Checks that a port of this computer is free.

    Args:
        port: The port.
        option: The option that gave the port, for the error.

    Raises:
        InvalidSpec: The port is taken.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise InvalidSpec(option, f"must be free on this computer, got {port}: choose another one") from error


def _open_when_up(page: Path, url: str, port: int, token: str) -> None:
    """Opens the browser on a file that redirects to the link: other accounts can see a browser's arguments."""
    target = html.escape(link_with(token, url))
    page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={target}">', encoding="utf-8")
    health = Request(f"http://127.0.0.1:{port}/health", headers={"Authorization": f"Bearer {token}"})
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        try:
            with build_opener(ProxyHandler({})).open(health, timeout=2):
                webbrowser.open(page.as_uri())
                return
        except OSError:
            time.sleep(0.5)
