"""Functions that lead from a study to its result without a client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from driftline.results.modelled_time import Time
from driftline.sdk.frontier import Frontier
from driftline.sdk.studies import local_studies, require_study
from driftline.study.spec import Study


def run(study: Study | str | Path, out: str | Path | None = None, *, progress: bool = True) -> Frontier:
    """Runs a study in this process and waits for it, whatever DRIFTLINE_URL says.

    Args:
        study: The study, or its YAML file.
        out: Its output folder; out/NAME by default.
        progress: Whether to show progress on stderr.

    Returns:
        Its frontiers; all files are in the output folder.

    Raises:
        NotFound: There is no such file.
        InvalidSpec: The study is invalid; the message names the key. Or the folder is another study's.
        Conflict: Another process works in the folder, or its study was cancelled.
        StudyFailed: The study has failed.
    """
    whole = Study.from_yaml(study) if isinstance(study, str | Path) else require_study(study)
    studies = local_studies()
    try:
        frontier = studies.submit(whole, out=out).wait(progress=progress).frontier()
        return Frontier(frontier.data)  # without the loader of curves, which ends with the run
    finally:
        studies.close()


def frontier(folder: str | Path, *, quality: str | None = None, cost: str | Time | None = None) -> Frontier:
    """The frontiers so far of the study in an output folder.

    Args:
        folder: The output folder.
        quality: Any metric that the trials reported; the study's objective by default.
        cost: A cost that the trials counted, such as "bytes", or a `driftline.Time` for modelled time; the study's
            objective by default.

    Raises:
        NotFound: The folder holds no study.
        InvalidSpec: Unknown cost, or no trial reported the metric.
    """
    return local_studies().frontier(Path(folder), quality, cost)


def log_models(
    folder: str | Path, label: str | None = None, *, tell: Callable[[str], object] | None = None
) -> list[str]:
    """Logs the models that a finished study recommends to the MLflow database of its output folder.

    Studies keep no models. Each recommended configuration is trained again up to its stopping round, on the first of
    its confirmation seeds, and must give the quality that was measured there. Models that are logged already stay.

    Args:
        folder: The output folder.
        label: Only this label's models.
        tell: Called with a line for each model.

    Returns:
        The models' addresses: ``mlflow.pytorch.load_model`` loads them as plain torch modules, from inputs to scores,
        after ``mlflow.set_tracking_uri("sqlite:///FOLDER/mlflow.db")``.

    Raises:
        NotFound: The folder holds no study, or the study has no such label.
        Conflict: The study has not finished.
        InvalidSpec: The task has no torch model (quadratics), or training gave another quality than was measured.
    """
    return local_studies().log_models(Path(folder), label, tell or (lambda text: None))


def compare(
    folder: str | Path, first: str, second: str, *, quality: str | None = None, cost: str | Time | None = None
) -> dict[str, Any]:
    """Compares two labels of an output folder at equal budgets: ``verdict`` is a label or None, ``why`` explains it.

    Args:
        folder: The output folder.
        first: A label.
        second: Another label.
        quality: As in `frontier`.
        cost: As in `frontier`.

    Raises:
        NotFound: The folder holds no study, or the study has no such label.
        InvalidSpec: Unknown cost, no trial reported the metric, or the same label twice.
    """
    return frontier(folder, quality=quality, cost=cost).compare(first, second)
