"""A node without containers: pods become ready at once; the migration's command is run here, on the real database."""

import base64
import os
import subprocess
import threading
from datetime import UTC, datetime

CAPACITY = {"cpu": "16", "memory": "64Gi", "pods": "110"}


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class StandingNode:
    """Reports pods of every namespace as running, and Jobs' pods as what their command really ended with.

    Args:
        plane: The control plane.
        commands: First words of a container's command -> what is run here instead of them.
        missing: A tag of images that cannot be pulled: their pods stay pending.
    """

    def __init__(self, plane, commands, missing=None):
        self._missing = f":{missing}"
        self._commands = commands
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(what, seconds), daemon=True)
            for what, seconds in ((self._look, 0.3), (self._beat, 5.0))
        ]
        self._send = plane.send
        self.ran: list[tuple[str, int, str]] = []
        self.failure: Exception | None = None

    def __enter__(self):
        self._send("POST", "/api/v1/nodes", {"metadata": {"name": "node-0"}}, ok=(201, 409))
        self._beat()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        assert self.failure is None, self.failure

    def _beat(self):
        condition = {"type": "Ready", "status": "True", "reason": "Standing", "message": ""}
        condition |= {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
        body = {"status": {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": [condition]}}
        self._send("PATCH", "/api/v1/nodes/node-0/status", body, content="application/strategic-merge-patch+json")

    def _repeat(self, what, seconds):
        try:
            while not self._stop.wait(seconds):
                what()
        except Exception as error:
            self.failure = error

    def _look(self):
        _, found = self._send("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-0")
        for pod in found["items"]:
            self._see(pod)

    def _see(self, pod):
        about = pod["metadata"]
        path = f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}"
        if "deletionTimestamp" in about:
            self._send("DELETE", path, {"gracePeriodSeconds": 0}, ok=(200, 404))
        elif any(container["image"].endswith(self._missing) for container in pod["spec"]["containers"]):
            return
        elif pod["status"].get("phase") == "Pending":
            once = any(owner["kind"] == "Job" for owner in about.get("ownerReferences", []))
            code = self._execute(pod) if once else None
            self._report(path, pod, code)

    def _execute(self, pod) -> int:
        container = pod["spec"]["containers"][0]
        command = container["command"]
        argv = [*self._commands[command[0]], *command[1:]]
        env = {item["name"]: self._value(pod, item) for item in container.get("env", [])}
        done = subprocess.run(argv, env={**os.environ, **env}, capture_output=True, text=True, check=False, timeout=120)
        self.ran.append((" ".join(command), done.returncode, done.stderr))
        return done.returncode

    def _value(self, pod, item) -> str:
        if "value" in item:
            return item["value"]
        reference = item["valueFrom"]["secretKeyRef"]
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/secrets/{reference['name']}"
        return base64.b64decode(self._send("GET", path)[1]["data"][reference["key"]]).decode()

    def _report(self, path, pod, code):
        ready = code is None
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
        state = {"running": {"startedAt": now()}} if ready else {"terminated": ended}
        running = {"imageID": "", "restartCount": 0, "ready": ready, "started": ready, "state": state}
        phase = "Running" if ready else "Succeeded" if code == 0 else "Failed"
        kinds = ("Initialized", "PodScheduled", "ContainersReady", "Ready")
        status = {
            "phase": phase,
            "podIP": "127.0.0.1",
            "startTime": now(),
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now()} for kind in kinds],
            "containerStatuses": [
                {"name": item["name"], "image": item["image"], **running} for item in pod["spec"]["containers"]
            ],
        }
        content = "application/merge-patch+json"
        self._send("PATCH", f"{path}/status", {"status": status}, ok=(200, 404), content=content)
