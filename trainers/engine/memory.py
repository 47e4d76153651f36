"""Memory: keeps freed memory in the process, aligns tensors to cache lines, and tells how much memory is available.

Keeping freed memory avoids page faults, which would be most of the cost of short-lived tensors. Alignment makes results
reproducible to the bit: if an array begins in the middle of a cache line, a product may sum its numbers in another
order, and numpy places arrays differently from process to process.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from functools import cache
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

_LINE = 64  # bytes
_TRIM_THRESHOLD = -1  # M_TRIM_THRESHOLD of malloc.h
_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h
_GROUPS = (  # files with the limit, the usage and the statistics of a control group, version 2 and version 1
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory")  # torch's CPU allocator has no error of its own


@cache
def keep_freed_memory() -> bool:
    """Asks glibc to serve blocks of up to 1 GiB from its heap and never to give the heap's end back.

    Returns:
        Whether glibc accepted; False with another C library.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, 1 << 30)) and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))


def release_freed_memory() -> None:
    """Asks glibc to give freed memory back, after work that needed much more than what follows; no-op without glibc."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return


def owned(array: NDArray[Any], like: Tensor) -> Tensor:
    """An array as a tensor that begins on a cache line; copies only if it must.

    Args:
        array: the numbers.
        like: a tensor with the type and device of the result.
    """
    tensor = tensor_of(array).to(like)
    return tensor if tensor.data_ptr() % _LINE == 0 else tensor.clone()


def tensor_of(array: NDArray[Any], dtype: torch.dtype | None = None, device: torch.device | None = None) -> Tensor:
    """An array of examples, which may be read-only, as a tensor that must not be written; copies only if it must."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.as_tensor(native(array), dtype=dtype, device=device)


def native(array: NDArray[Any]) -> NDArray[Any]:
    """An array in the byte order of the computer, which torch needs; copies only if it must."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def available_memory(root: str = "/") -> int | None:
    """Bytes that this process may still allocate, by the limits of the computer and of its control group.

    Args:
        root: folder that contains proc and sys.

    Returns:
        None if the system does not tell.
    """
    lines = _read(f"{root}/proc/meminfo").splitlines()
    limits = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    for names in _GROUPS:
        most, now, facts = (_read(f"{root}/sys/fs/cgroup/{name}") for name in names)
        if most.strip().isdigit() and now.strip().isdigit():  # "max" is no limit
            files = sum(int(line.split()[1]) for line in facts.splitlines() if line.startswith("inactive_file "))
            limits.append(max(0, int(most) - int(now) + files))  # the kernel drops cached files when memory is needed
    return min(limits, default=None)


def total_memory(root: str = "/") -> int | None:
    """Bytes of the computer's memory, or the limit of this process's control group if that is less.

    Args:
        root: folder that contains proc and sys.

    Returns:
        None if the system does not tell.
    """
    lines = _read(f"{root}/proc/meminfo").splitlines()
    limits = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:")]
    most = [_read(f"{root}/sys/fs/cgroup/{names[0]}").strip() for names in _GROUPS]
    return min([*limits, *(int(text) for text in most if text.isdigit())], default=None)


@cache
def room(device: torch.device) -> int:
    """Bytes that the temporary tensors of one call may take on an accelerator.

    A share of all its memory, not of what is free, so that every process cuts work into the same pieces and the last
    digits of results do not depend on other processes.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory // 16
    return 1 << 30


def ran_out(error: BaseException) -> bool:
    """Whether an error from Python, numpy or torch means that the computer or a GPU ran out of memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


def _read(path: str) -> str:
    """The text of a file; "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
