"""What there is to choose from: each module in a folder is one method, optimizer, schedule, task, model, report.

Nothing has to be registered. Modules whose name begins with "_" are private and ignored. Installed packages may add
their own through entry points of the groups driftline.methods, driftline.optimizers, driftline.schedules,
driftline.tasks, driftline.models and driftline.reports; a name of the folder itself wins over an entry point of the
same name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from trainers.errors import SpecError
from trainers.scalars import shown
from trainers.spelling import hint


class Registry(Mapping[str, ModuleType]):
    """Names to modules; names are listed without importing anything, a module is imported when it is asked for.

    Args:
        folder: name of a folder of trainers, as "methods".
        word: what one of them is called in errors, as "method".
    """

    def __init__(self, folder: str, word: str) -> None:
        self.folder = folder
        self.word = word
        package = importlib.import_module(f"trainers.{folder}")
        self._own = {found.name for found in pkgutil.iter_modules(package.__path__) if not found.name.startswith("_")}
        self._loaded: dict[str, ModuleType] = {}  # of the folder: import_module costs more than the rest of a look-up
        self._added: dict[str, EntryPoint] = {
            point.name: point for point in entry_points(group=f"driftline.{folder}") if point.name not in self._own
        }

    def __getitem__(self, name: str) -> ModuleType:
        if (known := self._loaded.get(name)) is not None:
            return known
        if name in self._own:
            self._loaded[name] = importlib.import_module(f"trainers.{self.folder}.{name}")
            return self._loaded[name]
        loaded = self._added[name].load()
        if not isinstance(loaded, ModuleType):
            raise TypeError(f"entry point {name} of driftline.{self.folder} must name a module, got {loaded!r}")
        return loaded

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._added

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._own, *self._added}))

    def __len__(self) -> int:
        return len({*self._own, *self._added})

    def find(self, name: object, path: str) -> ModuleType:
        """The module of a name that a user wrote.

        Args:
            name: as it came from a document.
            path: dotted place of the name, for the error.

        Raises:
            SpecError: not a text, or no such module; the message names the nearest one.
        """
        if not isinstance(name, str):
            raise SpecError(f"{path} must be the name of a {self.word}, got name={shown(name)}", path)
        if name not in self:
            raise SpecError(f"{path}: no {self.word} {shown(name)}: {hint(name, self)}", path)
        return self[name]


@cache
def methods() -> Registry:
    """Every module in trainers/methods, by name."""
    return Registry("methods", "method")


@cache
def optimizers() -> Registry:
    """Every optimizer in trainers/optimizers, by name."""
    return Registry("optimizers", "optimizer")


@cache
def schedules() -> Registry:
    """Every schedule in trainers/schedules, by name."""
    return Registry("schedules", "schedule")


@cache
def tasks() -> Registry:
    """Every task in trainers/tasks, by name."""
    return Registry("tasks", "task")


@cache
def models() -> Registry:
    """Every model in trainers/models, by name."""
    return Registry("models", "model")


@cache
def reports() -> Registry:
    """Every module in trainers/reports, by name: what report lines may hold besides what they always do."""
    return Registry("reports", "report")
