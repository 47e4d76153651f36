"""The volume with data sets: filled by a Job from an archive on the network, read by a study."""

import hashlib

import pytest
import yaml

from tests.kubernetes.tools import tool
from tests.kubernetes_cluster.node import ROOT, VERSION
from tests.kubernetes_cluster.release import DATA_URL, NAMESPACE, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:Unverified HTTPS request"),  # the test server's certificate is its own
]
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


def test_a_study_reads_data_that_a_job_has_fetched_and_a_wrong_sum_leaves_nothing(deployed, on_data):
    assert (deployed.folder / "data" / "fashion_mnist_900" / "fashion_mnist_900.npz").exists()
    elsewhere = deployed.folder / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o777)
    body = wrong(deployed, elsewhere)
    deployed.rest.send("POST", JOBS, body)
    name = body["metadata"]["name"]
    said = until(lambda: deployed.data_logs(f"{name}-", phase="Failed"), "the Job with a wrong sum fails", 120)
    right = hashlib.sha256((deployed.folder / "files" / "data.tar.gz").read_bytes()).hexdigest()
    assert said.strip() == f"data.download.sha256 must be the sum of {DATA_URL}, {right}, got {'0' * 64}"
    assert list(elsewhere.iterdir()) == []
    deployed.rest.delete(f"{JOBS}/{name}")

    on_data.wait(timeout_s=420)
    assert {trial.state for trial in on_data.trials()} == {"COMPLETE"}
    curve = next(iter(on_data.curves().values()))
    assert curve["round"][-1] == 10
    assert curve["test_loss"][-1] < curve["test_loss"][0]
    assert on_data.frontier().data["methods"]["fedavg"]["frontier"]


def wrong(deployed, folder):
    """The chart's Job for the same archive with another sum, and another folder; under a name of its own."""
    values = ["-f", str(ROOT / "tests/kubernetes_cluster/values.yaml"), "-f", str(deployed.folder / "data.yaml")]
    wanted = [f"data.download.sha256={'0' * 64}", f"data.source.hostPath.path={folder}"]
    wanted += ["image.repository=localhost:5080/driftline", f"image.tag={VERSION}"]
    options = [option for one in wanted for option in ("--set-string", one)]
    chart = [str(ROOT / "helm/driftline"), "-n", NAMESPACE, "-s", "templates/data-job.yaml"]
    text = deployed.node.run(tool("helm"), "template", "driftline", *chart, *values, *options)
    [job] = [one for one in yaml.safe_load_all(text) if one["kind"] == "Job" and "completions" not in one["spec"]]
    job["metadata"]["name"] = "driftline-wrong-sum"
    return job
