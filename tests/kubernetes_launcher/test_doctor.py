"""The checks of `driftline doctor kubernetes` against a cluster made of answers: each finding, and what it advises."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from driftline.errors import Forbidden, InvalidSpec, NotFound, Unavailable
from service.cli.main import app
from service.launchers.kubernetes.api_server import Api
from service.launchers.kubernetes.doctor import ChartRelease, Finding, diagnose, read_manifest
from tests.kubernetes_launcher.fake_cluster import (
    CLASSES,
    CRD,
    DAEMONS,
    OPERATORS,
    RAYJOBS,
    WELL,
    FakeApi,
    crd,
    daemon,
    node,
    operator,
    storage_class,
)
from tests.kubernetes_launcher.made import MIG, MIXED, config

CLAIM = "/api/v1/namespaces/studies/persistentvolumeclaims/checkpoints"
QUEUE = "/apis/kueue.x-k8s.io/v1beta2/namespaces/studies/localqueues/gpus"


def item(kind, name="n", version="v1", namespace="driftline", **rest):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, **rest}


def release(*objects, **settings):
    return ChartRelease(tuple(objects), config(namespace="studies", **settings))


def findings(answers=None, of=None, rights=lambda asked: True):
    """check -> its findings, for a cluster that is well but for these answers."""
    by_check = {}
    for finding in diagnose(FakeApi({**WELL, **(answers or {})}, rights), of or release()):
        by_check.setdefault(finding.check, []).append(finding)
    return by_check


def one(check, answers=None, of=None, rights=lambda asked: True):
    """The only finding of a check."""
    (finding,) = findings(answers, of, rights)[check]
    return finding


def test_a_cluster_that_is_well_has_no_problem_and_nothing_is_created():
    api = FakeApi(WELL)
    seen = list(diagnose(api, release()))
    assert {finding.status for finding in seen} == {"ok"}
    assert not any(finding.advice for finding in seen)
    assert [finding.check for finding in seen] == [
        *("kubernetes", "kuberay crds", "kuberay operator", "rights", "rayjob", "storage"),
        *("gpus", "head nodes", "worker nodes", "network policies"),
    ]
    writes = {(method, path) for method, path, _, _ in api.asked if method != "GET"}
    assert writes == {("POST", RAYJOBS), ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")}
    ((query, body),) = [(query, body) for _, path, query, body in api.asked if path == RAYJOBS]
    assert query == {"dryRun": "All", "fieldValidation": "Strict"}
    assert body["spec"]["rayClusterSpec"]["authOptions"]["mode"] == "token"


@pytest.mark.parametrize(
    ("version", "status"), [("v1.26.9", "problem"), ("v1.27.0", "ok"), ("v2.0.0", "ok"), ("weird", "unknown")]
)
def test_the_version_of_kubernetes(version, status):
    assert one("kubernetes", {"/version": {"gitVersion": version}}).status == status


def test_kuberays_crds_must_be_there_and_know_tokens():
    gone = one("kuberay crds", {"/apis/ray.io/v1": NotFound("404")})
    assert (gone.status, gone.text) == ("problem", "the cluster knows no RayJob and no RayCluster (ray.io/v1)")
    old = one("kuberay crds", {f"{CRD}/rayclusters.ray.io": crd("spec", "rayVersion")})
    assert (old.status, old.text) == ("problem", "the CRDs of rayclusters are older than KubeRay 1.6")
    assert "kubectl apply" in old.advice
    hidden = one("kuberay crds", {f"{CRD}/rayjobs.ray.io": Forbidden("403 no")})
    assert hidden == Finding("kuberay crds", "unknown", "403 no", "run this with an account that may see it")


@pytest.mark.parametrize(
    ("pods", "status", "text"),
    [
        ([], "problem", "no pod has the label"),
        ([operator(ready="False")], "problem", "is not ready"),
        ([operator("quay.io/kuberay/operator:v1.5.1")], "problem", "operator:v1.5.1"),
        ([operator("registry:5000/kuberay/operator@sha256:0123")], "unknown", "no version in its tag"),
        ([operator("registry:5000/kuberay/operator:v1.6.0@sha256:0123")], "ok", "v1.6.0"),
        ([operator("quay.io/kuberay/operator:v1.8.0")], "unknown", "newer than KubeRay 1.7"),
        ([operator(args=["--watch-namespace", "a,b"])], "problem", "watches a, b only, not studies"),
        ([operator(args=["--watch-namespace=a,studies"])], "ok", "v1.7.0"),
    ],
)
def test_kuberays_operator(pods, status, text):
    finding = one("kuberay operator", {OPERATORS: {"items": pods}})
    assert finding.status == status
    assert text in finding.text


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (InvalidSpec("", "422 unknown field spec.x"), "problem", "refused in studies: 422 unknown field spec.x"),
        (NotFound("404"), "unknown", "in studies, which does not exist yet"),
        (Forbidden("403 quota"), "unknown", "403 quota"),
    ],
)
def test_a_rayjob_is_tried(answer, status, text):
    finding = one("rayjob", {RAYJOBS: answer})
    assert finding.status == status
    assert text in finding.text


def test_a_rayjob_is_tried_in_the_namespace_of_each_project():
    projects = {"a": {"namespace": "team-a"}, "b": {"namespace": "team-a"}, "c": {"checkpoints": "s3://c/x"}}
    tried = findings({"/apis/ray.io/v1/namespaces/team-a/rayjobs": {}}, release(projects=projects))["rayjob"]
    assert [finding.text.rpartition(" ")[2] for finding in tried] == ["studies", "team-a"]


def test_a_rayjob_of_each_pool_is_tried():
    api = FakeApi(WELL)
    of = release(**MIXED)
    texts = [finding.text for finding in diagnose(api, of) if finding.check == "rayjob"]
    assert texts == ["a study's RayJob would be accepted in studies"] + [
        f"the RayJob of a study in the pool {pool} would be accepted in studies" for pool in ("a100", "mig", "cpu")
    ]
    bodies = [str(body) for _, path, _, body in api.asked if path == RAYJOBS]
    assert [MIG in body for body in bodies] == [False, False, True, False]


def test_kinds_that_the_cluster_does_not_know():
    monitor = item("ServiceMonitor", version="monitoring.coreos.com/v1")
    finding = one("kinds", of=release(item("ConfigMap"), monitor))
    assert finding.status == "problem"
    assert finding.text == "the cluster does not know ServiceMonitor (monitoring.coreos.com/v1)"
    assert one("kinds", of=release(item("ConfigMap"))).status == "ok"


def only(*allowed):
    """An account with these rights, each `verb resource[ name]@namespace`."""

    def may(asked):
        named = f" {asked['name']}" if asked["name"] else ""
        return f"{asked['verb']} {asked['resource']}{named}@{asked['namespace']}" in allowed

    return may


def test_rights_for_helm_are_those_on_the_objects():
    whole = release(item("ConfigMap"), {**item("Namespace", "studies"), "metadata": {"name": "studies"}})
    finding = one("rights", of=whole, rights=only("get configmaps@driftline", "create configmaps@driftline"))
    assert finding.status == "problem"
    missing = finding.text.removeprefix("missing for helm's work: ").split("; ")
    assert missing == sorted(
        [
            *("patch configmaps in driftline", "delete configmaps in driftline"),
            *(f"{verb} namespaces" for verb in ("get", "create", "patch", "delete")),
        ]
    )
    there = one("rights", {"/api/v1/namespaces/studies": {}}, whole, only())
    assert "namespaces" not in there.text


def test_who_installs_must_have_the_rights_that_roles_give_unless_they_may_escalate():
    rules = [{"apiGroups": ["ray.io"], "resources": ["rayjobs"], "verbs": ["watch"], "resourceNames": ["x"]}]
    role = item("Role", version="rbac.authorization.k8s.io/v1", namespace="studies", rules=rules)
    roles = [f"{verb} roles@studies" for verb in ("get", "create", "patch", "delete")]
    assert one("rights", of=release(role), rights=only(*roles)).text.endswith(": watch rayjobs.ray.io x in studies")
    assert one("rights", of=release(role), rights=only(*roles, "watch rayjobs x@studies")).status == "ok"
    assert one("rights", of=release(role), rights=only(*roles, "escalate roles@studies")).status == "ok"


def test_rights_are_shortened_and_everything_at_once_is_enough():
    many = release(item("ConfigMap"), item("ConfigMap", namespace="b"), item("Secret"), item("Secret", namespace="b"))
    assert "; and 8 more" in one("rights", of=many, rights=only()).text
    assert one("rights", of=many, rights=lambda asked: asked["verb"] == "*").status == "ok"


def test_without_a_manifest_rights_are_those_of_the_launcher():
    queued = release(queue="gpus", network_policy=True)
    text = one("rights", of=queued, rights=lambda asked: asked["verb"] in ("create", "patch")).text
    assert text == (
        "missing for running studies: delete rayjobs.ray.io in studies; get rayjobs.ray.io in studies; list pods in "
        "studies; list rayjobs.ray.io in studies; list workloads.kueue.x-k8s.io in studies; watch pods in studies; "
        "watch rayjobs.ray.io in studies"
    )
    assert one("rights", of=ChartRelease()).status == "unknown"


def claim(modes=("ReadWriteMany",), name=None):
    spec = {"accessModes": list(modes), **({"storageClassName": name} if name else {})}
    return item("PersistentVolumeClaim", "checkpoints", namespace="studies", spec=spec)


@pytest.mark.parametrize(
    ("classes", "wanted", "status", "text"),
    [
        ([], claim(), "problem", "no default among the storage classes (there are none)"),
        ([storage_class("a", "x", default=False)], claim(), "problem", "no default among the storage classes (a)"),
        ([storage_class("a", "x")], claim(name="b"), "problem", "there is no storage class b, only a"),
        ([storage_class("a", "ebs.csi.aws.com")], claim(["ReadWriteOnce"]), "ok", "ReadWriteOnce"),
        ([storage_class("a", "ebs.csi.aws.com")], claim(), "problem", "one node at a time"),
        ([storage_class("a", "efs.csi.aws.com", default=False)], claim(name="a"), "ok", "ReadWriteMany"),
        ([storage_class("a", "rook-ceph.cephfs.csi.ceph.com")], claim(), "ok", "ReadWriteMany"),
        ([storage_class("a", "rook-ceph.rbd.csi.ceph.com")], claim(), "problem", "one node at a time"),
        ([storage_class("a", "example.org/x")], claim(), "unknown", "cannot be seen"),
    ],
)
def test_storage_for_each_claim(classes, wanted, status, text):
    finding = one("storage checkpoints", {CLASSES: {"items": classes}}, release(wanted))
    assert finding.status == status
    assert text in finding.text


def test_a_claim_that_is_bound_has_its_storage():
    bound = {"spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}}
    finding = one("storage checkpoints", {CLASSES: {"items": []}, CLAIM: bound}, release(claim()))
    assert (finding.status, finding.text) == ("ok", "the claim is bound to pv-1 (ReadWriteMany)")


def test_storage_without_claims():
    assert one("storage", {CLASSES: {"items": []}}).status == "problem"
    assert one("storage", {CLASSES: {"items": []}}, release(item("ConfigMap"))).text == "the manifest claims no volume"


GPU = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
TEAM = {"key": "team", "value": "a", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("nodes", "workers", "status", "text"),
    [
        ([node(), node(gpu="4")], {"gpus": 2}, "ok", "1 of 2 nodes"),
        ([node()], {"gpus": 2}, "problem", "too little nvidia.com/gpu"),
        ([node(gpu="4")], {"gpus": 2, "memory": "1Ti"}, "problem", "too little memory"),
        ([node()], {"cpu": "16500m"}, "problem", "too little cpu"),
        ([node()], {"node_selector": {"pool": "a100"}}, "unknown", "no node has the labels pool=a100"),
        ([node({"pool": "a100"}), node()], {"node_selector": {"pool": "a100"}}, "ok", "1 of 2 nodes"),
        ([node(taints=[GPU], gpu="4")], {"gpus": 1}, "unknown", "tainted: nvidia.com/gpu:NoSchedule"),
        ([node(taints=[GPU], gpu="4")], {}, "problem", "tainted: nvidia.com/gpu:NoSchedule"),
        ([node(taints=[TEAM])], {}, "problem", "tainted: team=a:NoExecute"),
        ([node(taints=[TEAM])], {"tolerations": [{"key": "team", "value": "a"}]}, "ok", "1 of 1"),
        ([node(taints=[TEAM])], {"tolerations": [{"key": "team", "value": "b"}]}, "problem", "team=a"),
        ([node(taints=[TEAM])], {"tolerations": [{"operator": "Exists"}]}, "ok", "1 of 1"),
        ([node(taints=[TEAM])], {"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}, "problem", "team=a"),
        ([node(taints=[{"key": "x", "effect": "PreferNoSchedule"}])], {}, "ok", "1 of 1"),
        ([node(unschedulable=True)], {}, "problem", "tainted: unschedulable"),
        ([node()], {"affinity": {"nodeAffinity": {}}}, "ok", "affinity was not considered"),
        ([], {}, "unknown", "there is no node"),
    ],
)
def test_nodes_for_workers(nodes, workers, status, text):
    finding = one("worker nodes", {"/api/v1/nodes": {"items": nodes}}, release(workers=workers))
    assert finding.status == status
    assert text in finding.text


def test_nodes_for_each_pool():
    slices = f"cpu 4, memory 16Gi, 1 {MIG}"
    labelled = node({"cloud.google.com/gke-accelerator": "nvidia-l4"}, gpu="4")
    of = release(**MIXED)

    def seen(*nodes):
        every = findings({"/api/v1/nodes": {"items": list(nodes)}}, of)
        return {check: (one.status, one.text) for check, (one, *_) in every.items() if check.startswith("worker nodes")}

    assert seen(labelled, node({"kind": "a100"}, gpu="4"), node()) == {
        "worker nodes": ("ok", "2 of 3 nodes are large enough for cpu 8, memory 16Gi, 1 nvidia.com/gpu"),
        "worker nodes a100": ("ok", "1 of 3 nodes are large enough for cpu 4, memory 16Gi, 2 nvidia.com/gpu"),
        "worker nodes mig": ("problem", f"none of 3 nodes is large enough for {slices}: too little {MIG}"),
        "worker nodes cpu": ("ok", "2 of 3 nodes are large enough for cpu 16, memory 16Gi"),
    }
    assert seen(labelled)["worker nodes cpu"] == ("unknown", "there is no node without GPUs")


def test_gpus_are_counted_slices_too():
    slices = node()
    slices["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] = "7"
    text = one("gpus", {"/api/v1/nodes": {"items": [node(gpu="0"), node(gpu="4"), node(gpu="4"), slices]}}).text
    assert text == "8 nvidia.com/gpu on 2 nodes, 7 nvidia.com/mig-1g.10gb on 1 nodes"
    assert one("gpus", {"/api/v1/nodes": {"items": [node()]}}).text.startswith("none on 1 nodes")


def test_nodes_that_may_not_be_listed_are_unknown():
    seen = findings({"/api/v1/nodes": Forbidden("403 nodes is forbidden")})
    assert [(one.check, one.status) for one in (*seen["gpus"], *seen["nodes"])] == [
        ("gpus", "unknown"),
        ("nodes", "unknown"),
    ]


@pytest.mark.parametrize(
    ("sets", "status", "text"),
    [
        ([daemon("calico-node"), daemon("fluentd")], "ok", "Calico (DaemonSet calico-node) enforces them"),
        ([daemon("kube-flannel-ds")], "problem", "Flannel (DaemonSet kube-flannel-ds) enforces none"),
        ([daemon("kube-flannel-ds"), daemon("cilium")], "ok", "Cilium"),
        ([daemon("aws-node", "--enable-network-policy=false")], "problem", "aws-node) without"),
        ([daemon("aws-node", "--enable-network-policy=true")], "ok", "aws-node) with"),
        ([daemon("kindnet")], "unknown", "no known plug-in"),
    ],
)
def test_who_enforces_network_policies(sets, status, text):
    finding = one("network policies", {DAEMONS: {"items": sets}})
    assert finding.status == status
    assert text in finding.text


def test_network_policies_that_are_not_there_need_no_plug_in():
    assert one("network policies", {DAEMONS: {"items": []}}, release(item("ConfigMap"))).status == "ok"


KUEUE = {"/apis/kueue.x-k8s.io": {"preferredVersion": {"version": "v1beta2"}}}


def local_queue(status, message=""):
    return {"status": {"conditions": [{"type": "Active", "status": status, "message": message}]}}


@pytest.mark.parametrize(
    ("answers", "status", "text"),
    [
        ({}, "problem", "does not know kueue.x-k8s.io"),
        (KUEUE, "problem", "there is no LocalQueue gpus in studies"),
        ({**KUEUE, QUEUE: local_queue("False", "no ClusterQueue")}, "problem", "in studies: no ClusterQueue"),
        ({**KUEUE, QUEUE: {}}, "problem", "Kueue has not said"),
        ({**KUEUE, QUEUE: local_queue("True")}, "ok", "is active"),
    ],
)
def test_the_queue_of_studies(answers, status, text):
    finding = one("kueue", answers, release(queue="gpus"))
    assert finding.status == status
    assert text in finding.text


def test_the_queues_and_priorities_of_projects_and_pools():
    of = release(**MIXED, projects={"vision": {"queue": "gpus", "pools": ["mig"], "queue_priority_class": "high"}})
    classes = "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses"
    seen = findings({**KUEUE, QUEUE: local_queue("True"), f"{classes}/low": {}}, of)["kueue"]
    assert [(finding.status, finding.text) for finding in seen] == [
        ("problem", "there is no LocalQueue slices in studies"),
        ("ok", "LocalQueue gpus in studies is active"),
        ("problem", "there is no WorkloadPriorityClass high"),
    ]


def test_autoscaling_needs_metrics():
    scaled = release(item("HorizontalPodAutoscaler", version="autoscaling/v2"))
    assert one("metrics", of=scaled).status == "problem"
    there = {"/apis/metrics.k8s.io": {"preferredVersion": {"version": "v1beta1"}}}
    assert one("metrics", there, scaled).status == "ok"


def test_a_check_without_an_answer_is_unknown_and_the_others_go_on():
    seen = findings({CLASSES: Unavailable("no answer")})
    assert seen["storage"] == [Finding("storage", "unknown", "no answer", "run this again")]
    assert seen["network policies"][0].status == "ok"
    with pytest.raises(Unavailable):
        findings({"/version": Unavailable("no answer")})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "MANIFEST: must be YAML"),
        ("a: 1", "MANIFEST: must hold objects of Kubernetes"),
        (yaml.safe_dump(item("Secret")), "got 0 ConfigMaps with launcher.yaml"),
        (yaml.safe_dump(item("ConfigMap", data={"launcher.yaml": "image: 7"})), "image"),
    ],
)
def test_a_manifest_of_something_else_is_refused(text, said):
    with pytest.raises(InvalidSpec, match=said):
        read_manifest(text)


def test_local_drivers_have_no_settings():
    of = read_manifest(yaml.safe_dump(item("ConfigMap", data={"launcher.yaml": "{}"})))
    assert of.settings is None
    seen = findings(of=of)
    assert not {"rayjob", "worker nodes", "kueue"} & seen.keys()


@pytest.fixture
def cluster(monkeypatch):
    """The cluster that the command finds; its answers may be changed."""
    answers = dict(WELL)
    monkeypatch.setattr(Api, "connect", lambda kubeconfig, context, namespace: FakeApi(answers))
    monkeypatch.delenv("DRIFTLINE_LAUNCHER_CONFIG", raising=False)
    return answers


def run(*argv, text=None):
    done = CliRunner().invoke(app, ["doctor", "kubernetes", *argv], input=text)
    return done.exit_code, done.stdout


def test_the_command_prints_a_line_for_each_check_and_fails_on_a_problem(cluster):
    code, text = run()
    assert code == 0
    assert text.splitlines()[0] == "ok       kubernetes: version v1.31.2-eks-1"
    cluster[OPERATORS] = {"items": []}
    code, text = run()
    assert code == 1
    (line,) = [line for line in text.splitlines() if line.startswith("problem")]
    assert line.startswith("problem  kuberay operator: no pod has the label ")
    assert " -> install KubeRay" in line


def test_the_command_reads_a_manifest_and_prints_json(cluster, tmp_path):
    manifest = yaml.safe_dump(
        item("ConfigMap", data={"launcher.yaml": "image: d\nnamespace: studies\nworkers: {gpus: 8}\n"})
    )
    (tmp_path / "manifest.yaml").write_text(manifest)
    for code, text in (run("-", "--json", text=manifest), run(str(tmp_path / "manifest.yaml"), "--json")):
        assert code == 1
        (problem,) = [one for one in json.loads(text) if one["status"] == "problem"]
        assert problem["check"] == "worker nodes"
        assert problem.keys() == {"check", "status", "text", "advice"}


def test_in_the_schedulers_pod_the_launchers_own_settings_count(cluster, tmp_path, monkeypatch):
    file = tmp_path / "launcher.yaml"
    file.write_text("image: d\nnamespace: studies\n")
    monkeypatch.setenv("DRIFTLINE_LAUNCHER_CONFIG", str(file))
    code, text = run()
    assert code == 0
    assert "a study's RayJob would be accepted in studies" in text


def test_a_manifest_that_is_not_there(cluster):
    done = CliRunner().invoke(app, ["doctor", "kubernetes", "/nonexistent"])
    assert isinstance(done.exception, NotFound)


@pytest.mark.parametrize(
    ("patterns", "status", "text"),
    [
        (["ghcr.io/team/*", "quay.io/a/train:1"], "ok", "studies may bring ghcr.io/team/*, quay.io/a/train:1"),
        (["quay.io/a/train:*"], "ok", "quay.io/a/train:*"),
        (["*"], "problem", "* also allows images of other registries or owners"),
        (["ghcr.io/team*"], "problem", "ghcr.io/team* also allows"),
        (["ghcr.io*"], "problem", "ghcr.io* also allows"),
    ],
)
def test_patterns_of_images_must_be_narrow(patterns, status, text):
    finding = one("images of studies", of=release(images=patterns))
    assert (finding.status, text in finding.text) == (status, True)
    assert bool(finding.advice) == (status == "problem")


def test_secrets_that_pull_images_of_studies_must_be_there():
    of = release(images=["ghcr.io/team/*"], images_pull_secrets=["ghcr"])
    there = "/api/v1/namespaces/studies/secrets/ghcr"
    assert [finding.status for finding in findings({there: {}}, of)["images of studies"]] == ["ok"]
    missing = findings(of=of)["images of studies"][1]
    assert missing.status == "problem"
    assert missing.text.startswith("there is no Secret ghcr in studies")
    hidden = findings({there: Forbidden("403 no")}, of)["images of studies"][1]
    assert (hidden.status, hidden.text) == ("unknown", "403 no")


@pytest.mark.parametrize(("patterns", "status"), [(["wandb-*"], "ok"), (["*"], "problem"), (["*-store"], "problem")])
def test_patterns_of_secrets_must_not_reach_those_of_pods(patterns, status):
    of = release(secrets=patterns, env_from=[{"secretRef": {"name": "object-store"}}])
    assert one("secrets of programs", of=of).status == status
    assert "secrets of programs" not in findings()
