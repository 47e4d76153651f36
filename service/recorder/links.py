"""Links to a study in MLflow."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

CHARTS = "runs?compareRunsMode=CHART"


@dataclass(frozen=True)
class MlflowLink:
    """How to open a study in MLflow.

    Attributes:
        url: Page with the charts of the study.
        command: Command that must run for the page to open; "" if a server shows the page already.
    """

    url: str
    command: str = ""

    def __str__(self) -> str:
        return f"{self.command}   then open   {self.url}" if self.command else self.url


def mlflow_link(
    tracking_uri: str, experiment_id: str, *, public_url: str = "", view: str = "", port: int = 5000
) -> MlflowLink:
    """How to open an experiment's charts.

    Args:
        tracking_uri: MLflow server (http, https), or database: ``sqlite:///out/digits/mlflow.db``.
        experiment_id: MLflow's number of the experiment.
        public_url: Address of the server for browsers, if it differs from `tracking_uri`.
        view: Key of a shared view (see `chart_view`); "" for MLflow's default.
        port: Port on which the command serves the page.

    Examples:
        >>> print(mlflow_link("sqlite:///out/digits/mlflow.db", "1"))
        mlflow ui --backend-store-uri sqlite:///out/digits/mlflow.db --port 5000   then open   http://127.0.0.1:5000/#/experiments/1/runs?compareRunsMode=CHART
        >>> mlflow_link("https://mlflow.example.org/", "7").url
        'https://mlflow.example.org/#/experiments/7/runs?compareRunsMode=CHART'
    """
    page = charts_page(experiment_id, view)
    if public_url or tracking_uri.startswith(("http://", "https://")):
        return MlflowLink(f"{(public_url or tracking_uri).rstrip('/')}/{page}")
    command = f"mlflow ui --backend-store-uri {shlex.quote(tracking_uri)} --port {port}"
    return MlflowLink(f"http://127.0.0.1:{port}/{page}", command)


def charts_page(experiment_id: str, view: str = "") -> str:
    """An experiment's charts, as an address within MLflow."""
    return f"#/experiments/{experiment_id}/{CHARTS}" + (f"&viewStateShareKey={view}" if view else "")


def table_page(experiment_id: str, view: str) -> str:
    """An experiment's runs as a table."""
    return f"#/experiments/{experiment_id}/runs?compareRunsMode=TABLE&viewStateShareKey={view}"


def artifact_page(experiment_id: str, run_id: str, name: str) -> str:
    """A run's artifact."""
    return f"#/experiments/{experiment_id}/runs/{run_id}/artifacts/{name}"
