"""Quantised uploads: what a client returns, in whole numbers of few bits with one scale a block.

    v = pseudo-gradient + residual;   in each block of 256 numbers:  s = max |v| / (2^(bits-1) - 1),  q = s round(v / s)
    the server receives q;   residual = v - q stays with the client until it takes part again

    int8    8 bits, without residual
    int4    4 bits, with residual ("error feedback")

Rounding is to the nearest, ties to even, so that nothing is drawn. A block of zeros stays zero, and a value that is not
finite makes its whole block non-finite. The residual is in the units of the pseudo-gradient. A client sends bits / 8
bytes for each parameter, and a scale with the trial's type for each block.

Source: "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of Speech DNNs"
(Seide et al. 2014) for error feedback; "Streaming DiLoCo with overlapping communication" (Douillard et al. 2025) for 4
bits, there as floating point numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 256
"""Numbers with one scale."""


@dataclass(frozen=True)
class Quantiser:
    """How uploads are quantised.

    Args:
        bits: bits of each number.
        feedback: whether clients keep what rounding has left, and add it to their next upload.
    """

    bits: int
    feedback: bool

    def sent(self, values: Tensor) -> Tensor:
        """What the server receives of values (T, M, P).

        Examples:
            >>> Quantiser(4, feedback=True).sent(torch.tensor([[[7.0, 2.4, -0.5, 0.0]]])).tolist()
            [[[7.0, 2.0, -0.0, 0.0]]]
        """
        numbers = values.shape[-1]
        padded = torch.nn.functional.pad(values, (0, -numbers % BLOCK))
        blocks = padded.view(*values.shape[:-1], -1, BLOCK)
        scale = blocks.abs().amax(-1, keepdim=True) / (2 ** (self.bits - 1) - 1)
        steps = (blocks / torch.where(scale == 0, 1.0, scale)).round()
        sent: Tensor = (steps * scale).view_as(padded)
        return sent[..., :numbers]

    def bytes_of(self, parameters: int, scale_bytes: int) -> int:
        """Bytes of one client's upload.

        Args:
            parameters: numbers, without pads.
            scale_bytes: bytes of a scale.

        Examples:
            >>> Quantiser(4, feedback=True).bytes_of(1000, scale_bytes=4)
            516
        """
        return -(-parameters * self.bits // 8) + -(-parameters // BLOCK) * scale_bytes


QUANTISERS = {"int8": Quantiser(8, feedback=False), "int4": Quantiser(4, feedback=True)}
"""Value of `upload` in a trial -> quantiser."""
