"""A registry on this computer, and images that are pushed to it from their archives."""

import json
import subprocess
import tarfile
import time

import urllib3
import yaml


class LocalRegistry:
    """A registry (Debian's docker-registry) that speaks plain HTTP, as clients expect of localhost.

    Args:
        folder: Where it keeps everything.
        port: Where it listens.
        enter: The beginning of a command line that runs in another network.
    """

    def __init__(self, folder, port, enter=()):
        self.folder = folder
        self.address = f"localhost:{port}"
        self._enter = enter
        self._process = None
        self._pool = urllib3.PoolManager(retries=False, timeout=60, blocksize=1 << 20)

    def start(self):
        """Starts it; call this, and what sends requests, in its network."""
        self.folder.mkdir(exist_ok=True)
        settings = {
            "version": "0.1",
            "storage": {"filesystem": {"rootdirectory": str(self.folder)}},
            "http": {"addr": self.address.replace("localhost", "127.0.0.1")},
        }
        file = self.folder / "registry.yaml"
        file.write_text(yaml.safe_dump(settings))
        log = self.folder / "log"
        with log.open("wb") as output:
            command = [*self._enter, "docker-registry", "serve", str(file)]
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        deadline = time.monotonic() + 120
        while True:
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            try:
                self._ask("GET", "/v2/")
                return
            except urllib3.exceptions.HTTPError:
                time.sleep(0.1)

    def stop(self):
        """Ends it, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def push(self, archive, name, tag, base=""):
        """Pushes the image of an OCI archive.

        Args:
            archive: Its path.
            name: Name of the image.
            tag: Its tag.
            base: Name of an image that is there already, whose layers need not be in the archive.
        """
        with tarfile.open(archive) as tar:

            def blob(digest):
                return tar.extractfile(f"blobs/{digest.replace(':', '/')}")

            [image] = json.load(tar.extractfile("index.json"))["manifests"]
            text = blob(image["digest"]).read()
            manifest = json.loads(text)
            for one in (manifest["config"], *manifest["layers"]):
                start = f"/v2/{name}/blobs/uploads/?mount={one['digest']}&from={base or name}"
                answer = self._ask("POST", start)
                if answer.status == 202:  # 201: it is there
                    where = f"{answer.headers['Location']}&digest={one['digest']}"
                    headers = {"Content-Length": str(one["size"]), "Content-Type": "application/octet-stream"}
                    self._ask("PUT", where, body=blob(one["digest"]), headers=headers)
            self._ask("PUT", f"/v2/{name}/manifests/{tag}", body=text, headers={"Content-Type": image["mediaType"]})

    def digest(self, name, tag):
        """The digest of an image."""
        headers = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
        return self._ask("HEAD", f"/v2/{name}/manifests/{tag}", headers=headers).headers["Docker-Content-Digest"]

    def _ask(self, method, path, **options):
        url = path if path.startswith("http") else f"http://{self.address}{path}"
        answer = self._pool.request(method, url, **options)
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.data[:500]}"
        return answer
