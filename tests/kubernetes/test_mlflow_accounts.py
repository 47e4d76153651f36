"""MLflow as the chart starts it: who has no account sees nothing, who has one sees what was granted."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import urllib3

from tests.kubernetes.conftest import CHART
from tests.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ADMIN, PERSON = ("driftline", "a long password 1"), ("ada", "a long password 2")
MLFLOW = "/api/2.0/mlflow"


class Server:
    """MLflow behind its passwords."""

    def __init__(self, port, pid, folder):
        self.pid, self.folder = pid, folder
        self._url = f"http://127.0.0.1:{port}"
        self._pool = urllib3.PoolManager(retries=False)

    def ask(self, method, path, login=None, **options):
        """(status, answer) of a request."""
        headers = urllib3.make_headers(basic_auth=":".join(login)) if login else {}
        answer = self._pool.request(method, self._url + path, headers=headers, timeout=150, redirect=False, **options)
        found = answer.json() if "json" in answer.headers.get("Content-Type", "") else answer.data
        return answer.status, found

    def made(self, path, **body):
        """What the administrator's request gave."""
        status, found = self.ask("POST", path, ADMIN, json=body)
        assert status == 200, found
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    port = free_port()
    script = (CHART / "files" / "mlflow" / "start.sh").read_text()
    script, changes = re.subn("--port 5000", f"--port {port}", script)
    assert changes == 1
    script, changes = re.subn("/etc/mlflow/", f"{CHART / 'files' / 'mlflow'}/", script)
    assert changes == 1
    (folder / "artifacts").mkdir()
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "DEFAULT_PERMISSION": "NO_PERMISSIONS",
        "MLFLOW_DATABASE": f"sqlite:///{folder / 'mlflow.db'}",
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "of the tests",
        "MLFLOW_AUTH_ADMIN_USERNAME": ADMIN[0],
        "MLFLOW_AUTH_ADMIN_PASSWORD": ADMIN[1],
        "ARTIFACTS": str(folder / "artifacts"),
        "LISTEN": "127.0.0.1",
        "ALLOWED_HOSTS": f"127.0.0.1:{port}",
        "ALLOWED_ORIGINS": f"http://127.0.0.1:{port}",
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["sh", "-c", script], env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    made = Server(port, process.pid, folder)
    try:
        deadline = time.monotonic() + 480
        while True:
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            try:
                if made.ask("GET", "/health")[0] == 200:
                    break
            except urllib3.exceptions.HTTPError:
                time.sleep(0.5)
        yield made
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def studies(server):
    """Two studies as the recorder keeps them, an experiment with a run and an artifact each: (experiment, run) ids."""
    found = []
    for name in ("mine", "others"):
        experiment = server.made(f"{MLFLOW}/experiments/create", name=name)["experiment_id"]
        run = server.made(f"{MLFLOW}/runs/create", experiment_id=experiment, run_name="trial")["run"]["info"]["run_id"]
        path = f"/api/2.0/mlflow-artifacts/artifacts/{experiment}/{run}/artifacts/frontier.json"
        assert server.ask("PUT", path, ADMIN, body=b"{}")[0] == 200
        found.append((experiment, run))
    server.made(f"{MLFLOW}/users/create", username=PERSON[0], password=PERSON[1])
    return found


def readings(experiment, run):
    """Requests that show something of a study."""
    return [
        ("GET", f"{MLFLOW}/experiments/get?experiment_id={experiment}", {}),
        ("GET", f"{MLFLOW}/runs/get?run_id={run}", {}),
        ("GET", f"{MLFLOW}/artifacts/list?run_id={run}", {}),
        ("GET", f"{MLFLOW}/metrics/get-history?run_id={run}&metric_key=quality", {}),
        ("GET", f"/api/2.0/mlflow-artifacts/artifacts?path={experiment}/{run}/artifacts", {}),
        ("GET", f"/api/2.0/mlflow-artifacts/artifacts/{experiment}/{run}/artifacts/frontier.json", {}),
        ("GET", f"/get-artifact?run_id={run}&path=frontier.json", {}),
        ("POST", f"{MLFLOW}/runs/search", {"json": {"experiment_ids": [experiment]}}),
        ("POST", f"{MLFLOW}/runs/set-tag", {"json": {"run_id": run, "key": "a", "value": "b"}}),
    ]


def shown(answer):
    """Whether an answer shows anything: a status of success that is no empty list."""
    status, found = answer
    return status < 400 and found not in ({}, {"runs": []}, {"experiments": []}, b"")


def test_no_second_process_waits_for_the_server(server):
    process = Path(f"/proc/{server.pid}")
    assert b"uvicorn" in (process / "cmdline").read_bytes()
    children = "".join((task / "children").read_text() for task in process.glob("task/*"))
    assert children == ""


def test_without_an_account_nothing_is_shown(server, studies):
    for method, path, options in [*readings(*studies[0]), ("GET", "/", {}), ("POST", "/graphql", {"json": {}})]:
        assert server.ask(method, path, **options)[0] == 401, path
        assert server.ask(method, path, ("driftline", "wrong"), **options)[0] == 401, path
        assert server.ask(method, path, ADMIN, **options)[0] != 401, path


def test_an_account_sees_what_was_granted_and_nothing_else(server, studies):
    (mine, _), (others, hidden) = studies
    everything = {"json": {"max_results": 100}}
    assert not shown(server.ask("POST", f"{MLFLOW}/experiments/search", PERSON, **everything))
    for method, path, options in [*readings(*studies[0]), *readings(*studies[1])]:
        assert not shown(server.ask(method, path, PERSON, **options)), path

    grant = {"username": PERSON[0], "resource_type": "experiment", "resource_id": mine, "permission": "READ"}
    server.made("/api/3.0/mlflow/users/permissions/grant", **grant)
    found = server.ask("POST", f"{MLFLOW}/experiments/search", PERSON, **everything)[1]["experiments"]
    assert [one["experiment_id"] for one in found] == [mine]
    *reading, tag = readings(*studies[0])
    for method, path, options in reading:
        assert server.ask(method, path, PERSON, **options)[0] == 200, path
    assert server.ask(tag[0], tag[1], PERSON, **tag[2])[0] == 403
    for method, path, options in readings(others, hidden):
        assert not shown(server.ask(method, path, PERSON, **options)), path


def test_a_query_language_shows_no_more(server, studies):
    _, (others, hidden) = studies
    query = "query Q($data: MlflowGetRunInput!) { mlflowGetRun(input: $data) { run { info { runId } } } }"
    body = {"operationName": "Q", "query": query, "variables": {"data": {"runId": hidden}}}
    seen = server.ask("POST", "/graphql", ADMIN, json=body)
    assert hidden in str(seen), seen
    assert hidden not in str(server.ask("POST", "/graphql", PERSON, json=body))
    query = "query Q($data: MlflowSearchRunsInput!) { mlflowSearchRuns(input: $data) { runs { info { runId } } } }"
    body = {"operationName": "Q", "query": query, "variables": {"data": {"experimentIds": [others]}}}
    assert hidden in str(server.ask("POST", "/graphql", ADMIN, json=body))
    assert hidden not in str(server.ask("POST", "/graphql", PERSON, json=body))


def test_an_account_changes_nothing_and_reads_no_file_of_the_server(server, studies):
    (mine, run), _ = studies
    grant = {"username": PERSON[0], "resource_type": "experiment", "resource_id": mine, "permission": "MANAGE"}
    server.ask("POST", "/api/3.0/mlflow/users/permissions/grant", ADMIN, json=grant)
    writes = [
        ("POST", f"{MLFLOW}/experiments/create", {"name": "a", "artifact_location": "file:///proc/self"}),
        ("POST", f"{MLFLOW}/experiments/create", {"name": "b", "artifact_location": f"mlflow-artifacts:/{mine}"}),
        ("POST", f"{MLFLOW}/experiments/delete", {"experiment_id": mine}),
        ("POST", f"{MLFLOW}/runs/create", {"experiment_id": mine}),
        ("POST", f"{MLFLOW}/runs/set-tag", {"run_id": run, "key": "a", "value": "b"}),
        ("POST", f"{MLFLOW}/registered-models/create", {"name": "a"}),
        ("POST", f"{MLFLOW}/webhooks", {"name": "a", "url": "http://127.0.0.1", "events": []}),
        ("PUT", f"/api/2.0/mlflow-artifacts/artifacts/{mine}/{run}/artifacts/a", {}),
        ("POST", f"{MLFLOW}/users/create", {"username": "eve", "password": "a long password 3"}),
        ("GET", "/ajax-api/2.0/mlflow/gateway-proxy?gateway_path=x", None),
    ]
    for method, path, body in writes:
        assert server.ask(method, path, PERSON, json=body)[0] == 403, path
        assert server.ask(method, path, json=body)[0] == 401, path
        assert server.ask(method, path, (ADMIN[0], "wrong"), json=body)[0] in (401, 403), path
    body = {"username": PERSON[0], "password": "a long password 4", "current_password": PERSON[1]}
    assert server.ask("PATCH", f"{MLFLOW}/users/update-password", PERSON, json=body)[0] == 200


def test_not_even_an_administrator_reads_files_of_the_server(server):
    for name, place in (("environment", "file:///proc/self"), ("accounts", server.folder.as_uri())):
        made = server.made(f"{MLFLOW}/experiments/create", name=name, artifact_location=place)["experiment_id"]
        run = server.made(f"{MLFLOW}/runs/create", experiment_id=made)["run"]["info"]["run_id"]
        beside = server.folder / run
        beside.mkdir()
        (beside / "artifacts").symlink_to(server.folder)
        for path in ("auth.ini", "environ", "../../environ"):
            status, found = server.ask("GET", f"/get-artifact?run_id={run}&path={path}", ADMIN)
            assert status >= 400
            assert "database_uri" not in str(found)
