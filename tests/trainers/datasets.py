"""Whether the real data sets are on this machine, and problems as bags of examples."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainers.data.folder import data_dir
from trainers.problem import Examples


def needs(name: str) -> pytest.MarkDecorator:
    """Skips, in sight, where a file of the data folder is absent."""
    there = (data_dir() / name).is_file()
    why = f"set DATA_DIR to the folder that holds {Path(name).parent} to test with real data"
    return pytest.mark.skipif(not there, reason=why)


def bag(*parts: Examples | None) -> list[bytes]:
    """Each example as bytes, target included, to be compared as a multiset."""
    return sorted(
        np.append(x.astype(np.float64), y).tobytes()
        for part in parts
        if part is not None
        for x, y in zip(part.inputs, part.targets, strict=True)
    )


def npz_task(path: Path, train: Sequence[Any], test: Sequence[Any]) -> dict[str, Any]:
    """Writes inputs, targets and clients of training and of testing; the task that reads them."""
    names = ("x", "y", "client")
    held = {f"{name}_test": array for name, array in zip(names, test, strict=True)}
    np.savez(path, **dict(zip(names, train, strict=True)), **held)
    columns = {"inputs": "x_test", "targets": "y_test", "client": "client_test"}
    return {"name": "npz", "path": str(path), "test": columns}


def check_shape(examples: Examples, shape: tuple[int, ...], sizes: Any) -> None:
    """Offsets and sizes fit the rows."""
    assert examples.inputs.shape[1:] == shape
    assert len(examples.inputs) == len(examples.targets) == examples.sizes.sum()
    assert examples.sizes.tolist() == list(sizes)
    assert examples.offsets.tolist() == [0, *np.cumsum(examples.sizes)[:-1].tolist()]
    assert examples.inputs.flags.writeable
