"""Opens files that may be gzipped, by their names."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import IO, cast


def opened(path: Path) -> IO[bytes]:
    """Opens a file to read its bytes, decompressed if its name ends in .gz."""
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")
