"""Models of what a study recommends, for MLflow: trained again from their trial documents.

A study keeps no models. A trial is a function of its document, so training a recommended configuration again, on the
first of its confirmation seeds and up to its stopping round, gives the model that was measured there.
"""

from __future__ import annotations

import json
import logging
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from driftline.errors import InvalidSpec
from driftline.results.curves import TrialCurve, unit
from driftline.results.show.recommendation_rows import RecommendationRow, recommendation_rows
from driftline.results.study_result import StudyResult
from driftline.study.spec import Study
from driftline.study.trial_document import trial_document
from driftline.wire.records import StudyRecord
from service.recorder.chart_view import FRONTIER
from service.recorder.curve_rows import metric_name
from service.recorder.run_contents import STUDY_TAG
from service.recorder.tracking import KEY
from trainers import Pack, Plan, SpecError, loaded_by_path, parse

if TYPE_CHECKING:
    from torch import nn

STATE, TRIAL = "state_dict.pt", "trial.json"
"""Files beside the model, in its folder ``extra_files``: its tensors by name, and the document of its trial."""

_CLOSE = 1e-3  # relative; a pack of another width gives the same curve up to rounding
_CLOSE_ROUNDED = 5e-2  # in bfloat16 or TF32, also on another kind of processor, which moved a curve by 1 %
_NOT_QUALITIES = frozenset({"round", "member", "wall_seconds"})


@dataclass(frozen=True)
class FrontierModel:
    """A point of a frontier whose model can be trained again.

    Attributes:
        label: Label of the entry.
        row: What is recommended there.
        seed: The seed to train with: the first that measured the configuration.
        recorded: The quality that the study measured with this seed at the stopping round; NaN if none.
        trial: The trial document.
        oracle: Name of the oracle that the study used.
    """

    label: str
    row: RecommendationRow
    seed: int
    recorded: float
    trial: dict[str, Any]
    oracle: str

    @property
    def configuration(self) -> int:
        """Number of the configuration within its label."""
        return int((self.row.configuration or {})["configuration"])

    @property
    def key(self) -> str:
        """What identifies the model within the study."""
        return f"{self.label}/{self.configuration}/{self.row.stop}/{self.seed}"


@dataclass(frozen=True)
class TrainedModel:
    """A model that was trained again.

    Attributes:
        point: The point of the frontier.
        module: From inputs to scores.
        metrics: The numbers of its last report line.
    """

    point: FrontierModel
    module: nn.Module
    metrics: dict[str, float]


def frontier_models(study: Study, result: StudyResult, label: str | None = None) -> Iterator[FrontierModel]:
    """The confirmed points of the frontiers, one for each row of the table.

    Args:
        study: The study.
        result: Its result.
        label: Only this label's.
    """
    methods = result.document["methods"]
    for name in methods if label is None else [label]:
        phase = methods[name]["reported"]["phase"]
        for row in recommendation_rows(result.document, name):
            if row.configuration is None:
                continue
            number = row.configuration["configuration"]
            curves = [
                curve
                for curve in result.curves
                if (curve.label, curve.configuration, curve.phase) == (name, number, phase)
            ]
            first = min(curves, key=lambda curve: curve.seed)
            document = trial_document(study, name, [dict(first.hyperparameters)], first.seed, phase=phase)
            trial = document | {"rounds": row.stop, "eval_every": row.stop}
            recorded = _at(first, result.reading.quality, row.stop)
            yield FrontierModel(name, row, first.seed, recorded, trial, str(first.plan.get("oracle", "")))


def train(point: FrontierModel, quality: str, begin: Callable[[], object] = lambda: None) -> TrainedModel:
    """Trains a point's model again.

    Args:
        point: The point.
        quality: The metric of the study.
        begin: Called when the training begins; not if the task's model is no torch module.

    Raises:
        InvalidSpec: The task's model cannot be written as a torch module, or the training gave another quality than
            the study had measured: the data or the code is another one.
    """
    spec = parse(point.trial)
    plan = {"oracle": point.oracle, "width": 1, "threads": 1, "device": "cpu", "dtype": spec.dtype}
    try:
        pack = Pack.from_spec(
            spec, device="cpu", plan=Plan.from_json({**plan, "eval_every": point.row.stop}) if point.oracle else None
        )
        pack.torch_modules()  # refuses other models before anything is trained
        begin()
        line = pack.advance()[-1]
        module = pack.torch_modules()[0]
    except SpecError as error:
        raise InvalidSpec("", str(error)) from error
    metrics = {
        name: float(value)
        for name, value in line.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
    got = metrics.get(quality, math.nan)
    close = _CLOSE_ROUNDED if spec.dtype in ("bfloat16", "tf32") else _CLOSE
    if not math.isclose(got, point.recorded, rel_tol=close, abs_tol=1e-9):
        raise InvalidSpec(
            "",
            f"{point.label}, configuration {point.configuration}, seed {point.seed}: {quality} after "
            f"{point.row.stop} rounds must be {point.recorded:.6g} again, got {got:.6g}: "
            "train where the data and the version of Driftline are the study's",
        )
    return TrainedModel(point, module, metrics)


def log_models(
    client: Any,
    experiment_id: str,
    study: StudyRecord,
    result: StudyResult,
    *,
    label: str | None = None,
    tell: Callable[[str], object] = lambda text: None,
) -> list[str]:
    """Writes the model of every point to MLflow, as a LoggedModel of its label's run; those that are there stay.

    Args:
        client: The client from `tracking.connect`.
        experiment_id: MLflow's id of the study's experiment.
        study: The study.
        result: Its result.
        label: Only this label's.
        tell: Called with a line for each model.

    Returns:
        The models' addresses, for `mlflow.pytorch.load_model`.

    Raises:
        InvalidSpec: A model cannot be trained again; see `train`.
    """
    models = {model.tags.get(KEY): model for model in _models(client, experiment_id)}
    runs = {
        run.data.tags["driftline.label"]: run.info.run_id
        for run in client.search_runs([experiment_id], "tags.`driftline.kind` = 'label'")
    }
    uris = []
    for point in frontier_models(study.study, result, label):
        model = models.get(point.key)
        if model is None:
            rounds = f"{point.row.stop} round{'s' if point.row.stop > 1 else ''}"
            trained = train(
                point, result.reading.quality, partial(tell, f"{_name(point, result)}: training {rounds} ...")
            )
            model = _log(client, experiment_id, runs[point.label], study, result, trained)
            models[point.key] = model
        tell(f"{model.name}: {model.model_uri}")
        uris.append(str(model.model_uri))
    return uris


def _log(
    client: Any, experiment_id: str, run_id: str, study: StudyRecord, result: StudyResult, trained: TrainedModel
) -> Any:
    point = trained.point
    hyperparameters = dict((point.row.configuration or {})["hyperparameters"])
    params = hyperparameters | {"rounds": point.row.stop, "seed": point.seed, "configuration": point.configuration}
    expected = dict(zip(FRONTIER, point.row.quality, strict=True))
    tags = {
        KEY: point.key,
        STUDY_TAG: study.id,
        "driftline.label": point.label,
        "driftline.method": study.study.entry(point.label).name,
        **{name: f"{value:.6g}" for name, value in expected.items()},
    }
    with tempfile.TemporaryDirectory(prefix="driftline-") as folder:
        _save(trained, Path(folder))
        model = client.create_logged_model(
            experiment_id,
            name=_name(point, result),
            source_run_id=run_id,
            tags=tags,
            params={name: value if isinstance(value, str) else json.dumps(value) for name, value in params.items()},
            model_type="frontier",
        )
        try:
            client.log_model_artifacts(model.model_id, str(Path(folder) / "model"))
        except BaseException:
            client.finalize_logged_model(model.model_id, "FAILED")
            raise
    for name, value in trained.metrics.items():
        if name not in _NOT_QUALITIES:
            client.log_metric(run_id, metric_name(f"model_{name}"), value, step=point.row.stop, model_id=model.model_id)
    return client.finalize_logged_model(model.model_id, "READY")


def _save(trained: TrainedModel, folder: Path) -> None:
    import cloudpickle
    import torch
    from mlflow import pytorch

    (folder / TRIAL).write_text(json.dumps(trained.point.trial, indent=1), encoding="utf-8")
    torch.save(trained.module.state_dict(), folder / STATE)
    logger = logging.getLogger("mlflow.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns that modules are pickled; the state beside the module is not
    try:
        for module in loaded_by_path():  # nobody else can import these modules: their code is stored with the model
            cloudpickle.register_pickle_by_value(module)
        pytorch.save_model(
            trained.module,
            str(folder / "model"),
            pip_requirements=[f"torch=={version('torch').partition('+')[0]}", f"driftline=={version('driftline')}"],
            extra_files=[str(folder / TRIAL), str(folder / STATE)],
            serialization_format="pickle",
        )
    finally:
        logger.setLevel(level)


def _name(point: FrontierModel, result: StudyResult) -> str:
    """``fedavg up to 24 rounds``, with what MLflow accepts in names."""
    limit = f"{point.row.end_text} {unit(result.reading.cost)}"
    return f"{metric_name(point.label)} up to {limit}".replace("/", "-").replace(":", "-").replace(".", "_")


def _at(curve: TrialCurve, metric: str, stop: int) -> float:
    """A metric of a trial after this round; NaN if it was not measured then."""
    values = curve.columns.get(metric)
    if values is None:
        return math.nan
    places = np.flatnonzero(curve.columns["round"] == stop)
    return float(values[places[-1]]) if len(places) else math.nan


def _models(client: Any, experiment_id: str) -> Iterator[Any]:
    token = None
    while True:
        page = client.search_logged_models([experiment_id], page_token=token)
        yield from (model for model in page if str(model.status) == "READY")
        token = page.token
        if not token:
            return
