"""`driftline ui`: MLflow's own server on a study's folder, on this computer only."""

from __future__ import annotations

from pathlib import Path

import typer

from service.embedded import mlflow_page


def open_ui(folder: Path, port: int, *, browser: bool) -> None:
    """Serves the folder's MLflow database until Ctrl-C, and opens the study's page in a browser."""
    page = mlflow_page(folder, port)
    typer.echo(f"MLflow is starting on {page.server}; the study's page:\n\n    {page.url}\n\nCtrl-C ends it.")
    page.serve(open_browser=browser)
