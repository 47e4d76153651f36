"""A real Kubernetes API server, scheduler and controllers as processes of this machine."""

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import urllib3
import yaml

from service.launchers.kubernetes.api_server import Api
from tests.waiting import until

OWN_CERTIFICATE = pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
"""For tests of a server whose certificate is its own."""


class Plane:
    """The control plane in a folder.

    Args:
        folder: Where it keeps its files.
        kube: Folder with control_plane.py and the CRDs.
    """

    def __init__(self, folder: Path, kube: Path):
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._script = kube / "control_plane.py"
        self._crds = kube / "crds"
        self._children = []
        certificate = folder / "pki" / "serving" / "apiserver.crt"
        self._pool = urllib3.PoolManager(ca_certs=str(certificate), assert_hostname=False, retries=False, maxsize=4)

    def start(self):
        command = [sys.executable, str(self._script), "start", str(self.folder), "--service-accounts"]
        subprocess.run(command, check=True, capture_output=True, timeout=180)
        for name in ("rayjobs", "rayclusters"):
            with (self._crds / f"{name}.stripped.yaml").open() as file:
                crd = yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            self.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd, ok=(201, 409))
        until(lambda: self.send("GET", "/apis/ray.io/v1/rayjobs", ok=(200, 404))[0] == 200)

    def stop(self):
        self._pool.clear()
        for child in self._children:
            child.kill()
            child.wait()
        subprocess.run([sys.executable, str(self._script), "stop", str(self.folder)], check=True, timeout=60)

    def send(self, method, path, body=None, *, ok=(200, 201, 202), content="application/json"):
        """A request as cluster administrator."""
        server = json.loads(self.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        headers = {"Authorization": "Bearer admin-token", "Content-Type": content}
        text = json.dumps(body) if body is not None else None
        answer = self._pool.request(method, server + path, body=text, headers=headers)
        found = answer.json() if "json" in answer.headers.get("Content-Type", "") else answer.data
        assert answer.status in ok, (method, path, answer.status, found)
        return answer.status, found

    def namespace(self):
        """A fresh namespace, with its default ServiceAccount."""
        name = f"t-{uuid.uuid4().hex[:10]}"
        self.send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        until(lambda: self.send("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default", ok=(200, 404))[0] == 200)
        return name

    def api(self, namespace):
        """The launcher's access as cluster administrator."""
        return Api.connect(str(self.kubeconfig), None, namespace)

    def kubeconfig_of(self, namespace, account):
        """A kubeconfig with the token of a ServiceAccount."""
        asked = {"spec": {"audiences": ["https://kubernetes.default.svc"]}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        kubeconfig = json.loads(self.kubeconfig.read_text())
        kubeconfig["users"][0]["user"] = {"token": self.send("POST", path, asked)[1]["status"]["token"]}
        file = self.folder / f"{namespace}-{account}.kubeconfig"
        file.write_text(json.dumps(kubeconfig))
        return file

    def api_of(self, namespace, account):
        """The launcher's access as a ServiceAccount."""
        return Api.connect(str(self.kubeconfig_of(namespace, account)), None, namespace)

    def status(self, namespace, name, **status):
        """Writes a RayJob's status, as KubeRay would."""
        path = f"/apis/ray.io/v1/namespaces/{namespace}/rayjobs/{name}/status"
        self.send("PATCH", path, {"status": status}, content="application/merge-patch+json")

    def kill_apiserver(self):
        """Ends the API server at once; gives what `revive` needs."""
        pids = json.loads((self.folder / "pids.json").read_text())
        pid = pids["kube-apiserver"]
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
        os.kill(pid, signal.SIGKILL)
        until(lambda: not _runs(pid))
        return argv

    def revive(self, argv):
        """Starts the API server again, with the same database."""
        with (self.folder / "kube-apiserver-again.log").open("ab") as log:
            child = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        self._children.append(child)
        until(self._ready, seconds=90)

    def _ready(self):
        try:
            return self.send("GET", "/readyz", ok=(200, 500, 403))[0] == 200
        except urllib3.exceptions.HTTPError:
            return False


def _runs(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
