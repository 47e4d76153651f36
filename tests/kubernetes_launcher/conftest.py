"""Where the CRDs and the Kubernetes control plane lie."""

import os
from pathlib import Path

import pytest

KUBE = Path(os.environ.get("KUBE_DIR", Path(__file__).parents[3] / "shared" / "kube"))


@pytest.fixture(scope="session")
def kube():
    """The folder with KubeRay's CRDs and the Kubernetes binaries."""
    if not (KUBE / "crds" / "rayjobs.yaml").exists():
        pytest.skip("set KUBE_DIR to the folder with KubeRay's CRDs and the Kubernetes binaries")
    return KUBE
