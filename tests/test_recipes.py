"""The recipes: files are taken out of the pages, written into a copy of the repository, and do what the pages promise.

What stands before a block is its file: new for python and toml, changed in one place for diff.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.launchers.base import Launch, Launcher, launchers
from service.server import compose
from tests.clients import EveryClient
from tests.commands.processes import Processes
from tests.ports import free_port
from tests.waiting import until

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "CONTRIBUTING.md"
PAGES = {page.stem: page for page in sorted((ROOT / "docs" / "contributing").glob("*.md"))}
COPIED = ("driftline", "search_spaces", "service", "trainers", "tests", "docs", "examples", "pyproject.toml")
PACKAGE = "package"
"""Folder of the copy with the package of one's own, which pip installs into `site` beside the copy."""
VERSIONS = ROOT / "service" / "store" / "migrations" / "versions"
FEWEST = {
    "column": 9,
    "method": 12,
    "model": 7,
    "optimizer": 19,
    "report": 15,
    "route": 3,
    "sampler": 3,
    "schedule": 3,
    "task": 1,
}
"""Tests that the commands of a page must find at least: its own, and those of the contract suites."""


def text(page: Path) -> str:
    """A page; the migration of the recipe comes after the newest one that there is."""
    newest = max(int(path.name[:4]) for path in VERSIONS.glob("[0-9]*.py"))
    return page.read_text(encoding="utf-8").replace("0005", f"{newest + 1:04d}").replace("0004", f"{newest:04d}")


def blocks(page: Path) -> Iterator[tuple[str, str, str]]:
    """(file, language, content) of every block that has a file."""
    file = None
    for found in re.finditer(r"^`(\S+)`$|^```(\w+)\n(.*?)^```$", text(page), re.DOTALL | re.MULTILINE):
        if found[1]:
            file = found[1]
        elif file is not None:
            yield file, found[2], found[3]


def commands(page: Path) -> list[str]:
    return re.findall(r"^    ((?:python|driftline|make|pip) .*)$", text(page), re.MULTILINE)


def written(folder: Path, page: Path) -> list[str]:
    """Writes a page's files and changes into a folder; the new files."""
    files = []
    for file, language, content in blocks(page):
        path = folder / (f"{PACKAGE}/{file}" if page == GUIDE or file.startswith("my_driftline/") else file)
        if language == "diff":
            lines = content.splitlines(keepends=True)
            before, after = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
            old = path.read_text(encoding="utf-8")
            assert old.count(before) == 1, f"{page.name}: this must be once in {file}:\n{before}"
            path.write_text(old.replace(before, after), encoding="utf-8")
            continue
        assert not path.exists(), path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        files.append(str(path.relative_to(folder)))
    return files


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with the files of all recipes."""
    folder = tmp_path_factory.mktemp("recipes") / "repository"
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    new = [file for page in (GUIDE, *PAGES.values()) for file in written(folder, page)]
    (folder / "new.txt").write_text("\n".join(new))
    return folder


@pytest.fixture(scope="module")
def site(copy: Path) -> Path:
    """A folder in which the package of one's own is installed."""
    pytest.importorskip("setuptools", reason="install setuptools to build the package of the recipes")
    folder = copy.parent / "site"
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    pip = [sys.executable, "-m", "pip", "install", *offline, "--target", str(folder), str(copy / PACKAGE)]
    subprocess.run(pip, check=True, timeout=120)
    return folder


def environment(copy: Path, site: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{copy}:{site}", "OMP_NUM_THREADS": "1"}


def called(command: str, copy: Path, site: Path) -> str:
    """What a command of a page prints, in the copy and with its code."""
    line, _, target = command.partition(" > ")
    words = shlex.split(line)
    start = {"python": [sys.executable], "driftline": [sys.executable, "-m", "service.cli"]}[words[0]]
    run = [*start, *words[1:]]
    done = subprocess.run(run, cwd=copy, env=environment(copy, site), capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    if target:
        (copy / target).write_text(done.stdout, encoding="utf-8")
    return done.stdout


def test_the_index_names_every_page() -> None:
    listed = re.findall(r"\]\(docs/contributing/(\w+)\.md\)", GUIDE.read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(PAGES) == sorted([*FEWEST, "launcher"])


@pytest.mark.slow  # a process for each command, which collects the suites of a folder
@pytest.mark.parametrize("name", FEWEST)
def test_the_contract_suites_run_on_the_example(name: str, copy: Path, site: Path) -> None:
    printed = [called(one, copy, site) for one in commands(PAGES[name]) if one.startswith("python -m pytest ")]
    counts = [re.search(r"^(\d+) passed", text, re.MULTILINE) for text in printed]
    assert all(counts), printed
    assert sum(int(count[1]) for count in counts if count) >= FEWEST[name]


def test_the_examples_are_on_the_page_and_in_the_command(copy: Path, site: Path) -> None:
    (catalogue,) = {command for page in PAGES.values() for command in commands(page) if "catalogue" in command}
    called(catalogue, copy, site)
    page = (copy / "docs" / "methods.md").read_text(encoding="utf-8")
    assert "| [client_momentum](#client_momentum) | Client momentum: a share of the last round's mean gradient" in page
    assert "| one a round, the model and m down and a pseudo-gradient up |" in page
    assert "| `momentum` | share of the last mean | in [0, 1) |  | 0.5 | 0 is FedAvg |" in page
    assert "| [adamax](#adamax) | " in page
    assert "| [exponential](#exponential) | " in page


IN_ONE_PROCESS = """
import json, shlex, sys
from typer.testing import CliRunner
from service.cli.main import app
print(json.dumps([CliRunner().invoke(app, shlex.split(command)[1:]).stdout for command in sys.argv[1:]]))
"""


def test_the_first_commands_of_the_recipes_print_what_the_pages_show(copy: Path, site: Path) -> None:
    shown: dict[str, list[str]] = {}
    for name in ("launcher", "method", "optimizer", "schedule", "task"):
        block = re.search(r"^```text\n\$ ([^\n]+)\n(.*?)^```$", text(PAGES[name]), re.DOTALL | re.MULTILINE)
        assert block is not None
        shown[block[1]] = [line for line in block[2].splitlines() if line != "..."]
    launcher, *others = shown
    words = shlex.join(["python", "-c", IN_ONE_PROCESS, *others])
    printed = [called(launcher, copy, site), *json.loads(called(words, copy, site))]
    for lines, found in zip(shown.values(), printed, strict=True):
        assert lines
        assert [line for line in lines if line not in found.splitlines()] == []
    assert "  no local_epochs       m is a mean over local_steps\n" in printed[1]


def tool(name: str) -> str:
    """A program of the development environment, where it is installed."""
    found = shutil.which(name, path=Path(sys.executable).parent)
    return found or pytest.skip(f"needs {name}: make check")


def test_the_examples_pass_the_linter(copy: Path) -> None:
    files = [file for file in (copy / "new.txt").read_text().split() if file.endswith(".py")]
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run([tool("ruff"), *command, *files], cwd=copy, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow  # reads the types of the whole repository, unless `make check` has left what it has read
@pytest.mark.timeout(1500)
def test_the_examples_pass_types_and_layers(copy: Path, site: Path) -> None:
    if (ROOT / ".mypy_cache").is_dir():
        shutil.copytree(ROOT / ".mypy_cache", copy / ".mypy_cache")
    for command in ([tool("mypy")], [tool("mypy"), f"{PACKAGE}/my_driftline"], [tool("lint-imports")]):
        own = {**os.environ, "PYTHONPATH": str(copy), "MYPYPATH": str(copy)}
        done = subprocess.run(command, cwd=copy, env=own, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


# ---- the launcher, against stand-ins of Slurm's programs

SLURM = """
import os, pathlib, signal, subprocess, sys

jobs = pathlib.Path(__file__).parent / "jobs"
options = dict(word.removeprefix("--").partition("=")[::2] for word in sys.argv[2:])
job = jobs / options.get("job-name", options.get("name", ""))

def alive(pid):
    try:
        return ") Z " not in pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False

running = {path.name: int(path.read_text()) for path in jobs.iterdir()}
running = {name: pid for name, pid in running.items() if alive(pid)}
if sys.argv[1] == "sbatch":
    kept = {name: os.environ[name] for name in options["export"].split(",") if name in os.environ}
    nodes = {"PYTHONPATH": os.environ["PYTHONPATH"], "RAY_AUTH_MODE": "disabled", "OMP_NUM_THREADS": "1"}
    log = (pathlib.Path(__file__).parent / "log").open("ab")
    shell = ["sh", "-c", options["wrap"]]
    streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
    job.write_text(str(subprocess.Popen(shell, env={**kept, **nodes}, start_new_session=True, **streams).pid))
elif sys.argv[1] == "squeue":
    shown = [name for name in running if options.get("name") in (None, name)]
    print(*(name if options["format"] == "%j" else "RUNNING" for name in shown))
elif job.name in running:
    os.killpg(running[job.name], signal.SIGKILL if options.get("signal") == "KILL" else signal.SIGTERM)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A folder with `sbatch`, `squeue` and `scancel`."""
    folder = tmp_path / "slurm"
    (folder / "jobs").mkdir(parents=True)
    (folder / "slurm.py").write_text(SLURM)
    for name in ("sbatch", "squeue", "scancel"):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {folder}/slurm.py {name} "$@"\n')
        program.chmod(0o755)
    return folder


@pytest.fixture
def slurm(site: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    """The launcher of the page, with a program that sleeps in place of Python."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PATH", f"{cluster}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("DRIFTLINE_SECRET", "of the service alone")
    launchers.cache_clear()
    kind = compose.launcher_kind("slurm")
    driver = cluster / "driver"
    driver.write_text('#!/bin/sh\necho "$@" "token=$DRIFTLINE_TOKEN" "secret=$DRIFTLINE_SECRET"\nexec sleep 600\n')
    driver.chmod(0o755)
    config = kind.Config.from_json({"python": str(driver), "cpus": 2})
    launcher = kind.build(config, url="http://api:8080", checkpoints="/shared", logs=cluster)
    yield launcher
    launcher.collect(())
    launcher.close()
    launchers.cache_clear()
    sys.modules.pop("my_driftline.slurm", None)
    sys.modules.pop("my_driftline", None)


def test_the_launcher_of_the_page_starts_and_ends_drivers(slurm: Launcher, cluster: Path) -> None:
    first, second = (Launch(name, name, "default", f"token-{name}", attempt=1) for name in ("a", "b"))
    assert not slurm.seen("a").alive
    slurm.start(first)
    slurm.start(first)
    slurm.start(second)
    assert slurm.seen("a").alive
    said = until(lambda: len(lines := (cluster / "log").read_text().splitlines()) == 2 and lines)
    options = "--url=http://api:8080 --folder=/shared --num-cpus=2"
    assert sorted(said) == [
        f"-P -m service.driver {options} --study={name} token=token-{name} secret=" for name in ("a", "b")
    ]
    slurm.collect(["a"])
    until(lambda: not slurm.seen("b").alive)
    assert slurm.seen("a").alive
    slurm.stop("a")
    until(lambda: not slurm.seen("a").alive)
    slurm.start(first)
    slurm.kill("a")
    until(lambda: not slurm.seen("a").alive)
    slurm.stop("a")
    slurm.kill("a")


@pytest.mark.slow  # starts Ray
@pytest.mark.ray
def test_a_study_runs_through_the_launcher_of_the_page(site: Path, cluster: Path, tmp_path: Path) -> None:
    (cluster / "slurm.yaml").write_text(f"python: {sys.executable}\ncpus: 2\n")
    processes = Processes(
        tmp_path / "home",
        PATH=f"{cluster}:{os.environ['PATH']}",
        PYTHONPATH=f"{ROOT}:{site}",
        DRIFTLINE_LAUNCHER="slurm",
        DRIFTLINE_LAUNCHER_CONFIG=str(cluster / "slurm.yaml"),
        DRIFTLINE_ADMIN_TOKEN="admin",
        DRIFTLINE_MLFLOW_URL="none",
    )
    study = {
        "name": "small",
        "task": {"name": "quadratic", "problem": "two_clients"},
        "methods": [{"name": "fedsgd", "space": {"server_lr": {"float": [0.01, 0.1]}}}],
        "sampler": {"name": "half_best", "keep": 0.8},
        "budget": {"trials_per_method": 3, "rounds": 5, "seeds": 0},
        "resources": {"gpu": 0},
    }
    port = free_port()
    try:
        processes.start("--port", str(port))
        until(lambda: processes.ready(port), 120)
        with EveryClient(f"http://127.0.0.1:{port}", "admin", patience_s=60) as client:
            made = client.create(study).id
            until(lambda: client.study(made).state == "SUCCEEDED", 240, lambda: (cluster / "log").read_text())
    finally:
        processes.end()


# ---- the service, while one works on it


def test_the_service_runs_as_the_guide_says(tmp_path: Path) -> None:
    section = GUIDE.read_text(encoding="utf-8").partition("## Run the service")[2].partition("\n## ")[0]
    port, home = str(free_port()), str(tmp_path / "home")
    halves = section.replace("8099", port).replace("/tmp/driftline-dev", home).split("In another terminal")
    server, user = (re.findall(r"^    (.*)$", half, re.MULTILINE) for half in halves)
    server[-1] = f"exec {server[-1]}"  # so that a signal reaches it
    shown = [line for line in user if not line.startswith(("driftline submit", "tail"))]
    assert len(shown) == len(user) - 2
    plain = {name: value for name, value in os.environ.items() if not name.startswith("DRIFTLINE_")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {**plain, "PATH": path, "PYTHONPATH": str(ROOT), "DRIFTLINE_MLFLOW_URL": "none"}
    process = subprocess.Popen(["bash", "-ec", "\n".join(server)], env=own)
    try:
        until(lambda: Processes(tmp_path).ready(int(port)), 120)
        script = ["bash", "-ec", "\n".join(shown)]
        done = subprocess.run(script, env=own, capture_output=True, text=True, timeout=120)
    finally:
        process.terminate()
        process.wait(60)
    assert done.returncode == 0, done.stderr
    assert "default" in done.stdout
    assert '"studies":[]' in done.stdout
    assert "alembic_version" in done.stdout
