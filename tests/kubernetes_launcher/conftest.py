"""Where the CRDs and the Kubernetes control plane lie, and one that runs."""

import os
from pathlib import Path

import pytest

from tests.kubernetes_launcher.plane import Plane

KUBE = Path(os.environ.get("KUBE_DIR", Path(__file__).parents[3] / "shared" / "kube"))


@pytest.fixture(scope="session")
def kube():
    """The folder with KubeRay's CRDs and the Kubernetes binaries."""
    if not (KUBE / "crds" / "rayjobs.yaml").exists():
        pytest.skip("set KUBE_DIR to the folder with KubeRay's CRDs and the Kubernetes binaries")
    return KUBE


@pytest.fixture(scope="module")
def plane(kube, tmp_path_factory):
    """A control plane that the tests of one module share."""
    running = Plane(tmp_path_factory.mktemp("plane"), kube)
    running.start()
    yield running
    running.stop()
