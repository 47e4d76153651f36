"""A Kubernetes API server as plain JSON, with an administrator's rights."""

import json
import warnings
from pathlib import Path

import urllib3


class Refused(Exception):
    """The API server said no.

    Args:
        status: HTTP status.
        message: What it said.
    """

    def __init__(self, status, message):
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class Rest:
    """The cluster of a kubeconfig with a token.

    Args:
        kubeconfig: Its path.
    """

    def __init__(self, kubeconfig):
        found = json.loads(Path(kubeconfig).read_text())
        self._server = found["clusters"][0]["cluster"]["server"]
        self._token = found["users"][0]["user"]["token"]
        warnings.filterwarnings("ignore", "Unverified HTTPS request")  # the test server's certificate is its own
        self._pool = urllib3.PoolManager(cert_reqs="CERT_NONE", retries=urllib3.Retry(2, backoff_factor=0.2))

    def send(self, method, path, body=None, content="application/json"):
        """A request; gives what was answered.

        Raises:
            Refused: With a status of 400 or more.
        """
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content}
        text = json.dumps(body) if body is not None else None
        answer = self._pool.request(method, self._server + path, body=text, headers=headers, timeout=30)
        found = answer.json() if "json" in answer.headers.get("Content-Type", "") else answer.data.decode()
        if answer.status >= 400:
            raise Refused(answer.status, found.get("message", found) if isinstance(found, dict) else found)
        return found

    def get(self, path):
        """An object, or None when there is none."""
        try:
            return self.send("GET", path)
        except Refused as error:
            if error.status == 404:
                return None
            raise

    def items(self, path):
        """The objects of a list."""
        return self.send("GET", path)["items"]

    def make(self, path, body):
        """Makes an object; one that is there already is left as it is."""
        try:
            return self.send("POST", path, body)
        except Refused as error:
            if error.status == 409:
                return None
            raise

    def merge(self, path, change):
        """Changes some fields of an object."""
        return self.send("PATCH", path, change, "application/merge-patch+json")

    def delete(self, path):
        """Deletes an object and what it owns; nothing happens when there is none."""
        try:
            self.send("DELETE", path, {"propagationPolicy": "Background"})
        except Refused as error:
            if error.status != 404:
                raise
