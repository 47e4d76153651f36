"""Runs after `helm uninstall`: deletes the RayJobs of running studies, once no scheduler is left to start them again.

Waits until KubeRay has removed their Ray clusters, and deletes the pod of `helm test`.
"""

import json
import os
import pathlib
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVER = os.environ.get("KUBERNETES_API")
SERVER = SERVER or f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
PODS = f"/api/v1/namespaces/{os.environ['NAMESPACE']}/pods"
RAYJOBS = [f"/apis/ray.io/v1/namespaces/{name}/rayjobs" for name in os.environ["STUDIES_NAMESPACES"].split(",")]
DEADLINE = time.monotonic() + float(os.environ.get("TIMEOUT_S", "200"))

headers, handlers = {}, [urllib.request.ProxyHandler({})]
if SERVER.startswith("https"):
    headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"}
    handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ACCOUNT / "ca.crt")))
opener = urllib.request.build_opener(*handlers)


def send(method, path):
    """The answer, {} where the object or its kind does not exist."""
    try:
        with opener.open(urllib.request.Request(SERVER + path, headers=headers, method=method), timeout=20) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                return {}
            sys.exit(f"{method} {path}: Kubernetes answers {error.code}: {error.read().decode(errors='replace')}")


def objects(path, selector):
    query = urllib.parse.urlencode({"labelSelector": selector})
    return [f"{path}/{item['metadata']['name']}" for item in send("GET", f"{path}?{query}").get("items", [])]


def wait(paths, selector, delete=False):
    """Waits until no such object is left, and deletes each once if asked to."""
    deleted = set()
    while left := [one for path in paths for one in objects(path, selector)]:
        if time.monotonic() > DEADLINE:
            sys.exit(f"still there: {', '.join(one.rpartition('/')[2] for one in left)}")
        for one in left if delete else ():
            if one not in deleted:
                send("DELETE", one)
                deleted.add(one)
                print(f"deleted {one.rpartition('/')[2]}", flush=True)
        time.sleep(0.5)


wait([PODS], os.environ["SCHEDULERS"])
wait(RAYJOBS, os.environ["RAYJOBS"], delete=True)
send("DELETE", f"{PODS}/{os.environ['TEST_POD']}")
