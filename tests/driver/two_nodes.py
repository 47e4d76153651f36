"""A program over two nodes of a Ray cluster on this machine, in a process of its own: prints what its trials reported.

The program of one trial dies on its second node, and under another trial that node dies; both go on from a rung. Then
the same study runs undisturbed under torchrun.
"""

import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from driftline.study.spec import Study
from service.driver.lifecycle import DriverOptions, run_driver
from service.store.store import Store
from tests.driver.store_client import StoreClient
from tests.waiting import until

PROGRAM = """
import os, pathlib, time
import torch, torch.distributed as dist
from driftline import trial

t = trial.current(rate=0.1)
rank, nodes = (int(os.environ[name]) for name in os.environ.get("NAMES", "DRIFTLINE_NODE_RANK DRIFTLINE_NODES").split())
held = os.environ.get("HELD")
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
_START = (
    f"exec {sys.executable} -m torch.distributed.run --nnodes=$DRIFTLINE_NODES --node-rank=$DRIFTLINE_NODE_RANK"
    " --nproc-per-node=1 --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT --no-python"
    f' {sys.executable} -c "$0"'
)
TORCHRUN = ("sh", "-c", _START, PROGRAM)
"""As docs/programs.md starts torchrun, with one process on each node."""


def study_of(
    nodes: int, held: str | None = None, folder: str = "", command: Sequence[str] = ("python", "-c", PROGRAM)
) -> Study:
    env = {"HELD": held} if held else {}
    if command is TORCHRUN:
        env["NAMES"] = "RANK WORLD_SIZE"
    program = {"command": [*command], "metrics": {"loss": "falls", "nodes": "falls"}, "folder": folder}
    document = {
        "name": "nodes",
        "program": {**program, "checkpoints": True, "env": env},
        "methods": [{"label": "mine", "space": {"rate": {"float": [0.01, 0.5]}}}],
        "objective": {"quality": "loss"},
        "budget": {"trials_per_method": 2, "rounds": 4, "rungs": [2, 4], "seeds": 0},
        "sampler": "quasi_random",
        "resources": {"gpu": 0, "nodes": nodes},
    }
    return Study.from_json(document)


def main(folder: Path) -> None:
    """Drives both studies; the second node of the cluster ends when the program of the first study waits there."""
    (folder / "held").mkdir()
    node = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 * 2**20}
    (folder / "ray").mkdir()  # RAY_TMPDIR is the folder
    cluster = Cluster(initialize_head=True, head_node_args=node)
    client = StoreClient(Store(folder / "driftline.db"))
    lines: list[str] = []
    ended: list[Any] = []

    def drive(study_id: str) -> None:
        options = DriverOptions(folder / "checkpoints", address=cluster.address, progress=lines.append)
        try:
            ended.append(run_driver(client, study_id, threading.Event(), options))
        except Exception as error:
            ended.append(f"{error!r} {lines}")

    disturbed = client.submit(study_of(2, str(folder / "held")))
    driver = threading.Thread(target=drive, args=(disturbed,), daemon=True)
    driver.start()
    until(lambda: any("waiting" in line for line in lines) or ended)
    second = cluster.add_node(**node)
    until(lambda: (folder / "held" / "held").exists() or ended)
    cluster.remove_node(second, allow_graceful=False)
    cluster.add_node(**node)
    driver.join(200)
    under_torchrun = client.submit(study_of(2, command=TORCHRUN))
    drive(under_torchrun)
    found = {
        "ended": ended,
        "lines": lines,
        "attempts": [trial.attempt for trial in client.store.trials.find(disturbed)],
        "curves": curves_of(client.store, disturbed),
        "torchrun": curves_of(client.store, under_torchrun),
    }
    print(json.dumps(found), flush=True)
    cluster.shutdown()


def curves_of(store: Store, study_id: str) -> dict[int, Any]:
    """The columns of each trial, by its number."""
    curves = store.curves.columns(study_id)
    return {trial.number: curves[trial.id] for trial in store.trials.find(study_id)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
