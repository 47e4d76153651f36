"""The package as it is installed: its names are its own, the front door is light, and its list is true."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import driftline

ROOT = Path(__file__).parents[1]
OWN = ("driftline", "service", "trainers", "search_spaces")
HEAVY = ("torch", "scipy", "ray", "optuna", "mlflow", "sqlalchemy", "fastapi", "matplotlib", "pandas", "uvicorn")
HEAVY += ("kubernetes", "service")


@pytest.mark.parametrize("name", ["driftline", "service", "trainers", "search_spaces"])
def test_top_level_names_are_ours_alone(name: str) -> None:
    assert set(packages_distributions()[name]) == {"driftline"}


@pytest.mark.parametrize("name", driftline.__all__)
def test_every_name_of_the_front_door_is_there(name: str) -> None:
    assert getattr(driftline, name) is not None


def test_unknown_name_says_what_there_is() -> None:
    with pytest.raises(AttributeError, match="Client"):
        driftline.Clint  # noqa: B018


TEXT = "{name: a, task: digits, methods: [fedavg], budget: {trials_per_method: 8, rounds: 9}}\n"


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        (f"from driftline import Client, Study; Study.from_yaml({TEXT!r})", set()),
        ("import driftline.wire.driver_messages", set()),
        ("import service.cli.main", {"service"}),
        ("import trainers.trial.document", {"torch"}),
        ("import service.server.compose", {"service", "sqlalchemy", "fastapi", "uvicorn"}),
    ],
)
def test_imports_stay_light(code: str, allowed: set[str]) -> None:
    """What --help and typing mistakes wait for, and what every replica of API and scheduler keeps in memory."""
    code = f"{code}\nimport sys; print(' '.join(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert set(done.stdout.split()) <= allowed


@pytest.mark.parametrize("name", ["service", "trainers", "search_spaces"])
def test_a_folder_of_the_user_that_hides_a_package_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", "from driftline import Study"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: {tmp_path / name} hides Driftline's package {name!r} in "), last


def test_a_folder_without_code_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "service").mkdir()  # a namespace package at most: Driftline's own comes first
    subprocess.run([sys.executable, "-c", "from driftline import Study"], cwd=tmp_path, check=True, timeout=60)


def private_parts(path: Path) -> Iterator[tuple[str, str]]:
    """Library and name of the private modules and attributes of other packages that a file names."""
    roots: dict[str, str] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            roots |= {(alias.asname or alias.name.partition(".")[0]): alias.name for alias in node.names}
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            roots |= {(alias.asname or alias.name): f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and re.fullmatch(r"[\w.]+", ast.unparse(node)):
            root, _, rest = ast.unparse(node).partition(".")
            names = [f"{roots[root]}.{rest}"] if root in roots else [ast.unparse(node)] if root == "ray" else []
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in PRIVATE_IN_STRINGS:
            names = [PRIVATE_IN_STRINGS[node.value]]
        for name in names:
            library, *parts = name.split(".")
            if any(part.startswith("_") and not part.endswith("_") for part in parts):
                yield library, name


PRIVATE_IN_STRINGS = {"ray._private.ray_logging": "ray._private.ray_logging"}
DOCUMENTED = ("torch._foreach_", "torch.utils._python_dispatch.TorchDispatchMode", "os._exit")


def test_libraries_whose_private_parts_are_used_have_an_upper_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    bounded = {re.split(r"\W", line)[0] for line in lines if "<" in line}
    used = {
        library: name
        for package in OWN
        for path in (ROOT / package).rglob("*.py")
        for library, name in private_parts(path)
        if library not in OWN and not name.startswith(DOCUMENTED)
    }
    assert set(used) == {"ray", "optuna"}, used
    assert set(used) <= bounded


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)]
    subprocess.run(build, check=True, timeout=300)
    (wheel,) = folder.glob("driftline-*.whl")
    target = folder / "installed"
    subprocess.run([*pip, "install", "-q", "--no-deps", "--target", str(target), str(wheel)], check=True, timeout=300)
    return target


@pytest.mark.slow
@pytest.mark.parametrize(
    ("packed", "source", "pattern"),
    [
        ("driftline/examples", "examples", "*.yaml"),
        ("driftline/examples/papers", "examples/papers", "*.yaml"),
        ("driftline/results/show/browser", "driftline/results/show/browser", "*"),
        ("service/web/templates", "service/web/templates", "*"),
        ("service/web/assets", "service/web/assets", "*"),
    ],
)
def test_the_wheel_has_the_files_of(packed: str, source: str, pattern: str, installed: Path) -> None:
    found = {path.name: path.read_bytes() for path in (installed / packed).iterdir() if path.is_file()}
    assert found == {path.name: path.read_bytes() for path in (ROOT / source).glob(pattern)} != {}


SCRIPT = """\
import json
from pathlib import Path

from driftline import Choice, Client, Float, Frontier, Recommendation, Study


def tune(file: Path, rounds: float) -> Recommendation:
    with Client() as client:
        study = Study.from_yaml(file)
        for remark in client.validate(study, estimate=False).remarks:
            print(remark.upper())
        job = client.submit(study)
        job.wait(progress=True, timeout_s=3600.0)
        best = job.best(cost=rounds)
        frontier: Frontier = job.frontier(cost="bytes")
        print(frontier.best("fedavg").rounds + 1, frontier.plot("frontier.png").suffix)
        print(job.trials(phase="search").to_frame(), job.curves().to_frame(), frontier.to_frame())
        print([trial.hyperparameters["client_lr"] for trial in job.trials() if trial.finished])
        print([row["settles"] for row in frontier.configurations])
        Path("trial.json").write_text(json.dumps(best.trial(study, seed=1)))
        return best


study = Study(
    name="mine",
    task={"name": "digits", "clients": 50, "partition": {"dirichlet": 0.3}},
    methods=[
        "fedprox",
        {"name": "fedavg", "space": {"client_lr": Float(1e-3, 1, log=True, also=[0]), "local_steps": Choice([1, 5])}},
    ],
    objective={"quality": "test_loss"},
    budget={"trials_per_method": 4, "rounds": 20},
)
print(study.labels, study.budget.trials_per_method + 1)
best = tune(Path("study.yaml"), 24)
print(f"{best.label}: {best.quality:.4g} ({best.low:.4g}-{best.high:.4g}) after {best.rounds} rounds")
"""


def mypy(script: Path, text: str, package: Path) -> str:
    """What `mypy --strict` says of a user's script; `package` is where driftline lies."""
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(script.parent / "cache"), str(script)],
        cwd=script.parent,
        env={**os.environ, "MYPYPATH": "", "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_type_checkers_see_the_types(installed: Path, tmp_path: Path) -> None:
    """From an editable install and from a wheel, a user's script is typed, and its mistakes are errors for mypy."""
    wrong = (
        SCRIPT.replace("import Choice,", "import Choice, Clint,")
        .replace("progress=True", "progres=True")
        .replace("cost=rounds", "cost=file")
        .replace("best.rounds", "best.stop")
        + "reveal_type(best.trial)\n"
    )
    for place in (ROOT, installed):
        said = mypy(tmp_path / "script.py", wrong, place)
        assert "Found 4 errors in 1 file" in said, (place, said)  # in the script as it should be, none
        assert 'Unexpected keyword argument "progres"' in said, (place, said)
        assert 'has no attribute "Clint"' in said
        assert '"best" of "Job" has incompatible type "Path"' in said
        assert '"Recommendation" has no attribute "stop"' in said
        assert 'Revealed type is "def (study: driftline.study.spec.Study, *, seed: int =) -> dict[str, Any]"' in said
