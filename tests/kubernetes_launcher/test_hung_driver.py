"""A driver on Kubernetes that hangs: no other one may start before its pods have ended."""

import time
from types import SimpleNamespace

import pytest

from service.launchers.base import Seen
from service.launchers.kubernetes import launcher as kubernetes
from service.launchers.kubernetes.launcher import KubernetesLauncher
from service.launchers.kubernetes.naming import ATTEMPT, STUDY, common_labels
from tests.kubernetes_launcher import made


class FakeApi:
    """RayJobs and pods as an API server lists them; a deleted RayJob takes its pods along only by hand."""

    namespace = "studies"

    def __init__(self):
        self.objects = {"rayjobs": [], "pods": []}

    def add(self, kind, item, name):
        labels = {**item["metadata"]["labels"], **common_labels("driftline"), STUDY: made.STUDY, ATTEMPT: "1"}
        item["metadata"] |= {"name": name, "uid": f"uid of {name}", "resourceVersion": "1", "labels": labels}
        self.objects[kind].append(item)

    def remove(self, name):
        self.objects["pods"] = [pod for pod in self.objects["pods"] if pod["metadata"]["name"] != name]

    def items(self, kind, selector):
        return list(self.objects[kind]), "1"

    def watch(self, kind, selector, version, seconds):
        time.sleep(0.05)
        return iter(())

    def delete(self, kind, item):
        self.objects[kind].remove(item)

    def close(self):
        pass


@pytest.fixture
def api():
    fake = FakeApi()
    fake.add("rayjobs", made.job(), "driftline-x-1")
    for kind, phase in (("head", "Running"), ("worker", "Running"), ("worker", "Succeeded")):
        fake.add("pods", made.pod(kind, phase), f"{kind}-{phase}".lower())
    return fake


@pytest.fixture
def launcher(api):
    found = KubernetesLauncher(made.config(), api, url="http://api:8080", folder="s3://bucket/x")
    yield found
    found.close()


def test_a_driver_that_hangs_is_alive_until_its_pods_have_ended(api, launcher):
    launcher.kill(made.STUDY)
    assert api.objects["rayjobs"] == []
    said = "pods of its last driver have not ended yet: "
    assert launcher.seen(made.STUDY) == Seen(True, f"{said}head-running, worker-running")
    launcher.kill(made.STUDY)
    api.remove("head-running")
    assert launcher.seen(made.STUDY) == Seen(True, f"{said}worker-running")
    api.add("pods", made.pod("head"), "another study's start would not be counted")
    api.remove("worker-running")
    assert launcher.seen(made.STUDY) == Seen(False, "its RayJob is gone")


def test_pods_on_a_node_that_is_away_are_not_waited_for_for_ever(api, launcher, monkeypatch):
    launcher.kill(made.STUDY)
    assert launcher.seen(made.STUDY).alive
    later = time.monotonic() + kubernetes._PODS_S + 1
    monkeypatch.setattr(kubernetes, "time", SimpleNamespace(monotonic=lambda: later, time=time.time))
    launcher.kill(made.STUDY)  # again, as at every look of the scheduler
    assert launcher.seen(made.STUDY) == Seen(False, "its RayJob is gone")
    assert len(api.objects["pods"]) == 3
