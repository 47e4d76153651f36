"""Ray's Jobs API, as KubeRay uses it."""

import base64

import urllib3


class Unreachable(Exception):
    """The dashboard does not answer, or not as it should."""


class Dashboard:
    """The dashboard of a head.

    Args:
        address: The head's address.
        secret: The Secret with Ray's token, as the API server has it.
    """

    def __init__(self, address, secret):
        token = base64.b64decode(secret["data"]["auth_token"]).decode()
        self._url = f"http://{address}:8265/api/jobs"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._pool = urllib3.PoolManager(retries=False)

    def job(self, job_id):
        """What Ray knows of a job; None when it does not know it."""
        return self._send("GET", f"/{job_id}", missing=404)

    def submit(self, job_id, spec):
        """Submits the entrypoint of a RayJob."""
        body = {"entrypoint": spec["entrypoint"], "submission_id": job_id}
        self._send("POST", "/", body)

    def stop(self, job_id):
        """Stops a job."""
        self._send("POST", f"/{job_id}/stop", missing=404)

    def _send(self, method, path, body=None, missing=None):
        try:
            answer = self._pool.request(method, self._url + path, json=body, headers=self._headers, timeout=10)
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(str(error)) from error
        if missing is not None and answer.status == missing:
            return None
        if answer.status >= 400:
            raise Unreachable(f"{method} {path}: {answer.status} {answer.data[:300]!r}")
        return answer.json()
