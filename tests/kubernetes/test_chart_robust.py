"""What people do to a chart: nulls, large numbers, long names, two releases, upgrades of what cannot be changed."""

import copy
import json
import re
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from .chart_readme import CHART
from .conftest import APIS, LOADER
from .matrix import AFFINITY, MATRIX, TOLERATION
from .test_chart_render import pods

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
PREVIOUS = sorted((Path(__file__).parent / "charts").glob("*.tgz"))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def keys(schema, values, path=()):
    """(path, whether it must be there) of every value."""
    for key, value in values.items():
        yield (*path, key), key in schema.get("required", ())
        inner = schema["properties"][key]
        if isinstance(value, dict) and "properties" in inner:
            yield from keys(inner, value, (*path, key))


KEYS = dict(keys(SCHEMA, VALUES))


def without(path):
    found = copy.deepcopy(VALUES)
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return found


def test_a_value_that_is_needed_and_null_is_named():
    """Helm takes a key away that is null; templates would fail in words of their own."""
    needed = [path for path, must in KEYS.items() if must]
    assert ("studies", "workers", "max") in needed
    assert ("gateway",) in needed
    checker = jsonschema.Draft7Validator(SCHEMA)
    for path in needed:
        (error,) = checker.iter_errors(without(path))
        assert error.message == f"'{path[-1]}' is a required property"


def test_a_value_that_may_be_missing_may_be_null(helm):
    """Each of them at once, over a chart that uses as much as it can."""
    empty: dict = {}
    for path in (path for path, must in KEYS.items() if not must):
        inner = empty
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner.setdefault(path[-1], None)
    used = {
        "api": {"autoscaling": {"enabled": True}},
        "priorityClasses": {"create": True},
        "data": {"enabled": True, "existingClaim": "my-data"},
        "ingress": {"enabled": True, "hosts": [{"host": "a.example.org"}], "mlflowHosts": [{"host": "m.example.org"}]},
        "metrics": {"serviceMonitor": {"enabled": True}, "rules": {"enabled": True}},
    }

    def laid_over(below, above):
        both = {key: laid_over(below[key], above[key]) for key in below.keys() & above.keys() if below[key]}
        return {**below, **above, **both}

    text = helm.template(laid_over(empty, used)).stdout
    assert not re.search(r"<nil>|%!|: null$", text, re.MULTILINE)
    assert len([item for item in yaml.load_all(text, LOADER) if item]) > 25


def test_a_null_is_refused_in_words(helm):
    done = helm.template({"ingress": None}, ok=False)
    assert "missing property 'ingress'" in done.stderr


def test_large_whole_numbers_stay_whole(helm):
    """Numbers of a values file are floats to Helm, which would write 1e+06."""
    most = 2_592_000
    values = {
        "migrations": {"deadlineSeconds": most},
        "tests": {"timeoutSeconds": most},
        "api": {"limits": {"studies": most}},
        "data": {
            "enabled": True,
            "existingClaim": "my-data",
            "download": {"url": "https://example.org/d.tar", "sha256": "a" * 64, "deadlineSeconds": most},
        },
        "studies": {
            "ttlSeconds": most,
            "deadlineSeconds": most,
            "unschedulableSeconds": most,
            "imagePullSeconds": most,
            "workers": {"idleSeconds": most},
        },
        "podSecurity": {"userId": 1_000_680_000, "groupId": 1_000_680_000},
        "postgresql": {"userId": 1_000_680_000},
        "priorityClasses": {"create": True, "service": 1_000_000, "studies": 1_000_000},
    }
    text = helm.template(values).stdout
    assert not re.search(r"\de\+\d", text)
    assert text.count(str(most)) == 10


@pytest.mark.parametrize("name", ["gpu", "watched"])
def test_every_pod_gets_the_registry_and_its_class_and_place(helm, name):
    values = copy.deepcopy(MATRIX[name])
    values["imagePullSecrets"] = [{"name": "registry"}]
    values["priorityClasses"] = {"create": True}
    placed = {"nodeSelector": {"pool": "services"}, "tolerations": [TOLERATION], "affinity": AFFINITY}
    values["api"] = {**values.get("api", {}), **placed}
    for pod, spec, labels in pods(helm.objects(values)):
        assert spec["imagePullSecrets"] == [{"name": "registry"}], pod
        if labels["app.kubernetes.io/component"] != "uninstall":  # which runs when the class is deleted
            assert spec["priorityClassName"].endswith("-service"), pod
        if labels["app.kubernetes.io/component"] in ("api", "migration", "data", "test"):
            assert spec["nodeSelector"] == {"pool": "services"}, pod
            assert spec["tolerations"] == [TOLERATION], pod
            assert spec["affinity"] == AFFINITY, pod


def test_a_job_keeps_its_name_and_a_hook_makes_room_for_the_new_one(helm):
    """Helm rolls back to no object that the failed release does not name, and Kubernetes changes no Job's pods."""
    data = {"enabled": True, "existingClaim": "my-data"}
    data |= {"download": {"url": "https://example.org/d.tar", "sha256": "a" * 64}}

    def jobs(**more):
        text = helm.template({"data": data, **more}).stdout
        found = [item for item in yaml.load_all(text, LOADER) if item and item["kind"] == "Job"]
        return [item for item in found if not item["metadata"]["name"].endswith(("migration", "uninstall"))]

    for change in (
        {},
        {"image": {"tag": "next"}},
        {"data": {**data, "download": {**data["download"], "url": "https://b"}}},
    ):
        found = jobs(**change)
        hooks = {item["metadata"]["name"]: item for item in found if "annotations" in item["metadata"]}
        steady = {item["metadata"]["name"]: item for item in found if "annotations" not in item["metadata"]}
        assert hooks.keys() == steady.keys() == {"r-driftline-checkpoints", "r-driftline-data"}
        for name, hook in hooks.items():
            assert hook["metadata"]["annotations"] == {
                "helm.sh/hook": "pre-upgrade,pre-rollback",
                "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
            }
            assert hook["spec"].pop("completions") == 0, "Kubernetes needs no pod to complete it"
            assert hook["spec"] == steady[name]["spec"]


def test_the_version_before_is_among_them():
    major, minor, _ = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"].split(".")
    assert PREVIOUS[-1].name == f"driftline-{major}.{int(minor) - 1}.0.tgz"


@pytest.mark.parametrize("previous", PREVIOUS, ids=lambda path: path.stem)
def test_what_cannot_be_changed_is_as_earlier_versions_had_it(helm, previous):
    command = [helm.path, "template", "r", str(previous), "--namespace", "ns"]
    known = [word for api in APIS for word in ("--api-versions", api)]
    done = subprocess.run([*command, *known], capture_output=True, text=True, check=True)
    before = {(item["kind"], item["metadata"]["name"]): item for item in yaml.load_all(done.stdout, LOADER) if item}
    now = helm.objects({})
    lasting = {key for key, item in before.items() if "helm.sh/hook" not in item["metadata"].get("annotations", {})}
    lasting = {key for key in lasting if key[0] != "Job"}  # until 0.5.0 a Job's name followed from its image
    assert lasting <= now.keys(), "nothing of it is gone"
    fixed = {
        "Deployment": ("selector",),
        # What podManagementPolicy it has in the cluster, it keeps: test_chart_on_api.py.
        "StatefulSet": ("selector", "serviceName", "volumeClaimTemplates"),
        "PersistentVolumeClaim": ("accessModes", "storageClassName", "volumeMode"),
        "Service": ("clusterIP",),
    }
    compared = 0
    for (kind, name), item in before.items():
        for field in fixed.get(kind, ()):
            assert now[kind, name]["spec"].get(field) == item["spec"].get(field), (kind, name, field)
            compared += 1
        if kind == "RoleBinding":
            assert now[kind, name]["roleRef"] == item["roleRef"]
    assert compared > 10


def test_long_release_names_still_make_names(helm):
    for name, release in (("gpu", "a" * 53), ("watched", "x-" * 26 + "x")):
        for (kind, which), item in helm.objects(MATRIX[name], release=release).items():
            # A PriorityClass's name holds a dot and the namespace, and may be longer.
            rest = which.removeprefix("ns.") if kind == "PriorityClass" else which
            assert re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", rest), (kind, which)
            assert len(rest) <= 63, (kind, which)
            for value in item["metadata"]["labels"].values():
                assert len(str(value)) <= 63, (kind, which)


@pytest.mark.parametrize("release", ["1st", "team.tuning"])
def test_a_release_name_that_makes_no_service_is_refused_before_anything_is_made(helm, release):
    done = helm.template({}, release=release, ok=False)
    assert f"objects would be named {release}-driftline" in done.stderr
    helm.template({"fullnameOverride": "tuning"}, release=release)


def test_two_releases_live_in_one_namespace(helm):
    one, two = helm.objects(MATRIX["watched"], release="one"), helm.objects(MATRIX["watched"], release="two")
    assert not one.keys() & two.keys()
    for (kind, name), item in one.items():
        if kind == "Service":
            wanted = item["spec"]["selector"].items()
            assert not any(wanted <= labels.items() for _, _, labels in pods(two)), name
        if kind == "NetworkPolicy" and "studies" not in name:
            wanted = item["spec"]["podSelector"]["matchLabels"].items()
            assert not any(wanted <= labels.items() for _, _, labels in pods(two)), name
    instances = [
        yaml.load(found["ConfigMap", f"{which}-driftline"]["data"]["launcher.yaml"], LOADER)["instance"]
        for which, found in (("one", one), ("two", two))
    ]
    assert instances == ["one-driftline", "two-driftline"]


def test_releases_of_one_name_in_two_namespaces_share_nothing_that_belongs_to_none(helm):
    values = {"priorityClasses": {"create": True}}
    classes = [
        {name for kind, name in helm.objects(values, *options) if kind == "PriorityClass"}
        for options in ((), ("--namespace", "ns-2"))
    ]
    assert [len(found) for found in classes] == [2, 2]
    assert not classes[0] & classes[1]


def test_long_names_of_namespaces_make_no_common_namespace_of_studies(helm):
    """The notes of each release say how to delete it."""
    made = set()
    for namespace, release in (("n" * 63, "one"), ("n" * 63, "two"), ("n" * 62, "one")):
        objects = helm.objects({}, "--namespace", namespace, release=release)
        made |= {name for kind, name in objects if kind == "Namespace"}
    assert len(made) == 3
    assert all(re.fullmatch("n{46}-[0-9a-f]{8}-studies", name) for name in made)


def test_what_pods_read_once_restarts_them(helm):
    def sums(**values):
        found = helm.objects(
            {"postgresql": {"enabled": False}, "mlflow": {"database": {"url": "postgresql://u:p@h/m"}}, **values}
        )
        return {
            name: item["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
            for (kind, name), item in found.items()
            if kind == "Deployment"
        }

    before = sums(database={"url": "postgresql://u:p@h/d"})
    after = sums(database={"url": "postgresql://u:new@h/d"})
    assert {name for name in before if before[name] != after[name]} == {"r-driftline-api", "r-driftline-scheduler"}
    again = sums(database={"url": "postgresql://u:p@h/d"}, mlflow={"database": {"url": "postgresql://u:new@h/m"}})
    assert {name for name in before if before[name] != again[name]} == {"r-driftline-mlflow"}
