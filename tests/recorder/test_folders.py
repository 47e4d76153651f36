"""Output folders in MLflow: several opened together, and the models of what a study recommends."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from driftline.errors import Conflict, InvalidSpec, NotFound
from driftline.results.curves import TrialCurve
from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from service.embedded.folder_results import artifact_root, log_stored_models, mlflow_uri, stored_link
from service.embedded.joined_folders import joined_link
from service.recorder.chart_view import VIEW_TAG
from service.recorder.logged_models import STATE, TRIAL
from service.recorder.study_recorder import Recorder
from service.recorder.tracking import connect
from service.store.store import Store
from tests.new_stores import empty_database
from trainers.registry import tasks
from trainers.run import run

from ..results.samples import curve
from .stored import Stored

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:mlflow"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # MLflow leaves its database connections to the collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
HYPERPARAMETERS = {"client_lr": 0.1, "server_lr": 0.3, "local_steps": 3}
ROUNDS = 5
MEANT_IN_URLS = "run?lr=0.1&a#b;c %2F \u00fc\\n\n'[x]*::y@z"


def folder_of(place: Path, migrated: Path, name: str, labels: dict[str, Sequence[TrialCurve]], **more: Any) -> Path:
    """An output folder with a study that MLflow shows."""
    place.mkdir()
    shutil.copy(migrated, place / "mlflow.db")
    store = Store(empty_database(place / "driftline.db"))
    study = Stored(store, list(labels), ROUNDS, name)
    for curves in labels.values():
        study.add(curves, **more)
    if not more:
        study.succeed()
    assert Recorder(store, study.id, mlflow_uri(place), artifact_root(place)).finish()
    store.close()
    return place


def made_up(label: str, best: float) -> list[TrialCurve]:
    return [curve(best * (1 - 0.5 ** np.arange(ROUNDS + 1.0)), label=label)]


def trained(seed: int = 0, error: float = 0.0) -> TrialCurve:
    """What training reports of the study that `Stored` makes."""
    budget = {"trials_per_method": 4, "rounds": ROUNDS}
    study = Study(name="digits", task={"name": "digits", "clients": 50}, methods=["fedavg"], budget=budget)
    lines = list(run(trial_document(study, "fedavg", [HYPERPARAMETERS], seed), device="cpu"))
    return curve([line["test_accuracy"] + error for line in lines], seed=seed, hyperparameters=HYPERPARAMETERS)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_folders_open_together_and_stay_as_they_are(tmp_path: Path, migrated: Path) -> None:
    first = folder_of(tmp_path / MEANT_IN_URLS, migrated, "first", {"fedavg": made_up("fedavg", 0.9)})
    second = folder_of(
        tmp_path / "b", migrated, "second", {"fedavg": made_up("fedavg", 0.5), "fedsgd": made_up("fedsgd", 0.7)}
    )
    moved = second.rename(tmp_path / f"moved {MEANT_IN_URLS}")
    before = [contents(first), contents(moved)]
    assert {entry.name for entry in tmp_path.iterdir()} == {first.name, moved.name}
    assert {"frontier.html", "trials.csv"} <= {file.name for file in (first / "mlartifacts").rglob("*")}
    assert stored_link(first, 5000).tracking_uri == mlflow_uri(first)
    place = tmp_path / "together"
    place.mkdir()
    link = joined_link([first, moved], place, 5001)
    assert [contents(first), contents(moved)] == before

    client = connect(link.tracking_uri)
    number = link.url.partition("#/experiments/")[2].partition("/")[0]
    together = client.get_experiment(number)
    assert together.name == "first and second"
    runs = client.search_runs([number])
    final = {run.info.run_name: run.data.metrics["final_test_accuracy"] for run in runs}
    assert set(final) == {"first/fedavg", "second/fedavg", "second/fedsgd"}
    assert final["first/fedavg"] > final["second/fedsgd"] > final["second/fedavg"]
    assert len({run.data.tags["mlflow.runColor"] for run in runs}) == 3
    assert "frontier" in json.loads(json.loads(together.tags[VIEW_TAG])["state"])["compareRunCharts"][0]["metricKey"]

    ids = {
        experiment.name.split(" ")[0]: experiment.experiment_id
        for experiment in client.search_experiments()
        if not experiment.name.endswith("trials")
    }
    assert f"#/experiments/{ids['second']}/runs" in together.tags["mlflow.note.content"]
    (study,) = client.search_runs([ids["second"]], "tags.`driftline.kind` = 'study'")
    assert f"#/experiments/{ids['second']}/runs/{study.info.run_id}/" in study.data.tags["mlflow.note.content"]
    document = json.loads(Path(client.download_artifacts(study.info.run_id, "frontier.json")).read_text())
    assert list(document["methods"]) == ["fedavg", "fedsgd"]


def test_folders_of_one_study_are_not_opened_together(tmp_path: Path, migrated: Path) -> None:
    folder = folder_of(tmp_path / "a", migrated, "first", {"fedavg": made_up("fedavg", 0.9)})
    (tmp_path / "together").mkdir()
    with pytest.raises(InvalidSpec, match="DIR: must be folders of different studies"):
        joined_link([folder, folder], tmp_path / "together", 5001)


def test_a_logged_model_has_the_quality_that_was_measured(tmp_path: Path, migrated: Path) -> None:
    import mlflow

    folder = folder_of(tmp_path / MEANT_IN_URLS, migrated, "first", {"fedavg": [trained()]})
    said: list[str] = []
    (uri,) = log_stored_models(folder, tell=said.append)
    place = mlflow_uri(folder)
    client = connect(place)
    model = client.get_logged_model(uri.removeprefix("models:/"))
    stop = int(model.params["rounds"])
    assert 1 <= stop <= ROUNDS
    name = f"fedavg up to {ROUNDS} rounds"
    assert said == [f"{name}: training {stop} rounds ...", f"{name}: {uri}"]
    assert model.params == {
        "client_lr": "0.1", "server_lr": "0.3", "local_steps": "3", "rounds": str(stop), "seed": "0",
        "configuration": "0",
    }  # fmt: skip
    assert client.get_run(model.source_run_id).data.tags["driftline.label"] == "fedavg"
    recorded = float(trained().metric("test_accuracy")[1][stop])
    assert {metric.key: metric.value for metric in model.metrics}["model_test_accuracy"] == pytest.approx(recorded)

    mlflow.set_tracking_uri(place)
    (tmp_path / "read").mkdir()
    module = mlflow.pytorch.load_model(uri, dst_path=tmp_path / "read")  # MLflow reads no model under a name with %2F
    task = tasks()["digits"]
    test = task.build(task.parse({"name": "digits", "clients": 50}, "task"), "float32").test
    inputs = test.inputs.astype(np.float32)
    with torch.no_grad():
        scores = module(torch.as_tensor(inputs))
    right = float((scores.argmax(1).numpy() == test.targets).mean())
    assert right == pytest.approx(recorded, abs=1e-6)
    predicted = mlflow.pyfunc.load_model(str(tmp_path / "read")).predict(inputs.reshape(len(inputs), -1))
    assert np.allclose(predicted, scores.numpy(), atol=1e-6)

    files = Path(mlflow.artifacts.download_artifacts(uri)) / "extra_files"
    state = torch.load(files / STATE, weights_only=True)
    assert {key: tuple(value.shape) for key, value in state.items()} == {"1.weight": (10, 64), "1.bias": (10,)}
    assert list(run(json.loads((files / TRIAL).read_text()), device="cpu"))[-1]["test_accuracy"] == pytest.approx(
        recorded
    )

    assert log_stored_models(folder) == [uri]  # once
    moved = folder.rename(tmp_path / "moved")
    log_stored_models(moved)
    mlflow.set_tracking_uri(f"sqlite:///{moved / 'mlflow.db'}")
    assert torch.equal(mlflow.pytorch.load_model(uri)[1].weight, module[1].weight)


def test_a_model_that_is_another_one_is_not_logged(tmp_path: Path, migrated: Path) -> None:
    folder = folder_of(tmp_path / "a", migrated, "first", {"fedavg": [trained(error=0.01)]})
    with pytest.raises(InvalidSpec, match=r"fedavg, configuration 0, seed 0: test_accuracy after . rounds must be"):
        log_stored_models(folder)
    client = connect(f"sqlite:///{folder / 'mlflow.db'}")
    assert list(client.search_logged_models(["1"])) == []


def test_models_need_a_finished_study(tmp_path: Path, migrated: Path) -> None:
    folder = folder_of(tmp_path / "a", migrated, "first", {"fedavg": made_up("fedavg", 0.9)}, until=3)
    with pytest.raises(Conflict, match="when the study has succeeded, got a running one"):
        log_stored_models(folder)
    whole = folder_of(tmp_path / "b", migrated, "second", {"fedavg": made_up("fedavg", 0.9)})
    with pytest.raises(NotFound, match='no label "fedavgg" in this study: did you mean fedavg'):
        log_stored_models(whole, "fedavgg")
