"""A table in each form of a user's data: columns of numbers, strings or lists of strings."""

import csv
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
from pyarrow import parquet


def write(path: Path, columns: dict[str, Any]) -> None:
    """Writes columns in the form that the name of the file ends with; HDF5 has a group for each client."""
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(columns), path, row_group_size=7)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(
                [" | ".join(one) if isinstance(one, list) else one for one in row.values()] for row in rows
            )
    elif path.suffix == ".npz":
        np.savez(path, **{name: np.array(column) for name, column in columns.items()})
    else:
        with h5py.File(path, "w") as file:
            for client in dict.fromkeys(columns["client"]):
                for name in columns.keys() - {"client"}:
                    own = [row[name] for row in rows if row["client"] == client]
                    file[f"examples/{client}/{name}"] = own
