"""Who may connect to whom, by the chart's network policies and those that the launcher makes for each study.

No network plugin runs here: the policies are read as Kubernetes defines them.
"""

import pytest

from service.launchers.kubernetes import manifests
from tests.kubernetes_launcher.made import STUDY, launch

from .conftest import launcher_of

OTHER, ELSEWHERE = "01k6vq8r9s2t3v4w5x6y7z8zzz", "01k6zzzzzzzzzzzzzzzzzzzzzz"
GCS, DASHBOARD, METRICS, HTTP = 6379, 8265, 8080, "http"
VALUES = {
    "studies": {"namespace": "studies", "projects": {"team": {"namespace": "team"}}},
    "networkPolicy": {
        "clients": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}],
        "metrics": [
            {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}}
        ],
        "egress": {"enabled": True},
    },
}


def selects(selector, labels):
    """Whether a label selector matches."""
    for one in selector.get("matchExpressions", []):
        held = labels.get(one["key"])
        fits = {
            "In": held in one.get("values", ()),
            "NotIn": held not in one.get("values", ()),
            "DoesNotExist": held is None,
        }
        if not fits[one["operator"]]:
            return False
    return selector.get("matchLabels", {}).items() <= labels.items()


def admits(rule, side, home, other, port):
    """Whether a rule of a policy in the namespace `home` admits the pod on the other side."""
    if port not in [one["port"] for one in rule.get("ports", [{"port": port}])]:
        return False
    namespace, labels = other
    for peer in rule.get(side, [{"namespaceSelector": {}}]):
        if "ipBlock" in peer:  # these pods are no addresses outside of the cluster
            continue
        away = (
            selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": namespace})
            if ("namespaceSelector" in peer)
            else namespace == home
        )
        if away and selects(peer.get("podSelector", {}), labels):
            return True
    return False


@pytest.fixture(scope="module")
def connects(helm):
    """Whether one pod may connect to another: both sides must allow it, and a pod that no policy selects allows all."""
    objects = helm.objects(VALUES)
    policies = [item for (kind, _), item in objects.items() if kind == "NetworkPolicy"]
    settings = launcher_of(objects)
    pods = {
        "api": ("ns", objects["Deployment", "r-driftline-api"]["spec"]["template"]["metadata"]["labels"]),
        "scheduler": ("ns", objects["Deployment", "r-driftline-scheduler"]["spec"]["template"]["metadata"]["labels"]),
        "database": ("ns", objects["StatefulSet", "r-driftline-postgresql"]["spec"]["template"]["metadata"]["labels"]),
        "kuberay": ("kuberay", {"app.kubernetes.io/name": "kuberay-operator"}),
        "prometheus": ("monitoring", {"app.kubernetes.io/name": "prometheus"}),
        "stranger": ("studies", {"app": "notebook"}),
    }
    for name, study, project in (("one", STUDY, "a"), ("two", OTHER, "a"), ("theirs", ELSEWHERE, "team")):
        config, asked = settings.of(project), launch(study, project=project)
        job = manifests.rayjob(config, asked, name, config.namespace, url="http://a", folder="s3://b/x")
        job["metadata"]["uid"] = "u"
        policies.append(manifests.owned(config, asked, job)["networkpolicies"])
        cluster = job["spec"]["rayClusterSpec"]
        for kind, group in (("head", cluster["headGroupSpec"]), ("worker", cluster["workerGroupSpecs"][0])):
            labels = {**group["template"]["metadata"]["labels"], "ray.io/node-type": kind}
            pods[f"{kind} {name}"] = (config.namespace, labels)
            if name != "two":  # as the launcher before 0.6.0 made it, or without `networkPolicy.enabled`
                old = {key: value for key, value in labels.items() if key != "driftline.io/own-network-policy"}
                before = "old" if name == "one" else "their old"
                pods[f"{before} {kind}"] = (config.namespace, {**old, "driftline.io/study": "before"})

    def allowed(side, pod, other, port):
        namespace, labels = pod
        own = [
            item["spec"]
            for item in policies
            if item["metadata"]["namespace"] == namespace
            and side in item["spec"]["policyTypes"]
            and selects(item["spec"]["podSelector"], labels)
        ]
        key, peers = ("ingress", "from") if side == "Ingress" else ("egress", "to")
        rules = [rule for policy in own for rule in policy.get(key, [])]
        return not own or any(admits(rule, peers, namespace, other, port) for rule in rules)

    def connects(source, target, port):
        return allowed("Egress", pods[source], pods[target], port) and allowed(
            "Ingress", pods[target], pods[source], port
        )

    return connects


@pytest.mark.parametrize("port", [GCS, DASHBOARD, 10001, 40000])
def test_pods_of_a_study_reach_each_other_and_no_other_study(connects, port):
    assert connects("worker one", "head one", port)
    assert connects("head one", "worker one", port)
    for source in ("worker two", "head two", "worker theirs", "stranger", "api", "scheduler", "old worker"):
        for target in ("head one", "worker one"):
            assert not connects(source, target, port), (source, target)
    assert not connects("worker one", "head theirs", port)


def test_operator_and_prometheus_reach_one_port_each(connects):
    for head in ("head one", "head theirs", "old head"):
        ports = (GCS, DASHBOARD, METRICS, 10001)
        assert [port for port in ports if connects("kuberay", head, port)] == [DASHBOARD]
        assert [port for port in ports if connects("prometheus", head, port)] == [METRICS]


def test_studies_reach_the_api_and_nothing_else_of_the_service(connects):
    for source in ("head one", "worker theirs"):
        assert connects(source, "api", HTTP)
        assert not connects(source, "database", "postgresql")
        assert not connects(source, "scheduler", HTTP)
    assert not connects("stranger", "api", HTTP)
    assert connects("api", "database", "postgresql")


def test_studies_from_before_the_upgrade_and_its_policies_go_on(connects):
    assert connects("old worker", "old head", GCS)
    assert connects("their old worker", "their old head", GCS)
    assert not connects("worker one", "old head", GCS)
