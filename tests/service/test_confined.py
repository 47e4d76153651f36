"""A task of an installed package, submitted by a user, that says all it can reach from a check of the service."""

import json
from pathlib import Path

import pytest

from driftline.client.api_client import ApiClient
from driftline.errors import DriftlineError
from service import confined
from service.server import compose
from service.settings import read_service

SECRETS = {
    "DRIFTLINE_ADMIN_TOKEN": "admin-of-the-test",
    "DRIFTLINE_SECRET": "key-of-the-test",
    "DRIFTLINE_LATER": "secret-of-next-year",
    "PGPASSWORD": "password-of-the-test",
    "AWS_SECRET_ACCESS_KEY": "storage-of-the-test",
}
SPY = """
import ctypes, json, os, pathlib, socket
from trainers.errors import SpecError

HOME, PORT, AROUND = pathlib.Path({home!r}), {port}, pathlib.Path({around!r})
got = {{"environment": dict(os.environ), "read": {{}}, "reached": [], "written": []}}
own = pathlib.Path(os.environ["TMPDIR"])
files = [HOME / "admin-token", HOME / "secret", AROUND / "beside.txt"]
files += [AROUND / "data" / f"service.db{{end}}" for end in ("", "-wal", "-shm")]
files += [pathlib.Path("/proc") / pid / name for pid in os.listdir("/proc") if pid.isdigit() and pid != str(os.getpid())
          for name in ("environ", "mem", "maps", "root/etc/hostname", "cwd/pyproject.toml")]
for file in files:
    try:
        if text := file.read_text(errors="replace"):
            got["read"][str(file)] = text[:5]
    except OSError:
        pass
for folder in (AROUND, pathlib.Path.home(), pathlib.Path("/"), pathlib.Path("/tmp"), pathlib.Path("/root")):
    try:
        names = os.listdir(folder)
    except OSError:
        continue
    if folder != own:
        got["read"][str(folder)] = names
for family, address in ((socket.AF_INET, ("127.0.0.1", PORT)), (socket.AF_UNIX, "/run/x"), (socket.AF_NETLINK, None)):
    try:
        socket.socket(family)
        got["reached"].append(str(family))
    except OSError:
        pass
for file in (HOME / "x", AROUND / "x", pathlib.Path(__file__).parent / "x", pathlib.Path("/tmp/driftline-x")):
    try:
        file.write_text("")
        got["written"].append(str(file))
    except OSError:
        pass
if ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0:
    got["reached"].append("ptrace")
(own / "mine").write_text("")
got["data"] = (AROUND / "data" / "points.txt").read_text()
raise SpecError("REPORT" + json.dumps(got), "task")
"""


def test_a_task_reaches_no_secret_of_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not confined.landlock_version():
        pytest.skip("this kernel has no Landlock")
    plugins = tmp_path / "plugins"
    home = plugins / "home"  # as ./driftline-home in a project that is installed in place
    (plugins / "spy-1.dist-info").mkdir(parents=True)
    (plugins / "spy-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: spy\nVersion: 1\n")
    (plugins / "spy-1.dist-info" / "entry_points.txt").write_text("[driftline.tasks]\nspy = spy\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "points.txt").write_text("data")
    (tmp_path / "beside.txt").write_text("not of the data")
    for name, value in {**SECRETS, "PYTHONPATH": str(plugins), "DATA_DIR": str(tmp_path / "data")}.items():
        monkeypatch.setenv(name, value)
    database = f"sqlite:///{tmp_path / 'data' / 'service.db'}"
    names = {"HOME": str(home), "MLFLOW_URL": "none", "DATABASE_URL": database}
    settings = read_service({f"DRIFTLINE_{name}": value for name, value in names.items()})
    service = compose.Service(settings, host="127.0.0.1", port=0, only="api")
    try:
        port = int(service.url.rpartition(":")[2])
        (plugins / "spy.py").write_text(SPY.format(home=str(home), port=port, around=str(tmp_path)))
        assert (home / "secret").exists()
        assert (tmp_path / "data" / "service.db").exists()
        with ApiClient(service.url, (home / "admin-token").read_text().strip()) as client:
            study = {
                "name": "spy",
                "task": {"name": "spy"},
                "methods": [{"name": "fedavg", "space": {"client_lr": 0.1}}],
                "budget": {"trials_per_method": 1, "rounds": 1, "seeds": 1},
            }
            with pytest.raises(DriftlineError) as answer:
                client.create(study)
    finally:
        service.close()
    report = json.loads(str(answer.value).partition("REPORT")[2])
    assert report["data"] == "data"
    assert set(report["environment"]) & set(SECRETS) == set()
    assert not any(secret in json.dumps(report) for secret in SECRETS.values())
    assert report["read"] == {}
    assert report["reached"] == []
    assert report["written"] == []
