"""What a module holds between two calls: its parameters, its buffers, and plain attributes of its layers."""

from __future__ import annotations

import pickle
import random
from collections import deque
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_OWN = frozenset(vars(nn.Module()))  # attributes of every module
_DEPTH = 3  # levels of containers inside containers
_LONGEST = 256  # elements of a container that are examined
_PLAIN = (bool, int, float, complex, str, bytes)


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Copies of the parameters and buffers by name."""
    return {name: tensor.detach().clone() for name, tensor in (*module.named_parameters(), *module.named_buffers())}


def attributes_of(module: nn.Module) -> dict[str, Any]:
    """Numbers, strings, tensors, arrays and generators in attributes of the layers, by "layer.attribute".

    These include attributes of the layers' classes, and of objects in attributes.
    """
    attributes = {}
    for name, layer in module.named_modules():
        classes = [cls for cls in type(layer).__mro__ if cls.__module__.partition(".")[0] not in ("torch", "builtins")]
        for attribute, value in (*(item for cls in classes for item in vars(cls).items()), *vars(layer).items()):
            if attribute not in _OWN:
                attributes[f"{name}.{attribute}"] = _frozen(value, _DEPTH)
    return attributes


def first_difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """The first name of `before` whose value is different in `after`; None if there is none."""
    return next((name for name, value in before.items() if not _same(value, after.get(name))), None)


def _frozen(value: Any, depth: int) -> Any:
    """A copy that does not change with the value; None for values that are not examined."""
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, nn.Parameter | nn.Module):
        return None  # examined as parameters and layers of the module
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray | np.generic):
        return np.array(value)
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, random.Random | np.random.Generator | np.random.RandomState):
        return pickle.dumps(value)
    if depth and isinstance(value, Mapping):
        return len(value), [_frozen(item, depth - 1) for item in list(value.values())[:_LONGEST]]
    if depth and isinstance(value, list | tuple | deque):
        return len(value), [_frozen(item, depth - 1) for item in list(value)[-_LONGEST:]]
    if isinstance(value, set | frozenset):
        return len(value)
    plain = depth and not callable(value) and not isinstance(value, property | classmethod | staticmethod | ModuleType)
    return _frozen(dict(attributes), depth - 1) if plain and (attributes := getattr(value, "__dict__", None)) else None


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return one.shape == other.shape and (torch.equal(one, other) or torch.equal(_bits(one), _bits(other)))
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_same(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other or one != one)  # NaN equals NaN


def _bits(tensor: Tensor) -> Tensor:
    """The tensor in a form in which NaN equals NaN."""
    return tensor.nan_to_num(nan=1.25e30) if tensor.is_floating_point() else tensor
