"""A device with memory of its own, faked on the CPU: finds tensors in the wrong place where there is no GPU.

Inside `fake_device()` tensors can be made on `FAKE` or moved there. They hold their numbers in ordinary tensors, so the
arithmetic is that of the CPU, to the bit. As on a GPU, operations that mix them with tensors on the CPU are errors (but
for numbers and for indices), and numpy cannot read them. `Calls` counts what a GPU would have to do.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

FAKE = torch.device("meta")
"""torch never runs anything on "meta" tensors, which have no numbers: so nothing else can be meant."""

_ATEN = torch.ops.aten
_MAY_MIX = (_ATEN.copy_, _ATEN._to_copy, _ATEN.index, _ATEN.index_put_, _ATEN._index_put_impl_)
_save = torch.save


@dataclass
class Calls:
    """What was done with tensors on the fake device.

    Args:
        operations: calls that compute something there, by name: at least one kernel of a GPU each.
        reads: times that the CPU had to wait for numbers from there.
    """

    operations: Counter[str] = field(default_factory=Counter)
    reads: int = 0


class OnDevice(Tensor):
    """A tensor on the fake device; `numbers` is what it holds."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, numbers: Tensor) -> Self:
        made = Tensor._make_wrapper_subclass(
            cls,
            numbers.size(),
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=FAKE,
        )
        made.numbers = numbers
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} outside fake_device()")


def numbers_of(values: Any) -> Any:
    """Any structure, with the numbers instead of the tensors on the fake device."""
    return tree_map_only(OnDevice, lambda held: held.numbers, values)


class _Operations(TorchDispatchMode):
    """Runs every operation on the numbers; results stay on the device."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
        there = [value for value in tensors if isinstance(value, OnDevice)]
        here = [value for value in tensors if not isinstance(value, OnDevice)]
        if there and any(value.dim() for value in here) and func.overloadpacket not in _MAY_MIX:
            raise RuntimeError(f"{func}: all tensors must be on the same device, got some on the CPU")
        stays = bool(there)
        if func.overloadpacket is _ATEN.copy_:
            stays = isinstance(args[0], OnDevice)
        elif kwargs.get("device") is not None:
            stays = torch.device(kwargs["device"]) == FAKE
            kwargs["device"] = torch.device("cpu")
        self._count(func, bool(there), stays)
        held, more = numbers_of((args, kwargs))
        result = func(*held, **more)
        if not stays or func.overloadpacket is _ATEN._local_scalar_dense:
            return result
        known = {id(value.numbers): value for value in there}  # in place, or out=
        return tree_map_only(Tensor, lambda found: known[id(found)] if id(found) in known else OnDevice(found), result)

    def _count(self, func: Any, comes: bool, stays: bool) -> None:
        if comes and (not stays or func.overloadpacket is _ATEN._local_scalar_dense):
            self.calls.reads += 1
        elif stays and not func.is_view and "empty" not in func.overloadpacket.__name__:
            self.calls.operations[func.overloadpacket.__name__] += 1


class _Functions(TorchFunctionMode):
    """What torch does before it comes to operations."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        first = args[0] if args else None
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") == FAKE:
            del kwargs["device"]
            return func(*args, **kwargs).to(FAKE)
        if isinstance(first, OnDevice):
            if func is Tensor.new_tensor:
                return torch.tensor(*args[1:], **{"dtype": first.dtype, **kwargs}).to(FAKE)
            if func is Tensor.tolist:
                return first.cpu().tolist()
            if func is Tensor.data_ptr:
                return first.numbers.data_ptr()
            if func == Tensor.data.__set__:
                first.numbers = args[1].numbers
        return func(*args, **kwargs)


@contextmanager
def fake_device() -> Iterator[Calls]:
    """Makes tensors on `FAKE` work; gives the counts, which can be set back."""
    calls = Calls()

    def save(payload: Any, file: Any) -> None:
        _save(numbers_of(payload), file)

    with mock.patch.object(torch, "save", save), _Functions(), _Operations(calls):
        yield calls
