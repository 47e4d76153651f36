"""The matrix products and convolutions of some work, to be computed alone, for benchmarks/engine.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_PRODUCTS = ("mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_", "convolution", "convolution_backward")

Call = tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]


class Products(TorchDispatchMode):
    """Records the products that are computed in its context: operation, shapes and strides.

    Tensors of equal shape and strides are one tensor in the recorded calls, which therefore read from caches more often
    than the work does: what they take is a bound that no order of the same products could go below.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._held: dict[tuple[Any, ...], Tensor] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket.__name__ in _PRODUCTS:
            self.calls.append((func, tuple(map(self._stand_in, args)), kwargs or {}))
        return func(*args, **(kwargs or {}))

    def replay(self) -> None:
        """Computes the products alone."""
        for function, args, settings in self.calls:
            function(*args, **settings)

    def _stand_in(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        key = (value.shape, value.stride(), value.dtype)
        if key not in self._held:
            self._held[key] = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).fill_(0.01)
        return self._held[key]
