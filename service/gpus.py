"""The most GPUs that Ray, which gives them to packs, can find on this machine; nothing is loaded or started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_OTHERS = ("kfd", "dxg", "dri/renderD*")  # of AMD, of Windows' Linux, and of anything that draws: not counted here


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
