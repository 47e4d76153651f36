"""Programs of people's own on a service, from the submission to the result."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from click.testing import Result

import driftline
from driftline import Client, Study
from driftline.errors import InvalidSpec
from driftline.sdk.job import Job, StudyFailed
from service.confined import landlock_version
from service.server.compose import Service
from service.store.schema import ARCHIVES
from service.store.store import Store
from tests.ports import free_port
from tests.waiting import until

from .processes import Processes

Run = Callable[..., Result]

DESCENT = """
from driftline import trial

t = trial.current()
x = 4.0
for r in t.rounds():
    x -= t["rate"] * 2 * x
    t.report(r, loss=x * x)
"""

STUDY: dict[str, Any] = {
    "name": "descent",
    "program": {"command": ["python", "-c", DESCENT], "metrics": {"loss": "falls"}},
    "methods": [{"label": "mine", "space": {"rate": {"float": [0.1, 0.4]}}}],
    "budget": {"trials_per_method": 2, "rounds": 3, "seeds": 1},
    "resources": {"gpu": 0},
}


allowing = pytest.mark.parametrize("service", [{"DRIFTLINE_PROGRAMS": "true"}], indirect=True)


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    file = tmp_path / "descent.yaml"
    file.write_text(yaml.safe_dump(STUDY))
    return file


def test_a_service_refuses_programs_unless_its_operator_allows_them(
    service: Service, run: Run, study_file: Path
) -> None:
    for command in (("submit", study_file), ("validate", study_file)):
        with pytest.raises(InvalidSpec, match=r"^program: this service runs no programs \(studies\.programs in its"):
            refused(run(*command))
    assert run("list").stdout == ""


def refused(result: Result) -> None:
    """Raises the error of a command."""
    assert result.exception is not None
    raise result.exception


@allowing
def test_a_program_and_a_function_give_the_same_trials(service: Service) -> None:
    def train(t: Any) -> None:
        x = 4.0
        for r in t.rounds():
            x -= t["rate"] * 2 * x
            t.report(r, loss=x * x)

    keys = {key: value for key, value in STUDY.items() if key not in ("program", "methods")}
    entries = [{"label": "mine", "space": {"rate": driftline.Float(0.1, 0.4)}}]
    studies = [Study.from_json(STUDY), Study(program=train, objective={"quality": "loss"}, methods=entries, **keys)]
    with Client() as client:
        jobs = [client.submit(study) for study in studies]
        curves = [losses(job.wait(timeout_s=120)) for job in jobs]
    assert curves[0] == curves[1]
    assert [len(curve) for curve in curves[0]] == [3, 3, 3, 3]


@pytest.fixture
def with_files(tmp_path: Path) -> Path:
    """A study whose program consists of files."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("START = 4.0\n")
    (tmp_path / "train.py").write_text("from package import START\n" + DESCENT.replace("4.0", "START"))
    command = {"command": ["python", "train.py"], "files": ["train.py", "package"]}
    file = tmp_path / "files.yaml"
    file.write_text(yaml.safe_dump({**STUDY, "program": {**STUDY["program"], **command}}))
    return file


@allowing
def test_files_travel_to_a_service_and_are_removed_with_the_study(
    service: Service, run: Run, with_files: Path, study_file: Path, store: Store, tmp_path: Path
) -> None:
    assert run("validate", with_files).exit_code == 0
    assert archives(store) == [], "validate sends nothing"
    for name in (with_files, study_file):
        done = run("submit", name, "--wait")
        assert done.exit_code == 0, done.output
    assert run("submit", with_files).exit_code == 0
    with Client() as client:
        again, plain, first = client.jobs()
        assert losses(first) == losses(plain)
        assert first.record().fingerprint == again.record().fingerprint
        assert len(archives(store)) == 1, "they are stored once"
        folder = tmp_path / "checkpoints" / first.id
        assert [path.name for path in folder.iterdir()] == ["files.1.0.00000000.ckpt"]

        (tmp_path / "package" / "__init__.py").write_text("START = 5.0\n")
        changed = client.submit(Study.from_yaml(with_files))
        assert changed.record().fingerprint != first.record().fingerprint
        assert len(archives(store)) == 2
        again.wait(timeout_s=120).extend(trials_per_method=3).wait(timeout_s=120)
        assert len(losses(again)) > len(losses(first))
        for job in (first, again):
            job.wait(timeout_s=120).delete()
        while store.deletions.purge():
            pass
        with store.session.write() as connection:
            connection.execute(sa.update(ARCHIVES).values(used_at=0.0))
        store.archives.remove_unused()
        assert archives(store) == [changed.record().spec["program"]["archive"]]
        changed.wait(timeout_s=120)


def archives(store: Store) -> list[str]:
    with store.session.read() as connection:
        return [*connection.execute(sa.select(ARCHIVES.c.digest)).scalars()]


def losses(job: Job) -> list[list[float]]:
    return [curve["loss"] for curve in job.curves().values()]


@pytest.fixture
def store(service: Service, tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "home" / "driftline.db")
    yield opened
    opened.close()


@allowing
def test_a_failed_program_leaves_the_end_of_its_log(service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    script = "seq 100; echo no data here >&2; exit 2"
    study = Study.from_json({**STUDY, "program": {**STUDY["program"], "command": ["/bin/sh", "-c", script]}})
    with Client() as client:
        job = client.submit(study)
        with pytest.raises(StudyFailed):
            job.wait(timeout_s=120)
        error = job.trials()[0].error
    assert error is not None
    assert error.endswith(
        "the program ended with exit code 2, after round 0 of 3; log: driftline logs; stderr: no data here"
    )
    printed = [line for line in capfd.readouterr().out.splitlines() if line.startswith("program: ")]
    assert {"program: 100", "program: no data here"} <= set(printed)
    assert "program: 1" not in printed


SPY = """
import os
from pathlib import Path

from driftline import trial
from package import HOME

t = trial.current()
known = {"DRIFTLINE_TRIAL", "DRIFTLINE_NODES", "DRIFTLINE_NODE_RANK"}
named = [name for name in os.environ if name.startswith(("DRIFTLINE_", "RAY_")) and name not in known]
tokens = sum(value.startswith("token-of-") for value in os.environ.values())
opened = 0
for name in ("admin-token", "secret", "driftline.db"):
    try:
        opened += len((Path(HOME) / name).read_bytes()) > 0
    except OSError:
        pass
here = float(Path.cwd().joinpath("package", "__init__.py").exists() and os.environ["WANDB_API_KEY"] == "token-of-wandb")
for r in t.rounds():
    t.report(r, loss=1 / r, named=len(named), tokens=tokens, opened=opened, here=here)
"""


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(400)
def test_a_program_of_a_real_service_reaches_no_token(tmp_path: Path) -> None:
    home, source = tmp_path / "home", tmp_path / "source"
    (source / "package").mkdir(parents=True)
    (source / "package" / "__init__.py").write_text(f"HOME = {str(home)!r}\n")
    (source / "spy.py").write_text(SPY)
    (tmp_path / "launcher.yaml").write_text("inherit: [AWS_]\n")
    metrics = dict.fromkeys(("loss", "named", "tokens", "opened", "here"), "falls")
    program = {"command": ["python", "spy.py"], "files": ["spy.py", "package"], "secrets": ["WANDB_API_KEY"]}
    study = Study.from_json(
        {**STUDY, "program": {**program, "metrics": metrics, "folder": str(source)}, "objective": {"quality": "loss"}}
    )
    settings = {
        "DRIFTLINE_PROGRAMS": "true",
        "DRIFTLINE_PROGRAM_SECRETS": "WANDB_*",
        "WANDB_API_KEY": "token-of-wandb",
        "AWS_SECRET_ACCESS_KEY": "token-of-aws",
        "DRIFTLINE_ADMIN_TOKEN": "token-of-admin",
        "DRIFTLINE_LAUNCHER_CONFIG": str(tmp_path / "launcher.yaml"),
        "DRIFTLINE_MLFLOW_URL": "none",
    }
    processes, port = Processes(home, RAY_AUTH_MODE="disabled", **settings), free_port()
    try:
        processes.start("--port", str(port))
        until(lambda: processes.ready(port), 120)
        with Client(f"http://127.0.0.1:{port}", "token-of-admin") as client:
            job = client.submit(study).wait(timeout_s=300)
            curves = job.curves().values()
            left = [*(home / "checkpoints").rglob("*.ckpt")]
    finally:
        processes.end()
    assert len(curves) == 4
    for curve in curves:
        assert {name: set(curve[name]) for name in ("named", "tokens", "here")} == {
            "named": {0.0},
            "tokens": {1.0},
            "here": {1.0},
        }
        assert set(curve["opened"]) == {0.0} or not landlock_version()
    assert left == []
