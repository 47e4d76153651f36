"""One node and one release of the chart for all tests of this folder."""

import contextlib
import os
from pathlib import Path

import pytest

from tests.kubernetes.conftest import lacking
from tests.kubernetes_cluster import node as nodes
from tests.kubernetes_cluster.node import ROOT, Node
from tests.kubernetes_cluster.release import DATA_URL, NAMESPACE, STUDIES, STUDIES_CORE, installed, until
from tests.kubernetes_cluster.studies import ON_DATA, OWN_IMAGE

DATA = Path(os.environ.get("DATA_DIR", ROOT.parent / "shared" / "data"))


@pytest.fixture(scope="session")
def deployed(tmp_path_factory):
    """The release; its commands are the page's."""
    nodes.require()
    if not (DATA / "fashion_mnist_900").exists():
        lacking("set DATA_DIR to the folder with fashion_mnist_900")
    folder = tmp_path_factory.mktemp("node")
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(started(folder))
        with node.inside():
            made = stack.enter_context(installed(node, folder, DATA))
        yield made


@pytest.fixture(scope="session")
def on_data(deployed):
    """A study on the data set that a Job of the page's values has fetched."""
    with deployed.node.inside():
        done = f"{DATA_URL} is unpacked"
        until(lambda: done in deployed.data_logs(), "the page's Job is done", 120)
        return deployed.submit(ON_DATA)  # the API has found the files, or it would refuse


@pytest.fixture(scope="session")
def on_own_image(deployed):
    """A study whose program brings the image of its workers; and the images of its pods, by Ray's kind of node."""
    with deployed.node.inside():
        job = deployed.submit(OWN_IMAGE)
        images = {}
        for kind in ("head", "worker"):
            [pod] = until(lambda kind=kind: deployed.pods(kind, job.id), f"its {kind} is there", 120)
            containers = deployed.rest.get(f"{STUDIES_CORE}/pods/{pod}")["spec"]["containers"]
            images[kind] = {container["image"] for container in containers}
    return job, images


@pytest.fixture(autouse=True)
def inside(deployed):
    """Every test runs in the node's network."""
    with deployed.node.inside():
        yield


@contextlib.contextmanager
def started(folder):
    """A node with the images; DRIFTLINE_TEST_NODE names the folder of one that is kept between runs."""
    kept = os.environ.get("DRIFTLINE_TEST_NODE")
    node = Node(Path(kept) if kept else folder / "kube")
    with contextlib.ExitStack() as stack:
        if kept and node.kubeconfig.exists():
            node.run("helm", "uninstall", "driftline", "-n", NAMESPACE, "--ignore-not-found", "--wait")
            kubectl = ["kubectl", "-n", STUDIES, "delete", "--ignore-not-found", "--wait=false"]
            node.run(*kubectl, "rayjobs", "--all")  # the operator, once it is there, lets them go
            node.run(*kubectl, "pods", "--all")
        elif not kept:
            stack.callback(node.down)
        stack.callback(node.registry.stop)
        if not node.kubeconfig.exists():
            node.up(nodes.images(folder / "images"))
        else:
            with node.inside():
                node.registry.start()
        yield node


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """If a test of the page has failed, `--last-failed` runs all of them again, since they build on each other."""
    cache = getattr(session.config, "cache", None)
    failed = cache.get("cache/lastfailed", {}) if cache is not None else {}
    pages = [item.nodeid for item in session.items if item.path.name == "test_page.py"]
    if any(name in failed for name in pages):
        cache.set("cache/lastfailed", failed | dict.fromkeys(pages, True))
