"""The studies of the tests, and what is asked about them."""

ROUNDS = 60_000  # about 2,000 a second: the study must last until its workers and its head were ended
RATE = {"float": [1e-3, 0.1], "log": True}
SPEC = {
    "name": "on-kubernetes",
    "task": {"name": "quadratic", "problem": "random", "clients": 6, "dimension": 3},
    "methods": [{"name": "fedavg", "space": {"client_lr": RATE, "server_lr": 0.05, "local_steps": {"choice": [1, 5]}}}],
    "objective": {"quality": "train_loss", "cost": "rounds"},
    "budget": {"trials_per_method": 4, "rounds": ROUNDS, "seeds": 1, "confirm": 1},
    "resources": {"gpu": 0.5, "packs": 2},
}
TRIALS = 5
"""Two packs of two; the last, a repeat, trains alone for long enough that the other worker is seen to go."""
ON_DATA = {
    "name": "on-data",
    "task": {"name": "fashion", "clients": 10, "partition": "iid"},
    "methods": [{"name": "fedavg", "space": {"client_lr": RATE, "server_lr": 0.05, "local_steps": 5}}],
    "batch_size": 20,
    "objective": {"quality": "test_loss", "cost": "rounds"},
    "budget": {"trials_per_method": 2, "rounds": 10, "seeds": 1},
}
DERIVED = "localhost:5080/driftline-compass:0.1.0"
PROGRAM = """
import os, pathlib
import driftline_compass  # which the derived image alone has
from driftline import trial

t = trial.current()
x = 4.0
tokens = sum("TOKEN" in name or name.startswith(("RAY_", "AWS_")) for name in os.environ)
tokens += pathlib.Path("/var/run/secrets/kubernetes.io").exists()
for r in t.rounds():
    x -= t["rate"] * 2 * x
    t.report(r, loss=x * x, tokens=tokens)
"""
OWN_IMAGE = {
    "name": "derived-image",
    "program": {
        "command": ["python", "-c", PROGRAM],
        "metrics": {"loss": "falls", "tokens": "falls"},
        "image": DERIVED,
    },
    "methods": [{"label": "mine", "space": {"rate": {"float": [0.1, 0.4]}}}],
    "objective": {"quality": "loss", "cost": "rounds"},
    "budget": {"trials_per_method": 2, "rounds": 3, "seeds": 0},
    "resources": {"gpu": 0},
}


def done(job):
    """The share of the search's rounds that has been reported."""
    return job.record().progress["fedavg"].rounds_done / (TRIALS * ROUNDS)


def told(job):
    """All that was ever said of a finished study's state."""
    return [event.data.get("reason", "") for event in job.events() if event.kind == "state"]


def said(job, beginning):
    """What is said of a study now, if it begins so; else ""."""
    reason = job.record().reason
    return reason if reason.startswith(beginning) else ""


def replicas(deployed, job):
    """How many workers the study's newest RayCluster is to have."""
    cluster = deployed.raycluster(job.id)
    return cluster and cluster["spec"]["workerGroupSpecs"][0]["replicas"]


def attempts(deployed, job):
    """The newest attempt for which there is a RayJob."""
    return max((int(one["metadata"]["labels"]["driftline.io/attempt"]) for one in deployed.rayjobs(job.id)), default=0)
