"""Every claim that the chart makes is mounted by a pod of the release, and studies find their volumes."""

import pytest

from driftline import __version__

from .conftest import launcher_of
from .matrix import MATRIX, PLACED
from .test_chart_render import pods


def claims(spec):
    found = (volume.get("persistentVolumeClaim") for volume in spec["volumes"])
    return {claim["claimName"] for claim in found if claim}


def written_at_once(objects):
    """The Job that mounts the claim for checkpoints."""
    return [item for (kind, name), item in objects.items() if kind == "Job" and name.endswith("-checkpoints")]


@pytest.mark.parametrize("name", MATRIX)
def test_every_claim_is_mounted_by_a_pod_of_the_release_that_is_no_hook(rendered, name):
    """`helm install --wait` waits for claims before it runs a hook, and a class may bind them to a pod's node only."""
    objects = rendered[name]
    made = {item["metadata"]["name"] for (kind, _), item in objects.items() if kind == "PersistentVolumeClaim"}
    steady = {
        key: item for key, item in objects.items() if "helm.sh/hook" not in item["metadata"].get("annotations", {})
    }
    assert made <= set().union(*(claims(spec) for _, spec, _ in pods(steady)))


def test_the_volume_of_checkpoints_is_made_where_a_head_will_run(helm):
    """A volume may be of one zone: the first pod that mounts it chooses which."""
    (job,) = written_at_once(helm.objects({"studies": {"head": PLACED}, "api": {"nodeSelector": {"pool": "services"}}}))
    spec = job["spec"]["template"]["spec"]
    assert {key: spec[key] for key in PLACED} == PLACED
    assert {"name": "checkpoints", "mountPath": "/checkpoints"} in spec["containers"][0]["volumeMounts"]


def test_local_drivers_mount_the_claim_themselves(helm):
    objects = helm.objects({"studies": {"launcher": "local"}, "scheduler": {"replicaCount": 1}})
    scheduler = objects["Deployment", "r-driftline-scheduler"]["spec"]["template"]["spec"]
    assert claims(scheduler) == {"r-driftline-checkpoints"}
    assert not written_at_once(objects)


def test_the_job_that_tries_a_claim_is_of_its_namespace(rendered):
    """Which namespaces have a claim and such a Job: test_projects_have_places_of_their_own."""
    objects = rendered["projects"]
    for job in written_at_once(objects):
        spec = job["spec"]["template"]["spec"]
        assert spec["serviceAccountName"] == "r-driftline-studies", "an account of its namespace"
        assert claims(spec) == {"r-driftline-checkpoints"}
    assert [volume["name"] for volume in launcher_of(objects).volumes] == ["checkpoints"]


def test_a_job_in_another_namespace_mounts_nothing_of_the_releases(helm):
    keys = [{"secretRef": {"name": "keys"}}]
    patch = {"metadata": {"labels": {"team": "a"}}, "spec": {"containers": [{"name": "writable", "envFrom": keys}]}}
    for namespace, names in (("", []), ("ns", keys)):
        values = {"jobs": {"podPatch": patch}, "studies": {"namespace": namespace}}
        (job,) = written_at_once(helm.objects(values))
        pod = job["spec"]["template"]
        assert pod["spec"]["containers"][0].get("envFrom", []) == names
        assert pod["metadata"]["labels"]["team"] == "a"


def test_a_claim_in_the_studies_namespace_is_theirs_alone(rendered):
    objects = rendered["apart"]
    assert not any(kind == "PersistentVolumeClaim" and name.endswith("checkpoints") for kind, name in objects)
    assert not any("their-checkpoints" in claims(spec) for _, spec, _ in pods(objects))
    read = launcher_of(objects)
    mounted = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in read.volumes}
    assert mounted == {"checkpoints": "their-checkpoints", "data": "my-data"}
    assert read.namespace == "studies"


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({}, "example.org/all:1"),
        ({"tag": "own"}, "example.org/all:own"),
        ({"digest": "sha256:" + "a" * 64}, "example.org/all@sha256:" + "a" * 64),
        ({"repository": "example.org/own"}, f"example.org/own:{__version__}"),
        ({"repository": "example.org/own", "tag": "2"}, "example.org/own:2"),
    ],
)
def test_the_image_of_studies(helm, image, expected):
    values = {"image": {"repository": "example.org/all", "tag": "1"}, "studies": {"image": image}}
    assert launcher_of(helm.objects(values)).image == expected
