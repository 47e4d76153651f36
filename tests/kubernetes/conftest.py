"""Helm, its renderings, and what to do where a tool is missing."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from service.launchers.kubernetes.config import Config
from tests.kubernetes.tools import Missing, tool
from tests.kubernetes_launcher.conftest import KUBE, plane

from .matrix import MATRIX

__all__ = ["plane"]  # a fixture
ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "driftline"
IMAGE = "registry.example.org/driftline"
"""The chart's values name no image: nothing is published yet."""
APIS = ("gateway.networking.k8s.io/v1", "monitoring.coreos.com/v1")
KINDS = (
    "deployments,statefulsets,replicasets,jobs,pods,services,configmaps,secrets,serviceaccounts,persistentvolumeclaims,"
    "roles,rolebindings,networkpolicies,poddisruptionbudgets,horizontalpodautoscalers,ingresses"
)
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def lacking(what: str) -> None:
    """Skips a test for want of something; in CI that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


class Helm:
    """Runs helm."""

    def __init__(self, path: str, environment: dict[str, str] | None = None):
        self.path = path
        self.environment = environment

    def __call__(self, *argv: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **(self.environment or {})}
        if str(CHART) in argv and argv[0] != "lint":
            argv = (*argv, "--set", f"image.repository={IMAGE}")
        done = subprocess.run([self.path, *argv], capture_output=True, text=True, check=False, env=environment)
        assert not ok or done.returncode == 0, f"helm {' '.join(argv)}:\n{done.stdout}{done.stderr}"
        return done

    def template(
        self, values: dict, *options: str, ok: bool = True, release: str = "r", apis: tuple[str, ...] = APIS
    ) -> subprocess.CompletedProcess[str]:
        """A rendering in namespace `ns`, for a cluster that knows Kubernetes' own kinds and these."""
        known = [word for api in apis for word in ("--api-versions", api)]
        command = [self.path, "template", release, str(CHART), "--namespace", "ns", "-f", "-", *known, *options]
        values = {**values, "image": {"repository": IMAGE, **values.get("image", {})}}
        done = subprocess.run(command, input=yaml.safe_dump(values), capture_output=True, text=True, check=False)
        assert not ok or done.returncode == 0, done.stderr
        return done

    def objects(self, values: dict, *options: str, release: str = "r") -> dict[tuple[str, str], dict]:
        """The objects of a rendering."""
        return objects_of(self.template(values, *options, release=release).stdout)


def objects_of(text: str) -> dict[tuple[str, str], dict]:
    """(kind, name) to object, of a rendering; without the hooks that only make room for a Job of the same name.

    An object that a project's namespace has, too, is there (kind, namespace/name).
    """
    found = [item for item in yaml.load_all(text, LOADER) if item]
    found = [item for item in found if item.get("spec", {}).get("completions") != 0]
    named = {}
    for item in found:
        about = item["metadata"]
        first = named.setdefault((item["kind"], about["name"]), item)
        if first is not item:
            named[item["kind"], f"{about['namespace']}/{about['name']}"] = item
    places = {(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in found}
    assert len(named) == len(found) == len(places), "two objects have one name"
    return named


def launcher_of(objects: dict[tuple[str, str], dict], name: str = "r-driftline") -> Config:
    """The launcher's settings in a rendering."""
    return Config.from_json(yaml.load(objects["ConfigMap", name]["data"]["launcher.yaml"], LOADER))


def helm_of(environment: dict[str, str] | None = None) -> Helm:
    try:
        return Helm(tool("helm"), environment)
    except Missing as error:
        lacking(str(error))
        raise


@pytest.fixture(scope="session")
def helm() -> Helm:
    return helm_of()


@pytest.fixture(scope="session")
def texts(helm) -> dict[str, str]:
    """What each entry of the matrix renders to."""
    return {name: helm.template(values).stdout for name, values in MATRIX.items()}


@pytest.fixture(scope="session")
def rendered(texts) -> dict[str, dict[tuple[str, str], dict]]:
    """Each entry of the matrix as objects; tests that share them change none."""
    return {name: objects_of(text) for name, text in texts.items()}


@pytest.fixture(scope="session")
def kube() -> Path:
    if not (KUBE / "control_plane.py").exists():
        lacking(f"a Kubernetes API is needed: KUBE_DIR names no folder with control_plane.py, got {KUBE}")
    return KUBE


@pytest.fixture(scope="module")
def cluster_helm(plane) -> Helm:
    return helm_of({"KUBECONFIG": str(plane.kubeconfig)})


@pytest.fixture(scope="module")
def kubectl(plane):
    def call(*argv, ok=True):
        env = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
        done = subprocess.run([tool("kubectl"), *argv], capture_output=True, text=True, check=False, env=env)
        assert not ok or done.returncode == 0, f"kubectl {argv}: {done.stderr}"
        return done.stdout.strip()

    return call
