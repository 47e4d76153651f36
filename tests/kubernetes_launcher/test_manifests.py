"""RayJobs and Secrets as they are sent: names, the CRD's own schema, what stands where."""

import json
import re

import jsonschema
import pytest
import yaml

from driftline.errors import InvalidSpec
from service.launchers.kubernetes import manifests
from service.launchers.kubernetes.config import Config
from service.launchers.kubernetes.naming import LONGEST, job_name
from tests.kubernetes_launcher.made import FULL, MIXED, STUDY, config, launch

URL, FOLDER = "http://driftline-api:8080", "s3://bucket/checkpoints"


def strict(schema):
    """The schema with unknown keys refused wherever it names keys."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    if found.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    named = isinstance(found.get("properties"), dict) and found.get("type") == "object"
    if named and not found.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found


@pytest.fixture(scope="module")
def schema(kube):
    """KubeRay's schema of a RayJob (v1), unknown keys refused."""
    with (kube / "crds" / "rayjobs.yaml").open() as file:
        crd = yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    version = next(item for item in crd["spec"]["versions"] if item["name"] == "v1")
    found = strict(version["schema"]["openAPIV3Schema"])
    found["properties"]["metadata"] = {"type": "object"}
    return jsonschema.Draft202012Validator(found)


def made(values=None, asked=None):
    return manifests.rayjob(
        Config.from_json(values or FULL), asked or launch(), job_name(STUDY, 1), "studies", url=URL, folder=FOLDER
    )


@pytest.mark.parametrize(
    "values",
    [
        {"image": "driftline:test"},
        FULL,
        {**FULL, "workers": {"min": 0, "max": 2}},
        {**FULL, "workers": {"min": 2, "max": 2}, "queue": "gpus", "queue_priority_class": "low"},
    ],
    ids=["least", "full", "0", "queue"],
)
@pytest.mark.parametrize("gpus", [None, 0, 0.25])
def test_the_rayjob_is_what_the_crd_allows(schema, values, gpus):
    schema.validate(made(values, launch(gpus=gpus)))


@pytest.mark.parametrize("pool", ["default", "a100", "mig", "cpu"])
def test_the_rayjob_of_each_pool_is_what_the_crd_allows(schema, pool):
    settings = config(**MIXED).of("default", pool)
    schema.validate(manifests.rayjob(settings, launch(), "n", "studies", url=URL, folder=FOLDER))


@pytest.mark.parametrize(
    "place",
    [
        lambda job: job["spec"],
        lambda job: job["spec"]["rayClusterSpec"],
        lambda job: job["spec"]["rayClusterSpec"]["authOptions"],
        lambda job: job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0],
        lambda job: job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0],
        lambda job: job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["securityContext"],
    ],
)
def test_the_schema_would_tell_an_unknown_key(schema, place):
    job = made()
    place(job)["unheardOf"] = 1
    with pytest.raises(jsonschema.ValidationError, match="unheardOf"):
        schema.validate(job)


def test_the_driver_is_the_entrypoint_and_its_token_stands_in_the_secret_alone():
    job = made()
    assert job["spec"]["entrypoint"] == (
        f"python -P -m service.driver --study {STUDY} --url {URL} --folder {FOLDER} --address auto --nodes-seconds 1200"
        " --worker-gpus 2 --most-nodes 8"
    )
    assert launch().token not in json.dumps(job)
    head, worker = templates(job)
    name = job_name(STUDY, 1)
    token = {"name": "DRIFTLINE_TOKEN", "valueFrom": {"secretKeyRef": {"name": name, "key": "driver_token"}}}
    assert token in head["containers"][0]["env"]
    assert "DRIFTLINE_TOKEN" not in json.dumps(worker)
    assert job["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token", "secretName": name}


def test_an_argument_that_needs_quotes_gets_them():
    job = manifests.rayjob(config(), launch(), "n", "ns", url=URL, folder="s3://bucket/two words;id")
    assert "--folder 's3://bucket/two words;id' --address" in job["spec"]["entrypoint"]


def test_the_secret_belongs_to_the_rayjob_and_is_the_same_every_time():
    job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "n", "namespace": "ns", "uid": "u-1"}}
    one, two = (manifests.secret(config(), launch(), job) for _ in range(2))
    assert one == two
    assert one["metadata"]["ownerReferences"] == [
        {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "n", "uid": "u-1"}
    ]
    assert one["stringData"]["driver_token"] == launch().token
    assert re.fullmatch("[0-9a-f]{64}", one["stringData"]["auth_token"])
    other = manifests.secret(config(), launch(attempt=2), job)
    assert other["stringData"]["auth_token"] != one["stringData"]["auth_token"]


def templates(job):
    cluster = job["spec"]["rayClusterSpec"]
    return cluster["headGroupSpec"]["template"]["spec"], cluster["workerGroupSpecs"][0]["template"]["spec"]


def test_the_head_takes_no_work_and_workers_have_the_gpus():
    job = made()
    head, worker = templates(job)
    assert job["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    limits = worker["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "2"}
    assert head["containers"][0]["resources"]["limits"] == {"cpu": "500m", "memory": "2Gi"}
    assert worker["runtimeClassName"] == "nvidia"
    assert worker["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert head["nodeSelector"] == {"pool": "cpu"}
    assert "tolerations" not in head


def test_a_study_whose_trials_span_nodes_has_as_many_workers_from_the_start():
    def replicas(nodes):
        (group,) = made({**FULL, "workers": {"min": 1, "max": 4}}, launch(nodes=nodes))["spec"]["rayClusterSpec"][
            "workerGroupSpecs"
        ]
        return group["replicas"], group["minReplicas"], group["maxReplicas"]

    assert [replicas(nodes) for nodes in (1, 3)] == [(1, 1, 4), (3, 3, 4)]
    manifests.check(config(workers={"max": 4}), launch(nodes=4))
    with pytest.raises(InvalidSpec, match=r"resources.nodes: must be at most 4, the most workers of a study .*, got 5"):
        manifests.check(config(workers={"max": 4}), launch(nodes=5))


def test_ray_counts_cores_and_gpus_as_the_launcher_says():
    def params(values, **asked):
        return made(values, launch(**asked))["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["rayStartParams"]

    assert params(FULL) == {"num-cpus": "8", "num-gpus": "2"}
    assert params(FULL, gpus=0) == {"num-cpus": "8", "num-gpus": "0"}
    assert params({"image": "i", "workers": {"cpu": "1500m"}}) == {"num-cpus": "2", "num-gpus": "0"}


@pytest.mark.parametrize(
    ("gpus", "asked", "said"), [(2, None, True), (2, 0, False), (2, 0.5, False), (2, 1, False), (0, None, False)]
)
def test_the_driver_is_told_of_gpus_that_no_node_may_show_yet(gpus, asked, said):
    values = {"image": "i", "workers": {"min": 0, "max": 2, "gpus": gpus}, "unschedulable_seconds": 60}
    words = made(values, launch(gpus=asked))["spec"]["entrypoint"].split()
    assert ("--worker-gpus" in words) is said
    assert words[words.index("--nodes-seconds") + 1] == "360"


def test_cores_may_be_left_without_a_limit():
    free = {"image": "i", "head": {"limit_cpu": False}, "workers": {"limit_cpu": False, "gpus": 1}}
    head, worker = (template["containers"][0]["resources"] for template in templates(made(free)))
    assert head == {"requests": {"cpu": "1", "memory": "4Gi"}, "limits": {"memory": "4Gi"}}
    assert worker == {
        "requests": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"},
        "limits": {"memory": "16Gi", "nvidia.com/gpu": "1"},
    }


def test_a_study_without_gpus_gets_workers_without():
    limits = templates(made(asked=launch(gpus=0)))[1]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "8", "memory": "32Gi"}


def test_only_pods_that_ask_for_gpus_see_any():
    """Where NVIDIA's runtime is a node's default, a pod that says nothing sees all of the node's GPUs."""

    def seen(job):
        return [
            {item["name"]: item.get("value") for item in template["containers"][0]["env"]}.get("NVIDIA_VISIBLE_DEVICES")
            for template in templates(job)
        ]

    assert seen(made()) == ["void", None]  # the device plugin tells the worker which are its own
    assert seen(made(asked=launch(gpus=0))) == ["void", "void"]
    assert seen(made({**FULL, "env": {"NVIDIA_VISIBLE_DEVICES": "all"}})) == ["all", "all"]


def test_it_scales_only_when_there_is_room_to():
    cluster = made()["spec"]["rayClusterSpec"]
    group = cluster["workerGroupSpecs"][0]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (1, 1, 8)
    assert cluster["enableInTreeAutoscaling"] is True
    assert cluster["autoscalerOptions"]["idleTimeoutSeconds"] == 120
    amounts = {"cpu": "500m", "memory": "512Mi"}  # what KubeRay gives it by itself
    assert cluster["autoscalerOptions"]["resources"] == {"requests": amounts, "limits": amounts}
    small = made({**FULL, "autoscaler": {"cpu": "50m", "memory": "1Gi", "limit_cpu": False}})["spec"]["rayClusterSpec"]
    limits = {"memory": "1Gi"}
    assert small["autoscalerOptions"]["resources"] == {"requests": {"cpu": "50m", **limits}, "limits": limits}
    fixed = made({"image": "i", "workers": {"min": 3, "max": 3}})["spec"]["rayClusterSpec"]
    assert "enableInTreeAutoscaling" not in fixed
    assert "autoscalerOptions" not in fixed


@pytest.mark.parametrize("most", [2, 4])
def test_a_token_of_kubernetes_is_for_rays_autoscaler_alone(most):
    """A worker has Ray's token, and can run commands in the head's container with it."""
    cluster = made({**FULL, "workers": {"min": 2, "max": most}})["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        projected = {volume["name"] for volume in pod["volumes"] if "projected" in volume}
        assert projected == ({"autoscaler-token"} if group is cluster["headGroupSpec"] and most == 4 else set())
        assert not {mount["name"] for mount in container["volumeMounts"]} & {"autoscaler-token", "autoscaler-scratch"}
    mounts = cluster.get("autoscalerOptions", {}).get("volumeMounts", [])
    where = {mount["mountPath"]: mount["name"] for mount in mounts}
    expected = {"/tmp": "autoscaler-scratch", "/var/run/secrets/kubernetes.io/serviceaccount": "autoscaler-token"}
    assert where == (expected if most == 4 else {})


def test_each_study_has_an_account_and_a_policy_that_its_rayjob_owns():
    settings = config(network_policy=True, service_account_annotations={"role": "writer"})
    job = manifests.rayjob(settings, launch(), "n", "ns", url=URL, folder=FOLDER)
    job["metadata"]["uid"] = "u-1"
    found = manifests.owned(settings, launch(), job)
    assert found.keys() == {"secrets", "serviceaccounts", "networkpolicies"}
    for kind, item in found.items():
        name = job_name(STUDY, 1) if kind == "secrets" else "n"
        assert (item["metadata"]["name"], item["metadata"]["namespace"]) == (name, "ns")
        assert item["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    account, policy = found["serviceaccounts"], found["networkpolicies"]["spec"]
    assert account["automountServiceAccountToken"] is False
    assert account["metadata"]["annotations"] == {"role": "writer"}
    assert {template["serviceAccountName"] for template in templates(job)} == {"n"}
    (rule,) = policy["ingress"]
    (peer,) = rule["from"]
    assert peer == {"podSelector": policy["podSelector"]}, "its own pods, in its own namespace"
    cluster = job["spec"]["rayClusterSpec"]
    other = manifests.rayjob(settings, launch("another"), "m", "ns", url=URL, folder=FOLDER)["spec"]["rayClusterSpec"]
    for one, matches in ((cluster, True), (other, False)):
        for group in (one["headGroupSpec"], *one["workerGroupSpecs"]):
            labels = group["template"]["metadata"]["labels"]
            assert (policy["podSelector"]["matchLabels"].items() <= labels.items()) is matches
            assert labels["driftline.io/own-network-policy"] == "true"


def test_an_account_of_your_own_is_shared_by_all_studies():
    settings = config(service_account="theirs")
    job = manifests.rayjob(settings, launch(), "n", "ns", url=URL, folder=FOLDER)
    job["metadata"]["uid"] = "u"
    assert manifests.owned(settings, launch(), job).keys() == {"secrets"}
    assert {template["serviceAccountName"] for template in templates(job)} == {"theirs"}


def test_a_project_differs_in_what_it_names():
    projects = {"a": {"namespace": "ns-a", "queue": "q-a", "checkpoints": "s3://a/x"}, "b": {"queue": "q-b"}}
    settings = config(namespace="studies", queue="q", queue_priority_class="low", projects=projects)
    of = {name: settings.of(name) for name in ("a", "b", "c")}
    assert {name: one.namespace for name, one in of.items()} == {"a": "ns-a", "b": "studies", "c": "studies"}
    assert {name: one.queue for name, one in of.items()} == {"a": "q-a", "b": "q-b", "c": "q"}
    assert {one.queue_priority_class for one in of.values()} == {"low"}
    assert [settings.folder(name, FOLDER) for name in of] == ["s3://a/x", FOLDER, FOLDER]
    assert settings.namespaces("studies") == {"studies", "ns-a"}


def test_scratch_may_be_limited():
    for limit, expected in ((None, {}), ("20Gi", {"sizeLimit": "20Gi"})):
        for template in templates(made({**FULL, "scratch": limit})):
            sizes = {volume["name"]: volume["emptyDir"] for volume in template["volumes"] if "emptyDir" in volume}
            assert sizes.pop("autoscaler-scratch", expected) == expected
            assert sizes == {"scratch": expected}
            given = {one["name"]: one.get("value") for one in template["containers"][0]["env"]}
            assert given.get("DRIFTLINE_CACHE_GIB") == ("6.67" if limit else None)


def test_pods_keep_to_the_restricted_profile():
    job = made()
    for template in templates(job):
        assert template["securityContext"]["runAsNonRoot"] is True
        assert template["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
        assert template["enableServiceLinks"] is False
        assert template["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in template["containers"]:
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False
            assert own["readOnlyRootFilesystem"] is True
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert {"name": "scratch", "mountPath": "/tmp"} in container["volumeMounts"]
    assert job["spec"]["rayClusterSpec"]["autoscalerOptions"]["securityContext"]["runAsNonRoot"] is True


PATCH = {
    "metadata": {"labels": {"team": "a"}, "annotations": {"example.org/note": "daily", "sidecar": "no"}},
    "spec": {
        "schedulerName": "volcano",
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["store"]}],
        "initContainers": [{"name": "fetch", "image": "fetch:1"}],
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}],
        "containers": [
            {
                "name": "ray-worker",
                "resources": {"limits": {"rdma/hca": "1"}},
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
                "env": [{"name": "DATA_DIR", "value": "/fast"}],
            },
            {"name": "logs", "image": "shipper:1"},
        ],
    },
}


def test_a_patch_changes_the_pods_of_workers_and_nothing_else(schema):
    before = made()["spec"]["rayClusterSpec"]
    job = made({**FULL, "workers": {**FULL["workers"], "pod_patch": PATCH}})
    schema.validate(job)
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["headGroupSpec"] == before["headGroupSpec"]
    (old,), (new,) = ([group["template"] for group in one["workerGroupSpecs"]] for one in (before, cluster))
    assert new["metadata"]["labels"] == {**old["metadata"]["labels"], "team": "a"}
    assert new["metadata"]["annotations"] == {"example.org/note": "daily", "sidecar": "no"}
    spec, (own, other) = new["spec"], new["spec"]["containers"]
    assert (spec["schedulerName"], other["image"], spec["initContainers"][0]["name"]) == (
        "volcano",
        "shipper:1",
        "fetch",
    )
    [container] = old["spec"]["containers"]
    assert own["resources"]["limits"] == {**container["resources"]["limits"], "rdma/hca": "1"}
    assert own["resources"]["requests"] == container["resources"]["requests"]
    assert [mount["mountPath"] for mount in own["volumeMounts"]] == ["/tmp", "/data", "/dev/shm"]
    assert {"name": "data", "emptyDir": {}} in spec["volumes"], "a volume has one source"
    assert {"name": "DATA_DIR", "value": "/fast"} in own["env"]
    assert len({one["name"] for one in own["env"]}) == len(own["env"]) == len(container["env"])


def test_limits_of_time_and_labels():
    job = made()
    spec = job["spec"]
    assert (spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"], spec["backoffLimit"]) == (86400, 30, 0)
    assert spec["shutdownAfterJobFinishes"] is True
    assert "activeDeadlineSeconds" not in made({"image": "i"})["spec"]
    labels = job["metadata"]["labels"]
    usual = {"name": "driftline", "component": "study", "managed-by": "driftline", "instance": "team-a"}
    ours = {"driftline.io/study": STUDY, "driftline.io/attempt": "1", "cost-centre": "research"}
    assert labels == {f"app.kubernetes.io/{key}": value for key, value in usual.items()} | ours
    cluster = spec["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert group["template"]["metadata"]["labels"] == labels, "no policy of its own"
    assert job["metadata"]["annotations"]["driftline.io/name"] == "a study"


@pytest.mark.parametrize("study", [STUDY, "Upper", "a.b", "x" * 80, "é"])
@pytest.mark.parametrize("attempt", [1, 999_999])
@pytest.mark.parametrize("again", [0, 99])
def test_names_are_dns_labels_that_kuberay_takes(study, attempt, again):
    name = job_name(study, attempt, again)
    assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name)
    assert len(name) <= LONGEST


def test_names_tell_studies_attempts_and_repeats_apart():
    asked = [(study, attempt, again) for study in (STUDY, "A", "B") for attempt in (1, 2) for again in (0, 1)]
    assert len({job_name(*one) for one in asked}) == len(asked)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "image: must be given"),
        ({"image": ""}, "image: "),
        ({"image": "i", "imagee": 1}, "imagee: unknown key: did you mean image"),
        ({"image": "i", "workers": {"min": 3, "max": 2}}, "workers.max: must be at least min=3, got max=2"),
        ({"image": "i", "workers": {"max": 0}}, "workers.max: must be at least 1"),
        ({"image": "i", "workers": {"gpus": 0.5}}, "workers.gpus: must be a whole number"),
        ({"image": "i", "head": {"memory": "lots"}}, "head.memory: must be a quantity such as 2, 500m or 8Gi"),
        ({"image": "i", "head": {"cpu": 0}}, "head.cpu: must be a quantity above 0"),
        ({"image": "i", "namespace": "Team_A"}, "namespace: must be lower-case letters"),
        ({"image": "i", "image_pull_policy": "Sometimes"}, "image_pull_policy: must be "),
        ({"image": "i", "run_as_user": 0}, "run_as_user: must be at least 1"),
        ({"image": "i", "env": ["A=1"]}, "env: must be a mapping"),
        ({"image": "i", "deadline_seconds": 0}, "deadline_seconds: must be at least 1"),
        ({"image": "i", "projects": {"a": {"namespace": "Team_A"}}}, "projects.a.namespace: must be lower-case"),
        (
            {"image": "i", "head": {"pod_patch": {"metadata": {"labels": {"driftline.io/study": "x"}}}}},
            "head.pod_patch.metadata.labels: must not hold driftline.io/study",
        ),
        (
            {"image": "i", "pools": {"a": {"pod_patch": {"spec": {"containers": [{"name": "ray-head"}]}}}}},
            "pools.a.pod_patch.spec.containers: must name ray-worker, or have an image, got ray-head without one",
        ),
        ({"image": "i", "workers": {"max": 2}, "projects": {"a": {"queue": "q"}}}, "workers: must have min equal"),
    ],
)
def test_wrong_settings_are_named(values, said):
    with pytest.raises(InvalidSpec) as caught:
        Config.from_json(values)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("folder", ["s3://bucket/x", "/shared", "/shared/checkpoints"])
def test_a_folder_that_all_pods_see(folder):
    config(volume_mounts=[{"name": "v", "mountPath": "/shared"}]).check_folder(folder)


@pytest.mark.parametrize("folder", ["/sharedother", "/var/checkpoints"])
def test_a_folder_that_pods_do_not_share_is_refused(folder):
    with pytest.raises(InvalidSpec, match=r"volume_mounts: must hold the folder for checkpoints.*mounted: /shared"):
        config(volume_mounts=[{"name": "v", "mountPath": "/shared"}]).check_folder(folder)
    with pytest.raises(InvalidSpec, match=r"volume_mounts: must hold the folder for checkpoints"):
        config(projects={"a": {"checkpoints": folder}}).check_folder("s3://bucket/x")


BROUGHT = {"images": ["ghcr.io/team/*"], "images_pull_secrets": ["ghcr"], "secrets": ["wandb-*", "driftline-*"]}


def test_what_a_study_brings_reaches_its_workers_alone(schema):
    asked = launch(image="ghcr.io/team/train:1", secrets=("wandb-team",))
    manifests.check(Config.from_json({**FULL, **BROUGHT}), launch(image="ghcr.io/team/a/b:1", gpus=1))
    job = made({**FULL, **BROUGHT}, asked)
    schema.validate(job)
    head, worker = templates(job)
    plain_head, plain_worker = templates(made({**FULL, **BROUGHT}))
    assert head == plain_head
    (container,) = worker["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("ghcr.io/team/train:1", "Always")
    assert worker["imagePullSecrets"] == [{"name": "registry"}, {"name": "ghcr"}]
    secret = {"prefix": "DRIFTLINE_SECRET_", "secretRef": {"name": "wandb-team"}}
    assert container["envFrom"] == [*FULL["env_from"], secret]
    changed = {key for key in container if container[key] != plain_worker["containers"][0][key]}
    assert changed == {"image", "imagePullPolicy", "envFrom"} - {"imagePullPolicy"}  # which is Always here anyway
    assert {key for key in worker if worker[key] != plain_worker[key]} == {"containers", "imagePullSecrets"}


@pytest.mark.parametrize(
    ("brought", "said"),
    [
        ({"image": "ghcr.io/team-of-others/x"}, "program.image: must match what this service allows: ghcr.io/team/*"),
        ({"image": "evil.example/ghcr.io/team/x"}, "program.image: must match"),
        ({"secrets": ("object-store",)}, "program.secrets: must match what this service allows: wandb-*, driftline-*"),
        ({"secrets": (job_name("0" * 26, 3),)}, "program.secrets: must match"),  # the tokens of another study
    ],
)
def test_what_is_not_allowed_is_refused_before_anything_starts(brought, said):
    with pytest.raises(InvalidSpec) as caught:
        manifests.check(config(**BROUGHT), launch(**brought))
    assert str(caught.value).startswith(said)
    with pytest.raises(InvalidSpec, match="allows: none, got"):
        manifests.check(config(), launch(**brought))
