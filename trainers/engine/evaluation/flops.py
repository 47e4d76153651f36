"""Floating-point operations of a gradient, from its products, convolutions and attention; a multiply-add counts as 2.

The gradient with respect to an operand of a product costs as much as the product. Torch's own FlopCounterMode gives the
same numbers, but its first use imports torch's compiler, which takes seconds in every worker process; it only serves
models with multi-head attention or unusual calls. Recurrent layers are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor
from torch.overrides import TorchFunctionMode

from trainers.engine.oracles.oracle import Model

_known: WeakKeyDictionary[Model, float] = WeakKeyDictionary()
_UNCOUNTABLE = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu", "bilinear"})


def gradient_flops(model: Model) -> float:
    """Operations of the loss and its gradient on one example, forward and backward.

    Elementwise operations are not counted; a quadratic with d parameters has 2 d^2. NaN for a model with recurrent
    layers. The count is taken from one gradient of the reference oracle ("autograd", else the model's first oracle).

    Args:
        model: the model with its data.
    """
    if model not in _known:
        oracle = model.oracles.get("autograd", next(iter(model.oracles.values())))
        batch = model.source(0, 1, "with_replacement").round(0, np.zeros(1, np.int64)).batch(0, 1)
        params = model.start(None, 0).view(1, 1, -1)
        _known[model] = counted(lambda: oracle.value_and_grad(params, batch))
    return _known[model]


def example_cost(model: Model, of_clients: Model) -> float:
    """Operations of an example's gradient of the server's loss, divided by those of the clients'.

    1 for a loss over examples, whose model is the clients', and where operations cannot be counted.

    Args:
        model: the model with the server's data, or with its loss without data.
        of_clients: the model with the clients' data.
    """
    if model.examples is not None:
        return 1.0
    try:
        cost = gradient_flops(model) / gradient_flops(of_clients)
    except Exception:  # of a plug-in's model: a count must not stop its training
        return 1.0
    return cost if 0 < cost < math.inf else 1.0


def counted(compute: Callable[[], object]) -> float:
    """Operations of `compute`, and of the gradients with respect to the operands that require one."""
    products = _Products()
    with products:
        compute()
    if not products.unknown:
        return products.flops
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        compute()
    return float(counter.get_total_flops())


class _Products(TorchFunctionMode):
    """Counts the operations of all products that are computed in its context."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0.0
        self.unknown = False

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in _UNCOUNTABLE:
            self.flops = math.nan
        elif name == "multi_head_attention_forward":
            self.unknown = True
        elif name in _FORWARD:
            forward, first = _FORWARD[name]
            operands = [value for value in args[first:] if isinstance(value, Tensor)][:2]
            if len(operands) < 2 or (name == "einsum" and "..." in args[0]):
                self.unknown = True
            else:
                self.flops += forward(result, *operands, args) * (1 + sum(value.requires_grad for value in operands))
        return result


def _product(result: Tensor, left: Tensor, right: Tensor, args: Sequence[Any]) -> int:
    return 2 * result.numel() * left.shape[-1]


def _convolution(result: Tensor, inputs: Tensor, weight: Tensor, args: Sequence[Any]) -> int:
    return 2 * result.numel() * weight[0].numel()


def _transposed(result: Tensor, inputs: Tensor, weight: Tensor, args: Sequence[Any]) -> int:
    return 2 * inputs.numel() * weight[0].numel()


def _attention(result: Tensor, query: Tensor, key: Tensor, args: Sequence[Any]) -> int:
    pairs = math.prod(query.shape[:-1]) * key.shape[-2]
    return 2 * pairs * (query.shape[-1] + result.shape[-1])


def _einsum(result: Tensor, left: Tensor, right: Tensor, args: Sequence[Any]) -> int:
    terms = args[0].replace(" ", "").partition("->")[0].split(",")
    sizes = {
        letter: size
        for term, tensor in zip(terms, (left, right), strict=True)
        for letter, size in zip(term, tensor.shape, strict=True)
    }
    return 2 * math.prod(sizes.values())


_FORWARD: dict[str, tuple[Callable[..., int], int]] = {
    **dict.fromkeys(("matmul", "__matmul__", "mm", "bmm", "mv", "linear"), (_product, 0)),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), (_product, 1)),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), (_convolution, 0)),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), (_transposed, 0)),
    "scaled_dot_product_attention": (_attention, 0),
    "einsum": (_einsum, 1),
}
"""Name of a torch function -> operations of its forward pass, and the position of its first operand."""
