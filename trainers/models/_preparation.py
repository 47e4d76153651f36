"""Prepares a module: shapes of lazy layers, frozen parts, and refusals that need no call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from trainers.engine.memory import tensor_of
from trainers.errors import SpecError
from trainers.problem import WHOLE
from trainers.spelling import hint
from trainers.values import shown

_NORMALISATIONS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_MOST_GROUPS, _LEAST_CHANNELS = 32, 16  # of group normalisation, as in Wu and He 2018
_PARAMETRIZED = ".parametrizations."


def give_shapes(module: nn.Module, example: NDArray[Any]) -> None:
    """Calls a module with lazy layers once, so that their parameters get shapes and first values.

    Args:
        module: a new module, changed in place.
        example: (1, ...) the inputs of an example; whole numbers are tried as int64 first, then as floats.

    Raises:
        SpecError: a layer keeps no shape.
    """
    lazy = next(((name, parameter) for name, parameter in module.named_parameters() if is_lazy(parameter)), None)
    if lazy is None:
        return
    mode, name, cause = module.training, lazy[0].rpartition(".")[0], "the module's forward does not call it"
    module.eval()
    for dtype in (torch.int64, torch.float32)[example.dtype.kind not in WHOLE :]:
        inputs = tensor_of(example).to(lazy[1].device, dtype)
        try:
            with torch.no_grad():
                module(inputs)
            break
        except Exception as error:  # any error of other people's code
            cause = f"{type(error).__name__}: {error}"
    module.train(mode)
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        if lazy[1].is_meta:
            raise RuntimeError(cause)  # the module may need real tensors
        raise refusal(module, name, f"gets no shape from the first example, with inputs {shape_text(example)}: {cause}")


def freeze_others(module: nn.Module, patterns: Sequence[str]) -> None:
    """Freezes all parameters except those whose names fit a pattern; one that `make` has frozen stays frozen.

    Args:
        module: changed in place.
        patterns: as in a shell: "head.*", "*.lora_?".

    Raises:
        SpecError: a pattern fits no parameter that could be trained.
    """
    free = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in free):
            path = "task.model.train"
            suggestions = [*free, *dict.fromkeys(f"{name.rpartition('.')[0]}.*" for name in free if "." in name)]
            raise SpecError(
                f"{path}: no parameter fits the pattern {shown(pattern)}: {hint(pattern, suggestions)}", path
            )
    for name, parameter in free.items():
        parameter.requires_grad_(any(fnmatchcase(name, pattern) for pattern in patterns))


def dense(module: nn.Module) -> None:
    """Makes gradients of embeddings dense, since they are added to rows of all parameters; the numbers are the same.

    Args:
        module: changed in place.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
            layer.sparse = False


def refuse_unsuited(module: nn.Module) -> None:
    """Raises a SpecError for faults that are found without a call, so that a study is refused before it begins.

    These are complex numbers, hooks on parameters, which only some oracles would call, TorchScript, dropout of
    everything, and batch normalisation unless the module keeps it in evaluation mode.

    Args:
        module: as `make` returns it.
    """
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_complex():
            layer, tensor_name = owner(name)
            raise refusal(
                module, layer, f"must compute with real numbers, got {tensor_name} of {tensor.dtype}: keep two parts"
            )
        if tensor._backward_hooks or tensor._post_accumulate_grad_hooks:
            layer, tensor_name = owner(name)
            raise refusal(module, layer, f"must have no hook on its {tensor_name}: change gradients in `forward`")
    mode = module.training
    module.train()
    for name, layer in module.named_modules():
        if isinstance(layer, torch.jit.ScriptModule):
            raise refusal(module, name, "must be a plain torch module, got TorchScript")
        if type(layer) is nn.Dropout and layer.p >= 1:
            raise refusal(module, name, f"must drop fewer than all units, got p={layer.p:g}")
        if isinstance(layer, _NORMALISATIONS) and layer.training:
            reason = "mixes the examples of a batch, which no local update method can average: write "
            raise refusal(module, name, reason + _group_norm(layer.num_features))
    module.train(mode)


def _group_norm(channels: int) -> str:
    """The layer to write in place of batch normalisation: groups of at least 16 channels, or one group."""
    groups = math.gcd(channels, _MOST_GROUPS)
    while groups > 1 and channels // groups < _LEAST_CHANNELS:
        groups //= 2
    return f"nn.GroupNorm({groups}, {channels}) in its place"


def refusal(module: nn.Module, layer: str, reason: str) -> SpecError:
    """The error for a layer: "task.model: layer NAME (Type) ...".

    Args:
        module: the whole module.
        layer: name of the layer in it; "" is the module itself.
        reason: the rest of the line.
    """
    submodule = dict(module.named_modules()).get(layer, module)
    where = f"layer {layer} ({type(submodule).__name__})" if layer else f"the module ({type(module).__name__})"
    return SpecError(f"task.model: {where} {reason}", "task.model")


def owner(name: str) -> tuple[str, str]:
    """(layer, name in the layer) of a tensor or an attribute; of a parametrized tensor, the parametrized layer."""
    if _PARAMETRIZED in name:
        layer, _, rest = name.partition(_PARAMETRIZED)
        return layer, rest
    layer, _, rest = name.rpartition(".")
    return layer, rest


def shape_text(array: Tensor | NDArray[Any]) -> str:
    """The shape in parentheses."""
    return f"({', '.join(map(str, array.shape))})"
