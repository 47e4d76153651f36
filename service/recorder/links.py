"""Links to a study in MLflow."""

from __future__ import annotations


def server_page(tracking_uri: str, experiment_id: str, view: str, *, public_url: str = "") -> str | None:
    """Address of an experiment's charts; None if no server shows the database to which runs are written.

    Args:
        tracking_uri: MLflow server (http, https), or database: ``sqlite:///out/digits/mlflow.db``.
        experiment_id: MLflow's number of the experiment.
        view: Key of a shared view (see `chart_view`).
        public_url: Address of the server for browsers, if it differs from `tracking_uri`.

    Examples:
        >>> server_page("https://mlflow.example.org/", "7", "driftline")
        'https://mlflow.example.org/#/experiments/7/runs?compareRunsMode=CHART&viewStateShareKey=driftline'
    """
    if not public_url and not tracking_uri.startswith(("http://", "https://")):
        return None
    return f"{(public_url or tracking_uri).rstrip('/')}/{charts_page(experiment_id, view)}"


def charts_page(experiment_id: str, view: str) -> str:
    """An experiment's charts, as an address within MLflow."""
    return f"#/experiments/{experiment_id}/runs?compareRunsMode=CHART&viewStateShareKey={view}"


def table_page(experiment_id: str, view: str) -> str:
    """An experiment's runs as a table."""
    return f"#/experiments/{experiment_id}/runs?compareRunsMode=TABLE&viewStateShareKey={view}"


def artifact_page(experiment_id: str, run_id: str, name: str) -> str:
    """A run's artifact."""
    return f"#/experiments/{experiment_id}/runs/{run_id}/artifacts/{name}"
