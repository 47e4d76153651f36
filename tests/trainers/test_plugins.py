"""Contracts of plug-ins: every module in the folders keeps its own; what breaks one is refused when it is loaded."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trainers.errors import PluginError
from trainers.plugins import load
from trainers.registry import Registry, methods, models, optimizers, reports, schedules, tasks
from trainers.trial.document import parse

REGISTRIES: dict[str, Registry[Any]] = {
    one().word: one() for one in (methods, optimizers, schedules, tasks, models, reports)
}
EXAMPLES = {
    "method": "fedavg",
    "optimizer": "momentum",
    "schedule": "constant",
    "task": "digits",
    "model": "softmax",
    "report": "full_loss",
}
TINY = "def train_round(hyper, state, cohort): ...\nclass Hyper: ...\n"


def kind_of(word: str) -> type:
    return type(REGISTRIES[word][EXAMPLES[word]]).__bases__[0]


def made(folder: Path, text: str, name: str = "trainers.methods.mine") -> ModuleType:
    file = folder / "mine.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look for theirs
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


def example(word: str) -> str:
    return Path(sys.modules[REGISTRIES[word][EXAMPLES[word]].__module__].__file__ or "").read_text()


def refusal(folder: Path, word: str, text: str) -> str:
    with pytest.raises(PluginError) as caught:
        load(kind_of(word), word, made(folder, text, f"{REGISTRIES[word].package}.mine"))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_facts_are_read_from_the_source_as_from_the_plug_in() -> None:
    for registry, facts in (
        (tasks(), ("QUALITY", "MODEL", "AFFINE")),
        (models(), ("FIXED_START", "TARGETS")),
        (methods(), ("CLIENTS_PER_ROUND", "PSEUDO_GRADIENT", "TIED")),
        (optimizers(), ("CLOSED_FORM",)),
    ):
        for name, plugin in registry.items():
            for fact in facts:
                default = vars(registry._kind)[fact]
                assert registry.constant(name, fact, default) == getattr(plugin, fact), (name, fact)
        assert [registry.constant(name, facts[0], 5) for name in ("nothing", [])] == [5, 5]


@pytest.mark.parametrize(
    ("word", "line", "name", "meant"),
    [
        ("method", "CENTARL = True", "CENTARL", "CENTRAL"),
        ("method", "CENTRALL: bool = True", "CENTRALL", "CENTRAL"),
        ("method", "def intit(hyper, params): ...", "intit", "init"),
        ("method", "if True:\n    CLIENT_PER_ROUND = 1", "CLIENT_PER_ROUND", "CLIENTS_PER_ROUND"),
        ("optimizer", "def direction(hyper, memory, gradient, step): ...", "direction", "direction_"),
        ("schedule", "FOLOWS = {}", "FOLOWS", "FOLLOWS"),
        ("task", "def stampp(document): ...", "stampp", "stamp"),
        ("model", "class Setings: ...", "Setings", "Settings"),
        ("report", "def of_rounds(view): ...", "of_rounds", "of_round"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest(
    tmp_path: Path, word: str, line: str, name: str, meant: str
) -> None:
    said = refusal(tmp_path, word, f"{example(word)}\n{line}\n")
    a = "an optimizer" if word == "optimizer" else f"a {word}"
    folder = REGISTRIES[word].package.replace(".", "/")
    assert said == f"{folder}/mine.py: {name} is not part of {a}: did you mean {meant}?"


@pytest.mark.parametrize(
    ("word", "function", "wrong", "said"),
    [
        (
            "method", "def train_round(", "def _round(",
            "train_round is missing: a method must define Hyper, train_round",
        ),
        (
            "schedule", "LOSS_DATA =", "_LOSS_DATA =",
            "LOSS_DATA is missing: a schedule must define Hyper, LOSS_DATA, init, rates, update",
        ),
        ("report", "METRICS =", "_METRICS =", "METRICS is missing: a report must define METRICS"),
        (
            "method", "def train_round(hyper: Hyper, state: State, cohort: Cohort)", "def train_round(hyper, state)",
            "train_round must take (hyper, state, cohort), got (hyper, state)",
        ),
        ("schedule", "def rates(state: dict[str, Tensor])", "def rates()", "rates must take (state), got ()"),
    ],
)  # fmt: skip
def test_a_missing_attribute_or_wrong_signature_is_refused(
    tmp_path: Path, word: str, function: str, wrong: str, said: str
) -> None:
    text = example(word)
    assert function in text
    assert refusal(tmp_path, word, text.replace(function, wrong)).endswith(f"/mine.py: {said}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('TIED = "yes"', "TIED must be of type bool, got 'yes'"),
        ("CLIENTS_PER_ROUND = True", "CLIENTS_PER_ROUND must be of type int | None, got True"),
        ('ROLES = ("client",)', "ROLES must be of type Mapping[str, str], got ('client',)"),
        ("ROLES = {'client': 1}", "ROLES must be of type Mapping[str, str], got {'client': 1}"),
        ("Hyper = {}", "Hyper must be of type type, got {}"),
        ("init = 3", "init must be a function of (hyper, params), got 3"),
        ("def resolve(values): ...", "resolve must be of type Callable[[Mapping[str, tuple[Any, ...]], "),
    ],
)
def test_a_wrong_type_is_refused(tmp_path: Path, line: str, said: str) -> None:
    assert refusal(tmp_path, "method", f"{TINY}{line}\n").startswith(f"trainers/methods/mine.py: {said}")


def test_a_name_of_its_own_is_private_imported_or_listed(tmp_path: Path) -> None:
    free = (
        "from math import *\nimport math\nfrom math import pi as HALF_TURN\n"
        "_SHARE = 0.5\n__all__ = ['work']\n\ndef work(): ...\n_PAIRS = [item for item in ()]\n"
    )
    plugin = load(kind_of("method"), "method", made(tmp_path, TINY + free))
    assert not hasattr(plugin, "work")
    said = refusal(tmp_path, "method", f"{TINY}XYZ = 1\n")
    assert said.endswith("train_round; begin the name with _, or list it in __all__")


def test_a_function_may_have_more_parameters_with_defaults_and_names_of_its_own(tmp_path: Path) -> None:
    text = "class Hyper: ...\ndef train_round(h, s, c, more=1): return h, s, c, more\n"
    assert load(kind_of("method"), "method", made(tmp_path, text)).train_round(1, 2, 3) == (1, 2, 3, 1)


def test_an_entry_point_is_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_methods.py").write_text(f"{TINY}CENTARL = True\n")
    info = tmp_path / "own_methods-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own_methods\nVersion: 1.0\n")
    points = "mine = own_methods\nstep = own_methods:train_round\nlost = own_method\n"
    (info / "entry_points.txt").write_text(f"[driftline.methods]\n{points}")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = Registry[Any]("trainers.methods", "trainers.contracts.Method", "method")
    with pytest.raises(PluginError, match=r"^own_methods.py: CENTARL is not part of a method: did you mean CENTRAL"):
        registry.find("mine", "method.name")
    with pytest.raises(PluginError, match=r"^entry point step of driftline.methods must name a module"):
        registry.find("step", "method.name")
    with pytest.raises(PluginError) as caught:
        registry.find("lost", "method.name")
    said = "entry point lost of driftline.methods: cannot import own_method: No module named 'own_method'"
    assert str(caught.value) == said
    sys.modules.pop("own_methods")


def test_settings_of_a_task_must_have_all_that_trials_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare:
        document: dict[str, Any] = {}  # noqa: RUF012
        clients, dimension, examples = 2, None, None

    digits = tasks()["digits"]
    monkeypatch.setattr(type(digits), "parse", staticmethod(lambda document, path: Bare()))
    with pytest.raises(PluginError) as caught:
        parse(
            {"task": {"name": "digits", "split_seed": 987}, "method": {"name": "fedsgd", "server_lr": 1}, "rounds": 1}
        )
    assert str(caught.value) == (
        "task digits: its settings must have test, central, smoothness, metrics, as trainers.problem.TaskSettings"
    )
