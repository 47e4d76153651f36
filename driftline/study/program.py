"""A user's own training program, in place of a study's task.

Example::

    program:
      command: [python, train.py]                 # started once for each trial; an argument list, never a shell
      metrics: {test_loss: falls, accuracy: rises}
      costs: [tokens]                             # what it counts besides rounds and seconds
      checkpoints: true                           # it can go on from a folder that it wrote
      reuse: true                                 # it stays for several trials: for t in trial.each(): ...
      files: [train.py, mypackage/]               # copied into the output folder, and run from there
      env: {TOKENIZERS_PARALLELISM: "false"}

and its entries: ``{label: fedavg, fixed: {algorithm: fedavg}, space: {client_lr: {float: [1e-3, 1], log: true}}}``.

What a program reads and writes: docs/programs.md. An entry becomes a `MethodEntry` of the name `PROGRAM`, so that
search, results and pages treat it as any other; its hyperparameters are the program's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, model_validator
from pydantic import Field as Key

from driftline.errors import InvalidSpec
from driftline.study.entries import PROGRAM
from driftline.study.program_function import function_program
from driftline.study.trial_settings import SHARED
from driftline.study.validation import Errors, Real, Section
from search_spaces.parameters import Choice
from trainers import hint, shown, step

SERVED = ""
"""Folder of a program that a service runs: each trial has one of its own, on the node where it is trained."""

MOST_NAMES = 200
"""Most metrics, costs, variables and files of a program."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@/-]{0,99}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")
_OURS = ("DRIFTLINE_", "RAY_")
_COUNTED = ("rounds", "seconds")
_RESERVED = ("round", "rounds", "seconds", "time", "wall_seconds", "diverged")
_ENTRY_KEYS = ("label", "fixed", "space", "constraints", "start", "prior", "sampler")
_REFUSED = (*SHARED, "evaluation")


def _command(value: list[str]) -> list[str]:
    if not value or not value[0].strip():
        raise ValueError("must be a list of a program and its arguments, such as [python, train.py], got an empty one")
    if any("\0" in argument for argument in value):
        raise ValueError("must hold no null character")
    return value


def _file(value: str) -> str:
    path = PurePosixPath(value)
    if not value or path.is_absolute() or ".." in path.parts or path == PurePosixPath(".") or "\0" in value:
        raise ValueError(f"must be a path below the folder of the study's file, got {shown(value)}")
    return value


def _secret(value: str) -> str:
    if not _SECRET.fullmatch(value) or value.startswith(_OURS):
        raise ValueError(f"must be the name of a variable that is not Driftline's or Ray's, got {shown(value)}")
    return value


class ProgramCost(str):
    """The name of a cost in a study of a program, which may count costs of its own."""


class Program(Section):
    """The program that trains a study's trials.

    Attributes:
        command: The program and its arguments. It is started once for each trial, in `folder`, without a shell.
        metrics: What it measures, with the way in which each gets better.
        costs: What it counts besides rounds and seconds; a count never falls.
        checkpoints: Whether it can go on from a folder that it wrote.
        reuse: Whether one process trains several trials, one after another.
        files: Files and folders that are copied into the output folder when the study begins; the program then starts
            in the copy. Without any it starts in `folder`.
        env: Variables that are added to its environment.
        secrets: Names of what else is added: variables of this environment, or on a service those or the Secrets of
            Kubernetes that its operator allows.
        image: Image of the workers, on a service that allows it.
        silence: Seconds without a report line after which it is ended.
        grace: Seconds that it gets between SIGTERM and SIGKILL; a stop of its study waits for 120 s in all.
        folder: Folder that `files` are relative to: that of the study's file, or the working directory; `SERVED` on a
            service.
        function: A Python function in place of a command, pickled; made by ``Study(program=train)``.
        source: Text of that function.
        archive: Digest of `files` as they were packed for a service; clients add it.
    """

    command: Annotated[list[str], AfterValidator(_command)]
    metrics: dict[str, Literal["falls", "rises"]] = Key(min_length=1, max_length=MOST_NAMES)
    costs: list[str] = Key(default_factory=list, max_length=MOST_NAMES)
    checkpoints: bool = False
    reuse: bool = False
    files: list[Annotated[str, AfterValidator(_file)]] = Key(default_factory=list, max_length=MOST_NAMES)
    env: dict[str, str] = Key(default_factory=dict, max_length=MOST_NAMES)
    secrets: list[Annotated[str, AfterValidator(_secret)]] = Key(default_factory=list, max_length=MOST_NAMES)
    image: str | None = Key(default=None, pattern="^[a-z0-9][A-Za-z0-9._:/@-]{0,499}$")
    silence: Real = Key(default=600.0, gt=0, le=1e6)
    grace: Real = Key(default=30.0, gt=0, le=100)
    folder: str
    function: str | None = None
    source: str | None = None
    archive: str | None = Key(default=None, pattern="^[0-9a-f]{64}$")

    @model_validator(mode="after")
    def _names(self) -> Self:
        errors = Errors()
        for key, names in (("metrics", [*self.metrics]), ("costs", self.costs)):
            for name in names:
                path = f"{key}.{step(name)}" if key == "metrics" else key
                if not _NAME.fullmatch(name):
                    problem = "must begin with a letter and hold letters, digits and _ . @ / - only"
                    errors.add(InvalidSpec(path, f"{problem}, got {shown(name)}"))
                elif name in _RESERVED:
                    errors.add(InvalidSpec(path, f"must not be {name}, which Driftline counts itself: leave it out"))
        if twice := sorted({name for name in self.costs if name in self.metrics or self.costs.count(name) > 1}):
            errors.add(InvalidSpec("costs", f"must name each cost once, and no metric, got {twice[0]} twice"))
        if "bytes" in self.costs and {"bytes_up", "bytes_down"} & {*self.costs, *self.metrics}:
            errors.add(InvalidSpec("costs", "must be bytes, or bytes_up and bytes_down, not both"))
        for name, value in self.env.items():
            if not _VARIABLE.fullmatch(name) or name.startswith(_OURS):
                problem = "must be the name of a variable that is not Driftline's or Ray's"
                errors.add(InvalidSpec(f"env.{step(name)}", problem))
            elif "\0" in value:
                errors.add(InvalidSpec(f"env.{step(name)}", "must hold no null character"))
        errors.raise_any()
        return self

    @property
    def counted(self) -> tuple[str, ...]:
        """The costs that a study of this program may choose."""
        totals = ("bytes",) if {"bytes_up", "bytes_down"} <= set(self.costs) else ()
        return (*_COUNTED, *self.costs, *totals)

    def to_json(self) -> dict[str, Any]:
        """The program as JSON, without what is not given."""
        optional: dict[str, Any] = {name: [] for name in ("costs", "files", "secrets")} | {"env": {}, "reuse": False}
        optional |= dict.fromkeys(("image", "function", "source", "archive"))
        document = self.model_dump(mode="json")
        return {key: value for key, value in document.items() if key not in optional or value != optional[key]}

    def identity(self) -> dict[str, Any]:
        """What identifies the program: everything but its location, and for a function only the source text."""
        left_out = {"folder", "function"} if self.source is not None else {"folder"}
        return {key: value for key, value in self.to_json().items() if key not in left_out}


def placed(document: Any, folder: Path) -> Any:
    """The study's document, with its program's folder resolved against the folder of the study's file."""
    program = document.get("program") if isinstance(document, dict) else None
    if not isinstance(program, dict):
        return document
    path = program.get("folder", ".")
    return document | {"program": program | {"folder": str(folder / path)}} if isinstance(path, str) else document


def program_study(values: dict[str, Any]) -> dict[str, Any]:
    """Turns the values of a study of a program into those of a study with an empty task.

    Args:
        values: As they were given; `program` may be a function.

    Raises:
        InvalidSpec: A key belongs to studies with a task, or an entry is invalid.
    """
    errors = Errors()
    if values.get("task"):
        errors.add(InvalidSpec("task", "must be left out beside program: give one of the two"))
    for key in _REFUSED:
        if values.get(key) is not None:
            errors.add(
                InvalidSpec(key, "must be left out beside program, whose settings are its own: give it as fixed")
            )
    program = values["program"]
    if callable(program):
        program = {"function": program}
    if isinstance(program, dict) and callable(program.get("function")):
        settings = {key: value for key, value in program.items() if key != "function"}
        program = function_program(program["function"], values.get("objective"), **settings)
    if isinstance(program, dict):
        program = {"folder": os.getcwd(), **program}
    resources = values.get("resources", {})
    if isinstance(resources, dict):
        if resources.get("packs", "auto") not in ("auto", 1):
            problem = f"must be 1 for a program, which trains one trial, got packs={shown(resources['packs'])}"
            errors.add(InvalidSpec("resources.packs", problem))
        resources = resources | {"packs": 1}
    objective = values.get("objective", {})
    metrics = program.get("metrics") if isinstance(program, dict) else None
    if isinstance(objective, dict) and "quality" not in objective and isinstance(metrics, dict) and len(metrics) == 1:
        objective = {"quality": next(iter(metrics)), **objective}
    if isinstance(objective, dict) and isinstance(objective.get("cost"), str):
        objective = objective | {"cost": ProgramCost(objective["cost"])}
    methods = values.get("methods")
    if isinstance(methods, list):
        entries = []
        for index, entry in enumerate(methods):
            with errors.collected():
                entries.append(_entry(entry, f"methods[{index}]"))
        methods = entries
    errors.raise_any()
    changed = {"task": {}, "program": program, "resources": resources, "objective": objective, "methods": methods}
    return values | {key: value for key, value in changed.items() if key != "methods" or "methods" in values}


def _entry(values: Any, path: str) -> dict[str, Any]:
    """Turns an entry of a program's study into a method's entry."""
    if not isinstance(values, Mapping):
        raise InvalidSpec(path, f"must be a mapping like {{label: fedavg, space: ...}}, got {shown(values)}")
    if strange := [key for key in values if key not in _ENTRY_KEYS]:
        raise InvalidSpec(f"{path}.{step(strange[0])}", f"unknown key: {hint(str(strange[0]), _ENTRY_KEYS)}")
    if "label" not in values:
        raise InvalidSpec(f"{path}.label", "must be given: the entry's name in results")
    space = {}
    for key in ("fixed", "space"):
        part = values.get(key, {})
        if not isinstance(part, Mapping):
            raise InvalidSpec(f"{path}.{key}", f"must be a mapping of the program's hyperparameters, got {shown(part)}")
        for name, value in part.items():
            key_path = f"{path}.{key}.{step(name)}"
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                problem = "must begin with a letter and hold letters, digits and _ . @ / - only"
                raise InvalidSpec(key_path, f"{problem}, got {shown(name)}")
            if name in space:
                raise InvalidSpec(key_path, "must be given once, under fixed or under space")
            if key == "fixed" and not isinstance(value, bool | int | float | str):
                raise InvalidSpec(key_path, f"must be a number, a string, true or false, got {shown(value)}")
            space[name] = {"choice": [value]} if key == "fixed" else value
    rest = {key: value for key, value in values.items() if key not in ("fixed", "space")}
    return {**rest, "name": PROGRAM, "space": space}


def program_entry(document: Mapping[str, Any], space: Mapping[str, Any]) -> dict[str, Any]:
    """An entry as people write it: the reverse of what `program_study` does.

    Args:
        document: The entry as JSON.
        space: Its parameters.
    """
    fixed = {
        name: parameter.options[0]
        for name, parameter in space.items()
        if isinstance(parameter, Choice) and len(parameter.options) == 1
        if isinstance(parameter.options[0], bool | int | float | str)
    }
    free = {name: form for name, form in document["space"].items() if name not in fixed}
    kept = {key: document[key] for key in ("constraints", "start", "prior", "sampler") if document.get(key)}
    return {"label": document["label"], **({"fixed": fixed} if fixed else {}), "space": free, **kept}
