"""What an uninstall, a change of values and a second rendering leave as it is, and how running studies end."""

import json
import subprocess
import sys
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.web_server import QuietHandler, port_of

from .conftest import CHART, LOADER
from .matrix import MATRIX

SCRIPT = CHART / "files" / "uninstall" / "end_studies.py"
KEEP = {"helm.sh/resource-policy": "keep"}
GIVEN = {"auth": {"existingSecret": "a"}, "postgresql": {"existingSecret": "p"}, "mlflow": {"existingSecret": "m"}}


def kept(objects):
    return {key for key, item in objects.items() if item["metadata"].get("annotations") == KEEP}


def test_volumes_and_the_secrets_that_belong_to_them_are_kept(helm):
    data = {"data": {"enabled": True}, "studies": {"namespace": "ns"}}
    claims = {f"r-driftline-{name}" for name in ("checkpoints", "data", "mlflow-artifacts", "postgresql")}
    expected = {("PersistentVolumeClaim", name) for name in claims} | {("Secret", "r-driftline")}
    assert kept(helm.objects(data)) == expected
    assert kept(helm.objects({**data, "persistence": {"keep": False}})) == set()


def test_two_renderings_are_equal_where_nothing_is_generated(helm):
    values = {**GIVEN, "generateSecrets": False}
    one, two = (helm.template(values).stdout for _ in range(2))
    assert one == two
    assert not [item for item in yaml.load_all(one, LOADER) if item and item["kind"] == "Secret"]


def test_what_would_be_generated_is_refused_by_name(helm):
    done = helm.template({"auth": GIVEN["auth"], "generateSecrets": False}, ok=False)
    assert "generateSecrets: false needs mlflow.existingSecret, postgresql.existingSecret" in done.stderr
    helm.template({**MATRIX["external"], "generateSecrets": False})


def test_an_upgrade_sets_no_new_password_for_a_database_that_has_one(helm):
    done = helm.template({}, "--is-upgrade", ok=False)
    assert "Secret r-driftline must hold postgres-password, which PostgreSQL was set up with" in done.stderr
    helm.template({"postgresql": GIVEN["postgresql"]}, "--is-upgrade")


def test_an_uninstall_has_rights_only_while_it_runs(rendered):
    objects = rendered["external"]
    own = {key: item for key, item in objects.items() if "-uninstall" in key[1]}
    assert {kind for kind, _ in own} == {"ServiceAccount", "ConfigMap", "Role", "RoleBinding", "Job"}
    for item in own.values():
        annotations = item["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "post-delete"
        assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded,hook-failed"
    assert (
        own["Job", "r-driftline-uninstall"]["spec"]["template"]["spec"]["serviceAccountName"] == "r-driftline-uninstall"
    )
    for without in ("small", "their-accounts"):
        assert not [name for _, name in rendered[without] if name.endswith("uninstall")]


@pytest.fixture
def cluster():
    """A Kubernetes API with a scheduler that is on its way out, and RayJobs that need a moment to go."""

    class Handler(QuietHandler):
        def answer(self, body, status=200):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def do_GET(self):
            url = urlsplit(self.path)
            kind = url.path.rpartition("/")[2]
            state["selectors"][kind] = parse_qs(url.query)["labelSelector"][0]
            state["asked"].append(kind)
            left = state[kind] if "/namespaces/further/" not in url.path else state["further"]
            if kind == "pods" and state["asked"].count("pods") >= 2:
                state["pods"] = []
            self.answer({"items": [{"metadata": {"name": name}} for name in left or ()]}, 404 if left is None else 200)

        def do_DELETE(self):
            kind, name = self.path.split("/")[-2:]
            state["deleted"].append((name, list(state["pods"])))
            if kind == "rayjobs" and state["finalizers"]:
                state["further" if "/namespaces/further/" in self.path else "rayjobs"].remove(name)
            self.answer({}, 200 if kind == "rayjobs" else 404)

    state = {"pods": ["scheduler-0"], "rayjobs": ["one", "two"], "selectors": {}, "asked": [], "deleted": []}
    state |= {"finalizers": True, "further": []}
    with port_of(Handler) as port:
        state["url"] = f"http://127.0.0.1:{port}"
        yield state


def end(cluster, **more):
    environment = {"KUBERNETES_API": cluster["url"], "NAMESPACE": "home", "STUDIES_NAMESPACES": "away"}
    environment |= {"SCHEDULERS": "a=b", "RAYJOBS": "c=d", "TEST_POD": "r-test", **more}
    return subprocess.run([sys.executable, SCRIPT], env=environment, capture_output=True, text=True, check=False)


def test_studies_end_once_no_scheduler_starts_them_again(cluster):
    done = end(cluster)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["deleted one", "deleted two"]
    assert cluster["deleted"] == [("one", []), ("two", []), ("r-test", [])], "no scheduler was left"
    assert cluster["selectors"] == {"pods": "a=b", "rayjobs": "c=d"}


def test_studies_of_all_namespaces_end(cluster):
    cluster["further"] = ["one", "three"]
    done = end(cluster, STUDIES_NAMESPACES="away,further")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["deleted one", "deleted two", "deleted one", "deleted three"]
    assert (cluster["rayjobs"], cluster["further"]) == ([], [])


def test_a_cluster_without_rayjobs_has_nothing_to_end(cluster):
    cluster["rayjobs"] = None
    assert end(cluster).returncode == 0


def test_what_kuberay_does_not_remove_is_named(cluster):
    cluster["finalizers"] = False
    done = end(cluster, TIMEOUT_S="1")
    assert done.returncode == 1
    assert done.stderr == "still there: one, two\n"
