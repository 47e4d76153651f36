"""The volume with data sets: filled by a Job from an archive on the network, read by a study."""

import hashlib

import pytest
import yaml

from tests.kubernetes.tools import tool
from tests.kubernetes_cluster.node import ROOT
from tests.kubernetes_cluster.release import CORE, FILES_PORT, HOST, NAMESPACE, PODS, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:Unverified HTTPS request"),  # the test server's certificate is its own
]
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
SPEC = {
    "name": "on-data",
    "task": {"name": "fashion", "clients": 10, "partition": "iid"},
    "methods": [
        {
            "label": "fedavg",
            "name": "fedavg",
            "space": {"client_lr": {"float": [1e-3, 0.1], "log": True}, "server_lr": 0.05, "local_steps": 5},
        }
    ],
    "batch_size": 20,
    "objective": {"quality": "test_loss", "cost": "rounds"},
    "budget": {"trials_per_method": 2, "rounds": 10, "seeds": 1},
}


def test_a_study_reads_data_that_a_job_has_fetched_and_a_wrong_sum_leaves_nothing(deployed):
    source = f"http://{HOST}:{FILES_PORT}/data.tar.gz"
    until(lambda: f"{source} is unpacked" in logs(deployed, "driftline-data-"), "the page's Job is done", 120)
    assert (deployed.folder / "data" / "fashion_mnist_900" / "fashion_mnist_900.npz").exists()
    job = deployed.submit(SPEC)  # the API has found the files, or it would refuse

    elsewhere = deployed.folder / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o777)
    body = wrong(deployed, elsewhere)
    deployed.rest.send("POST", JOBS, body)
    name = body["metadata"]["name"]
    said = until(lambda: logs(deployed, f"{name}-", phase="Failed"), "the Job with a wrong sum fails", 120)
    right = hashlib.sha256((deployed.folder / "files" / "data.tar.gz").read_bytes()).hexdigest()
    assert said.strip() == f"data.download.sha256 must be the sum of {source}, {right}, got {'0' * 64}"
    assert list(elsewhere.iterdir()) == []
    deployed.rest.delete(f"{JOBS}/{name}")

    job.wait(timeout_s=420)
    assert {trial.state for trial in job.trials()} == {"COMPLETE"}
    curve = next(iter(job.curves().values()))
    assert curve["round"][-1] == 10
    assert curve["test_loss"][-1] < curve["test_loss"][0]
    assert job.frontier().data["methods"]["fedavg"]["points"]


def wrong(deployed, folder):
    """The Job as the chart would make it for the same archive with another sum, and another folder."""
    values = ["-f", str(ROOT / "tests/kubernetes_cluster/values.yaml"), "-f", str(deployed.folder / "data.yaml")]
    wanted = [f"data.download.sha256={'0' * 64}", f"data.source.hostPath.path={folder}"]
    wanted += ["image.repository=localhost/driftline", "image.tag=test"]
    options = [option for one in wanted for option in ("--set-string", one)]
    chart = [str(ROOT / "helm/driftline"), "-n", NAMESPACE, "-s", "templates/data-job.yaml"]
    text = deployed.node.run(tool("helm"), "template", "driftline", *chart, *values, *options)
    [job] = [one for one in yaml.safe_load_all(text) if one["kind"] == "Job"]
    return job


def logs(deployed, beginning, phase=None):
    """The log of the first pod whose name begins so, in this phase; "" when there is none."""
    for pod in deployed.rest.items(f"{PODS}?labelSelector=app.kubernetes.io/component%3Ddata"):
        name = pod["metadata"]["name"]
        if name.startswith(beginning) and phase in (None, pod["status"]["phase"]):
            if pod["status"]["phase"] == "Pending":
                return ""
            return deployed.rest.send("GET", f"{CORE}/pods/{name}/log")
    return ""
