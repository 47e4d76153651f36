"""Upper limit of the GPUs that Ray can find on this machine and give to packs; loads and starts nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_OTHERS = ("kfd", "dxg", "dri/renderD*")  # AMD's, WSL's and any graphics devices: not counted here


def machine_gpus(devices: Path = Path("/dev")) -> int | None:
    """The number of NVIDIA's GPUs, whatever build of torch is installed; None where there may be others.

    Args:
        devices: Folder of the devices.
    """
    if count := len([*devices.glob("nvidia[0-9]*")]):
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return count if visible is None else min(count, len([name for name in visible.split(",") if name]))
    others = sys.platform != "linux" or any(True for pattern in _OTHERS for _ in devices.glob(pattern))
    return None if others else 0
