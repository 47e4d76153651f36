"""`pip install driftline` is a client: without what the extras install it submits studies and reads results."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from contextlib import closing
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from driftline.extras import EXTRAS
from driftline.results.document import frontier_document
from service.store.store import Store
from tests.results.samples import Chosen, study
from tests.service.api_setup import running

ROOT = Path(__file__).parents[1]
OWN = {"driftline", "service", "trainers", "search_spaces"}
WITHOUT = [module for modules in EXTRAS.values() for module in modules] + ["pandas", "sklearn", "tokenizers"]
LIGHT = f"""
import importlib.abc, sys

class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {WITHOUT}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without())
"""
STUDY = "{name: a, task: digits, methods: [fedavg, fedprox], budget: {trials_per_method: 8, rounds: 9}}\n"


def light(code: str, *arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """What Python does where the extras are not installed."""
    command = [sys.executable, "-c", LIGHT + code, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


def test_a_client_needs_no_extra(tmp_path: Path) -> None:
    result = frontier_document("a", study(trials=6, rounds=20, confirm=2), Chosen(), 20)
    code = f"""
import driftline
everything = [getattr(driftline, name) for name in driftline.__all__]
client = driftline.Client(sys.argv[1], "all")
job = client.submit(driftline.Study.from_yaml({STUDY!r}))
frontier = job.frontier()
print(job.state, frontier.best("fedavg", cost=10).hyperparameters, frontier.plot("frontier.html"))
for fails in (lambda: frontier.plot("frontier.png"), driftline.Study.from_yaml({STUDY!r}).check):
    try:
        fails()
    except driftline.DriftlineError as error:
        print(error)
"""
    store = Store(tmp_path / "driftline.db")
    with closing(store), running(store, loopback=True, frontier=lambda study_id: result) as service:
        done = light(code, service.server.url, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert [record.name for record in store.studies.find()] == ["a"]
    first, picture, check = done.stdout.splitlines()
    assert re.fullmatch(r"PENDING \{'client_lr'.*\} frontier\.html", first)
    assert picture == (
        "this needs matplotlib, which is not installed: pip install 'driftline[local]', or name a file .html"
    )
    assert check == (
        "this needs torch, which is not installed: pip install 'driftline[local]', "
        "or let a service check it: Client(url, token).validate(study)"
    )


COMMANDS = {
    "init": "",
    "methods": "torch, which is not installed: pip install 'driftline[local]'",
    "run study.yaml": "'driftline[local]'",
    "validate study.yaml": "'driftline[local]', or set DRIFTLINE_URL to the address of a service",
    "frontier out/a": "'driftline[local]'",
    "serve": "'driftline[local]'",
    "doctor kubernetes": "'driftline[cluster]'",
}
EACH = """
import contextlib, io, json
from service.cli.main import main
for command in sys.argv[1:]:
    arguments, said, code = command.split(), io.StringIO(), 0
    sys.argv = ["driftline", *arguments]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            main()
    except SystemExit as end:
        code = end.code
    print(json.dumps([command, code or 0, said.getvalue()]), file=sys.__stdout__)
"""


def test_the_command_line_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRIFTLINE_URL", raising=False)
    done = light(EACH, *COMMANDS, cwd=tmp_path)  # `init` comes first, and makes study.yaml
    assert done.returncode == 0, done.stderr
    found = {command: (code, text) for command, code, text in map(json.loads, done.stdout.splitlines())}
    assert list(found) == list(COMMANDS)
    assert found.pop("init")[0] == 0
    for command, (code, text) in found.items():
        assert code == 1
        (line,) = text.splitlines()
        assert line.startswith("driftline: this needs ")
        assert COMMANDS[command] in line


def imported() -> set[str]:
    """Top-level modules of other packages that ours import, anywhere."""
    names: set[str] = set()
    for package in OWN:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    names |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names.add(node.module)
    return {name.partition(".")[0] for name in names} - OWN - set(sys.stdlib_module_names)


def distributions(lines: list[str]) -> set[str]:
    """The packages of requirements."""
    return {re.split(r"[^\w-]", line)[0].lower() for line in lines}


BROUGHT = {"anyio": "httpx", "pydantic_core": "pydantic", "starlette": "fastapi"}
"""Modules of packages that those we name always bring."""
BESIDE = {"urllib3", "markupsafe"}
"""Modules that are imported only where kubernetes or jinja2 have been."""
REFUSED_BY_NAME = {"pandas", "tokenizers"}
"""Modules whose absence the code that needs them explains."""


def test_every_extra_is_in_the_table() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    base = distributions(project["dependencies"])
    extras = {name: distributions(lines) for name, lines in project["optional-dependencies"].items()}
    found = packages_distributions()
    for module in imported() - REFUSED_BY_NAME - BESIDE:
        packages = {
            name.lower().replace("_", "-") for name in ([BROUGHT[module]] if module in BROUGHT else found[module])
        }
        homes = [name for name, modules in EXTRAS.items() if module in modules]
        listed = base if not homes else extras[homes[0]]
        assert packages & listed, f"{module}: {packages} must be in the dependencies, or in EXTRAS and that extra"
        assert len(homes) <= 1
