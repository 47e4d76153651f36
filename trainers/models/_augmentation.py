"""Pictures moved and mirrored: the same way in every oracle, in every pack and after any restart.

Every example of every batch has 64 random bits of its own, a function of (seed, round, client, step, place in the
batch), which all trials of a pack share. The lower half chooses where a picture is moved to and whether it
is mirrored. Where a loss or an accuracy is taken on all data of a client, and in every evaluation, nothing is moved.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_FLIP_BITS = 1
_MOVE_BITS = 15


def moved(pictures: Tensor, words: Tensor, crop: int, flip: bool) -> Tensor:
    """Pictures moved by up to `crop` pixels up, down, left and right, 0 coming in, and mirrored half of the time.

    Args:
        pictures: (..., channels, height, width).
        words: (...) int64, 64 random bits each.
        crop: pixels, at least 0.
        flip: whether to mirror left and right.

    Returns:
        The same shape, channels last in memory.
    """
    shape, pictures, words = pictures.shape, pictures.flatten(0, -4), words.reshape(-1)
    count, _, height, width = pictures.shape
    padded = F.pad(pictures, (crop, crop, crop, crop)).permute(0, 2, 3, 1)

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
