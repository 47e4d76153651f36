"""A study that brings a program, and the image in which its workers run; the head stays in Driftline's own."""

import pytest

from driftline.errors import InvalidSpec
from tests.kubernetes_cluster.node import VERSION
from tests.kubernetes_cluster.release import STUDIES_CORE, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:Unverified HTTPS request"),  # the test server's certificate is its own
]
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
STUDY = {
    "name": "derived-image",
    "program": {"command": ["python", "-c", PROGRAM], "metrics": {"loss": "falls", "tokens": "falls"}},
    "methods": [{"label": "mine", "space": {"rate": {"float": [0.1, 0.4]}}}],
    "objective": {"quality": "loss", "cost": "rounds"},
    "budget": {"trials_per_method": 2, "rounds": 3, "seeds": 0},
    "resources": {"gpu": 0},
}


def with_image(image):
    return {**STUDY, "program": {**STUDY["program"], "image": image}}


def test_a_study_runs_its_program_in_an_image_that_the_chart_allows(deployed):
    with pytest.raises(InvalidSpec, match=r"^program.image: must match what this service allows: localhost:5080/"):
        deployed.submit(with_image("localhost:5080/postgres:17"))
    job = deployed.submit(with_image(DERIVED))
    seen = {}

    def looked():
        for kind in ("head", "worker"):
            for pod in deployed.pods(kind, job.id):
                spec = deployed.rest.get(f"{STUDIES_CORE}/pods/{pod}")["spec"]
                seen[kind] = {container["image"] for container in spec["containers"]}
        return job.record().finished

    until(looked, "the study ends", 240)
    assert job.state == "SUCCEEDED", job.record().reason
    assert seen["worker"] == {DERIVED}
    [head] = [image for image in seen["head"] if "driftline" in image]
    assert head.startswith(("localhost:5080/driftline@", f"localhost:5080/driftline:{VERSION}"))
    curves = job.curves().values()
    assert [curve["round"] for curve in curves] == [[1, 2, 3]] * 2
    assert {tokens for curve in curves for tokens in curve["tokens"]} == {0}, "the program sees no token"
