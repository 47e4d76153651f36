"""Pods of a RayCluster as KubeRay 1.7 builds them from their templates."""

import copy

DASHBOARD, AGENT, GCS = 8265, 52365, 6379
CERTIFICATE = "test-root-ca.crt"
"""A ConfigMap with the API server's certificate; `kube-root-ca.crt`, where it should be, is empty on the test node."""
EVERY_S = 1
"""Seconds between two looks; 5 in KubeRay and Ray, and 10 before the first probe, for which tests would only wait."""
GRACE_S = 5
"""Seconds until a pod that is deleted is killed; 30 in Kubernetes, all of which Ray uses to drain a node."""


def owner(item):
    """A reference to what owns an object."""
    return {
        "apiVersion": item["apiVersion"],
        "kind": item["kind"],
        "name": item["metadata"]["name"],
        "uid": item["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def desired(group):
    """How many workers a group is to have: what is asked for, within its bounds."""
    return min(max(group.get("replicas", 0), group.get("minReplicas", 0)), group.get("maxReplicas", 2**31 - 1))


def head_service(cluster):
    """The head's headless Service."""
    name = cluster["metadata"]["name"]
    ports = {"gcs-server": GCS, "dashboard": DASHBOARD, "client": 10001, "metrics": 8080}
    return {
        "metadata": {
            "name": f"{name}-head-svc",
            "labels": {"ray.io/cluster": name, "ray.io/node-type": "head"},
            "ownerReferences": [owner(cluster)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"ray.io/cluster": name, "ray.io/node-type": "head"},
            "ports": [{"name": key, "port": port, "targetPort": port} for key, port in ports.items()],
        },
    }


def head_pod(cluster):
    """The pod of Ray's head, with the autoscaler beside it where it is asked for."""
    group = cluster["spec"]["headGroupSpec"]
    params = {"dashboard-agent-listen-port": str(AGENT), "dashboard-host": "0.0.0.0", **group.get("rayStartParams", {})}
    scaling = cluster["spec"].get("enableInTreeAutoscaling")
    if scaling:
        params["no-monitor"] = "true"
    pod = _pod(cluster, group["template"], "head", "headgroup", {"head": "true", **params}, "127.0.0.1")
    if scaling:
        pod["spec"]["serviceAccountName"] = service_account(cluster)
        _autoscaler(cluster, pod)
        for volume in pod["spec"]["volumes"]:
            for source in volume.get("projected", {}).get("sources", []):
                if source.get("configMap", {}).get("name") == "kube-root-ca.crt":
                    source["configMap"]["name"] = CERTIFICATE
    return pod


def worker_pod(cluster, group):
    """A pod of a group of workers, which waits for the head first."""
    name, namespace = cluster["metadata"]["name"], cluster["metadata"]["namespace"]
    address = f"{name}-head-svc.{namespace}.svc.cluster.local"
    params = {"address": f"{address}:{GCS}", "dashboard-agent-listen-port": str(AGENT)}
    params |= group.get("rayStartParams", {})
    pod = _pod(cluster, group["template"], "worker", group["groupName"], params, address)
    ray = pod["spec"]["containers"][0]
    amounts = {"cpu": "200m", "memory": "256Mi"}
    # `ray health-check` alone would take a core from the head that it waits for.
    wait = f"until (: < /dev/tcp/{address}/{GCS}) 2> /dev/null; do sleep {EVERY_S}; done; "
    wait += f"until ray health-check --address {address}:{GCS} > /dev/null 2>&1; do sleep {EVERY_S}; done"
    pod["spec"].setdefault("initContainers", []).append(
        {
            "name": "wait-gcs-ready",
            **{key: ray[key] for key in ("image", "imagePullPolicy", "securityContext", "env", "volumeMounts")},
            "command": ["/bin/bash", "-c", "--"],
            "args": [wait],
            "resources": {"limits": amounts, "requests": amounts},
        }
    )
    return pod


def service_account(cluster):
    """The ServiceAccount of a head that scales: the template's, or one of the cluster's own name."""
    template = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    return template.get("serviceAccountName") or cluster["metadata"]["name"]


def _pod(cluster, template, kind, group, params, address):
    name = cluster["metadata"]["name"]
    template = copy.deepcopy(template)
    labels = {
        "ray.io/is-ray-node": "yes",
        "ray.io/identifier": f"{name}-{kind}",
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
        **template.get("metadata", {}).get("labels", {}),
        "ray.io/cluster": name,
        "ray.io/node-type": kind,
        "ray.io/group": group,
    }
    spec = template["spec"]
    ray = spec["containers"][0]
    params = {"metrics-export-port": "8080", "block": "true", **params}
    flags = [f"--{key}" if value == "true" else f"--{key}={value}" for key, value in params.items()]
    command = " ".join(["ray", "start", *flags])
    ray["command"] = ["/bin/bash", "-c", "--"]
    ray["args"] = [f"ulimit -n 65536; {command}"]
    ray["env"] = _env(cluster, ray.get("env", []), address, command)
    _empty_dir(spec, ray, "shared-mem", "/dev/shm", {"medium": "Memory"})
    health = {"httpGet": {"path": "/api/healthz", "port": AGENT}, "timeoutSeconds": 5}
    ray.setdefault("readinessProbe", {**health, "periodSeconds": EVERY_S, "failureThreshold": 10})
    ray.setdefault("livenessProbe", {**health, "initialDelaySeconds": 30, "periodSeconds": 5, "failureThreshold": 120})
    spec.setdefault("terminationGracePeriodSeconds", GRACE_S)
    metadata = {
        "generateName": f"{name}-{kind}-" if kind == "head" else f"{name}-{group}-{kind}-",
        "namespace": cluster["metadata"]["namespace"],
        "labels": labels,
        "annotations": template.get("metadata", {}).get("annotations", {}),
        "ownerReferences": [owner(cluster)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _env(cluster, given, address, command):
    """Environment variables of a Ray container: the user's come first and win."""
    there = {item["name"] for item in given}
    secret = cluster["spec"]["authOptions"]["secretName"]
    fields = {
        "RAY_CLUSTER_NAME": "metadata.labels['ray.io/cluster']",
        "RAY_CLUSTER_NAMESPACE": "metadata.namespace",
        "RAY_CLOUD_INSTANCE_ID": "metadata.name",
        "RAY_NODE_TYPE_NAME": "metadata.labels['ray.io/group']",
    }
    values = {
        "FQ_RAY_IP": address,
        "RAY_IP": address.split(".svc")[0] if "svc" in address else address,
        "RAY_PORT": str(GCS),
        "RAY_ADDRESS": f"{address}:{GCS}",
        "RAY_USAGE_STATS_KUBERAY_IN_USE": "1",
        "KUBERAY_GEN_RAY_START_CMD": command,
        "RAY_AUTH_MODE": "token",
    }
    added = [{"name": key, "value": value} for key, value in values.items()]
    added += [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()]
    token = {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": {"name": secret, "key": "auth_token"}}}
    return [*given, *(item for item in [*added, token] if item["name"] not in there)]


def _autoscaler(cluster, pod):
    """Ray's autoscaler beside the head, merged with autoscalerOptions."""
    spec, ray = pod["spec"], pod["spec"]["containers"][0]
    options = cluster["spec"].get("autoscalerOptions", {})
    amounts = {"cpu": "500m", "memory": "512Mi"}
    auth = [item for item in ray["env"] if item["name"].startswith("RAY_AUTH_")]
    fields = {
        "RAY_CLUSTER_NAME": "metadata.labels['ray.io/cluster']",
        "RAY_CLUSTER_NAMESPACE": "metadata.namespace",
        "RAY_HEAD_POD_NAME": "metadata.name",
    }
    env = [{"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()]
    values = {"KUBERAY_CRD_VER": "v1", "AUTOSCALER_UPDATE_INTERVAL_S": str(EVERY_S)}
    env += [{"name": key, "value": value} for key, value in values.items()]
    container = {
        "name": "autoscaler",
        "image": options.get("image", ray["image"]),
        "imagePullPolicy": options.get("imagePullPolicy", "IfNotPresent"),
        "env": [*env, *auth, *options.get("env", [])],
        "command": ["/bin/bash", "-c", "--"],
        "args": [
            "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
        ],
        "resources": options.get("resources", {"limits": amounts, "requests": amounts}),
        "volumeMounts": list(options.get("volumeMounts", [])),
    }
    if "securityContext" in options:
        container["securityContext"] = options["securityContext"]
    for one in (ray, container):
        _empty_dir(spec, one, "ray-logs", "/tmp/ray", {})
    ray["env"].append({"name": "RAY_enable_autoscaler_v2", "value": "true"})
    spec["containers"].append(container)


def _empty_dir(spec, container, name, path, source):
    mounts = container.setdefault("volumeMounts", [])
    if any(mount["mountPath"] == path for mount in mounts):
        return
    volumes = spec.setdefault("volumes", [])
    if not any(volume["name"] == name for volume in volumes):
        volumes.append({"name": name, "emptyDir": source})
    mounts.append({"name": name, "mountPath": path})
