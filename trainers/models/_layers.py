"""Layers with derivatives by hand, for the oracle in `_by_hand`: dense ones, and convolutions with max-pooling.

Tensors are (clients, examples, ...); images are channels last. `marks` is what a layer's outputs leave for derivatives.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

_ATEN = torch.ops.aten
_SMALL = 1 << 15  # numbers of a dense layer's weight; sums of all clients' smaller ones are added in one call
_FEW = 64  # examples; up to these, a product in the type of the weight costs less than converting it afterwards
_POOL = ([2, 2], [2, 2], [0, 0], [1, 1], False)  # kernel, stride, padding, dilation, ceil_mode


class Layer(Protocol):
    """An affine map, and perhaps pooling. All derivatives are of, or by, its outputs before ReLU.

    Attributes:
        stacked: whether all clients are computed at once; else it gets one after the other.
    """

    stacked: bool

    def shown(self, inputs: Tensor) -> Tensor:
        """A model's inputs (m, examples, ...) as those of its first layer."""
        ...

    def outputs(self, weight: Tensor, bias: Tensor, inputs: Tensor) -> tuple[Tensor, Any]:
        """The outputs, and marks."""
        ...

    def turned(
        self, weight: Tensor, inputs: Tensor, turn: Tensor, bias: Tensor, change: Tensor | None, marks: Any
    ) -> Tensor:
        """The change of the outputs along changes of weight (`turn`), bias and inputs (None is 0)."""
        ...

    def spread(self, slopes: Tensor, marks: Any) -> Tensor:
        """The slopes by what is pooled, given those by the outputs."""
        ...

    def slopes(self, weight: Tensor, spread: Tensor) -> Tensor:
        """The slopes by the inputs."""
        ...

    def bends(self, weight: Tensor, spread: Tensor, turn: Tensor, bent: Tensor) -> Tensor:
        """The change of `slopes` along changes of weight (`turn`) and spread slopes (`bent`)."""
        ...

    def add_(self, weight: Tensor, inputs: Tensor, spread: Tensor, fresh: bool = False) -> None:
        """Adds the gradient by the weight to `weight`; `fresh` overwrites it."""
        ...


class DenseLayer:
    """Products of all clients at once.

    Activations are (m, examples, units): with the last two swapped, forward products take a third longer.
    """

    stacked = True

    def shown(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(2)

    def outputs(self, weight: Tensor, bias: Tensor, inputs: Tensor) -> tuple[Tensor, None]:
        return torch.baddbmm(bias[:, None], inputs.flatten(2), weight.transpose(1, 2)), None

    def turned(
        self, weight: Tensor, inputs: Tensor, turn: Tensor, bias: Tensor, change: Tensor | None, marks: Any
    ) -> Tensor:
        outputs, _ = self.outputs(turn, bias, inputs)
        return outputs if change is None else outputs.baddbmm_(change.flatten(2), weight.transpose(1, 2))

    def spread(self, slopes: Tensor, marks: Any) -> Tensor:
        return slopes

    def slopes(self, weight: Tensor, spread: Tensor) -> Tensor:
        return torch.bmm(spread, weight)

    def bends(self, weight: Tensor, spread: Tensor, turn: Tensor, bent: Tensor) -> Tensor:
        return torch.bmm(bent, weight).baddbmm_(spread, turn)

    def add_(self, weight: Tensor, inputs: Tensor, spread: Tensor, fresh: bool = False) -> None:
        if spread.shape[1] <= _FEW:
            spread, inputs = spread.to(weight.dtype), inputs.to(weight.dtype)
        pair = spread.transpose(1, 2), inputs.flatten(2)
        if weight[0].numel() > _SMALL and weight.dtype == spread.dtype:
            weight.baddbmm_(*pair, beta=0 if fresh else 1)  # one product for each client, as they lie apart
        elif fresh:
            weight.copy_(torch.bmm(*pair))
        else:
            weight.add_(torch.bmm(*pair))


class ConvolutionLayer:
    """A convolution that keeps the size, and max-pooling by 2; one client at a time.

    Args:
        kernel: odd side of the convolution.
    """

    stacked = False

    def __init__(self, kernel: int) -> None:
        self.padding = kernel // 2

    def shown(self, inputs: Tensor) -> Tensor:
        return inputs.movedim(-3, -1)

    def outputs(self, weight: Tensor, bias: Tensor, inputs: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        whole = self._convolved(inputs, weight, bias)
        pooled, places = _ATEN.max_pool2d_with_indices(whole, *_POOL)
        return _rows(pooled), (whole, places)

    def turned(
        self, weight: Tensor, inputs: Tensor, turn: Tensor, bias: Tensor, change: Tensor | None, marks: Any
    ) -> Tensor:
        whole = self._convolved(inputs, turn, bias)
        if change is not None:
            whole.add_(self._convolved(change, weight, None))
        places = _rows(marks[1])
        return _rows(whole).flatten(2, 3).gather(2, places.flatten(2, 3)).view(places.shape)

    def spread(self, slopes: Tensor, marks: Any) -> Tensor:
        return _rows(_ATEN.max_pool2d_with_indices_backward(_images(slopes), marks[0], *_POOL, marks[1]))

    def slopes(self, weight: Tensor, spread: Tensor) -> Tensor:
        return _rows(F.conv_transpose2d(_images(spread), weight[0], padding=self.padding))

    def bends(self, weight: Tensor, spread: Tensor, turn: Tensor, bent: Tensor) -> Tensor:
        return self.slopes(weight, bent).add_(self.slopes(turn, spread))

    def add_(self, weight: Tensor, inputs: Tensor, spread: Tensor, fresh: bool = False) -> None:
        sides = ([1, 1], [self.padding] * 2, [1, 1], False, [0, 0], 1)  # stride, padding, dilation, not transposed
        pair = _images(spread), _images(inputs)
        gradient = _ATEN.convolution_backward(*pair, weight[0], None, *sides, [False, True, False])[1]
        weight[0].copy_(gradient) if fresh else weight[0].add_(gradient)

    def _convolved(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.conv2d(_images(inputs), weight[0], None if bias is None else bias[0], padding=self.padding)


def _images(rows: Tensor) -> Tensor:
    """(examples, channels, height, width) of one client's (1, examples, height, width, channels)."""
    return rows[0].movedim(-1, -3)


def _rows(images: Tensor) -> Tensor:
    """The inverse of `_images`."""
    return images.movedim(-3, -1)[None]
