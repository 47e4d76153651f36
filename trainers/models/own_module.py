"""Your own torch module: what a function of yours returns, in a file or in a package.

    "model": {"module": "net.py:make", "width": 64}
    "model": {"module": "mypackage.net:make", "width": 64}

The function, or class, returns a new torch.nn.Module from inputs (examples, ...) to scores (examples, classes), to
(examples, numbers) or (examples, tags) if the targets are these, or to (examples, positions, tokens). Other keys are
its arguments; `arguments: {...}` holds those that have the name of a key. A function that has parameters `classes` or
`outputs` (of the scores), `shape` (of an example's inputs) or `vocabulary` gets those from the task. What a module may
do is described in `trainers.models._network`.

A file is found beside the study's file or in the current directory, a package where it is installed. `sha256` is the
digest of the code, which studies and checkpoints keep: other code is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainers.engine.memory import ran_out
from trainers.errors import SpecError
from trainers.hyperparameters import check, join, tunable
from trainers.models._network import Network
from trainers.models._problem import examples_of, outputs_of
from trainers.own_function import beside, checked_arguments, digest, load, said, source_of
from trainers.problem import Problem
from trainers.values import shown

TARGETS = "any"
PARTS = True
DTYPES = ("float32", "float64", "bfloat16")


@dataclass(frozen=True)
class _ModuleKeys:
    """Keys of the model in a document, besides the arguments of the function."""

    module: str = tunable(traced=False, doc="file.py:function or package.module:function, which returns a torch module")
    sha256: str | None = tunable(None, traced=False, doc="digest of the code; other code is refused")
    arguments: Any = tunable(None, kind="any", traced=False, doc="of the function; other keys are arguments too")


_OFFERED = ("classes", "outputs", "shape", "vocabulary")
_OWN = ("module", "sha256", "arguments")


def parse(document: dict[str, Any], path: str) -> dict[str, Any]:
    """The settings of a document, with the digest of the code and all arguments in one object.

    Args:
        document: settings of the model.
        path: dotted path of the model.

    Raises:
        SpecError: there is no such function, or it does not take the arguments.
        MissingDataError: there is no such file.
    """
    settings = check(
        _ModuleKeys, {key: value for key, value in document.items() if key in _OWN}, path, other_keys=("name",)
    )
    key_path = join(path, "module")
    settings["module"] = beside(settings["module"], Path.cwd())
    source = source_of(settings["module"], key_path)
    sha256 = digest(source, key_path)
    if settings["sha256"] not in (None, sha256):
        raise SpecError(
            f"{join(path, 'sha256')} must be that of the code in {source.place}, {sha256}, got "
            f"{shown(settings['sha256'])}: the code has changed; go back to the old one, or begin a new study",
            join(path, "sha256"),
        )
    nested = settings["arguments"]
    if not isinstance(nested, Mapping | None):
        where = join(path, "arguments")
        raise SpecError(f"{where} must be an object of names and values, got arguments={shown(nested)}", where)
    arguments = {**(nested or {}), **{key: value for key, value in document.items() if key not in _OWN}}
    checked_arguments(load(source, sha256, key_path), arguments, dict.fromkeys(_OFFERED), path)
    return {"module": settings["module"], "sha256": sha256, "arguments": arguments}


def build(problem: Problem, dtype: torch.dtype, device: torch.device) -> Network:
    """The model of a problem.

    Raises:
        SpecError: the function fails or returns something else, or the module cannot be trained.
    """
    settings, path = problem.model_settings, "task.model"
    source = source_of(settings["module"], f"{path}.module")
    function = load(source, settings["sha256"], f"{path}.module")
    train = examples_of(problem)
    offered: dict[str, Any] = {"shape": tuple(train.inputs.shape[1:]), "outputs": outputs_of(problem)}
    if train.kind != "numbers":
        offered["classes"] = outputs_of(problem)
    if "vocabulary" in settings:
        offered["vocabulary"] = settings["vocabulary"]
    arguments = checked_arguments(function, settings["arguments"], offered, path)

    def make() -> nn.Module:
        try:
            module = function(**arguments)
        except Exception as error:  # any error of other people's code
            if ran_out(error) or device.type == "meta":  # the function may need real tensors
                raise
            raise SpecError(f"{path}: {settings['module']} fails: {said(error)}", path) from error
        if not isinstance(module, nn.Module):
            came = shown(type(module).__name__)
            raise SpecError(f"{path}.module: {settings['module']} must return a torch.nn.Module, got {came}", path)
        return module

    return Network(problem, make, dtype, device)
