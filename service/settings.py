"""Environment variables of a service, of drivers and of embedded studies.

`driftline.client.environment` reads those of clients. DATA_DIR, the folder of the data sets, is read by the trainers.
"""

from __future__ import annotations

import ipaddress
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from driftline.client.environment import http_address
from driftline.errors import InvalidSpec
from trainers import UrlPrefix

HANG_S = 900.0
SILENT_S = 60.0


def _seconds(text: Any) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"must be a number of seconds above 0, got {text!r}")
    return seconds


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"must be true or false, got {text!r}")
    return text == "true"


def _words(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _networks(text: str) -> tuple[str, ...]:
    names = _words(text)
    for name in names:
        try:
            ipaddress.ip_network(name)
        except ValueError as error:
            form = "must be IP addresses and networks, separated by commas: 10.0.0.7,10.244.0.0/16"
            raise ValueError(f"{form}; got {name!r}: {error}") from None
    return names


def _urls(text: str) -> tuple[str, ...]:
    urls = _words(text)
    for url in urls:
        UrlPrefix.of(url)
    return urls


def _place(location: str) -> str:
    return location if "://" in location else str(Path(location).absolute())


def _without_account(url: str) -> str:
    if url.startswith(("http://", "https://")) and "@" in urlsplit(url).netloc:
        raise ValueError("must hold no account, because it is shown: use MLFLOW_TRACKING_USERNAME and _PASSWORD")
    return url


def _mlflow(url: str | None) -> str | None:
    if url in (None, "", "none"):
        return None
    from service.sqlite_address import sqlite_file

    sqlite_file(str(url))  # refuses unknown options
    return _without_account(str(url))


def _home(folder: Path) -> Path:
    _sqlite(folder)
    return folder.absolute()


def _sqlite(file: Path) -> str:
    from service.sqlite_address import sqlite_url  # imports SQLAlchemy, which a driver's machine may lack

    return sqlite_url(file)


class ServiceSettings(BaseModel):
    """The environment's settings for a service, as `read_service` reads them: `home` is DRIFTLINE_HOME, and so on.

    docs/service.md has the table of their descriptions.
    """

    model_config = ConfigDict(frozen=True, alias_generator=lambda name: f"DRIFTLINE_{name.upper()}")

    home: Annotated[Path, AfterValidator(_home)] = Field(
        Path("driftline-home"), validate_default=True, description="folder for the files of a service on one machine"
    )
    database_url: str = Field("", description="SQLAlchemy URL of the database; SQLite in DRIFTLINE_HOME by default")
    secret: str | None = Field(
        None, description="key that signs drivers' tokens, the same in all replicas; kept in DRIFTLINE_HOME by default"
    )
    admin_token: str | None = Field(
        None, description='token with all rights, in project "default"; kept in DRIFTLINE_HOME by default'
    )
    api_url: Annotated[str | None, AfterValidator(http_address)] = Field(
        None, description="URL at which drivers reach the API; http://127.0.0.1:PORT by default"
    )
    checkpoints: Annotated[str, AfterValidator(_place)] = Field(
        default_factory=lambda values: str(values["home"] / "checkpoints"),
        description="folder or fsspec URL for checkpoints; in DRIFTLINE_HOME by default",
    )
    launcher: str = Field(
        "local", description="where drivers run: local, ray_jobs, kubernetes, or an installed launcher"
    )
    launcher_config: Path | None = Field(None, description="YAML file with the launcher's settings")
    mlflow_url: Annotated[str | None, BeforeValidator(_mlflow)] = Field(
        default_factory=lambda values: None if values["database_url"] else _sqlite(values["home"] / "mlflow.db"),
        description='MLflow tracking URI; "none" or empty turns recording off; SQLite in DRIFTLINE_HOME by default, or '
        "none if DRIFTLINE_DATABASE_URL is set",
    )
    mlflow_public_url: Annotated[str, AfterValidator(lambda url: _without_account(url.rstrip("/")))] = Field(
        "", description="URL at which people reach MLflow; DRIFTLINE_MLFLOW_URL by default"
    )
    limits: Path | None = Field(
        None, description="YAML or JSON file with [limits](#what-may-be-submitted), read by the API and the scheduler"
    )
    oidc: Path | None = Field(
        None,
        description="YAML or JSON file that describes an [issuer](#signing-in-elsewhere) whose tokens are accepted too",
    )
    trusted_proxies: Annotated[tuple[str, ...], BeforeValidator(_networks)] = Field(
        (),
        description="IP addresses and networks of your proxies, separated by commas: `10.0.0.7,10.244.0.0/16`. For "
        "requests from them, the audit trail records the client that X-Forwarded-For names; from any other "
        "address the header is ignored",
    )
    data_urls: Annotated[tuple[str, ...], BeforeValidator(_urls)] = Field(
        (),
        description="prefixes of the [URLs](data.md#urls-on-a-service) from which studies may read data, separated by "
        "commas: `https://data.example.org/sets/,s3://bucket/sets/`; by default none, so that studies read no URLs",
    )
    programs: Annotated[bool, BeforeValidator(_switch)] = Field(
        False,
        description='"true" if studies may bring [programs of their own](programs.md#on-a-service); "false" by default',
    )
    program_secrets: Annotated[tuple[str, ...], BeforeValidator(_words)] = Field(
        (),
        description="patterns of the [secrets](programs.md#secrets) that programs may use, separated by commas: "
        "`WANDB_*`; none by default",
    )
    program_images: Annotated[tuple[str, ...], BeforeValidator(_words)] = Field(
        (),
        description="patterns of the [images](programs.md#images-on-kubernetes) in which programs may run, separated "
        "by commas: `ghcr.io/team/*`; only Driftline's own by default",
    )
    silent_seconds: Annotated[float, BeforeValidator(_seconds)] = Field(
        SILENT_S,
        description="seconds for which a live driver may stay silent after its lease has expired; then it is replaced; "
        "60 by default",
    )

    @property
    def database(self) -> str:
        """SQLAlchemy URL of the database."""
        return self.database_url or _sqlite(self.home / "driftline.db")

    @property
    def secret_files(self) -> tuple[Path, ...]:
        """Files and folders that no plug-in may read: the service's folder, its databases and files of settings."""
        from service.sqlite_address import sqlite_file

        databases = [sqlite_file(url) for url in (self.database, self.mlflow_url or "")]
        files = [Path(f"{file}{end}") for file in databases if file for end in ("", "-wal", "-shm", "-journal")]
        return (self.home, *files, *filter(None, (self.launcher_config, self.limits, self.oidc)))

    @property
    def mlflow_artifacts(self) -> str | None:
        """Address of the folder for artifacts of MLflow's SQLite file; None leaves it to MLflow's server."""
        return (self.home / "mlartifacts").as_uri() if (self.mlflow_url or "").startswith("sqlite:") else None


def read_service(environ: Mapping[str, str]) -> ServiceSettings:
    """A service's settings from environment variables; an empty one counts as not set, except DRIFTLINE_MLFLOW_URL.

    Raises:
        InvalidSpec: A variable has an invalid value.

    Examples:
        >>> read_service({"DRIFTLINE_HOME": "/srv/tuner"}).database
        'sqlite:////srv/tuner/driftline.db'
    """
    variables = {name: value for name, value in environ.items() if value or name == "DRIFTLINE_MLFLOW_URL"}
    try:
        return ServiceSettings.model_validate(variables)
    except ValidationError as error:
        (path, problem), *others = [
            (str(item["loc"][0]), str(item.get("ctx", {}).get("error", item["msg"])))
            for item in error.errors()
            if item["type"] != "default_factory_not_called"  # follows from another error
        ]
        raise InvalidSpec(path, problem, others) from None


def ray_address() -> str | None:
    """DRIFTLINE_RAY_ADDRESS: the Ray cluster for embedded studies; None starts a local one."""
    return os.environ.get("DRIFTLINE_RAY_ADDRESS") or None


def hang_seconds() -> float:
    """DRIFTLINE_HANG_SECONDS: how long a worker may be silent before it is replaced.

    Raises:
        InvalidSpec: The variable is not a number above 0.
    """
    try:
        return _seconds(os.environ.get("DRIFTLINE_HANG_SECONDS") or HANG_S)
    except ValueError as error:
        raise InvalidSpec("DRIFTLINE_HANG_SECONDS", str(error)) from None
