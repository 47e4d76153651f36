"""The Ingress, as the API server has taken it. No ingress controller runs here: the test itself follows the rules."""

import pytest
import urllib3

from tests.kubernetes_cluster.release import CORE, NAMESPACE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:Unverified HTTPS request"),  # the test server's certificate is its own
]

PAGES = (("/", 401), ("/sign-in", 200), ("/studies/none", 401), ("/docs", 200), ("/assets/page.css", 200))


def test_what_the_rules_name_is_there_and_answers(deployed):
    path = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses/driftline"
    rules = {rule["host"]: rule["http"]["paths"] for rule in deployed.rest.get(path)["spec"]["rules"]}
    assert rules.keys() == {"driftline.test", "mlflow.driftline.test"}
    for path, status in (("/v1/studies", 401), ("/healthz", 200), ("/readyz", 200), ("/openapi.json", 200), *PAGES):
        assert ask(deployed, rules, "driftline.test", path) == status, path
    assert ask(deployed, rules, "driftline.test", "/metrics") is None
    assert ask(deployed, rules, "driftline.test", "/v11") is None
    assert ask(deployed, rules, "mlflow.driftline.test", "/health") == 200
    assert ask(deployed, rules, "mlflow.driftline.test", "/") == 401


def ask(deployed, rules, host, path):
    """The status with which the backend of the longest fitting prefix answers; None where no rule fits."""
    fitting = [
        rule
        for rule in rules[host]
        if path == rule["path"] or (rule["pathType"] == "Prefix" and path.startswith(rule["path"].rstrip("/") + "/"))
    ]
    if not fitting:
        return None
    rule = max(fitting, key=lambda one: len(one["path"]))
    backend = rule["backend"]["service"]
    service = deployed.rest.get(f"{CORE}/services/{backend['name']}")["spec"]
    port = next(port["port"] for port in service["ports"] if port["name"] == backend["port"]["name"])
    url = f"http://{service['clusterIP']}:{port}{path}"
    return urllib3.PoolManager(retries=False).request("GET", url, headers={"Host": host}, timeout=20).status
