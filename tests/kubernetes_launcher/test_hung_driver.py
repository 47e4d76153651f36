"""A driver on Kubernetes that hangs: no other one may start before its pods have ended."""

import time
from types import SimpleNamespace

import pytest

from service.launchers.base import Seen
from service.launchers.kubernetes import launcher as kubernetes
from service.launchers.kubernetes.launcher import KubernetesLauncher
from service.launchers.kubernetes.naming import ATTEMPT, STUDY, common_labels
from tests.kubernetes_launcher import made
from tests.kubernetes_launcher.fake_cluster import FakeNamespaces


@pytest.fixture
def objects():
    """RayJobs and pods as the API server lists them."""
    pods = [("head", "Running"), ("worker", "Running"), ("worker", "Succeeded")]
    return {
        "rayjobs": [named(made.job(), "driftline-x-1")],
        "pods": [named(made.pod(kind, phase), f"{kind}-{phase}".lower()) for kind, phase in pods],
    }


def named(item, name):
    """An object of the study's first attempt."""
    labels = {**item["metadata"]["labels"], **common_labels("driftline"), STUDY: made.STUDY, ATTEMPT: "1"}
    item["metadata"] |= {"name": name, "uid": f"uid of {name}", "resourceVersion": "1", "labels": labels}
    return item


def remove(objects, name):
    objects["pods"] = [pod for pod in objects["pods"] if pod["metadata"]["name"] != name]


@pytest.fixture
def launcher(objects):
    api = FakeNamespaces({"studies": objects})
    found = KubernetesLauncher(made.config(), api, url="http://api:8080", folder="s3://bucket/x")
    yield found
    found.close()


def test_a_driver_that_hangs_is_alive_until_its_pods_have_ended(objects, launcher):
    launcher.kill(made.STUDY)
    assert objects["rayjobs"] == []
    said = "pods of its last driver have not ended yet: "
    assert launcher.seen(made.STUDY) == Seen(True, f"{said}head-running, worker-running")
    launcher.kill(made.STUDY)
    remove(objects, "head-running")
    assert launcher.seen(made.STUDY) == Seen(True, f"{said}worker-running")
    objects["pods"].append(named(made.pod("head"), "another study's start would not be counted"))
    remove(objects, "worker-running")
    assert launcher.seen(made.STUDY) == Seen(False, "its RayJob is gone")


def test_pods_on_a_node_that_is_away_are_not_waited_for_for_ever(objects, launcher, monkeypatch):
    launcher.kill(made.STUDY)
    assert launcher.seen(made.STUDY).alive
    later = time.monotonic() + kubernetes._PODS_S + 1
    monkeypatch.setattr(kubernetes, "time", SimpleNamespace(monotonic=lambda: later, time=time.time))
    launcher.kill(made.STUDY)  # again, as at every look of the scheduler
    assert launcher.seen(made.STUDY) == Seen(False, "its RayJob is gone")
    assert len(objects["pods"]) == 3
