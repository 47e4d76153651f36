"""Large tables, converted once: their arrays are files of the cache, which every process maps into its memory.

The key of a table is made of the checksum of its data, the columns and the code that reads them. Its inputs in the
order of the clients are an entry of their own, whose key has the rows, unless these are all rows in order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache as once
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers import disk_cache
from trainers.data.columns import Names
from trainers.data.data_source import DataSource
from trainers.data.embeddings import Embedding
from trainers.data.partitions import Rows, all_in_order
from trainers.data.table import Labelling, SideNames, Table, TablePart, read

_KEPT = 32 * 2**20  # bytes of the data's files from which on a table is cached
_HELD = 64 * 2**20  # bytes of inputs that stay in memory beside the model
_ROWS = 2**16  # at once
_FACTS = "table.json"
_LIBRARIES = ("numpy", "pyarrow", "h5py", "pillow")
_SIDES = ("main", "test", "server", "validation")
_ARRAYS = ("inputs", "targets", "clients", "people")


def load(source: DataSource, names: Names, sides: SideNames, labelling: Labelling, path: str) -> Table:
    """The checked examples of a data set, cached until a file of the data changes."""
    return _load(source, source.stamp(), names, sides, labelling, path)


def forget(table: Table) -> None:
    """Drops large tables from the cache in memory: the model now holds their examples in its own form.

    Args:
        table: from `load`.
    """
    sizes = [part.inputs.nbytes for side in _SIDES if (part := getattr(table, side)) is not None]
    if sum(sizes) > _HELD and table.key is None:
        _load.cache_clear()


@lru_cache(maxsize=2)
def _load(
    source: DataSource,
    stamp: Hashable,
    names: Names,
    sides: SideNames,
    labelling: Labelling,
    path: str,
) -> Table:
    if source.size < _KEPT:
        return read(source, names, sides, labelling, path)
    facts = [asdict(names), {side: asdict(side_names) for side, side_names in sides}, labelling and asdict(labelling)]
    code = _code(getattr(source.format, "__file__", None))
    key = disk_cache.key("table", source.digest(), source.name, type(labelling).__name__, facts, code)
    table = disk_cache.entry(key, lambda folder: _write(folder, read(source, names, sides, labelling, path)), _read)
    return read(source, names, sides, labelling, path) if table is None else replace(table, key=key)


def in_order(
    table: Table, side: str, rows: Rows, inputs_of: Callable[[Rows], NDArray[Any]], facts: Any
) -> NDArray[Any]:
    """`inputs_of(rows)`, from the cache if the table is in it.

    Args:
        table: the table.
        side: "main", "test", "server" or "validation".
        rows: of this side.
        inputs_of: maps rows to their inputs, row by row.
        facts: JSON-compatible facts that identify `inputs_of`; None if it returns the inputs unchanged.
    """
    part = table.side(side)
    if table.key is None or len(rows) <= _ROWS:
        return inputs_of(rows)
    if facts is None and len(rows) == len(part.inputs) and all_in_order(rows):
        return part.inputs
    name = disk_cache.key("order", table.key, side, hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest(), facts)

    def write(folder: Path) -> None:
        first = inputs_of(rows[:1])
        result = np.lib.format.open_memmap(folder / "inputs.npy", "w+", first.dtype, (len(rows), *first.shape[1:]))
        for start in range(0, len(rows), _ROWS):
            result[start : start + _ROWS] = inputs_of(rows[start : start + _ROWS])
        result.flush()

    inputs = disk_cache.entry(name, write, lambda folder: _mapped(folder / "inputs.npy"))
    return inputs_of(rows) if inputs is None else inputs


def _write(folder: Path, table: Table) -> None:
    for side in _SIDES:
        part = getattr(table, side)
        for name in _ARRAYS if part is not None else ():
            _save(folder / f"{side}_{name}.npy", getattr(part, name))
    for name in ("mask", "marked", "kept", "groups"):
        _save(folder / f"{name}.npy", getattr(table, name))
    facts = {name: getattr(table, name) for name in ("sha256", "tokens", "labels", "lowest", "highest")}
    facts["embedded"] = [asdict(embedding) for embedding in table.embedded]
    (folder / _FACTS).write_text(json.dumps(facts), encoding="utf-8")


def _save(path: Path, array: NDArray[Any] | None) -> None:
    if array is not None:
        np.save(path, array, allow_pickle=False)


def _read(folder: Path) -> Table:
    facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
    facts["labels"] = None if facts["labels"] is None else tuple(facts["labels"])
    facts["embedded"] = tuple(Embedding(**entry) for entry in facts["embedded"])
    main, test, server, validation = (
        TablePart(*(_mapped(folder / f"{side}_{name}.npy") for name in _ARRAYS))
        if (folder / f"{side}_inputs.npy").exists()
        else None
        for side in _SIDES
    )
    assert main is not None
    more = {name: _mapped(folder / f"{name}.npy") for name in ("mask", "marked", "kept", "groups")}
    return Table(main=main, test=test, server=server, validation=validation, **more, **facts)


def _mapped(path: Path) -> Any:
    """The array in a file, memory-mapped; None without a file."""
    if not path.exists():
        return None
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return np.asarray(array) if array.size else np.load(path, allow_pickle=False)


@once
def _code(format_file: str | None) -> str:
    """A hash of the code that makes tables, with `format_file`, and of the versions of the libraries it reads with."""
    files = sorted([*Path(__file__).parent.rglob("*.py"), *([Path(format_file)] if format_file else [])])
    content = [file.read_bytes() for file in files]
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            content.append(f"{name} {version(name)}".encode())
    return hashlib.sha256(b"".join(content)).hexdigest()
