"""What the chart has to do with what lies outside of it: Gateways, Prometheus, an identity provider, proxies, Kueue."""

import json
import re

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from service.api.auth.code_flow import CALLBACK
from service.api.auth.oidc import OidcConfig as Oidc
from service.api.metrics import Metrics
from service.store.session import Actor
from service.store.store import Store
from service.web.pages import ROUTERS
from tests.service.conftest import SPEC

from .chart_readme import CHART
from .conftest import LOADER, launcher_of
from .matrix import MATRIX

CA = "/etc/driftline-ca/bundle.pem"
FROM = {"secretKeyRef": {"name": "my-b", "key": "b"}}


@pytest.fixture(scope="module")
def objects(rendered):
    return rendered["watched"]


def containers(objects):
    """Every container of the chart's own pods, by component and name, with its environment."""
    for (kind, _), item in objects.items():
        pod = item if kind == "Pod" else item.get("spec", {}).get("template")
        if pod and kind != "PrometheusRule":
            component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
            for container in [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]:
                env = {one["name"]: one.get("value", one.get("valueFrom")) for one in container.get("env", [])}
                yield component, container["name"], env, container


# ---- Gateway API


def test_a_route_shows_the_api_and_no_metrics_and_lets_events_stream(objects):
    route = objects["HTTPRoute", "r-driftline"]["spec"]
    assert route["parentRefs"] == [{"name": "shared", "namespace": "gateways", "sectionName": "https"}]
    assert route["hostnames"] == ["tuning.example.org", "*.tuning.example.org"]
    paths = {match["path"]["value"]: rule for rule in route["rules"] for match in rule["matches"]}
    pages = {"/", "/studies", "/sign-in", "/sign-out", "/docs", "/assets"}
    assert set(paths) == {"/v1", "/healthz", "/readyz", "/openapi.json"} | pages
    kinds = {match["path"]["value"]: match["path"]["type"] for rule in route["rules"] for match in rule["matches"]}
    assert {path for path, kind in kinds.items() if kind == "PathPrefix"} == {"/v1", "/studies", "/sign-in", "/assets"}
    assert paths["/v1"]["timeouts"] == {"request": "0s", "backendRequest": "0s"}
    service = objects["Service", "r-driftline-api"]["spec"]["ports"][0]["port"]
    assert {one["port"] for rule in route["rules"] for one in rule["backendRefs"]} == {service}


def test_every_page_is_reached_through_gateway_and_ingress(helm, objects):
    """The issuer sends people back to /sign-in/issuer/done."""
    rules = objects["HTTPRoute", "r-driftline"]["spec"]["rules"]
    gateway = [(match["path"]["value"], match["path"]["type"]) for rule in rules for match in rule["matches"]]
    hosts = helm.objects({"ingress": {"enabled": True, "hosts": [{"host": "a.example.org"}]}})
    (rule,) = hosts["Ingress", "r-driftline"]["spec"]["rules"]
    ingress = [(path["path"], path["pathType"]) for path in rule["http"]["paths"]]
    pages = {route.path for router in ROUTERS for route in router.routes}
    assert {"/", CALLBACK} <= pages
    for page in pages:
        for shown in (gateway, ingress):
            assert any(page == path or (kind != "Exact" and page.startswith(f"{path}/")) for path, kind in shown), page


def test_mlflow_has_a_route_of_its_own_and_answers_to_its_name(objects):
    route = objects["HTTPRoute", "r-driftline-mlflow"]["spec"]
    assert route["hostnames"] == ["mlflow.example.org"]
    assert route["rules"][0]["backendRefs"] == [{"name": "r-driftline-mlflow", "port": 5000}]
    env = next(env for _, name, env, _ in containers(objects) if name == "mlflow")
    assert "mlflow.example.org" in env["ALLOWED_HOSTS"].split(",")
    assert env["ALLOWED_ORIGINS"] == "https://mlflow.example.org"


def test_without_host_names_mlflow_stays_inside_and_without_a_timeout_the_gateway_decides(helm):
    gateway = {"enabled": True, "parentRefs": [{"name": "g"}], "hostnames": ["a.example.org"], "timeout": ""}
    found = helm.objects({"gateway": gateway})
    assert [name for kind, name in found if kind == "HTTPRoute"] == ["r-driftline"]
    assert all("timeouts" not in rule for rule in found["HTTPRoute", "r-driftline"]["spec"]["rules"])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"gateway": {"enabled": True, "parentRefs": [{"name": "g"}], "hostnames": ["a.example.org"]}},
            "gateway.enabled needs the Gateway API (gateway.networking.k8s.io/v1), which this cluster does not know",
        ),
        ({"metrics": {"serviceMonitor": {"enabled": True}}}, "metrics.serviceMonitor.enabled needs the Prometheus"),
        ({"metrics": {"rules": {"enabled": True}}}, "metrics.rules.enabled needs the Prometheus operator"),
    ],
)
def test_a_cluster_that_does_not_know_the_kind_is_told_so(helm, values, said):
    done = helm.template(values, ok=False, apis=())
    assert done.returncode != 0
    assert said in done.stderr
    assert "--api-versions" in done.stderr


# ---- Prometheus


def test_the_monitor_finds_the_services_and_their_ports(objects):
    monitor = objects["ServiceMonitor", "r-driftline"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    spec = monitor["spec"]
    assert spec["endpoints"] == [{"port": "http", "path": "/metrics", "interval": "1m", "scrapeTimeout": "10s"}]
    (among,) = spec["selector"]["matchExpressions"]
    found = {
        name
        for (kind, name), item in objects.items()
        if kind == "Service"
        and spec["selector"]["matchLabels"].items() <= item["metadata"]["labels"].items()
        and item["metadata"]["labels"][among["key"]] in among["values"]
        and any(port["name"] == "http" for port in item["spec"]["ports"])
    }
    assert found == {"r-driftline-api", "r-driftline-scheduler"}
    assert spec["namespaceSelector"] == {"matchNames": ["ns"]}


def test_prometheus_is_let_in_and_nobody_else_for_it(helm, objects):
    prometheus = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}}

    def admitted(found, part):
        return found["NetworkPolicy", f"r-driftline-{part}"]["spec"]["ingress"][0].get("from")

    assert prometheus in admitted(objects, "api")
    assert admitted(objects, "scheduler") == [prometheus]
    named = {"metrics": MATRIX["watched"]["metrics"], "networkPolicy": {"metrics": [{"podSelector": {}}]}}
    assert admitted(helm.objects(named), "scheduler") == [{"podSelector": {}}]
    clients = helm.objects({"networkPolicy": {"clients": [{"podSelector": {"matchLabels": {"a": "b"}}}]}})
    assert len(admitted(clients, "api")) == 3, "without a monitor only ours and the clients"


def test_alerts_use_existing_metrics(objects, tmp_path):
    class Looks:
        looks, looked_at, acting = 1, 1.0, True

    store = Store(tmp_path / "s.db")
    study = store.studies.create(SPEC, "f" * 64, actor=Actor("t", "ann")).id
    store.leases.acquire(study, "host/1")
    metrics = Metrics(store)
    metrics.watch(Looks())
    metrics.requests.labels("GET", "/v1/studies", "200").inc()
    samples = {
        (sample.name, tuple(sorted(sample.labels)))
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }
    states = {
        sample.labels["state"]
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if sample.name == "driftline_driver_leases"
    }
    store.close()
    rules = [rule for group in objects["PrometheusRule", "r-driftline"]["spec"]["groups"] for rule in group["rules"]]
    assert len(rules) == 6
    for rule in rules:
        asked = re.findall(r"(driftline_\w+)\{([^}]*)\}", rule["expr"])
        assert asked, rule["alert"]
        for name, selector in asked:
            labels = dict(re.findall(r'(\w+)=~?"([^"]*)"', selector))
            assert (labels.pop("namespace"), labels.pop("job")) == ("ns", "r-driftline-(api|scheduler)")
            assert any(known == name and set(labels) <= set(keys) for known, keys in samples), (rule["alert"], name)
            assert labels.get("state", "expired") in states
        assert rule["annotations"]["summary"]
        assert rule["expr"].count("(") == rule["expr"].count(")")


# ---- identity provider


def test_oidc_reaches_the_api_and_nobody_else(objects):
    text = objects["ConfigMap", "r-driftline"]["data"]["oidc.yaml"]
    read = Oidc.from_json(yaml.load(text, LOADER))
    assert (read.issuer, read.audience) == ("https://sso.example.org/realms/lab", "driftline")
    assert (read.name_claim, read.groups_claim) == ("preferred_username", "roles")
    assert [(grant.group, grant.project) for grant in read.grants] == [("lab", "lab"), ("guests", "default")]
    told = {component for component, _, env, _ in containers(objects) if "DRIFTLINE_OIDC" in env}
    assert told == {"api"}
    pod = objects["Deployment", "r-driftline-api"]["spec"]["template"]["spec"]
    mounted = next(volume for volume in pod["volumes"] if volume["name"] == "config")["configMap"]["items"]
    assert {item["path"] for item in mounted} == {"limits.yaml", "oidc.yaml"}
    env = next(env for component, _, env, _ in containers(objects) if component == "api")
    assert env["DRIFTLINE_OIDC"] == "/etc/driftline/oidc.yaml"


def test_the_api_is_told_its_proxies(objects):
    told = {component: env.get("DRIFTLINE_TRUSTED_PROXIES") for component, _, env, _ in containers(objects)}
    assert told.pop("api") == "10.0.0.7,10.244.0.0/16"
    assert set(told.values()) == {None}


def test_another_provider_restarts_the_api(helm, objects):
    def sum_of(found):
        pod = found["Deployment", "r-driftline-api"]["spec"]["template"]
        return pod["metadata"]["annotations"]["checksum/config"]

    oidc = {"issuer": "https://other.example.org", "audience": "a", "grants": [{"group": "g"}]}
    assert sum_of(objects) != sum_of(helm.objects({**MATRIX["watched"], "auth": {"oidc": oidc}}))


def test_without_oidc_nothing_is_left_of_it(helm):
    assert "oidc" not in helm.template({}).stdout.lower()


def test_the_chart_schema_has_the_settings_of_the_api():
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["auth"]["properties"]["oidc"]
    assert set(schema["properties"]) == set(Oidc.model_fields)
    grant = schema["properties"]["grants"]["items"]["properties"]
    assert set(grant) == {"group", "project", "scopes"}


# ---- proxies and certificates


def test_proxy_and_certificates_reach_every_pod(objects):
    seen = set()
    for component, name, env, container in containers(objects):
        if component == "postgresql":  # not Driftline's image
            assert "HTTPS_PROXY" not in env
            continue
        assert env["HTTPS_PROXY"] == "http://proxy.example.org:3128", (component, name)
        assert {env[key] for key in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE")} == {CA}
        assert {"name": "ca", "mountPath": "/etc/driftline-ca", "readOnly": True} in container["volumeMounts"]
        seen.add(component)
    assert seen == {"api", "scheduler", "mlflow", "migration", "data", "checkpoints", "test", "uninstall"}
    of = {component: env for component, _, env, _ in containers(objects)}
    assert of["api"]["A"] == "1"
    assert "A" not in of["scheduler"]
    assert of["scheduler"]["B"] == {"secretKeyRef": {"name": "my-b", "key": "b"}}
    read = launcher_of(objects)
    assert read.env == {
        "SSL_CERT_FILE": "/own.pem",  # what is said for studies wins
        "REQUESTS_CA_BUNDLE": CA,
        "AWS_CA_BUNDLE": CA,
        "DATA_DIR": "/data",
    }
    assert {"name": "ca", "configMap": {"name": "my-ca"}} in read.volumes


def test_the_last_value_of_a_variable_that_is_given_twice_counts(helm):
    """The API server refuses a name that stands twice in one container (server-side apply, as Helm 4 does it)."""
    values = {
        "caBundle": {"configMap": "my-ca"},
        "extraEnv": [{"name": name, "value": "all"} for name in ("A", "B", "AWS_CA_BUNDLE")],
        "api": {"extraEnv": [{"name": "B", "value": "first"}, {"name": "B", "valueFrom": FROM}]},
        "mlflow": {"extraEnv": [{"name": "A", "value": "mlflow"}]},
        "data": MATRIX["watched"]["data"],
    }
    found = helm.objects(values)
    of = {name: env for _, name, env, _ in containers(found)}
    for name in ("api", "scheduler", "mlflow", "database", "migration", "download"):
        assert of[name]["A"] == ("mlflow" if name in ("mlflow", "database") else "all"), name
        assert of[name]["B"] == (FROM if name == "api" else "all"), name
        assert of[name]["AWS_CA_BUNDLE"] == "all", name
        assert of[name]["SSL_CERT_FILE"] == "/etc/driftline-ca/ca.crt", name
    for component, name, env, container in containers(found):
        assert len(env) == len(container.get("env", [])), f"a name stands twice in {component}, {name}"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("api.extraEnv", "DRIFTLINE_DATABASE_URL"),
        ("scheduler.extraEnv", "DRIFTLINE_LAUNCHER"),
        ("mlflow.extraEnv", "ARTIFACTS"),
        ("extraEnv", "DRIFTLINE_SECRET"),
    ],
)
def test_what_the_chart_sets_itself_is_refused(helm, path, name):
    done = helm.template({}, "--set", f"{path}[0].name={name},{path}[0].value=x", ok=False)
    assert done.returncode != 0
    assert f"{path} must not hold {name}, which the chart sets itself" in done.stderr


# ---- Kueue


def test_a_queue_reaches_the_launcher_and_its_reasons_the_scheduler(helm, objects):
    read = launcher_of(objects)
    assert (read.queue, read.queue_priority_class) == ("gpu-queue", "low")
    rule = {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list"]}
    assert rule in objects["Role", "r-driftline-scheduler"]["rules"]
    assert "kueue" not in helm.template({}).stdout


def test_an_elastic_queue_may_scale(helm):
    studies = {"queue": "gpu", "workers": {"min": 1, "max": 4}, "annotations": {"kueue.x-k8s.io/elastic-job": "true"}}
    found = helm.objects({"studies": studies})
    read = launcher_of(found)
    assert (read.queue, read.workers.max) == ("gpu", 4)
