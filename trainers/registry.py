"""Finds plug-ins by name: each module in a folder is one method, optimizer, schedule, task, model or report.

Nothing has to be registered. Modules whose name begins with "_" are private and ignored. Installed packages may add
plug-ins through entry points of the groups driftline.methods, driftline.optimizers, driftline.schedules,
driftline.tasks, driftline.models and driftline.reports; a module of the folder takes precedence over an entry point of
the same name. The contract of a kind is a Protocol, such as `trainers.contracts.Method`.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Collection, Iterator, Mapping
from functools import cache, cached_property
from importlib.abc import InspectLoader
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from trainers.errors import PluginError, SpecError
from trainers.plugins import load
from trainers.spelling import hint
from trainers.values import shown

if TYPE_CHECKING:
    from trainers.contracts import Method, Optimizer, Schedule
    from trainers.engine.evaluation.views import ReportModule
    from trainers.engine.oracles.oracle import ModelBuilder
    from trainers.problem import Task

_ON_THE_SERVER = {
    "fedavgm": "sgd with momentum",
    "fedopt": "adam, yogi or adagrad",
    "fedadam": "adam",
    "fedyogi": "yogi",
    "fedadagrad": "adagrad",
}
_OWN_MODULE = "own_module"
P = TypeVar("P", covariant=True)


class Registry(Mapping[str, P]):
    """Maps names to plug-ins. Listing names imports nothing; a module is imported on first access.

    Args:
        package: name of the folder's package, such as "trainers.methods".
        kind: dotted name of the kind's Protocol, such as "trainers.contracts.Method".
        word: name of the kind for errors, such as "method".
        names: modules of the folder that are plug-ins; None takes all whose names do not begin with "_".
    """

    def __init__(self, package: str, kind: str, word: str, names: Collection[str] | None = None) -> None:
        self.package = package
        self.group = f"driftline.{package.rpartition('.')[2]}"
        self.word = word
        folder = importlib.import_module(package)
        self._protocol = kind
        public = {module.name for module in pkgutil.iter_modules(folder.__path__) if not module.name.startswith("_")}
        self._own = public if names is None else set(names)
        self._loaded: dict[str, P] = {}
        self._added: dict[str, EntryPoint] = {
            point.name: point for point in entry_points(group=self.group) if point.name not in self._own
        }

    @cached_property
    def _kind(self) -> type:
        module, _, name = self._protocol.rpartition(".")
        return cast(type, getattr(importlib.import_module(module), name))

    def __getitem__(self, name: str) -> P:
        if name not in self._loaded:
            self._loaded[name] = cast(P, load(self._kind, self.word, self._module(name)))
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._added

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._own, *self._added}))

    def __len__(self) -> int:
        return len({*self._own, *self._added})

    def built_in(self, name: object) -> bool:
        """Whether the plug-in is a module of the folder, not of an installed package."""
        return name in self._own

    def find(self, name: object, path: str) -> P:
        """The plug-in with a name from a document.

        Args:
            name: the name from the document.
            path: dotted path of the name, for the error.

        Raises:
            SpecError: the name is not a string, or there is no such plug-in.
            PluginError: the module breaks the contract of its kind.
        """
        if not isinstance(name, str):
            raise SpecError(f"{path} must be the name of a {self.word}, got name={shown(name)}", path)
        if name not in self:
            plain = name.lower().replace("-", "").replace("_", "")
            server = _ON_THE_SERVER.get(plain) if self.word == "method" else None
            what = f"it is fedavg with the server {server}" if server else hint(name, self)
            raise SpecError(f"{path}: no {self.word} {shown(name)}: {what}", path)
        return self[name]

    def constant(self, name: object, attribute: str, default: Any = None) -> Any:
        """A literal that a plug-in assigns to an attribute, read from its source without importing it or torch.

        Args:
            name: of the plug-in.
            attribute: its attribute, such as "SPACE".
            default: value for a plug-in that does not assign one, and for a name without a plug-in.

        Raises:
            PluginError: the assigned value is not a literal.
        """
        if not isinstance(name, str) or name not in self:
            return default
        value = _literal(f"{self.package}.{name}" if name in self._own else self._added[name].module, attribute)
        return default if value is None else value

    def _module(self, name: str) -> ModuleType:
        if name in self._own:
            return importlib.import_module(f"{self.package}.{name}")
        point = self._added[name]
        try:
            loaded = point.load()
        except (ImportError, AttributeError, SyntaxError) as error:
            raise PluginError(f"entry point {name} of {self.group}: cannot import {point.value}: {error}") from error
        if not isinstance(loaded, ModuleType):
            raise PluginError(f"entry point {name} of {self.group} must name a module, got {loaded!r}")
        return loaded


@cache
def _literal(module: str, attribute: str) -> Any:
    spec = find_spec(module)
    source = spec.loader.get_source(module) if spec and isinstance(spec.loader, InspectLoader) else None
    for node in ast.parse(source or "").body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and attribute in (
            getattr(target, "id", "") for target in targets
        ):
            try:
                return ast.literal_eval(node.value or ast.Constant(None))
            except ValueError as error:
                raise PluginError(f"{module}: {attribute} must be a literal, line {node.lineno}") from error
    return None


@cache
def methods() -> Registry[Method]:
    """Every method in trainers/methods, by name."""
    return Registry("trainers.methods", "trainers.contracts.Method", "method")


@cache
def optimizers() -> Registry[Optimizer]:
    """Every optimizer in trainers/optimizers, by name."""
    return Registry("trainers.optimizers", "trainers.contracts.Optimizer", "optimizer")


@cache
def schedules() -> Registry[Schedule]:
    """Every schedule in trainers/schedules, by name."""
    return Registry("trainers.schedules", "trainers.contracts.Schedule", "schedule")


@cache
def tasks() -> Registry[Task]:
    """Every task in trainers/tasks, by name."""
    return Registry("trainers.tasks", "trainers.problem.Task", "task")


@cache
def models() -> Registry[ModelBuilder]:
    """Every model in trainers/models, by name."""
    return Registry("trainers.models", "trainers.engine.oracles.oracle.ModelBuilder", "model")


def model_named(model: Any) -> Any:
    """Name of the model in a document, from a string or an object; an object with only `module` is own_module.

    Args:
        model: the value of `model`, not checked yet.

    Returns:
        None if the object has no name.
    """
    if isinstance(model, Mapping):
        return model.get("name", _OWN_MODULE if "module" in model else None)
    return model


@cache
def reports() -> Registry[ReportModule]:
    """Every report in trainers/reports, by name: optional metrics of report lines."""
    return Registry("trainers.reports", "trainers.engine.evaluation.views.ReportModule", "report")
