"""A program over two nodes of a Ray cluster on this machine, in a process of its own: prints what its trials reported.

The program of one trial dies on its second node, and under another trial that node dies; both go on from a rung.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from driftline.study.spec import Study
from service.driver.lifecycle import DriverOptions, run_driver
from service.store.store import Store
from tests.driver.store_client import StoreClient

PROGRAM = """
import os, pathlib, time
import torch, torch.distributed as dist
from driftline import trial

t = trial.current(rate=0.1)
rank, nodes, held = int(os.environ["DRIFTLINE_NODE_RANK"]), int(os.environ["DRIFTLINE_NODES"]), os.environ.get("HELD")
dist.init_process_group("gloo", rank=rank, world_size=nodes)  # at MASTER_ADDR, MASTER_PORT
generator = torch.Generator().manual_seed(t.seed)
inputs, targets = (torch.randn(2, 8, size, generator=generator, dtype=torch.float64) for size in (3, 1))
model = torch.load(t.resume / "model") if t.resume else torch.zeros(3, 1, dtype=torch.float64)

def reached(name):
    path = pathlib.Path(held or "", name)
    if held is None or rank == 0 or path.exists():
        return False
    path.touch()
    return True

for r in range(t.first + 1, t.last + 1):
    gradient = torch.zeros_like(model)
    for shard in range(rank, 2, nodes):
        gradient += inputs[shard].T @ (inputs[shard] @ model - targets[shard])
    dist.all_reduce(gradient)
    model -= t["rate"] * gradient / 16
    t.report(r, loss=((inputs @ model - targets) ** 2).mean(), nodes=nodes)
    if t.checkpoint_due:
        with t.checkpoint() as folder:
            torch.save(model, folder / "model")
    if r == 1 and reached("died"):
        os._exit(7)
    if r == 3 and reached("held"):
        time.sleep(600)
"""
"""Trains with two shards, on one node or on two. With HELD, the second node dies once, and waits for its end once."""


def study_of(nodes: int, held: str | None = None, folder: str = "") -> Study:
    program = {"command": ["python", "-c", PROGRAM], "metrics": {"loss": "falls", "nodes": "falls"}, "folder": folder}
    document = {
        "name": "nodes",
        "program": {**program, "checkpoints": True, "env": {"HELD": held} if held else {}},
        "methods": [{"label": "mine", "space": {"rate": {"float": [0.01, 0.5]}}}],
        "objective": {"quality": "loss"},
        "budget": {"trials_per_method": 2, "rounds": 4, "rungs": [2, 4], "seeds": 0},
        "sampler": "quasi_random",
        "resources": {"gpu": 0, "nodes": nodes},
    }
    return Study.from_json(document)


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 200
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(true)
        time.sleep(0.05)


def main(folder: Path) -> None:
    """Drives the study in a thread; the second node of the cluster ends when the program waits there."""
    (folder / "held").mkdir()
    node = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 * 2**20}
    (folder / "ray").mkdir()  # RAY_TMPDIR is the folder
    cluster = Cluster(initialize_head=True, head_node_args=node)
    client = StoreClient(Store(folder / "driftline.db"))
    study_id = client.submit(study_of(2, str(folder / "held")))
    lines: list[str] = []
    ended: list[Any] = []

    def drive() -> None:
        options = DriverOptions(folder / "checkpoints", address=cluster.address, progress=lines.append)
        try:
            ended.append(run_driver(client, study_id, threading.Event(), options))
        except Exception as error:
            ended.append(f"{error!r} {lines}")

    driver = threading.Thread(target=drive, daemon=True)
    driver.start()
    until(lambda: any("waiting" in line for line in lines) or ended)
    second = cluster.add_node(**node)
    until(lambda: (folder / "held" / "held").exists() or ended)
    cluster.remove_node(second, allow_graceful=False)
    cluster.add_node(**node)
    driver.join(200)
    trials = client.store.trials.find(study_id)
    curves = client.store.curves.columns(study_id)
    found = {
        "ended": ended,
        "lines": lines,
        "attempts": [trial.attempt for trial in trials],
        "curves": {trial.number: curves[trial.id] for trial in trials},
    }
    print(json.dumps(found), flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
