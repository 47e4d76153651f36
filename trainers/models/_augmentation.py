"""Augmentation: shifted and mirrored images, the same in every oracle, in every pack and after any restart.

Every example of every batch has its own 64 random bits, a function of (seed, round, client, step, position in the
batch), which all trials of a pack share. The lower half chooses how an image is shifted and whether it is mirrored.
Losses and accuracies on all data of a client, and evaluations, use unchanged images.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_FLIP_BITS = 1
_MOVE_BITS = 15


def moved(images: Tensor, words: Tensor, crop: int, flip: bool) -> Tensor:
    """Images shifted by up to `crop` pixels in each direction, filled with 0, and mirrored with probability 1/2.

    Args:
        images: (..., channels, height, width).
        words: (...) int64, 64 random bits each.
        crop: pixels, at least 0.
        flip: whether to mirror left and right.

    Returns:
        The same shape, channels last in memory.
    """
    shape, images, words = images.shape, images.flatten(0, -4), words.reshape(-1)
    count, _, height, width = images.shape
    padded = F.pad(images, (crop, crop, crop, crop)).permute(0, 2, 3, 1)

    def offset(shift: int) -> Tensor:
        return ((words >> shift & (1 << _MOVE_BITS) - 1) * (2 * crop + 1)) >> _MOVE_BITS

    across = torch.arange(width, device=words.device).expand(count, width)
    if flip:
        across = torch.where((words & 1 == 1)[:, None], width - 1 - across, across)
    columns = across + offset(_FLIP_BITS)[:, None]
    rows = torch.arange(height, device=words.device) + offset(_FLIP_BITS + _MOVE_BITS)[:, None]
    first = torch.arange(count, device=words.device)
    taken = padded[first[:, None, None], rows[:, :, None], columns[:, None, :]]
    return taken.view(*shape[:-3], height, width, -1).movedim(-1, -3)
