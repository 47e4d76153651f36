"""Which modules are stacks: layers of `_layers` one after another, without branches.

A copy of the module is traced by torch.fx in both modes: `forward` is called with a stand-in for its inputs, which
records what is called with it. A module that looks at numbers, has branches or hooks or uses a layer with parameters
twice is no stack. Layers of torch with parameters must be among those below; anything without parameters, such as an
activation or `x.mean(1)`, is differentiated by autograd.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import map_arg

from trainers.models._dropout import Dropout
from trainers.models._layers import (
    Convolution,
    Dense,
    Differentiated,
    Dropped,
    Flatten,
    Layer,
    MaxPool,
    Permuted,
    Relu,
    WordVectors,
    by_client,
)


class _NoStackError(Exception):
    """The module is no stack."""


class _Tracer(fx.Tracer):
    """Traces into users' own modules, not into torch's layers."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a call of the module is one step."""
        return type(m) is Dropout or super().is_leaf_module(m, module_qualified_name)


def stack_of(module: nn.Module) -> list[Layer] | None:
    """The layers of a module that uses each of its parameters once; None if it is no stack."""
    if any(_does_more(submodule) for submodule in module.modules()):
        return None
    tensors = (*module.parameters(), *module.buffers())
    try:
        copied = copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})  # `forward` may keep what it gets
        graphs = [_Tracer().trace(copied.train(training)) for training in (False, True)]
        layers = _merged(_layers_in(graphs[0], module)) if str(graphs[0]) == str(graphs[1]) else []
    except Exception:  # any error of other people's code
        return None
    names = [name for layer in layers for name in layer.names]
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    whole = len(trained) == len(list(module.parameters())) == len(names) and trained == set(names)
    tables = [layer for layer in layers if isinstance(layer, WordVectors)]
    first = next((layer for layer in layers if layer.names), None)
    return layers if whole and names and tables in ([], [first]) else None


def _does_more(module: nn.Module) -> bool:
    """Whether a call of the module does more than the `forward` of its class, which tracing would not see."""
    before = module._forward_pre_hooks or module._backward_pre_hooks
    hooked = before or module._forward_hooks or module._backward_hooks
    return bool(hooked) or "forward" in vars(module) or type(module).__call__ is not nn.Module.__call__


def _layers_in(graph: fx.Graph, module: nn.Module) -> list[Layer]:
    """The layers of a graph without branches."""
    layers: list[Layer] = []
    counts: set[fx.Node] = set()  # nodes that give the number of examples, or a shape from which it is taken
    last: fx.Node | None = None
    for node in graph.nodes:
        if node.op == "placeholder" and last is None:
            last = node
        elif node.op == "output" and node.args == (last,):
            return layers
        elif _is_count(node, counts):
            counts.add(node)
        elif not node.args or node.args[0] is not last or not counts.issuperset(_others(node)):
            break  # a branch, or something that a stack does not have
        elif node.op == "call_module":
            name, last = str(node.target), node
            child = module.get_submodule(name)
            if len(node.args) > 1 or node.kwargs:
                break
            if isinstance(child, Dropout):
                layers.append(
                    Dropped(child, sum(isinstance(layer, Dropped) and layer.dropout is child for layer in layers))
                )
            else:
                layers.append(_layer(child, name))
        else:
            last = node
            layers.append(_step(node, counts))
    raise _NoStackError


def _others(node: fx.Node) -> list[fx.Node]:
    """The nodes that a node takes besides its first argument."""
    others: list[fx.Node] = []
    map_arg((node.args[1:], node.kwargs), others.append)
    return others


def _is_count(node: fx.Node, counts: set[fx.Node]) -> bool:
    """Whether a node gives the number of examples: x.size(0), x.shape[0], or x.shape on the way to it."""
    arguments = node.args[1:]
    if node.op == "call_method" and node.target == "size":
        return arguments == (0,)
    if node.op != "call_function":
        return False
    if node.target is getattr:
        return arguments == ("shape",) and all(user.args[1:] == (0,) for user in node.users)
    return getattr(node.target, "__name__", "") == "getitem" and node.args[0] in counts and arguments == (0,)


def _layer(module: nn.Module, name: str) -> Layer:
    """The layer for a module of torch."""
    bare_names = tuple(bare for bare, _ in module.named_parameters())
    if bare_names not in ((), ("weight",), ("weight", "bias")):  # others are parametrized, or recurrent
        raise _NoStackError
    names = [f"{name}.{bare}" for bare in bare_names]
    if isinstance(module, nn.Linear):
        return Dense(names)
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return _convolution(module, names)
    if isinstance(module, nn.Embedding) and module.max_norm is None and not module.scale_grad_by_freq:
        return WordVectors(names, module.padding_idx)
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        shape = list(module.normalized_shape)
        normed: Callable[..., Tensor] = F.layer_norm if isinstance(module, nn.LayerNorm) else F.rms_norm
        return Differentiated(_scaled(partial(normed, normalized_shape=shape, eps=module.eps), len(shape)), names)
    if isinstance(module, nn.GroupNorm):
        return Differentiated(_group_norm(module), names)
    if isinstance(module, nn.ReLU):
        return Relu()
    if isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1):
        return Flatten()
    if isinstance(module, nn.MaxPool2d):
        return _max_pool(module)
    if names or any(True for _ in module.buffers()):
        raise _NoStackError
    module = copy.copy(module)
    vars(module)["inplace"] = False  # of activations; autograd's leaves must stay as they are
    return Differentiated(_of_examples(module))


def _step(node: fx.Node, counts: set[fx.Node]) -> Layer:
    """The layer for a function or a method of tensors."""
    target, named = node.target, dict(node.kwargs)
    rest: tuple[Any, ...] = node.args[1:]
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if node.op not in ("call_method", "call_function"):
        raise _NoStackError
    if name in ("relu", "relu_"):
        return Relu()
    if name == "permute" and rest[:1] == (0,):
        return Permuted(rest)
    if name == "flatten" and (*rest, *named.values()) in ((1,), (1, -1)):
        return Flatten()
    if name in ("view", "reshape") and len(rest) == 2 and rest[0] in counts and rest[1] == -1:
        return Flatten()
    if target in (F.max_pool2d, torch.max_pool2d) and len(rest) < 5:
        return _max_pool(partial(nn.MaxPool2d, *rest)(**named))
    called: Any = getattr(Tensor, target) if isinstance(target, str) else target

    def function(inputs: Tensor) -> Tensor:
        arguments, options = map_arg((rest, named), lambda _: len(inputs))
        outputs: Tensor = called(inputs, *arguments, **options)
        return outputs

    return Differentiated(_of_examples(function))


def _of_examples(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Turns a function of (examples, ...) into one of (m, examples, ...)."""
    return lambda inputs: by_client(function(inputs.flatten(0, 1)), inputs)


def _scaled(function: Callable[[Tensor], Tensor], axes: int) -> Callable[..., Tensor]:
    """A function of the last axes, times the weight of a client, plus its bias."""

    def scaled(inputs: Tensor, *tensors: Tensor) -> Tensor:
        outputs = function(inputs)
        views = [tensor.view(len(tensor), *[1] * (inputs.ndim - 1 - axes), *tensor.shape[1:]) for tensor in tensors]
        for weight in views[:1]:
            outputs = outputs * weight
        for bias in views[1:]:
            outputs = outputs + bias
        return outputs

    return scaled


def _group_norm(module: nn.GroupNorm) -> Callable[..., Tensor]:
    groups, eps = module.num_groups, module.eps
    normed = _of_examples(lambda inputs: F.group_norm(inputs, groups, eps=eps))
    scaled = _scaled(lambda inputs: inputs, 1)
    return lambda inputs, *tensors: scaled(normed(inputs).movedim(2, -1), *tensors).movedim(-1, 2)


def _convolution(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, names: Sequence[str]) -> Layer:
    if module.padding_mode != "zeros":
        raise _NoStackError
    padding = module.padding
    if isinstance(padding, str):
        reach = [step * (side - 1) for step, side in zip(module.dilation, module.kernel_size, strict=True)]
        if padding == "same" and any(total % 2 for total in reach):
            raise _NoStackError
        padding = tuple(total // 2 if padding == "same" else 0 for total in reach)
    return Convolution(names, ([*module.stride], [*padding], [*module.dilation]), module.groups)


def _max_pool(module: nn.MaxPool2d) -> MaxPool:
    if module.return_indices:
        raise _NoStackError
    sizes = (module.kernel_size, module.stride, module.padding, module.dilation)
    sides = [[side] * 2 if isinstance(side, int) else [*side] for side in sizes]
    return MaxPool((sides[0], sides[1], sides[2], sides[3], module.ceil_mode))


def _merged(layers: list[Layer]) -> list[Layer]:
    """Equivalent layers: max-pooling moves into the convolution before it, past ReLU, which then has less to do."""
    merged: list[Layer] = []
    for layer in layers:
        before = len(merged) - 1
        if isinstance(layer, MaxPool):
            before -= bool(merged) and isinstance(merged[-1], Relu)
            earlier = merged[before] if before >= 0 else None
            if isinstance(earlier, Convolution) and earlier.pool is None:
                merged[before] = Convolution(earlier.names, earlier.sides, earlier.groups, layer)
                continue
        merged.append(layer)
    for previous, layer in pairwise(merged):
        if isinstance(layer, Relu):
            layer.in_place = previous.fresh
    return merged
