"""CONTRIBUTING.md, followed to the letter in a copy of the repository; docs/methods.md, made anew and compared."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainers import catalogue
from trainers.registry import methods, optimizers, schedules
from trainers.trial.parts import offered

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "CONTRIBUTING.md"
PAGE = ROOT / "docs" / "methods.md"
COPIED = (
    "trainers", "search_spaces", "driftline", "service", "tests/trainers", "tests/search_spaces", "pyproject.toml",
    "docs",
)  # fmt: skip


def section() -> str:
    return GUIDE.read_text(encoding="utf-8").partition("\n## Add a method\n")[2].partition("\n## ")[0]


def files() -> dict[str, str]:
    return dict(re.findall(r"^`(\S+\.py)`\n\n```python\n(.*?)^```$", section(), re.DOTALL | re.MULTILINE))


def commands() -> list[str]:
    return re.findall(r"^    (?=python|driftline|make)(.*)$", section().partition("And run:")[2], re.MULTILINE)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with the example's files written into it."""
    folder = tmp_path_factory.mktemp("repository")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for name, text in files().items():
        assert not (folder / name).exists()
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def called(command: str, folder: Path) -> str:
    """What a command of the guide prints, in the copy and with its code."""
    line, _, target = command.partition(" > ")
    words = shlex.split(line)
    start = {"python": [sys.executable], "driftline": [sys.executable, "-m", "service.cli"]}[words[0]]
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*start, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if target:
        (folder / target).write_text(done.stdout, encoding="utf-8")
    return done.stdout


def test_the_guide_has_its_files_and_commands() -> None:
    assert list(files()) == [
        "trainers/methods/client_momentum.py",
        "search_spaces/methods/client_momentum.py",
        "tests/trainers/methods/test_client_momentum.py",
    ]
    assert [command.split()[:3] for command in commands()] == [
        ["python", "-m", "pytest"],
        ["python", "-m", "trainers.catalogue"],
        ["driftline", "methods", "client_momentum"],
        ["make", "check"],
    ]


@pytest.mark.slow  # a test run of its own; the suites run fast on the methods here
def test_the_contract_suites_run_on_the_example(copy: Path) -> None:
    printed = called(commands()[0], copy)
    passed = re.search(r"(\d+) passed", printed)
    assert passed, printed
    # three of its own; in packs and restored with every server optimizer; on real data; costs, weights, space
    assert int(passed[1]) >= 15
    assert "failed" not in printed


def test_the_example_is_on_the_page_and_in_the_command(copy: Path) -> None:
    called(commands()[1], copy)
    page = (copy / "docs" / "methods.md").read_text(encoding="utf-8")
    assert "| [client_momentum](#client_momentum) | Client momentum: a share of the last round's mean gradient" in page
    assert "| one a round, the model and m down and a pseudo-gradient up |" in page
    assert "| `momentum` | share of the last mean | in [0, 1) |  | 0.5 | 0 is FedAvg |" in page
    printed = called(commands()[2], copy)
    assert printed.startswith("client_momentum\n\nClient momentum: a share")
    assert "share of the last mean; in [0, 1); default 0.5; 0 is FedAvg" in printed
    assert "  no local_epochs       m is a mean over local_steps\n" in printed


@pytest.mark.skipif(shutil.which("ruff", path=Path(sys.executable).parent) is None, reason="needs ruff: make check")
def test_the_example_passes_the_linter(copy: Path) -> None:
    ruff = str(Path(sys.executable).parent / "ruff")
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run([ruff, *command, *files()], cwd=copy, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_of_methods_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == catalogue.page(), "run: python -m trainers.catalogue > docs/methods.md"


def test_the_page_names_everything_that_can_be_set() -> None:
    page = catalogue.page()
    for registry in (methods(), optimizers(), schedules()):
        for name in registry:
            assert f"| [{name}](#{name}) | " in page
            part = page.partition(f"\n### {name}\n")[2].partition("\n##")[0]
            for item in offered(registry[name]):
                assert f"| `{item.name}`" in part
    for name in methods():
        assert catalogue.source(methods()[name]).startswith(('"', 'after "'))
        assert catalogue.exchanges(methods()[name])[:4] in ("one ", "two ")
    tables = re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
    assert len(tables) > 20
    for table in tables:  # a cell with an unescaped bar would shift its row
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
