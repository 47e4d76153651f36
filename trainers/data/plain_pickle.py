"""Reads pickles of arrays, numbers, strings, lists and mappings without executing anything that they name."""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
_KINDS = "biuf"  # of numpy types
_VERSIONED = 3  # values of a dtype's state: version, byte order, ...


class _Type:
    """Stands for numpy.dtype: keeps the code and the byte order."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code, self.order = _text(code), "|"

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < _VERSIONED:
            raise pickle.UnpicklingError("the type of an array is damaged")
        self.order = _text(state[1])

    def dtype(self) -> np.dtype[Any]:
        """The type, of numbers only."""
        dtype = np.dtype(self.code).newbyteorder("S" if self.order == ">" else "=")
        if dtype.kind not in _KINDS:
            raise pickle.UnpicklingError(f"an array must hold numbers, got {dtype}")
        return dtype


class _Array:
    """Stands for numpy.ndarray: keeps the shape, the type and the bytes, and makes the array at the end."""

    content: NDArray[Any] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, columns_first, data = state
        if not isinstance(kind, _Type) or not isinstance(data, bytes):
            raise pickle.UnpicklingError("an array must hold numbers")
        dtype = kind.dtype()
        if math.prod(shape) * dtype.itemsize != len(data) or min(shape, default=0) < 0:
            raise pickle.UnpicklingError(f"an array of shape {shape} must have another size")
        array = np.frombuffer(data, dtype).reshape(shape, order="F" if columns_first else "C")
        self.content = array.astype(dtype.newbyteorder("="), copy=False)


def _reconstructed(*_: Any) -> _Array:
    return _Array()


def _encoded(text: Any, encoding: Any = "latin1") -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("bytes must be written as latin1")
    return text.encode("latin1")


_KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    **{(module, "_reconstruct"): _reconstructed for module in _MODULES},
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _encoded,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _KNOWN[module, name]
        except KeyError as error:
            raise pickle.UnpicklingError(
                f"{module}.{name} must not be in it: only numbers and arrays are read"
            ) from error

    def persistent_load(self, _: Any) -> Any:
        raise pickle.UnpicklingError("it must not refer to other data")


def load(content: bytes) -> Any:
    """The value of a pickle, of Python 2 or 3; strings of Python 2 are bytes.

    Args:
        content: of the whole file.

    Raises:
        DAMAGE: the pickle is damaged, or names anything but arrays.
    """
    for code, argument, _ in pickletools.genops(content):  # a damaged memo index would fill the memory
        if code.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= int(argument or 0) <= len(content):
            raise pickle.UnpicklingError("a place is out of range")
    return _plain(_Unpickler(io.BytesIO(content), encoding="bytes").load())


def _plain(value: Any) -> Any:
    """The value with arrays in place of their stand-ins, at the top or in a mapping."""
    if isinstance(value, dict):
        return {key: item.content if isinstance(item, _Array) else item for key, item in value.items()}
    return value.content if isinstance(value, _Array) else value


def _text(value: Any) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)
