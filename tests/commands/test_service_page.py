"""docs/service.md, typed into terminals word for word: only ports, paths and what stands for something are replaced."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from service.api.auth.oidc import Oidc
from service.api.event_streams import StreamLimits
from service.api.rate_limits import Limits
from service.launchers.ray_jobs.launcher import Config as RayJobs
from tests.clients import EveryClient
from tests.commands.page import Page, Terminal
from tests.ports import free_port
from tests.service.conftest import Postgresql, postgresql
from tests.service.oidc_setup import Issuer, issuing
from tests.waiting import until

__all__ = ["postgresql"]  # a fixture
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "service.md"
DIGITS = ROOT / "examples" / "digits.yaml"
NAME = "digits-fedavg-vs-fedprox"
Open = Callable[[], Terminal]


def environment(**more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("DRIFTLINE_", "RAY_"))}
    path = f"{Path(sys.executable).parent}:{plain['PATH']}"
    data = plain.get("DATA_DIR", str(ROOT.parent / "shared" / "data"))
    return {
        **plain,
        "PATH": path,
        "DATA_DIR": data,
        "OMP_NUM_THREADS": "1",
        "RAY_AUTH_MODE": "disabled",
        "RAY_worker_niceness": "0",  # see tests/conftest.py
        **more,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where somebody sits who reads the page."""
    (tmp_path / "examples").mkdir()
    shutil.copy(DIGITS, tmp_path / "examples")
    return tmp_path


@pytest.fixture
def terminals(folder: Path) -> Iterator[Open]:
    opened: list[Terminal] = []

    def open_one() -> Terminal:
        opened.append(Terminal(folder, environment()))
        return opened[-1]

    yield open_one
    for terminal in reversed(opened):
        terminal.close()


def smaller(folder: Path) -> None:
    """The study of the page with a budget of seconds."""
    study = yaml.safe_load(DIGITS.read_text())
    study["budget"] = {"trials_per_method": 2, "rounds": 5, "seeds": 0}
    study["sampler"] = "quasi_random"
    (folder / "examples" / "digits.yaml").write_text(yaml.safe_dump(study))


def rounds(url: str, folder: Path) -> int:
    token = (folder / "driftline-home" / "admin-token").read_text().strip()
    with EveryClient(url, token) as client:
        record = client.studies()[0]
        assert record.state != "FAILED", record.reason
        return sum(progress.rounds_done for progress in record.progress.values())


def test_files_of_the_page_are_read() -> None:
    page = Page(PAGE)
    limits = yaml.safe_load(page.block("requests_per_second"))
    assert StreamLimits.taken(limits) == StreamLimits()
    assert Limits.from_json(limits).studies == 20
    assert RayJobs.from_json(yaml.safe_load(page.block("address: http"))).node_seconds == 60
    assert Oidc.from_json(yaml.safe_load(page.block("issuer: https")))


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="needs sqlite3: apt-get install sqlite3")
@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(1200)
def test_one_machine_and_replicas(folder: Path, terminals: Open, postgresql: Postgresql) -> None:
    page = Page(PAGE)
    with issuing() as issuer:
        settings = yaml.safe_load(page.block("issuer: https"))
        local = {"issuer": issuer.url, "jwks_url": f"{issuer.url}/keys"}
        (folder / "oidc.yaml").write_text(yaml.safe_dump(settings | local))
        one_machine(page, folder, terminals, issuer)
    ray_jobs(page, folder, terminals)
    replicas(page, folder, terminals, postgresql)
    assert sorted(page.typed) == sorted(page.commands())  # nothing of it was left out


def one_machine(page: Page, folder: Path, terminals: Open, issuer: Issuer) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    service, shell = terminals(), terminals()
    serve = f"{page.take('driftline serve')} --port {port}"
    service.run("export DRIFTLINE_OIDC=oidc.yaml")
    here = page.block("Driftline's service is ready").replace("http://127.0.0.1:8080", url)
    here = here.replace("/home/me", str(folder))
    service.type(serve)
    service.until(lambda: "submit STUDY.yaml --wait" in service.said, 200)
    assert "".join(f"{line}\n" for line in service.said.splitlines() if not re.match(r"\d{4}-", line)) == here
    (export,) = [line.strip() for line in here.splitlines() if line.strip().startswith("export")]
    shell.run(export)
    study = commands(page, shell, lambda: rounds(url, folder))
    tokens(page, shell)
    signed = issuer.token(groups=["vision-leads"], email="ann@example.org")
    shell.run(f"({page.take('export DRIFTLINE_TOKEN').replace('...', signed)}; {page.take('driftline whoami')}) > who")
    assert (
        (folder / "who").read_text().startswith("ann@example.org (oidc:4711): project vision, may read, write, until ")
    )
    smaller(folder)
    token = (folder / "driftline-home" / "admin-token").read_text().strip()
    script = page.python("job.wait").replace("http://127.0.0.1:8080", url).replace('"..."', f'"{token}"')
    (folder / "script.py").write_text(script)
    assert "fedprox" in shell.run("python script.py", seconds=300)

    service.interrupt()
    assert service.ended(30) == 0
    shell.run(page.take("rm -f driftline-home"))
    shell.run(page.take("cp backup.db"))
    service.type(serve)
    service.until(lambda: "submit STUDY.yaml --wait" in service.said, 200)
    assert "The admin token is kept in" in service.said
    heading, line = shell.run("driftline list 2>/dev/null").splitlines()  # what came after the backup is not there
    assert heading.startswith("id ")
    assert line.startswith(study)
    assert "cancelled" not in line
    known = rounds(url, folder)
    until(lambda: rounds(url, folder) > known)  # it goes on
    service.interrupt()
    assert service.ended(30) == 0


def commands(page: Page, shell: Terminal, rounds: Callable[[], int]) -> str:
    """The commands about a study, up to its end; its id."""
    assert shell.run(page.take("driftline whoami")).startswith("admin token: project default, may admin")
    study = shell.run(page.take("driftline submit")).strip()
    assert f"{study}  " in shell.run(page.take("driftline list"))
    for command, word in ((page.take("driftline watch"), "fedprox"), (page.take("driftline logs"), "Ray is ready")):
        shell.type(command)
        shell.until(lambda word=word: word in shell.said, 200)
        shell.interrupt()
        assert shell.ended() == 130, shell.said
    until(lambda: rounds() > 0)
    shell.run(page.take("driftline pause"))
    until(lambda: "  paused  " in shell.run("driftline list"))
    before = rounds()
    shell.run(page.take("driftline resume"))
    until(lambda: rounds() > before)
    frontier = page.take("driftline frontier")
    assert "fedavg" in shell.run(frontier)
    assert '"definitions"' in shell.run(f"{frontier} --json")
    assert "test_accuracy" in shell.run(f"{frontier} --quality test_accuracy --cost bytes")
    assert "not decided" in shell.run(page.take("driftline compare")).lower()  # trials have hardly begun
    shell.run(page.take("driftline extend"))
    shell.run(page.take("sqlite3"))
    assert "nothing to retry" in shell.run(page.take("driftline retry"), code=5)
    shell.run(page.take("driftline cancel") + " --yes")
    until(lambda: "  cancelled " in shell.run("driftline list"))
    shell.run(f"driftline resume {study}", code=5)
    shell.run(f"driftline watch {study}", code=1)
    shell.run("driftline watch nothing", code=4)
    other = shell.run("driftline submit examples/digits.yaml").strip()  # the newest of that name
    assert "cancel it first" in shell.run(f"{page.take('driftline delete')} --yes", code=5)
    shell.run(f"driftline cancel {other} --yes")
    until(lambda: f"{other}  cancelled " in shell.run("driftline list"))
    assert shell.run(f"driftline delete {NAME} --yes") == f"{NAME} ({other}): deleted\n"
    assert other not in shell.run("driftline list")
    return study


def tokens(page: Page, shell: Terminal) -> None:
    """The commands about tokens and quotas."""
    for command, may in (
        (page.take("driftline token create ann"), "ann: project vision, may read, write, until"),
        (page.take("driftline token create dashboard"), "dashboard: project vision, may read\n"),
    ):
        made = shell.run(command).splitlines()[-1]
        (Path(shell.folder) / "token").write_text(made)
        assert shell.run("driftline whoami --token-file token").startswith(may)
    shell.run("driftline token list --token-file token", code=3)
    listed = shell.run(page.take("driftline token list"))
    (dashboard,) = [line.split()[0] for line in listed.splitlines() if "dashboard" in line]
    shell.run(page.take("driftline token revoke ID").replace("ID", dashboard))
    shell.run("driftline whoami --token-file token", code=3)
    assert "0 of unlimited" in shell.run(page.take("driftline quota vision"))
    assert "0 of 50" in shell.run(page.take("driftline quota vision"))
    assert "0 of 100, then studies are paused" in shell.run(page.take("driftline quota vision"))
    assert "deleted 365 days after their end" in shell.run(page.take("driftline quota vision"))


def ray_jobs(page: Page, folder: Path, terminals: Open) -> None:
    """A service for a Ray cluster that does not answer: it is up, and says what it waits for."""
    shell, port = terminals(), free_port()
    (folder / "ray-token").write_text("secret")
    settings = page.block("address: http").replace("http://head:8265", "http://127.0.0.1:9")
    (folder / "ray-jobs.yaml").write_text(settings.replace("/etc/ray/token", str(folder / "ray-token")))
    shell.run("export DRIFTLINE_HOME=second-home DRIFTLINE_MLFLOW_URL=none")
    shell.run(page.take("export DRIFTLINE_LAUNCHER"))
    shell.run(page.take("export DRIFTLINE_API_URL").replace("http://tuner.internal:8080", f"http://127.0.0.1:{port}"))
    shell.type(f"{page.take('driftline serve --host')} --port {port}")
    shell.until(lambda: "submit STUDY.yaml --wait" in shell.said, 200)
    assert "Put a proxy with TLS in front" in shell.said
    shell.interrupt()
    assert shell.ended(30) == 0


def replicas(page: Page, folder: Path, terminals: Open, postgresql: Postgresql) -> None:
    """An API and a scheduler over PostgreSQL; its backup brings everything back."""
    api, probes = free_port(), free_port()
    url = f"http://127.0.0.1:{api}"
    shells = [terminals() for _ in range(3)]
    database = page.take("export DRIFTLINE_DATABASE_URL")
    secrets = (
        page.take("export DRIFTLINE_SECRET").replace("http://api.internal:8080", url).replace("=...", "=tops3cret")
    )
    fresh = postgresql.fresh()
    for shell in shells:
        shell.run(database.replace("postgresql://driftline:password@db/driftline", f"'{fresh}'"))
        shell.run(secrets)
        shell.run(f"export DRIFTLINE_URL={url} DRIFTLINE_TOKEN=tops3cret DRIFTLINE_HOME=third-home")
        shell.run(f"export PATH={postgresql.binaries}:$PATH")
    main, first, second = shells
    assert "it was empty" in main.run(page.take("driftline migrate"))
    serving = f"{page.take('driftline serve --only api')} --port {api}"
    first.type(serving)
    second.type(f"{page.take('driftline serve --only scheduler')} --port {probes}")
    for shell in (first, second):
        shell.until(lambda shell=shell: "is ready at" in shell.said, 200)
    assert "nothing to do" in main.run("driftline migrate")
    assert "fedprox" in main.run("driftline submit examples/digits.yaml --wait", seconds=300)
    held = main.run(f"driftline frontier {NAME} --json")
    main.run(page.take("pg_dump"))
    main.run("driftline submit examples/digits.yaml")
    for shell in (first, second):
        shell.interrupt()
        assert shell.ended(30) == 0
    main.run(page.take("pg_restore"))
    first.type(serving)
    first.until(lambda: "is ready at" in first.said, 200)
    assert len(main.run("driftline list 2>/dev/null").splitlines()) == 2  # a heading, and the study of the backup
    assert main.run(f"driftline frontier {NAME} --json") == held
    first.interrupt()
    assert first.ended(30) == 0
    assert "is at revision 0007" in main.run(page.take("driftline migrate --to 0007"))
