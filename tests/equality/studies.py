"""Runs small studies with the code of a tree and records their results and all that the API answers about them.

    python -m tests.equality.studies TREE --out FOLDER [--only NAME]

A study's output folder is FOLDER/NAME, its recording FOLDER/NAME.json.gz. The numbers do not depend on the machine's
cores or load: samplers that do not learn, all trials of a label in one pack, one structure a label, models that have a
single way to compute mini-batch gradients. Values that depend on time are masked, see MASKED.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import itertools
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.equality import tree as tree_of
from tests.equality.record import Tree, environment, exact, write
from tests.equality.tree import COMMAND
from tests.ports import free_port

Json = dict[str, Any]
RECORDED = Path(__file__).parent / "version_0_1" / "studies"

MASKED = frozenset(
    {
        "created_at",
        "finished_at",
        "pack",  # numbered in the order in which packs start
        "seconds",
        "started_at",
        "updated_at",
        "version",  # of the study: grows with every report
        "wall_seconds",
    }
)
"""Keys, and columns of trials.csv, whose values depend on time; a study's id is STUDY everywhere."""

_MASK = "masked"
NEWS = (
    "trial_list",
    "specification",
    "made_by",
    "submitted_at",
    "finished_at",
)  # keys of a result that 0.1 did not have
_SPACE = {"client_lr": {"float": [0.02, 0.5], "log": True}, "server_lr": {"float": [0.01, 0.2], "log": True}}
_DIGITS = {"name": "digits", "clients": 12, "partition": {"dirichlet": 0.3}}
_SMALL = {
    "clients_per_round": 4,
    "batch_size": 5,
    "eval_every": 2,
    "dtype": "float64",  # an exception for a curve may then be one for its study, too
    "resources": {"gpu": 0, "packs": 16},
}
_PARALLEL = [
    {
        "client_lr": client_lr,
        "server_lr": server_lr,
        "federated_weight": federated_weight,
        "central_lr": central_lr,
        "client_momentum": client_momentum,
    }
    for client_lr, server_lr, federated_weight, central_lr, client_momentum in [
        (0.1, 0.05, 0.5, 0.003, 0.5),
        (0.2, 0.1, 0.6, 0.01, 0.0),
        (0.03, 0.02, 0.35, 0.05, 0.5),
        (0.4, 0.15, 0.8, 0.002, 0.0),
        (0.05, 0.04, 0.7, 0.03, 0.5),
        (0.3, 0.012, 0.45, 0.09, 0.0),
    ]
]
"""All configurations of an entry with named optimizers: 0.1 drew a number for each name, later versions draw none."""

STUDIES: list[Json] = [
    {
        "name": "digits",
        "task": _DIGITS,
        "methods": [
            {
                "label": "fedavg",
                "name": "fedavg",
                "space": {
                    **_SPACE,
                    "client_lr": {**_SPACE["client_lr"], "also": [0]},
                    "local_steps": {"choice": [1, 5]},
                },
                "server": {"name": "sgd", "space": {"momentum": {"choice": [0.0, 0.9]}}},
                "start": [{"client_lr": 0.1, "server_lr": 0.1, "local_steps": 5, "server.momentum": 0.0}],
            },
            {
                "label": "fedprox",
                "name": "fedprox",
                "space": {**_SPACE, "local_steps": 5, "prox": {"float": [0.01, 1.0], "log": True}},
            },
        ],
        "objective": {"quality": "test_loss", "cost": "rounds"},
        "budget": {"trials_per_method": 8, "rounds": 24, "front": 2, "seeds": 3},
        "sampler": "quasi_random",
        **_SMALL,
    },
    {
        "name": "theory",
        "task": {
            "name": "quadratic",
            "problem": "worst_case",
            "smoothness": 100.0,
            "client_lr": 0.005,
            "gradient_weights": [1, 1, 1, 1, 1],
        },
        "methods": [
            {
                "label": "descent",
                "name": "fedavg",
                "space": {
                    "client_lr": 0.005,
                    "local_steps": {"choice": [2, 5, 10]},
                    "server_lr": {"choice": [0.005, 0.01, 0.05]},
                },
            },
            {
                "label": "nesterov",
                "name": "fedavg",
                "space": {
                    "client_lr": 0.005,
                    "local_steps": {"choice": [2, 5, 10]},
                    "server_lr": {"choice": [0.004, 0.007, 0.01]},
                },
                "server": {"name": "sgd", "space": {"nesterov": True, "momentum": 0.7}},
            },
        ],
        "init": [3, 3, 3],
        "eval_every": 1,
        "objective": {"quality": "distance", "cost": "client_gradients"},
        "budget": {"trials_per_method": 9, "rounds": 60, "seeds": 0},
        "sampler": "grid",
        "resources": {"gpu": 0, "packs": 16},
    },
    {
        "name": "mixed",
        "task": {**_DIGITS, "central": {"fraction": 0.1}},
        "methods": [
            {
                "label": "parallel",
                "name": "parallel_training",
                "space": {
                    **_SPACE,
                    "local_steps": 3,
                    "federated_weight": {"float": [0.3, 0.9]},
                    "central_optimizer": "adam",
                    "central_lr": {"float": [0.001, 0.1], "log": True},
                    "central_momentum": 0.5,
                    "client_optimizer": "momentum",
                    "client_momentum": {"choice": [0.0, 0.5]},
                },
                "start": _PARALLEL,
            },
            {
                "label": "two-way",
                "name": "two_way_transfer",
                "space": {**_SPACE, "local_steps": {"int": [1, 4]}, "merge": "mean", "warm_start": True},
                "server": {"name": "adam", "space": {"epsilon": 0.001}},
            },
        ],
        "objective": {"quality": "test_accuracy", "cost": "bytes"},
        "budget": {"trials_per_method": 6, "rounds": 16, "front": 1, "seeds": 2},
        "sampler": "random",
        "seed": 3,
        **_SMALL,
    },
    {
        "name": "plateau",
        "task": {**_DIGITS, "model": {"name": "cnn", "filters": [2], "kernel": 3, "dense": 5}},
        "methods": [
            {
                "label": "decayed",
                "name": "scaffold",
                "space": {**_SPACE, "local_steps": 3, "variates": "stored", "displacement_source": "batch"},
                "schedule": {
                    "name": "plateau",
                    "space": {
                        "window": {"int": [1, 3]},
                        "patience": 1,
                        "cooldown": {"int": [0, 2]},
                        "client_decay": 0.5,
                    },
                },
            },
            {"preset": "fedadam", "space": {**_SPACE, "local_steps": 3}},
        ],
        "report": ["full_loss"],
        "adaptation": {"steps": [0, 2], "client_lr": 0.1},
        "objective": {"quality": "adapted_loss_2", "optimize": "quality"},
        "budget": {"trials_per_method": 4, "rounds": 12, "front": 1, "seeds": 3},
        "sampler": "random",
        **_SMALL,
    },
]


def tried(name: str) -> dict[str, list[Json]]:
    """The configurations that version 0.1 tried in the search of a study, by label, in the spelling of this tree."""
    recording = json.loads(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()))
    trials = tree_of.results(recording["cases"][name])["api"]["trials"]["trials"]
    found: dict[str, list[Json]] = {}
    for trial in sorted((trial for trial in trials if trial["phase"] == "search"), key=lambda trial: trial["number"]):
        values = {name: _number(value) for name, value in trial["hyperparameters"].items()}
        found.setdefault(trial["label"], []).append(values)
    return found


def _number(value: Any) -> Any:
    """What `exact` made a text of."""
    return float.fromhex(value) if isinstance(value, str) and "0x" in value else value


def run(tree: Path, document: Json, folder: Path) -> None:
    """Runs a study as `driftline run` does; its folder must be new.

    Later trees give samplers other seeds than 0.1, so the configurations that 0.1 tried are given to them as `start`.

    Args:
        tree: a checkout.
        document: in the spelling of version 0.1.
        folder: the study's output folder.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="equality-") as name:
        scratch = Path(name)
        with Tree(tree, scratch) as process:
            spelled = process.ask(do="study", document=document)["document"]
            later = bool(process.ask(do="about")["renamed"])
        if later:
            points = tried(document["name"])
            for entry in spelled["methods"]:
                entry["start"] = points[entry.get("label") or entry["preset"]]
        file = scratch / "study.yaml"
        file.write_text(json.dumps(spelled, indent=1))
        command = [sys.executable, "-P", *COMMAND, "run", str(file), "--out", str(folder.resolve())]
        done = subprocess.run(command, cwd=scratch, env=environment(tree, scratch), capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"study {document['name']} ended with {done.returncode}:\n{done.stderr[-2000:]}")


@contextmanager
def served(tree: Path, database: Path) -> Iterator[httpx.Client]:
    """A client of a service of its own over a copy of a database, until the block ends."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="equality-") as name:
        home = Path(name)
        shutil.copy(database, home / "driftline.db")
        settings = {"DRIFTLINE_HOME": name, "DRIFTLINE_ADMIN_TOKEN": "admin", "DRIFTLINE_MLFLOW_URL": "none"}
        process = subprocess.Popen(
            [sys.executable, "-P", *COMMAND, "serve", "--only", "api", "--port", str(port)],
            cwd=home,
            env={**environment(tree, home), **settings},
            stderr=subprocess.DEVNULL,
        )
        headers = {"Authorization": "Bearer admin"}
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=120) as client:
                _await_ready(client, process)
                yield client
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _await_ready(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise SystemExit("the service of the tree did not become ready")


def answers(client: httpx.Client) -> Json:
    """All that the API says of its only study, by path."""
    api = {"studies": get(client, "/v1/studies")}
    (study,) = api["studies"]["studies"]
    path = f"/v1/studies/{study['id']}"
    api["study"] = get(client, path)
    api["trials"] = get(client, f"{path}/trials?page_size=1000")
    api["curves"] = get(client, f"{path}/curves?page_size=1000")
    api["frontier"] = get(client, f"{path}/frontier")
    labels = [entry["label"] for entry in study["spec"]["methods"]]
    for one, other in itertools.combinations(labels, 2):
        api[f"compare {one} {other}"] = get(client, f"{path}/compare?a={one}&b={other}")
    api["events"] = _events(client, path)
    nameless: Json = json.loads(json.dumps(api).replace(study["id"], "STUDY"))
    return nameless


def get(client: httpx.Client, path: str) -> Any:
    """The JSON that a path answers with."""
    answer = client.get(path)
    if answer.status_code != 200:
        raise SystemExit(f"{path} answered with {answer.status_code}: {answer.text[:500]}")
    return answer.json()


def _events(client: httpx.Client, path: str) -> list[Any]:
    """The states that a study went through, and how far it came; how often progress is told depends on time."""
    with client.stream("GET", f"{path}/events") as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    events = [event for event in map(json.loads, lines) if event]
    last = [event for event in events if event["kind"] == "progress"][-1:]
    kept = [event for event in events if event["kind"] != "progress"] + last
    return [{**event, "id": _MASK} for event in kept]


def masked(value: Any) -> Any:
    """An answer with exact floats and without the values that depend on time."""
    if isinstance(value, dict):
        return {key: _MASK if key in MASKED and item is not None else masked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item) for item in value]
    return exact(value)


def _without_news(api: Json, document: Json) -> None:
    """Removes what 0.1 did not have: a study's plan, `NEWS` in its result, and the `start` that `run` has added."""
    starts = [entry.get("start") for entry in document["methods"]]
    for study in (api["study"], *api["studies"]["studies"]):
        study.pop("plan", None)
        for entry, start in zip(study["spec"]["methods"], starts, strict=True):
            given = entry.pop("start", None)
            if start is not None and given is not None:
                entry["start"] = given[: len(start)]
    for news in NEWS:
        api["frontier"].pop(news, None)


def recorded(tree: Path, folder: Path, document: Json) -> Json:
    """The recording of a study that was run into a folder."""
    with served(tree, folder / "driftline.db") as client:
        api = answers(client)
    _without_news(api, document)
    study = get_id(folder)
    table = (folder / "trials.csv").read_text().replace(study, "STUDY")
    frontier = json.loads((folder / "frontier.json").read_text().replace(study, "STUDY"))
    for news in NEWS:
        frontier.pop(news, None)
    return {
        "api": masked(api),
        "frontier.json": masked(frontier),
        "trials.csv": {row["trial"]: masked(row) for row in csv.DictReader(io.StringIO(table))},
    }


def get_id(folder: Path) -> str:
    """The id of the study in an output folder: what its trials' names begin with."""
    with (folder / "trials.csv").open(newline="") as file:
        return next(csv.DictReader(file))["trial"].partition(".")[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", type=Path, help="a checkout")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder to write into; a study's own folder must be new"
    )
    parser.add_argument("--only", help="name of one study")
    options = parser.parse_args()
    for document in STUDIES:
        name = document["name"]
        if options.only in (None, name):
            start = time.monotonic()
            run(options.tree, document, options.out / name)
            with tempfile.TemporaryDirectory() as scratch, Tree(options.tree, Path(scratch)) as process:
                about = process.ask(do="about")
            write(
                {"about": about, "cases": {name: recorded(options.tree, options.out / name, document)}},
                options.out / f"{name}.json.gz",
            )
            print(f"{name}: {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
