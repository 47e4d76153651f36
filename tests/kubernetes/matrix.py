"""Values that are rendered and checked in all tests of the chart: these, and the examples that come with it."""

from pathlib import Path

import yaml

AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "kind", "operator": "In", "values": ["big"]}]}]
        }
    }
}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
PLACED = {"nodeSelector": {"pool": "one"}, "tolerations": [TOLERATION], "affinity": AFFINITY}
CONTAINER = {
    "image": "registry.example.org/proxy:1",
    "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}},
    "volumeMounts": [{"name": "secrets", "mountPath": "/secrets"}],
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    },
}
VOLUME = {"name": "secrets", "csi": {"driver": "secrets-store.csi.k8s.io", "readOnly": True}}
MOUNT = {"name": "secrets", "mountPath": "/secrets", "readOnly": True}
KEYS = [{"secretRef": {"name": "my-keys"}}]
SPREAD = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}


def patch(container: str) -> dict:
    """What used to be eight values: labels, annotations, volumes, mounts, further containers, envFrom, spread."""
    return {
        "metadata": {"labels": {"team": "federated"}, "annotations": {"example.org/inject": "no"}},
        "spec": {
            "terminationGracePeriodSeconds": 120,
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["db"]}],
            "volumes": [VOLUME],
            "initContainers": [{"name": "before", **CONTAINER}],
            "containers": [
                {"name": container, "envFrom": KEYS, "volumeMounts": [MOUNT]},
                {"name": "proxy", **CONTAINER},
            ],
            "topologySpreadConstraints": [SPREAD],
        },
    }


DOWNLOAD = {"url": "https://example.org/data.tar.gz", "sha256": "a" * 64}
MATRIX = {
    "default": {},
    "projects": {
        "networkPolicy": {"egress": {"enabled": True}, "clients": [{"podSelector": {"matchLabels": {"a": "b"}}}]},
        "studies": {
            "projects": {
                "team-a": {
                    "namespace": "team-a",
                    "queue": "gpus",
                    "queuePriorityClass": "low",
                    "quota": {"requests.nvidia.com/gpu": 8, "count/rayjobs.ray.io": "20"},
                },
                "Team_B": {"namespace": "team-b", "checkpoints": "s3://team-b/checkpoints"},
                "small": {"queue": "cpus"},
            }
        },
    },
    "pools": {
        "networkPolicy": {"egress": {"enabled": True}},
        "studies": {
            "image": {"tag": "1-cuda"},
            "pools": {
                "a100": {
                    "gpus": 2,
                    "max": 4,
                    "idleSeconds": 60,
                    "limitCpu": False,
                    "runtimeClass": "nvidia",
                    "priorityClassName": "large",
                    **PLACED,
                },
                "mig": {
                    "gpus": 1,
                    "gpuResource": "nvidia.com/mig-1g.10gb",
                    "queue": "slices",
                    "queuePriorityClass": "low",
                },
                "cpu": {"cpu": "16", "image": {"tag": "1"}},
            },
            "projects": {
                "vision": {"pools": ["mig", "cpu"], "queuePriorityClass": "high"},
                "speech": {"namespace": "speech", "pools": ["default", "a100"]},
            },
        },
    },
    "together": {"studies": {"namespace": "ns"}, "data": {"enabled": True, "download": DOWNLOAD}},
    "external": {
        "postgresql": {"enabled": False},
        "database": {"existingSecret": "my-database", "existingSecretKey": "url"},
        "auth": {"existingSecret": "my-auth"},
        "mlflow": {
            "existingSecret": "my-mlflow",
            "artifacts": {"url": "s3://bucket/mlflow"},
            "extraEnv": [{"name": "AWS_REGION", "value": "x"}],
        },
        "checkpoints": {"url": "s3://bucket/checkpoints"},
        "studies": {"namespace": "studies", "envFrom": [{"secretRef": {"name": "s3"}}]},
    },
    "apart": {
        "postgresql": {"enabled": False},
        "database": {"url": "postgresql+psycopg://tuner:word-one@db.example.org/tuner"},
        "mlflow": {"database": {"url": "postgresql+psycopg://tuner:word-two@db.example.org/mlflow"}},
        "checkpoints": {"volume": {"existingClaim": "their-checkpoints"}},
        "studies": {"namespace": "studies", "image": {"tag": "own"}},
        "data": {"enabled": True, "source": {"persistentVolumeClaim": {"claimName": "my-data"}}},
    },
    "no-mlflow": {"mlflow": {"enabled": False}},
    "their-mlflow": {
        "mlflow": {"enabled": False, "trackingUri": "https://mlflow.example.org", "existingSecret": "account"}
    },
    "gpu": {
        "commonLabels": {"team": "federated"},
        "image": {"repository": "registry.example.org/driftline", "tag": "1-cuda"},
        "imagePullSecrets": [{"name": "registry"}],
        "api": {
            "autoscaling": {"enabled": True},
            "limits": {"requests_per_second": 50, "studies": 20},
            "podPatch": {"metadata": {"annotations": {"a": "b"}}},
            **PLACED,
        },
        "scheduler": {"podPatch": {"metadata": {"annotations": {"a": "b"}}}, **PLACED},
        "mlflow": {"allowedHosts": ["mlflow.inside"], **PLACED},
        "postgresql": {"nodeSelector": {"disk": "ssd"}, "tolerations": [TOLERATION]},
        "data": {"enabled": True, "existingClaim": "my-data", "download": DOWNLOAD},
        "studies": {
            "image": {"repository": "registry.example.org/own", "digest": "sha256:" + "b" * 64},
            "head": {"cpu": "500m", "memory": "2Gi", **PLACED},
            "autoscaler": {"cpu": "250m", "limitCpu": False},
            "workers": {"min": 0, "max": 8, "gpus": 4, "runtimeClass": "nvidia", **PLACED},
            "env": {"A": "b"},
            "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
            "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
            "labels": {"cost-centre": "research"},
            "deadlineSeconds": 86400,
            "scratch": "20Gi",
            "dataUrls": ["https://data.example.org/sets/", "private:http://minio.lab:9000/sets/"],
            "programs": True,
            "programSecrets": ["wandb-*", "hf"],
            "images": {"allowed": ["ghcr.io/team/*", "quay.io/a/b:1"], "pullSecrets": [{"name": "ghcr"}]},
            "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn"}},
        },
        "priorityClasses": {"create": True},
        "networkPolicy": {
            "clients": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
            "metrics": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
            "egress": {"enabled": True, "studies": [{"ipBlock": {"cidr": "10.9.0.0/16"}}]},
        },
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "annotations": {"example.org/a": "b"},
            "hosts": [{"host": "tuning.example.org"}],
            "mlflowHosts": [{"host": "mlflow.example.org"}],
            "tls": [{"secretName": "certificate", "hosts": ["tuning.example.org", "mlflow.example.org"]}],
        },
    },
    "small": {
        "fullnameOverride": "tuner",
        "studies": {"launcher": "local"},
        "scheduler": {"replicaCount": 1},
        "api": {"replicaCount": 1, "service": {"type": "NodePort", "port": 80, "annotations": {"a": "b"}}},
        "postgresql": {"persistence": {"enabled": False}},
        "mlflow": {"artifacts": {"persistence": {"enabled": False}}},
        "checkpoints": {"volume": {"source": {"emptyDir": {}}}},
        "data": {"enabled": True, "source": {"nfs": {"server": "files", "path": "/data"}}},
        "migrations": {"enabled": False},
        "networkPolicy": {"enabled": False},
    },
    "watched": {
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.org:3128"}],
        "caBundle": {"configMap": "my-ca", "key": "bundle.pem"},
        "auth": {
            "oidc": {
                "issuer": "https://sso.example.org/realms/lab",
                "audience": "driftline",
                "jwks_url": "https://sso.example.org/keys",
                "name_claim": "preferred_username",
                "groups_claim": "roles",
                "algorithms": ["RS256", "ES256"],
                "grants": [{"group": "lab", "project": "lab", "scopes": ["read", "write"]}, {"group": "guests"}],
            }
        },
        "api": {"extraEnv": [{"name": "A", "value": "1"}], "trustedProxies": ["10.0.0.7", "10.244.0.0/16"]},
        "scheduler": {"extraEnv": [{"name": "B", "valueFrom": {"secretKeyRef": {"name": "my-b", "key": "b"}}}]},
        "gateway": {
            "enabled": True,
            "annotations": {"example.org/a": "b"},
            "parentRefs": [{"name": "shared", "namespace": "gateways", "sectionName": "https"}],
            "hostnames": ["tuning.example.org", "*.tuning.example.org"],
            "mlflowHostnames": ["mlflow.example.org"],
        },
        "metrics": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "1m"},
            "rules": {"enabled": True, "labels": {"release": "prometheus"}},
        },
        "data": {"enabled": True, "existingClaim": "my-data", "download": DOWNLOAD},
        "networkPolicy": {"clients": [{"namespaceSelector": {"matchLabels": {"name": "gateways"}}}]},
        "studies": {"queue": "gpu-queue", "queuePriorityClass": "low", "env": {"SSL_CERT_FILE": "/own.pem"}},
    },
    "their-accounts": {
        "scheduler": {"serviceAccount": {"create": False, "name": "a"}},
        "api": {"serviceAccount": {"create": False, "name": "b"}},
        "studies": {"serviceAccount": {"create": False, "name": "c"}},
        "mlflow": {"serviceAccount": {"create": False}},
        "rbac": {"create": False},
        "ingress": {"enabled": True, "hosts": [{"host": "tuning.example.org"}]},
    },
    "extended": {
        **{part: {"podPatch": patch(part)} for part in ("api", "scheduler", "mlflow", "postgresql")},
        "jobs": {"podPatch": patch("migration")},
        "studies": {
            "head": {"podPatch": patch("ray-head")},
            "workers": {"podPatch": patch("ray-worker")},
            "pools": {"rdma": {"podPatch": {"spec": {"schedulerName": "volcano"}}}},
        },
        "global": {"imageRegistry": "mirror.example.org:5000", "imagePullSecrets": ["mirror", {"name": "registry"}]},
        "imagePullSecrets": [{"name": "registry"}],
        "services": {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]},
        "extraObjects": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "r-extra", "namespace": "ns"}, "data": {}},
            "{apiVersion: v1, kind: Secret, metadata: {name: '{{ .Release.Name }}-own', namespace: ns}, data: {}}",
        ],
    },
}
EXAMPLES = Path(__file__).resolve().parents[2] / "helm" / "driftline" / "examples"
MATRIX |= {path.stem: yaml.safe_load(path.read_text()) for path in sorted(EXAMPLES.glob("*.yaml"))}
