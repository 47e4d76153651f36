"""Invalid values are refused, with the reason."""

import json
import re
import shutil

import pytest
import yaml

from service.api.event_streams import StreamLimits
from service.api.rate_limits import Limits

from .chart_readme import CHART

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
WRONG = {  # of keys that are unknown one: test_the_schema_is_closed
    "api.replicaCount=two": "replicaCount",
    "api.service.type=External": "type",
    "api.service.port=70000": "port",
    "api.limits.streams.per_token=0": "per_token",
    "api.trustedProxies={*}": "trustedProxies",
    "image.pullPolicy=Sometimes": "pullPolicy",
    "image.digest=sha1:00": "digest",
    "image.repository=registry.example.org/driftline:0.2.0": "repository",
    "studies.head.memory=0Gi": "memory",
    "studies.workers.memory=16K": "memory",  # Kubernetes knows k only
    "studies.namespace=vision.studies": "namespace",
    "studies.projects.a.namespace=vision.studies": "namespace",
    "studies.labels.team=federated learning": "team",
    "studies.workers.nodeSelector.gpu model=a100": "gpu model",
    "studies.launcher=slurm": "launcher",
    "studies.dataUrls={data.example.org}": "dataUrls",
    "studies.dataUrls={https://me@data.example.org/}": "dataUrls",
    "studies.programs=yes": "programs",
    "studies.programSecrets={a b}": "programSecrets",
    "studies.images.allowed={ghcr.io/a b}": "allowed",
    "studies.images.pullSecrets={registry}": "pullSecrets",
    "studies.workers.gpus=-1": "gpus",
    "studies.workers.gpus=0.5": "gpus",
    "studies.workers.cpu=lots": "cpu",
    "studies.pools.a.gpus=half": "gpus",
    "studies.pools.A_b.gpus=1": "A_b",
    "studies.projects.a.pools=x": "pools",
    "studies.volumes[0].name=x": "volumes",
    "studies.env.A=1": "env",
    "checkpoints.url=/checkpoints": "url",
    "checkpoints.volume.accessModes={Many}": "accessModes",
    "data.download.sha256=abc": "sha256",
    "services.ipFamilies={IPv5}": "ipFamilies",
    "global.imageRegistry=https://r.example.org": "imageRegistry",
    "extraObjects[0].kind=Secret": "apiVersion",
    "mlflow.defaultPermission=ALL": "defaultPermission",
    "podSecurity.userId=0": "userId",
    "ingress.hosts[0].host=Not A Host": "host",
    "ingress.hosts[0].host=a.example.org,ingress.hosts[0].paths[0].path=v1": "path",
    "unknown.key=1": "unknown",
    "auth.oidc.issuer=https://sso.example.org": "audience",
    "auth.oidc.algorithms={HS256}": "algorithms",
    "auth.oidc.grants[0].scopes={delete}": "scopes",
    "auth.oidc.sign_in.redirect_url=https://tuner.example.org": "redirect_url",
    "auth.oidc.jwks_url=http://sso.example.org/keys": "jwks_url",
    "gateway.parentRefs[0].namespace=x": "parentRefs",
    "gateway.hostnames={Not A Host}": "hostnames",
    "gateway.timeout=1 minute": "timeout",
    "metrics.serviceMonitor.interval=often": "interval",
    "metrics.serviceMonitor.enabled=1": "enabled",
    "studies.queue=My Queue": "queue",
    "studies.projects.a.checkpoints=/checkpoints": "checkpoints",
    "studies.projects.a.quota.pods=many": "quota",
    "studies.projects.-a.queue=x": "projects",
    "extraEnv[0].name=1A": "name",
    "api.extraEnv.A=1": "extraEnv",
    "api.extraEnv[0].name=A,api.extraEnv[0].valueFrom.secretKeyRef.name=x": "key",
    "data.source.hostPath.path=data": "path",
    "checkpoints.volume.accessModes={ReadWriteOncePod}": "accessModes",
}
AP = {"podPatch": {"spec": {"containers": [{"name": "ap", "tty": True}]}}}
TOGETHER = {
    "api.replicas is now api.replicaCount": {"api": {"replicas": 2}},
    "scheduler.replicas is now scheduler.replicaCount": {"scheduler": {"replicas": 2}},
    "image.pullSecrets is now imagePullSecrets, a list of {name: ...}": {"image": {"pullSecrets": ["a"]}},
    "api.autoscaling.targetCPU is now api.autoscaling.targetCPUUtilizationPercentage": {
        "api": {"autoscaling": {"targetCPU": 50}}
    },
    "ingress.host is now ingress.hosts, a list of {host: ...}; ingress.mlflowHost is now ingress.mlflowHosts, a list "
    "of {host: ...}; ingress.tlsSecret is now ingress.tls, a list of {secretName: ..., hosts: [...]}": {
        "ingress": {"host": "a.example.org", "mlflowHost": "m.example.org", "tlsSecret": "x"}
    },
    "serviceAccounts is now serviceAccount, with create, name and annotations, of api (which was service), scheduler": {
        "serviceAccounts": {"create": False}
    },
    "mlflow.envFrom is now mlflow.podPatch.spec.containers, in envFrom": {"mlflow": {"envFrom": []}},
    "api.podPatch.metadata.labels must not hold app.kubernetes.io/component": {
        "api": {"podPatch": {"metadata": {"labels": {"app.kubernetes.io/component": "x"}}}}
    },
    **{
        f"{path}.podPatch.spec.containers must name {names}, or have an image, got ap without one": values
        for path, names, values in (
            ("api", "api", {"api": AP}),
            ("jobs", "migration, writable, download, studies, study", {"jobs": AP}),
            ("studies.head", "ray-head", {"studies": {"head": AP}}),
            ("studies.pools.a", "ray-worker", {"studies": {"pools": {"a": AP}}}),
        )
    },
    "studies.projects.a.namespace must not be the release's own, ns": {
        "studies": {"projects": {"a": {"namespace": "ns"}}}
    },
    "mlflow.database.url must be postgresql://USER:PASSWORD@HOST:5432/NAME (postgresql+psycopg:// and "
    "postgresql+psycopg2:// mean the same), got mysql+pymysql://...": {
        "mlflow": {"database": {"url": "mysql+pymysql://u:word@h/d"}}
    },
    "database.url must be postgresql://USER:PASSWORD@HOST:5432/NAME (postgresql+psycopg:// and postgresql+psycopg2:// "
    "mean the same), got ...": {"postgresql": {"enabled": False}, "database": {"url": "u:word@h/d"}},
    "a database is needed": {"postgresql": {"enabled": False}, "mlflow": {"enabled": False}},
    "postgresql.enabled must be false": {"database": {"existingSecret": "x"}},
    "must not both be set": {
        "postgresql": {"enabled": False},
        "database": {"existingSecret": "x", "url": "postgresql://u:p@h/d"},
    },
    "mlflow.trackingUri needs": {"mlflow": {"trackingUri": "https://mlflow.example.org"}},
    "mlflow.trackingUri must not hold an account": {
        "mlflow": {"enabled": False, "trackingUri": "https://ann:pass@mlflow.example.org"}
    },
    "mlflow.publicUrl must not hold an account": {"mlflow": {"publicUrl": "https://ann:pass@mlflow.example.org/"}},
    "MLflow needs its own database": {"postgresql": {"enabled": False}, "database": {"existingSecret": "x"}},
    "must name another database": {
        "postgresql": {"enabled": False},
        "database": {"url": "postgresql://u:p@h/d"},
        "mlflow": {"database": {"url": "postgresql://u:p@h/d"}},
    },
    "scheduler.replicaCount: 1": {"studies": {"launcher": "local"}},
    "must be at most studies.workers.max": {"studies": {"workers": {"min": 3, "max": 2}}},
    "ingress.enabled needs": {"ingress": {"enabled": True}},
    "ingress.mlflowHosts needs": {
        "ingress": {"mlflowHosts": [{"host": "m.example.org"}]},
        "mlflow": {"enabled": False},
    },
    "gateway.enabled needs gateway.parentRefs": {"gateway": {"enabled": True, "hostnames": ["a.example.org"]}},
    "gateway.mlflowHostnames needs": {
        "mlflow": {"enabled": False},
        "gateway": {
            "enabled": True,
            "parentRefs": [{"name": "g"}],
            "hostnames": ["a.example.org"],
            "mlflowHostnames": ["m.example.org"],
        },
    },
    "scrapeTimeout must be at most": {"metrics": {"serviceMonitor": {"enabled": True, "interval": "5s"}}},
    "commonLabels must not hold app.kubernetes.io/name": {"commonLabels": {"app.kubernetes.io/name": "x"}},
    "api.autoscaling.minReplicas must be at most": {"api": {"autoscaling": {"enabled": True, "maxReplicas": 1}}},
    "minItems: got 0, want 1": {"networkPolicy": {"operator": []}},  # would let everybody in
    "checkpoints.url must not hold a password": {"checkpoints": {"url": "ftp://ann:word@files/x"}},
    "studies.projects.p.checkpoints must not hold a password": {
        "studies": {"projects": {"p": {"checkpoints": "sftp://ann:word@files/x"}}}
    },
    "mlflow.artifacts.url must not hold a password": {"mlflow": {"artifacts": {"url": "sftp://ann:word@files/x"}}},
    "data.download.url must not hold a password": {
        "data": {"enabled": True, "existingClaim": "c", "download": {"url": "https://a:b@c/d.tar", "sha256": "a" * 64}}
    },
    # KubeRay's RayJob refuses what occurs twice, so that no study would start.
    "studies.env must not hold DRIFTLINE_TOKEN": {"studies": {"env": {"DRIFTLINE_TOKEN": "x"}}},
    "(scratch, autoscaler-scratch, autoscaler-token, data), got data again": {
        "data": {"enabled": True, "existingClaim": "my-data"},
        "checkpoints": {"url": "s3://bucket/x"},
        "studies": {"volumes": [{"name": "data", "emptyDir": {}}]},
    },
    "(/tmp, /checkpoints), got /checkpoints/ again": {
        "studies": {
            "volumes": [{"name": "own", "emptyDir": {}}],
            "volumeMounts": [{"name": "own", "mountPath": "/checkpoints/"}],
        }
    },
    "studies.volumeMounts must name volumes that are there": {
        "studies": {"volumeMounts": [{"name": "own", "mountPath": "/own"}]}
    },
    "studies.queuePriorityClass needs": {"studies": {"queuePriorityClass": "low"}},
    "commonLabels must not hold kueue.x-k8s.io/queue-name": {"commonLabels": {"kueue.x-k8s.io/queue-name": "gpu"}},
    "studies.labels must not hold kueue.x-k8s.io/queue-name": {
        "studies": {"labels": {"kueue.x-k8s.io/queue-name": "gpu"}}
    },
    "a queue needs studies.workers.min equal to studies.workers.max, got 1 and 4": {
        "studies": {"queue": "gpu", "workers": {"max": 4}}
    },
    "data.download.url needs data.enabled": {"data": {"download": {"url": "https://example.org/x.tar"}}},
    "data.download.sha256": {"data": {"enabled": True, "download": {"url": "https://example.org/x.tar"}}},
    "studies.queue needs studies.launcher": {
        "studies": {"queue": "gpu", "launcher": "local"},
        "scheduler": {"replicaCount": 1},
    },
    "studies.namespace needs studies.launcher": {
        "studies": {"namespace": "other", "launcher": "local"},
        "scheduler": {"replicaCount": 1},
    },
    "under the same name in ns and in ns-r-driftline-studies, team-a": {
        "studies": {"projects": {"a": {"namespace": "team-a"}}},
        "data": {"enabled": True},
    },
    "studies.projects.a needs studies.launcher: kubernetes": {
        "studies": {"launcher": "local", "projects": {"a": {"queue": "x"}}},
        "scheduler": {"replicaCount": 1},
    },
    "studies.projects.a.quota needs a namespace": {"studies": {"projects": {"a": {"quota": {"pods": 1}}}}},
    "studies.projects.a.queuePriorityClass needs a queue": {
        "studies": {"projects": {"a": {"queuePriorityClass": "low"}}}
    },
    "studies.projects.a and studies.projects.b are both in the namespace x": {
        "studies": {"projects": {name: {"namespace": "x", "quota": {"pods": 1}} for name in "ab"}}
    },
    "a queue needs studies.workers.min equal to studies.workers.max, got 1 and 2": {
        "studies": {"workers": {"max": 2}, "projects": {"a": {"queue": "x"}}}
    },
    "studies.pools must not hold default, which is the name of the pool studies.workers": {
        "studies": {"pools": {"default": {"gpus": 1}}}
    },
    "studies.pools.a.min must be at most studies.pools.a.max, got 3 and 1": {"studies": {"pools": {"a": {"min": 3}}}},
    "a queue needs studies.pools.a.min equal to studies.pools.a.max, got 0 and 1": {
        "studies": {"pools": {"a": {"min": 0}}, "projects": {"p": {"queue": "x", "pools": ["a"]}}}
    },
    "studies.pools.a.queuePriorityClass needs a queue": {"studies": {"pools": {"a": {"queuePriorityClass": "low"}}}},
    "studies.projects.p.pools must be among a, default, got b": {
        "studies": {"pools": {"a": {}}, "projects": {"p": {"pools": ["b"]}}}
    },
    "studies.pools.a needs studies.launcher: kubernetes": {
        "studies": {"launcher": "local", "pools": {"a": {}}},
        "scheduler": {"replicaCount": 1},
    },
}


@pytest.fixture(scope="module")
def refusals(helm, tmp_path_factory):
    """Setting -> what helm says of it, asked once: a parent chart has this one under a name for each setting."""
    folder = tmp_path_factory.mktemp("parent")
    names = {f"c{number}": setting for number, setting in enumerate(WRONG)}
    entries = [{"name": "driftline", "version": "*", "alias": name} for name in names]
    parent = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": entries}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(parent))
    shutil.copytree(CHART, folder / "charts" / "driftline")
    options = [re.sub(r"(^|,)(?=[\w. \[\]-]+=)", rf"\1{name}.", setting) for name, setting in names.items()]
    done = helm("template", "p", str(folder), *(word for one in options for word in ("--set", one)), ok=False)
    assert done.returncode != 0
    said = re.split(r"^(c\d+):$", done.stderr, flags=re.MULTILINE)
    return {names[name]: text for name, text in zip(said[1::2], said[2::2], strict=True)}


@pytest.mark.parametrize("setting", WRONG)
def test_wrong_values_are_refused(refusals, setting):
    assert WRONG[setting] in refusals[setting]


@pytest.mark.parametrize("message", TOGETHER)
def test_combinations_that_cannot_work_are_refused(helm, message):
    done = helm.template(TOGETHER[message], ok=False)
    assert done.returncode != 0
    assert message in done.stderr


def test_empty_values_of_a_project_are_as_if_left_out(helm):
    empty = dict.fromkeys(("namespace", "queue", "queuePriorityClass"), "")
    one, two = (helm.objects({"studies": {"projects": {"p": own}}}) for own in (empty, {}))
    assert one["ConfigMap", "r-driftline"] == two["ConfigMap", "r-driftline"]


def test_a_container_of_azure_is_no_password(helm):
    helm.template({"checkpoints": {"url": "abfs://checkpoints@lab.dfs.core.windows.net/a:b"}})


def test_registries_may_have_ports_and_amounts_may_be_fractions(helm):
    values = {
        "image": {"repository": "[fd00::1]:5000/lab/driftline"},
        "studies": {"head": {"cpu": "0.5", "memory": 1e10}},
    }
    values["commonLabels"] = {"example.org/Cost_Centre.1": "", "team": "A.b_c-1"}
    # kubectl shows a divisor that was left out as "0".
    field = {"resourceFieldRef": {"resource": "limits.memory", "divisor": "0"}}
    values["api"] = {
        "extraEnv": [{"name": "MEMORY", "valueFrom": field}],
        "podPatch": {"spec": {"volumes": [{"name": "files", "emptyDir": {"sizeLimit": "0"}}]}},
    }
    helm.template({**values, "jobs": {"resources": {"requests": {"cpu": "0", "memory": 0}}}})


def closed(schema, path="$"):
    """Paths of objects in a schema that take any key, but say nothing about the values."""
    if isinstance(schema, dict):
        if (schema.get("type") == "object" or "properties" in schema) and "additionalProperties" not in schema:
            yield path
        for key, value in schema.items():
            yield from closed(value, f"{path}.{key}")
    elif isinstance(schema, list):
        for item in schema:
            yield from closed(item, path)


def opened(schema, path="$"):
    """Objects in a schema that take any key and value, with their paths."""
    if isinstance(schema, dict):
        if schema.get("additionalProperties") is True:
            yield path, schema
        for key, value in schema.items():
            yield from opened(value, f"{path}.{key}")
    elif isinstance(schema, list):
        for number, item in enumerate(schema):
            yield from opened(item, f"{path}[{number}]")


def test_the_schema_is_closed():
    """Kubernetes drops a key that it does not know: of a selector with a misspelt one {} is left: everybody."""
    assert list(closed(SCHEMA)) == []
    told = {path for path, inner in opened(SCHEMA)}
    assert told == {
        "$.properties.global",  # what a parent chart hands down
        "$.properties.extraObjects.items.anyOf[1]",
        "$.definitions.podPatch.properties.spec",
    }


def test_an_account_in_an_address_is_not_repeated(helm):
    assert "ann:" not in helm.template(TOGETHER["mlflow.trackingUri must not hold an account"], ok=False).stderr


@pytest.mark.parametrize(
    "uri", ["https://mlflow.example.org/team@home", "http://mlflow:5000", "https://m.example.org?a=b@c"]
)
def test_an_address_without_an_account_is_taken(helm, uri):
    helm.template({"mlflow": {"enabled": False, "trackingUri": uri}})


def test_schema_and_values_have_the_same_keys():
    def compare(schema, values, path):
        if "properties" in schema and isinstance(values, dict):
            known = {key for key, inner in schema["properties"].items() if not inner.get("deprecated")}
            assert known - {"enabled", "imageRegistry", "imagePullSecrets"} <= set(values) <= known, path
            for key, value in values.items():
                inner = schema["properties"][key]
                if inner.get("type") == "object" and value:
                    compare(inner, value, f"{path}.{key}")

    compare(SCHEMA, VALUES, "values")


def test_the_limits_are_those_of_the_api():
    limits = SCHEMA["properties"]["api"]["properties"]["limits"]["properties"]
    assert set(limits) == {"streams", *Limits.model_fields}
    assert set(limits["streams"]["properties"]) == set(StreamLimits.model_fields)


def test_every_template_is_rendered_by_the_matrix(texts):
    rendered = "".join(texts.values())
    for path in (CHART / "templates").rglob("*.yaml"):
        if path.name != "validation.yaml":
            assert f"# Source: driftline/templates/{path.relative_to(CHART / 'templates')}" in rendered, path
