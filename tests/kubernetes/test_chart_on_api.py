"""The chart on a real Kubernetes API: install, upgrade with data, rollback, uninstall.

Containers do not run here: pods are reported as ready, but the migration's command runs against a real PostgreSQL.
"""

import base64
import json
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from service.store import database
from service.store.store import Store
from tests.postgresql import postgresql_server
from tests.service.conftest import SPEC
from tests.waiting import until

from .conftest import CHART, KINDS
from .foreign import KINDS as FOREIGN
from .foreign import crd
from .matrix import MATRIX
from .standing_node import StandingNode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CHARTS = Path(__file__).parent / "charts"


@pytest.fixture
def database_url():
    with postgresql_server() as server:
        server.psql("CREATE DATABASE chart")
        yield str(server.get_uri("chart"))


def values(folder: Path, **more) -> str:
    path = folder / f"values-{len(list(folder.iterdir()))}.yaml"
    path.write_text(yaml.safe_dump(more))
    return str(path)


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
        until(lambda path=path: plane.send("GET", path, ok=(200, 404))[0] == 200)
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
        at = ("--as", who, "--namespace", f"{namespace}-r-driftline-studies")
        found = kubectl("auth", "can-i", right, "workloads.kueue.x-k8s.io", *at, ok=False)
        assert found.splitlines()[-1] == answer, right
    cluster_helm("uninstall", "r", *where, "--no-hooks")
    kinds = [f"{plural}.{group}" for group, _, plural, _ in FOREIGN.values()]
    assert kubectl("get", ",".join(kinds), *where, "-o", "name") == ""


def names(url: str) -> set[tuple[str, str]]:
    """Ids and names of all studies, whatever the revision."""
    opened = database.Database(url, upgraded=False)
    with opened.read() as connection:
        found = {(row.id, row.name) for row in connection.exec_driver_sql("SELECT id, name FROM studies")}
    opened.close()
    return found


def test_install_upgrade_rollback_uninstall(plane, cluster_helm, kubectl, database_url, tmp_path):
    version = "0.5.0"
    namespace = plane.namespace()
    where = ("--namespace", namespace)
    before = kubectl("get", KINDS, *where, "-o", "name")
    own = kubectl("create", "secret", "generic", "database", f"--from-literal=url={database_url}", *where)
    assert "created" in own
    no_files = {"persistence": {"enabled": False}}
    settings = values(
        tmp_path,
        postgresql={"enabled": False},
        database={"existingSecret": "database", "existingSecretKey": "url"},
        mlflow={"database": {"url": "postgresql://u:p@elsewhere/mlflow"}, "artifacts": no_files},
        checkpoints={"volume": {"source": {"emptyDir": {}}}},
        studies={"namespace": namespace},
    )

    def secret() -> dict:
        return yaml.safe_load(kubectl("get", "secret", "r-driftline", *where, "-o", "yaml"))["data"]

    command = {"driftline": [sys.executable, "-m", "service.cli"]}
    with StandingNode(plane, command) as node:
        previous = str(CHARTS / f"driftline-{version}.tgz")
        cluster_helm("install", "r", previous, *where, "-f", settings, "--wait", "--timeout", "120s")
        assert [(what, code) for what, code, _ in node.ran] == [("driftline migrate", 0)]
        made = secret()
        assert len(base64.b64decode(made["secret"])) == 48

        with closing(Store(database_url)) as store:
            for _ in range(3):
                store.studies.create(SPEC, "f" * 64)
        kept = names(database_url)
        assert len(kept) == 3

        more = ("--set", "api.replicaCount=3", "--wait", "--timeout", "120s")
        cluster_helm("upgrade", "r", str(CHART), *where, "-f", settings, *more)
        assert [code for _, code, _ in node.ran] == [0, 0], node.ran
        assert secret() == made, "what was generated must be kept"
        opened = database.Database(database_url, upgraded=False)
        assert database.differences(opened) == []
        opened.close()
        assert names(database_url) == kept
        assert kubectl("get", "deploy", "r-driftline-api", *where, "-o", "jsonpath={.status.readyReplicas}") == "3"

        cluster_helm("rollback", "r", "1", *where, "--wait", "--timeout", "120s")
        assert kubectl("get", "deploy", "r-driftline-api", *where, "-o", "jsonpath={.status.readyReplicas}") == "2"
        assert secret() == made
        assert f"driftline-{version}" in cluster_helm("list", *where, "-o", "json").stdout

        def left():
            found = set(kubectl("get", KINDS, *where, "-o", "name").split())
            return found - set(before.split()) - {"secret/database", "configmap/kube-root-ca.crt"}

        cluster_helm("uninstall", "r", *where, "--wait", "--timeout", "120s")
        # Helm does not wait for pods; somebody must be there to let them end.
        until(lambda: not any(not name.startswith("secret/default-token") for name in left()))


def test_an_upgrade_may_bring_another_database_an_account_and_classes(
    plane, cluster_helm, kubectl, database_url, tmp_path
):
    """The migration runs before any of them is made."""
    namespace = plane.namespace()
    where = ("--namespace", namespace)
    always = {
        "mlflow": {"enabled": False},
        "checkpoints": {"url": "s3://bucket/x"},
        "studies": {"namespace": namespace},
    }
    first = values(tmp_path, api={"serviceAccount": {"create": False}}, data={"enabled": True}, **always)
    cluster_helm("install", "r", str(CHART), *where, "-f", first, "--no-hooks")
    claims = ("get", "persistentvolumeclaims", *where, "-o", "name")
    data, postgresql = [f"persistentvolumeclaim/r-driftline-{name}" for name in ("data", "postgresql")]
    assert kubectl(*claims).split() == [data, postgresql]

    def secret():
        return yaml.safe_load(kubectl("get", "secret", "r-driftline", *where, "-o", "yaml"))["data"]

    made = secret()
    theirs = {"postgresql": {"enabled": False}, "database": {"url": database_url}}
    later = values(tmp_path, priorityClasses={"create": True}, **theirs, **always)
    with StandingNode(plane, {"driftline": [sys.executable, "-m", "service.cli"]}) as node:
        cluster_helm("upgrade", "r", str(CHART), *where, "-f", later, "--wait", "--timeout", "120s")
        assert [(what, code) for what, code, _ in node.ran] == [("driftline migrate", 0)], node.ran
    opened = database.Database(database_url, upgraded=False)
    assert database.differences(opened) == []
    opened.close()
    assert "secret/r-driftline-migration" not in kubectl("get", "secrets", *where, "-o", "name").split()
    of_pods = "jsonpath={.spec.template.spec.priorityClassName} {.spec.template.spec.serviceAccountName}"
    assert kubectl("get", "deployment", "r-driftline-api", *where, "-o", of_pods) == (
        f"{namespace}.r-driftline-service r-driftline-service"
    )
    assert kubectl(*claims).split() == [data, postgresql], "which both are no longer the chart's"

    shown = cluster_helm("upgrade", "r", str(CHART), *where, "-f", later, "--dry-run=server").stdout
    hooks = yaml.safe_load_all(shown[shown.index("HOOKS:") + 7 : shown.index("\nMANIFEST:")])
    (job,) = [item for item in hooks if item and item["metadata"]["name"] == "r-driftline-migration" and "spec" in item]
    spec = job["spec"]["template"]["spec"]
    assert spec["priorityClassName"] == f"{namespace}.r-driftline-service", "now it is there"
    assert spec["serviceAccountName"] == "r-driftline-service"
    cluster_helm("uninstall", "r", *where, "--no-hooks")
    assert not kubectl("get", "priorityclass", f"{namespace}.r-driftline-service", "--ignore-not-found", "-o", "name")

    cluster_helm("install", "r", str(CHART), *where, "-f", first, "--no-hooks")
    assert secret()["admin-token"] == made["admin-token"], "what an uninstall keeps is used again"
    assert kubectl(*claims).split() == [data, postgresql]
    cluster_helm("upgrade", "r", str(CHART), *where, "-f", first, "--no-hooks", "--set", "persistence.keep=false")
    cluster_helm("uninstall", "r", *where, "--no-hooks")
    until(lambda: not kubectl(*claims))
    assert "secret/r-driftline" not in kubectl("get", "secrets", *where, "-o", "name").split()


def test_studies_are_not_left_behind_in_a_namespace_that_nobody_looks_at(plane, cluster_helm, kubectl, tmp_path):
    """Until 0.6.0 they were in the release's namespace by default."""
    namespace, further = plane.namespace(), plane.namespace()
    where = ("--namespace", namespace)
    database = {"postgresql": {"enabled": False}, "database": {"existingSecret": "database"}}
    always = ("-f", values(tmp_path, mlflow={"enabled": False}, **database), "--no-hooks")
    cluster_helm("install", "r", str(CHARTS / "driftline-0.5.0.tgz"), *where, *always)

    def upgrade(*settings, ok=True):
        options = [word for setting in settings for word in ("--set", setting)]
        return cluster_helm("upgrade", "r", str(CHART), *where, *always, *options, ok=ok).stderr

    said = upgrade(ok=False)
    assert f"keep them there with studies.namespace={namespace}, or move them" in said
    assert said.strip().endswith(f"with studies.namespace={namespace}-r-driftline-studies")
    upgrade(f"studies.namespace={namespace}", f"studies.projects.a.namespace={further}")
    for left, kept in ((further, namespace), (namespace, further)):
        for name, instance in (("ours", "r-driftline"), ("theirs", "another")):
            labels = {"app.kubernetes.io/managed-by": "driftline", "app.kubernetes.io/instance": instance}
            job = {
                "apiVersion": "ray.io/v1",
                "kind": "RayJob",
                "metadata": {"name": name, "labels": labels},
                "spec": {},
            }
            plane.send("POST", f"/apis/ray.io/v1/namespaces/{left}/rayjobs", job)
        said = upgrade(f"studies.namespace={kept}", ok=False)
        assert f"a study runs in the namespace {left}, which these values leave: pause the studies there first" in said
        plane.status(left, "ours", jobDeploymentStatus="Complete")
        upgrade(f"studies.namespace={kept}")
    cluster_helm("uninstall", "r", *where, "--no-hooks")


def test_a_database_of_an_older_chart_keeps_its_policy_until_its_statefulset_is_given_up(plane, cluster_helm, kubectl):
    """As UPGRADING.md says: the field cannot be changed."""
    namespace = plane.namespace()
    where = ("--namespace", namespace)
    name = "statefulset/r-driftline-postgresql"
    policy = ("get", name, *where, "-o", "jsonpath={.spec.podManagementPolicy}")
    give_up = ("delete", name, *where, "--cascade=orphan")
    chart = ("upgrade", "r", str(CHART), *where, "--no-hooks", "--set", f"studies.namespace={namespace}")
    cluster_helm("install", "r", *chart[2:])
    made = json.loads(kubectl("get", name, *where, "-o", "json"))
    made["spec"]["podManagementPolicy"] = "OrderedReady"  # as 0.6.0 made it
    about = {key: made["metadata"][key] for key in ("name", "labels", "annotations")}
    kubectl(*give_up)
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets?fieldManager=helm"
    plane.send("POST", path, {"metadata": about, "spec": made["spec"]}, ok=(201,))
    assert cluster_helm(*chart).stdout.count("delete statefulset r-driftline-postgresql --cascade=orphan") == 1
    assert kubectl(*policy) == "OrderedReady"
    kubectl(*give_up)
    assert "--cascade=orphan" not in cluster_helm(*chart).stdout
    assert kubectl(*policy) == "Parallel"
    assert "--cascade=orphan" not in cluster_helm(*chart).stdout
    back = ("rollback", "r", "2", *where, "--no-hooks")
    assert "updates to statefulset spec" in cluster_helm(*back, ok=False).stderr
    kubectl(*give_up)
    cluster_helm(*back)
    assert kubectl(*policy) == "OrderedReady"
    cluster_helm("uninstall", "r", *where, "--no-hooks")


def test_the_namespace_of_studies_may_be_there_before_and_outlives_the_release(plane, cluster_helm, kubectl):
    home = plane.namespace()
    where = ("--namespace", home)
    studies = f"{home}-r-driftline-studies"
    labels = ("get", "namespace", studies, "-o", "jsonpath={.metadata.labels}")
    kubectl("create", "namespace", studies)  # with Secrets for images, say
    cluster_helm("install", "r", str(CHART), *where, "--no-hooks")
    assert "app.kubernetes.io/instance" not in kubectl(*labels), "it stays theirs"
    cluster_helm("uninstall", "r", *where, "--no-hooks")
    assert kubectl("get", "persistentvolumeclaims", "--namespace", studies, "-o", "name").endswith("checkpoints")
    kubectl("delete", "namespace", studies)
    for _ in range(2):  # the second install takes it up again
        cluster_helm("install", "r", str(CHART), *where, "--no-hooks")
        assert '"app.kubernetes.io/instance":"r"' in kubectl(*labels)
        cluster_helm("upgrade", "r", str(CHART), *where, "--no-hooks")
        cluster_helm("uninstall", "r", *where, "--no-hooks")
        assert '"app.kubernetes.io/instance":"r"' in kubectl(*labels), "it holds checkpoints"
