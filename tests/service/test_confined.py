"""What a check of the service, and a driver on this machine, can reach: data and libraries, and no secret."""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from driftline.client.api_client import ApiClient
from driftline.errors import DriftlineError, InvalidSpec
from service import confined
from service.child_process import ChildProcess
from service.launchers import local
from service.launchers.base import Launch
from service.server import compose
from service.settings import read_service
from tests.waiting import until

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
    report = json.loads(str(answer.value).partition("REPORT")[2].splitlines()[0])
    assert report["data"] == "data"
    assert set(report["environment"]) & set(SECRETS) == set()
    assert not any(secret in json.dumps(report) for secret in SECRETS.values())
    assert report["read"] == {}
    assert report["reached"] == []
    assert report["written"] == []


DRIVER = """
import json, os, pathlib
got = {"environment": dict(os.environ), "read": []}
for file in json.loads(os.environ["RAY_FILES"]):
    try:
        pathlib.Path(file).read_text()
        got["read"].append(file)
    except OSError:
        pass
pathlib.Path(os.environ["TMPDIR"], "mine").write_text("")
print("REPORT" + json.dumps(got), flush=True)
"""


def test_a_driver_on_this_machine_reaches_the_token_of_its_study_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not confined.landlock_version():
        pytest.skip("this kernel has no Landlock")
    home, modules = tmp_path / "home", tmp_path / "modules"
    files = [home / name for name in ("admin-token", "secret", "driftline.db", "logs/other.log")]
    files += [tmp_path / "service.db", home / "checkpoints" / "mine", tmp_path / "data.txt"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    files.append(Path(f"/proc/{os.getpid()}/environ"))
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(DRIVER)  # of the program that confines, and then of the driver
    for name, value in {**SECRETS, "PYTHONPATH": str(modules), "RAY_FILES": json.dumps([*map(str, files)])}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DRIFTLINE_DATABASE_URL", f"sqlite:///{tmp_path / 'service.db'}")
    launcher = local.build(
        local.Config(inherit=["PGPASSWORD"]),
        url="http://127.0.0.1:1",
        checkpoints=str(home / "checkpoints"),
        logs=home / "logs",
    )
    with pytest.raises(
        InvalidSpec, match=r"^program\.secrets: must be variables of the service, which has none named K"
    ):
        launcher.start(Launch("two", "small", "default", "token-of-two", attempt=1, secrets=("KEY",)))
    launcher.start(Launch("one", "small", "default", "token-of-one", attempt=1, secrets=("RAY_FILES",)))
    try:
        until(lambda: (home / "logs" / "one.log").read_text().count("REPORT") == 2, 60)
    finally:
        launcher.end(0.1)
    report = json.loads((home / "logs" / "one.log").read_text().split("REPORT")[2].splitlines()[0])
    assert report["read"] == [str(home / "checkpoints" / "mine"), str(tmp_path / "data.txt")]
    environment = report["environment"]
    assert environment["DRIFTLINE_TOKEN"] == "token-of-one"
    assert environment["DRIFTLINE_SECRET_RAY_FILES"] == environment["RAY_FILES"]
    assert set(environment) & {*SECRETS, "DRIFTLINE_DATABASE_URL"} == {"PGPASSWORD"}  # which the operator passes on


OLD_KERNEL = """
import json, os, pathlib, socket, sys
from service import confined
confined.landlock_version = lambda: 0
confined.hide_process()
service = os.getpid()
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
root = os.geteuid() == 0
confined.confine([], [], [])
got = []
for file in (f"/proc/{service}/environ", f"/proc/{service}/mem", *([sys.argv[1]] if root else ())):
    try:
        got.append(pathlib.Path(file).open().name)
    except OSError:
        pass
for family in (socket.AF_INET, socket.AF_UNIX):
    try:
        socket.socket(family)
        got.append(str(family))
    except OSError:
        pass
print(json.dumps([root, os.getuid(), got]))
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="sockets are refused on these only")
def test_without_landlock_no_sockets_and_no_memory_of_the_service(tmp_path: Path) -> None:
    secret = tmp_path / "admin-token"
    secret.write_text("x")
    secret.chmod(0o600)
    ran = subprocess.run([sys.executable, "-P", "-c", OLD_KERNEL, secret], capture_output=True, text=True, check=True)
    root, user, got = json.loads(ran.stdout)
    assert user == (confined.NOBODY if root else os.getuid())
    assert got == []


CHILD = """
import json, logging, pathlib, tempfile
from service.child_process import answer_lines

def text(file):
    try:
        return pathlib.Path(file).read_text()
    except OSError:
        return ""

def answer(line):
    logging.warning("of somebody else: \\x1b[2J")
    tempfile.TemporaryFile().close()
    return json.dumps([text(file) for file in json.loads(line)])

answer_lines(answer, 60)
"""


def test_a_check_reads_linked_data_and_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if not confined.landlock_version():
        pytest.skip("this kernel has no Landlock")
    data, modules, library, disk = (tmp_path / name for name in ("data", "modules", "library", "disk"))
    for folder in (data / "letters", modules, library, disk / "digits", disk / "home"):
        folder.mkdir(parents=True)
    files = [data / "digits" / "a", data / "letters" / "b", library / "c", data / "home" / "secret", disk / "aside"]
    (data / "digits").symlink_to(disk / "digits")
    (data / "home").symlink_to(disk / "home")
    (data / "letters" / "b").symlink_to(disk / "b")
    (data / "loop").symlink_to(data / "loop")
    (data / "up").symlink_to(tmp_path)
    for file in files:
        file.write_text(file.name)
    (modules / "reader.py").write_text(CHILD)
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    child = ChildProcess("reader", what="reads", readable=[data], hidden=[disk / "home"])
    try:
        assert json.loads(child.ask(json.dumps([str(file) for file in files]), 60)) == ["a", "b", "c", "", ""]
    finally:
        child.end()
    assert re.search(r"^[-0-9]+ [0-9:,]+Z WARNING of somebody else: \\u001b\[2J$", capfd.readouterr().err, re.MULTILINE)


def test_root_without_landlock_runs_no_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(confined, "landlock_version", lambda: 0)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(InvalidSpec, match="start the service with another account"):
        local.build(local.Config(), url="", checkpoints=str(tmp_path), logs=tmp_path / "logs")
