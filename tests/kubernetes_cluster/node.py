"""A whole Kubernetes node on this computer (KUBE_DIR/cluster.py), with the tools and images that the tests need."""

import contextlib
import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kubernetes.conftest import lacking
from tests.kubernetes.local_registry import LocalRegistry
from tests.kubernetes.tools import FOLDER, Missing, tool

ROOT = Path(__file__).parents[2]
KUBE = Path(os.environ.get("KUBE_DIR", ROOT.parent / "shared" / "kube"))
PROGRAMS = ("containerd", "runc", "iptables", "conntrack", "ip", "gcc", "buildah", "debootstrap", "npm")
PROGRAMS += ("docker-registry",)
PACKAGES = (
    "containerd runc containernetworking-plugins iptables conntrack iproute2 libc6-dev gcc buildah debootstrap "
    "docker-registry npm"
)
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
_NEW_NETWORK = 0x40000000


def require():
    """Skips if no node can run here, and says what to install; in CI it fails instead."""
    if importlib.util.find_spec("dnslib") is None:
        lacking("pip install dnslib: the test node's DNS")
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if os.geteuid():
        lacking("the test node needs root")
    if missing:
        lacking(f"the test node needs {', '.join(missing)}: apt-get install --no-install-recommends {PACKAGES}")
    if not (KUBE / "cluster.py").exists():
        lacking("set KUBE_DIR to the folder with the Kubernetes binaries and cluster.py")
    try:
        for name in ("helm", "kubectl"):
            tool(name)
    except Missing as error:
        lacking(str(error))


def images(folder):
    """The folder with the archives of all images: DRIFTLINE_IMAGES, else one in which they are built now."""
    given = os.environ.get("DRIFTLINE_IMAGES")
    if given is None:
        build = ROOT / "tests" / "kubernetes" / "build_image.py"
        subprocess.run([sys.executable, str(build), str(folder)], check=True, timeout=900)
    return Path(given or folder)


class Node:
    """One node with some GPUs in name, and a registry from which it pulls images.

    Args:
        folder: Where it keeps everything; removed by `down`.
        gpus: How many GPUs it says it has.
        script: The program that makes it.
    """

    def __init__(self, folder, gpus=4, script=None):
        self.folder = folder
        self._script = script or Path(os.environ.get("DRIFTLINE_TEST_CLUSTER", KUBE / "cluster.py"))
        self.kubeconfig = folder / "kubeconfig"
        self.registry = LocalRegistry(folder / "registry", 5080, self.command())
        self._gpus = gpus

    def up(self, archives):
        """Starts it. Images are pushed to its registry while Kubernetes is starting.

        Args:
            archives: Folder with the archives of the images.
        """
        with ThreadPoolExecutor() as pool:
            started = pool.submit(self._run, "up", "--gpus", str(self._gpus))
            while not (self.folder / "containerd.sock").exists() and not started.done():
                time.sleep(0.1)
            try:
                with self.inside():
                    self.registry.start()
                    self.registry.push(archives / "driftline.tar", "driftline", VERSION)
                    self.registry.push(archives / "postgres.tar", "postgres", "17")
                    self.registry.push(archives / "compass.tar", "driftline-compass", "0.1.0", base="driftline")
                say("the images are in the registry")
            finally:
                started.result()  # what went wrong first

    def down(self):
        self._run("down")
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, *argv):
        """A command line that runs inside the node's network."""
        return [sys.executable, str(self._script), "exec", str(self.folder), "--", *argv]

    def run(self, *argv, timeout=600):
        """Runs a command inside the node's network; gives its output."""
        path = f"{FOLDER}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            self.command(*argv),
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "PATH": path},
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def inside(self):
        """Puts this thread, and those it starts, into the node's network."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{(self.folder / 'netns').read_text()}", os.O_RDONLY)
        try:
            _enter(there)
            yield
        finally:
            _enter(before)
            os.close(before)
            os.close(there)

    def _run(self, action, *options):
        say(f"{self._script.name} {action} {' '.join(options)}")
        argv = [sys.executable, str(self._script), action, str(self.folder), *options]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def _enter(namespace):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "the network cannot be entered")


START = time.monotonic()


def say(text):
    """Prints a line about the test's progress, which helps to explain a failure."""
    print(f"{time.monotonic() - START:6.0f} s  {text}", flush=True)
