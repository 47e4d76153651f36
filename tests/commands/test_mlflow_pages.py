"""MLflow as `driftline ui` and `serve --mlflow-port` start it: for who has the token, for reading, own files only."""

import json
import time
import warnings
from http.client import HTTPConnection

import pytest

from service.cli.ui import end_server, link_with, start_server
from service.recorder.mlflow_pages import reads
from service.recorder.tracking import connect
from tests.ports import free_port
from tests.strangers import as_nobody

TOKEN = "the token of this start"
SECRET = b"the admin token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
SEARCHES = {
    "_graphql",
    "_query_trace_metrics",
    "_search_evaluation_datasets_handler",
    "_search_experiments",
    "_search_logged_models",
    "_search_runs",
    "_search_traces_v3",
    "serve_search_datasets",
}


def routes():
    """(methods, path, endpoint) of all routes of MLflow's app."""
    with warnings.catch_warnings(action="ignore"):
        from mlflow.server import app as flask
        from mlflow.server.fastapi_app import app

    found = []
    for rule in flask.url_map.iter_rules():
        _, path = rule.build(dict.fromkeys(rule.arguments, "x"), append_unknown=False)
        found += [(method, path, rule.endpoint) for method in rule.methods - {"OPTIONS"}]
    waiting = list(app.routes)
    while waiting:
        route = waiting.pop()
        waiting += getattr(getattr(route, "original_router", None), "routes", [])
        if getattr(route, "methods", None):
            path = route.path.replace("{", "").replace("}", "").replace(":path", "")
            found += [(method, path, route.name) for method in route.methods]
    return [route for route in found if route[1]]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A service's home: a token, MLflow's database and artifacts, and runs that try to show the token."""
    home = tmp_path_factory.mktemp("service")
    (home / "admin-token").write_bytes(SECRET)
    root = home / "mlartifacts"
    runs = {}
    client = connect(f"sqlite:///{home / 'mlflow.db'}")
    locations = {"own": f"{root}/own", "home": home.as_uri(), "around": f"{root}/own/../..", "linked": f"{root}/linked"}
    for name, location in locations.items():
        experiment = client.create_experiment(name, artifact_location=location)
        runs[name] = client.create_run(experiment)
    kept = root / "own" / runs["own"].info.run_id / "artifacts"
    kept.mkdir(parents=True)
    (kept / "frontier.json").write_text("{}")
    (kept / "link").symlink_to(home / "admin-token")
    (kept / "folder").symlink_to(home)
    (home / "aside").mkdir()
    (root / "linked").symlink_to(home / "aside")
    for name in ("home", "around", "linked"):
        beside = home if name != "linked" else home / "aside"
        (beside / runs[name].info.run_id).mkdir()
        (beside / runs[name].info.run_id / "artifacts").symlink_to(home)
    return home, {name: run.info.run_id for name, run in runs.items()}


@pytest.fixture(scope="module")
def port(home):
    port = free_port()
    server = start_server(f"sqlite:///{home[0] / 'mlflow.db'}", [(home[0] / "mlartifacts").as_uri()], port, TOKEN)
    try:
        end = time.monotonic() + 150
        while True:
            assert server.poll() is None
            try:
                if ask(port, "GET", "/health", BEARER)[0] == 200:
                    break
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.3)
        yield port
    finally:
        end_server(server)


def ask(port, method, path, headers=(), body=None):
    """(status, headers, body) of a request."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        sent = None if body is None else json.dumps(body)
        connection.request(method, path, sent, {"Content-Type": "application/json", **dict(headers)})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_without_the_token_every_route_is_refused(port):
    guesses = ({}, {"Authorization": "Bearer x"}, {"Cookie": f"driftline-mlflow-{port}="}, {"Authorization": "Bearer "})
    asked = [(method, path, guess) for method, path, _ in routes() for guess in guesses[: 1 if path != "/" else 4]]
    assert len(asked) > 300
    seen = as_nobody(lambda: {(ask(port, method, path, guess)[0], method, path) for method, path, guess in asked})
    assert {one for one in seen if one[0] != 401} == set()
    assert as_nobody(lambda: ask(port, "GET", "/?token=x")[0]) == 401


def test_with_the_token_nothing_can_be_changed(port, home):
    passed = {(method, path, name) for method, path, name in routes() if reads({"method": method, "path": path})}
    assert {name for method, _, name in passed if method not in ("GET", "HEAD")} <= SEARCHES
    refused = {(method, path) for method, path, _ in routes()} - {one[:2] for one in passed}
    status = {(method, path): ask(port, method, path, BEARER, {})[0] for method, path in refused}
    assert {one for one, answer in status.items() if answer != 403} == set()
    tag = {"run_id": home[1]["own"], "key": "a", "value": "b"}
    for path in ("/api/2.0/mlflow", "//api/2.0/mlflow", "/api/2.0/mlflow/../mlflow", "/API/2.0/mlflow"):
        assert ask(port, "POST", f"{path}/runs/set-tag", BEARER, tag)[0] == 403


def test_the_link_sets_a_cookie_that_reads(port):
    link = link_with(TOKEN.replace(" ", "%20"), f"http://127.0.0.1:{port}/#/experiments/1")
    status, headers, _ = ask(port, "GET", link.partition(str(port))[2].partition("#")[0])
    assert (status, headers["location"]) == (303, "/")  # browsers keep what is behind the #
    cookie, *settings = headers["set-cookie"].split("; ")
    assert set(settings) == {"Path=/", "HttpOnly", "SameSite=Lax"}
    assert ask(port, "GET", "/", {"Cookie": f"theme=dark; {cookie}"})[0] == 200
    body = {"max_results": 10}
    found = ask(port, "POST", "/ajax-api/2.0/mlflow/experiments/search", {"Cookie": cookie}, body)
    assert {one["name"] for one in json.loads(found[2])["experiments"]} >= {"own", "home"}


@pytest.mark.parametrize(
    ("run", "path"),
    [
        ("own", "link"),
        ("own", "folder/admin-token"),
        ("home", "admin-token"),
        ("around", "admin-token"),
        ("linked", "admin-token"),
        ("own", "../../../../admin-token"),
        ("own", "%2Fetc%2Fpasswd"),
    ],
)
def test_only_own_artifacts_are_served(port, home, run, path):
    assert ask(port, "GET", f"/get-artifact?run_id={home[1]['own']}&path=frontier.json", BEARER)[::2] == (200, b"{}")
    status, _, body = ask(port, "GET", f"/get-artifact?run_id={home[1][run]}&path={path}", BEARER)
    assert status >= 400
    assert SECRET not in body
    parent = path.rpartition("/")[0]
    listed = ask(port, "GET", f"/api/2.0/mlflow/artifacts/list?run_id={home[1][run]}&path={parent or '.'}", BEARER)[2]
    assert b"admin-token" not in listed.replace(parent.encode() or b"\0", b"")
    assert b'"link"' not in listed
