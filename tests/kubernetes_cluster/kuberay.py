"""A small operator that stands in for KubeRay's in tests: RayJobs become RayClusters, these become pods.

    KUBECONFIG=... python -m tests.kubernetes_cluster.kuberay

It follows the state machine of KubeRay 1.7 for RayJobs in HTTPMode (rayjobs.py), the parts of its RayCluster controller
that a study meets (rayclusters.py), and the pods that this builds (ray_pods.py). KubeRay itself was not run here. What
differs on purpose: pods find the API server's certificate in another ConfigMap; probes, workers that wait for their
head, and Ray's autoscaler look each second, not each fifth; pods have 5 s to end, not 30. It also does what the test
node's own parts do late or not at all: certificates, and the removal of deleted pods that have ended.
"""

import base64
import contextlib
import os
import sys
import time
import traceback
from pathlib import Path

from tests.kubernetes_cluster.ray_pods import CERTIFICATE
from tests.kubernetes_cluster.rayclusters import RayClusters
from tests.kubernetes_cluster.rayjobs import RayJobs
from tests.kubernetes_cluster.rest import Refused, Rest

EVERY_S = 0.5


class Operator:
    """Looks at all RayJobs and RayClusters again and again.

    Args:
        rest: The API server.
        certificate: What its certificate is checked against.
    """

    def __init__(self, rest, certificate):
        self._rest = rest
        self._certificate = base64.b64encode(certificate).decode()
        jobs, clusters = RayJobs(rest), RayClusters(rest)
        self._kinds = ((jobs.look, "rayjobs", "RayJob"), (clusters.look, "rayclusters", "RayCluster"))

    def run(self):
        while True:
            try:
                self.certificates()
            except Exception as error:
                print(f"certificates: {error}", flush=True)
            try:
                self.ended()
            except Exception as error:
                print(f"ended pods: {error}", flush=True)
            for look, path, kind in self._kinds:
                try:
                    found = self._rest.items(f"/apis/ray.io/v1/{path}")
                except Exception as error:
                    print(f"{path}: {error}", flush=True)
                    continue
                for item in found:
                    try:
                        look({"apiVersion": "ray.io/v1", "kind": kind, **item})
                    except Refused as error:
                        if error.status not in (404, 409):
                            print(f"{item['metadata']['name']}: {error}", flush=True)
                    except Exception:
                        traceback.print_exc()
            time.sleep(EVERY_S)

    def certificates(self):
        """Puts the API server's certificate where pods find it: the test node's own controllers do not."""
        for cluster in self._rest.items("/apis/ray.io/v1/rayclusters"):
            configmaps = f"/api/v1/namespaces/{cluster['metadata']['namespace']}/configmaps"
            if self._rest.get(f"{configmaps}/{CERTIFICATE}") is None:
                text = base64.b64decode(self._certificate).decode()
                self._rest.make(configmaps, {"metadata": {"name": CERTIFICATE}, "data": {"ca.crt": text}})
        types = "fieldSelector=type%3Dkubernetes.io/service-account-token"
        for secret in self._rest.items(f"/api/v1/secrets?{types}"):
            if "ca.crt" not in secret.get("data", {}):
                meta = secret["metadata"]
                path = f"/api/v1/namespaces/{meta['namespace']}/secrets/{meta['name']}"
                self._rest.merge(path, {"data": {"ca.crt": self._certificate}})

    def ended(self):
        """Removes deleted pods whose containers have ended.

        Kubelet 1.20 does that once it has removed the containers: of many pods only with its next collection of
        garbage, up to a minute later, for which every rollback would wait.
        """
        for pod in self._rest.items("/api/v1/pods"):
            meta, states = pod["metadata"], [one["state"] for one in pod["status"].get("containerStatuses", [])]
            if "deletionTimestamp" in meta and states and all("terminated" in state for state in states):
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
                only = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
                with contextlib.suppress(Refused):  # it has gone
                    self._rest.send("DELETE", path, only)


if __name__ == "__main__":
    print("the stand-in for KubeRay runs", flush=True)
    config = Path(os.environ["KUBECONFIG"])
    certificate = (config.parent / "pki/serving/apiserver.crt").read_bytes()
    sys.exit(Operator(Rest(config), certificate).run())
