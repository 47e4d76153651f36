"""Layers with derivatives by hand, for the oracle in `_by_hand`.

Tensors are (clients, examples, ...), as the module has them: images are (..., channels, height, width), in memory
channels last. `marks` is what `outputs` keeps for derivatives. The bits of dense layers and convolutions depend on the
products here and on their order (tests/equality).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trainers.models._dropout import Dropout

_ATEN = torch.ops.aten
_SMALL = 1 << 15  # numbers of a dense layer's weight, up to which gradients of all clients are added in one call
_FEW = 64  # rows, up to which a product in the type of the weight costs less than converting it afterwards

Tensors = list[Tensor]
"""(m, ...) tensors of a layer, in the order of its names."""


class Layer(ABC):
    """One step from inputs to scores.

    Attributes:
        names: names of its tensors in the layout.
        stacked: whether all clients are computed at once; else one after the other.
        twice: whether it has `turned` and `bends`, for Hessian-vector products.
        fresh: whether its outputs are a new tensor that nothing keeps, which the next layer may overwrite.
    """

    names: Sequence[str] = ()
    stacked: bool = True
    twice: bool = True
    fresh: bool = False

    @abstractmethod
    def outputs(self, tensors: Tensors, inputs: Tensor, keys: Tensor | None) -> tuple[Tensor, Any]:
        """The outputs, and marks. `keys` (m, examples) are the keys of dropout; None drops nothing."""

    def spread(self, slopes: Tensor, marks: Any) -> Any:
        """The slopes by the outputs, prepared once for both `slopes` and `add_`."""
        return slopes

    @abstractmethod
    def slopes(self, tensors: Tensors, spread: Any, marks: Any) -> Tensor:
        """The slopes by the inputs."""

    def add_(self, sums: Tensors, slopes: Tensor, spread: Any, marks: Any, fresh: bool = False) -> None:
        """Adds the gradients by the tensors to `sums`; `fresh` overwrites them."""
        return

    def turned(self, tensors: Tensors, turns: Tensors, change: Tensor | None, marks: Any) -> Tensor:
        """The change of the outputs along changes of the tensors (`turns`) and of the inputs (None is 0)."""
        raise NotImplementedError

    def bends(self, tensors: Tensors, spread: Any, turns: Tensors, bent: Any, marks: Any) -> Tensor:
        """The change of `slopes` along changes of the tensors (`turns`) and of the spread slopes (`bent`)."""
        return self.slopes(tensors, bent, marks)

    def add_products_(self, weight: Tensor, inputs: Tensor, spread: Any, fresh: bool = False) -> None:
        """Adds the gradient by the weight, from these inputs and slopes; only for layers with products."""
        raise NotImplementedError


def by_client(rows: Tensor, like: Tensor) -> Tensor:
    """Views rows (m * examples, ...) as (m, examples, ...), with the clients and examples of `like`."""
    return rows.view(*like.shape[:2], *rows.shape[1:])


def _add_bias_(sums: Tensors, slopes: Tensor, fresh: bool) -> None:
    """Adds slopes (m, ..., outputs) to the bias, if there is one."""
    for bias in sums[1:]:
        summed = slopes.flatten(1, -2).sum(1, dtype=bias.dtype)
        bias.copy_(summed) if fresh else bias.add_(summed)


class Dense(Layer):
    """Products of all clients at once.

    Activations are (m, examples, ..., units): with the last two axes swapped, forward products take a third longer.

    Args:
        names: names of weight and bias, or of the weight alone.
    """

    fresh = True

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def outputs(self, tensors: Tensors, inputs: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
        weight, rows = tensors[0], inputs.flatten(1, -2)
        across = weight.transpose(1, 2)
        outputs = torch.baddbmm(tensors[1][:, None], rows, across) if tensors[1:] else torch.bmm(rows, across)
        return outputs.view(*inputs.shape[:-1], -1), inputs

    def turned(self, tensors: Tensors, turns: Tensors, change: Tensor | None, marks: Any) -> Tensor:
        outputs, _ = self.outputs(turns, marks, None)
        if change is not None:
            outputs.flatten(1, -2).baddbmm_(change.flatten(1, -2), tensors[0].transpose(1, 2))
        return outputs

    def slopes(self, tensors: Tensors, spread: Tensor, marks: Any) -> Tensor:
        return torch.bmm(spread.flatten(1, -2), tensors[0]).view(*spread.shape[:-1], -1)

    def bends(self, tensors: Tensors, spread: Tensor, turns: Tensors, bent: Tensor, marks: Any) -> Tensor:
        bends = self.slopes(tensors, bent, marks)
        bends.flatten(1, -2).baddbmm_(spread.flatten(1, -2), turns[0])
        return bends

    def add_(self, sums: Tensors, slopes: Tensor, spread: Tensor, marks: Any, fresh: bool = False) -> None:
        self.add_products_(sums[0], marks, spread, fresh)
        _add_bias_(sums, slopes, fresh)

    def add_products_(self, weight: Tensor, inputs: Tensor, spread: Tensor, fresh: bool = False) -> None:
        spread, inputs = spread.flatten(1, -2), inputs.flatten(1, -2)
        if spread.shape[1] <= _FEW:
            spread, inputs = spread.to(weight.dtype), inputs.to(weight.dtype)
        pair = spread.transpose(1, 2), inputs
        if weight[0].numel() > _SMALL and weight.dtype == spread.dtype:
            weight.baddbmm_(*pair, beta=0 if fresh else 1)  # one product for each client, since they lie apart
        elif fresh:
            weight.copy_(torch.bmm(*pair))
        else:
            weight.add_(torch.bmm(*pair))


class MaxPool(Layer):
    """Maxima over windows of images.

    Args:
        window: sides, strides, paddings and dilations, (2,) each, and whether sizes are rounded up.
    """

    fresh = True

    def __init__(self, window: tuple[list[int], list[int], list[int], list[int], bool]) -> None:
        self.window = window

    def outputs(self, tensors: Tensors, inputs: Tensor, keys: Tensor | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        whole = inputs.flatten(0, 1)
        pooled, places = _ATEN.max_pool2d_with_indices(whole, *self.window)
        return by_client(pooled, inputs), (whole, places)

    def slopes(self, tensors: Tensors, spread: Tensor, marks: Any) -> Tensor:
        whole, places = marks
        slopes: Tensor = _ATEN.max_pool2d_with_indices_backward(spread.flatten(0, 1), whole, *self.window, places)
        return by_client(slopes, spread)

    def turned(self, tensors: Tensors, turns: Tensors, change: Tensor | None, marks: Any) -> Tensor:
        assert change is not None
        places = marks[1]
        gathered = change.flatten(0, 1).flatten(-2).gather(-1, places.flatten(-2))
        return by_client(gathered.view(places.shape), change)


class Convolution(Layer):
    """A convolution, perhaps with max-pooling right after it; one client at a time.

    Args:
        names: names of weight and bias, or of the weight alone.
        sides: strides, paddings and dilations.
        groups: groups of channels.
        pool: max-pooling of its outputs; None is none.
    """

    stacked = False
    fresh = True

    def __init__(
        self, names: Sequence[str], sides: tuple[list[int], ...], groups: int, pool: MaxPool | None = None
    ) -> None:
        self.names = names
        self.sides = sides
        self.groups = groups
        self.pool = pool

    def outputs(self, tensors: Tensors, inputs: Tensor, keys: Tensor | None) -> tuple[Tensor, tuple[Tensor, Any]]:
        whole = self._convolved(inputs, *tensors)
        if self.pool is None:
            return whole, (inputs, None)
        pooled, places = self.pool.outputs([], whole, None)
        return pooled, (inputs, places)

    def turned(self, tensors: Tensors, turns: Tensors, change: Tensor | None, marks: Any) -> Tensor:
        whole = self._convolved(marks[0], *turns)
        if change is not None:
            whole.add_(self._convolved(change, tensors[0]))
        return whole if self.pool is None else self.pool.turned([], [], whole, marks[1])

    def spread(self, slopes: Tensor, marks: Any) -> Tensor:
        return slopes if self.pool is None else self.pool.slopes([], slopes, marks[1])

    def slopes(self, tensors: Tensors, spread: Tensor, marks: Any) -> Tensor:
        return self._backward(tensors[0], marks[0], spread, [True, False, False])[0][None]

    def bends(self, tensors: Tensors, spread: Tensor, turns: Tensors, bent: Tensor, marks: Any) -> Tensor:
        return self.slopes(tensors, bent, marks).add_(self.slopes(turns, spread, marks))

    def add_(self, sums: Tensors, slopes: Tensor, spread: Tensor, marks: Any, fresh: bool = False) -> None:
        self.add_products_(sums[0], marks[0], spread, fresh)
        _add_bias_(sums, slopes.movedim(2, -1), fresh)

    def add_products_(self, weight: Tensor, inputs: Tensor, spread: Tensor, fresh: bool = False) -> None:
        gradient = self._backward(weight, inputs, spread, [False, True, False])[1]
        weight[0].copy_(gradient) if fresh else weight[0].add_(gradient)

    def _convolved(self, inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        bias_row = None if bias is None else bias[0]
        outputs: Tensor = _ATEN.convolution(inputs[0], weight[0], bias_row, *self.sides, False, self._none, self.groups)
        return outputs[None]

    def _backward(self, weight: Tensor, inputs: Tensor, spread: Tensor, mask: list[bool]) -> tuple[Tensor, ...]:
        pair = spread[0], inputs[0]
        gradients: tuple[Tensor, ...] = _ATEN.convolution_backward(
            *pair, weight[0], None, *self.sides, False, self._none, self.groups, mask
        )
        return gradients

    @property
    def _none(self) -> list[int]:
        """Padding of the outputs, which only transposed convolutions have."""
        return [0] * len(self.sides[0])


class WordVectors(Layer):
    """Rows of a table, by word ids; one client at a time.

    A gradient touches only the rows of a batch. This layer can only be the first one with tensors.

    Args:
        names: name of the table.
        padding: index of the row that is not trained; None trains all rows.
    """

    stacked = False
    twice = False
    fresh = True

    def __init__(self, names: Sequence[str], padding: int | None) -> None:
        self.names = names
        self.padding = padding

    def outputs(self, tensors: Tensors, inputs: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
        return F.embedding(inputs, tensors[0][0]), inputs

    def slopes(self, tensors: Tensors, spread: Tensor, marks: Any) -> Tensor:
        raise NotImplementedError

    def add_(self, sums: Tensors, slopes: Tensor, spread: Tensor, marks: Any, fresh: bool = False) -> None:
        if fresh:
            sums[0].zero_()
        rows, words = spread.flatten(0, -2), marks.flatten()
        if self.padding is not None:
            trained = words != self.padding
            rows, words = rows[trained], words[trained]
        sums[0][0].index_add_(0, words, rows.to(sums[0].dtype))


class Relu(Layer):
    """ReLU.

    Args:
        in_place: whether it may overwrite its inputs.
    """

    def __init__(self, in_place: bool = False) -> None:
        self.in_place = in_place

    def outputs(self, tensors: Tensors, inputs: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor]:
        outputs = inputs.relu_() if self.in_place else inputs.relu()
        return outputs, outputs

    def slopes(self, tensors: Tensors, spread: Tensor, marks: Any) -> Tensor:
        gated: Tensor = _ATEN.threshold_backward(spread, marks, 0)
        return gated

    def turned(self, tensors: Tensors, turns: Tensors, change: Tensor | None, marks: Any) -> Tensor:
        assert change is not None
        return self.slopes(tensors, change, marks)


class Dropped(Layer):
    """Dropout.

    Args:
        dropout: gives the factors of the units.
        call: number of the layer's call.
    """

    def __init__(self, dropout: Dropout, call: int) -> None:
        self.dropout = dropout
        self.call = call

    def outputs(self, tensors: Tensors, inputs: Tensor, keys: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if keys is None or self.dropout.rate == 0:
            return inputs, None
        factors = self.dropout.factors(keys, inputs[0, 0].numel(), inputs, self.call).view(inputs.shape)
        return inputs * factors, factors

    def slopes(self, tensors: Tensors, spread: Tensor, marks: Any) -> Tensor:
        return spread if marks is None else spread * marks

    def turned(self, tensors: Tensors, turns: Tensors, change: Tensor | None, marks: Any) -> Tensor:
        assert change is not None
        return self.slopes(tensors, change, marks)


class Flatten(Layer):
    """The numbers of an example in one row."""

    def outputs(self, tensors: Tensors, inputs: Tensor, keys: Tensor | None) -> tuple[Tensor, torch.Size]:
        return inputs.flatten(2), inputs.shape

    def slopes(self, tensors: Tensors, spread: Tensor, marks: Any) -> Tensor:
        return spread.view(marks)

    def turned(self, tensors: Tensors, turns: Tensors, change: Tensor | None, marks: Any) -> Tensor:
        assert change is not None
        return change.flatten(2)


class Permuted(Layer):
    """Another order of the dimensions.

    Args:
        order: new order of (examples, ...), in which examples stay first.
    """

    def __init__(self, order: Sequence[int]) -> None:
        self.order = [0, *(axis % len(order) + 1 for axis in order)]
        self.back = sorted(range(len(self.order)), key=self.order.__getitem__)

    def outputs(self, tensors: Tensors, inputs: Tensor, keys: Tensor | None) -> tuple[Tensor, None]:
        return inputs.permute(self.order), None

    def slopes(self, tensors: Tensors, spread: Tensor, marks: Any) -> Tensor:
        return spread.permute(self.back)

    def turned(self, tensors: Tensors, turns: Tensors, change: Tensor | None, marks: Any) -> Tensor:
        assert change is not None
        return change.permute(self.order)


class Differentiated(Layer):
    """Any function of all clients' inputs and tensors, whose derivatives are autograd's.

    Args:
        function: maps (m, examples, ...) inputs and (m, ...) tensors to outputs (m, examples, ...).
        names: names of the tensors.
    """

    twice = False

    def __init__(self, function: Callable[..., Tensor], names: Sequence[str] = ()) -> None:
        self.function = function
        self.names = names

    def outputs(self, tensors: Tensors, inputs: Tensor, keys: Tensor | None) -> tuple[Tensor, tuple[Tensors, Tensor]]:
        leaves = [tensor.detach() for tensor in (inputs, *tensors)]
        for leaf in leaves:
            leaf.requires_grad_(leaf.is_floating_point())
        with torch.enable_grad():
            outputs = self.function(*leaves)
        return outputs.detach(), (leaves, outputs)

    def spread(self, slopes: Tensor, marks: Any) -> tuple[Tensor, ...]:
        leaves, outputs = marks
        gradients: tuple[Tensor, ...] = torch.autograd.grad(outputs, leaves, slopes)
        return gradients

    def slopes(self, tensors: Tensors, spread: tuple[Tensor, ...], marks: Any) -> Tensor:
        return spread[0]

    def add_(self, sums: Tensors, slopes: Tensor, spread: tuple[Tensor, ...], marks: Any, fresh: bool = False) -> None:
        for total, gradient in zip(sums, spread[1:], strict=True):
            total.copy_(gradient) if fresh else total.add_(gradient)
