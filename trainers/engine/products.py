"""The arithmetic in which a GPU computes matrix products and convolutions in single precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def products_in(dtype: str, device: torch.device) -> Iterator[None]:
    """A context in which factors in single precision are rounded to TF32 if `dtype` is "tf32", and are exact otherwise.

    torch's switches hold for the whole process and are set back at the end. By default torch rounds the factors of
    convolutions and of cuDNN's recurrent layers. On a CPU nothing is switched, because CPUs have no TF32.

    Args:
        dtype: dtype of the trial.
        device: device of its tensors.
    """
    if device.type == "cpu":
        yield
        return
    backends: Any = torch.backends  # torch's types do not know these switches
    kinds = (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)
    before = [kind.fp32_precision for kind in kinds]
    try:
        for kind in kinds:
            kind.fp32_precision = "tf32" if dtype == "tf32" else "ieee"
        yield
    finally:
        for kind, precision in zip(kinds, before, strict=True):
            kind.fp32_precision = precision
