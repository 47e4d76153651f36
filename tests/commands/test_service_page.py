"""docs/service.md, typed into a shell word for word: only ports, paths and what stands for something are replaced."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from driftline.client.connection import Connection
from service.api.auth.oidc import Oidc
from service.api.event_streams import StreamLimits
from service.api.rate_limits import Limits
from service.launchers.ray_jobs.launcher import Config as RayJobs
from tests.clients import EveryClient
from tests.commands.page import Page, Shell
from tests.ports import free_port
from tests.service.conftest import Postgresql, postgresql
from tests.service.oidc_setup import Issuer, issuing
from tests.waiting import until

__all__ = ["postgresql"]  # a fixture
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "service.md"
DIGITS = ROOT / "examples" / "digits.yaml"
NAME = "digits-fedavg-vs-fedprox"
READY = "submit STUDY.yaml --wait"


@pytest.fixture
def shells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Shell]]:
    """Opens shells where somebody sits who reads the page."""
    (tmp_path / "examples").mkdir()
    shutil.copy(DIGITS, tmp_path / "examples")
    for name in ("timeout_s", "patience_s"):  # a busy machine takes long to load what a first check needs
        monkeypatch.setitem(Connection.__init__.__kwdefaults__, name, 120.0)
    opened: list[Shell] = []

    def open_one() -> Shell:
        opened.append(Shell(tmp_path))
        return opened[-1]

    yield open_one
    for shell in reversed(opened):
        shell.close()


def smaller(folder: Path) -> None:
    """The study of the page with a budget of seconds."""
    study = yaml.safe_load(DIGITS.read_text())
    study["budget"] = {"trials_per_method": 2, "rounds": 5, "seeds": 0}
    study["sampler"] = "quasi_random"
    (folder / "examples" / "digits.yaml").write_text(yaml.safe_dump(study))


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
def test_one_machine_and_replicas(shells: Callable[[], Shell], postgresql: Postgresql) -> None:
    page = Page(PAGE)
    with issuing() as issuer:
        one_machine(page, shells(), issuer)
    ray_jobs(page, shells())
    replicas(page, shells(), postgresql)
    assert sorted(page.typed) == sorted(page.commands())  # nothing of it was left out


def one_machine(page: Page, shell: Shell, issuer: Issuer) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    settings = yaml.safe_load(page.block("issuer: https"))
    local = {"issuer": issuer.url, "jwks_url": f"{issuer.url}/keys"}
    (shell.folder / "oidc.yaml").write_text(yaml.safe_dump(settings | local))
    shell.export("export DRIFTLINE_OIDC=oidc.yaml")
    serve = f"{page.take('driftline serve')} --port {port}"
    here = page.block("Driftline's service is ready").replace("http://127.0.0.1:8080", url)
    here = here.replace("/home/me", str(shell.folder))
    service = shell.begin(serve)
    service.until(READY)
    assert "".join(f"{line}\n" for line in service.said.splitlines() if not re.match(r"\d{4}-", line)) == here
    (export,) = [line.strip() for line in here.splitlines() if line.strip().startswith("export")]
    shell.export(export)
    study = commands(page, shell, url)
    tokens(page, shell)
    signed = issuer.token(groups=["vision-leads"], email="ann@example.org")
    admin = shell.variables["DRIFTLINE_TOKEN"]
    shell.export(page.take("export DRIFTLINE_TOKEN").replace("...", signed))
    who = shell.run(page.take("driftline whoami"))
    assert who.startswith("ann@example.org (oidc:4711): project vision, may read, write, until ")
    shell.export(f"export DRIFTLINE_TOKEN={admin}")

    assert service.interrupt() == 0
    shell.run(page.take("rm -f driftline-home"))
    shell.run(page.take("cp backup.db"))
    service = shell.begin(serve)
    service.until(READY)
    assert "The admin token is kept in" in service.said
    heading, line = shell.run("driftline list").splitlines()  # what came after the backup is undone
    assert heading.startswith("id ")
    assert line.startswith(study)
    assert "cancelled" not in line
    assert service.interrupt() == 0


def commands(page: Page, shell: Shell, url: str) -> str:
    """The commands about a study, up to its end; its id."""

    def rounds() -> int:
        with EveryClient(url, shell.variables["DRIFTLINE_TOKEN"]) as client:
            record = client.studies()[0]
            assert record.state != "FAILED", record.reason
            return sum(progress.rounds_done for progress in record.progress.values())

    assert shell.run(page.take("driftline whoami")).startswith("admin token: project default, may admin")
    study = shell.run(page.take("driftline submit")).strip()
    assert f"{study}  " in shell.run(page.take("driftline list"))
    for command, words in ((page.take("driftline watch"), "fedprox"), (page.take("driftline logs"), "Ray is ready")):
        begun = shell.begin(command)
        begun.until(words)
        assert begun.interrupt() == 130, begun.said
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
    assert "nothing to retry" in shell.run(f"exec {page.take('driftline retry')}", code=5)
    delete = f"{page.take('driftline delete')} --yes"
    assert "cancel it first" in shell.run(delete, code=5)
    shell.run(page.take("driftline cancel") + " --yes")
    until(lambda: "  cancelled " in shell.run("driftline list"))
    shell.run(f"driftline resume {study}", code=5)
    shell.run(f"driftline watch {study}", code=1)
    shell.run("driftline watch nothing", code=4)
    assert shell.run(delete) == f"{NAME} ({study}): deleted\n"
    assert shell.run("driftline list") == ""
    return study


def tokens(page: Page, shell: Shell) -> None:
    """The commands about tokens and quotas."""
    for command, may in (
        (page.take("driftline token create ann"), "ann: project vision, may read, write, until"),
        (page.take("driftline token create dashboard"), "dashboard: project vision, may read\n"),
    ):
        (shell.folder / "token").write_text(shell.run(command))
        assert shell.run("driftline whoami --token-file token").startswith(may)
    shell.run("driftline token list --token-file token", code=3)
    listed = shell.run(page.take("driftline token list"))
    (dashboard,) = [line.split()[0] for line in listed.splitlines() if "dashboard" in line]
    shell.run(page.take("driftline token revoke ID").replace("ID", dashboard))
    shell.run("driftline whoami --token-file token", code=3)
    for words in ("0 of unlimited", "0 of 50", "0 of 100, then studies are paused", "deleted 365 days after their end"):
        assert words in shell.run(page.take("driftline quota vision"))


def ray_jobs(page: Page, shell: Shell) -> None:
    """A service for a Ray cluster that does not answer: it is up, and says what it waits for."""
    port = free_port()
    (shell.folder / "ray-token").write_text("secret")
    settings = page.block("address: http").replace("http://head:8265", "http://127.0.0.1:9")
    (shell.folder / "ray-jobs.yaml").write_text(settings.replace("/etc/ray/token", str(shell.folder / "ray-token")))
    shell.export("export DRIFTLINE_HOME=second-home DRIFTLINE_MLFLOW_URL=none")
    shell.export(page.take("export DRIFTLINE_LAUNCHER"))
    api = f"http://127.0.0.1:{port}"
    shell.export(page.take("export DRIFTLINE_API_URL").replace("http://tuner.internal:8080", api))
    service = shell.begin(f"{page.take('driftline serve --host')} --port {port}")
    service.until(READY)
    assert "Put a proxy with TLS in front" in service.said
    assert service.interrupt() == 0


def replicas(page: Page, shell: Shell, postgresql: Postgresql) -> None:
    """An API and a scheduler over PostgreSQL; its backup brings everything back."""
    port, probes = free_port(), free_port()
    url = f"http://127.0.0.1:{port}"
    database = page.take("export DRIFTLINE_DATABASE_URL")
    shell.export(database.replace("postgresql://driftline:password@db/driftline", f"'{postgresql.fresh()}'"))
    secrets = page.take("export DRIFTLINE_SECRET").replace("http://api.internal:8080", url)
    shell.export(secrets.replace("=...", "=tops3cret"))
    shell.export(f"export DRIFTLINE_URL={url} DRIFTLINE_TOKEN=tops3cret DRIFTLINE_HOME=third-home")
    shell.export(f"export PATH={postgresql.binaries}:$PATH")
    assert "it was empty" in shell.run(f"exec {page.take('driftline migrate')}")
    serving = f"{page.take('driftline serve --only api')} --port {port}"
    api = shell.begin(serving)
    scheduler = shell.begin(f"{page.take('driftline serve --only scheduler')} --port {probes}")
    for process in (api, scheduler):
        process.until("is ready at")
    assert "nothing to do" in shell.run("exec driftline migrate")
    smaller(shell.folder)
    shell.run("driftline validate examples/digits.yaml --no-estimate")  # loads what the script may not wait for
    script = page.python("job.wait").replace("http://127.0.0.1:8080", url).replace('"..."', '"tops3cret"')
    (shell.folder / "script.py").write_text(script)
    assert "fedprox" in shell.run("python script.py")
    held = shell.run(f"driftline frontier {NAME} --json")
    shell.run(page.take("pg_dump"))
    assert scheduler.interrupt() == 0
    shell.run("driftline submit examples/digits.yaml")
    assert api.interrupt() == 0
    shell.run(page.take("pg_restore"))
    api = shell.begin(serving)
    api.until("is ready at")
    assert len(shell.run("driftline list").splitlines()) == 2  # a heading, and the study of the backup
    assert shell.run(f"driftline frontier {NAME} --json") == held
    assert api.interrupt() == 0
    assert "is at revision 0007" in shell.run(f"exec {page.take('driftline migrate --to 0007')}")
