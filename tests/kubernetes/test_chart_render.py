"""The chart over a matrix of values: lint, Kubernetes' own schemas, and what holds for every object."""

import base64
import functools
import shutil

import jsonschema
import kubernetes_validate
import pytest
import yaml

from driftline import __version__
from service.launchers.kubernetes.config import Config, Workers
from service.launchers.kubernetes.naming import OWN_POLICY
from service.launchers.kubernetes.pod_patch import patched
from service.settings import read_service

from .chart_readme import CHART, described, readme
from .conftest import LOADER, launcher_of
from .foreign import KINDS, schema
from .matrix import CONTAINER, KEYS, MATRIX, PLACED, SPREAD

VALID: set[tuple[str, str]] = set()  # what several entries of the matrix have in common is checked once
VERSIONS = ("1.27", "1.31", "1.35")


@pytest.fixture(scope="module")
def schemas():
    """Kubernetes' schemas, read once; their definitions are megabytes."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("schema_contents", "all_versions"):
            patch.setattr(kubernetes_validate.utils, name, functools.cache(getattr(kubernetes_validate.utils, name)))
        yield


def pods(objects):
    """Every pod's (name, spec, labels) among objects."""
    for (kind, name), item in objects.items():
        if kind == "Pod":
            yield name, item["spec"], item["metadata"]["labels"]
        elif "template" in item.get("spec", {}):
            template = item["spec"]["template"]
            yield name, template["spec"], template["metadata"]["labels"]


def test_lint_is_silent(helm):
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART)).stdout


@pytest.mark.parametrize("name", MATRIX)
def test_every_object_is_valid_in_three_versions(rendered, name, schemas):
    for item in rendered[name].values():
        text = yaml.safe_dump(item)
        if item["kind"] in KINDS:
            jsonschema.validate(item, schema(item["kind"]))
            continue
        for version in VERSIONS:
            if (version, text) not in VALID:
                kubernetes_validate.validate(item, version, strict=True)
                VALID.add((version, text))


@pytest.mark.parametrize("word", ["true", "null", "on", "0x1f", "0123"])
def test_names_that_yaml_reads_as_something_else_stay_names(helm, word, schemas):
    values = {
        "nameOverride": word,
        "fullnameOverride": "tuner",
        "auth": {"existingSecret": word},
        "postgresql": {"enabled": False},
        "database": {"existingSecret": word, "existingSecretKey": word},
        "mlflow": {"existingSecret": word, "artifacts": {"persistence": {"existingClaim": word}}},
        "api": {"serviceAccount": {"name": word}, "priorityClassName": word},
        "caBundle": {"configMap": word},
        "checkpoints": {"volume": {"storageClass": word}},
        "data": {"enabled": True, "existingClaim": word},
        "studies": {"namespace": word, "serviceAccount": {"create": False, "name": word}},
        "ingress": {"enabled": True, "className": word, "hosts": [{"host": "a.b", "paths": [{"path": "/a: #b"}]}]},
    }
    objects = helm.objects(values, "--namespace", word, release=word)
    for item in objects.values():
        kubernetes_validate.validate(item, VERSIONS[-1], strict=True)
        assert item["metadata"]["namespace"] == word
    assert objects["Ingress", "tuner"]["spec"]["rules"][0]["http"]["paths"][0]["path"] == "/a: #b"
    launcher = launcher_of(objects, "tuner")
    assert (launcher.namespace, launcher.service_account) == (word, word)


@pytest.mark.parametrize("name", MATRIX)
def test_every_pod_is_restricted(rendered, name):
    for pod, spec, _ in pods(rendered[name]):
        security = spec["securityContext"]
        assert security["runAsNonRoot"], pod
        assert ("runAsUser" in security) is (name != "openshift"), pod
        assert security.get("runAsUser", 1) > 0, pod
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, pod
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), pod
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False, pod
            assert own["capabilities"] == {"drop": ["ALL"]}, pod
            assert own["readOnlyRootFilesystem"] is True, pod
            assert container["resources"]["requests"], pod
            assert "memory" in container["resources"]["limits"], pod
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted <= {volume["name"] for volume in spec["volumes"]}, pod


@pytest.mark.parametrize("name", MATRIX)
def test_a_pod_that_never_gets_ready_is_replaced_by_a_rollback(rendered, name):
    """In order, a StatefulSet waits for such a pod (test_chart_rollback.py)."""
    for (kind, which), item in rendered[name].items():
        if kind == "StatefulSet":
            assert item["spec"]["podManagementPolicy"] == "Parallel", which
            assert item["spec"].get("updateStrategy", {}).get("type", "RollingUpdate") == "RollingUpdate", which
        assert kind != "DaemonSet", which


@pytest.mark.parametrize("name", MATRIX)
def test_only_the_scheduler_sees_the_kubernetes_api(rendered, name):
    for pod, spec, labels in pods(rendered[name]):
        expected = labels["app.kubernetes.io/component"] in ("scheduler", "uninstall") and name != "small"
        assert spec["automountServiceAccountToken"] is expected, pod


@pytest.mark.parametrize("name", MATRIX)
def test_no_secret_stands_in_a_pod_or_a_configmap(rendered, name):
    values = {}
    for (kind, _), item in rendered[name].items():
        if kind == "Secret":
            values.update(item["data"])
    plain = [base64.b64decode(value).decode() for key, value in values.items() if key != "mlflow-username"]
    for (kind, which), item in rendered[name].items():
        if kind != "Secret":
            text = yaml.safe_dump(item)
            assert not any(value in text for value in plain), f"{kind} {which}"


@pytest.mark.parametrize("name", MATRIX)
def test_references_lead_somewhere(rendered, name):
    objects = rendered[name]
    made = {kind: {which for other, which in objects if other == kind} for kind, _ in objects}
    secrets = {which: set(item["data"]) for (kind, which), item in objects.items() if kind == "Secret"}
    for pod, spec, labels in pods(objects):
        account = spec["serviceAccountName"]
        assert account in made.get("ServiceAccount", ()) or name == "their-accounts", pod
        for volume in spec["volumes"]:
            if "configMap" in volume and not volume["configMap"]["name"].startswith("my-"):
                assert volume["configMap"]["name"] in made["ConfigMap"], pod
            if "persistentVolumeClaim" in volume and volume["persistentVolumeClaim"]["claimName"] != "my-data":
                assert volume["persistentVolumeClaim"]["claimName"] in made["PersistentVolumeClaim"], pod
        for container in [*spec["containers"], *spec.get("initContainers", [])]:
            for variable in container.get("env", []):
                reference = variable.get("valueFrom", {}).get("secretKeyRef")
                if reference and not reference["name"].startswith(("my-", "account")):
                    assert reference["key"] in secrets[reference["name"]], (pod, reference)
        assert labels["app.kubernetes.io/instance"] == "r"
    for (kind, which), item in objects.items():
        if kind == "Service":
            wanted = item["spec"]["selector"].items()
            assert any(wanted <= labels.items() for _, _, labels in pods(objects)), which


@pytest.mark.parametrize("name", MATRIX)
def test_the_launcher_takes_its_settings(rendered, name):
    config = next(
        item for (kind, _), item in rendered[name].items() if kind == "ConfigMap" and "launcher.yaml" in item["data"]
    )
    settings = yaml.load(config["data"]["launcher.yaml"], LOADER)
    if name == "small":
        assert settings == {}
        return
    read = Config.from_json(settings)
    read.check_folder(MATRIX[name].get("checkpoints", {}).get("url") or "/checkpoints")
    assert read.run_as_user == (None if name == "openshift" else 10001)
    assert read.instance == "r-driftline"


def test_a_gpu_pool_reaches_the_launcher(rendered):
    read = launcher_of(rendered["gpu"])
    workers = MATRIX["gpu"]["studies"]["workers"]
    assert (read.workers.min, read.workers.max, read.workers.gpus) == (0, 8, 4)
    assert read.workers.runtime_class == "nvidia"
    assert read.workers.node_selector == workers["nodeSelector"]
    assert list(read.workers.tolerations) == workers["tolerations"]
    assert read.workers.affinity == workers["affinity"]
    assert read.image == "registry.example.org/own@sha256:" + "b" * 64
    assert read.image_pull_secrets == ("registry",)
    assert read.env == {"A": "b", "DATA_DIR": "/data"}
    assert read.deadline_seconds == 86400
    assert read.scratch == "20Gi"
    assert read.priority_class == "ns.r-driftline-studies"
    assert {mount["mountPath"] for mount in read.volume_mounts} == {"/dev/shm", "/checkpoints", "/data"}
    assert read.labels == {"cost-centre": "research", "team": "federated"}


def test_what_programs_may_bring_reaches_the_api_and_the_launcher(rendered):
    def api_of(name):
        (container,) = rendered[name]["Deployment", "r-driftline-api"]["spec"]["template"]["spec"]["containers"]
        given = {variable["name"]: variable.get("value", "") for variable in container["env"]}
        return read_service({key: value for key, value in given.items() if key.startswith("DRIFTLINE_PROGRAM")})

    images, secrets = ("ghcr.io/team/*", "quay.io/a/b:1"), ("wandb-*", "hf")
    api, launcher = api_of("gpu"), launcher_of(rendered["gpu"])
    assert (api.programs, api.program_images, api.program_secrets) == (True, images, secrets)
    assert (launcher.images, launcher.images_pull_secrets, launcher.secrets) == (images, ("ghcr",), secrets)
    api, launcher = api_of("projects"), launcher_of(rendered["projects"])
    assert (api.programs, api.program_images, api.program_secrets) == (False, (), ())
    assert (launcher.images, launcher.images_pull_secrets, launcher.secrets) == ((), (), ())


def test_pools_reach_the_launcher(rendered):
    read = launcher_of(rendered["pools"])
    assert read.workers == Workers(), "defaults of the chart and of the launcher are the same"
    a100, mig, cpu = (read.of("other", name) for name in ("a100", "mig", "cpu"))
    one = a100.workers
    assert (one.gpus, one.min, one.max, one.idle_seconds, one.limit_cpu) == (2, 1, 4, 60, False)
    assert (one.runtime_class, one.affinity, one.cpu) == ("nvidia", PLACED["affinity"], "4")
    assert [PLACED["nodeSelector"], PLACED["tolerations"]] == [one.node_selector, list(one.tolerations)]
    assert (a100.priority_class, mig.priority_class) == ("large", "")
    assert mig.workers.gpu_resource == "nvidia.com/mig-1g.10gb"
    assert (mig.queue, mig.queue_priority_class) == ("slices", "low")
    assert read.of("vision", "mig").queue_priority_class == "high"
    assert read.worker_pools().projects == {"vision": ("mig", "cpu"), "speech": ("default", "a100")}
    assert [one.image.rpartition(":")[2] for one in (read, a100, mig, cpu)] == ["1-cuda", "1-cuda", "1-cuda", "1"]


def test_what_one_pool_needs_of_kubernetes_is_given(rendered):
    """`a100` scales, so its heads must reach Kubernetes; `mig` has a queue, so the scheduler must see Workloads."""
    assert ("NetworkPolicy", "r-driftline-heads-egress") in rendered["pools"]
    assert ("NetworkPolicy", "r-driftline-heads-egress") not in rendered["projects"]
    rules = rendered["pools"]["Role", "r-driftline-scheduler"]["rules"]
    assert any(rule["resources"] == ["workloads"] for rule in rules)


def test_scaling_leaves_replicas_to_the_autoscaler(rendered):
    assert "replicas" not in rendered["gpu"]["Deployment", "r-driftline-api"]["spec"]
    scaler = rendered["gpu"]["HorizontalPodAutoscaler", "r-driftline-api"]
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (2, 6)
    assert rendered["default"]["Deployment", "r-driftline-api"]["spec"]["replicas"] == 2


def test_budgets_are_made_for_two_replicas_and_more(rendered):
    def budgets(name):
        return {which for kind, which in rendered[name] if kind == "PodDisruptionBudget"}

    assert budgets("default") == {"r-driftline-api", "r-driftline-scheduler"}
    assert budgets("small") == set()


@pytest.mark.parametrize(("version", "policy"), [("1.27.0", "AlwaysAllow"), ("1.26.9", None)])
def test_a_pod_that_is_not_ready_keeps_no_node_where_kubernetes_knows_how(helm, version, policy):
    budget = helm.objects({}, "--kube-version", version)["PodDisruptionBudget", "r-driftline-api"]
    assert budget["spec"].get("unhealthyPodEvictionPolicy") == policy


def test_an_external_database_and_store_leave_nothing_behind(rendered):
    kinds = {kind for kind, _ in rendered["external"]}
    assert not kinds & {"StatefulSet", "PersistentVolumeClaim", "Secret"}
    assert rendered["external"]["Role", "r-driftline-scheduler"]["metadata"]["namespace"] == "studies"
    env = rendered["external"]["Deployment", "r-driftline-api"]["spec"]["template"]["spec"]["containers"][0]["env"]
    url = next(item for item in env if item["name"] == "DRIFTLINE_DATABASE_URL")
    assert url["valueFrom"]["secretKeyRef"] == {"name": "my-database", "key": "url"}


def test_patches_reach_every_pod(rendered, helm):
    """What a patch makes of a pod of the chart is what the launcher would make of it."""
    values = MATRIX["extended"]
    parts = ("api", "scheduler", "mlflow", "postgresql", "jobs")
    plain = helm.objects({key: value for key, value in values.items() if key not in parts})
    seen = set()
    for (kind, which), item in rendered["extended"].items():
        pod = item if kind == "Pod" else item.get("spec", {}).get("template")
        if not pod:
            continue
        part = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        change = values.get(part, values["jobs"])["podPatch"]
        if part == "checkpoints":  # it runs in the studies' namespace, without the release's Secrets
            change = {"metadata": change["metadata"]}
        elif part in ("uninstall", "test"):  # whose container has another name
            spec = change["spec"]
            change = {**change, "spec": {**spec, "containers": spec["containers"][1:]}}
        old = plain[kind, which] if kind == "Pod" else plain[kind, which]["spec"]["template"]
        made = patched({"metadata": old["metadata"], "spec": old["spec"]}, change)
        assert {"metadata": pod["metadata"], "spec": pod["spec"]} == made, which
        seen.add(part)
    assert seen == {*parts, "migration", "checkpoints", "uninstall", "test"} - {"jobs"}
    api = rendered["extended"]["Deployment", "r-driftline-api"]["spec"]["template"]["spec"]
    assert [container["name"] for container in api["containers"]] == ["api", "proxy"]
    assert api["containers"][0]["envFrom"] == KEYS
    assert {"name": "config", "mountPath": "/etc/driftline", "readOnly": True} in api["containers"][0]["volumeMounts"]
    assert api["topologySpreadConstraints"] == [SPREAD]
    mlflow = rendered["extended"]["Deployment", "r-driftline-mlflow"]["spec"]["template"]["spec"]
    assert [container["name"] for container in mlflow["initContainers"]] == ["before", "database"]


def test_patches_reach_the_pods_of_studies(rendered):
    read = launcher_of(rendered["extended"])
    studies = MATRIX["extended"]["studies"]
    assert read.head.pod_patch.document() == studies["head"]["podPatch"]
    assert read.workers.pod_patch.document() == studies["workers"]["podPatch"]
    assert read.of("any", "rdma").workers.pod_patch.document() == studies["pools"]["rdma"]["podPatch"]


def test_a_parents_registry_and_its_secrets_reach_every_image(rendered):
    objects = rendered["extended"]
    images = {container["image"] for _, spec, _ in pods(objects) for container in spec["containers"]}
    images -= {CONTAINER["image"]}
    mirror = "mirror.example.org:5000"
    assert images == {f"{mirror}/driftline:{__version__}", f"{mirror}/postgres:17"}
    secrets = ["registry", "mirror"]
    for pod, spec, _ in pods(objects):
        assert [secret["name"] for secret in spec["imagePullSecrets"]] == secrets, pod
    read = launcher_of(objects)
    assert (read.image, list(read.image_pull_secrets)) == (f"{mirror}/driftline:{__version__}", secrets)


@pytest.mark.parametrize(
    ("repository", "registry", "image"),
    [
        ("driftline", "r.example.org", "r.example.org/driftline:1"),
        ("lab/driftline", "r.example.org/mirror/", "r.example.org/mirror/lab/driftline:1"),
        ("quay.io/lab/driftline", "r.example.org", "r.example.org/lab/driftline:1"),
        ("localhost:5080/driftline", "r.example.org", "r.example.org/driftline:1"),
        ("localhost/driftline", "r.example.org", "r.example.org/driftline:1"),
        ("quay.io/lab/driftline", "", "quay.io/lab/driftline:1"),
    ],
)
def test_a_parents_registry_takes_the_place_of_an_images_own(helm, repository, registry, image):
    own = {"repository": repository, "tag": "1"}
    values = {"image": own, "studies": {"pools": {"a": {"image": own}}}, "global": {"imageRegistry": registry}}
    objects = helm.objects(values)
    [container] = objects["Deployment", "r-driftline-api"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image
    read = launcher_of(objects)
    assert (read.image, read.of("any", "a").image) == (image, image)


def test_services_have_the_families_that_are_named_and_pods_listen_on_them(rendered):
    for (kind, which), item in rendered["extended"].items():
        if kind == "Service":
            assert (item["spec"]["ipFamilyPolicy"], item["spec"]["ipFamilies"]) == (
                "PreferDualStack",
                ["IPv6", "IPv4"],
            ), which
    for name, host in (("extended", "::"), ("default", "0.0.0.0")):
        for part in ("api", "scheduler"):
            pod = rendered[name]["Deployment", f"r-driftline-{part}"]["spec"]["template"]["spec"]
            command = pod["containers"][0]["command"]
            assert command[command.index("--host") + 1] == host
        pod = rendered[name]["Deployment", "r-driftline-mlflow"]["spec"]["template"]["spec"]
        assert {"name": "LISTEN", "value": host.replace("::", "")} in pod["containers"][0]["env"]
    assert not any(
        "ipFamilyPolicy" in item["spec"] for (kind, _), item in rendered["default"].items() if kind == "Service"
    )


def test_further_objects_may_be_templates(rendered):
    assert {("ConfigMap", "r-extra"), ("Secret", "r-own")} <= rendered["extended"].keys()


@pytest.mark.parametrize("enabled", [True, False])
def test_a_parent_chart_may_have_it_twice_and_switch_it_off(helm, tmp_path, enabled):
    """As platforms do: `condition` and `alias`, with an image registry for all."""
    entries = [
        {"name": "driftline", "version": "*", "alias": alias, "condition": f"{alias}.enabled"}
        for alias in ("tuner", "sandbox")
    ]
    chart = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": entries}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(chart))
    shutil.copytree(CHART, tmp_path / "charts" / "driftline")
    own = {"image": {"repository": "driftline"}, "services": {"ipFamilyPolicy": "PreferDualStack"}}
    values = {
        "global": {"imageRegistry": "mirror.example.org"},
        "tuner": {**own, "enabled": enabled},
        "sandbox": {**own, "enabled": True, "postgresql": {"podPatch": {"metadata": {"labels": {"a": "b"}}}}},
    }
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    text = helm("template", "p", str(tmp_path), "--namespace", "ns").stdout
    objects = [item for item in yaml.load_all(text, LOADER) if item]
    names = {item["metadata"]["name"] for item in objects if item["kind"] == "Deployment"}
    parts = ("api", "scheduler", "mlflow")
    assert names == {f"p-{alias}-{part}" for alias in ("tuner", "sandbox")[not enabled :] for part in parts}
    selectors = [str(item["spec"]["selector"]) for item in objects if item["kind"] == "Deployment"]
    assert len(set(selectors)) == len(selectors)
    images = {
        item["spec"]["template"]["spec"]["containers"][0]["image"] for item in objects if item["kind"] == "Deployment"
    }
    assert images == {f"mirror.example.org/driftline:{__version__}"}


def test_annotations_belong_to_one_account(rendered):
    accounts = {name: item for (kind, name), item in rendered["gpu"].items() if kind == "ServiceAccount"}
    annotated = [name for name, item in accounts.items() if "eks.amazonaws.com/role-arn" in str(item["metadata"])]
    assert annotated == ["r-driftline-studies"]
    pod = rendered["gpu"]["Deployment", "r-driftline-mlflow"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "r-driftline-mlflow"


def test_rights_are_exactly_these(rendered):
    rules = {
        (rule["apiGroups"][0], rule["resources"][0]): sorted(rule["verbs"])
        for rule in rendered["default"]["Role", "r-driftline-scheduler"]["rules"]
    }
    assert rules == {
        ("ray.io", "rayjobs"): ["create", "delete", "get", "list", "patch", "watch"],
        ("", "secrets"): ["create", "patch"],
        ("", "pods"): ["list", "watch"],
        ("", "serviceaccounts"): ["create", "patch"],
        ("networking.k8s.io", "networkpolicies"): ["create", "patch"],
    }
    assert not any(kind.startswith("ClusterRole") for objects in rendered.values() for kind, _ in objects)
    assert not any(
        kind in ("Role", "RoleBinding") for name in ("small", "their-accounts") for kind, _ in rendered[name]
    )


HOME = {"default": "ns-r-driftline-studies", "external": "studies", "together": "ns"}


@pytest.mark.parametrize("name", HOME)
def test_the_scheduler_has_rights_where_studies_run_and_nowhere_else(rendered, name):
    objects = rendered[name]
    granted = {
        item["metadata"]["namespace"]
        for (kind, which), item in objects.items()
        if which == "r-driftline-scheduler" and kind in ("Role", "RoleBinding")
    }
    assert granted == {HOME[name]}
    for (kind, which), item in objects.items():
        if kind == "RoleBinding":
            accounts = {(one["name"], one["namespace"]) for one in item["subjects"]}
            assert accounts <= {("r-driftline-scheduler", "ns"), ("r-driftline-uninstall", "ns")}, which
    secrets = {item["metadata"]["namespace"] for (kind, _), item in objects.items() if kind == "Secret"}
    assert not secrets & granted or name == "together"


def test_the_namespace_of_studies_is_made_and_kept_unless_it_is_named(rendered, helm):
    made = {name: [which for kind, which in objects if kind == "Namespace"] for name, objects in rendered.items()}
    assert made["default"] == made["projects"] == ["ns-r-driftline-studies"]
    assert made["external"] == made["together"] == made["small"] == []
    about = rendered["default"]["Namespace", "ns-r-driftline-studies"]["metadata"]
    assert about["annotations"] == {"helm.sh/resource-policy": "keep"}
    same = helm.objects({}, "--namespace", "driftline", release="driftline")
    assert [which for kind, which in same if kind == "Namespace"] == ["driftline-studies"]


def test_no_account_of_the_chart_mounts_its_token_by_itself(rendered):
    for objects in rendered.values():
        for (kind, which), item in objects.items():
            assert kind != "ServiceAccount" or item["automountServiceAccountToken"] is False, which


def test_each_study_has_an_account_unless_one_is_named(rendered):
    assert launcher_of(rendered["gpu"]).service_account == ""
    assert launcher_of(rendered["gpu"]).service_account_annotations == {"eks.amazonaws.com/role-arn": "arn"}
    assert launcher_of(rendered["their-accounts"]).service_account == "c"
    assert launcher_of(rendered["gpu"]).network_policy


def test_projects_have_places_of_their_own(rendered):
    objects = rendered["projects"]
    read = launcher_of(objects)
    shared = "ns-r-driftline-studies"
    of = [read.of(name) for name in ("team-a", "Team_B", "small", "others")]
    assert [one.namespace for one in of] == ["team-a", "team-b", shared, shared]
    assert [one.queue for one in of] == ["gpus", None, "cpus", None]
    assert read.of("team-a").queue_priority_class == "low"
    assert read.folder("Team_B", "/checkpoints") == "s3://team-b/checkpoints"
    everywhere = {shared, "team-a", "team-b"}
    for kind, name in (
        ("Role", "r-driftline-scheduler"),
        ("RoleBinding", "r-driftline-scheduler"),
        ("Role", "r-driftline-uninstall-studies"),
        ("PersistentVolumeClaim", "r-driftline-checkpoints"),
        ("Job", "r-driftline-checkpoints"),
        ("ServiceAccount", "r-driftline-studies"),
        ("NetworkPolicy", "r-driftline-studies"),
        ("NetworkPolicy", "r-driftline-studies-egress"),
    ):
        found = [item for (other, which), item in objects.items() if other == kind and which.endswith(name)]
        assert {item["metadata"]["namespace"] for item in found} == everywhere, (kind, name)
        assert len({yaml.safe_dump(item["spec"]) for item in found if "spec" in item}) <= 1, (kind, name)
    quota = objects["ResourceQuota", "r-driftline-studies"]
    assert quota["metadata"]["namespace"] == "team-a"
    assert quota["spec"]["hard"] == {"requests.nvidia.com/gpu": "8", "count/rayjobs.ray.io": "20"}
    admitted = objects["NetworkPolicy", "r-driftline-api"]["spec"]["ingress"][0]["from"]
    (studies,) = [peer["namespaceSelector"] for peer in admitted if "namespaceSelector" in peer]
    (within,) = studies["matchExpressions"]
    named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": everywhere}
    assert {**within, "values": set(within["values"])} == named


EGRESS = ("egress", "kubernetes-egress", "studies-egress", "heads-egress")


def test_egress_is_closed_but_for_what_is_named(rendered):
    own, kubernetes, studies, heads = (
        rendered["gpu"]["NetworkPolicy", f"r-driftline-{name}"]["spec"] for name in EGRESS
    )
    for policy in (own, kubernetes, studies, heads):
        assert policy["policyTypes"] == ["Egress"]
        assert all(rule.get("to") or {port["port"] for port in rule["ports"]} == {53} for rule in policy["egress"])
    assert len(own["egress"]) == 2, "DNS and each other"
    assert kubernetes["podSelector"]["matchExpressions"][0]["values"] == ["scheduler", "uninstall"]
    (_, inside, named) = studies["egress"]
    labels = [peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for peer in inside["to"]]
    assert labels == ["study", "api"]
    assert named == {"to": [{"ipBlock": {"cidr": "10.9.0.0/16"}}]}
    assert heads["egress"] == kubernetes["egress"], "the autoscaler needs it, beside the head"
    assert heads["podSelector"]["matchLabels"].items() - studies["podSelector"]["matchLabels"].items() == {
        ("ray.io/node-type", "head")
    }
    assert not [name for _, name in rendered["projects"] if name.endswith("heads-egress")], "no autoscaler there"
    assert not any(name.endswith("egress") for _, name in rendered["default"])


def test_network_policies(rendered):
    policies = {which: item["spec"] for (kind, which), item in rendered["gpu"].items() if kind == "NetworkPolicy"}
    assert set(policies) == {
        f"r-driftline-{part}"
        for part in ("all", "api", "scheduler", "mlflow", "postgresql", "studies", "studies-without-policy", *EGRESS)
    }
    admitted = policies["r-driftline-postgresql"]["ingress"][0]["from"][0]["podSelector"]
    assert admitted["matchExpressions"][0]["values"] == ["api", "scheduler", "migration", "mlflow"]
    assert policies["r-driftline-postgresql"]["egress"] == []
    assert policies["r-driftline-scheduler"]["ingress"][0]["from"] == [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    studies = policies["r-driftline-studies"]
    assert studies["podSelector"]["matchLabels"] == {
        "app.kubernetes.io/component": "study",
        "app.kubernetes.io/managed-by": "driftline",
        "app.kubernetes.io/instance": "r-driftline",
    }
    assert [rule.get("ports", []) for rule in studies["ingress"]] == [
        [{"protocol": "TCP", "port": 8265}],
        [{"protocol": "TCP", "port": 8080}],
    ]
    assert not any("study" in str(rule["from"]) for rule in studies["ingress"]), "that is for each study's own policy"
    before = rendered["default"]["NetworkPolicy", "r-driftline-studies-without-policy"]["spec"]
    (old,) = before["podSelector"]["matchExpressions"]
    assert old == {"key": OWN_POLICY, "operator": "DoesNotExist"}
    assert before["ingress"] == [{"from": [{"podSelector": before["podSelector"]}]}]
    assert "from" not in rendered["default"]["NetworkPolicy", "r-driftline-api"]["spec"]["ingress"][0]
    assert len(policies["r-driftline-api"]["ingress"][0]["from"]) == 4


def test_the_ingress_shows_the_api_and_mlflow_and_no_metrics(rendered):
    spec = rendered["gpu"]["Ingress", "r-driftline"]["spec"]
    assert spec["tls"] == [{"secretName": "certificate", "hosts": ["tuning.example.org", "mlflow.example.org"]}]
    paths = {path["path"]: path["pathType"] for path in spec["rules"][0]["http"]["paths"]}
    assert (paths["/v1"], paths["/"], paths["/studies"]) == ("Prefix", "Exact", "Prefix")
    assert "/metrics" not in paths


def test_an_ingress_may_have_hosts_and_paths_of_its_own(helm):
    hosts = [{"host": "a.example.org"}, {"host": "*.b.example.org", "paths": [{"path": "/api", "pathType": "Exact"}]}]
    tls = [{"secretName": "one", "hosts": ["*.example.org"]}]
    values = {"enabled": True, "hosts": hosts, "mlflowHosts": [{"host": "m.example.org"}], "tls": tls}
    objects = helm.objects({"ingress": values})
    spec = objects["Ingress", "r-driftline"]["spec"]
    assert spec["tls"] == tls
    assert [rule["host"] for rule in spec["rules"]] == ["a.example.org", "*.b.example.org", "m.example.org"]
    (path,) = spec["rules"][1]["http"]["paths"]
    backend = {"service": {"name": "r-driftline-api", "port": {"name": "http"}}}
    assert path == {"path": "/api", "pathType": "Exact", "backend": backend}
    env = objects["Deployment", "r-driftline-mlflow"]["spec"]["template"]["spec"]["containers"][0]["env"]
    given = {item["name"]: item.get("value", "") for item in env}
    assert given["ALLOWED_ORIGINS"] == "https://m.example.org"
    assert "m.example.org" in given["ALLOWED_HOSTS"].split(",")


def test_accounts_may_be_named_and_be_those_of_others(helm):
    named = {"serviceAccount": {"name": "ours"}}
    existing = {"serviceAccount": {"create": False, "name": "theirs"}}
    objects = helm.objects({"api": named, "mlflow": existing})
    accounts = {name for kind, name in objects if kind == "ServiceAccount"}
    assert accounts == {"ours", "r-driftline-scheduler", "r-driftline-studies", "r-driftline-uninstall"}
    used = {labels["app.kubernetes.io/component"]: spec["serviceAccountName"] for _, spec, labels in pods(objects)}
    assert (used["api"], used["migration"], used["mlflow"]) == ("ours", "ours", "theirs")


def test_mlflow_asks_for_passwords(rendered, helm):
    pod = rendered["default"]["Deployment", "r-driftline-mlflow"]["spec"]["template"]["spec"]
    env = {item["name"]: item.get("value") for item in pod["containers"][0]["env"]}
    assert env["DEFAULT_PERMISSION"] == "NO_PERMISSIONS"
    script = rendered["default"]["ConfigMap", "r-driftline-mlflow"]["data"]["start.sh"]
    assert "--app-name basic-auth" in script
    assert "r-driftline-mlflow.ns.svc:*" in env["ALLOWED_HOSTS"].split(",")


def test_the_database_of_mlflow_is_another_one_on_the_same_server(rendered):
    for part, variable, database in (
        ("api", "DRIFTLINE_DATABASE_URL", "driftline"),
        ("mlflow", "MLFLOW_DATABASE", "mlflow"),
    ):
        pod = rendered["default"]["Deployment", f"r-driftline-{part}"]["spec"]["template"]["spec"]
        env = {item["name"]: item.get("value", item.get("valueFrom")) for item in pod["containers"][0]["env"]}
        assert env[variable] == f"postgresql+psycopg://driftline@r-driftline-postgresql.ns.svc:5432/{database}"
        assert env["PGPASSWORD"] == {"secretKeyRef": {"name": "r-driftline", "key": "postgres-password"}}


def test_the_readme_is_current():
    text = (CHART / "values.yaml").read_text()
    assert (CHART / "README.md").read_text() == readme(text), (
        "run python tests/kubernetes/chart_readme.py > helm/driftline/README.md"
    )


def test_every_value_is_described_and_used():
    templates = "\n".join(path.read_text() for path in (CHART / "templates").rglob("*.*"))
    for key, _, text in described((CHART / "values.yaml").read_text()):
        assert text, key
        whole = key.startswith(
            "studies.workers."
        )  # passed on as it is: the launcher refuses a key that it has no use for
        assert whole or key.rpartition(".")[2] in templates, f"{key} is used by no template"
