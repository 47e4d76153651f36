"""How many GPUs this machine has; torch, which tells, is not loaded into this process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_DEVICES = ("nvidia[0-9]*", "kfd", "dxg")  # of NVIDIA, AMD, and Windows' Linux
_PATIENCE_S = 60.0


def machine_gpus(devices: Path = Path("/dev")) -> int | None:
    """The number of GPUs, without starting a process where there is none; None if torch does not tell.

    Args:
        devices: Folder of the devices.
    """
    if not any(True for pattern in _DEVICES for _ in devices.glob(pattern)):
        return 0
    ask = [sys.executable, "-P", "-c", "import torch; print(torch.cuda.device_count())"]
    try:
        return int(subprocess.run(ask, capture_output=True, check=True, timeout=_PATIENCE_S).stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
