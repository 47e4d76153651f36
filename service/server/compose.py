"""Assembles a service: store, API, scheduler with its launcher, recorder."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from driftline.backoff import pauses
from driftline.client.driver_client import DriverClient
from driftline.errors import InvalidSpec, Unavailable
from driftline.extras import missing
from driftline.study.yaml_files import parse
from service.api.allowed_programs import AllowedPrograms
from service.api.app import ApiOptions, create_app
from service.api.auth.tokens import SCOPES, Access, Issuer, Tokens
from service.api.check_process import check_processes
from service.api.event_streams import StreamLimits
from service.api.http_server import Server
from service.api.probes import create_probes
from service.api.rate_limits import Limits
from service.api.result_process import ResultProcess
from service.launchers.base import Launcher, LauncherModule, launchers
from service.launchers.worker_pools import FACT
from service.recorder.recorder_loop import RecorderLoop
from service.scheduler.loop import Scheduler
from service.server.home import ADMIN_TOKEN, SECRET, kept, prepare
from service.settings import ServiceSettings
from service.sqlite_address import sqlite_file
from service.store.store import Store
from service.web.pages import add_pages
from trainers import PluginError, data_dir

_LOG = logging.getLogger(__name__)
DATABASE_S = 60.0
"""Seconds that the database may take to answer at the start."""

DATABASE_PAUSE_S, LONGEST_DATABASE_PAUSE_S = 0.25, 2.0

DRIVERS_S = 14.0
"""Seconds that local drivers get to write their checkpoints when the service ends."""

RECORDER_S = 5.0

Part = Literal["api", "scheduler"]
Asked = TypeVar("Asked")


class Service:
    """A running service, or one part of it.

    Args:
        settings: Settings from the environment.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        only: "api" or "scheduler"; None runs everything in this process.
        per_project: Maximum number of studies of a project that run at once; None is no limit.
        mlflow_public: URL of MLflow for users, instead of the one in `settings`.
        stop: When set, stops waiting for the database.

    Attributes:
        url: Where the service listens.
        first: Whether the admin token was made just now.

    Raises:
        InvalidSpec: A setting is invalid.
        Unavailable: The database does not answer, or the port is taken.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        *,
        host: str,
        port: int,
        only: Part | None = None,
        per_project: int | None = None,
        mlflow_public: str = "",
        stop: threading.Event | None = None,
    ) -> None:
        self._stop = stop
        self._closers: list[tuple[str, Callable[[], object]]] = []
        self._settings = settings
        self._per_project = per_project
        self.first = False
        try:
            self._open(host, port, only, mlflow_public or settings.mlflow_public_url)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends everything within half a minute; local drivers write checkpoints if everything runs in one process."""
        for what, closer in reversed(self._closers):
            try:
                closer()
            except Exception:
                _LOG.exception("%s could not be closed cleanly; closing the rest", what)
        self._closers.clear()

    def _open(self, host: str, port: int, only: Part | None, mlflow_public: str) -> None:
        settings = self._settings
        if only != "api":
            launcher_kind(settings.launcher)  # report a wrong name before opening anything
        issuer = None if only == "scheduler" else read_issuer(settings.oidc)
        if not settings.database_url or launcher_kind(settings.launcher).ON_THIS_MACHINE:
            prepare(settings.home)
        secret = settings.secret or kept(settings.home, SECRET)[0]
        store = open_store(settings.database, self._stop)
        self._closers.append(("the store", store.close))
        tokens = self._tokens(store, secret.encode(), issuer, admin=only != "scheduler")
        woken: list[Scheduler] = []
        if only == "scheduler":
            server = Server(create_probes(store), host=host, port=port)
        else:
            server = self._serve(store, tokens, woken, host, port)
        self._closers.append(("the server", server.close))
        self.url = server.url
        if only != "api":
            self._record(store, mlflow_public)
            api_url = settings.api_url or _here(server.url if only is None else "http://127.0.0.1:8080")
            woken.append(self._schedule(store, tokens, api_url, together=only is None))
            server.metrics.watch(woken[0])

    def _tokens(self, store: Store, secret: bytes, issuer: Issuer | None, *, admin: bool) -> Tokens:
        accesses: dict[str, Access] = {}
        if admin:
            token = self._settings.admin_token
            if token is None:
                token, self.first = kept(self._settings.home, ADMIN_TOKEN)
            accesses[token] = Access(scopes=SCOPES, name="admin token")
        return Tokens(accesses, secret, store=store, issuer=issuer)

    def _serve(self, store: Store, tokens: Tokens, woken: Sequence[Scheduler], host: str, port: int) -> Server:
        settings = self._settings
        limits, streams = self._limits()
        results = ResultProcess(store, settings.database)
        self._closers.append(("the process for results", results.close))
        options = ApiOptions(
            frontier=results.frontier,
            page=results.page,
            limits=limits,
            streams=streams,
            # submitted studies may read no other files
            check=check_processes((data_dir(),), settings.secret_files, settings.data_urls),
            data_urls=settings.data_urls,
            programs=AllowedPrograms(settings.programs, settings.program_secrets, settings.program_images),
            wake=lambda: wake(woken),
        )
        app = create_app(store, tokens, options)
        add_pages(app)
        return Server(app, host=host, port=port, trusted_proxies=settings.trusted_proxies)

    def _limits(self) -> tuple[Limits, StreamLimits]:
        document = read_yaml(self._settings.limits, "DRIFTLINE_LIMITS")
        streams = StreamLimits.taken(document)
        return Limits.from_json(document), streams

    def _schedule(self, store: Store, tokens: Tokens, api_url: str, *, together: bool) -> Scheduler:
        launcher = self._launcher(api_url)
        # if everything runs in this process, the drivers' API ends with it
        end = partial(launcher.end, DRIVERS_S) if together else launcher.close
        self._closers.append(("the launcher", end))
        store.facts.put(FACT, launcher.pools.model_dump_json())
        connection = DriverClient(api_url)
        self._closers.append(("the connection to the API", connection.close))
        scheduler = Scheduler(
            store,
            launcher,
            tokens.driver,
            cluster=lambda study: None if launcher.own_cluster else "ray",
            per_project=self._per_project,
            start_seconds=launcher.start_seconds,
            back_seconds=self._settings.silent_seconds,
            answers=connection.ready,
            checkpoints=self._settings.checkpoints,
            quota=self._limits()[0].quota(),
        )
        scheduler.start()
        self._closers.append(("the scheduler", scheduler.close))
        return scheduler

    def _launcher(self, api_url: str) -> Launcher:
        settings = self._settings
        module = launcher_kind(settings.launcher)
        config = module.Config.from_json(read_yaml(settings.launcher_config, "DRIFTLINE_LAUNCHER_CONFIG"))
        logs = settings.home / "logs"
        return module.build(config, url=api_url, checkpoints=settings.checkpoints, logs=logs)

    def _record(self, store: Store, public: str) -> None:
        settings = self._settings
        if settings.mlflow_url is None:
            _LOG.info("nothing is recorded in MLflow: DRIFTLINE_MLFLOW_URL is not set")
            return
        recorder = RecorderLoop(store, settings.database, settings.mlflow_url, settings.mlflow_artifacts, public)
        stop = threading.Event()
        thread = threading.Thread(target=recorder.run, args=(stop,), name="driftline-recorder", daemon=True)
        thread.start()

        def end() -> None:
            stop.set()
            thread.join(RECORDER_S)
            recorder.close()  # the rest is written after the next start

        self._closers.append(("the recorder", end))


def wake(schedulers: Sequence[Scheduler]) -> None:
    """Makes schedulers of this process look for work at once."""
    for scheduler in schedulers:
        scheduler.wake()


def launcher_kind(name: str) -> LauncherModule:
    """The module of a launcher.

    Raises:
        InvalidSpec: The name is unknown, the module breaks the contract, or a dependency is not installed.
    """
    if name not in launchers():
        raise InvalidSpec("DRIFTLINE_LAUNCHER", f"must be one of {', '.join(launchers())}, got {name!r}")
    try:
        return launchers()[name]
    except PluginError as error:
        raise InvalidSpec("DRIFTLINE_LAUNCHER", str(error)) from error
    except ModuleNotFoundError as error:
        if (named := missing(error)) is None:
            raise
        raise InvalidSpec("DRIFTLINE_LAUNCHER", f"{name}: {named}") from error


def read_issuer(file: Path | None) -> Issuer | None:
    """The identity provider whose tokens are accepted too; None without a file.

    Raises:
        InvalidSpec: The file is invalid.
    """
    if file is None:
        return None
    from service.api.auth.oidc import Oidc  # imports cryptography, which many services do not need

    return Oidc.from_json(read_yaml(file, "DRIFTLINE_OIDC"))


def read_yaml(file: Path | None, name: str) -> dict[str, Any]:
    """The mapping in a YAML or JSON file, parsed like a study; empty without a file.

    Args:
        file: The file.
        name: The environment variable that names the file, for the error.

    Raises:
        InvalidSpec: The file cannot be read, or does not hold a mapping.
    """
    if file is None:
        return {}
    try:
        content = parse(file.read_text(encoding="utf-8"))
    except InvalidSpec as error:
        raise InvalidSpec(name, f"{file}: {error.problem}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec(name, f"must name a YAML file, got {file}: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InvalidSpec(name, f"{file} must hold a mapping of settings, got {type(content).__name__}")
    return content


def open_store(url: str, stop: threading.Event | None = None) -> Store:
    """Opens the store and upgrades it, once its database answers.

    Raises:
        Unavailable: The database did not answer for a minute or until `stop`.
        Conflict: The database was written by a newer Driftline.
    """
    return answered(url, Store, stop)


def answered(url: str, ask: Callable[[str], Asked], stop: threading.Event | None = None) -> Asked:
    """Calls `ask` with the database's URL until the database answers, and returns the result.

    Args:
        url: URL of the database; the folder of a SQLite file is created.
        ask: Called with the URL; raises `Unavailable` while the database does not answer.
        stop: When set, stops waiting.

    Raises:
        Unavailable: The database did not answer for a minute or until `stop`.
    """
    stop = stop or threading.Event()
    deadline = time.monotonic() + DATABASE_S
    try:
        file = sqlite_file(url)
    except ValueError as error:
        raise InvalidSpec("database URL", str(error)) from None
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    between = pauses(DATABASE_PAUSE_S, LONGEST_DATABASE_PAUSE_S)
    while True:
        try:
            return ask(url)
        except Unavailable as error:
            if stop.is_set() or time.monotonic() > deadline:
                raise
            _LOG.warning("waiting for the database: %s", error)
            stop.wait(next(between))


def _here(url: str) -> str:
    """The URL at which this machine reaches its own server."""
    return url.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:")
