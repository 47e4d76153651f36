"""The volume with data sets: filled by a Job from an archive on the network, read by a study."""

import pytest

from tests.kubernetes_launcher.plane import OWN_CERTIFICATE

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(900), OWN_CERTIFICATE]


def test_a_study_reads_data_that_a_job_has_fetched(deployed, on_data):
    assert (deployed.folder / "data" / "fashion_mnist_900" / "fashion_mnist_900.npz").exists()
    on_data.wait(timeout_s=420)
    assert {trial.state for trial in on_data.trials()} == {"COMPLETE"}
    curve = next(iter(on_data.curves().values()))
    assert curve["round"][-1] == 10
    assert curve["test_loss"][-1] < curve["test_loss"][0]
    assert on_data.frontier().data["methods"]["fedavg"]["frontier"]
