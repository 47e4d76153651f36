"""Studies of several output folders in one MLflow database, with an experiment that shows all their frontiers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from driftline.errors import InvalidSpec
from driftline.results.show.palette import styles
from driftline.results.study_result import joined_result
from service.embedded.folder_results import RecordedFolder, StoredLink, artifact_root, mlflow_uri, recorded_folder
from service.embedded.joined_mlflow import add_database, copy_database
from service.embedded.moved_folder import DATABASE, adopt_artifacts

_STARTED_MS = 1_000_000
_MOST_BANDS = 4  # more bands hide each other


def joined_link(folders: Sequence[Path], target: Path, port: int) -> StoredLink:
    """Copies the studies of several folders into one MLflow database, and says how to open it.

    Args:
        folders: Output folders; they stay as they are.
        target: Folder for the copy.
        port: Port on this computer at which MLflow's server will run.

    Raises:
        NotFound: A folder holds no study, or nothing of it is in MLflow yet.
        InvalidSpec: A folder was given twice.
    """
    from service.recorder.chart_view import VIEW
    from service.recorder.links import charts_page

    studies = [recorded_folder(folder) for folder in folders]
    database, experiments = target / DATABASE, []
    for number, recorded in enumerate(studies):
        copy = target / f"{number}.db" if number else database
        copy_database(recorded.folder / DATABASE, copy)
        adopt_artifacts(recorded.folder, copy)
        experiments.append(int(recorded.experiment) + (add_database(copy, database) if number else 0))
    uri, root = mlflow_uri(target), artifact_root(target)
    roots = (root, *(artifact_root(recorded.folder) for recorded in studies))
    readings = {(recorded.result.reading.quality, recorded.result.reading.cost) for recorded in studies}
    one_reading = len(readings) == 1
    page = charts_page(_together(uri, root, studies, experiments), VIEW) if one_reading else "#/experiments"
    return StoredLink(f"http://127.0.0.1:{port}/{page}", uri, roots)


def _together(uri: str, root: str, studies: Sequence[RecordedFolder], experiments: Sequence[int]) -> str:
    """An experiment with a run for each label of all studies; returns its number."""
    from service.recorder.chart_view import VIEW, VIEW_TAG, labels_view
    from service.recorder.links import charts_page
    from service.recorder.run_contents import frontier_rows
    from service.recorder.study_recorder import KIND
    from service.recorder.tracking import Tracking, connect

    reading = studies[0].result.reading
    labels = list(_labels(studies))
    colours = styles([name for name, _, _ in labels])
    together = Tracking(
        connect(uri), " and ".join(dict.fromkeys(recorded.study.name for recorded in studies))[:200], root, KIND
    )
    for number, (name, method, comparable) in enumerate(labels):
        tags = {"driftline.kind": "label", "mlflow.runColor": colours[name].colour}
        started = _STARTED_MS + len(labels) - number  # MLflow lists the latest first
        run = together.run(name, name, tags, started)
        rows = [row for row in frontier_rows(method, reading) if comparable or row[0] != "area"]
        together.write(run, rows, timestamp_ms=started)
        together.end(run, "FINISHED", started)
    links = " · ".join(
        f"[{recorded.study.name}]({charts_page(str(number), VIEW)})"
        for recorded, number in zip(studies, experiments, strict=True)
    )
    view = labels_view(studies[0].result.document, reading, _STARTED_MS, band=len(labels) <= _MOST_BANDS)
    together.tag_experiment({"mlflow.note.content": links, VIEW_TAG: view})
    return together.experiment_id


def _labels(studies: Sequence[RecordedFolder]) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Name and result of every label, and whether the labels' areas have one scale."""
    try:
        joined = joined_result([(recorded.study.study, recorded.result) for recorded in studies])
    except InvalidSpec:  # of different tasks: their frontiers are side by side, their areas mean nothing together
        names = [recorded.study.name for recorded in studies]
        leads = names if len(set(names)) == len(names) else [f"{number}-{name}" for number, name in enumerate(names, 1)]
        for lead, recorded in zip(leads, studies, strict=True):
            for label, method in recorded.result.document["methods"].items():
                yield f"{lead}: {label}", method, False
        return
    for label, method in joined.document["methods"].items():
        yield label, method, True
