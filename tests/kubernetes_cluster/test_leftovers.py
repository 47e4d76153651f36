"""What studies leave that were cancelled before they had a driver: their pods may stay for a minute, then nothing."""

import pytest

from tests.kubernetes_cluster.release import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:Unverified HTTPS request"),  # the test server's certificate is its own
]


def test_studies_that_were_cancelled_leave_nothing(deployed, cancelled):
    assert [job.state for job in cancelled] == ["CANCELLED", "CANCELLED"]
    for job in cancelled:
        until(lambda study=job.id: not deployed.rayjobs(study), "its RayJob is gone", 120)
        until(lambda study=job.id: not deployed.pods("head", study), "its pods are gone", 120)
