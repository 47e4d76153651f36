"""Memory: kept in the process when it is freed, aligned where arithmetic reads it, and how much there is.

Without the first page faults are most of the cost of short-lived tensors. The second is for the last bits: products of
numbers that begin in the middle of a cache line may be summed in another order, and where numpy puts an array differs
from process to process.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

_LINE = 64  # bytes
_TRIM_THRESHOLD = -1  # M_TRIM_THRESHOLD of malloc.h
_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h
_GROUPS = (  # limit, use and facts of a control group, of version 2 and 1
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory")  # torch's CPU allocator has no error of its own


@cache
def keep_freed_memory() -> bool:
    """Asks glibc to serve blocks of up to 1 GiB from its heap and never to give the heap's end back.

    Returns:
        Whether it was done; False where the C library is another one.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, 1 << 30)) and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))


def owned(array: NDArray[Any], like: Tensor) -> Tensor:
    """An array as a tensor that begins on a cache line; copied only where it has to be.

    Args:
        array: of numbers.
        like: of the type and on the device that the tensor is to have.
    """
    tensor = torch.as_tensor(array).to(like)
    return tensor if tensor.data_ptr() % _LINE == 0 else tensor.clone()


def available_memory(root: str = "/") -> int | None:
    """Bytes that this process may still take: of the computer, and of its control group where that has a limit.

    Args:
        root: folder in which proc and sys are found.

    Returns:
        None where the system does not say.
    """
    lines = _read(f"{root}/proc/meminfo").splitlines()
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    for names in _GROUPS:
        most, now, facts = (_read(f"{root}/sys/fs/cgroup/{name}") for name in names)
        if most.strip().isdigit() and now.strip().isdigit():  # "max" is no limit
            files = sum(int(line.split()[1]) for line in facts.splitlines() if line.startswith("inactive_file "))
            found.append(max(0, int(most) - int(now) + files))  # files that were read are given back when needed
    return min(found, default=None)


def ran_out(error: BaseException) -> bool:
    """Whether an error says that memory ran out: of the computer or of a GPU, as Python, numpy or torch say it."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


def _read(path: str) -> str:
    """The text of a file; "" where there is none to read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
