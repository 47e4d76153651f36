"""Launchers and samplers keep their contracts; those of other packages come by entry points and are checked alike."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from driftline.errors import InvalidSpec
from driftline.study import sampler as samplers
from search_spaces.parameters import Choice
from service.cli import main
from service.launchers.base import Launcher, launchers
from service.launchers.kubernetes.launcher import KubernetesLauncher
from service.launchers.local.launcher import LocalLauncher
from service.launchers.ray_jobs.launcher import RayJobsLauncher
from service.samplers.build import build
from service.server import compose
from trainers.errors import PluginError

SPACE = {"local_steps": Choice((1, 5))}
LAUNCHER = """
from service.launchers.base import Launcher
from driftline.study.validation import Section

__all__ = ["Queue"]

class Config(Section):
    partition: str = "short"

class Queue(Launcher):
    own_cluster = True
    def start(self, launch): ...
    def seen(self, study_id): ...
    def stop(self, study_id): ...
    def kill(self, study_id): ...
    def collect(self, study_ids): ...
    def close(self): ...

def build(config, *, url, checkpoints, logs):
    return Queue()
"""
SAMPLER = """
from trainers.hyperparameters import Hyperparameter

SETTINGS = (Hyperparameter(name="first", kind="int", default=0, low=0),)

class Sampler:
    def __init__(self, space, objectives, seed, first=0):
        self.first = first
    def ask(self, number):
        return {"local_steps": self.first}
    def pending(self, number, setting): ...
    def tell(self, number, setting, values, diverged=False): ...
"""
LOADED: dict[str, tuple[str, type[Exception], Callable[[], object], str]] = {
    "launcher": (
        LAUNCHER, InvalidSpec, lambda: compose.launcher_kind("mine"), "DRIFTLINE_LAUNCHER: my_launchers.py",
    ),
    "sampler": (SAMPLER, PluginError, lambda: samplers.registry()["mine"], "my_samplers.py"),
}  # fmt: skip
"""By kind of plug-in: a right one, what a wrong one raises, how it is loaded, and where the error says it is."""
Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package with one plug-in called "mine": (kind of plug-in, its text)."""

    def made(kind: str, text: str) -> None:
        (tmp_path / f"my_{kind}.py").write_text(text)
        info = tmp_path / f"my_{kind}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: my_{kind}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[driftline.{kind}]\nmine = my_{kind}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        launchers.cache_clear()
        samplers.registry.cache_clear()

    yield made
    launchers.cache_clear()
    samplers.registry.cache_clear()
    for name in ("my_launchers", "my_samplers"):
        sys.modules.pop(name, None)


def test_the_command_line_says_in_one_line_what_is_wrong_with_a_plugin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(obj: object) -> None:
        raise PluginError("trainers/methods/mine.py: Hyper is missing")

    monkeypatch.setattr(main, "app", command)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "driftline: trainers/methods/mine.py: Hyper is missing\n"


@pytest.mark.parametrize("name", samplers.NAMES)
def test_every_sampler_keeps_the_contract(name: str) -> None:
    assert samplers.registry()[name].SETTINGS == ()


@pytest.mark.parametrize("name", list(launchers()))
def test_every_launcher_keeps_the_contract(name: str) -> None:
    assert launchers()[name].Config.__name__ == "Config"


def test_launchers_say_what_the_service_must_know() -> None:
    clusters = {one: one.own_cluster for one in (LocalLauncher, RayJobsLauncher, KubernetesLauncher)}
    assert clusters == {LocalLauncher: False, RayJobsLauncher: False, KubernetesLauncher: True}


def test_a_launcher_ends_by_closing_unless_it_says_otherwise() -> None:
    closed: list[int] = []
    launcher: Any = SimpleNamespace(close=lambda: closed.append(1))
    Launcher.end(launcher, 1.0)
    assert closed == [1]


def test_a_launcher_of_another_package(install: Install) -> None:
    install("launchers", LAUNCHER)
    kind = compose.launcher_kind("mine")
    config = kind.Config.from_json({"partition": "long"})
    made = kind.build(config, url="http://127.0.0.1:1", checkpoints="/tmp", logs=Path("/tmp"))
    assert (made.own_cluster, made.start_seconds) == (True, 600.0)
    with pytest.raises(InvalidSpec, match="must be one of kubernetes, local, mine, ray_jobs, got 'cloud'"):
        compose.launcher_kind("cloud")


def test_a_sampler_of_another_package(install: Install) -> None:
    install("samplers", SAMPLER)
    assert samplers.read({"name": "mine", "first": "5"}) == {"name": "mine", "first": 5}
    assert samplers.read({"name": "mine"}) == samplers.read("mine") == "mine"
    assert build({"name": "mine", "first": 5}, SPACE, ("quality",), seed=0).ask(0) == {"local_steps": 5}
    with pytest.raises(InvalidSpec, match=r"^frist: unknown setting of the sampler mine: did you mean first\?$"):
        samplers.read({"name": "mine", "frist": 5})
    with pytest.raises(InvalidSpec, match=r"^first: must be at least 0, got first=-1$"):
        samplers.read({"name": "mine", "first": -1})
    with pytest.raises(InvalidSpec, match=r'^no sampler "mien": did you mean mine\?$'):
        samplers.read("mien")


@pytest.mark.parametrize(
    ("kind", "right", "wrong", "said"),
    [
        ("launcher", "def build", "def _build", "build is missing: a launcher must define Config, build"),
        (
            "launcher", "url, checkpoints, logs", "url",
            "build must take (config, *, url, checkpoints, logs), got (config, *, url)",
        ),
        ("launcher", "class Config(Section)", "class Config", "Config must be of type type[Section], got <class "),
        ("sampler", "def ask(self, number)", "def ask(self)", "Sampler.ask must take (number), got ()"),
        ("sampler", "def tell", "def told", "Sampler.tell is missing: it must define ask, pending, tell"),
        (
            "sampler", "(Hyperparameter(", "list, (Hyperparameter(",
            "SETTINGS must be of type tuple[Hyperparameter, ...], got (",
        ),
    ],
)  # fmt: skip
def test_one_that_breaks_the_contract_is_refused(
    install: Install, kind: str, right: str, wrong: str, said: str
) -> None:
    text, error, load, where = LOADED[kind]
    assert right in text
    install(f"{kind}s", text.replace(right, wrong))
    with pytest.raises(error) as caught:
        load()
    assert str(caught.value).startswith(f"{where}: {said}")
