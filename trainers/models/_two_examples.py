"""The two examples with which a module is examined, chosen so that its first call fails rather than a later one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_LOOKED_AT = 64  # examples that are searched for one that differs from the other


def two_examples(parts: Sequence[Tensor], whole: bool) -> Tensor:
    """(2, ...) of two examples, which differ if the first ones do.

    Whole numbers may be places in a table, such as word ids: the examples are then those with the smallest and the
    largest number, or one of the two if a single example has both.

    Args:
        parts: (examples, ...) inputs for training, then those for testing.
        whole: whether the inputs are whole numbers.
    """
    last, others = parts[0][0], [*parts[0][:_LOOKED_AT]]
    if whole:
        width = last.numel()
        last = max((part[part.argmax() // width] for part in parts), key=lambda example: int(example.max()))
        others.insert(0, min((part[part.argmin() // width] for part in parts), key=lambda example: int(example.min())))
    return torch.stack([next((example for example in others if not torch.equal(example, last)), last), last])
