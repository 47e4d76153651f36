"""Environment variables of a service and of embedded studies; `driftline.client.environment` reads the rest.

For embedded studies:

| variable | meaning | default |
|---|---|---|
| DRIFTLINE_RAY_ADDRESS | Ray cluster to use; without it a local one is started | none |

For drivers, including those of embedded studies:

| variable | meaning | default |
|---|---|---|
| DRIFTLINE_HANG_SECONDS | replace a worker silent for this long and for 10 times its longest pause so far | 900 |

For a service (`driftline serve`, `driftline migrate`):

| variable | meaning | default |
|---|---|---|
| DRIFTLINE_HOME | folder of a service on one machine: database, secret, logs, checkpoints | driftline-home |
| DRIFTLINE_DATABASE_URL | database of the service: a SQLAlchemy URL | a SQLite file in DRIFTLINE_HOME |
| DRIFTLINE_SECRET | key that signs drivers' tokens; the same in all replicas | made once, kept in DRIFTLINE_HOME |
| DRIFTLINE_ADMIN_TOKEN | a token with all scopes, for project "default" | made once, kept in DRIFTLINE_HOME |
| DRIFTLINE_API_URL | how drivers reach the API | http://127.0.0.1:PORT |
| DRIFTLINE_CHECKPOINTS | folder or fsspec URL for checkpoints | checkpoints in DRIFTLINE_HOME |
| DRIFTLINE_LAUNCHER | where drivers run: local, ray_jobs, kubernetes, or a driftline.launchers entry point | local |
| DRIFTLINE_LAUNCHER_CONFIG | YAML file with the launcher's settings | none |
| DRIFTLINE_MLFLOW_URL | MLflow tracking URI; "none" records nothing | a SQLite file in DRIFTLINE_HOME |
| DRIFTLINE_MLFLOW_PUBLIC_URL | how people reach MLflow | DRIFTLINE_MLFLOW_URL |
| DRIFTLINE_LIMITS | YAML or JSON file: body size, request rates, default quotas | built-in limits |
| DRIFTLINE_OIDC | YAML or JSON file: an OpenID Connect issuer whose tokens are accepted, and what they allow | none |
| DRIFTLINE_SILENT_SECONDS | replace a live driver that stays silent for this long after its lease has expired | 60 |

If DRIFTLINE_DATABASE_URL is set, MLflow is used only if DRIFTLINE_MLFLOW_URL is set too.
DATA_DIR, the folder of the data sets, is read only by the trainers.
"""

from __future__ import annotations

import ipaddress
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driftline.client.environment import address
from driftline.errors import InvalidSpec

HANG_S = 900.0
SILENT_S = 60.0


@dataclass(frozen=True)
class ServiceSettings:
    """The environment's settings for a service.

    Attributes:
        home: Folder of a service on one machine.
        database: URL of the database.
        secret: Key that signs drivers' tokens; None: the one kept in `home`.
        admin_token: A token with all scopes; None: the one kept in `home`.
        api_url: How drivers reach the API, without a slash at the end; None: on this machine.
        checkpoints: Folder (absolute) or fsspec URL for checkpoints.
        launcher: Where drivers run.
        launcher_config: YAML file with the launcher's settings.
        mlflow: Tracking URI to record into; None records nothing.
        mlflow_artifacts: Folder for artifacts of MLflow's SQLite file; None leaves it to MLflow's server.
        mlflow_public: URL of MLflow for users, if it differs from `mlflow`; else "".
        limits: File with limits.
        oidc: File that names an OpenID Connect issuer.
        trusted_proxies: Addresses and networks whose X-Forwarded-For names the client.
        silent_seconds: A live driver that stays silent for this long after its lease has expired is replaced.
    """

    home: Path
    database: str
    secret: str | None
    admin_token: str | None
    api_url: str | None
    checkpoints: str
    launcher: str
    launcher_config: Path | None
    mlflow: str | None
    mlflow_artifacts: str | None
    mlflow_public: str
    limits: Path | None
    oidc: Path | None = None
    trusted_proxies: tuple[str, ...] = ()
    silent_seconds: float = SILENT_S


def read_service(environ: Mapping[str, str]) -> ServiceSettings:
    """A service's settings from a mapping of environment variables; an empty value counts as not set.

    Exception: if DRIFTLINE_MLFLOW_URL is empty or "none", nothing is recorded.

    Raises:
        InvalidSpec: DRIFTLINE_API_URL is not an http(s) URL, DRIFTLINE_TRUSTED_PROXIES is not a list of IP addresses
            and networks, or DRIFTLINE_SILENT_SECONDS is not a number above 0.

    Examples:
        >>> read_service({"DRIFTLINE_HOME": "/srv/tuner"}).database
        'sqlite:////srv/tuner/driftline.db'
    """
    home = Path(environ.get("DRIFTLINE_HOME") or "driftline-home").absolute()
    database = environ.get("DRIFTLINE_DATABASE_URL") or None
    usual = f"sqlite:///{home / 'mlflow.db'}" if database is None else "none"
    mlflow = environ.get("DRIFTLINE_MLFLOW_URL", usual) or "none"
    checkpoints = environ.get("DRIFTLINE_CHECKPOINTS") or str(home / "checkpoints")
    config, limits = environ.get("DRIFTLINE_LAUNCHER_CONFIG"), environ.get("DRIFTLINE_LIMITS")
    oidc = environ.get("DRIFTLINE_OIDC")
    return ServiceSettings(
        home=home,
        database=database or f"sqlite:///{home / 'driftline.db'}",
        secret=environ.get("DRIFTLINE_SECRET") or None,
        admin_token=environ.get("DRIFTLINE_ADMIN_TOKEN") or None,
        api_url=address(environ, "DRIFTLINE_API_URL"),
        checkpoints=checkpoints if "://" in checkpoints else str(Path(checkpoints).absolute()),
        launcher=environ.get("DRIFTLINE_LAUNCHER") or "local",
        launcher_config=Path(config) if config else None,
        mlflow=None if mlflow == "none" else mlflow,
        mlflow_artifacts=str(home / "mlartifacts") if mlflow.startswith("sqlite:") else None,
        mlflow_public=(environ.get("DRIFTLINE_MLFLOW_PUBLIC_URL") or "").rstrip("/"),
        limits=Path(limits) if limits else None,
        oidc=Path(oidc) if oidc else None,
        trusted_proxies=_networks(environ, "DRIFTLINE_TRUSTED_PROXIES"),
        silent_seconds=_seconds(environ, "DRIFTLINE_SILENT_SECONDS", SILENT_S),
    )


def ray_address() -> str | None:
    """DRIFTLINE_RAY_ADDRESS: the Ray cluster for embedded studies; None starts a local one."""
    return os.environ.get("DRIFTLINE_RAY_ADDRESS") or None


def hang_seconds() -> float:
    """DRIFTLINE_HANG_SECONDS: how long a worker may be silent before it is replaced.

    Raises:
        InvalidSpec: It is not a number above 0.
    """
    return _seconds(os.environ, "DRIFTLINE_HANG_SECONDS", HANG_S)


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name) or str(default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise InvalidSpec(name, f"must be a number of seconds above 0, got {text!r}")
    return seconds


def _networks(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    texts = tuple(text.strip() for text in environ.get(name, "").split(",") if text.strip())
    for text in texts:
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            form = "must be IP addresses and networks, separated by commas: 10.0.0.7,10.244.0.0/16"
            raise InvalidSpec(name, f"{form}; got {text!r}: {error}") from None
    return texts
