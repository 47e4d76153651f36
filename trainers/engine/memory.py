"""Keeps freed memory in the process: without it page faults are most of the cost of short-lived tensors."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

_TRIM_THRESHOLD = -1  # M_TRIM_THRESHOLD of malloc.h
_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h


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
