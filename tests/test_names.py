"""Classes and files have names of their own, so that a name leads to one place, and packages name their modules."""

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

from tests.conftest import TESTS
from trainers.registry import methods, models, optimizers, reports, schedules, tasks

PACKAGES = ("driftline", "service", "trainers", "search_spaces")
FIXED = {"Config", "Hyper", "Sampler", "Settings"}
"""Names that the Protocols of plug-ins and launchers ask for."""

FILES = {"__init__.py", "__main__.py", "launcher.py", "linear.py", "npz.py", "quadratic.py"}
"""Names that Python and entry points ask for, and tasks, formats, models and schedules found by their names."""

OPEN = {
    *(f"trainers.{kind}" for kind in ("methods", "models", "optimizers", "reports", "schedules", "tasks")),
    "trainers.data.formats",
}
"""Folders of plug-ins: their modules are found by their names, and who adds one edits nothing else."""


def test_classes_have_names_of_their_own() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for file in sorted((TESTS.parent / package).rglob("*.py")):
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(str(file.relative_to(TESTS.parent)))
    several = {name: files for name, files in places.items() if len(files) > 1}
    assert {name: files for name, files in several.items() if name not in FIXED} == {}
    assert several.keys() == FIXED
    assert len(places) > 300


def test_local_names_say_what_they_hold() -> None:
    empty = {"asked", "each", "found", "here", "known", "ours", "place", "wanted", "whose"}
    named: Counter[tuple[str, str]] = Counter()
    for package in PACKAGES:
        for file in sorted((TESTS.parent / package).rglob("*.py")):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
            for node in {inner for function in functions for inner in ast.walk(function)}:
                bound = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                name = node.arg if isinstance(node, ast.arg) else node.id if bound else ""
                if name in empty:
                    named[str(file.relative_to(TESTS.parent)), name] += 1
    assert named == {("service/web/issuer_sign_in.py", "wanted"): 1}  # of a URL


def test_processes_import_nothing_from_the_working_directory() -> None:
    """Every Python that Driftline starts has the option -P, but for programs of people's own."""
    started = [
        (re.split(r"sys\.executable", file.read_text(encoding="utf-8"))[1:], file.relative_to(TESTS.parent))
        for package in PACKAGES
        for file in sorted((TESTS.parent / package).rglob("*.py"))
        if file.name != "program_command.py"
    ]
    assert [str(file) for parts, file in started for rest in parts if not rest.startswith(', "-P"')] == []
    assert sum(len(parts) for parts, _ in started) >= 5


def test_files_of_a_package_have_names_of_their_own() -> None:
    shared = set()
    for package in PACKAGES:
        files = [file for file in (TESTS.parent / package).rglob("*.py") if file.parent.name != "versions"]
        assert len(files) > 5
        shared |= {name for name, times in Counter(file.name for file in files).items() if times > 1}
    assert shared == FILES


def test_packages_say_what_lives_in_them() -> None:
    """A docstring names every module and folder: in the first column of a list, or between backticks."""
    unnamed: dict[str, set[str]] = {}
    unknown: dict[str, set[str]] = {}
    named = 0
    for package in PACKAGES:
        for file in sorted((TESTS.parent / package).rglob("__init__.py")):
            folder = file.parent
            name = ".".join(folder.relative_to(TESTS.parent).parts)
            docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")), clean=False) or ""
            rows = re.findall(r"^    (\w+/?(?:, \w+/?)*)  +\S", docstring, re.MULTILINE)
            listed = {word for row in rows for word in row.replace("/", "").split(", ")}
            quoted = set(re.findall(r"(?<!`)`([\w.]+)`(?!`)", docstring))
            modules = {child for child in children(folder) if child.isidentifier()}
            if name in OPEN:
                modules = {module for module in modules if module.startswith("_")}
            unnamed[name] = modules - listed - quoted
            unknown[name] = listed - children(folder) - defined(file)
            unknown[name] |= {word for word in quoted if not (exists(word, folder) or exists(word, TESTS.parent))}
            named += len(modules)
    assert {name: modules for name, modules in unnamed.items() if modules} == {}
    assert {name: words for name, words in unknown.items() if words} == {}
    assert unnamed.keys() > OPEN
    assert named > 400


def children(folder: Path) -> set[str]:
    """The modules and folders of a package."""
    modules = {file.stem for file in folder.glob("*.py") if file.name != "__init__.py"}
    return modules | {path.name for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"}


def exists(name: str, folder: Path) -> bool:
    """Whether a dotted name leads from a folder to a module, to another folder, or to what a module there defines."""
    *parents, last = name.split(".")
    place = folder.joinpath(*parents)
    if not place.is_dir():
        return last in defined(place.with_suffix(".py"))
    return last in children(place) or any(last in defined(file) for file in place.glob("*.py"))


def defined(module: Path) -> set[str]:
    """The classes and functions of a module; of a package, also what it imports for its users."""
    if not module.is_file():
        return set()
    tree = ast.parse(module.read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    if module.name == "__init__.py":
        names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    return names


WORDS = {"data", "text", "digits", "linear", "lookahead", "lyapunov", "momentum", "drift"}
"""Names of plug-ins that are also other words."""

BY_NAME = {
    "driftline/study/entries.py": {"constant"},  # the schedule that an entry leaves out
    "search_spaces/from_theory.py": {"sgd"},  # as `trainers.theory.rates` calls its closed forms
    "search_spaces/presets.py": {"fedavg"},  # presets are entries by another name
    "search_spaces/spaces.py": {"sgd", "adam", "yogi", "adagrad"},
    "service/api/routes/studies.py": {"fedavg"},  # an example in the API's documents
    "service/cli/theory.py": {"sgd"},
    "trainers/optimizer_contract.py": {"nesterov"},  # a closed form
    "trainers/data/column_advice.py": {"dual_encoder", "lstm"},  # the models of logs and of texts
    "trainers/data_description.py": {"logistic"},  # the model of data with tags
    "trainers/data/federated.py": {"softmax"},  # the model that a document leaves out
    "trainers/engine/evaluation/flops.py": {"lstm"},  # a function of torch
    "trainers/problem.py": {"softmax"},
    "trainers/registry.py": {"own_module", "adam", "yogi", "adagrad"},  # other frameworks' names of servers
    "trainers/trial/members.py": {"constant"},
    "trainers/trial/mixed_warnings.py": {"one_way_transfer"},  # a theorem about one method
    "trainers/trial/document_errors.py": {
        "fedavg",
        "feddyn",
        "linear_regression",
        "plateau",
    },  # for what cannot be read
    "trainers/trial/roles.py": {"sgd"},  # the optimizer that a document leaves out
}
"""Where plug-ins may be named outside their folders; `trainers/theory` states theorems about methods by name."""


def test_plug_ins_are_named_in_their_folders_only() -> None:
    """What a plug-in is, it says itself, as a constant of its module: `Registry.constant`."""
    kinds = (methods, optimizers, schedules, tasks, models, reports)
    names = {name for kind in kinds for name in kind() if kind().built_in(name)} - WORDS
    assert len(names) > 50
    found: dict[str, set[str]] = defaultdict(set)
    for package in PACKAGES:
        for file in sorted((TESTS.parent / package).rglob("*.py")):
            place = str(file.relative_to(TESTS.parent))
            if place.startswith("trainers/theory/") or str(Path(place).parent).replace("/", ".") in OPEN:
                continue
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names:
                    found[place].add(node.value)
    assert found == BY_NAME
