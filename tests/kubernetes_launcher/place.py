"""A namespace of a real API server, with launchers that work in it."""

from service.launchers.kubernetes.launcher import KubernetesLauncher
from tests.kubernetes_launcher.made import config
from tests.waiting import until


class Place:
    """One namespace with a launcher."""

    def __init__(self, plane, **settings):
        self.plane = plane
        self.namespace = plane.namespace()
        self.settings = {"orphan_seconds": 0, **settings}
        self._launchers = []
        self.launcher = self.another()

    def another(self):
        """Another launcher for the same namespace, as a second scheduler has it."""
        made = KubernetesLauncher(
            config(**self.settings), self.plane.api(self.namespace), url="http://api:8080", folder="s3://bucket/x"
        )
        self._launchers.append(made)
        return made

    def jobs(self):
        found = self.plane.send("GET", f"/apis/ray.io/v1/namespaces/{self.namespace}/rayjobs")[1]["items"]
        return {job["metadata"]["name"]: job for job in found}

    def secrets(self):
        found = self.plane.send("GET", f"/api/v1/namespaces/{self.namespace}/secrets")[1]["items"]
        return {item["metadata"]["name"]: item for item in found if item["type"] == "Opaque"}

    def until(self, study, expected):
        """Waits until the launcher sees a driver so."""
        until(lambda: self.launcher.seen(study) == expected, 60, lambda: self.launcher.seen(study))

    def close(self):
        for made in self._launchers:
            made.close()
