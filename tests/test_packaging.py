"""The package as it is installed: its names are its own, the front door is light, and its list is true."""

import importlib
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import driftline

HEAVY = ("torch", "ray", "optuna", "mlflow", "sqlalchemy", "fastapi", "matplotlib", "plotly", "pandas")


@pytest.mark.parametrize("name", ["driftline", "service", "trainers", "search_spaces"])
def test_top_level_names_are_ours_alone(name: str) -> None:
    assert set(packages_distributions()[name]) == {"driftline"}


@pytest.mark.parametrize("name", driftline.__all__)
def test_every_name_of_the_front_door_is_there(name: str) -> None:
    assert getattr(driftline, name) is not None


def test_unknown_name_says_what_there_is() -> None:
    with pytest.raises(AttributeError, match="Client"):
        driftline.Clint  # noqa: B018


@pytest.mark.parametrize("module", ["driftline", "service.cli.main", "driftline.study.spec", "trainers.spec"])
def test_imports_stay_light(module: str) -> None:
    """What --help and typing mistakes wait for; trainers.spec is allowed nothing heavy but torch."""
    code = f"import sys, {module}; print(' '.join(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    allowed = {"torch"} if module == "trainers.spec" else set()
    assert set(done.stdout.split()) <= allowed


@pytest.mark.parametrize("package", ["service", "trainers", "search_spaces"])
def test_init_files_are_empty(package: str) -> None:
    root = Path(importlib.import_module(package).__path__[0])
    assert [str(file) for file in root.rglob("__init__.py") if file.read_text().strip()] == []
