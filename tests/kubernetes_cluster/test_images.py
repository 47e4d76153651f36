"""A study that brings a program, and the image in which its workers run; the head stays in Driftline's own."""

import pytest

from driftline.errors import InvalidSpec
from tests.kubernetes_cluster.node import VERSION
from tests.kubernetes_cluster.studies import DERIVED, OWN_IMAGE
from tests.kubernetes_launcher.plane import OWN_CERTIFICATE

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(600), OWN_CERTIFICATE]


def test_a_study_runs_its_program_in_an_image_that_the_chart_allows(deployed, on_own_image):
    with pytest.raises(InvalidSpec, match=r"^program.image: must match what this service allows: localhost:5080/"):
        deployed.submit(OWN_IMAGE, program={**OWN_IMAGE["program"], "image": "localhost:5080/postgres:17"})
    job, images = on_own_image
    assert images["worker"] == {DERIVED}
    [head] = [image for image in images["head"] if "driftline" in image]
    assert head.startswith(("localhost:5080/driftline@", f"localhost:5080/driftline:{VERSION}"))
    job.wait(timeout_s=240)
    curves = job.curves().values()
    assert [curve["round"] for curve in curves] == [[1, 2, 3]] * 2
    assert {tokens for curve in curves for tokens in curve["tokens"]} == {0}, "the program sees no token"
