"""The Dockerfile and what is built from it."""

import json
import os
import re
import shutil
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest

from . import build_image
from .conftest import ROOT, lacking

DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_the_context_is_what_the_dockerfile_copies():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in ignored if line.startswith("!")} - {"build", "build/wheelhouse"}
    assert ignored[1] == "*"
    assert allowed == set(build_image.CONTEXT)
    copied = re.search(r"cp -r (.*) /tmp/source;", DOCKERFILE)
    assert set(copied[1].split()) | {"constraints.txt"} == allowed
    assert all((ROOT / name).exists() for name in allowed)


def test_the_image_is_of_this_version_and_runs_as_nobody():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"ARG VERSION={version}\n" in DOCKERFILE
    chart = (ROOT / "helm/driftline/Chart.yaml").read_text()
    assert f"appVersion: {version}\n" in chart
    assert DOCKERFILE.splitlines()[-3] == "USER 10001:10001"
    values = (ROOT / "helm/driftline/values.yaml").read_text()
    assert "userId: 10001" in values


def test_all_that_is_installed_is_pinned():
    """Extras that only the image has would otherwise come in any version."""
    pinned = {
        re.split("==", line)[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for wanted in [*project["dependencies"], *(line for name in extras.keys() - {"dev"} for line in extras[name])]:
        name = re.match(r"[A-Za-z0-9_.-]+", wanted)[0].lower().replace("_", "-")
        assert name in pinned or name == "driftline", f"{name} is not in constraints.txt"


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A folder with the archives; made here unless DRIFTLINE_IMAGES names one."""
    given = os.environ.get("DRIFTLINE_IMAGES")
    if given:
        return Path(given)
    missing = [name for name in build_image.TOOLS if shutil.which(name) is None]
    if missing or os.geteuid():
        lacking(f"building images needs root and: apt-get install {' '.join(build_image.TOOLS)}")
    folder = tmp_path_factory.mktemp("images")
    build_image.build(folder, ["driftline"])
    return folder


@pytest.fixture(scope="module")
def unpacked(images, tmp_path_factory):
    """The image's root file system and its settings."""
    root = tmp_path_factory.mktemp("image") / "root"
    root.mkdir()
    with tarfile.open(images / "driftline.tar") as archive:

        def blob(digest):
            return archive.extractfile(f"blobs/{digest.replace(':', '/')}")

        manifest = json.load(blob(json.load(archive.extractfile("index.json"))["manifests"][0]["digest"]))
        for layer in manifest["layers"]:
            how = "-xzf" if layer["mediaType"].endswith("gzip") else "-xf"
            with subprocess.Popen(["tar", "-C", root, how, "-"], stdin=subprocess.PIPE) as tar:
                shutil.copyfileobj(blob(layer["digest"]), tar.stdin, 1 << 20)
            assert tar.returncode == 0
        settings = json.load(blob(manifest["config"]["digest"]))["config"]
    yield root, settings
    subprocess.run(["rm", "-rf", root], check=True)  # much faster than Python for its many files


def inside(unpacked, *argv, check=True, **environment):
    """Runs a command in the image: as its user, its file system read-only but for /tmp and DRIFTLINE_HOME."""
    root, settings = unpacked
    mounts = [f"mount --bind {root} {root}", f"mount -o remount,ro,bind {root}"]
    writable = ("tmp", "var/lib/driftline", "dev")
    mounts += [f"mount -t tmpfs -o mode=1777 tmpfs {root}/{target}" for target in writable]
    mounts += [f"cp -a /dev/null /dev/zero /dev/urandom /dev/random {root}/dev/", f"mkdir -m 1777 {root}/dev/shm"]
    mounts.append(f"mount -t proc proc {root}/proc")
    env = {**dict(item.split("=", 1) for item in settings["Env"]), **environment}
    script = " && ".join([*mounts, f'cd / && exec chroot --userspec={settings["User"]} {root} "$@"'])
    command = ["unshare", "--mount", "--propagation", "private", "bash", "-c", script, "bash", *argv]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=240)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_image_runs_without_root_on_a_read_only_file_system(unpacked):
    _, settings = unpacked
    assert settings["User"] == "10001:10001"
    assert settings["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert settings["Labels"]["io.driftline.variant"] == "cpu"
    assert inside(unpacked, "id", "-u").stdout.strip() == "10001"
    assert inside(unpacked, "touch", "/opt/driftline/x", check=False).returncode != 0
    assert inside(unpacked, "driftline", "migrate").returncode == 0
    trial = {
        "task": {"name": "digits", "clients": 5, "partition": "iid"},
        "method": {"name": "fedavg", "client_lr": 0.1, "server_lr": 0.1, "local_steps": 2},
        "rounds": 3,
    }
    script = f"echo '{json.dumps(trial)}' | python -m trainers.run -"
    lines = [json.loads(line) for line in inside(unpacked, "sh", "-c", script).stdout.splitlines()]
    assert [line["round"] for line in lines] == [0, 1, 2, 3]
    parts = "ray, mlflow, h5py, pyarrow, kubernetes, psycopg, flask_wtf, matplotlib.pyplot"
    inside(unpacked, "python", "-c", f"import {parts}, service.api.app, service.driver.lifecycle")
    assert inside(unpacked, "which", "ray", "wget", "bash").stdout.count("\n") == 3


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_what_is_in_the_image_is_pinned(unpacked):
    text = inside(unpacked, "python", "-m", "pip", "list", "--format=json").stdout
    lines = (line.partition("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
    pinned = {name.lower().replace("_", "-"): version for name, _, version in lines}
    for found in json.loads(text):
        name = found["name"].lower().replace("_", "-")
        if name not in ("driftline", "pip"):
            assert pinned.get(name) == found["version"].partition("+")[0], name
