"""Recorded calls of a module's layers: where two calls differ, and which layers are at the ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class LayerCall:
    """The tensors that a layer got and gave."""

    layer: str
    given: list[Tensor]
    made: list[Tensor]


@contextmanager
def recorded(module: nn.Module, running: list[str], calls: list[LayerCall]) -> Iterator[None]:
    """Records the calls of all layers, in the order in which they end, and which layers are running."""

    def entering(name: str) -> Callable[..., None]:
        return lambda *_: running.append(name)

    def leaving(name: str) -> Callable[..., None]:
        def record(_: nn.Module, args: Any, kwargs: Any, outputs: Any) -> None:
            running.pop()
            calls.append(LayerCall(name, [*_tensors(args), *_tensors(kwargs)], _tensors(outputs)))

        return record

    handles = []
    for name, layer in module.named_modules():
        handles.append(layer.register_forward_pre_hook(entering(name)))
        handles.append(layer.register_forward_hook(leaving(name), with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _tensors(value: Any) -> list[Tensor]:
    """The tensors inside tuples, lists and mappings."""
    if isinstance(value, Tensor):
        return [value.detach()]
    if isinstance(value, Mapping):
        value = list(value.values())
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, list | tuple) else []


def differing(one: Sequence[LayerCall], other: Sequence[LayerCall], tolerance: float) -> str | None:
    """The layer that gave other tensors for equal ones, or passed other ones to a layer inside it; None if none did.

    Args:
        one: the layers' calls in one call of the module, whose own call is the last.
        other: the layers' calls in another call of the module with the same inputs.
        tolerance: relative to the largest number of a tensor.
    """
    for first, second in zip(one, other, strict=False):
        if first.layer != second.layer or not _all_close(first.given, second.given, tolerance):
            return first.layer.rpartition(".")[0]
        if not _all_close(first.made, second.made, tolerance):
            return first.layer
    return None if len(one) == len(other) else ""


def mixing(reference: Sequence[LayerCall], others: Sequence[LayerCall], examples: list[int], tolerance: float) -> str:
    """The layer whose numbers for an example depend on the batch, or that passed such numbers to a layer inside it.

    Args:
        reference: the layers' calls with two examples.
        others: the layers' calls with one of the two, or with both in the other order.
        examples: indices of the examples of `others`.
        tolerance: relative to the largest number of a tensor.
    """

    def same(together: list[Tensor], single: list[Tensor]) -> bool:
        pairs = [pair for pair in zip(together, single, strict=False) if all(tensor.dim() for tensor in pair)]
        batched = [(many, few) for many, few in pairs if (len(many), len(few)) == (2, len(examples))]
        return all(close(many[examples], few, tolerance) for many, few in batched)

    for first, second in zip(reference, others, strict=False):
        if first.layer != second.layer or not same(first.given, second.given):
            return first.layer.rpartition(".")[0]
        if not same(first.made, second.made):
            return first.layer
    return ""


def end_parameters(module: nn.Module, inputs: Tensor) -> set[str]:
    """Names of the parameters of embeddings, of the first layer and of the layer whose answer is the scores.

    Args:
        module: called in evaluation mode; its mode is left as it is.
        inputs: (examples, ...).
    """
    layers = {
        name: layer
        for name, layer in module.named_modules()
        if any(parameter.ndim > 1 for parameter in layer.parameters(recurse=False))
    }
    answers: list[tuple[str, Any]] = []  # kept alive, so that no two have the same memory
    hooks = [
        layer.register_forward_hook(lambda _, __, answer, name=name: answers.append((name, answer)))
        for name, layer in layers.items()
    ]
    mode = module.training
    try:
        with torch.no_grad():
            scores = module.eval()(inputs)
    finally:
        module.train(mode)
        for hook in hooks:
            hook.remove()
    ends = {name for name, layer in layers.items() if isinstance(layer, nn.Embedding | nn.EmbeddingBag)}
    ends |= {name for name, _ in answers[:1]}
    ends |= {name for name, answer in answers if isinstance(answer, Tensor) and answer.data_ptr() == scores.data_ptr()}
    by_layer = ((name, layers[name].named_parameters(recurse=False)) for name in ends)
    return {f"{name}.{bare}" if name else bare for name, parameters in by_layer for bare, _ in parameters}


def _all_close(one: list[Tensor], other: list[Tensor], tolerance: float) -> bool:
    return len(one) == len(other) and all(close(*pair, tolerance) for pair in zip(one, other, strict=True))


def close(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Whether two tensors are equal up to rounding, relative to their largest number."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if torch.equal(one, other) or not one.is_floating_point():
        return bool(torch.equal(one, other))
    size = one.nan_to_num(0, 0, 0).abs().max().item() if one.numel() else 0.0
    return bool(torch.allclose(one, other, rtol=tolerance, atol=tolerance * size, equal_nan=True))
