"""What must hold when a study has ended, whatever died on the way."""

import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from service.recorder.tracking import KEY, connect
from service.store.store import Store
from tests.faults.components import CHUNK, ROUNDS

Facts = dict[str, Any]
_WAIT_S = 60.0


def facts(folder: Path, database: Path, mlflow: str) -> Facts:
    """What a study has left behind: trials and curves by name, MLflow's rows, work done, files. Waits for MLflow."""
    store = Store(database)
    (study,) = store.studies.find()
    shown = time.monotonic() + _WAIT_S
    while time.monotonic() < shown:
        if any(entry.version == study.version for entry in store.recorder_state.read(study.id, "ended")):
            break
        time.sleep(0.05)
    trials = store.trials.find(study.id)
    curves = store.curves.columns(study.id)
    found: Facts = {
        "state": study.state,
        "reason": study.reason,
        "trials": {
            _short(trial.id): trial.model_dump(include={"state", "hyperparameters", "seed", "values", "rounds_done"})
            for trial in trials
        },
        "attempts": sum(trial.attempt for trial in trials),
        "curves": {
            _short(trial): {name: column for name, column in columns.items() if name != "wall_seconds"}
            for trial, columns in curves.items()
        },
        "progress": {label: progress.model_dump() for label, progress in study.progress.items()},
        "mlflow": _mlflow(mlflow),
        "repeated": _repeated(folder),
        "left": sorted(path.name for path in folder.rglob("checkpoints/**/*") if path.is_file()),
    }
    store.close()
    return found


def problems(found: Facts, reference: Facts | None, faults: int) -> list[str]:
    """What is wrong with a study; nothing when all is well.

    Args:
        found: What it left.
        reference: What an undisturbed one left; None judges only what needs no comparison.
        faults: How often something died.
    """
    wrong: list[str] = []
    if found["state"] != "SUCCEEDED":
        wrong.append(f"the study is {found['state']}: {found['reason']}")
    for name, trial in found["trials"].items():
        if trial["state"] not in ("COMPLETE", "STOPPED", "DIVERGED"):
            wrong.append(f"trial {name} is {trial['state']}")
        rounds = found["curves"].get(name, {}).get("round", [])
        if rounds != list(range(len(rounds))):
            wrong.append(f"trial {name} must have each round once, in order; got {rounds}")
        if trial["state"] == "COMPLETE" and len(rounds) != ROUNDS + 1:
            wrong.append(f"trial {name} must have all {ROUNDS + 1} rounds, got {len(rounds)}")
    repeated = sum(found["repeated"].values())
    if repeated > faults * 2 * CHUNK:  # two packs run at once, each may repeat one interval
        wrong.append(f"{faults} faults may repeat {faults * 2 * CHUNK} rounds of packs, got {repeated}")
    worst = max(found["repeated"].values(), default=0)
    if worst > faults * CHUNK:
        wrong.append(f"{faults} faults may repeat {faults * CHUNK} rounds of one pack, got {worst}")
    twice = [name for name, count in found["mlflow"]["names"].items() if count > 1]
    if twice:
        wrong.append(f"MLflow shows twice: {twice}")
    if found["left"]:
        wrong.append(f"checkpoints must be gone, got {found['left']}")
    if reference is not None:
        for part in ("trials", "curves", "progress"):
            wrong += _differences(part, found[part], reference[part])
        wrong += _differences("MLflow's rows", found["mlflow"]["rows"], reference["mlflow"]["rows"])
    return wrong


def _differences(part: str, found: Any, reference: Any) -> list[str]:
    if found == reference:
        return []
    names = sorted(name for name in {*found, *reference} if found.get(name) != reference.get(name))
    first = names[0]
    return [f"{part} differ in {names}; {first}: {found.get(first)} instead of {reference.get(first)}"[:600]]


def _mlflow(uri: str) -> Facts:
    """Runs by name, and the rows of each trial's run and each label's newest."""
    client = connect(uri)
    names: Counter[str] = Counter()
    rows: dict[str, Any] = {}
    for experiment in client.search_experiments():
        if "driftline.study" not in experiment.tags:
            continue
        for run in client.search_runs([experiment.experiment_id], max_results=1000):
            key = run.data.tags[KEY]
            trial = key.count(".") == 2
            name = _short(key) if trial else "/".join(key.split("/")[:2])
            names[name] += 1
            if name == "study":
                continue
            rows[name] = {
                metric: [(row.step, row.value) for row in client.get_metric_history(run.info.run_id, metric)]
                for metric in sorted(run.data.metrics)
                if metric not in ("wall_seconds", "on_frontier")
            }
            rows[name]["status"] = run.info.status
            rows[name]["on_frontier"] = run.data.metrics.get("on_frontier")  # its steps count the study's versions
    return {"names": dict(names), "rows": rows}


def _repeated(folder: Path) -> dict[str, int]:
    """Rounds that were trained again, by pack."""
    trained: dict[str, list[int]] = defaultdict(list)
    if (folder / "work").exists():
        for line in (folder / "work").read_text().splitlines():
            pack, start, end = line.split("\t")
            trained[pack] += range(int(start), int(end))
    return {pack: len(rounds) - len(set(rounds)) for pack, rounds in trained.items()}


def _short(trial: str) -> str:
    """A trial's name within its study."""
    return trial.partition(".")[2]
